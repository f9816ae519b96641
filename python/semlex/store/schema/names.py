"""Names of a collection's tables and indexes as SQL identifiers, and SQL that finds where they are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.store.postgres.rows import fetch_value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from semlex.store.postgres.connection import Connection

# Tables that all collections of a schema share, besides that of jobs.
JOB_TABLE = "job"
FOLLOWED_TABLE = "followed_table"
REGISTRY_TABLES = ("collection", "embedding_version", FOLLOWED_TABLE, "registry_version", "row_change")


def checked_identifier(field: str, name: str) -> str:
    """Return the name if it may become part of a table's name; refuse any other."""
    # Allowed are lower-case ASCII letters, digits and underscores, up to 48 characters: every name derived from it then
    # fits Postgres' 63 bytes (longer ones are cut silently, which would mix two collections), and no two differ in case
    # only.
    found = _core.validate_identifier(name)
    errors = [FieldError(row, chunk_id, field, code, limit, actual) for row, chunk_id, _, code, limit, actual in found]
    if errors:
        raise ValidationError(errors)
    return name


NO_OPTIONS = sql.SQL("")
# So that the names of the partitions and of their indexes fit Postgres' 63 bytes.
MAX_PARTITIONED_NAME = 40


class CollectionIdentity(Protocol):
    """What identifies a collection, even if another one is made later under the same name."""

    @property
    def names(self) -> Names:
        """The names of the collection's tables."""
        ...

    @property
    def collection_id(self) -> UUID:
        """The id of the collection; ids are never reused."""
        ...


class _Table:
    """An attribute of `Names`: the qualified name of a collection's table, given by the end of its name."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix

    def __get__(self, names: Names, _: type[Names]) -> sql.Identifier:
        return sql.Identifier(names.schema, f"{names.collection}_{self._suffix}")


class _SharedTable(_Table):
    """An attribute of `Names`: the qualified name of a table that all collections of a schema share."""

    def __get__(self, names: Names, _: type[Names]) -> sql.Identifier:
        return sql.Identifier(names.schema, self._suffix)


@dataclass(frozen=True, slots=True)
class Names:
    """Qualified names of one collection's tables."""

    schema: str
    collection: str
    # Of the tables whose rows belong to documents; 0: they are plain tables. No name and no statement but those that
    # make tables and indexes depends on it.
    partitions: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        checked_identifier("schema", self.schema)
        if self.schema == "information_schema":
            raise ConfigurationError("schema 'information_schema' belongs to Postgres: choose another name")
        checked_identifier("collection", self.collection)
        if self.partitions and len(self.collection) > MAX_PARTITIONED_NAME:
            raise ConfigurationError(
                f"the name of a collection with partitions has at most {MAX_PARTITIONED_NAME} characters; "
                f"{self.collection!r} has {len(self.collection)}: choose a shorter one, or partitions=0"
            )

    registry = _SharedTable("collection")
    embedding_version = _SharedTable("embedding_version")  # the sets of vectors of all collections
    followed_table = _SharedTable(FOLLOWED_TABLE)  # the users' tables that collections read, and how far each is read
    row_change = _SharedTable("row_change")  # rows of followed tables that must be read, again or still
    source = _Table("source")  # where documents were read from
    document = _Table("document")  # the files that were read, with their hashes
    chunk = _Table("chunk")  # the texts that are searched
    keyword_sequence = _Table("keyword_seq")  # of the chunks' keyword ids
    ingestion_log = _Table("ingestion_log")  # who indexed what, when
    query_log = _Table("query_log")
    # Segments of the keyword index: which chunks they contain, and how long each is.
    segment = _Table("segment")
    posting = _Table("posting")  # the segments' terms, and the chunks in which each occurs
    tombstone = _Table("tombstone")  # deleted chunks that segments still contain
    manifest = _Table("manifest")  # the ids of all segments and tombstones

    def embedding(self, version: int) -> sql.Identifier:
        """Return the name of the table with the vectors of one embedding version."""
        return sql.Identifier(self.schema, f"{self.collection}_embedding_{version}")

    def creation(
        self, suffix: str, columns: sql.Composable, options: sql.Composable = NO_OPTIONS
    ) -> list[sql.Composed]:
        """Return the statements that make a table whose rows belong to documents; its name ends with `suffix`."""
        table = sql.Identifier(self.schema, f"{self.collection}_{suffix}")
        create = sql.SQL("CREATE TABLE {} ({})").format(table, columns)
        if not self.partitions:
            return [create + options]
        partition = sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})")
        return [
            create + sql.SQL(" PARTITION BY HASH (document_id)"),
            *(
                partition.format(
                    sql.Identifier(self.schema, f"{self.collection}_{suffix}_p{number}"),
                    table,
                    sql.Literal(self.partitions),
                    sql.Literal(number),
                )
                + options
                for number in range(self.partitions)
            ),
        ]

    def index(self, suffix: str) -> sql.Identifier:
        """Return the unqualified name for a new index, which gets the schema of its table."""
        # A suffix must not end with another suffix: ``a`` + ``document_source`` would be ``a_document`` + ``source``.
        return sql.Identifier(f"{self.collection}_{suffix}")

    def qualified_index(self, suffix: str) -> str:
        """Return the qualified name of an index as text, for to_regclass()."""
        return f'"{self.schema}"."{self.collection}_{suffix}"'


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index that a collection should have."""

    suffix: str  # end of its name, after the collection's
    table: sql.Identifier
    definition: sql.Composable  # SQL that follows the table: method, columns, options

    def create(self, names: Names, *, concurrently: bool = False) -> sql.Composed:
        """Return the statement that builds the index."""
        return sql.SQL("CREATE INDEX {}{} ON {} {}").format(
            sql.SQL("CONCURRENTLY " if concurrently else ""), names.index(self.suffix), self.table, self.definition
        )


async def has_table(connection: Connection, table: sql.Identifier) -> bool:
    """Return whether a table exists."""
    return bool(await fetch_value(connection, sql.SQL("SELECT {} IS NOT NULL").format(oid_of(table))))


def insertion(table: sql.Identifier, values: Iterable[str]) -> sql.Composed:
    """Return an INSERT of one row; the values are bound under the names of the columns."""
    columns = list(values)
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        table, sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
    )


def oid_of(relation: sql.Identifier) -> sql.Composed:
    """Return SQL of the oid of a table or an index; NULL if it does not exist."""
    return sql.SQL("pg_catalog.to_regclass({})").format(sql.Literal(relation.as_string()))


def stored_in(oid: sql.Composable) -> sql.Composed:
    """Return SQL for FROM: the row of `pg_class` (alias ``l``) of a table or index, or one for each partition."""
    return sql.SQL(
        "(SELECT {0} AS oid UNION ALL SELECT h.inhrelid FROM pg_catalog.pg_inherits AS h WHERE h.inhparent = {0}) AS p "
        "JOIN pg_catalog.pg_class AS l ON l.oid = p.oid AND l.relkind IN ('r', 'i')"
    ).format(oid)
