"""Settings as values: what each is, where it comes from, and what did not count beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from semlex.parameters import MIB, FileLimits
from semlex.settings.table import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.settings.table import Setting
    from semlex.types.query_log import QueryLogMode
    from semlex.types.results import SearchMode

ARGUMENT, BUILT_IN = "argument", "built in"
# What a retriever is made with by the same names.
_SAME = ("models", "reranker_model", "use_reranking", "chat_model", "device", "calibration", "query_log")


@dataclass(frozen=True, slots=True)
class Overridden:
    """A value that does not count, because another source goes before.

    Attributes:
        origin: Who says it.
        value: As it stands there, unread.
    """

    origin: str
    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting.

    Attributes:
        database_url: Server to use, with its secrets; none means the embedded Postgres.
        data_dir: Folder for semlex's data on this machine; the embedded Postgres lives in ``postgres`` below it.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        schema_name: Schema that holds semlex's tables; the setting is called ``schema``.
        collection: Collection to work on.
        embedding_model: Name or folder of a model, ``static``, ``none``, or nothing for the best at hand.
        models: Models behind servers or in folders that a collection may name.
        dimensions: Length of the vectors.
        device: Where local models run: ``mps``, ``cuda`` or ``cpu``.
        tokenizer: Path of the tokenizer of a model behind a server.
        vector_storage: ``vector`` or ``halfvec``, of new collections.
        vector_index: ``hnsw``, ``ivfflat`` or ``none``: what ``create-index`` builds.
        hnsw_m: Connections per node of such an index.
        hnsw_ef_construction: Candidates that are looked at while it is built.
        max_file_mib: Size of the largest text or table that is read.
        max_document_mib: Size of the largest PDF, office file, book or mail that is read.
        chunk_tokens: Most tokens of a chunk.
        overlap_tokens: Most tokens that neighbouring chunks share.
        min_tokens: Sections with fewer tokens are joined with the next one.
        language: Language of new collections.
        keyword: Keyword engine of new collections.
        stop_words: Whether new collections leave out of their keyword index the words that every text has.
        top_k: Number of hits.
        mode: ``vector``, ``keyword`` or ``hybrid``; none is hybrid where both are possible.
        fusion: ``completed``, ``rrf`` or ``linear``.
        hybrid_weight: Share of the vectors in hybrid search, 0 to 1; none: the model's own, else a half.
        rrf_k: Constant of fusion ``rrf``.
        oversampling: Candidates of each leg, as a multiple of `top_k`.
        min_similarity: Least cosine of a hit; none: no threshold.
        route: What decides the kind of a question: ``rules`` or ``chat``; none: nothing.
        calibration: File of a calibration, in place of the one that the collection has stored.
        fallback_folder: Folder of JSON files that are asked when nothing is found.
        use_database: Whether `semlex.from_settings` gives the database's retriever; else that of `fallback_folder`.
        query_log: What is kept of questions: ``off``, ``hash`` or ``text``.
        reranker_model: Name or folder of a reranker.
        use_reranking: Whether to rerank.
        chat_model: Name of a language model behind a server, which writes answers.
        enrichment_model: Name of one that writes a line about each chunk; nothing is sent before somebody agrees.
        origins: Where each setting comes from, by its name.
        overridden: What did not count, by the setting's name, in the order of the sources.
        notes: What was read and has no effect, and names that look like settings.
        files: Files that were read or looked for, in the order of the sources.
    """

    database_url: str | None = field(default=None, repr=False)
    data_dir: Path | None = None
    keep_alive: float = 300.0
    schema_name: str = "semlex"
    collection: str = "default_collection"
    embedding_model: str | None = None
    models: tuple[str, ...] = ()
    dimensions: int | None = None
    device: str | None = None
    tokenizer: str | None = None
    vector_storage: Literal["vector", "halfvec"] = "vector"
    vector_index: Literal["hnsw", "ivfflat", "none"] | None = None
    hnsw_m: int | None = None
    hnsw_ef_construction: int | None = None
    max_file_mib: int = 16
    max_document_mib: int = 128
    chunk_tokens: int = 500
    overlap_tokens: int = 50
    min_tokens: int = 32
    language: str = "english"
    keyword: str = "bm25"
    stop_words: bool = True
    top_k: int = 5
    mode: SearchMode | None = None
    fusion: Literal["completed", "rrf", "linear"] = "completed"
    hybrid_weight: float | None = None
    rrf_k: float = 60.0
    oversampling: float | None = None
    min_similarity: float | None = None
    route: Literal["rules", "chat"] | None = None
    calibration: Path | None = None
    fallback_folder: Path | None = None
    use_database: bool = True
    query_log: QueryLogMode = "off"
    reranker_model: str | None = None
    use_reranking: bool | Literal["auto"] = "auto"
    chat_model: str | None = None
    enrichment_model: str | None = None
    origins: dict[str, str] = field(default_factory=dict)
    overridden: dict[str, tuple[Overridden, ...]] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    files: tuple[Path, ...] = field(default=(), compare=False)

    @property
    def server_options(self) -> dict[str, Any]:
        """Which server and schema a client or a retriever is made for, by its parameters' names."""
        return {
            "db_url": self.database_url,
            "data_folder": self.server_folder if self.database_url is None else None,
            "keep_alive": self.keep_alive,
            "schema": self.schema_name,
        }

    @property
    def server_folder(self) -> Path | None:
        """Folder of the embedded Postgres: the same that the library takes for the same SEMLEX_DATA_DIR."""
        return None if self.data_dir is None else self.data_dir / "postgres"

    @property
    def file_limits(self) -> FileLimits:
        """The largest files that are read."""
        return FileLimits(self.max_file_mib * MIB, self.max_document_mib * MIB)

    def is_set(self, name: str) -> bool:
        """Whether somebody has set it: an argument, the environment, or a file."""
        return name in self.origins

    def calibration_of(self, collection: str) -> Path | None:
        """The file of a collection's calibration: it is that of the collection which the settings name."""
        return self.calibration if collection == self.collection else None

    @property
    def retriever_options(self) -> dict[str, Any]:
        """What a retriever is made with, by its parameters' names.

        What the command line says about the collection is an argument and refused where the collection is another;
        what the environment and files say is the default of new collections.
        """
        said: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.of_collection and setting.name in self.origins:
                (said if self.origins[setting.name] == ARGUMENT else defaults)[setting.name] = self.value(setting)
        return (
            {name: getattr(self, name) for name in _SAME}
            | said
            | self.server_options
            | {"defaults": defaults, "collection": self.collection, "file_limits": self.file_limits}
        )

    @property
    def search_options(self) -> dict[str, Any]:
        """What searches begin with, by the names of `semlex.retriever.configured.search_defaults.SearchDefaults`."""
        names = ("top_k", "fusion", "hybrid_weight", "rrf_k", "oversampling", "min_similarity", "route")
        # Hybrid where both legs are possible is what a search does without a mode.
        mode = None if self.mode == "hybrid" else self.mode
        return {name: getattr(self, name) for name in names} | {"mode": mode}

    def value(self, setting: Setting) -> Any:
        """The value of a setting of the table."""
        return getattr(self, setting.attribute)

    def values(self) -> dict[str, Any]:
        """Every setting's value by its name."""
        return {setting.name: self.value(setting) for setting in SETTINGS}
