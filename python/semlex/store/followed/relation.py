"""Describe tables and views of a database: their columns, unique indexes, and the role's right to read them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.postgres.connection import Connection

RelationKind = Literal["table", "partitioned table", "view", "materialized view", "foreign table"]
RELATION_KINDS: Mapping[str, RelationKind] = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation."""

    name: str
    type: str  # as Postgres writes it: ``character varying(80)``
    base: str  # name of the type alone: ``varchar``; of a domain, that of what it is over
    is_nullable: bool
    may_be_read: bool  # by the role of the transaction


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view."""

    schema: str
    name: str
    kind: RelationKind
    columns: Mapping[str, Column]
    # Sets of columns of which no two rows are equal; that of the primary key first, if there is one.
    unique: Sequence[tuple[str, ...]]
    has_primary_key: bool
    role: str  # that reads it
    may_use_schema: bool
    # Whether the place and the transaction of a row show that it is the same version of it.
    has_versions: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


_RELATION = """
SELECT c.oid, c.relkind::text, EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary),
    current_user::text, has_schema_privilege(n.oid, 'USAGE'),
    -- Of Postgres' own kind of table (access method 2) without children, which may be of another one.
    c.relkind = 'r' AND c.relam = 2 AND NOT c.relhassubclass AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, y.typname)::text,
    NOT a.attnotnull, has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
LEFT JOIN pg_type AS b ON y.typtype = 'd' AND b.oid = y.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# Unique indexes over columns alone, and over all rows.
_UNIQUE = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index AS i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, i.indexrelid
"""
# Relations with similar names, those of the same name first.
_NEAR = """
SELECT format('%%s.%%s', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    AND (c.relname = %(table)s OR n.nspname = %(schema)s) ORDER BY c.relname <> %(table)s, 1 LIMIT 1000
"""


async def find_relation(connection: Connection, schema: str, name: str) -> Relation | None:
    """Find a relation by its name, with its columns; the transaction needs semlex's settings."""
    found = await (await connection.execute(_RELATION, [schema, name])).fetchone()
    if found is None:
        return None
    relation, kind, has_primary_key, role, may_use_schema, has_versions = found
    columns = [Column(*row) for row in await (await connection.execute(_COLUMNS, [relation])).fetchall()]
    unique = [tuple(names) for (names,) in await (await connection.execute(_UNIQUE, [relation])).fetchall()]
    return Relation(
        schema,
        name,
        RELATION_KINDS[kind],
        {column.name: column for column in columns},
        unique,
        has_primary_key,
        role,
        may_use_schema,
        has_versions,
    )


async def similar_relations(connection: Connection, schema: str, name: str) -> list[str]:
    """Names, with their schemas, that a user may have meant."""
    cursor = await connection.execute(_NEAR, {"schema": schema, "table": name})
    known = [one for (one,) in await cursor.fetchall()]
    return get_close_matches(f"{schema}.{name}", known, n=3, cutoff=0.7) or [
        one for one in known if one.endswith(f".{name}")
    ]
