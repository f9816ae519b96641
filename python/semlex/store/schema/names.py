"""Names of a collection's tables and indexes, composed once and never formatted into a string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError, FieldError, ValidationError

if TYPE_CHECKING:
    from uuid import UUID


# Tables that all collections of a schema share, besides that of jobs.
REGISTRY_TABLES = ("collection", "embedding_version", "registry_version")
JOB_TABLE = "job"


def checked_identifier(field: str, name: str) -> str:
    """Return a name that may become part of a table's name, or refuse it.

    Lower-case ASCII letters, digits and underscores, up to 48 characters: every name derived from it then fits
    Postgres' 63 bytes (longer ones are cut silently, which would mix two collections), and no two differ in case only.
    """
    found = _core.validate_identifier(name)
    errors = [FieldError(row, chunk_id, field, code, limit, actual) for row, chunk_id, _, code, limit, actual in found]
    if errors:
        raise ValidationError(errors)
    return name


class CollectionIdentity(Protocol):
    """Identifies a collection, as opposed to one made later under the same name."""

    @property
    def names(self) -> Names:
        """Its tables."""
        ...

    @property
    def collection_id(self) -> UUID:
        """Unique over time."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """Qualified names of one collection's tables."""

    schema: str
    collection: str

    def __post_init__(self) -> None:
        checked_identifier("schema", self.schema)
        if self.schema == "information_schema":
            raise ConfigurationError("schema 'information_schema' belongs to Postgres: choose another name")
        checked_identifier("collection", self.collection)

    def _table(self, suffix: str) -> sql.Identifier:
        return sql.Identifier(self.schema, f"{self.collection}_{suffix}")

    @property
    def registry(self) -> sql.Identifier:
        """Table of all collections."""
        return sql.Identifier(self.schema, "collection")

    @property
    def embedding_version(self) -> sql.Identifier:
        """Table of the sets of vectors of all collections."""
        return sql.Identifier(self.schema, "embedding_version")

    @property
    def source(self) -> sql.Identifier:
        """Where documents were read from."""
        return self._table("source")

    @property
    def document(self) -> sql.Identifier:
        """The files that were read, with their hashes."""
        return self._table("document")

    @property
    def chunk(self) -> sql.Identifier:
        """The texts that are searched."""
        return self._table("chunk")

    @property
    def keyword_sequence(self) -> sql.Identifier:
        """The sequence of the chunks' keyword ids."""
        return self._table("keyword_seq")

    @property
    def ingestion_log(self) -> sql.Identifier:
        """Who indexed what, when."""
        return self._table("ingestion_log")

    @property
    def query_log(self) -> sql.Identifier:
        """Questions that were asked, where they are logged."""
        return self._table("query_log")

    @property
    def segment(self) -> sql.Identifier:
        """Segments of the keyword index: which chunks they hold, and how long each is."""
        return self._table("segment")

    @property
    def posting(self) -> sql.Identifier:
        """The segments' terms, and the chunks in which each occurs."""
        return self._table("posting")

    @property
    def tombstone(self) -> sql.Identifier:
        """Chunks that segments still hold and that are gone."""
        return self._table("tombstone")

    @property
    def manifest(self) -> sql.Identifier:
        """Which segments and tombstones there are."""
        return self._table("manifest")

    def embedding(self, version: int) -> sql.Identifier:
        """Vectors of one embedding version."""
        return self._table(f"embedding_{version}")

    def index(self, suffix: str) -> sql.Identifier:
        """Unqualified name for a new index (it lands in its table's schema).

        A suffix must not end with another suffix: ``a`` + ``document_source`` would be ``a_document`` + ``source``.
        """
        return sql.Identifier(f"{self.collection}_{suffix}")

    def qualified_index(self, suffix: str) -> str:
        """Qualified name of an index as a value, for to_regclass()."""
        return f'"{self.schema}"."{self.collection}_{suffix}"'


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index that a collection should have."""

    suffix: str  # end of its name, after the collection's
    table: sql.Identifier
    definition: sql.Composable  # SQL that follows the table: method, columns, options

    def create(self, names: Names, *, concurrently: bool = False) -> sql.Composed:
        """The statement that builds it."""
        return sql.SQL("CREATE INDEX {}{} ON {} {}").format(
            sql.SQL("CONCURRENTLY " if concurrently else ""), names.index(self.suffix), self.table, self.definition
        )
