"""The queue of jobs: clients submit, list, cancel and retry them; workers take, renew and end them."""

# Every change of a job is one short transaction; nothing stays open in between. All times are the server's.

from __future__ import annotations

import hashlib
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import ConfigurationError, LeaseLostError, PrivilegeError
from semlex.store.postgres.rows import fetch_row, fetch_rows, only_row
from semlex.store.postgres.settings import server_time
from semlex.store.schema import migrations
from semlex.store.schema.names import has_table, insertion
from semlex.store.schema.registry import migrate_registry, registry_version
from semlex.types.jobs import DEFAULT_ATTEMPTS, ENDED, STATES, JobError, JobInfo, JobProgress, JobState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

    # A queue has a method called `list`.
    Jobs = list[JobInfo]


# Without documents, which would be most of the bytes and are not shown.
COLUMNS = sql.SQL(
    "job_id::text, kind, collection, "
    "CASE WHEN jsonb_typeof(arguments) = 'object' THEN arguments - 'documents' ELSE arguments END, "
    "state, priority, unique_key, cancel_wanted, attempts, max_attempts, stage, done, total, unit, "
    "error_code, error_message, result, due_at, submitted_at, started_at, finished_at"
)


# Ends a queued job, and requests the end of a running one.
CANCELLING = sql.SQL(
    "state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END, cancel_wanted = (state = 'running'), "
    "finished_at = CASE state WHEN 'queued' THEN %(now)s ELSE finished_at END"
)


def job_table(schema: str) -> sql.Identifier:
    """Return the qualified name of a schema's table of jobs."""
    return sql.Identifier(schema, "job")


def job_of(row: tuple[Any, ...]) -> JobInfo:
    """Return the job from a row with the columns `COLUMNS`."""
    *first, stage, done, total, unit, code, message, result, due, submitted, started, finished = row
    progress = None if stage is None else JobProgress(stage, done, total, unit)
    error = None if code is None else JobError(code, message)
    return JobInfo(*(*first, progress, error, result, due, submitted, started, finished))


async def read_job(connection: Connection, schema: str, job_id: UUID) -> JobInfo:
    """Return the job with this id; raise an error if it does not exist."""
    if await has_table(connection, job_table(schema)) and (found := await _stored_job(connection, schema, job_id)):
        return found
    raise ConfigurationError(
        f"unknown job {job_id}: it may have ended and been removed, or belong to another schema; semlex jobs lists all"
    )


async def _stored_job(connection: Connection, schema: str, job_id: UUID) -> JobInfo | None:
    statement = sql.SQL("SELECT {} FROM {} WHERE job_id = %s").format(COLUMNS, job_table(schema))
    row = await fetch_row(connection, statement, [job_id])
    return None if row is None else job_of(row)


def job_key(job_id: object) -> UUID:
    """Return the key of a job from its id as text; refuse a text that cannot be an id."""
    try:
        return job_id if isinstance(job_id, UUID) else UUID(str(job_id))
    except ValueError:
        raise ConfigurationError(f"{str(job_id)[:80]!a} is not the id of a job; semlex jobs lists all") from None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be submitted; the attributes are those of `JobInfo`."""

    kind: str
    collection: str
    arguments: dict[str, Any]
    priority: int = 0
    # While another job with this key is queued for the collection, this one is not submitted.
    unique_key: str | None = None
    not_before: datetime | None = None
    max_attempts: int = DEFAULT_ATTEMPTS


class JobQueue:
    """The jobs of a schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self.clock = database.clock
        self._schema = schema
        self._table = job_table(schema)

    async def ensure_table(self) -> None:
        """Make or migrate the tables that all collections share."""
        version = await self._database.read("look for the jobs", lambda c: registry_version(c, self._schema))
        if version == len(migrations.REGISTRY):
            return
        try:
            await migrate_registry(self._database, self._schema)
        except PrivilegeError as error:
            if not version:
                raise
            raise PrivilegeError(
                f"the tables of schema {self._schema!r} were made by an older semlex and must be migrated, which this "
                "role may not do; let their owner run: semlex maintain migrate (or the SQL of its option --sql)",
                sqlstate=error.sqlstate,
            ) from None

    async def submit(self, job: NewJob) -> JobInfo:
        """Store a job; if a queued job has the same unique key, return that job instead."""
        job_id = uuid.uuid4()
        return await self._database.write("submit a job", lambda c: store_job(c, self._schema, job, job_id))

    async def get(self, job_id: UUID) -> JobInfo:
        """Return a job as it is now."""
        return await self._database.read("read a job", lambda c: read_job(c, self._schema, job_id))

    async def list(self, *, state: str | None, collection: str | None, limit: int) -> Jobs:
        """Return up to `limit` jobs of a state and a collection (None: of any), the newest first."""

        async def work(connection: Connection) -> Jobs:
            if not await has_table(connection, self._table):
                return []
            found = await fetch_rows(
                connection,
                sql.SQL(
                    "SELECT {} FROM {} WHERE (%(state)s::text IS NULL OR state = %(state)s) "
                    "AND (%(collection)s::text IS NULL OR collection = %(collection)s) "
                    "ORDER BY submitted_at DESC, job_id LIMIT %(limit)s"
                ).format(COLUMNS, self._table),
                {"state": state, "collection": collection, "limit": limit},
            )
            return [job_of(row) for row in found]

        return await self._database.read("list the jobs", work)

    async def count(self, *, deadline: float | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each state."""

        async def work(connection: Connection) -> dict[JobState, int]:
            found: dict[JobState, int] = dict.fromkeys(STATES, 0)
            if await has_table(connection, self._table):
                counted = sql.SQL("SELECT state, count(*) FROM {} GROUP BY state").format(self._table)
                found.update(await fetch_rows(connection, counted))
            return found

        return await self._database.read("count the jobs", work, deadline=deadline)

    async def cancel(self, job_id: UUID) -> JobInfo:
        """Cancel a queued job; ask the worker of a running one to stop."""
        return await self._change("cancelled", job_id, CANCELLING, ("queued", "running", "cancelled"))

    async def retry(self, job_id: UUID) -> JobInfo:
        """Put a failed or cancelled job back into the queue."""
        changes = sql.SQL(
            "state = 'queued', attempts = 0, due_at = %(now)s, submission_no = DEFAULT, cancel_wanted = false, "
            "error_code = NULL, error_message = NULL, stage = NULL, finished_at = NULL"
        )
        return await self._change("retried", job_id, changes, ("failed", "cancelled"))

    async def _change(self, what: str, job_id: UUID, changes: sql.SQL, states: tuple[str, ...]) -> JobInfo:
        is_changed = False

        async def work(connection: Connection) -> JobInfo:
            nonlocal is_changed
            if await has_table(connection, self._table):
                row = await fetch_row(
                    connection,
                    sql.SQL(
                        "UPDATE {} SET {} WHERE job_id = %(job_id)s AND state = ANY(%(states)s) RETURNING {}"
                    ).format(self._table, changes, COLUMNS),
                    {"job_id": job_id, "states": list(states), "now": await server_time(connection)},
                )
                if row is not None:
                    is_changed = True
                    return job_of(row)
            found = await read_job(connection, self._schema, job_id)
            if is_changed:  # by an attempt before, whose answer was lost
                return found
            possible = " or ".join(state for state in states if state != what)
            raise ConfigurationError(f"job {job_id} is {found.state}: only {possible} jobs can be {what}")

        return await self._database.write("change a job", work)


async def store_job(connection: Connection, schema: str, job: NewJob, job_id: UUID | None = None) -> JobInfo:
    """Do the work of `JobQueue.submit` in the caller's transaction."""
    table = job_table(schema)
    # An attempt before may have stored it, although its answer was lost. A worker may have taken it since.
    if job_id is not None and (stored := await _stored_job(connection, schema, job_id)):
        return stored
    if job.unique_key is not None:
        # Only keys are unique, so submitters of a job with this key wait for each other.
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_of(schema, job)])
        queued = await fetch_row(
            connection,
            sql.SQL(
                # No worker takes the job before this transaction has ended: it could miss what the transaction writes.
                "SELECT {} FROM {} WHERE collection = %s AND unique_key = %s AND state = 'queued' "
                "ORDER BY submitted_at LIMIT 1 FOR KEY SHARE"
            ).format(COLUMNS, table),
            [job.collection, job.unique_key],
        )
        if queued is not None:
            return job_of(queued)
    now = await server_time(connection)
    values = {
        "job_id": job_id or uuid.uuid4(),
        "fence": 0,
        "kind": job.kind,
        "collection": job.collection,
        "arguments": Jsonb(job.arguments),
        "state": "queued",
        "priority": job.priority,
        "unique_key": job.unique_key,
        "cancel_wanted": False,
        "attempts": 0,
        "max_attempts": job.max_attempts,
        "due_at": now if job.not_before is None else max(now, job.not_before),
        "submitted_at": now,
    }
    returning = insertion(table, values) + sql.SQL(" RETURNING {}").format(COLUMNS)
    return job_of(await only_row(connection, returning, values))


def _lock_of(schema: str, job: NewJob) -> int:
    """Return the key of the advisory lock on a job's unique key."""
    text = "\0".join((schema, job.collection, str(job.unique_key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


REMOVED_AT_ONCE = 1_000
# Between two attempts.
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 5.0, 600.0
# A job is taken from live workers up to this many times per allowed attempt.
TAKINGS_PER_ATTEMPT = 4
# Of an error's message, as it is stored.
MAX_MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker has taken."""

    job_id: UUID
    fence: int  # grows each time the job is taken
    kind: str
    collection: str
    # Unchecked JSON: a role that can write to the table may have written it.
    arguments: Any
    attempts: int  # this one included
    max_attempts: int

    @property
    def key(self) -> dict[str, Any]:
        """The values that identify the job's row until another worker takes the job."""
        return {"job_id": self.job_id, "fence": self.fence}


# A worker that takes a job gets a lease by the server's clock and a fencing number, which grows each time the job is
# taken. The worker renews the lease while it works. When the lease expires, another worker takes the job, and every
# later write of the former holder is refused: each transaction of a job checks the number right before its commit. That
# check locks the row FOR KEY SHARE, so that taking the job skips it for that moment, while renewing does not wait.
#
# A job that brings documents waits for every earlier job that brings one of them. So the text that was submitted last
# stays, whichever worker dies and whichever job is retried. Jobs of different documents run side by side.
#
# A server's clock may step. If it stepped back, a lease, or the delay of another attempt, looks longer than any can be:
# it is cut to its length, so that a job whose worker died waits no longer than one lease. If it stepped forward, a job
# is taken from a live worker: once that worker notices, the attempt does not count.
class JobLeases:
    """Takes jobs of a schema for a worker, and renews the worker's leases on them."""

    def __init__(self, database: Database, schema: str, seconds: float) -> None:
        self._database = database
        self.clock = database.clock
        self._table = job_table(schema)
        self.seconds = seconds
        self._lease = timedelta(seconds=seconds)

    async def claim(self) -> Claim | None:
        """Take the next job that is due; return None if no job is due."""
        # On the way, end jobs that are to be cancelled, and those whose worker went silent in their last attempt.

        async def work(connection: Connection) -> Claim | None:
            await connection.execute(
                sql.SQL(
                    "UPDATE {} SET due_at = %(now)s + {longest} WHERE state IN ('queued', 'running') "
                    "AND started_at IS NOT NULL AND due_at > %(now)s AND due_at > %(now)s + {longest}"
                ).format(self._table, longest=sql.SQL("CASE state WHEN 'running' THEN lease ELSE %(delay)s END")),
                {"now": await server_time(connection), "delay": timedelta(seconds=MAX_DELAY_SECONDS)},
            )
            while True:
                now = await server_time(connection)
                row = await fetch_row(connection, _NEXT.format(table=self._table), {"now": now})
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
        """Change a job that this transaction has locked; raise its fence, so that a former worker cannot change it."""
        return await only_row(
            connection,
            sql.SQL(
                "UPDATE {} SET fence = fence + 1, {} WHERE job_id = %(job_id)s AND fence = %(fence)s "
                "RETURNING job_id, fence, kind, collection, arguments, attempts, max_attempts"
            ).format(self._table, changes),
            given,
        )

    async def renew(self, claim: Claim, progress: JobProgress | None) -> bool:
        """Renew the lease and store the progress of the job; return whether the job is to be cancelled."""
        stage, done, total, unit = progress or (None, None, None, None)
        changes = sql.SQL("due_at = %(due_at)s, stage = %(stage)s, done = %(done)s, total = %(total)s, unit = %(unit)s")
        given = {"stage": stage, "done": done, "total": total, "unit": unit}
        return await self._keep("renew the lease of a job", claim, changes, given, self._lease)

    async def complete(self, claim: Claim, result: dict[str, Any]) -> None:
        """Note that a job is done."""
        changes = sql.SQL(
            "state = 'done', finished_at = %(now)s, result = %(result)s, error_code = NULL, error_message = NULL"
        )
        await self._keep("complete a job", claim, changes, {"result": Jsonb(result)})

    async def fail(self, claim: Claim, error: JobError, delay: float | None) -> None:
        """Note that an attempt has failed; the next is due after `delay` seconds (None: the job has failed)."""
        again = timedelta(seconds=delay or 0)
        changes = _FAILED if delay is None else _AGAIN
        await self._keep(
            "note that a job has failed",
            claim,
            changes,
            {"code": error.code, "message": storable(error.message)},
            again,
        )

    async def release(self, claim: Claim) -> None:
        """Put a job back into the queue without counting the attempt."""
        changes = sql.SQL("state = 'queued', due_at = %(now)s, attempts = attempts - 1")
        await self._keep("give a job back", claim, changes, {})

    async def forgive(self, claim: Claim) -> None:
        """Do not count an attempt that failed only because another worker took the job; this is limited per job."""

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
        """Note that a job ended by cancellation."""
        await self._keep("cancel a job", claim, _CANCELLED, {})

    async def _keep(
        self, doing: str, claim: Claim, changes: sql.SQL, given: dict[str, Any], until: timedelta = timedelta(0)
    ) -> bool:
        """Change a job if this worker still has it, else raise; return whether the job is to be cancelled."""

        async def work(connection: Connection) -> bool:
            now = await server_time(connection)
            row = await fetch_row(
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
        """Run the block, then raise if another worker has taken the job, so that the transaction is not committed."""
        # A process that is paused between two statements holds its locks for no longer than its lease: then the server
        # ends the transaction, so that another worker can take the job.
        row = await fetch_row(
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
        # The number is part of the key, so this waits only for a worker that takes the job at this moment.
        held = sql.SQL("SELECT 1 FROM {} WHERE job_id = %(job_id)s AND fence = %(fence)s FOR KEY SHARE")
        if await fetch_row(connection, held.format(self._table), claim.key) is None:
            raise _lost(claim)

    async def remove_ended(self, seconds: float) -> int:
        """Remove jobs that ended more than `seconds` ago; return how many."""

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


# A job that was due on submission stays due, even if the clock stepped back. A job with a later `not_before` delays
# no other until then.
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
        f"another worker has job {claim.job_id} now, because this worker did not renew its lease in time; the "
        "uncommitted work of this worker is lost (if workers are paused, choose a longer --lease)"
    )


def _silent(attempts: int) -> JobError:
    return JobError(
        LeaseLostError.__name__,
        f"the job's worker went silent ({attempts} attempts in all): it was killed, ran out of memory or was cut off "
        "from the server; look at the worker's logs, then: semlex jobs retry",
    )


def storable(message: str) -> str:
    """Shorten an error's message to a text that every database can store."""
    return message[:MAX_MESSAGE_CHARACTERS].replace("\0", "").encode("utf-8", "replace").decode()
