"""Jobs, as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.postgres.settings import cursor_with_times
from semlex.types.reports import STATES, JobError, JobInfo, JobProgress, JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.postgres.connection import Connection

# Documents would be most of what is read, and nobody asks for them here.
COLUMNS = sql.SQL(
    "job_id::text, kind, collection, "
    "CASE WHEN jsonb_typeof(arguments) = 'object' THEN arguments - 'documents' ELSE arguments END, "
    "state, priority, unique_key, cancel_wanted, attempts, max_attempts, stage, done, total, unit, "
    "error_code, error_message, result, due_at, submitted_at, started_at, finished_at"
)


def job_table(schema: str) -> sql.Identifier:
    """The table of a schema's jobs."""
    return sql.Identifier(schema, "job")


async def has_job_table(connection: Connection, schema: str) -> bool:
    """Whether the schema has tables of semlex."""
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f'"{schema}"."job"'])
    row = await cursor.fetchone()
    return bool(row and row[0])


async def first_row(
    connection: Connection, statement: sql.Composed, given: Sequence[Any] | Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """The first row of what a statement gives, if any."""
    cursor = cursor_with_times(connection)
    await cursor.execute(statement, given)
    row: tuple[Any, ...] | None = await cursor.fetchone()
    return row


def job_of(row: tuple[Any, ...]) -> JobInfo:
    """The job of a row of `COLUMNS`."""
    *first, stage, done, total, unit, code, message, result, due, submitted, started, finished = row
    progress = None if stage is None else JobProgress(stage, done, total, unit)
    error = None if code is None else JobError(code, message)
    return JobInfo(*(*first, progress, error, result, due, submitted, started, finished))


async def read_job(connection: Connection, schema: str, job_id: UUID) -> JobInfo:
    """One job."""
    row = None
    if await has_job_table(connection, schema):
        row = await first_row(
            connection, sql.SQL("SELECT {} FROM {} WHERE job_id = %s").format(COLUMNS, job_table(schema)), [job_id]
        )
    if row is None:
        raise unknown_job(job_id)
    return job_of(row)


async def list_jobs(
    connection: Connection, schema: str, *, state: str | None, collection: str | None, limit: int
) -> list[JobInfo]:
    """The jobs that were submitted last, the newest first.

    Args:
        connection: In a transaction.
    """
    if not await has_job_table(connection, schema):
        return []
    cursor = cursor_with_times(connection)
    await cursor.execute(
        sql.SQL(
            "SELECT {} FROM {} WHERE (%(state)s::text IS NULL OR state = %(state)s) "
            "AND (%(collection)s::text IS NULL OR collection = %(collection)s) "
            "ORDER BY submitted_at DESC, job_id LIMIT %(limit)s"
        ).format(COLUMNS, job_table(schema)),
        {"state": state, "collection": collection, "limit": limit},
    )
    return [job_of(row) for row in await cursor.fetchall()]


async def count_jobs(connection: Connection, schema: str) -> dict[JobState, int]:
    """The number of jobs in each state."""
    found: dict[JobState, int] = dict.fromkeys(STATES, 0)
    if await has_job_table(connection, schema):
        cursor = await connection.execute(
            sql.SQL("SELECT state, count(*) FROM {} GROUP BY state").format(job_table(schema))
        )
        found.update(await cursor.fetchall())
    return found


def unknown_job(job_id: UUID) -> ConfigurationError:
    """The error of a job that is not there."""
    return ConfigurationError(
        f"there is no job {job_id} here: it may have ended and been removed, or be of another schema; semlex jobs "
        "lists them"
    )


def job_key(job_id: object) -> UUID:
    """The key of a job by its id."""
    try:
        return job_id if isinstance(job_id, UUID) else UUID(str(job_id))
    except ValueError:
        raise ConfigurationError(f"{str(job_id)[:80]!a} is no id of a job; semlex jobs lists them") from None
