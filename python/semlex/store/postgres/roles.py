"""Run transactions with the rights of a role, and without the other rights of the login."""

# The statement that sets a transaction's other settings also sets the role, as ``SET LOCAL ROLE`` does, and it ends
# with the transaction. So it costs no round trip, works behind a transaction pooler, and never stays on a connection.

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from semlex.errors import ConfigurationError, PrivilegeError, StoreError
from semlex.store.postgres.rows import only_row
from semlex.store.schema.names import JOB_TABLE, REGISTRY_TABLES
from semlex.validation import check_parameters, text_errors

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection

MAX_ROLE_BYTES = 63
# Not names of roles: SET ROLE none takes a role away, public is everybody.
RESERVED = ("none", "public")
# The server's errors for a role that does not exist, and for one that the login is not a member of.
REFUSED = ("22023", "42501")
FIRST_WITH_SET_OPTION = 160_000


def checked_role(role: str | None) -> str | None:
    """Return the role, or refuse a name that no role of Postgres can have."""
    if role is None:
        return None
    check_parameters(text_errors("role", role, max_bytes=MAX_ROLE_BYTES, blank=False))
    if role in RESERVED:
        raise ConfigurationError(f"role {role!r} is a reserved word of Postgres: give the name of a role, or None")
    return role


def is_refusal(error: BaseException) -> bool:
    """Return whether the error may mean that the server refused the role itself, or a right of the role."""
    return isinstance(error, StoreError) and error.sqlstate in REFUSED


async def explain(connection: Connection, error: BaseException, role: str) -> BaseException:
    """Return the error with the GRANT statement that is needed; unchanged if the reason cannot be found out."""
    # `error` ended a transaction that had, or should have had, the role.
    try:
        login, may_take = await _membership(connection, role)
    except psycopg.Error:
        return error
    if may_take is None:
        text = f"role {role!r} does not exist on this server: run CREATE ROLE {quoted(role)}; {_grant(role, login)}"
    elif not may_take:
        text = f"the login {login!r} may not take the role {role!r}: run {_grant(role, login)}"
    elif isinstance(error, PrivilegeError) and "GRANT " in str(error):
        return error  # it says already what is lacking
    elif isinstance(error, PrivilegeError):
        text = f"{error}; the role {role!r} lacks the right: docs/how-to/tenants.md shows what to GRANT"
    else:
        return error
    return PrivilegeError(text, sqlstate=REFUSED[0] if may_take is None else REFUSED[1])


def of_login(error: BaseException) -> BaseException:
    """Add a remedy to an error about a missing right on a schema; return any other error unchanged."""
    if not isinstance(error, PrivilegeError) or "permission denied for schema" not in str(error):
        return error
    text = f"{error}; the role of this connection lacks the right: docs/how-to/deploy.md shows what to GRANT"
    return PrivilegeError(text, sqlstate=error.sqlstate)


def rights_to_create(schema: str, role: str) -> str:
    """Return the GRANT statements that let a role make a collection in a schema."""
    of, to = quoted(schema), quoted(role)
    tables = ", ".join(f"{of}.{table}" for table in sorted((*REGISTRY_TABLES, JOB_TABLE)))
    return (
        f"GRANT USAGE, CREATE ON SCHEMA {of} TO {to}; and if another role made the schema's first collection: "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {to};"
    )


async def _membership(connection: Connection, role: str) -> tuple[str, bool | None]:
    """Return the login, and whether the login may take the role (None if the role does not exist)."""
    needed = "SET" if connection.info.server_version >= FIRST_WITH_SET_OPTION else "MEMBER"
    async with connection.transaction():
        login, may_take = await only_row(
            connection,
            "SELECT session_user::text, (SELECT pg_catalog.pg_has_role(session_user, oid, %s) "
            "FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) %s)",
            [needed, role],
        )
    return login, may_take


def _grant(role: str, login: str) -> str:
    return f"GRANT {quoted(role)} TO {quoted(login)};"


def quoted(*names: str) -> str:
    """Return names as a quoted SQL identifier; of two names, the first is the schema."""
    return sql.Identifier(*names).as_string()
