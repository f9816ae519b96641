"""Read tables in which other libraries keep vectors, by binary COPY, and recognise their columns."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.followed.source import NO_TEXT
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.connection import Connection, closed_inside_copy, own_connection, plain_cursors
from semlex.store.postgres.errors import translate
from semlex.store.postgres.rows import fetch_rows, fetch_value, only_row
from semlex.store.postgres.settings import set_local
from semlex.store.postgres.snapshot import open_snapshot
from semlex.store.schema.locks import shortened
from semlex.store.tables import RowPart, copy_parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from uuid import UUID

    from semlex.store.postgres.database import Database


LayoutName = Literal["langchain-postgres", "langchain-pgvector", "llama-index", "haystack", "pgvector"]
VECTORS = ("vector", "halfvec")
# Made from another column of the same row, and made again here.
DERIVED = frozenset({"tsvector"})


@dataclass(frozen=True, slots=True)
class Layout:
    """A library's table layout: which columns hold id, text, vector and metadata."""

    name: LayoutName
    id: str
    text: str
    vector: str  # of a type in `VECTORS`
    # A JSON object; the column may be missing unless it is in `needed`.
    metadata: str
    # Columns that a table must have besides id, text and vector.
    needed: frozenset[str] = frozenset()
    others: bool = False  # whether all other columns are metadata, each under its name
    # Of rows with one id, the one with the highest value in this column counts; None if ids are unique.
    later: str | None = None
    prefix: str = ""  # what the library puts before the name that users give

    def fits(self, types: Mapping[str, str]) -> bool:
        """Return whether a table with columns of these types has this layout."""
        return not self.missing(types) and types[self.vector] in VECTORS

    def missing(self, types: Mapping[str, str]) -> list[str]:
        """Return the columns of this layout that a table with columns of these types lacks."""
        return [name for name in (self.id, self.text, self.vector, *sorted(self.needed)) if name not in types]

    def others_in(self, types: Mapping[str, str]) -> list[str]:
        """Return a table's columns that this layout does not name, without those derived from the text."""
        taken = {self.id, self.text, self.vector, self.metadata, self.later}
        return [name for name, kind in types.items() if name not in taken and kind not in DERIVED]

    def with_columns(self, columns: Mapping[str, str | None]) -> Layout:
        """Return the layout with the column names that a user gave; None keeps the usual name."""
        named: dict[str, Any] = {attribute: name for attribute, name in columns.items() if name is not None}
        needed = self.needed - {getattr(self, attribute) for attribute in named}
        if "metadata" in named:
            needed |= {named["metadata"]}
        return replace(self, **named, needed=needed)


COLLECTIONS, EMBEDDINGS = "langchain_pg_collection", "langchain_pg_embedding"

LAYOUTS: Mapping[LayoutName, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            name="langchain-postgres",  # PGVectorStore of langchain-postgres
            id="langchain_id",
            text="content",
            vector="embedding",
            metadata="langchain_metadata",
            others=True,
        ),
        Layout(
            name="langchain-pgvector",  # PGVector of langchain-postgres
            id="id",
            text="document",
            vector="embedding",
            metadata="cmetadata",
            needed=frozenset({"collection_id", "cmetadata"}),
        ),
        Layout(
            name="llama-index",  # PGVectorStore of LlamaIndex
            id="node_id",
            text="text",
            vector="embedding",
            metadata="metadata_",
            needed=frozenset({"id", "metadata_"}),
            later="id",
            prefix="data_",
        ),
        Layout(
            name="haystack",  # PgvectorDocumentStore of Haystack
            id="id",
            text="content",
            vector="embedding",
            metadata="meta",
            needed=frozenset({"meta", "blob_data", "blob_meta", "blob_mime_type"}),
        ),
        Layout(name="pgvector", id="id", text="text", vector="vector", metadata="metadata", others=True),
    )
}
# The last one is used only on request: any table with such names would match.
RECOGNISED: Sequence[LayoutName] = [name for name in LAYOUTS if name != "pgvector"]


SHOWN_NAMES = 12
# Columns of every table, view and foreign table of a schema that has a vector; the modifier of a vector is its length.
_COLUMNS = """
SELECT c.relname, a.attname, t.typname, a.atttypmod
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
WHERE n.nspname = %(schema)s AND c.relkind = ANY('{r,p,v,m,f}') AND EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS v JOIN pg_catalog.pg_type AS w ON w.oid = v.atttypid
    WHERE v.attrelid = c.oid AND NOT v.attisdropped AND w.typname = ANY(%(vectors)s))
ORDER BY c.relname, a.attnum
"""


@dataclass(frozen=True, slots=True)
class WantedTable:
    """The table to import, as a user names it; layout and columns are optional."""

    # With or without its library's prefix; or the name of a collection of LangChain's `PGVector`.
    name: str
    schema: str
    layout: LayoutName | None  # None: detected from the columns
    # ``id``, ``text``, ``vector``, ``metadata``: the name of its column; None is the usual one.
    columns: Mapping[str, str | None]
    # Which other columns become metadata; None: as the layout sets it.
    metadata: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table of another library, and which of its columns and rows are read."""

    layout: Layout
    schema: str
    name: str
    types: Mapping[str, str]  # by column
    dimensions: int | None  # None if the column takes vectors of any length
    metadata: Sequence[str]  # other columns that become metadata
    left_out: Sequence[str]  # other columns that do not
    # Key and name of a collection of LangChain's `PGVector`, whose rows alone are read.
    collection: tuple[UUID, str] | None = None

    @property
    def storage(self) -> str:
        """The type of the column with the vectors: ``vector`` or ``halfvec``."""
        return self.types[self.layout.vector]

    def __str__(self) -> str:
        table = f"{self.schema}.{self.name}"
        return table if self.collection is None else f"collection {self.collection[1]!r} of {table}"


async def find_table(connection: Connection, wanted: WantedTable) -> ForeignTable:
    """Return the table that a user means; raise an error if none or several match."""
    found = await fetch_rows(connection, _COLUMNS, {"schema": wanted.schema, "vectors": list(VECTORS)})
    tables: dict[str, dict[str, tuple[str, int]]] = {}
    for table, column, kind, modifier in found:
        tables.setdefault(table, {})[column] = (kind, modifier)
    there = {table: {name: kind for name, (kind, _) in columns.items()} for table, columns in tables.items()}
    collections = await _collections(connection, wanted, there)
    fitting = [
        (layout, name) for layout in _layouts(wanted) for name in _names(wanted, layout) if _fits(layout, there, name)
    ]
    meant: list[tuple[Layout, str, tuple[UUID, str] | None]] = [(layout, name, None) for layout, name in fitting]
    if wanted.name in collections and wanted.layout in (None, "langchain-postgres", "langchain-pgvector"):
        meant.append((LAYOUTS["langchain-pgvector"], EMBEDDINGS, (collections[wanted.name], wanted.name)))
    if len(meant) != 1:
        where = f"schema {wanted.schema!r} of {describe_connection(connection)}"
        raise _several(wanted, meant, where) if meant else _none(wanted, there, collections, where)
    [(layout, name, collection)] = meant
    return _found(wanted, layout, name, collection, tables[name])


def _layouts(wanted: WantedTable) -> list[Layout]:
    """Return the layouts to try, without that of `PGVector`, whose rows are found by their collection."""
    names = RECOGNISED if wanted.layout is None else [wanted.layout]
    return [LAYOUTS[name].with_columns(wanted.columns) for name in names if name != "langchain-pgvector"]


def _names(wanted: WantedTable, layout: Layout) -> list[str]:
    # LlamaIndex writes names in lower case.
    return list(dict.fromkeys((wanted.name, layout.prefix + wanted.name.lower() if layout.prefix else wanted.name)))


def _fits(layout: Layout, there: Mapping[str, Mapping[str, str]], name: str) -> bool:
    return name in there and layout.fits(there[name])


async def _collections(
    connection: Connection, wanted: WantedTable, there: Mapping[str, Mapping[str, str]]
) -> dict[str, UUID]:
    """Return the collections of LangChain's `PGVector` in the schema, as far as this role may read them."""
    if not _fits(LAYOUTS["langchain-pgvector"], there, EMBEDDINGS):
        return {}
    table = sql.Identifier(wanted.schema, COLLECTIONS)
    if wanted.layout != "langchain-pgvector":
        may_read = "SELECT pg_catalog.has_table_privilege(%s, 'SELECT')"
        if not await fetch_value(connection, may_read, [table.as_string()]):
            return {}
    return dict(await fetch_rows(connection, sql.SQL("SELECT name, uuid FROM {} ORDER BY name").format(table)))


def _found(
    wanted: WantedTable,
    layout: Layout,
    name: str,
    collection: tuple[UUID, str] | None,
    columns: Mapping[str, tuple[str, int]],
) -> ForeignTable:
    types = {column: kind for column, (kind, _) in columns.items()}
    others = layout.others_in(types) if collection is None else []
    possible = [other for other in others if types[other] not in NO_TEXT]
    named = wanted.metadata
    if named is not None and (unknown := [other for other in named if other not in possible]):
        raise ConfigurationError(
            f"{wanted.schema}.{name} has no column {unknown[0]!r} that can become metadata; columns that can: "
            f"{shown(possible)}. Name some of these (metadata_fields=, --metadata-field)"
        )
    metadata = list(named) if named is not None else possible if layout.others else []
    modifier = columns[layout.vector][1]
    return ForeignTable(
        layout,
        wanted.schema,
        name,
        types,
        modifier if modifier > 0 else None,
        metadata,
        [other for other in others if other not in metadata],
        collection,
    )


def _several(wanted: WantedTable, meant: Sequence[tuple[Layout, str, Any]], where: str) -> ConfigurationError:
    choices = [
        f"{f'the collection {collection[1]!r}' if collection else f'the table {name!r}'} (--from {layout.name})"
        for layout, name, collection in meant
    ]
    return ConfigurationError(
        f"{wanted.name!r} may be {' or '.join(choices)} in {where}: name the layout (layout=, --from), or give the "
        "table's full name"
    )


def _none(
    wanted: WantedTable, there: Mapping[str, Mapping[str, str]], collections: Mapping[str, UUID], where: str
) -> ConfigurationError:
    if wanted.name in there:
        return _another(wanted, there[wanted.name], where)
    known = {
        name: LAYOUTS[layout].name
        for name, types in there.items()
        for layout in RECOGNISED
        if name != EMBEDDINGS and LAYOUTS[layout].fits(types)
    } | dict.fromkeys(collections, "langchain-pgvector")
    tables = shortened([f"{name!r} ({kind})" for name, kind in known.items()], SHOWN_NAMES)
    found = (
        f"this schema has {tables}: name one of them, or"
        if known
        else "this schema has no table of a known layout: name"
    )
    return ConfigurationError(
        f"no table with vectors and no collection of LangChain is named {wanted.name!r} in {where}; {found} "
        "another schema (source_schema=, --source-schema) or database (source_url=, --source-database)"
    )


def _another(wanted: WantedTable, types: Mapping[str, str], where: str) -> ConfigurationError:
    if wanted.layout is None:
        return ConfigurationError(
            f"the columns of table {wanted.name!r} in {where} match no known layout ({shown(types)}): name "
            "its columns (--from pgvector --id-field … --text-field … --vector-field …)"
        )
    layout = LAYOUTS[wanted.layout].with_columns(wanted.columns)
    if wanted.name == EMBEDDINGS and wanted.layout == "langchain-pgvector":
        return ConfigurationError(
            f"{wanted.name} has the rows of all of LangChain's collections: give the name of one of these collections"
        )
    lacking = layout.missing(types)
    problem = (
        f"has no column {shown(lacking)}"
        if lacking
        else f"has values other than vectors in its column {layout.vector!r}"
    )
    return ConfigurationError(
        f"the table {wanted.name!r} in {where} {problem}, so its layout is not {layout.name!r}; its columns "
        f"are {shown(types)}: name another layout (layout=, --from), or columns (id_field=, text_field=, "
        "vector_field=, metadata_field=; --id-field …)"
    )


def shown(names: Mapping[str, str] | Sequence[str]) -> str:
    """Return a list of names as text for a message, shortened if it is long."""
    return shortened([f"{name!r:.80}" for name in names], SHOWN_NAMES)


# Numbers and times as JSON, independent of the session's settings.
READING: Mapping[str, str | int] = {"timezone": "UTC", "extra_float_digits": 1, "statement_timeout": 0}


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows of a table are read, and how many rows and values are left out."""

    rows: int  # those that are read: the latest of each id
    repeated: int  # earlier rows with the same id
    left_out: Mapping[str, int]  # column that is not taken -> rows with a value in it, if any


async def count_rows(connection: Connection, table: ForeignTable) -> RowCounts:
    """Count the rows of a table, in one pass over it."""
    layout = table.layout
    counts: list[sql.Composable] = [sql.SQL("pg_catalog.count(*)"), sql.SQL("0")]
    if layout.later is not None:
        repeats = sql.SQL("pg_catalog.count({0}) OPERATOR(pg_catalog.-) pg_catalog.count(DISTINCT {0})")
        counts[1] = repeats.format(sql.Identifier(layout.id))
    counts += [sql.SQL("pg_catalog.count({})").format(sql.Identifier(name)) for name in table.left_out]
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(sql.SQL(", ").join(counts), _name(table), _of(table))
    rows, repeated, *filled = await only_row(connection, query)
    left_out = {name: count for name, count in zip(table.left_out, filled, strict=True) if count}
    return RowCounts(rows - repeated, repeated, left_out)


async def read_rows(connection: Connection, table: ForeignTable, counts: RowCounts) -> AsyncGenerator[RowPart, None]:
    """Yield the rows of a table, in parts; vectors are read in their stored type, other columns as text."""
    # The columns of a part are id, text, vector, metadata, the column that orders rows of one id, then each other
    # column that becomes metadata. All but the vector come as text, each metadata column as the text of JSON.
    layout = table.layout
    has_metadata = layout.metadata in table.types
    columns: list[sql.Composable] = [
        _text(layout.id),
        _text(layout.text),
        sql.SQL("t.{}").format(sql.Identifier(layout.vector)),
        _text(layout.metadata if has_metadata else None),
        _text(layout.later),
    ]
    # NULL has no JSON form: to_json returns NULL for it.
    columns += [
        sql.SQL("pg_catalog.to_json(t.{})::pg_catalog.text").format(sql.Identifier(name)) for name in table.metadata
    ]
    types = ["text", "text", table.storage, "text", "text", *("text" for _ in table.metadata)]
    condition = _of(table)
    if counts.repeated and layout.later is not None:
        condition = sql.SQL(
            "{} AND NOT EXISTS (SELECT FROM {} AS later WHERE later.{id} OPERATOR(pg_catalog.=) t.{id} "
            "AND later.{later} OPERATOR(pg_catalog.>) t.{later})"
        ).format(condition, _name(table), id=sql.Identifier(layout.id), later=sql.Identifier(layout.later))
    statement = sql.SQL("COPY (SELECT {} FROM {} AS t WHERE {}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns), _name(table), condition
    )
    async for part in copy_parts(connection, statement, types):
        yield part


def _text(column: str | None) -> sql.Composable:
    if column is None:
        return sql.SQL("NULL::pg_catalog.text")
    return sql.SQL("t.{}::pg_catalog.text").format(sql.Identifier(column))


def _name(table: ForeignTable) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def _of(table: ForeignTable) -> sql.Composable:
    """Return the SQL condition on the rows to read, with the collection's key in it: COPY takes no parameters."""
    if table.collection is None:
        return sql.SQL("true")
    return sql.SQL("t.collection_id OPERATOR(pg_catalog.=) {}").format(sql.Literal(str(table.collection[0])))


@asynccontextmanager
async def source_snapshot(database: Database, url: str | None) -> AsyncIterator[Connection]:
    """Yield a connection in a REPEATABLE READ, READ ONLY transaction of the source, as long as the block lasts."""
    # It is a connection of its own: rows are written through others while it reads.
    address = url or database.url
    if address is None and not database.has_several_connections:
        raise ConfigurationError(
            "importing a table needs a second connection: give the address of the table's database (source_url=), or "
            "open the collection with a pool or an address"
        )
    async with AsyncExitStack() as stack:
        if address is None:
            connection = await stack.enter_async_context(database.connection())
        else:
            connection = await stack.enter_async_context(own_connection(address, database.timeout))
            stack.enter_context(plain_cursors(connection))
        try:
            role = None if url is not None else database.role
            async with open_snapshot(connection, role=role, pipelined=False):
                await set_local(connection, **READING)
                with closed_inside_copy(connection):
                    yield connection
        except psycopg.Error as error:
            raise translate(error, "read the table", address, writing=True) from None
