"""A followed table as it is on its server: its columns, and the SQL of keys, texts, metadata and hashes of its rows."""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from semlex.errors import ConfigurationError
from semlex.store.postgres.addresses import describe, describe_connection
from semlex.store.postgres.connection import own_connection, plain_cursors
from semlex.store.postgres.errors import translate
from semlex.store.postgres.settings import set_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.types.followed import FollowedTable, KeyKind

RelationKind = Literal["table", "partitioned table", "view", "materialized view", "foreign table"]
RELATION_KINDS: Mapping[str, RelationKind] = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}
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
ENVIRONMENT = "env:"
# Values as text are the same in every session.
FORMATTING: Mapping[str, str | int] = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": 1,
    "bytea_output": "hex",
    "lc_monetary": "C",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: str  # as Postgres writes it: ``character varying(80)``
    base: str  # name of the type alone: ``varchar``; of a domain, that of what it is over
    category: str  # of `pg_type`: ``S`` text, ``N`` number, ``D`` time, …
    is_nullable: bool


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The table that a definition names, with its columns.

    All SQL is over one relation whose alias is ``t``; nothing else may be in scope, because expressions of the
    definition name columns without it. Combine it with other tables around a subquery. Run it with values (an empty
    list does not count for the driver: bind at least one), because every ``%`` in it is doubled.
    """

    definition: FollowedTable
    kind: RelationKind
    columns: Mapping[str, Column]
    # Sets of columns of which no two rows are equal, that of the primary key first.
    unique: Sequence[tuple[str, ...]]

    @property
    def is_local(self) -> bool:
        """Whether it is in the database of the collection, so that one statement can read both."""
        return self.definition.source_database is None

    @property
    def from_(self) -> sql.Composed:
        """The relation, for FROM."""
        return sql.SQL("{} AS t").format(_identifier(self.definition.schema, self.definition.table))

    @property
    def key_columns(self) -> list[sql.Composed]:
        """The columns of the key, for ORDER BY."""
        return [_column(name) for name in self.definition.key]

    @property
    def key_types(self) -> list[sql.SQL]:
        """Their types, for casts of their texts."""
        return [_sql(self.columns[name].type) for name in self.definition.key]

    @property
    def key_parts(self) -> list[sql.Composed]:
        """The parts of the key as text, which `after` takes."""
        return [sql.SQL("{}::text").format(column) for column in self.key_columns]

    @property
    def key_is_complete(self) -> sql.Composed:
        """The condition that no part of the key is NULL."""
        return sql.SQL(" AND ").join(sql.SQL("{} IS NOT NULL").format(column) for column in self.key_columns)

    @property
    def key_text(self) -> sql.Composed:
        """The key as text; of several columns a JSON array."""
        if len(self.definition.key) == 1:
            return self.key_parts[0]
        parts = [
            column if kind == "int" else sql.SQL("{}::text").format(column)
            for column, kind in zip(self.key_columns, self.definition.key_kinds, strict=True)
        ]
        return sql.SQL("jsonb_build_array({})::text").format(sql.SQL(", ").join(parts))

    @property
    def place(self) -> sql.Composed:
        """The place of the row's chunks, as jsonb: the table's name and the parts of the key in their types."""
        forms: Mapping[KeyKind, LiteralString] = {
            "int": "{}",
            "text": "{}::text",
            "uuid": "jsonb_build_object('uuid', {})",
        }
        parts = [
            sql.SQL(forms[kind]).format(column)
            for column, kind in zip(self.key_columns, self.definition.key_kinds, strict=True)
        ]
        return sql.SQL("jsonb_build_object('table', {}::text, 'key', jsonb_build_array({}))").format(
            _literal(self.definition.name), sql.SQL(", ").join(parts)
        )

    @property
    def uri(self) -> sql.Composed:
        """The name of the row's document."""
        return sql.SQL("{} || {}").format(_literal(f"{self.definition.name}/"), self.key_text)

    @property
    def document_id(self) -> sql.Composed:
        """The key of the row's document, as `chunk_keys.indexed_document_id` makes it."""
        return document_id(self.definition.name, self.key_text)

    @property
    def texts(self) -> list[sql.Composed]:
        """What is searched, item by item, as text."""
        return [
            sql.SQL("{}::text").format(_column(item) if item in self.columns else _expression(item))
            for item in self.definition.text
        ]

    @property
    def heading(self) -> sql.Composed | None:
        """The title, as text."""
        return None if self.definition.heading is None else sql.SQL("{}::text").format(_column(self.definition.heading))

    @property
    def metadata(self) -> sql.Composed:
        """The metadata, as a jsonb object; a null is not a key."""
        always, else_none = [], []
        for name in self.definition.metadata:
            column = _column(name)
            pair = sql.SQL("{}::text, {}").format(_literal(name), column)
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
        objects = [sql.SQL("jsonb_build_object({})").format(sql.SQL(", ").join(always)), *else_none]
        return sql.SQL("({})").format(sql.SQL(" || ").join(objects))

    def text_hash(self, salt: str = "") -> sql.Composed:
        """SHA-256 of what the row's chunks are made of.

        Args:
            salt: What else decides the chunks: how texts are split.
        """
        definition = self.definition
        decided_by = repr((definition.text, definition.heading, sorted(definition.formats.items()), salt))
        heading = [] if self.heading is None else [self.heading]
        return _hash(decided_by, [*self.texts, *heading])

    @property
    def metadata_hash(self) -> sql.Composed:
        """SHA-256 of the row's metadata."""
        return _hash(repr(self.definition.metadata), [sql.SQL("{}::text").format(self.metadata)])

    def after(self, placeholders: Sequence[sql.Composable]) -> sql.Composed:
        """The condition that a row comes after another one in the order of `key_columns`.

        Args:
            placeholders: Of the other row's `key_parts`.
        """
        values = [
            sql.SQL("{}::text::{}").format(one, kind) for one, kind in zip(placeholders, self.key_types, strict=True)
        ]
        return sql.SQL("({}) > ({})").format(sql.SQL(", ").join(self.key_columns), sql.SQL(", ").join(values))

    def with_keys(self, placeholder: sql.Composable) -> sql.Composed:
        """The condition that a row has one of some keys.

        Args:
            placeholder: Of an array of their texts (`key_text`).
        """
        if len(self.definition.key) == 1:
            return sql.SQL("{} = ANY({}::text[]::{}[])").format(self.key_columns[0], placeholder, self.key_types[0])
        parts = [
            sql.SQL("(k.parts ->> {})::{}").format(sql.Literal(number), kind)
            for number, kind in enumerate(self.key_types)
        ]
        return sql.SQL(
            "({}) IN (SELECT {} FROM (SELECT one::jsonb AS parts FROM unnest({}::text[]) AS one) AS k)"
        ).format(sql.SQL(", ").join(self.key_columns), sql.SQL(", ").join(parts), placeholder)


def document_id(name: str, key_text: sql.Composable) -> sql.Composed:
    """The key of the document of a row whose key as text is an expression of SQL."""
    prefix = b"indexed\0" + name.encode() + b"\0" + name.encode() + b"/"
    return sql.SQL(
        "encode(substring(sha256(decode({}, 'hex') || convert_to({}, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid"
    ).format(sql.Literal(prefix.hex()), key_text)


def _sql(text: str) -> sql.SQL:
    """SQL of the definition or of the server; the statement is run with values, so that the driver halves ``%%``."""
    found: Any = text.replace("%", "%%")
    return sql.SQL(found)


def _identifier(*names: str) -> sql.Identifier:
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def _literal(text: str) -> sql.Literal:
    return sql.Literal(text.replace("%", "%%"))


def _column(name: str) -> sql.Composed:
    return sql.SQL("t.{}").format(_identifier(name))


def _expression(text: str) -> sql.Composed:
    """An expression of the definition; the new line ends a comment."""
    return sql.SQL("({}\n)").format(_sql(text))


def _hash(salt: str, texts: Sequence[sql.Composable]) -> sql.Composed:
    """SHA-256 over texts, each with its length, so that no two rows of texts are hashed alike."""
    parts: list[sql.Composable] = [_literal(f"{salt}\n")]
    parts += [sql.SQL("coalesce(octet_length({0}) || ':' || {0}, '-')").format(text) for text in texts]
    return sql.SQL("sha256(convert_to({}, 'UTF8'))").format(sql.SQL(" || ").join(parts))


_RELATION = """
SELECT c.oid, c.relkind::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(b.typname, y.typname),
    coalesce(b.typcategory, y.typcategory)::text, NOT a.attnotnull
FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
LEFT JOIN pg_type AS b ON y.typtype = 'd' AND b.oid = y.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# Indexes whose keys are never NULL, so that equal rows cannot exist.
_UNIQUE = """
SELECT array_agg(a.attname::text ORDER BY k.place)
FROM pg_index AS i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, i.indexrelid
"""


async def find_source(connection: Connection, definition: FollowedTable) -> SourceTable:
    """The table that a definition names, if every column of the definition is there.

    Args:
        connection: Of the table's database, in a transaction with `FORMATTING`.

    Raises:
        ConfigurationError: The table or a column does not exist.
    """
    schema, table = definition.schema, definition.table
    found = await (await connection.execute(_RELATION, [schema, table])).fetchone()
    if found is None:
        raise ConfigurationError(
            f"the table {schema}.{table} does not exist in {describe_connection(connection)}; make it again, or stop "
            f"following it: semlex follow {definition.name} --stop"
        )
    relation, kind = found
    columns = {row[0]: Column(*row) for row in await (await connection.execute(_COLUMNS, [relation])).fetchall()}
    unique = [tuple(names) for (names,) in await (await connection.execute(_UNIQUE, [relation])).fetchall()]
    source = SourceTable(definition, RELATION_KINDS[kind], columns, unique)
    _check_columns(source)
    return source


def _check_columns(source: SourceTable) -> None:
    definition, columns = source.definition, source.columns
    named = [*definition.key, *definition.metadata, *definition.live]
    named += [name for name in (definition.heading, definition.updated_at) if name is not None]
    named += [item for item in definition.text if _NAME.fullmatch(item)]
    for name in named:
        if name not in columns:
            near = get_close_matches(name, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(columns)}"
            raise ConfigurationError(
                f"{definition.schema}.{definition.table} has no column {name!r}; {hint} Name another one with: "
                f"semlex follow {definition.name} --change …"
            )


def source_address(definition: FollowedTable) -> str | None:
    """Connection string of the table's database; None: the collection's."""
    named = definition.source_database
    if named is None or not named.startswith(ENVIRONMENT):
        return named
    variable = named.removeprefix(ENVIRONMENT)
    address = os.environ.get(variable, "").strip()
    if not address:
        raise ConfigurationError(
            f"the environment variable {variable} is not set, which holds the address of the database of "
            f"{definition.schema}.{definition.table}: set it, or name another one (source_database=, "
            "--source-database)"
        )
    return address


def check_address(address: str) -> None:
    """Refuse the address of a database that holds a password, because definitions are stored and shown."""
    if address.startswith(ENVIRONMENT):
        return
    describe(address)
    parts = conninfo_to_dict(address)
    if any(parts.get(name) for name in ("password", "sslpassword")):
        raise ConfigurationError(
            "source_database holds a password, which would be stored in the collection: put the address into an "
            "environment variable and give its name (env:NAME), or the password into ~/.pgpass"
        )


@asynccontextmanager
async def source_connection(database: Database, definition: FollowedTable) -> AsyncIterator[Connection]:
    """A connection to the table's database, outside of a transaction: of the collection's pool, or one of its own."""
    address = source_address(definition)
    if address is None:
        async with database.connection() as connection:
            yield connection
        return
    try:
        async with own_connection(address, database.timeout) as connection:
            with plain_cursors(connection):
                yield connection
    except psycopg.Error as error:
        raise translate(error, f"read {definition.schema}.{definition.table}", address) from None


async def fix_formatting(connection: Connection) -> None:
    """Fix how values are written as text, for the rest of the transaction."""
    await set_local(connection, **FORMATTING)
