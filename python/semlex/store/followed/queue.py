"""Queue the rows of a followed table that must be read: changes noticed by triggers, and rows that failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from semlex.store.jobs import storable
from semlex.store.postgres.rows import fetch_rows, only_row
from semlex.types.followed import RowProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

# A claim is a lease: the entries stay in the table, due again when the lease ends. So nothing is locked while a model
# embeds, and the entries of a killed worker come back. Two workers may read the same row; the result is still right,
# because the document is locked and the row compared again when its text is stored.
CLAIM_SECONDS = 120.0
MAX_CLAIMED = 1_000
# Pauses before a row is tried again: doubled each time.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 60, 86_400
SHOWN_PROBLEMS = 100


def _pause(failures: sql.SQL) -> sql.Composed:
    """Return SQL for the seconds until a row is retried, from the number of its earlier failures."""
    return sql.SQL("least({} * 2.0 ^ least({}, 30), {})").format(FIRST_PAUSE_SECONDS, failures, LAST_PAUSE_SECONDS)


# SQL for the most seconds that an entry waits: a claimed one for a lease, a row that failed for its pause.
LONGEST_WAIT = sql.SQL("CASE WHEN error_code IS NULL THEN %(lease)s ELSE {} END").format(
    _pause(sql.SQL("attempts - 1"))
)


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of the queue that a worker has claimed: a row to read, or all rows to compare."""

    change_id: int
    row_key: str | None  # None: compare every row


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that could not be stored, with the hash of the text and metadata that were tried."""

    row_key: str
    row_hash: str | None
    code: str
    message: str


class QueueCounts(NamedTuple):
    """How many entries a table has in the queue, by kind."""

    waiting: int  # noticed changes
    problems: int


class ChangeQueue:
    """The queue of one followed table; every method runs in the caller's transaction."""

    def __init__(self, names: Names, source_id: UUID) -> None:
        self._table = names.row_change
        self._source_id = source_id

    async def claim(
        self, connection: Connection, *, limit: int = MAX_CLAIMED, seconds: float = CLAIM_SECONDS
    ) -> list[Change]:
        """Claim entries that are due, the longest due first; the caller must commit before it reads the rows."""
        # A key may be in several entries.
        claimed = await fetch_rows(
            connection,
            sql.SQL(
                "WITH due AS (SELECT change_id FROM {table} WHERE source_id = %s AND due_at <= statement_timestamp() "
                "ORDER BY due_at, change_id LIMIT %s FOR UPDATE SKIP LOCKED) "
                "UPDATE {table} AS r SET due_at = clock_timestamp() + %s FROM due WHERE r.change_id = due.change_id "
                "RETURNING r.change_id, r.row_key"
            ).format(table=self._table),
            [self._source_id, limit, timedelta(seconds=seconds)],
        )
        return [Change(*row) for row in claimed]

    async def release(self, connection: Connection, changes: Sequence[Change], *, seconds: float = 0) -> None:
        """Make claimed entries due in `seconds`: 0 gives them back, a larger number renews the claim."""
        await connection.execute(
            sql.SQL("UPDATE {} SET due_at = clock_timestamp() + %s WHERE change_id = ANY(%s)").format(self._table),
            [timedelta(seconds=seconds), [change.change_id for change in changes]],
        )

    async def release_all(self, connection: Connection) -> None:
        """Give back all claimed entries, also those of other workers, which may be dead; failed rows wait as before."""
        await connection.execute(
            sql.SQL(
                "UPDATE {} SET due_at = statement_timestamp() WHERE source_id = %s AND error_code IS NULL "
                "AND due_at > statement_timestamp()"
            ).format(self._table),
            [self._source_id],
        )

    async def settle(
        self,
        connection: Connection,
        changes: Sequence[Change],
        *,
        done: Iterable[str] = (),
        failed: Sequence[FailedRow] = (),
    ) -> None:
        """Remove claimed entries in the transaction that stores their rows, and queue failed rows to be tried again."""
        # The transaction must have locked the documents of these rows, or the source alone. `changes` is empty for a
        # comparison. Each further failure of the same text makes the next attempt wait longer.
        if failed:
            await self._set_aside(connection, failed)
        # A row that is now stored or deleted has no problem any more.
        keys = list(done)
        if keys:
            await connection.execute(
                sql.SQL("DELETE FROM {} WHERE source_id = %s AND row_key = ANY(%s) AND error_code IS NOT NULL").format(
                    self._table
                ),
                [self._source_id, keys],
            )
        if changes:
            await connection.execute(
                sql.SQL("DELETE FROM {} WHERE change_id = ANY(%s)").format(self._table),
                [[change.change_id for change in changes]],
            )

    async def _set_aside(self, connection: Connection, failed: Sequence[FailedRow]) -> None:
        rows = {row.row_key: row for row in failed}.values()
        await connection.execute(
            # A row that has changed since begins with the first pause.
            sql.SQL(
                "WITH failed AS (SELECT * FROM unnest(%(keys)s::text[], %(hashes)s::text[], %(codes)s::text[], "
                "%(messages)s::text[]) AS f (row_key, row_hash, code, message)), "
                "before AS (DELETE FROM {table} AS r USING failed AS f WHERE r.source_id = %(source_id)s "
                "AND r.row_key = f.row_key AND r.error_code IS NOT NULL "
                "RETURNING r.row_key, r.attempts * (r.row_hash IS NOT DISTINCT FROM f.row_hash)::int AS attempts), "
                "counted AS (SELECT f.*, coalesce((SELECT max(b.attempts) FROM before AS b "
                "WHERE b.row_key = f.row_key), 0) AS attempts FROM failed AS f) "
                "INSERT INTO {table} (source_id, row_key, due_at, attempts, row_hash, error_code, error_message) "
                "SELECT %(source_id)s, row_key, clock_timestamp() + {pause} * interval '1 second', "
                "attempts + 1, row_hash, code, message FROM counted"
            ).format(table=self._table, pause=_pause(sql.SQL("attempts"))),
            {
                "keys": [row.row_key for row in rows],
                "hashes": [row.row_hash for row in rows],
                "codes": [row.code for row in rows],
                "messages": [storable(row.message) for row in rows],
                "source_id": self._source_id,
            },
        )

    async def put_off(self, connection: Connection, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the rows that failed and wait for a retry, each with the hash of the failed values, if known."""
        found = await fetch_rows(
            connection,
            sql.SQL(
                "SELECT row_key, row_hash FROM {} WHERE source_id = %s AND row_key = ANY(%s) "
                "AND error_code IS NOT NULL AND due_at > statement_timestamp()"
            ).format(self._table),
            [self._source_id, list(keys)],
        )
        return dict(found)

    async def problems(self, connection: Connection, limit: int = SHOWN_PROBLEMS) -> list[RowProblem]:
        """Return rows that could not be stored, ordered by the time of their next attempt."""
        found = await fetch_rows(
            connection,
            sql.SQL(
                "SELECT row_key, error_code, error_message, attempts, due_at FROM {} "
                "WHERE source_id = %s AND error_code IS NOT NULL ORDER BY due_at, change_id LIMIT %s"
            ).format(self._table),
            [self._source_id, limit],
        )
        return [
            RowProblem(key=key, code=code, message=message, attempts=attempts, due_at=due)
            for key, code, message, attempts, due in found
        ]

    async def count(self, connection: Connection) -> QueueCounts:
        """Count the waiting changes, and the rows that could not be stored."""
        row = await only_row(
            connection,
            sql.SQL(
                "SELECT count(*) FILTER (WHERE error_code IS NULL), count(*) FILTER (WHERE error_code IS NOT NULL) "
                "FROM {} WHERE source_id = %s"
            ).format(self._table),
            [self._source_id],
        )
        return QueueCounts(*row)
