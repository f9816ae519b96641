"""Which table of another library is meant, by its name and its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.foreign_tables.layouts import COLLECTIONS, EMBEDDINGS, LAYOUTS, NO_JSON, RECOGNISED, VECTORS
from semlex.store.postgres.addresses import describe_connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from semlex.store.foreign_tables.layouts import Layout, LayoutName
    from semlex.store.postgres.connection import Connection

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
    """What a user names.

    Attributes:
        name: Of a table, with or without the prefix of its library; or of a collection of LangChain's `PGVector`.
        schema: Where it is.
        layout: None: the one that its columns show.
        columns: ``id``, ``text``, ``vector``, ``metadata``: the name of its column; None is the usual one.
        metadata: Which of the other columns become metadata; None: as the layout has it.
    """

    name: str
    schema: str
    layout: LayoutName | None
    columns: Mapping[str, str | None]
    metadata: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table of another library.

    Attributes:
        layout: What is what.
        schema: Where it is.
        name: Of the table.
        types: The types of its columns, by name.
        dimensions: Those of its column of vectors, or None where it takes vectors of any length.
        metadata: Other columns that become metadata.
        left_out: Other columns, which do not.
        collection: Key and name of a collection of LangChain's `PGVector`: only its rows are meant.
    """

    layout: Layout
    schema: str
    name: str
    types: Mapping[str, str]
    dimensions: int | None
    metadata: Sequence[str]
    left_out: Sequence[str]
    collection: tuple[UUID, str] | None = None

    @property
    def storage(self) -> str:
        """The type of its vectors."""
        return self.types[self.layout.vector]

    def __str__(self) -> str:
        table = f"{self.schema}.{self.name}"
        return table if self.collection is None else f"collection {self.collection[1]!r} of {table}"


async def find_table(connection: Connection, wanted: WantedTable) -> ForeignTable:
    """The table that a user means."""
    cursor = await connection.execute(_COLUMNS, {"schema": wanted.schema, "vectors": list(VECTORS)})
    tables: dict[str, dict[str, tuple[str, int]]] = {}
    for table, column, kind, modifier in await cursor.fetchall():
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
    """Those that a table may have; rows of `PGVector` belong to collections, which are named instead."""
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
    """The collections of LangChain's `PGVector` in the schema, as far as this role may read them."""
    if not _fits(LAYOUTS["langchain-pgvector"], there, EMBEDDINGS):
        return {}
    table = sql.Identifier(wanted.schema, COLLECTIONS)
    if wanted.layout != "langchain-pgvector":
        may_read = sql.SQL("SELECT pg_catalog.has_table_privilege({}, 'SELECT')").format(
            sql.Literal(table.as_string(connection))
        )
        if (await (await connection.execute(may_read)).fetchone()) != (True,):
            return {}
    query = sql.SQL("SELECT name, uuid FROM {} ORDER BY name").format(table)
    return dict(await (await connection.execute(query)).fetchall())


def _found(
    wanted: WantedTable,
    layout: Layout,
    name: str,
    collection: tuple[UUID, str] | None,
    columns: Mapping[str, tuple[str, int]],
) -> ForeignTable:
    types = {column: kind for column, (kind, _) in columns.items()}
    others = layout.others_in(types) if collection is None else []
    possible = [other for other in others if _is_json(types[other])]
    named = wanted.metadata
    if named is not None and (unknown := [other for other in named if other not in possible]):
        raise ConfigurationError(
            f"{wanted.schema}.{name} has no column {unknown[0]!r} that can become metadata; it has "
            f"{shown(possible)}: name those that are to be kept (metadata_fields=, --metadata-field)"
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


def _is_json(kind: str) -> bool:
    return kind not in NO_JSON


def _several(wanted: WantedTable, meant: Sequence[tuple[Layout, str, Any]], where: str) -> ConfigurationError:
    choices = [
        f"{f'the collection {collection[1]!r}' if collection else f'the table {name!r}'} (--from {layout.name})"
        for layout, name, collection in meant
    ]
    return ConfigurationError(
        f"{wanted.name!r} may be {' or '.join(choices)} in {where}: name the layout (layout=, --from), or the table in "
        "full"
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
    told = ", ".join(f"{name!r} ({kind})" for name, kind in list(known.items())[:SHOWN_NAMES])
    more = f" and {len(known) - SHOWN_NAMES:,} more" if len(known) > SHOWN_NAMES else ""
    found = f"it holds {told}{more}" if known else "it holds no table that can be recognised"
    return ConfigurationError(
        f"there is no table with vectors and no collection of LangChain named {wanted.name!r} in {where}; {found}: "
        "name one of them, or another schema (source_schema=, --source-schema) or database (source_url=, "
        "--source-database)"
    )


def _another(wanted: WantedTable, types: Mapping[str, str], where: str) -> ConfigurationError:
    if wanted.layout is None:
        return ConfigurationError(
            f"the table {wanted.name!r} in {where} has columns of no layout that is known ({shown(types)}): say which "
            "column is what (--from pgvector --id-field … --text-field … --vector-field …)"
        )
    layout = LAYOUTS[wanted.layout].with_columns(wanted.columns)
    if wanted.name == EMBEDDINGS and wanted.layout == "langchain-pgvector":
        return ConfigurationError(f"{wanted.name} holds the rows of all collections: name a collection")
    lacking = layout.missing(types)
    problem = (
        f"has no column {shown(lacking)}" if lacking else f"has no vectors in its column {layout.vector!r} but others"
    )
    return ConfigurationError(
        f"the table {wanted.name!r} in {where} {problem}, as a table of {layout.made_by} has; it has {shown(types)}: "
        "name another layout (layout=, --from), or columns (id_field=, text_field=, vector_field=, "
        "metadata_field=; --id-field …)"
    )


def shown(names: Mapping[str, str] | Sequence[str]) -> str:
    """Names for a message."""
    listed = list(names)
    rest = len(listed) - SHOWN_NAMES
    text = ", ".join(f"{name!r:.80}" for name in listed[:SHOWN_NAMES])
    return f"{text} and {rest:,} more" if rest > 0 else text or "none"
