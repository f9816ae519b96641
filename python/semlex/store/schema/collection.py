"""What is known of a collection, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelMismatchError
from semlex.store.schema.distance import Distance, distance_named
from semlex.types.chunks import ChunkSettings

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
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
        calibration: What a cosine of these vectors means, as `ConfidenceCurve.to_dict` gives it, or None. Two sets are
            the same whatever was learned of them.
        probe: The model's vector of a fixed text when the set was begun, float32 in base64; None: vectors
            from elsewhere.
    """

    version: int
    identity_key: str
    model: str
    revision: str | None
    dimensions: int
    storage: StorageName = "vector"
    calibration: dict[str, Any] | None = field(default=None, compare=False)
    probe: str | None = field(default=None, compare=False)


_COLUMNS = tuple(one.name for one in fields(EmbeddingVersion))


@dataclass(frozen=True, slots=True)
class Versions:
    """The sets of vectors of a collection.

    Attributes:
        serving: Number of the one that whoever opens the collection uses; 0 while there is none.
        standing: Those that can answer, by their numbers.
        building: The one in the making, or None.
    """

    serving: int = 0
    standing: tuple[EmbeddingVersion, ...] = ()
    building: EmbeddingVersion | None = None

    @classmethod
    def stored(cls, serving: int, rows: Sequence[dict[str, Any]]) -> Versions:
        """What rows of the table of versions say, as JSON."""
        found = sorted(
            (EmbeddingVersion(**{name: row[name] for name in _COLUMNS}) for row in rows),
            key=lambda version: version.version,
        )
        building = {row["version"] for row in rows if row["building"]}
        return cls(
            serving,
            tuple(version for version in found if version.version not in building),
            next((version for version in found if version.version in building), None),
        )

    def of(self, identity_key: str) -> EmbeddingVersion | None:
        """The one that holds a model's vectors and can answer: the serving one where several do, else the newest."""
        own = [version for version in self.standing if version.identity_key == identity_key]
        return next((version for version in own if version.version == self.serving), own[-1] if own else None)

    @property
    def answering(self) -> EmbeddingVersion | None:
        """The one that whoever opens the collection uses, or None while there is none."""
        return next((version for version in self.standing if version.version == self.serving), None)


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
        cursor_key: Signs the cursors of its pages.
        settings: As decided when it was made.
        embedding: The vectors in use here, or None while there are none: the serving ones, or those of the open model.
        keyword: The engine of its keyword leg.
        versions: All of its sets of vectors.
    """

    names: Names
    server: ServerInfo
    collection_id: uuid.UUID
    cursor_key: bytes = field(repr=False)
    settings: CollectionSettings
    embedding: EmbeddingVersion | None
    keyword: KeywordEngine
    versions: Versions = Versions()

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


def for_model(collection: CollectionInfo, model: EmbeddingVersion) -> CollectionInfo:
    """The collection with the set of vectors that a model's can be compared with; as it is where there is none yet."""
    versions, name = collection.versions, collection.names.collection
    own = versions.of(model.identity_key)
    if own is not None:
        return replace(collection, embedding=own)
    stored = versions.answering
    if stored is None:
        return replace(collection, embedding=None)
    remedy = (
        f"Use the same model, change the collection's (semlex reembed --collection {name}), or index into a new "
        "collection"
    )
    if versions.building is not None and versions.building.identity_key == model.identity_key:
        remedy = f"Its vectors are being made: wait until semlex reembed --collection {name} is done"
    raise ModelMismatchError(
        f"collection {name!r} holds vectors of {stored.model} ({stored.dimensions} dimensions, "
        f"{stored.identity_key}); this is {model.model} ({model.dimensions} dimensions, {model.identity_key}). {remedy}"
    )
