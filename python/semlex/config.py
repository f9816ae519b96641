"""Settings of the command line, from arguments, the environment, ``semlex.toml`` and defaults, in that order."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotation
from typing import Any, Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from semlex.errors import ConfigurationError


class Settings(BaseSettings):
    """What the command line needs to know.

    Attributes:
        database_url: Server to use; none means the embedded Postgres. Also read from ``DATABASE_URL``.
        data_dir: Folder for semlex's data on this machine; the embedded Postgres lives in ``postgres`` below it.
        schema_name: Schema that holds semlex's tables.
        collection: Collection to work on.
        embedding_model: Name or folder of a model, ``static``, ``none``, or nothing for the best at hand.
        reranker_model: Name or folder of a reranker.
        use_reranking: Whether to rerank.
        device: Where local models run: ``mps``, ``cuda`` or ``cpu``.
        dimensions: Length of the vectors.
        vector_storage: ``vector`` or ``halfvec``, of new collections.
        language: Language of new collections.
        lexical: Keyword engine of new collections.
        stop_words: Whether new collections leave out of their keyword index the words that every text has.
        chunk_tokens: Most tokens of a chunk.
        overlap_tokens: Most tokens that neighbouring chunks share.
    """

    model_config = SettingsConfigDict(env_prefix="SEMLEX_", toml_file="semlex.toml", extra="ignore")

    database_url: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("SEMLEX_DATABASE_URL", "DATABASE_URL", "database_url")
    )
    data_dir: Path | None = None
    schema_name: str = Field(default="semlex", validation_alias=AliasChoices("SEMLEX_SCHEMA", "schema", "schema_name"))
    collection: str = "default_collection"
    embedding_model: str | None = None
    reranker_model: str | None = None
    use_reranking: bool | Literal["auto"] = "auto"
    device: str | None = None
    dimensions: int | None = None
    vector_storage: Literal["vector", "halfvec"] = "vector"
    language: str = "english"
    lexical: str = "bm25"
    stop_words: bool = True
    chunk_tokens: int = 500
    overlap_tokens: int = 50

    @property
    def url(self) -> str | None:
        """Address of the server with its secrets, or None for the embedded Postgres."""
        return None if self.database_url is None else self.database_url.get_secret_value()

    @property
    def retriever_options(self) -> dict[str, Any]:
        """What a retriever is made with, by its parameters' names."""
        of_collection = {"language", "lexical", "stop_words", "vector_storage", "chunk_tokens", "overlap_tokens"}
        own_names = {"database_url", "data_dir", "schema_name"}
        return self.model_dump(exclude=own_names | of_collection) | {
            "defaults": self.model_dump(include=of_collection),
            "db_url": self.url,
            "data_folder": self.server_folder if self.url is None else None,
            "schema": self.schema_name,
        }

    @property
    def server_folder(self) -> Path | None:
        """Folder of the embedded Postgres: the same that the library takes for the same SEMLEX_DATA_DIR."""
        return None if self.data_dir is None else self.data_dir / "postgres"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments before the environment before ``semlex.toml``."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**arguments: object) -> Settings:
    """Settings with the given arguments in front; arguments that are None are left to the other sources.

    Raises:
        ConfigurationError: A value is refused; the message names the setting, never its value.
    """
    try:
        return Settings(**{name: value for name, value in arguments.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigurationError(f"settings: {problems}") from None
