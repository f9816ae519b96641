"""Translate the driver's errors into semlex's, and decide which of them are retried."""

from __future__ import annotations

import re

import psycopg
from psycopg.transaction import OutOfOrderTransactionNesting
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from semlex.errors import (
    CollectionNotFoundError,
    ConnectionFailedError,
    ModelMismatchError,
    PrivilegeError,
    ReadOnlyError,
    SearchTimeoutError,
    SemlexError,
    StoreError,
)
from semlex.store.postgres.addresses import without_password

# Serialization failure, deadlock, shutdown, crash shutdown, cannot connect now, too long idle in a transaction.
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "25P03"})
# Connection, shutdown, too many connections, login, no such database.
CONNECTION_CLASSES = ("08", "57P", "533", "28", "3D")
# Disk or memory; it goes away when there is room again.
RESOURCES_CLASS = "53"
DISK_FULL = "53100"
# Classes whose primary message quotes the offending value.
QUOTING_CLASSES = frozenset({"22", "23"})
# Undefined table, undefined schema.
MISSING_TABLE = frozenset({"42P01", "3F000"})
_VECTORS = re.compile(r"_embedding_[0-9]+\b")
QUERY_CANCELLED = "57014"
# A prepared statement that the session does not know, or that it has already.
UNKNOWN_STATEMENT, KNOWN_STATEMENT = "26000", "42P05"
UNIQUE_VIOLATION = "23505"
LOCK_NOT_AVAILABLE = "55P03"
READ_ONLY = "25006"


def is_retryable(error: BaseException) -> bool:
    """Return whether the same transaction may succeed when it is run again."""
    if isinstance(error, (TooManyRequests, PoolTimeout, PoolClosed)) or not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state in RETRYABLE_SQLSTATES or state.startswith("08") or is_outdated(error)


def is_outdated(error: psycopg.Error) -> bool:
    """Return whether the error says that a prepared statement is gone, returns other types, or has a name in use."""
    is_unexpected = error.sqlstate in {UNKNOWN_STATEMENT, KNOWN_STATEMENT}
    return is_unexpected or error.diag.source_function == "RevalidateCachedQuery"


def is_out_of_resources(error: StoreError) -> bool:
    """Return whether the error says that the server's disk or memory is full."""
    return error.sqlstate is not None and error.sqlstate.startswith(RESOURCES_CLASS)


def translate(error: BaseException, doing: str, url: str | None = None, *, writing: bool = False) -> BaseException:
    """Translate an error of the driver into one of semlex; return any other unchanged."""
    # The server's DETAIL and CONTEXT are dropped because they quote rows, and so is the primary message of the classes
    # that quote values.
    if isinstance(error, SemlexError) or not isinstance(error, psycopg.Error):
        return error
    state = error.sqlstate
    message = without_password((error.diag.message_primary or str(error)).strip(), url)
    if state is None:
        return _of_the_driver(error, doing, message)
    if state[:2] in QUOTING_CLASSES:
        message = f"the server refused a value ({type(error).__name__})"
    text = f"{doing}: {message} [{state}]"
    if state == QUERY_CANCELLED and not writing:
        return SearchTimeoutError(
            f"{doing}: the statement took too long, or a user of the server cancelled it [{state}]; raise the "
            "deadline or the server's statement_timeout"
        )
    if state == READ_ONLY:
        return ReadOnlyError(f"{text}; writes need the primary server and a role that may write", sqlstate=state)
    if state in MISSING_TABLE:
        return _of_a_missing_table(text, message, state)
    text += _REMEDIES.get(state, "")
    kind = PrivilegeError if state == "42501" else StoreError
    if state.startswith(CONNECTION_CLASSES):
        kind = ConnectionFailedError
    return kind(text, sqlstate=state)


_REMEDIES = {
    QUERY_CANCELLED: "; raise the role's statement_timeout (ALTER ROLE … SET statement_timeout), or write less at once",
    LOCK_NOT_AVAILABLE: (
        "; another transaction holds a lock that this one needs: end that transaction (pg_stat_activity shows it), "
        "then try again"
    ),
    DISK_FULL: "; nothing was stored: make room on the server's disk, then try again",
}

# By a part of the message with which the server or the driver refuses a connection.
_CONNECTION_REMEDIES = {
    "password authentication failed": (
        "check user and password; percent-encode special characters in an address (@ as %40)"
    ),
    "no password supplied": "give the password in the address, in PGPASSWORD or in ~/.pgpass",
    "does not match host name": (
        "connect by a name that is in the certificate, or have a certificate made for this host; sslmode=verify-full "
        "checks the name"
    ),
    "certificate verify failed": (
        "sslrootcert= must name the certificate of the authority that issued the server's certificate"
    ),
    "server does not support SSL": "turn TLS on in the server (ssl = on), or choose another sslmode=",
    "not in hot standby mode": "the address must contain a host that is a standby",
    "no encryption": "the server takes this login over TLS only: set sslmode=require (verify-full needs sslrootcert=)",
}


# The socket of an embedded server, below its folder or in one that is named after it.
_EMBEDDED_SOCKET = re.compile(
    r'"\S*(?:/postgres/socket|/semlex-\d+-[0-9a-f]{16})/\.s\.PGSQL\.\d+" failed: (?:No such file|Connection refused)'
)


def _of_a_missing_table(text: str, message: str, state: str) -> SemlexError:
    if _VECTORS.search(message):
        return ModelMismatchError(
            f"{text}; these vectors were dropped since the collection was opened: open it again, with its present "
            "model (semlex models list shows it)"
        )
    return CollectionNotFoundError(
        f"{text}; the collection was dropped in the meantime, or lacks a table: semlex doctor shows a remedy",
        sqlstate=state,
    )


def _of_the_driver(error: psycopg.Error, doing: str, message: str) -> SemlexError:
    """Return semlex's error for a failure that the driver, not the server, reports."""
    if isinstance(error, TooManyRequests):
        return ConnectionFailedError(
            f"{doing}: too many calls at once: {message}; limit the callers, or raise the limits of your pool"
        )
    if isinstance(error, PoolTimeout):
        remedy = "the server is gone, or all connections are in use: run semlex doctor to see which"
        return ConnectionFailedError(f"{doing}: no connection became free in time: {message}; {remedy}")
    if isinstance(error, PoolClosed):
        return ConnectionFailedError(f"{doing}: {message}; your pool must stay open as long as it is used")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        remedy = next((f"; {what}" for part, what in _CONNECTION_REMEDIES.items() if part in message), "")
        if _EMBEDDED_SOCKET.search(message):
            remedy = "\nIf this is the embedded Postgres of semlex, start it: semlex postgres start --keep-alive 86400"
        message = message.removeprefix("connection failed: ")
        return ConnectionFailedError(f"{doing}: the connection failed: {message}{remedy}")
    if isinstance(error, OutOfOrderTransactionNesting):
        return StoreError(
            f"{doing}: two tasks use one connection at the same time; give each task its own connection, or let "
            "one wait for the other"
        )
    # Its message may quote the value.
    return StoreError(f"{doing}: the driver refused a value or a statement ({type(error).__name__})")
