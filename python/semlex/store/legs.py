"""Runs the legs of a search, pipelined on one connection; a leg that fails does not take the others with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg.pq import ExecStatus

from semlex.store.connection import is_retryable, set_local, translate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from numpy.typing import NDArray
    from psycopg import sql

    from semlex.store.connection import Connection, Database

Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True)
class Leg:
    """The statements of one leg.

    Attributes:
        name: ``vector`` or ``keyword``.
        statement: Returns document_id, chunk_id, score; best first.
        parameters: Values bound by name.
        terms: Statement that counts the query's terms, for a leg that has terms.
        max_terms: Terms beyond this number are not searched.
        settings: Settings of the leg's transaction.
    """

    name: str
    statement: sql.Composed
    parameters: dict[str, Any]
    terms: sql.Composed | None = None
    max_terms: int | None = None
    settings: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LegAnswer:
    """What a leg found, or why it found nothing.

    Attributes:
        keys: (document_id, chunk_id), best first.
        scores: float64, shape (n,), the leg's own scores.
        milliseconds: From sending to the last row; the legs of one pipeline overlap.
        error: What went wrong, or None.
        terms: Number of terms in the query, for a leg that has terms.
        max_terms: How many of them were searched at most.
    """

    keys: list[Key]
    scores: NDArray[np.float64]
    milliseconds: float = 0.0
    error: BaseException | None = None
    terms: int | None = None
    max_terms: int | None = None

    @property
    def terms_cut(self) -> bool:
        """Whether the query had more terms than were searched."""
        return self.terms is not None and self.max_terms is not None and self.terms > self.max_terms


async def run_legs(connection: Connection, legs: list[Leg]) -> dict[str, LegAnswer]:
    """Sends all legs at once and reads their answers.

    Args:
        connection: In a transaction; broken afterwards if a leg failed.
        legs: In the order of the answers.

    Returns:
        The answers so far. After the first failure the server ignores the rest of the pipeline: legs behind it are
        missing from the result.
    """
    started = time.perf_counter()
    cursors: dict[str, tuple[psycopg.AsyncCursor[Any], psycopg.AsyncCursor[Any] | None]] = {}
    failure: psycopg.Error | None = None
    try:
        async with connection.pipeline():
            for leg in legs:
                if leg.settings:
                    await set_local(connection, **leg.settings)
                cursor = connection.cursor(binary=True)
                terms = connection.cursor(binary=True) if leg.terms is not None else None
                cursors[leg.name] = (cursor, terms)
                if terms is not None and leg.terms is not None:
                    await terms.execute(leg.terms, leg.parameters)
                await cursor.execute(leg.statement, leg.parameters)
    except psycopg.Error as error:
        if is_retryable(error):
            raise  # the whole transaction is run again
        failure = error
    elapsed = (time.perf_counter() - started) * 1000
    answers: dict[str, LegAnswer] = {}
    for leg in legs:
        if leg.name not in cursors or not _answered(cursors[leg.name][0]):
            if failure is not None:
                answers[leg.name] = failed(translate(failure, f"{leg.name} leg"), elapsed)
            break
        cursor, terms = cursors[leg.name]
        rows = await cursor.fetchall()
        count = (await terms.fetchall())[0][0] if terms is not None and _answered(terms) else None
        scores = np.array([row[2] for row in rows], dtype=np.float64)
        answers[leg.name] = LegAnswer([(row[0], row[1]) for row in rows], scores, elapsed, None, count, leg.max_terms)
    return answers


def failed(error: BaseException, milliseconds: float = 0.0) -> LegAnswer:
    """The answer of a leg that could not answer."""
    return LegAnswer([], np.empty(0, dtype=np.float64), milliseconds, error)


def _answered(cursor: psycopg.AsyncCursor[Any]) -> bool:
    return cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK


async def run_remaining_legs(
    database: Database,
    legs: list[Leg],
    answers: dict[str, LegAnswer],
    prepare: Callable[[Connection], Awaitable[None]],
) -> None:
    """Runs the legs that a failure of another cut off, each in a transaction of its own (and so its own snapshot).

    Args:
        database: An open database.
        legs: All legs.
        answers: Those that are there; completed here.
        prepare: Called at the beginning of each transaction.
    """
    for leg in legs:
        if leg.name in answers:
            continue

        async def work(connection: Connection, leg: Leg = leg) -> dict[str, LegAnswer]:
            await prepare(connection)
            return await run_legs(connection, [leg])

        answers |= await database.read(f"{leg.name} leg", work)
