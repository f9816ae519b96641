"""The rows of a table of another library, out of the server by binary COPY."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.tables.copy_out import copy_parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from semlex.store.foreign_tables.find import ForeignTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.tables.copy_out import RowPart

# Numbers and times as JSON, the same whatever the session's settings are.
READING: Mapping[str, str | int] = {"timezone": "UTC", "extra_float_digits": 1, "statement_timeout": 0}


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows a table has.

    Attributes:
        rows: Those that are read: of rows with one id the latest.
        repeated: Earlier rows with the same id.
        left_out: Of each column that is not taken, how many rows have something in it; only where some have.
    """

    rows: int
    repeated: int
    left_out: Mapping[str, int]


async def count_rows(connection: Connection, table: ForeignTable) -> RowCounts:
    """Counts, which read the table once."""
    layout = table.layout
    counts: list[sql.Composable] = [sql.SQL("pg_catalog.count(*)")]
    if layout.later is not None:
        column = sql.Identifier(layout.id)
        counts.append(
            sql.SQL("pg_catalog.count({column}) OPERATOR(pg_catalog.-) pg_catalog.count(DISTINCT {column})").format(
                column=column
            )
        )
    else:
        counts.append(sql.SQL("0"))
    counts += [sql.SQL("pg_catalog.count({})").format(sql.Identifier(name)) for name in table.left_out]
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(sql.SQL(", ").join(counts), _name(table), _of(table))
    cursor = await connection.execute(query)
    [(rows, repeated, *filled)] = await cursor.fetchall()
    left_out = {name: count for name, count in zip(table.left_out, filled, strict=True) if count}
    return RowCounts(rows - repeated, repeated, left_out)


async def read_rows(connection: Connection, table: ForeignTable, counts: RowCounts) -> AsyncGenerator[RowPart, None]:
    """The rows of a table, in parts; vectors travel as they are stored.

    The columns of a part are id, text, vector, metadata, what says which row of an id is the latest, then each other
    column that becomes metadata; all but the vector as text, metadata as that of JSON.
    """
    layout = table.layout
    has_metadata = layout.metadata in table.types
    columns: list[sql.Composable] = [
        sql.SQL("t.{}::pg_catalog.text").format(sql.Identifier(layout.id)),
        sql.SQL("t.{}::pg_catalog.text").format(sql.Identifier(layout.text)),
        sql.SQL("t.{}").format(sql.Identifier(layout.vector)),
        _text(layout.metadata if has_metadata else None),
        _text(layout.later),
    ]
    # What is null has no JSON: to_json gives null for it, too.
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
    """The condition on the rows that are meant. COPY takes no parameters: the key is written by the driver."""
    if table.collection is None:
        return sql.SQL("true")
    key: Any = table.collection[0]
    return sql.SQL("t.collection_id OPERATOR(pg_catalog.=) {}").format(sql.Literal(str(key)))
