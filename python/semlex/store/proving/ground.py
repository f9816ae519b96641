"""The schema in which a proof works, with a table of articles; the backends of its clients, and times that jump."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.errors import ConfigurationError, PrivilegeError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.errors import translate
from semlex.store.schema.names import Names
from semlex.store.schema.registry import ALREADY_DONE, CREATE_EXTENSION, no_extension

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Connection = psycopg.Connection[Any]
# What decides how much a crash may cost, and what the report names.
SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_connections")
CONNECT_SECONDS = 10
PROMOTE_SECONDS = 120


@contextmanager
def connected(url: str, application: str = "semlex-proof") -> Iterator[Connection]:
    """Connect in autocommit mode; an error of the server or the network becomes one of semlex."""
    doing = f"connect to {describe(url)}"
    try:
        address = make_conninfo(url, application_name=application, connect_timeout=CONNECT_SECONDS)
        with psycopg.connect(address, autocommit=True, prepare_threshold=None) as connection:
            doing = "prove"
            yield connection
    except psycopg.Error as error:
        raise translate(error, doing, url) from None


def named_clients(url: str, application: str) -> str:
    """Return an address whose connections carry a name, by which `backends` finds them."""
    return make_conninfo(url, application_name=application)


@dataclass
class Ground:
    """A schema on a server, in which the collections of a proof are; names of its clients begin with `clients`."""

    url: str
    schema: str
    clients: str
    _brought_extension: bool = field(default=False, repr=False)

    def create(self) -> None:
        """Make the schema; refuse one that exists, and a server on which no collection can be made."""
        with connected(self.url) as connection:
            # Through `Names`, which refuses what cannot be a schema.
            schema = sql.Identifier(Names(self.schema, "proof").schema)
            row = connection.execute("SELECT to_regnamespace(quote_ident(%s)) IS NULL", [self.schema]).fetchone()
            if row != (True,):
                raise ConfigurationError(
                    f"the schema {self.schema!r} exists, and a proof works only in a schema that it makes itself: name "
                    "another one (--schema NAME), or drop it if an earlier proof left it"
                )
            self._brought_extension = not _has_extension(connection)
            if self._brought_extension:
                _try_extension(connection)
            try:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            except psycopg.errors.InsufficientPrivilege as error:
                grant = _text(
                    connection,
                    "SELECT format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)",
                )
                raise PrivilegeError(
                    f"this role may not create the schema {self.schema!r} of the proof; ask the owner of the database "
                    f"to run: {grant}",
                    sqlstate=error.sqlstate,
                ) from None

    def remove(self) -> None:
        """Drop the schema, and the extension ``vector`` if the proof was the first to need it."""
        with connected(self.url) as connection:
            self._end_all(connection)
            # Table by table: one transaction cannot hold locks of any number.
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [self.schema])
            for (name,) in tables.fetchall():
                table = sql.Identifier(self.schema, name)
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(table))
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))
            if self._brought_extension:
                with suppress(psycopg.Error):  # somebody else's column has its type by now
                    connection.execute("DROP EXTENSION IF EXISTS vector")

    def _end_all(self, connection: Connection) -> None:
        """End the sessions that clients of the proof have left."""
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE starts_with(application_name, %s) AND datname = current_database() "
            "AND usename = current_user AND pid <> pg_backend_pid()",
            [self.clients],
        )

    def facts(self) -> dict[str, str]:
        """Return versions and settings of the server."""
        with connected(self.url) as connection:
            found = {"postgres": _text(connection, "SELECT current_setting('server_version')")}
            # If it is missing, collections will make it in its default version.
            found["pgvector"] = _text(
                connection,
                "SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), "
                "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector'), 'not installed')",
            )
            rows = connection.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [list(SETTINGS)]
            ).fetchall()
        return found | dict(sorted(rows))


def _has_extension(connection: Connection) -> bool:
    return connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone() is not None


def _try_extension(connection: Connection) -> None:
    """Refuse a server on which this role cannot create the extension; leave its creation to the first collection."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(CREATE_EXTENSION)
    except psycopg.Error as error:
        if error.sqlstate not in ALREADY_DONE:
            raise no_extension(error) from None


def _text(connection: Connection, statement: Any) -> str:
    row = connection.execute(statement).fetchone()
    return "" if row is None else str(row[0])


def backends(connection: Connection, application: str) -> list[int]:
    """Return the processes of the server that serve the clients of a name."""
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()", [application]
    ).fetchall()
    return [pid for (pid,) in rows]


def has_busy_backends(connection: Connection) -> bool:
    """Return whether a client of the database, other than this one, is inside a transaction."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle'"
    )
    return connection.execute(statement).fetchone() != (0,)


def end_backends(connection: Connection, pids: list[int]) -> int:
    """End processes of the server; return how many were there."""
    rows = connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", [pids]).fetchall()
    return sum(ended for (ended,) in rows)


def end_leases(connection: Connection, schema: str) -> None:
    """Let the lease of every change of a model end now, as if its time was over."""
    connection.execute(sql.SQL("UPDATE {} SET run_until = now()").format(sql.Identifier(schema, "embedding_version")))


def set_server(connection: Connection, settings: Mapping[str, str]) -> None:
    """Set settings of a server that a proof has started, for all sessions, permanently."""
    for name, value in settings.items():
        connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    connection.execute("SELECT pg_reload_conf()")


def end_job_leases(connection: Connection, schema: str) -> None:
    """Let the lease of every running job end now, as if its time was over."""
    statement = sql.SQL("UPDATE {} SET due_at = due_at - interval '1 day' WHERE state = 'running'")
    connection.execute(statement.format(sql.Identifier(schema, "job")))


def end_table_leases(connection: Connection, names: Names) -> None:
    """Let the leases of followed tables and of their queues end now."""
    connection.execute(sql.SQL("UPDATE {} SET leased_until = NULL, look_at = now()").format(names.followed_table))
    connection.execute(sql.SQL("UPDATE {} SET due_at = now() WHERE error_code IS NULL").format(names.row_change))


# Times of the server's clock by which processes decide.
TIMES = {
    "job": ("due_at", "submitted_at", "started_at", "finished_at"),
    "followed_table": ("look_at", "leased_until", "keys_compared_at", "synced_at"),
    "row_change": ("due_at",),
    "embedding_version": ("run_until", "served_until", "last_used_at"),
}


def jump_clock(connection: Connection, schema: str, seconds: float) -> None:
    """Change stored times as if the server's clock had jumped forwards by some seconds (negative: backwards)."""
    for name, columns in TIMES.items():
        table = sql.Identifier(schema, name)
        moved = sql.SQL(", ").join(
            sql.SQL("{0} = {0} - {1} * interval '1 second'").format(sql.Identifier(column), sql.Literal(seconds))
            for column in columns
        )
        # A row that somebody writes at this moment gets the time after the jump.
        free = sql.SQL("SELECT ctid FROM {} FOR NO KEY UPDATE SKIP LOCKED").format(table)
        connection.execute(sql.SQL("UPDATE {} SET {} WHERE ctid = ANY(ARRAY({}))").format(table, moved, free))


def job_states(connection: Connection, schema: str, ids: list[str]) -> dict[str, str]:
    """Return the state of jobs by their ids."""
    statement = sql.SQL("SELECT job_id::text, state FROM {} WHERE job_id = ANY(%s::uuid[])")
    rows = connection.execute(statement.format(sql.Identifier(schema, "job")), [ids]).fetchall()
    return dict(rows)


def waits_for_standby(connection: Connection) -> bool:
    """Return whether commits wait for a standby, so that it has whatever was acknowledged."""
    rows = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
    return ("sync",) in rows


def promote(connection: Connection) -> bool:
    """Make a standby a primary; return whether it is one."""
    return connection.execute("SELECT pg_promote(true, %s)", [PROMOTE_SECONDS]).fetchone() == (True,)


@dataclass(frozen=True, slots=True)
class Articles:
    """The table, in the schema of the proof."""

    schema: str
    name: str

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def create(self, connection: Connection) -> None:
        """Make the table."""
        connection.execute(sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, body text NOT NULL)").format(self._table))

    def put(self, connection: Connection, rows: Mapping[int, str]) -> None:
        """Insert rows, or change their texts."""
        statement = sql.SQL(
            "INSERT INTO {} (id, body) SELECT * FROM unnest(%s::bigint[], %s::text[]) "
            "ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        ).format(self._table)
        connection.execute(statement, [list(rows), list(rows.values())])

    def delete(self, connection: Connection, ids: list[int]) -> None:
        """Delete rows."""
        connection.execute(sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self._table), [ids])

    def move(self, connection: Connection, ids: Mapping[int, int]) -> None:
        """Change the keys of rows, in one statement; keys of rows that exist are left out."""
        statement = sql.SQL(
            "UPDATE {table} AS t SET id = m.after FROM unnest(%s::bigint[], %s::bigint[]) AS m (before, after) "
            "WHERE t.id = m.before AND NOT EXISTS (SELECT FROM {table} AS o WHERE o.id = m.after)"
        ).format(table=self._table)
        connection.execute(statement, [list(ids), list(ids.values())])

    def truncate(self, connection: Connection) -> None:
        """Remove all rows at once."""
        connection.execute(sql.SQL("TRUNCATE {}").format(self._table))

    def rows(self, connection: Connection) -> dict[int, str]:
        """Return the texts by their ids."""
        return dict(connection.execute(sql.SQL("SELECT id, body FROM {}").format(self._table)).fetchall())
