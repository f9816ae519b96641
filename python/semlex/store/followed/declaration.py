"""Make the definition of a followed table from a user's options; check the options alone, then against the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.followed.connection import check_address
from semlex.store.followed.source import (
    KEY_KINDS,
    NO_TEXT,
    Relation,
    SourceTable,
    check_columns,
    check_readable,
    expression,
    find_relation,
    similar_relations,
    uses_of,
)
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.roles import quoted
from semlex.store.schema.dropping import tables_of
from semlex.store.schema.names import JOB_TABLE, REGISTRY_TABLES, Names
from semlex.store.schema.registry import collection_names, has_registry
from semlex.types.followed import Changes, FollowedTable
from semlex.validation import check_parameters, text_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.options.indexing import TableOptions
    from semlex.store.postgres.connection import Connection

# Of a name; with a key it is the name of a document.
MAX_NAME_BYTES = 200
LISTS = ("key", "text", "metadata", "live")
DEFAULT_SCHEMA = "public"
# Classes of errors that an expression is the cause of: syntax and names, what is not supported, values.
EXPRESSION_CLASSES = ("42", "0A", "22")
# A statement names values that are not bound.
PARAMETER_MISSING = "08P01"
RECORD = psycopg.postgres.types["record"].oid
NO_RIGHT = "42501"
# What has no meaning for each way in which changes are noticed.
UNUSED: Mapping[Changes, Sequence[str]] = {
    "comparison": ("overlap", "keys_every"),
    "column": (),
    "trigger": ("overlap",),
}
TIMES = ("timestamptz", "timestamp")


def declared_table(table: str, name: str | None, options: TableOptions) -> FollowedTable:
    """Make a definition from the options of a call; key and key kinds are empty until `resolve` has seen the table."""
    check_parameters(text_errors("table", table, blank=False))
    schema, _, rest = table.rpartition(".") if options.get("schema") is None else ("", "", table)
    before = FollowedTable(
        name=rest if name is None else name,
        schema=options.get("schema") or schema or DEFAULT_SCHEMA,
        table=rest,
        key=(),
        key_kinds=(),
        text=(),
    )
    return changed_table(before, {**options, "schema": before.schema})


def changed_table(before: FollowedTable, options: Mapping[str, Any]) -> FollowedTable:
    """Return a definition with other options; those that are not given stay as they are."""
    given: dict[str, Any] = {
        name: _listed(name, value) if name in LISTS else value for name, value in options.items() if name != "table"
    }
    if options.get("table") is not None:
        check_parameters(text_errors("table", options["table"], blank=False))
        schema, _, given["table"] = options["table"].rpartition(".")
        given |= {"schema": schema} if schema and "schema" not in given else {}
    if "formats" in given:
        given["formats"] = _formats(given["formats"])
    given["changes"] = _changes(before, options)
    if given["changes"] != "column":
        given["updated_at"] = None
    unused = [name for name in UNUSED[given["changes"]] if name in options]
    if unused:
        raise ConfigurationError(
            f"{unused[0]} has no effect with changes={given['changes']!r}: leave {unused[0]} out, or choose another "
            "value of changes"
        )
    if "schema" in given and given["schema"] is None:
        given["schema"] = DEFAULT_SCHEMA
    made = replace(before, **given)
    _check(made)
    return made


def _listed(name: str, value: Any) -> tuple[str, ...]:
    """Return names or expressions as a tuple; a text becomes a tuple of one, None an empty tuple."""
    listed = (value,) if isinstance(value, str) else () if value is None else value
    items = tuple(listed)
    check_parameters(*(text_errors(name, item, blank=False) for item in items))
    twice = next((item for number, item in enumerate(items) if item in items[:number]), None)
    if twice is not None:
        raise ConfigurationError(f"{name} has {twice!r} twice: name it once")
    return items


def _formats(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigurationError(
            'formats must be a mapping of text columns to formats, such as {"body": "markdown"}; '
            f"got {type(value).__name__}"
        )
    return dict(value)


def _changes(before: FollowedTable, options: Mapping[str, Any]) -> Any:
    """Return the value of `changes`: the given one, else the one that a given `updated_at` implies, else as before."""
    changes, column = options.get("changes"), options.get("updated_at", before.updated_at)
    if changes is None and ("changes" in options or "updated_at" in options):
        return "comparison" if column is None else "column"
    changes = before.changes if changes is None else changes
    if changes == "column" and column is None:
        raise ConfigurationError(
            "changes='column' needs a column with the time of a row's last change: name it (updated_at=, "
            "--updated-at), or use changes='comparison'"
        )
    if changes != "column" and options.get("updated_at") is not None:
        raise ConfigurationError(
            f"updated_at is for changes='column' only; got changes={changes!r}: leave one of them out"
        )
    return changes


def _check(table: FollowedTable) -> None:
    """Refuse options that are wrong whatever the table contains."""
    check_parameters(text_errors("name", table.name, max_bytes=MAX_NAME_BYTES, blank=False))
    if "/" in table.name or not table.name.isprintable():
        raise ConfigurationError(
            f"the name {table.name!a} has a '/' or a control character: give the table another one (name=, --name)"
        )
    if not table.text:
        raise ConfigurationError("text is empty: name the columns to search (text=, --text)")
    for item in table.formats:
        if item not in table.text:
            raise ConfigurationError(
                f"formats= names {item!r}, which is not in text= ({', '.join(table.text)}): name one of these"
            )
    if table.source_database is None:
        return
    check_address(table.source_database)
    if table.live:
        raise ConfigurationError(
            "each search reads live columns from the table itself, so the table must be in the collection's database: "
            "name these columns as metadata, or leave source_database out"
        )
    if table.changes == "trigger":
        raise ConfigurationError(
            "changes='trigger' needs a table in the collection's database, because triggers write into a queue there: "
            "use changes='column' or 'comparison' with source_database"
        )


async def refuse_own(connection: Connection, names: Names, wanted: FollowedTable) -> None:
    """Refuse to follow semlex's own tables, which change with every sync."""
    if wanted.schema != names.schema:
        return
    collections: list[str] = []
    if await has_registry(connection, names.schema):
        collections = await collection_names(connection, names.schema)
    is_shared = wanted.table in (*REGISTRY_TABLES, JOB_TABLE)
    if is_shared or any(tables_of(name, [wanted.table], collections, every=False) for name in collections):
        raise ConfigurationError(
            f"{wanted.schema}.{wanted.table} is a table of semlex itself, which every sync changes, so it cannot be "
            "followed: follow another table"
        )


async def resolve(connection: Connection, wanted: FollowedTable) -> SourceTable:
    """Find the table or view of a definition, complete the definition with key and types, and check it."""
    # The transaction must be read-only and have called `fix_formatting`.
    relation = await find_relation(connection, wanted.schema, wanted.table)
    if relation is None:
        near = await similar_relations(connection, wanted.schema, wanted.table)
        hint = (
            f"did you mean {' or '.join(near)}? (schema=, --schema)"
            if near
            else "name its schema, too (schema=, --schema)"
        )
        raise ConfigurationError(
            f"no table or view {wanted.schema}.{wanted.table} exists in {describe_connection(connection)}; {hint}"
        )
    key = wanted.key or _primary_key(relation)
    check_columns(SourceTable(replace(wanted, key=key), relation))
    table = replace(wanted, key=key, key_kinds=tuple(KEY_KINDS[_key_type(relation, name)] for name in key))
    source = SourceTable(table, relation)
    check_readable(source)
    _check_unique(source)
    _check_types(source)
    _check_changes(source)
    await _check_expressions(connection, source)
    return source


def _primary_key(relation: Relation) -> tuple[str, ...]:
    if relation.has_primary_key:
        return relation.unique[0]
    raise ConfigurationError(
        f"{relation} is a {relation.kind} without a primary key: name the columns that identify a row (key=, --key)"
        + (f"; unique columns: {'; '.join(map(', '.join, relation.unique))}" if relation.unique else "")
    )


def _key_type(relation: Relation, name: str) -> str:
    column = relation.columns[name]
    if column.base in KEY_KINDS:
        return column.base
    raise ConfigurationError(
        f"the key column {name!r} of {relation} is {column.type}, which cannot be a key; keys are integers, uuid or "
        f"text: cast it in a view (SELECT {quoted(name)}::text AS …), and follow the view"
    )


def _check_unique(source: SourceTable) -> None:
    """Refuse a table's key that no unique index covers; keys of views are checked while their rows are read."""
    relation, key = source.relation, source.definition.key
    if source.has_unique_key or relation.kind not in ("table", "partitioned table"):
        return
    columns, name = ", ".join(map(quoted, key)), quoted(relation.schema, relation.name)
    others = f"; unique columns: {'; '.join(map(', '.join, relation.unique))}" if relation.unique else ""
    raise ConfigurationError(
        f"no unique index of {relation} is over {', '.join(key)} alone, so two rows may share a key{others}. Name "
        f"a unique key (key=, --key), or let the owner of the table run: CREATE UNIQUE INDEX ON {name} ({columns});"
    )


def _check_types(source: SourceTable) -> None:
    for use, name in uses_of(source.definition):
        column = source.columns.get(name)
        if use in ("text", "heading", "metadata") and column is not None and column.base in NO_TEXT:
            raise ConfigurationError(
                f"the column {name!r} of {source.relation} is {column.type}, which cannot be read as text: leave it "
                f"out of {use}"
            )


def _check_changes(source: SourceTable) -> None:
    table, relation = source.definition, source.relation
    if table.changes == "trigger" and relation.kind not in ("table", "partitioned table"):
        raise ConfigurationError(
            f"{relation} is a {relation.kind}, whose changes triggers cannot notice: use "
            "changes='comparison' or 'column'"
        )
    if table.updated_at is None:
        return
    column = relation.columns[table.updated_at]
    if column.base not in TIMES:
        raise ConfigurationError(
            f"the column {column.name!r} of {relation} is {column.type}; updated_at must be a timestamp: name such a "
            "column, or use changes='comparison'"
        )


async def _check_expressions(connection: Connection, source: SourceTable) -> None:
    """Let the server check those items of `text` that are SQL expressions; no row is read."""
    for item in source.definition.text:
        if item in source.columns:
            continue
        # In WHERE, where neither aggregates nor sets of rows are allowed. Binary results are asked for by a protocol
        # that takes one statement only. No values are bound, which an expression could name as $1; so the driver
        # halves no %%.
        statement = sql.SQL("SELECT {0}, {0}::text FROM {1} WHERE {0}::text IS NULL LIMIT 0")
        composed = statement.format(expression(item), source.from_).as_string(connection).replace("%%", "%")
        cursor = connection.cursor(binary=True)
        try:
            await cursor.execute(composed.encode())
            await cursor.fetchall()
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if not state.startswith((*EXPRESSION_CLASSES, PARAMETER_MISSING)) or state == NO_RIGHT:
                raise
            reason = (error.diag.message_primary or type(error).__name__).replace(" in WHERE", "")
            if state == PARAMETER_MISSING:
                reason = "it has a parameter, such as $1"
            raise ConfigurationError(
                f"{item!r:.200} in text= is neither a column of {source.relation} nor an SQL expression over "
                f"its columns: {reason}. Functions of extensions need their schema, as in public.unaccent(title)"
            ) from None
        if cursor.description and cursor.description[0].type_code == RECORD:
            raise ConfigurationError(
                f"{item!r:.200} in text= gives several values for each row: name each value as a separate item"
            )
