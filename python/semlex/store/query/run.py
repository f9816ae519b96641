"""Run vector and keyword search, pipelined in one snapshot; if one fails, the other still answers."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus

from semlex.errors import SemlexError
from semlex.store.postgres.errors import is_retryable, translate
from semlex.store.query.leg import LegPlan, LegResult, PreparedLeg, ScoreQuery, SideColumn, Statement, failed_leg
from semlex.telemetry import FAILED_LEGS, SQLSTATE, note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.score_calibration import Calibration, Spread

Cursor = psycopg.AsyncCursor[Any]

# Gets the bytes of the texts and metadata of every statement that reads chunks, before they become values; what it
# raises ends the reading.
size_seen: ContextVar[Callable[[int], None] | None] = ContextVar("semlex_size_seen", default=None)


@dataclass(frozen=True, slots=True)
class LegRun:
    """The results of vector and keyword search."""

    # By the leg's name. After the first failure the server ignores the rest of the pipeline: later legs are missing.
    results: dict[str, LegResult]
    # Of the query's similarities, if requested and the sample is in memory.
    spread: Spread | None = None


@dataclass(slots=True)
class _Sent:
    """The searches whose statements were sent, with the cursors for the answers."""

    # Name, what was sent, and the cursors of its statements.
    legs: dict[str, tuple[PreparedLeg, list[Cursor]]] = field(default_factory=dict)
    failure: psycopg.Error | None = None  # the first one
    spread: Spread | None = None


async def run_legs(snapshot: Snapshot, plans: Sequence[LegPlan], calibration: Calibration | None = None) -> LegRun:
    """Send vector and keyword search at once and read their results."""
    started = time.perf_counter()
    sent = await _send(snapshot, plans, calibration)
    results: dict[str, LegResult] = {}
    for plan in plans:
        prepared, cursors = sent.legs.get(plan.name, (None, []))
        if prepared is None or not all(map(_is_answered, cursors)):
            if sent.failure is not None:
                note({FAILED_LEGS: [plan.name], SQLSTATE: sent.failure.sqlstate})
                results[plan.name] = failed_leg(translate(sent.failure, f"{plan.name} search"), _milliseconds(started))
            break
        try:
            result = await prepared.read(
                snapshot, [await _rows(*one) for one in zip(cursors, prepared.statements, strict=True)]
            )
        except SemlexError as error:
            result = failed_leg(error)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            results[plan.name] = failed_leg(translate(error, f"{plan.name} search"), _milliseconds(started))
            break
        results[plan.name] = replace(result, milliseconds=_milliseconds(started))
    return LegRun(results, sent.spread)


async def _send(snapshot: Snapshot, plans: Sequence[LegPlan], calibration: Calibration | None) -> _Sent:
    """Send the statements of both searches in one go."""
    sent = _Sent()
    try:
        # A leg that answers alone is prepared first: whether anything is left to ask depends on it.
        alone = await _prepared(plans[0], None) if len(plans) == 1 else None
        # If it returns the rows of the best chunks, probably nothing is left.
        is_last = alone is not None and any(statement.large_columns for statement in alone.statements)
        async with snapshot.in_one_go(is_last=is_last):
            for plan in plans:
                await snapshot.set_up(plan.settings)
                side_column = next((other.side_column for other in plans if other is not plan), None)
                prepared = alone or await _prepared(plan, side_column)
                cursors = [await _execute(snapshot, statement) for statement in prepared.statements]
                sent.legs[plan.name] = prepared, cursors
            if calibration is not None:
                sent.spread = calibration.spread_in_memory()
    except psycopg.Error as error:
        if is_retryable(error):
            raise  # the whole transaction is retried
        sent.failure = error
    return sent


async def _prepared(plan: LegPlan, side_column: SideColumn | None) -> PreparedLeg:
    return await asyncio.to_thread(plan.prepare, side_column) if plan.takes_long else plan.prepare(side_column)


async def ask(snapshot: Snapshot, queries: Mapping[str, ScoreQuery]) -> dict[str, NDArray[np.float64]]:
    """Send all queries in one round trip; return the scores of each by name."""
    if not queries:
        return {}
    async with snapshot.in_one_go():
        sent = {name: [await _execute(snapshot, one) for one in query.statements] for name, query in queries.items()}
    rows = {name: [await cursor.fetchall() for cursor in cursors] for name, cursors in sent.items()}
    return {name: query.scores(rows[name]) for name, query in queries.items()}


async def fetch(snapshot: Snapshot, statement: Statement, *, is_last: bool = False) -> list[Any]:
    """Return the rows of a statement; after a failure, a rollback (also to a savepoint) makes the connection usable."""
    async with snapshot.in_one_go(is_last=is_last):
        cursor = await _execute(snapshot, statement)
    return await _rows(cursor, statement)


async def fetch_all(snapshot: Snapshot, statements: Sequence[Statement]) -> list[list[Any]]:
    """Send statements together; return the rows of each. A failure has the same effect as in `fetch`."""
    async with snapshot.in_one_go():
        cursors = [await _execute(snapshot, statement) for statement in statements]
    return [await _rows(*one) for one in zip(cursors, statements, strict=True)]


async def _execute(snapshot: Snapshot, statement: Statement) -> Cursor:
    return await snapshot.execute(statement.text, statement.parameters, is_qualified=statement.is_qualified)


async def _rows(cursor: Cursor, statement: Statement) -> list[Any]:
    """Return the rows that a cursor has, and report the size of large columns to `size_seen`."""
    if statement.large_columns:
        measure(cursor, statement.large_columns)
    return await cursor.fetchall()


def measure(cursor: Cursor, large_columns: Sequence[int]) -> None:
    """Report to `size_seen` how many bytes the large columns of a result have."""
    seen, result = size_seen.get(), cursor.pgresult
    if seen is not None and result is not None:
        sent = (result.get_value(row, column) for row in range(result.ntuples) for column in large_columns)
        seen(sum(len(value or b"") for value in sent))


def _is_answered(cursor: Cursor) -> bool:
    return cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000
