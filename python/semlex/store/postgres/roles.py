"""Roles: a transaction may do what its role may, and nothing that only the login may.

A role is set by the statement that sets the other settings of a transaction, as ``SET LOCAL ROLE`` does, and ends with
it: so it costs no round trip, passes a transaction pooler, and is never left to whoever has the connection next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from semlex.errors import ConfigurationError, PrivilegeError, StoreError
from semlex.validation import check_parameters, text_errors

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection

MAX_ROLE_BYTES = 63
# Not names of roles: SET ROLE none takes a role away, public is everybody.
RESERVED = ("none", "public")
# What the server says of a role that does not exist, and of one that the login is no member of.
REFUSED = ("22023", "42501")
FIRST_WITH_SET_OPTION = 160_000


def checked_role(role: str | None) -> str | None:
    """The role, when Postgres could have one of this name."""
    if role is None:
        return None
    check_parameters(text_errors("role", role, max_bytes=MAX_ROLE_BYTES, blank=False))
    if role in RESERVED:
        raise ConfigurationError(f"role {role!r} is a reserved word of Postgres: give the name of a role, or None")
    return role


def is_refusal(error: BaseException) -> bool:
    """Whether the server may have refused a role, or something to it."""
    return isinstance(error, StoreError) and error.sqlstate in REFUSED


async def explain(connection: Connection, error: BaseException, role: str) -> BaseException:
    """A refusal with what has to be granted to whom; the error as it is where the server cannot be asked.

    Args:
        error: Of a transaction that had, or was to have, the role.
    """
    try:
        login, may_take = await _membership(connection, role)
    except psycopg.Error:
        return error
    if may_take is None:
        text = f"there is no role {role!r} on this server: CREATE ROLE {_quoted(role)}; {_grant(role, login)}"
    elif not may_take:
        text = f"the login {login!r} may not take the role {role!r}: {_grant(role, login)}"
    elif isinstance(error, PrivilegeError):
        text = f"{error}; it was asked as the role {role!r}, which lacks the right: docs/tenants.md has what to GRANT"
    else:
        return error
    return PrivilegeError(text, sqlstate=REFUSED[0] if may_take is None else REFUSED[1])


def rights_to_create(schema: str, role: str) -> str:
    """What a role needs in a schema to make a collection there, as statements."""
    of, to = _quoted(schema), _quoted(role)
    tables = ", ".join(f"{of}.{table}" for table in ("collection", "embedding_version", "registry_version", "job"))
    return (
        f"GRANT USAGE, CREATE ON SCHEMA {of} TO {to}; and where another role has made the schema's first collection: "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {to};"
    )


async def _membership(connection: Connection, role: str) -> tuple[str, bool | None]:
    """The login, and whether it may take the role; None where there is no such role."""
    needed = "SET" if connection.info.server_version >= FIRST_WITH_SET_OPTION else "MEMBER"
    async with connection.transaction():
        cursor = await connection.execute(
            "SELECT session_user::text, (SELECT pg_catalog.pg_has_role(session_user, oid, %s) "
            "FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) %s)",
            [needed, role],
        )
        [found] = await cursor.fetchall()
    login, may_take = found
    return login, may_take


def _grant(role: str, login: str) -> str:
    return f"GRANT {_quoted(role)} TO {_quoted(login)};"


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()
