"""What a role may do with the tables of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.connection import Connection

READING = ("SELECT",)
WRITING = ("INSERT", "UPDATE", "DELETE")


class TablePrivileges(NamedTuple):
    """What this role may do with a table.

    Attributes:
        table: Its name.
        missing: Those of `READING` and `WRITING` that it lacks.
        owner: Role that owns it.
        is_owner: Whether this role is that one, or belongs to it.
    """

    table: str
    missing: tuple[str, ...]
    owner: str
    is_owner: bool


async def table_privileges(connection: Connection, schema: str, tables: Sequence[str]) -> list[TablePrivileges]:
    """What the present role may do with tables, by their names.

    Args:
        connection: In a transaction.
    """
    cursor = await connection.execute(
        "SELECT c.relname, ARRAY(SELECT p FROM unnest(%s::text[]) AS p "
        "WHERE NOT pg_catalog.has_table_privilege(c.oid, p)), "
        "pg_catalog.pg_get_userbyid(c.relowner), pg_catalog.pg_has_role(c.relowner, 'USAGE') "
        "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY c.relname",
        [[*READING, *WRITING], schema, list(tables)],
    )
    return [TablePrivileges(name, tuple(missing), *more) for name, missing, *more in await cursor.fetchall()]


def grant(connection: Connection, schema: str, privileges: Sequence[str], tables: Sequence[str]) -> str:
    """SQL for the owner that gives this role what it lacks."""
    role = sql.Identifier(connection.info.user)
    words = sql.SQL(", ").join(sql.SQL(privilege) for privilege in privileges)
    names = sql.SQL(", ").join(sql.Identifier(schema, table) for table in tables)
    statement = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}; GRANT {} ON {} TO {};")
    return statement.format(sql.Identifier(schema), role, words, names, role).as_string(connection)
