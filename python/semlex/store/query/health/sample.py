"""Some rows of a table: all of a small one, else those of pages that are drawn by a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection

SEED = 1
# More rows than wanted are drawn, because a share of the pages is only about that share of the rows.
SPARE = 1.5


@dataclass(frozen=True, slots=True)
class RowSample:
    """Rows of a table.

    Attributes:
        rows: SQL of a subquery that has them, without its name.
        is_whole: Whether it is all of the table.
        estimated: About how many rows the table has; None where it is not known.
    """

    rows: sql.Composed
    is_whole: bool
    estimated: int | None

    def described(self, looked: int, noun: str) -> str:
        """How much was looked at, in words."""
        if self.is_whole:
            return f"all {looked:,} {noun}"
        return f"{looked:,} {noun} of about {self.estimated or 0:,}"


async def sample_rows(
    connection: Connection,
    table: sql.Identifier,
    columns: sql.Composable,
    most: int,
    *,
    where: sql.Composable | None = None,
) -> RowSample:
    """At most so many rows.

    Args:
        connection: In a transaction.
    """
    cursor = await connection.execute(
        "SELECT c.reltuples::float8, (SELECT count(*) FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid) "
        "FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass(%s)",
        [table.as_string(connection)],
    )
    row = await cursor.fetchone()
    estimated = None if row is None or row[0] < 0 else round(row[0])
    limit, condition = sql.Literal(most), sql.SQL("") if where is None else sql.SQL(" WHERE {}").format(where)
    counted = await connection.execute(
        sql.SQL("SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS few").format(table, sql.Literal(most + 1))
    )
    found = await counted.fetchone()
    few = 0 if found is None else int(found[0])
    if few <= most:
        rows = sql.SQL("(SELECT {} FROM {}{})").format(columns, table, condition)
        return RowSample(rows, is_whole=True, estimated=few)
    number = max(estimated or 0, few)
    percent = sql.Literal(min(100.0, 100.0 * SPARE * most / number))
    rows = sql.SQL("(SELECT {} FROM {} TABLESAMPLE system ({}) REPEATABLE ({}){} LIMIT {})").format(
        columns, table, percent, sql.Literal(SEED), condition, limit
    )
    return RowSample(rows, is_whole=False, estimated=number)
