"""Pass hits to a user's SQL: as a SELECT statement that contains the hits, or in a temporary table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semlex.errors import ConfigurationError, ReadOnlyError, ValidationError
from semlex.store.postgres.connection import SharedConnection, callers_connection, check_usable, join
from semlex.store.postgres.errors import translate
from semlex.store.query.chunk_keys import chunk_keys
from semlex.types.display import UNSAFE
from semlex.types.results import RANKS, SCORES, SearchResult, SearchResults
from semlex.validation import (
    check_parameters,
    check_rows,
    kind_errors,
    refuse,
    shown,
    strings_errors,
    text_errors,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semlex.store.postgres.connection import CallersConnection, Connection

Included = Literal["excerpt", "content", "metadata"]

# A name of the server's ends here.
MAX_NAME_BYTES = 63
# Rows of one statement: with metadata of the greatest size they still fit into one value of the server's.
BATCH_ROWS = 100
COLUMNS = {
    "rank": "int4",
    "document_rank": "int4",
    "id": "text",
    "document_id": "uuid",
    "source": "text",
    "source_document": "text",
    "key": "text",
    "line": "int4",
    "page": "int4",
    **dict.fromkeys(RANKS[1:], "int4"),
    **dict.fromkeys(SCORES, "float8"),
    "coverage": "float8",
}
INCLUDED = {"excerpt": "text", "content": "text", "metadata": "jsonb"}


class Relation:
    """Hits as rows and columns for SQL; the values are checked."""

    def __init__(self, hits: Sequence[SearchResult], include: Sequence[Included]) -> None:
        listed = list(hits) if isinstance(hits, (list, tuple)) else []
        wrong = [hit for hit in listed if not isinstance(hit, SearchResult)]
        check_parameters(
            kind_errors("results", hits, list, tuple),
            wrong_type("results", "list of SearchResult", wrong[0]) if wrong else [],
            strings_errors("include", include),
        )
        unknown = [name for name in include if name not in INCLUDED]
        if unknown:
            raise ConfigurationError(
                f"unknown column {shown(unknown[0])} in include; known columns: {', '.join(INCLUDED)}"
            )
        self.columns = COLUMNS | {name: kind for name, kind in INCLUDED.items() if name in include}
        for name in ("id", "source", "source_document", *(name for name in include if name != "metadata")):
            check_rows(name, [getattr(hit, name) for hit in listed])
        for number, hit in enumerate(listed if "metadata" in include else ()):
            _check_metadata(number, hit.metadata)
        self.rows = _rows_of(listed, hits, self.columns)

    @property
    def names(self) -> sql.Composed:
        """SQL of the columns' names."""
        return sql.SQL(", ").join(map(sql.Identifier, self.columns))

    @property
    def typed_names(self) -> sql.Composed:
        """SQL of the columns' names with their types."""
        return sql.SQL(", ").join(
            sql.SQL("{} pg_catalog.{}").format(sql.Identifier(name), sql.Identifier(kind))
            for name, kind in self.columns.items()
        )


def _rows_of(listed: list[SearchResult], hits: object, columns: dict[str, str]) -> list[dict[str, Any]]:
    documents = hits.documents if isinstance(hits, SearchResults) else []
    ranks = {id(hit): document.rank for document in documents for hit in document.hits}
    keys = chunk_keys([hit.id for hit in listed])
    rows = []
    for hit, key in zip(listed, keys, strict=True):
        # The key, as text, of a followed table's row.
        row_key = None if hit.table is None else hit.source_document.removeprefix(f"{hit.table}/")
        own = {"document_rank": ranks.get(id(hit)), "document_id": str(UUID(bytes=key)), "key": row_key}
        rows.append({name: own[name] if name in own else getattr(hit, name) for name in columns})
    return rows


def _check_metadata(row: int, metadata: object) -> None:
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        error = refuse("metadata", "unsupported_type", None, type(metadata).__name__)[0]
        raise ValidationError([replace(error, row=row)]) from None


def statement(connection: Connection, relation: Relation) -> str:
    """Return a statement that selects the hits, one row per line; control characters are escaped."""
    kinds = [sql.SQL(kind) for kind in relation.columns.values()]
    if relation.rows:
        rows: list[list[sql.Composable]] = [
            [_literal(connection, row[name], kind) for name, kind in relation.columns.items()] for row in relation.rows
        ]
        # The first row sets the types of all.
        rows[0] = [sql.SQL("{}::{}").format(cell, kind) for cell, kind in zip(rows[0], kinds, strict=True)]
        lines = [sql.SQL("({})").format(sql.SQL(", ").join(row)) for row in rows]
        body = sql.SQL("VALUES\n    {}\n").format(sql.SQL(",\n    ").join(lines))
    else:
        nulls = sql.SQL(", ").join(sql.SQL("NULL::{}").format(kind) for kind in kinds)
        body = sql.SQL("SELECT {} WHERE false").format(nulls)
    return sql.SQL("SELECT * FROM ({}) AS hits ({})").format(body, relation.names).as_string(connection)


def _literal(connection: Connection, value: object, kind: str) -> sql.Composable:
    """Return a value quoted by the driver, with line ends and control characters as escapes."""
    text = sql.Literal(json.dumps(value) if kind == "jsonb" else value).as_string(connection).strip()
    if not isinstance(value, str) or not ("\n" in text or "\t" in text or UNSAFE.search(text)):
        return sql.SQL(text)
    if not text.startswith("E'"):  # it has no backslash then
        text = f"E{text}"
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return sql.SQL(UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


LOOK = sql.SQL(
    "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only'), "
    "pg_catalog.to_regclass(pg_catalog.quote_ident(%s::pg_catalog.text))::pg_catalog.text"
)
CREATE = sql.SQL("CREATE TEMPORARY TABLE pg_temp.{table} ({columns}) ON COMMIT DROP")
INSERT = sql.SQL(
    "INSERT INTO pg_temp.{table} ({names}) SELECT {names} "
    "FROM pg_catalog.jsonb_to_recordset(%s::pg_catalog.jsonb) AS hits ({columns})"
)
DOING = "put hits into a table"


async def fill_table(given: CallersConnection, relation: Relation, table: str) -> int:
    """Write hits into a temporary table that is dropped at the end of the caller's transaction."""
    # No setting of the session is read or changed: values travel as one JSON text of ASCII.
    check_parameters(text_errors("table", table, blank=False, max_bytes=MAX_NAME_BYTES))
    connection = callers_connection(given)
    _check_connection(connection)
    try:
        await join(connection)
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(LOOK, [table], prepare=False)
            _check_place(await cursor.fetchone(), table)
            async with connection.transaction():  # a savepoint: a failure leaves the user's own statements as they are
                for query, values in _statements(relation, table):
                    await cursor.execute(query, values, prepare=False)
    except psycopg.Error as error:
        raise translate(error, DOING, writing=True) from None
    return len(relation.rows)


def _statements(relation: Relation, table: str) -> Iterator[tuple[sql.Composed, list[str] | None]]:
    columns = relation.typed_names
    yield CREATE.format(table=sql.Identifier(table), columns=columns), None
    # Of a statement with values the driver reads a percent sign as a placeholder, in a name as well.
    name = sql.Identifier(table.replace("%", "%%"))
    insert = INSERT.format(table=name, names=relation.names, columns=columns)
    for begin in range(0, len(relation.rows), BATCH_ROWS):
        yield insert, [json.dumps(relation.rows[begin : begin + BATCH_ROWS])]


def _check_connection(connection: Connection) -> None:
    """Refuse, without sending a statement, a connection that is busy or on which a temporary table would not last."""
    check_usable(connection)
    status = connection.info.transaction_status
    if status == TransactionStatus.ACTIVE:
        raise ConfigurationError(f"{DOING}: the connection is busy with another statement; end that first")
    owner = connection.owner if isinstance(connection, SharedConnection) else connection
    if status == TransactionStatus.IDLE and owner.autocommit:
        raise ConfigurationError(
            f"{DOING}: the table is dropped when the transaction ends, but the connection is in autocommit and outside "
            "a transaction; begin one (connection.transaction()), and read the table inside it"
        )


def _check_place(found: tuple[Any, ...] | None, table: str) -> None:
    """Refuse a standby, a read-only transaction, and a table name that is taken."""
    in_recovery, read_only, taken = found or (False, "off", None)
    if in_recovery:
        raise ReadOnlyError(f"{DOING}: a standby cannot create temporary tables; connect to the primary")
    if read_only == "on":
        raise ReadOnlyError(f"{DOING}: a read-only transaction cannot create temporary tables; begin another")
    if taken is not None:
        raise ConfigurationError(f"{DOING}: the table {table!r} exists already; choose another name")
