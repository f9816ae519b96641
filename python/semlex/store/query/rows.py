"""Read rows of followed tables together with the chunks made of them: live columns, and SQL that joins the two."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql
from psycopg.pq import Format

from semlex.errors import ConfigurationError, ValidationError
from semlex.filters.fields import SHOWN_CHARACTERS, exact, is_number, json_text, nearest
from semlex.store.followed.source import document_id, identifier, json_of, key_as_text, literal
from semlex.types.followed import FollowedTable, KeyKind, stored_definition
from semlex.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

# Columns of a domain have the type below it.
_TABLES = sql.SQL(
    "SELECT f.definition, (SELECT jsonb_object_agg(a.attname, "
    "format_type(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE a.atttypid END, NULL)) "
    "FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid "
    "WHERE a.attrelid = CASE WHEN f.definition->>'source_database' IS NULL THEN "
    "to_regclass(format('%%I.%%I', f.definition->>'schema', f.definition->>'table')) END "
    "AND a.attnum > 0 AND NOT a.attisdropped) "
    "FROM {table} AS f WHERE f.collection = %(collection)s ORDER BY f.name"
)
# The parts of a chunk's key in the types of the columns. Parts of other types belong to another key.
_PARTS: dict[KeyKind, sql.SQL] = {
    "int": sql.SQL("(CASE WHEN jsonb_typeof({part}) = 'number' THEN {part}::bigint END)"),
    "uuid": sql.SQL("({part} ->> 'uuid')::uuid"),
    "text": sql.SQL("({part} #>> '{{}}')"),
}
# Python has no times beyond its years, and no hour 24.
_BOUNDED = {
    "date": sql.SQL("least(greatest({}, '0001-01-01'), '9999-12-31')"),
    "timestamp without time zone": sql.SQL("least(greatest({}, '0001-01-01'), '9999-12-31 23:59:59.999999')"),
    "time without time zone": sql.SQL("least({}, '23:59:59.999999')"),
}
OwnType = Literal["bigint", "numeric", "text", "boolean", "uuid"]
# Types whose values are equal if their JSON is. Texts have the order of their collation, which is not that of filters.
_OWN_TYPES: dict[str, OwnType] = {
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "bigint",
    "numeric": "numeric",
    "text": "text",
    "character varying": "text",
    "boolean": "boolean",
    "uuid": "uuid",
}
_JSON_KINDS = dict.fromkeys(("smallint", "integer", "bigint", "numeric"), "number") | dict.fromkeys(
    ("text", "character varying", "uuid", "date"), "string"
)
_MAX_BIGINT = 2**63
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def text_of_type(value: object, of: OwnType) -> str | None:
    """Return the value of a filter in the text form of a type; None if no value of the type can equal it."""
    if isinstance(value, str):
        return value if of == "text" or (of == "uuid" and _UUID(value)) else None
    if isinstance(value, bool):
        return json_text(value) if of == "boolean" else None
    if not is_number(value) or of not in {"bigint", "numeric"}:
        return None
    is_whole = exact(value) == int(value) and -_MAX_BIGINT <= value < _MAX_BIGINT
    return json_text(value) if of == "numeric" else str(int(value)) if is_whole else None


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A followed table in the collection's own database, so that searches can read its rows."""

    # In SQL its row has the alias ``r``, and the chunk's the alias ``c``.

    definition: FollowedTable
    types: Mapping[str, str]  # of all its columns

    @property
    def name(self) -> str:
        """The name of the table in the collection."""
        return self.definition.name

    @property
    def live(self) -> Sequence[str]:
        """The live columns, which filters may name; without columns that no longer exist."""
        return [name for name in self.definition.live if name in self.types]

    @property
    def named(self) -> Collection[str]:
        """The columns that the definition names and that exist."""
        of = self.definition
        return {*of.key, *of.live, *of.text, *of.metadata, of.heading or ""} & self.types.keys()

    @property
    def relation(self) -> sql.Identifier:
        """The table's qualified name."""
        return identifier(self.definition.schema, self.definition.table)

    @property
    def is_own_row(self) -> sql.Composed:
        """The SQL condition that a chunk (``c``) was made of a row (``r``); indexes serve it in both directions."""
        columns, kinds = [self.column(name) for name in self.definition.key], self.definition.key_kinds
        document = document_id(self.name, key_as_text(columns, kinds))
        parts: list[sql.Composable] = [_of_table([self.name]), sql.SQL("c.document_id = {}").format(document)]
        for number, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
            part = sql.SQL("(c.place -> 'key' -> {})").format(sql.Literal(number))
            own = sql.SQL("{}::text").format(column) if kind == "text" else column
            parts.append(sql.SQL("{} = {}").format(own, _PARTS[kind].format(part=part)))
        return sql.SQL(" AND ").join(parts)

    def column(self, name: str) -> sql.Composed:
        """Return SQL of a column of the row."""
        return sql.SQL("r.{}").format(identifier(name))

    def loaded(self, name: str) -> sql.Composable:
        """Return SQL of a column in a form that the driver can read; as text if the driver does not know the type."""
        column, kind = self.column(name), self.types[name]
        if kind in _BOUNDED:
            return _BOUNDED[kind].format(column)
        known = psycopg.postgres.types.get(kind.removesuffix("[]"))
        if known is None or psycopg.adapters.get_loader(known.oid, Format.BINARY) is None:
            return sql.SQL("{}::text[]" if kind.endswith("[]") else "{}::text").format(column)
        return column

    def own_type(self, name: str) -> OwnType | None:
        """Return the SQL type in which filters compare a live column so that an index can serve; None if none can."""
        return _OWN_TYPES.get(self.types[name]) if name in self.live else None

    def json_kind(self, name: str) -> str | None:
        """Return the JSON type of all values of a live column; None if the types may differ."""
        return _JSON_KINDS.get(self.types[name])

    def value(self, name: str) -> sql.Composable:
        """Return SQL of the value of a live column as JSON; NULL if the table has no such column."""
        if name not in self.live:
            return sql.SQL("NULL::jsonb")
        kind = self.types[name]
        value = json_of(self.column(name), kind)
        return sql.SQL("NULLIF({}, 'null')").format(value) if kind in {"json", "jsonb"} else value


def _of_table(names: Sequence[str]) -> sql.Composed:
    return sql.SQL("c.place ->> 'table' IN ({})").format(sql.SQL(", ").join(map(literal, names)))


def of_rows(tables: Sequence[LiveTable], condition: Mapping[str, sql.Composable], *, others: bool) -> sql.Composable:
    """Return a SQL condition: the role sees the table row behind a chunk, and the row meets its table's condition."""
    # At least one table is needed, and `condition` has one for each by its name. With `others`, all other chunks pass.
    found: list[sql.Composable] = [
        sql.SQL("EXISTS (SELECT FROM {} AS r WHERE {} AND {})").format(
            table.relation, table.is_own_row, condition[table.name]
        )
        for table in tables
    ]
    if others:
        found.insert(0, sql.SQL("({}) IS NOT TRUE").format(_of_table([table.name for table in tables])))
    return sql.SQL("({})").format(sql.SQL(" OR ").join(found))


def visible_rows(tables: Sequence[LiveTable]) -> sql.Composable:
    """Return SQL of whether a chunk's row exists and is visible; true for chunks of other tables and files."""
    return of_rows(tables, {table.name: sql.SQL("TRUE") for table in tables}, others=True)


def live_row(tables: Sequence[LiveTable]) -> sql.Composable:
    """Return SQL of a chunk's live columns: a one-object JSON list, [] if the row is gone, NULL for chunks of files."""
    found: list[sql.Composable] = [
        sql.SQL(
            "WHEN {} THEN coalesce((SELECT jsonb_build_array(to_jsonb(live)) "
            "FROM (SELECT {} FROM {} AS r WHERE {} LIMIT 1) AS live), '[]')"
        ).format(
            _of_table([table.name]),
            sql.SQL(", ").join(
                sql.SQL("{} AS {}").format(table.value(name), identifier(name)) for name in sorted(table.live)
            ),
            table.relation,
            table.is_own_row,
        )
        for table in tables
    ]
    return sql.SQL("CASE {} END").format(sql.SQL(" ").join(found)) if found else sql.SQL("NULL::jsonb")


def seen_row(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the columns from a value of `live_row`, without NULLs; None for a row that is gone or hidden."""
    return {name: value for name, value in found[0].items() if value is not None} if found else None


class OfDefinitions(tuple[str, ...]):
    """Names of wanted columns; only columns that the tables' definitions name may be shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns of followed tables that a statement loads together with chunks."""

    tables: Mapping[str, LiveTable]  # by name
    names: Sequence[str]  # wanted columns; each table brings those that it has

    def _of(self, table: LiveTable) -> list[str]:
        return [name for name in self.names if name in _shown(table, self.names)]

    @property
    def selected(self) -> sql.Composable:
        """SQL to append to a SELECT: for each table, whether the chunk's row exists, and the wanted columns."""
        columns = [
            sql.SQL(", {}.{}").format(sql.Identifier(f"r{number}"), sql.Identifier(f"v{place}"))
            for number, table in enumerate(self.tables.values())
            for place in range(len(self._of(table)) + 1)
        ]
        return sql.SQL("").join(columns)

    @property
    def joined(self) -> sql.Composable:
        """SQL to append to a FROM: the joins with the tables. If a view repeats a key, one of its rows is taken."""
        joins = []
        for number, table in enumerate(self.tables.values()):
            columns = [sql.SQL("TRUE"), *(table.loaded(name) for name in self._of(table))]
            joins.append(
                sql.SQL(" LEFT JOIN LATERAL (SELECT {} FROM {} AS r WHERE {} LIMIT 1) AS {} ON TRUE").format(
                    sql.SQL(", ").join(
                        sql.SQL("{} AS {}").format(column, sql.Identifier(f"v{place}"))
                        for place, column in enumerate(columns)
                    ),
                    table.relation,
                    table.is_own_row,
                    sql.Identifier(f"r{number}"),
                )
            )
        return sql.SQL("").join(joins)

    def of(self, name: str | None, values: Sequence[Any]) -> dict[str, Any] | None:
        """Return the columns of the row of table `name` from the values of `selected`; None without a row."""
        begin = 0
        for table in self.tables.values():
            names = self._of(table)
            if table.name == name:
                own = values[begin : begin + len(names) + 1]
                return dict(zip(names, own[1:], strict=True)) if own[0] else None
            begin += len(names) + 1
        return None


def _shown(table: LiveTable, wanted: Sequence[str]) -> Collection[str]:
    return table.named if isinstance(wanted, OfDefinitions) else table.types


async def row_columns(connection: Connection, names: Names, columns: Sequence[str] | None) -> RowColumns | None:
    """Prepare to load the columns with these names from the followed tables; return None if none is wanted."""
    # Call it in the transaction that loads the columns.
    if not columns:
        return None
    wanted = columns if isinstance(columns, OfDefinitions) else tuple(columns)
    tables = await read_live_tables(connection, names)
    known = {name for table in tables for name in _shown(table, wanted)}
    for name in wanted:
        if name not in known:
            followed = ", ".join(table.name for table in tables)
            limit = f"the columns of a followed table ({followed}){nearest(name, known)}"
            if isinstance(wanted, OfDefinitions):
                limit = f"the columns that followed tables name: {', '.join(sorted(known))}"
            if not tables:
                limit = "the columns of a followed table; the collection follows none in its own database"
            raise ValidationError(refuse("columns", "unknown_type", limit, repr(name[:SHOWN_CHARACTERS])))
    return RowColumns({table.name: table for table in tables}, type(wanted)(dict.fromkeys(wanted)))


async def read_live_tables(connection: Connection, names: Names) -> tuple[LiveTable, ...]:
    """Return the followed tables of this database, ordered by name; raise an error if a table or its key is gone."""
    statement = _TABLES.format(table=names.followed_table)
    cursor = await connection.cursor(binary=True).execute(statement, {"collection": names.collection})
    tables = []
    for stored, types in await cursor.fetchall():
        definition = stored_definition(stored)
        if definition.source_database is not None:
            continue
        if types is None:
            raise ConfigurationError(
                f"the table {definition.schema}.{definition.table}, followed as {definition.name!r}, does not exist "
                f"any more: create the table again, or stop following it: semlex follow {definition.name} --stop"
            )
        for column in definition.key:
            if column not in types:
                raise ConfigurationError(
                    f"the key column {column!r} of {definition.schema}.{definition.table} does not exist any more: "
                    f"name the columns that identify a row: semlex follow {definition.name} --change --key COLUMN"
                )
        tables.append(LiveTable(definition, types))
    return tuple(tables)


def check_live(tables: Sequence[LiveTable], name: str, place: str) -> None:
    """Refuse a name that is not a live column of any followed table of this database."""
    for table in tables:
        if name in table.definition.live and name not in table.types:
            # A filter that ignored a lost column could show rows that it should hide.
            raise ConfigurationError(
                f"the live column {name!r} of {table.definition.schema}.{table.definition.table} does not exist "
                f"any more; name other live columns: semlex follow {table.name} --change --live NAMES"
            )
    known = sorted({name for table in tables for name in table.live})
    if name in known:
        return
    if tables:
        listed = f"live columns: {', '.join(known)}{nearest(name, known)}" if known else "no column is live"
        owner = next((table for table in tables if name in table.types), None)
        columns = "NAMES" if owner is None else ",".join([*owner.definition.live, name])
        remedy = f"{listed}; to change them: semlex follow {(owner or tables[0]).name} --change --live {columns}"
    else:
        remedy = "the collection follows no table of its database; to follow one: semlex follow TABLE --live COLUMN"
    raise ValidationError(refuse(place, "unknown_live_column", remedy))
