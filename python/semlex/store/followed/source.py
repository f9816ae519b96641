"""A followed table or view in its database: its columns and indexes, and SQL for its rows' keys, texts and hashes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from psycopg import sql

from semlex.errors import ConfigurationError, PrivilegeError
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.roles import quoted
from semlex.store.postgres.rows import fetch_row, fetch_rows
from semlex.store.query.chunk_keys import indexed_document_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.types.followed import FollowedTable, KeyKind, RowKey


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
    found = await fetch_row(connection, _RELATION, [schema, name])
    if found is None:
        return None
    relation, kind, *rest = found
    columns = {row[0]: Column(*row) for row in await fetch_rows(connection, _COLUMNS, [relation])}
    unique = [tuple(names) for (names,) in await fetch_rows(connection, _UNIQUE, [relation])]
    return Relation(schema, name, RELATION_KINDS[kind], columns, unique, *rest)


async def similar_relations(connection: Connection, schema: str, name: str) -> list[str]:
    """Return the qualified names of existing tables and views that resemble this name, for a message."""
    known = [one for (one,) in await fetch_rows(connection, _NEAR, {"schema": schema, "table": name})]
    return get_close_matches(f"{schema}.{name}", known, n=3, cutoff=0.7) or [
        one for one in known if one.endswith(f".{name}")
    ]


KEY_KINDS: Mapping[str, KeyKind] = {
    "int2": "int",
    "int4": "int",
    "int8": "int",
    "uuid": "uuid",
    "text": "text",
    "varchar": "text",
    "bpchar": "text",
    "citext": "text",
}
# Types that have no text to search, and no JSON value.
NO_TEXT = frozenset({"bytea", "vector", "halfvec", "sparsevec", "bit", "varbit"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
# The server's limit of arguments of a function.
MAX_ARGUMENTS = 100


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A definition with the table or view that it names, and the SQL expressions that read the rows."""

    # All SQL is over one relation whose alias is ``t``; nothing else may be in scope, because expressions of the
    # definition name columns without it. Combine it with other tables around a subquery. Run it with at least one bound
    # value, because every ``%`` in it is doubled, and the driver takes an empty list for no values.

    definition: FollowedTable
    relation: Relation

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns of the relation."""
        return self.relation.columns

    @property
    def has_unique_key(self) -> bool:
        """Whether a unique index keeps two rows from having the same key."""
        return any(set(unique) <= set(self.definition.key) for unique in self.relation.unique)

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns that the definition names, as they are stored with the definition."""
        return {name: self.columns[name].type for _, name in uses_of(self.definition) if name in self.columns}

    @property
    def from_(self) -> sql.Composed:
        """SQL of the relation, for FROM."""
        return sql.SQL("{} AS t").format(identifier(self.definition.schema, self.definition.table))

    @property
    def key_columns(self) -> list[sql.Composed]:
        """The columns of the key, for ORDER BY."""
        return [_column(name) for name in self.definition.key]

    @property
    def key_types(self) -> list[sql.SQL]:
        """The types of the key's columns, for casts of their texts."""
        return [_sql(self.columns[name].type) for name in self.definition.key]

    @property
    def key_parts(self) -> list[sql.Composed]:
        """SQL of the key's parts as text; `ComparedTable.bound` returns their values."""
        return [sql.SQL("{}::text").format(column) for column in self.key_columns]

    @property
    def key_is_complete(self) -> sql.Composed:
        """The condition that no part of the key is NULL."""
        return sql.SQL(" AND ").join(sql.SQL("{} IS NOT NULL").format(column) for column in self.key_columns)

    @property
    def key_text(self) -> sql.Composed:
        """SQL of the key as text; a JSON array if the key has several columns."""
        return key_as_text(self.key_columns, self.definition.key_kinds)

    @property
    def texts(self) -> list[sql.Composed]:
        """SQL of the texts that are searched: one expression for each item of the option `text`."""
        return [
            sql.SQL("{}::text").format(_column(item) if item in self.columns else expression(item))
            for item in self.definition.text
        ]

    @property
    def heading(self) -> sql.Composed | None:
        """SQL of the row's heading, as text; None if the definition names no heading."""
        return None if self.definition.heading is None else sql.SQL("{}::text").format(_column(self.definition.heading))

    @property
    def followed(self) -> list[sql.Composed]:
        """SQL of the columns and expressions from which a row's chunks and metadata are made."""
        heading = [] if self.heading is None else [self.heading]
        return [*self.texts, *heading, *map(_column, self.definition.metadata)]

    @property
    def metadata(self) -> sql.Composed:
        """SQL of the metadata as a jsonb object, without keys for nulls."""
        always, else_none = [], []
        for name in self.definition.metadata:
            column = _column(name)
            value = json_of(column, self.columns[name].base)
            pair = sql.SQL("{}::text, {}").format(literal(name), value)
            if self.columns[name].base in ("json", "jsonb"):
                null = sql.SQL("coalesce({}::jsonb, 'null') = 'null'").format(column)
            elif self.columns[name].is_nullable:
                null = sql.SQL("{} IS NULL").format(column)
            else:
                always.append(pair)
                continue
            else_none.append(
                sql.SQL("CASE WHEN {} THEN '{{}}'::jsonb ELSE jsonb_build_object({}) END").format(null, pair)
            )
        half = MAX_ARGUMENTS // 2
        objects = [
            sql.SQL("jsonb_build_object({})").format(sql.SQL(", ").join(always[start : start + half]))
            for start in range(0, max(1, len(always)), half)
        ]
        objects += else_none
        return sql.SQL("({})").format(sql.SQL(" || ").join(objects))

    def text_hash(self, salt: str = "", values: Sequence[sql.Composable] | None = None) -> sql.Composed:
        """Return SQL of a 16-byte hash of the values from which the row's chunks are made."""
        # `salt` identifies the rules that split texts, which also decide the chunks. `values` are the texts and the
        # heading, if there is one, as columns of a query over the relation.
        definition = self.definition
        # Chunks have the key in its types.
        decided_by = (
            definition.text,
            definition.heading,
            sorted(definition.formats.items()),
            definition.key_kinds,
            salt,
        )
        if values is None:
            values = [*self.texts, *([] if self.heading is None else [self.heading])]
        return _hash(decided_by, values)

    @property
    def metadata_hash(self) -> sql.Composed:
        """Return SQL of a 16-byte hash of the row's metadata."""
        named = self.definition.metadata
        # Types of a kind have the same JSON values.
        bases = {name: self.columns[name].base for name in named}
        types = [(name, KEY_KINDS.get(base, base)) for name, base in bases.items()]
        return _hash(types, [sql.SQL("{}::text").format(_column(name)) for name in named])

    @property
    def version(self) -> sql.SQL:
        """SQL of a text that changes with every write to the row; NULL if that cannot be known, as for views."""
        if not self.relation.has_versions:
            return sql.SQL("NULL::text")
        return sql.SQL("t.xmin || ' ' || t.ctid")

    def compared(self, operator: sql.SQL, placeholders: Sequence[sql.Composable]) -> sql.Composed:
        """Return the condition that compares a row's key with another key; ``>`` selects the rows after that key."""
        # The placeholders are for the other key's `key_parts`.
        values = [
            sql.SQL("{}::text::{}").format(one, kind) for one, kind in zip(placeholders, self.key_types, strict=True)
        ]
        return sql.SQL("({}) {} ({})").format(
            sql.SQL(", ").join(self.key_columns), operator, sql.SQL(", ").join(values)
        )

    @property
    def mark(self) -> sql.Composed:
        """The column with the time of a row's last change; only for definitions with `updated_at`."""
        return _column(self.definition.updated_at or "")

    @property
    def mark_type(self) -> sql.SQL:
        """The type of the column `mark`, for casts of texts."""
        return _sql(self.columns[self.definition.updated_at or ""].type)

    def with_keys(self, placeholder: sql.Composable) -> sql.Composed:
        """Return the condition that a row's key is in an array of `key_text`, which is bound at `placeholder`."""
        if len(self.definition.key) == 1:
            return sql.SQL("{} = ANY({}::text[]::{}[])").format(self.key_columns[0], placeholder, self.key_types[0])
        parts = [
            sql.SQL("(k.parts ->> {})::{}").format(sql.Literal(number), kind)
            for number, kind in enumerate(self.key_types)
        ]
        return sql.SQL(
            "({}) IN (SELECT {} FROM (SELECT one::jsonb AS parts FROM unnest({}::text[]) AS one) AS k)"
        ).format(sql.SQL(", ").join(self.key_columns), sql.SQL(", ").join(parts), placeholder)


_TIME = sql.SQL(
    "(CASE WHEN isfinite({0}) THEN to_jsonb(to_char({0}, 'YYYY-MM-DD\"T\"HH24:MI:SS') || "
    "CASE WHEN extract(microseconds FROM {0})::bigint %% 1000000 <> 0 THEN to_char({0}, '.US') ELSE '' END || {1}) "
    "ELSE to_jsonb({0}) END)"
)
_UTC = sql.SQL("({} AT TIME ZONE 'UTC')")


def json_of(column: sql.Composable, kind: str) -> sql.Composed:
    """Return SQL of a column's value as JSON."""
    # Times are as `json_values.json_scalar` writes them: with all digits of a second or none, and in UTC, so that their
    # order as texts is that of time. `kind` is the name of a type, short or as `format_type` writes it.
    if kind in {"timestamptz", "timestamp with time zone"}:
        return _TIME.format(_UTC.format(column), sql.Literal("+00:00"))
    if kind in {"timestamp", "timestamp without time zone"}:
        return _TIME.format(column, sql.Literal(""))
    return sql.SQL("to_jsonb({})").format(column)


def key_as_text(columns: Sequence[sql.Composable], kinds: Sequence[KeyKind]) -> sql.Composed:
    """Return SQL of a key as text; a JSON array if the key has several columns."""
    texts = [sql.SQL("{}::text").format(column) for column in columns]
    if len(texts) == 1:
        return texts[0]
    parts = [column if kind == "int" else text for column, kind, text in zip(columns, kinds, texts, strict=True)]
    return sql.SQL("jsonb_build_array({})::text").format(sql.SQL(", ").join(parts))


def document_id(name: str, key_text: sql.Composable) -> sql.Composed:
    """Return SQL that computes the id of a row's document as `chunk_keys.indexed_document_id` does."""
    prefix = b"indexed\0" + name.encode() + b"\0" + name.encode() + b"/"
    return sql.SQL(
        "encode(substring(sha256(decode({}, 'hex') || convert_to({}, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid"
    ).format(sql.Literal(prefix.hex()), key_text)


def key_text_of(key: RowKey) -> str:
    """Return the key of a hit as text, as `key_as_text` writes it."""
    if not isinstance(key, tuple):
        return str(key)
    return json.dumps([part if isinstance(part, int) else str(part) for part in key], ensure_ascii=False)


def row_document_id(name: str, key_text: str) -> UUID:
    """Return the id of a row's document, as the SQL of `document_id` computes it."""
    return indexed_document_id(name, f"{name}/{key_text}")


def _sql(text: str) -> sql.SQL:
    """Turn a text of the definition or the server into SQL; ``%`` is doubled because the statement binds values."""
    found: Any = text.replace("%", "%%")
    return sql.SQL(found)


def identifier(*names: str) -> sql.Identifier:
    """Return an identifier for a statement that binds values: every ``%`` is doubled."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def literal(text: str) -> sql.Literal:
    """Return a literal for a statement that binds values: every ``%`` is doubled."""
    return sql.Literal(text.replace("%", "%%"))


def _column(name: str) -> sql.Composed:
    return sql.SQL("t.{}").format(identifier(name))


def expression(text: str) -> sql.Composed:
    """Return an SQL expression of the definition in brackets, with a line break to end a comment at its end."""
    return sql.SQL("({}\n)").format(_sql(text))


def _hash(salt: object, texts: Sequence[sql.Composable]) -> sql.Composed:
    """Return SQL of a hash over texts and their lengths; the lengths distinguish lists with the same joined text."""
    parts: list[sql.Composable] = [sql.Literal(hashlib.sha256(repr(salt).encode()).hexdigest())]
    for text in texts:
        parts += [sql.SQL("octet_length({})").format(text), sql.SQL("':'")]
    parts += texts
    while len(parts) > MAX_ARGUMENTS:
        groups = [parts[start : start + MAX_ARGUMENTS] for start in range(0, len(parts), MAX_ARGUMENTS)]
        parts = [sql.SQL("concat({})").format(sql.SQL(", ").join(group)) for group in groups]
    # This is the server's own 64-bit hash (that of hash partitions, so it never changes), twice with different seeds.
    # With it, comparing long texts takes half the time that md5 takes, and a quarter of that of SHA-256 on a server
    # without OpenSSL; servers in FIPS mode have no md5.
    #
    # OFFSET keeps the planner from computing the text twice.
    return sql.SQL(
        """(SELECT int8send(hashtextextended(h.all_texts, 1)) || int8send(hashtextextended(h.all_texts, 2))
        FROM (SELECT concat({}) COLLATE "C" AS all_texts OFFSET 0) AS h)"""
    ).format(sql.SQL(", ").join(parts))


async def find_source(
    connection: Connection, definition: FollowedTable, types: Mapping[str, str] | None = None
) -> SourceTable:
    """Find the table that a definition names; refuse it if it is gone, unreadable, or has other types than `types`."""
    # The transaction must have called `fix_formatting`.
    relation = await find_relation(connection, definition.schema, definition.table)
    if relation is None:
        raise ConfigurationError(
            f"{definition.schema}.{definition.table}, which {definition.name!r} follows, does not exist in "
            f"{describe_connection(connection)} any more; the collection keeps its rows. If it was renamed: semlex "
            f"follow {definition.name} --change --table NAME; if it is gone: semlex follow {definition.name} --stop"
        )
    source = SourceTable(definition, relation)
    check_columns(source, f"; name another one: semlex follow {definition.name} --change {{}} …")
    check_readable(source)
    if types is not None:
        _check_types(source, types)
    return source


def uses_of(definition: FollowedTable) -> list[tuple[str, str]]:
    """Return (option, column) for each column that a definition names; an item of `text` may be an expression."""
    uses = [(use, name) for use in ("key", "text") for name in getattr(definition, use)]
    uses += [("heading", definition.heading)] if definition.heading is not None else []
    uses += [("updated_at", definition.updated_at)] if definition.updated_at is not None else []
    return uses + [(use, name) for use in ("metadata", "live") for name in getattr(definition, use)]


def check_columns(source: SourceTable, remedy: str = "") -> None:
    """Refuse a definition that names a column which its table or view lacks."""
    # `remedy` ends the message, with ``{}`` for the flag that names another column.
    for use, name in uses_of(source.definition):
        is_expression = use == "text" and not _NAME.fullmatch(name)
        if name not in source.columns and not is_expression:
            near = get_close_matches(name, source.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(source.columns)}"
            flag = f"--{use.replace('_', '-')}"
            raise ConfigurationError(
                f"{source.relation} has no column {name!r} ({use}=, {flag}); {hint}{remedy.format(flag)}"
            )


def check_readable(source: SourceTable) -> None:
    """Refuse a table or view that the role may not read; the message has the GRANT statements."""
    relation = source.relation
    role, table = quoted(relation.role), quoted(relation.schema, relation.name)
    grants = [] if relation.may_use_schema else [f"GRANT USAGE ON SCHEMA {quoted(relation.schema)} TO {role};"]
    hidden = [name for name, column in relation.columns.items() if not column.may_be_read]
    named = {name for _, name in uses_of(source.definition)}
    has_expression = any(item not in relation.columns for item in source.definition.text)
    lacking = hidden if has_expression else [name for name in hidden if name in named]
    if lacking and len(hidden) < len(relation.columns):
        grants.append(f"GRANT SELECT ({', '.join(map(quoted, lacking))}) ON {table} TO {role};")
    elif lacking:
        grants.append(f"GRANT SELECT ON {table} TO {role};")
    if grants:
        raise PrivilegeError(
            f"the role {relation.role!r} may not read {relation}; its owner can allow it: {' '.join(grants)}",
            sqlstate="42501",
        )


def _check_types(source: SourceTable, types: Mapping[str, str]) -> None:
    """Refuse a table if the type of a column has changed since the table was followed."""
    definition = source.definition
    for name, before in types.items():
        column = source.columns.get(name)
        if column is None or column.type == before or _is_alike(before, column.type):
            continue
        uses = [use for use, used in uses_of(definition) if used == name and use != "live"]
        if not uses:  # nothing of it is stored
            continue
        raise ConfigurationError(
            f"the column {name!r} of {source.relation} ({', '.join(uses)}) was {before} when it was followed, and is "
            f"{column.type} now; nothing was changed. To follow its new type: semlex follow {definition.name} --change"
        )


_LENGTH = re.compile(r"\([^)]*\)")
_ALIKE = (("smallint", "integer", "bigint"), ("text", "character varying", "character", "citext", "public.citext"))


def _is_alike(one: str, other: str) -> bool:
    """Return whether a value has the same text and JSON form in both types; lengths, as in varchar(9), are ignored."""
    first, second = (_LENGTH.sub("", kind) for kind in (one, other))
    return first == second or any(first in group and second in group for group in _ALIKE)
