"""What is known of a collection, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelMismatchError
from semlex.store.schema.distance import Distance, distance_named
from semlex.types.chunk_settings import ChunkSettings

if TYPE_CHECKING:
    import uuid
    from datetime import datetime

    from semlex.parameters import CollectionSettings, StorageName
    from semlex.store.keyword.base import KeywordEngine
    from semlex.store.postgres.server_info import ServerInfo
    from semlex.store.schema.names import Names


@dataclass(frozen=True, slots=True)
class EmbeddingVersion:
    """One set of vectors of a collection.

    Attributes:
        version: Number, from 1.
        identity_key: Everything that makes two models' vectors comparable or not, as one string.
        model: Name of the model.
        revision: Its revision, or None.
        dimensions: Length of each vector.
        storage: pgvector's type.
    """

    version: int
    identity_key: str
    model: str
    revision: str | None
    dimensions: int
    storage: StorageName = "vector"


@dataclass(frozen=True, slots=True)
class ListedCollection:
    """A collection of any version, as the registry has it.

    Attributes:
        name: Its name.
        keyword: Keyword engine.
        language: Of documents that name none.
        embedding_model: Its model, or None when it holds no vectors.
        dimensions: Length of the vectors, or None.
        created_at: When it was made, in UTC.
    """

    name: str
    keyword: str
    language: str
    embedding_model: str | None
    dimensions: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """An open collection: its names and settings as stored.

    Attributes:
        names: Its tables.
        server: The server it lives on.
        collection_id: Unique over time: a collection dropped and made again has another.
        settings: As decided when it was made.
        embedding: The vectors in use, or None while there are none.
        keyword: The engine of its keyword leg.
    """

    names: Names
    server: ServerInfo
    collection_id: uuid.UUID
    settings: CollectionSettings
    embedding: EmbeddingVersion | None
    keyword: KeywordEngine

    @property
    def distance(self) -> Distance:
        """The distance of its vectors."""
        return distance_named(self.settings.distance)

    @property
    def options(self) -> dict[str, Any]:
        """The options that it was made with, by the names of `WantedOptions`; None for one not decided yet."""
        cut = self.settings.chunk_settings
        storage = None if self.embedding is None else self.embedding.storage
        return (
            asdict(self.settings)
            | {"keyword": self.settings.keyword_engine, "vector_storage": storage}
            | (dict.fromkeys(ChunkSettings._fields) if cut is None else cut._asdict())
        )


def check_same_model(collection: CollectionInfo, wanted: EmbeddingVersion) -> None:
    """Refuses vectors that cannot be compared with the stored ones.

    Raises:
        ModelMismatchError: Names both models and both dimensions.
    """
    stored = collection.embedding
    if stored is None or stored.identity_key == wanted.identity_key:
        return
    raise ModelMismatchError(
        f"collection {collection.names.collection!r} holds vectors of {stored.model} ({stored.dimensions} dimensions, "
        f"{stored.identity_key}); this is {wanted.model} ({wanted.dimensions} dimensions, {wanted.identity_key}). "
        "Use the same model, or index into a new collection"
    )
