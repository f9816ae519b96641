"""The queue of jobs, for those who do them: a job is taken, kept, and ended. Nothing stays open meanwhile.

Whoever takes a job gets a lease by the server's clock, and a fencing number, which grows with every taking. The lease
is renewed while the job is done. When it is over, somebody else takes the job, and from then on all that its former
holder writes is refused: every transaction of a job looks at the number right before its commit. That look locks the
row FOR KEY SHARE, so that taking the job passes it by for that moment, while renewing the lease does not wait.

A job that brings documents is taken only when no job that was submitted earlier brings one of them and has not ended.
So the text that was submitted last stays, whichever worker dies and whichever job is tried again. Jobs of different
documents are done side by side.

A server's clock may step. Where it has stepped back, a lease seems longer than any is: it is cut to its length, so that
a job whose worker died waits no longer than one lease. Where it has stepped forward, a job is taken from a worker that
lives: once that one notices, the attempt does not count.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import LeaseLostError
from semlex.store.jobs.rows import first_row, job_table
from semlex.store.postgres.settings import server_time
from semlex.types.reports import ENDED, JobError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.types.reports import JobProgress

REMOVED_AT_ONCE = 1_000
# A job whose workers live is taken from them at most so many times as often as it may be begun.
TAKINGS_PER_ATTEMPT = 4
# What the message of an error may take of the table.
MAX_MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that somebody has taken.

    Attributes:
        job_id: Its key.
        fence: Number of this taking; a later one has a higher number.
        kind: What is to be done.
        collection: Name of the collection.
        arguments: JSON of which nothing is known: whoever may write to the table may have written it.
        attempts: How often it was begun, this time included.
        max_attempts: After so many it has failed.
    """

    job_id: UUID
    fence: int
    kind: str
    collection: str
    arguments: Any
    attempts: int
    max_attempts: int

    @property
    def key(self) -> dict[str, Any]:
        """What names the row as long as nobody else takes the job."""
        return {"job_id": self.job_id, "fence": self.fence}


class JobLeases:
    """Takes jobs of a schema, and keeps them.

    Args:
        seconds: Length of a lease.
    """

    def __init__(self, database: Database, schema: str, seconds: float) -> None:
        self._database = database
        self.clock = database.clock
        self._table = job_table(schema)
        self.seconds = seconds
        self._lease = timedelta(seconds=seconds)

    async def claim(self) -> Claim | None:
        """Takes the next job that may be taken, if there is one.

        On the way, jobs end that are to be cancelled, and those whose holder went silent in their last attempt.
        """

        async def work(connection: Connection) -> Claim | None:
            await connection.execute(
                sql.SQL(
                    "UPDATE {} SET due_at = %(now)s + lease "
                    "WHERE state = 'running' AND due_at > %(now)s AND due_at > %(now)s + lease"
                ).format(self._table),
                {"now": await server_time(connection)},
            )
            while True:
                now = await server_time(connection)
                row = await first_row(
                    connection,
                    _NEXT.format(table=self._table),
                    {"now": now},
                )
                if row is None:
                    return None
                job_id, fence, state, cancel_wanted, attempts, max_attempts = row
                given = {"job_id": job_id, "fence": fence, "now": now, "due_at": now + self._lease}
                if cancel_wanted:
                    await self._take(connection, _CANCELLED, given)
                elif state == "running" and attempts >= max_attempts:
                    await self._take(connection, _FAILED, given | _silent(attempts)._asdict())
                else:
                    return Claim(*await self._take(connection, _BEGUN, given | {"lease": self._lease}))

        return await self._database.write("take a job", work)

    async def _take(self, connection: Connection, changes: sql.SQL, given: dict[str, Any]) -> tuple[Any, ...]:
        """Changes a locked job, of which its former holder can change nothing any more."""
        row = await first_row(
            connection,
            sql.SQL(
                "UPDATE {} SET fence = fence + 1, {} WHERE job_id = %(job_id)s AND fence = %(fence)s "
                "RETURNING job_id, fence, kind, collection, arguments, attempts, max_attempts"
            ).format(self._table, changes),
            given,
        )
        assert row is not None  # noqa: S101 - it is locked
        return row

    async def renew(self, claim: Claim, progress: JobProgress | None) -> bool:
        """Begins the lease anew, and stores how far the job has come."""
        stage, done, total, unit = progress or (None, None, None, None)
        changes = sql.SQL("due_at = %(due_at)s, stage = %(stage)s, done = %(done)s, total = %(total)s, unit = %(unit)s")
        given = {"stage": stage, "done": done, "total": total, "unit": unit}
        return await self._keep("renew the lease of a job", claim, changes, given, self._lease)

    async def complete(self, claim: Claim, result: dict[str, Any]) -> None:
        """Notes that a job is done."""
        changes = sql.SQL(
            "state = 'done', finished_at = %(now)s, result = %(result)s, error_code = NULL, error_message = NULL"
        )
        await self._keep("complete a job", claim, changes, {"result": Jsonb(result)})

    async def fail(self, claim: Claim, error: JobError, delay: float | None) -> None:
        """Notes that an attempt has failed.

        Args:
            delay: Seconds until the next attempt; None: there is none.
        """
        again = timedelta(seconds=delay or 0)
        changes = _FAILED if delay is None else _AGAIN
        await self._keep("note that a job has failed", claim, changes, _storable(error)._asdict(), again)

    async def release(self, claim: Claim) -> None:
        """Gives a job back that was begun; the attempt does not count."""
        changes = sql.SQL("state = 'queued', due_at = %(now)s, attempts = attempts - 1")
        await self._keep("give a job back", claim, changes, {})

    async def forgive(self, claim: Claim) -> None:
        """Takes an attempt back that ended because the job was taken from a worker that lives; not for ever."""

        async def work(connection: Connection) -> None:
            await connection.execute(
                sql.SQL(
                    "UPDATE {} SET attempts = attempts - 1 WHERE job_id = %(job_id)s AND fence > %(fence)s "
                    "AND fence <= {} * max_attempts AND state IN ('queued', 'running') "
                    "AND attempts > (state = 'running')::int"
                ).format(self._table, sql.Literal(TAKINGS_PER_ATTEMPT)),
                claim.key,
            )

        await self._database.write("take an attempt back", work)

    async def cancelled(self, claim: Claim) -> None:
        """Notes that a job was ended because it was to be cancelled."""
        await self._keep("cancel a job", claim, _CANCELLED, {})

    async def _keep(
        self,
        doing: str,
        claim: Claim,
        changes: sql.SQL,
        given: dict[str, Any],
        until: timedelta = timedelta(0),
    ) -> bool:
        """Changes a job that is still its holder's; returns whether it is to be cancelled."""

        async def work(connection: Connection) -> bool:
            now = await server_time(connection)
            row = await first_row(
                connection,
                sql.SQL(
                    "UPDATE {} SET {} WHERE job_id = %(job_id)s AND fence = %(fence)s AND state = 'running' "
                    "RETURNING cancel_wanted"
                ).format(self._table, changes),
                claim.key | given | {"now": now, "due_at": now + until},
            )
            if row is None:
                raise _lost(claim)
            return bool(row[0])

        return await self._database.write(doing, work)

    @asynccontextmanager
    async def fenced(self, connection: Connection, claim: Claim) -> AsyncIterator[bool]:
        """Keeps a transaction from being committed when its job has gone on elsewhere.

        A process that is paused between two statements holds its locks for no longer than its lease: then the server
        ends the transaction, so that the job can be done by somebody else.

        Args:
            connection: In a transaction that has begun.
        """
        row = await first_row(
            connection,
            sql.SQL(
                "SELECT cancel_wanted, set_config('idle_in_transaction_session_timeout', %(idle)s, true) FROM {} "
                "WHERE job_id = %(job_id)s AND fence = %(fence)s"
            ).format(self._table),
            claim.key | {"idle": f"{max(1, round(self.seconds * 1000))}ms"},
        )
        if row is None:
            raise _lost(claim)
        yield bool(row[0])
        # The number is part of the key, so that this waits for nobody but who takes the job at this moment.
        row = await first_row(
            connection,
            sql.SQL("SELECT 1 FROM {} WHERE job_id = %(job_id)s AND fence = %(fence)s FOR KEY SHARE").format(
                self._table
            ),
            claim.key,
        )
        if row is None:
            raise _lost(claim)

    async def remove_ended(self, seconds: float) -> int:
        """Removes jobs that ended longer ago than that; returns how many."""

        async def work(connection: Connection) -> int:
            now = await server_time(connection)
            cursor = await connection.execute(
                sql.SQL(
                    "DELETE FROM {table} WHERE job_id = ANY(ARRAY(SELECT job_id FROM {table} WHERE state = ANY(%s) "
                    "AND finished_at < %s LIMIT %s FOR UPDATE SKIP LOCKED))"
                ).format(table=self._table),
                [sorted(ENDED), now - timedelta(seconds=seconds), REMOVED_AT_ONCE],
            )
            return cursor.rowcount

        removed = part = await self._database.write("remove old jobs", work)
        while part == REMOVED_AT_ONCE:
            part = await self._database.write("remove old jobs", work)
            removed += part
        return removed


# What is due when it was submitted is due whatever the clock says now. A job that is put off until a later time
# (`not_before`) makes nobody wait until then.
_NEXT = sql.SQL("""
    SELECT job_id, fence, state, cancel_wanted, attempts, max_attempts FROM {table} AS j
    WHERE state IN ('queued', 'running') AND (due_at <= %(now)s OR (state = 'queued' AND due_at = submitted_at))
    AND (kind <> 'add' OR NOT EXISTS (
        SELECT 1 FROM {table} AS e
        WHERE e.collection = j.collection AND e.submission_no < j.submission_no
        AND e.kind = 'add' AND e.state IN ('queued', 'running')
        AND (e.started_at IS NOT NULL OR e.due_at <= %(now)s OR e.due_at = e.submitted_at)
        AND EXISTS (
            SELECT jsonb_array_elements(e.document_ids) INTERSECT SELECT jsonb_array_elements(j.document_ids)
        )
    ))
    ORDER BY priority DESC, due_at, job_id LIMIT 1 FOR UPDATE OF j SKIP LOCKED""")
_BEGUN = sql.SQL(
    "state = 'running', attempts = attempts + 1, due_at = %(due_at)s, lease = %(lease)s, started_at = %(now)s, "
    "stage = NULL, done = NULL, total = NULL, unit = NULL"
)
_CANCELLED = sql.SQL("state = 'cancelled', cancel_wanted = false, finished_at = %(now)s")
_FAILED = sql.SQL(
    "state = 'failed', cancel_wanted = false, finished_at = %(now)s, error_code = %(code)s, error_message = %(message)s"
)
_AGAIN = sql.SQL("state = 'queued', due_at = %(due_at)s, error_code = %(code)s, error_message = %(message)s")


def _lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(
        f"job {claim.job_id} went on elsewhere, because this worker was silent for longer than its lease; what it has "
        "not committed by now is not written (a longer --lease helps where workers are paused)"
    )


def _silent(attempts: int) -> JobError:
    return JobError(
        LeaseLostError.__name__,
        f"its worker went silent, {attempts} attempts in all: it was killed, ran out of memory or was cut off from the "
        "server; look at the logs there, then: semlex jobs retry",
    )


def _storable(error: JobError) -> JobError:
    """An error as a text that every database holds."""
    text = error.message[:MAX_MESSAGE_CHARACTERS].replace("\0", "")
    return error._replace(message=text.encode("utf-8", "replace").decode())
