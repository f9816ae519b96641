"""The queue of jobs, for those who want something done: submitted, looked at, cancelled, tried again.

Every change of a job is one short transaction, and all times are the server's.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import ConfigurationError, PrivilegeError
from semlex.store.jobs.rows import (
    COLUMNS,
    count_jobs,
    first_row,
    has_job_table,
    job_of,
    job_table,
    list_jobs,
    read_job,
    unknown_job,
)
from semlex.store.postgres.settings import server_time
from semlex.store.schema import migrations
from semlex.store.schema.registry import migrate_registry, registry_version
from semlex.types.reports import DEFAULT_ATTEMPTS

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.types.reports import JobInfo, JobState

    # A queue has a method called `list`.
    Jobs = list[JobInfo]


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be submitted; the attributes are those of `JobInfo`.

    Attributes:
        kind: What is to be done.
        collection: Name of the collection.
        arguments: As JSON.
        priority: A higher one goes first.
        unique_key: While another job of this key is queued for the collection, this one is not submitted.
        not_before: When it may be begun, or None.
        max_attempts: After so many it has failed.
    """

    kind: str
    collection: str
    arguments: dict[str, Any]
    priority: int = 0
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
        """Makes or migrates the tables that all collections share."""
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
                "role may not do; let their owner run: semlex migrate (or what semlex migrate --sql prints)",
                sqlstate=error.sqlstate,
            ) from None

    async def submit(self, job: NewJob) -> JobInfo:
        """Stores a job; where one of its key is queued, that one is returned."""
        job_id = uuid.uuid4()

        async def work(connection: Connection) -> JobInfo:
            return await store_job(connection, self._schema, job, job_id)

        return await self._database.write("submit a job", work)

    async def get(self, job_id: UUID) -> JobInfo:
        """A job as it is now."""
        return await self._database.read("read a job", lambda c: read_job(c, self._schema, job_id))

    async def list(self, *, state: str | None, collection: str | None, limit: int) -> Jobs:
        """The jobs that were submitted last; see `list_jobs`."""

        async def work(connection: Connection) -> Jobs:
            return await list_jobs(connection, self._schema, state=state, collection=collection, limit=limit)

        return await self._database.read("list the jobs", work)

    async def count(self, *, deadline: float | None = None) -> dict[JobState, int]:
        """The number of jobs in each state."""
        return await self._database.read("count the jobs", lambda c: count_jobs(c, self._schema), deadline=deadline)

    async def cancel(self, job_id: UUID) -> JobInfo:
        """Ends a queued job; has a running one end."""
        changes = sql.SQL(
            "state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END, cancel_wanted = (state = 'running'), "
            "finished_at = CASE state WHEN 'queued' THEN %(now)s ELSE finished_at END"
        )
        return await self._change("cancelled", job_id, changes, ("queued", "running", "cancelled"))

    async def retry(self, job_id: UUID) -> JobInfo:
        """Puts a job that has failed, or was cancelled, back into the queue."""
        changes = sql.SQL(
            "state = 'queued', attempts = 0, due_at = %(now)s, submission_no = DEFAULT, cancel_wanted = false, "
            "error_code = NULL, error_message = NULL, stage = NULL, finished_at = NULL"
        )
        return await self._change("tried again", job_id, changes, ("failed", "cancelled"))

    async def _change(self, what: str, job_id: UUID, changes: sql.SQL, states: tuple[str, ...]) -> JobInfo:
        async def work(connection: Connection) -> JobInfo:
            if not await has_job_table(connection, self._schema):
                raise unknown_job(job_id)
            row = await first_row(
                connection,
                sql.SQL("UPDATE {} SET {} WHERE job_id = %(job_id)s AND state = ANY(%(states)s) RETURNING {}").format(
                    self._table, changes, COLUMNS
                ),
                {"job_id": job_id, "states": list(states), "now": await server_time(connection)},
            )
            if row is not None:
                return job_of(row)
            found = await read_job(connection, self._schema, job_id)
            raise ConfigurationError(
                f"job {job_id} is {found.state} and cannot be {what}: it must be {_any_of(states)}"
            )

        return await self._database.write("change a job", work)


async def store_job(connection: Connection, schema: str, job: NewJob, job_id: UUID | None = None) -> JobInfo:
    """Store a job in a transaction; where one of its key is queued, that one is returned.

    Args:
        connection: In a transaction.
    """
    table = job_table(schema)
    if job.unique_key is not None:
        # Nothing is unique but keys, so that whoever submits a job of this key waits for the others.
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_of(schema, job)])
        queued = await first_row(
            connection,
            sql.SQL(
                "SELECT {} FROM {} WHERE collection = %s AND unique_key = %s AND state = 'queued' "
                "ORDER BY submitted_at LIMIT 1"
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
    row = await first_row(
        connection,
        sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
            table,
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(map(sql.Placeholder, values)),
            COLUMNS,
        ),
        values,
    )
    assert row is not None  # noqa: S101 - an INSERT returns what it has inserted
    return job_of(row)


def _lock_of(schema: str, job: NewJob) -> int:
    """Number of the lock on a key."""
    text = "\0".join((schema, job.collection, str(job.unique_key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _any_of(states: tuple[str, ...]) -> str:
    return " or ".join(states)
