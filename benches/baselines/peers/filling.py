"""Rows into a table of another library by COPY, where its own load would take too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Rows that a slow library stores itself.
BY_LIBRARY = 1_000


def fill(
    place: str,
    table: str,
    types: dict[str, str],
    rows: Iterable[Sequence[Any]],
    computed: dict[str, LiteralString] | None = None,
) -> None:
    """Copies rows of columns with these types; computed columns are SQL over them."""
    columns = sql.SQL(", ").join(map(sql.Identifier, types))
    of_computed = computed or {}
    every = sql.SQL(", ").join(map(sql.Identifier, (*types, *of_computed)))
    values = sql.SQL(", ").join([columns, *map(sql.SQL, of_computed.values())])
    with psycopg.connect(place) as connection:
        register_vector(connection)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE given ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0").format(
                columns, sql.Identifier(table)
            )
        )
        with connection.cursor().copy(sql.SQL("COPY given ({}) FROM STDIN (FORMAT binary)").format(columns)) as copy:
            copy.set_types(list(types.values()))
            for row in rows:
                copy.write_row(row)
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM given").format(sql.Identifier(table), every, values)
        )
