"""A collection as a value: names, settings, distance, embedding versions, and the calibration of confidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import ConfigurationError, ModelMismatchError
from semlex.options.collection import ChunkSettings, CollectionSettings, DistanceName, StorageName
from semlex.types.confidence import ConfidenceCurve

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.store.keyword.engine import KeywordEngine
    from semlex.store.postgres.server_info import ServerInfo
    from semlex.store.schema.names import Names


MAX_DIMENSIONS = 16_000
GIVEN = "given"  # model name of vectors made elsewhere


@dataclass(frozen=True, slots=True)
class Distance:
    """A distance of pgvector: its operator, and how a similarity follows from it."""

    name: DistanceName
    operator: str  # pgvector's
    # similarity = offset - distance, so that larger is better: the cosine for cosine distance, minus the distance for
    # L2, the product for inner product (whose operator returns its negative).
    offset: float

    def between(self, extension: sql.Identifier, column: sql.Composable, value: sql.Composable) -> sql.Composed:
        """Return SQL of the distance of two vectors; the operator is qualified, so that no other can replace it."""
        operator = sql.SQL(self.operator)
        return sql.SQL("{} OPERATOR({}.{}) {}").format(column, extension, operator, value)

    def operator_class(self, storage: StorageName) -> str:
        """Return the name of the operator class for an index over vectors of this type."""
        kind = {"cosine": "cosine_ops", "l2": "l2_ops", "inner_product": "ip_ops"}[self.name]
        return f"{storage}_{kind}"


DISTANCES: dict[str, Distance] = {
    "cosine": Distance("cosine", "<=>", 1.0),
    "l2": Distance("l2", "<->", 0.0),
    "inner_product": Distance("inner_product", "<#>", 0.0),
}


def distance_named(name: str) -> Distance:
    """Return the distance with this name."""
    try:
        return DISTANCES[name]
    except KeyError:
        raise ConfigurationError(f"distance must be one of {', '.join(DISTANCES)}; got {name!r}") from None


@dataclass(frozen=True, slots=True)
class EmbeddingVersion:
    """The set of vectors that one model has made for a collection; a collection can have several."""

    version: int  # from 1
    # Everything that makes two models' vectors comparable or not, as one string.
    identity_key: str
    model: str
    revision: str | None
    dimensions: int
    storage: StorageName = "vector"  # pgvector's type
    # As `ConfidenceCurve.to_dict` returns it. Two sets are equal whatever their calibrations.
    calibration: dict[str, Any] | None = field(default=None, compare=False)
    # The model's vector of a fixed text when the set was begun, float32 in base64; None: vectors from elsewhere.
    probe: str | None = field(default=None, compare=False)


_COLUMNS = tuple(one.name for one in fields(EmbeddingVersion))


@dataclass(frozen=True, slots=True)
class Versions:
    """The embedding versions of a collection: the one that searches use, other usable ones, one being made."""

    # Used by everyone who opens the collection; 0 if missing.
    serving: int = 0
    standing: tuple[EmbeddingVersion, ...] = ()  # those that can answer, by number
    building: EmbeddingVersion | None = None  # the one being made

    @classmethod
    def stored(cls, serving: int, rows: Sequence[dict[str, Any]]) -> Versions:
        """Make `Versions` from the rows of the table of embedding versions, given as JSON."""
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
        """Return the version with this model's vectors: the serving one, else the newest usable one; else None."""
        own = [version for version in self.standing if version.identity_key == identity_key]
        return next((version for version in own if version.version == self.serving), own[-1] if own else None)

    @property
    def answering(self) -> EmbeddingVersion | None:
        """The version that searches use, or None."""
        return next((version for version in self.standing if version.version == self.serving), None)


@dataclass(frozen=True, slots=True)
class ListedCollection:
    """A collection as the registry lists it, made by any version of semlex."""

    name: str
    keyword: str  # engine
    language: str  # of documents that name none
    embedding_model: str | None  # None if it holds no vectors
    dimensions: int | None
    created_at: datetime  # UTC
    description: str  # what is in it; empty if its owner wrote none


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """An open collection: its names and settings as stored."""

    names: Names
    server: ServerInfo
    schema_version: int  # of its tables
    # Unique over time: a collection dropped and made again has another.
    collection_id: uuid.UUID
    cursor_key: bytes = field(repr=False)  # signs the cursors of its pages
    settings: CollectionSettings
    # The vectors in use here: the serving ones, or those of the open model.
    embedding: EmbeddingVersion | None
    keyword: KeywordEngine
    versions: Versions = Versions()  # all of its sets of vectors

    @property
    def vectors(self) -> EmbeddingVersion:
        """The embedding version in use in this process; raises if none is."""
        if self.embedding is None:
            raise ConfigurationError("the collection has no vectors")
        return self.embedding

    @property
    def distance(self) -> Distance:
        """The distance by which the collection's vectors are compared."""
        return distance_named(self.settings.distance)

    @property
    def options(self) -> dict[str, Any]:
        """The options that the collection was made with, named as in `WantedOptions`; an undecided one is None."""
        cut = self.settings.chunk_settings
        storage = None if self.embedding is None else self.embedding.storage
        return (
            asdict(self.settings)
            | {"keyword": self.settings.keyword_engine, "vector_storage": storage}
            | (dict.fromkeys(ChunkSettings._fields) if cut is None else cut._asdict())
        )


def for_model(collection: CollectionInfo, model: EmbeddingVersion) -> CollectionInfo:
    """Return the collection with this model's vectors, or without vectors if none serve yet; refuse another model."""
    versions, name = collection.versions, collection.names.collection
    own = versions.of(model.identity_key)
    if own is not None:
        return replace(collection, embedding=own)
    stored = versions.answering
    if stored is None:
        return replace(collection, embedding=None)
    remedy = (
        f"Use the same model, change the collection's (semlex models set --collection {name}), or index into a new "
        "collection"
    )
    if versions.building is not None and versions.building.identity_key == model.identity_key:
        remedy = f"Vectors of this model are being made: wait until semlex models set --collection {name} is done"
    raise ModelMismatchError(
        f"collection {name!r} holds vectors of {stored.model} ({stored.dimensions} dimensions, "
        f"{stored.identity_key}); this is {model.model} ({model.dimensions} dimensions, {model.identity_key}). {remedy}"
    )


def stored_curve(collection: CollectionInfo) -> ConfidenceCurve | None:
    """Return the calibration of confidence that is stored with the vectors in use, or None."""
    embedding = collection.embedding
    if embedding is None or embedding.calibration is None:
        return None
    where = f"the calibration stored with the vectors of collection {collection.names.collection!r}"
    return ConfidenceCurve.from_dict(embedding.calibration, where)


def check_curve(curve: ConfidenceCurve, collection: CollectionInfo, what: str) -> None:
    """Refuse a calibration of confidence that was learned with vectors other than those in use."""
    name, embedding = collection.names.collection, collection.embedding
    if collection.distance.name != "cosine":
        raise ConfigurationError(
            f"{what} is for cosines, but collection {name!r} compares by {collection.distance.name}: leave it out"
        )
    if embedding is not None and embedding.identity_key != curve.identity_key:
        raise ConfigurationError(
            f"{what} was learned with {curve.model} ({curve.identity_key}), and the vectors of collection {name!r} are "
            f"of {embedding.model} ({embedding.identity_key}): leave it out, or calibrate again (semlex eval calibrate)"
        )


def curve_in_use(given: ConfidenceCurve | None, collection: CollectionInfo) -> tuple[ConfidenceCurve | None, list[str]]:
    """Return the calibration of confidence for a search (the given one, else the stored one), and warnings."""
    if given is not None:
        check_curve(given, collection, "the calibration that was given (calibration=)")
        return given, []
    if collection.distance.name != "cosine":
        return None, []
    try:
        return stored_curve(collection), []
    except ConfigurationError as error:  # the hits are good without it
        return None, [f"hits have no confidence: {error}"]
