"""Rows of a keyword index damaged on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    import random

    from semlex.store.proving.ground import Connection
    from semlex.store.schema.names import Names


# Table -> its columns of bytes, and statements that change a row otherwise.
_BYTES = {"segment": ("header",), "posting": ("data", "first_term"), "tombstone": ("data",)}
_OTHERS: dict[str, tuple[str, ...]] = {
    "segment": ("generation = generation + 1", "segment_id = gen_random_uuid()", "chunks = chunks + 1", "chunks = 0"),
    "posting": ("segment_id = gen_random_uuid()", "data = ''"),
    "tombstone": ("generation = generation + 1", "tombstone_id = gen_random_uuid()"),
    "manifest": ("part_id = gen_random_uuid()", "generation = generation + 1"),
}


def damage_index(connection: Connection, names: Names, chance: random.Random) -> str | None:
    """Damage one row of a keyword index; return how, or None if its table has no row."""
    table = chance.choice(sorted(_OTHERS))
    identifier = getattr(names, table)
    rows = connection.execute(sql.SQL("SELECT ctid::text FROM {} ORDER BY ctid").format(identifier)).fetchall()
    if not rows:
        return None
    place = chance.choice(rows)[0]
    ways = ["DELETE", *_OTHERS[table], *(f"bytes of {column}" for column in _BYTES.get(table, ()))]
    way = chance.choice(ways)
    values: dict[str, Any] = {"place": place}
    if way == "DELETE":
        statement = sql.SQL("DELETE FROM {} WHERE ctid = %(place)s::tid").format(identifier)
    else:
        change: sql.Composable = sql.SQL(way)
        if way.startswith("bytes of "):
            column = way.removeprefix("bytes of ")
            change = sql.SQL("{0} = %(bytes)s").format(sql.Identifier(column))
            values["bytes"] = _changed(connection, identifier, column, place, chance)
        statement = sql.SQL("UPDATE {} SET {} WHERE ctid = %(place)s::tid").format(identifier, change)
    try:
        connection.execute(statement, values)
    except psycopg.IntegrityError:
        return None  # the table's own rules refuse it
    return f"{table}: {way}"


def _changed(
    connection: Connection, table: sql.Identifier, column: str, place: str, chance: random.Random
) -> bytes | str:
    statement = sql.SQL("SELECT {} FROM {} WHERE ctid = %s::tid").format(sql.Identifier(column), table)
    row = connection.execute(statement, [place]).fetchone()
    value = "" if row is None else row[0]
    if isinstance(value, str):
        return f"{value}x"
    data = bytearray(value or b"\0")
    way = chance.randrange(3)
    if way == 0:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif way == 1:
        del data[chance.randrange(len(data)) :]
    else:
        data += bytes(chance.randrange(1, 9))
    return bytes(data)
