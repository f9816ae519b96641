"""The queue of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence


def registry(schema: str) -> Sequence[sql.Composed]:
    """One table for the jobs of all collections.

    `fence` grows whenever a job is taken from whoever had it. It is part of the key so that changing it is a change of
    the key: it waits for, and is seen by, who holds the row FOR KEY SHARE, which all other changes of a row pass by.

    `due_at` is when a job may be taken: a queued one from then on, a running one because its lease is over.
    """
    job = sql.Identifier(schema, "job")
    return (
        sql.SQL("""
            CREATE TABLE {} (
                job_id uuid NOT NULL,
                fence int NOT NULL,
                kind text NOT NULL,
                collection text NOT NULL,
                arguments jsonb NOT NULL,
                state text NOT NULL,
                priority int NOT NULL,
                unique_key text,
                cancel_wanted boolean NOT NULL,
                attempts int NOT NULL,
                max_attempts int NOT NULL,
                due_at timestamptz NOT NULL,
                stage text,
                done bigint,
                total bigint,
                unit text,
                error_code text,
                error_message text,
                result jsonb,
                submitted_at timestamptz NOT NULL,
                started_at timestamptz,
                finished_at timestamptz,
                PRIMARY KEY (job_id, fence)
            )""").format(job),
        # What a worker takes next, in this order; what has ended is not in it.
        sql.SQL(
            "CREATE INDEX job_due ON {} (priority DESC, due_at, job_id) WHERE state IN ('queued', 'running')"
        ).format(job),
        sql.SQL(
            "CREATE INDEX job_unique_key ON {} (collection, unique_key) "
            "WHERE state = 'queued' AND unique_key IS NOT NULL"
        ).format(job),
    )
