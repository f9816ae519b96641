"""Runs the legs of a search, pipelined on one connection; a leg that fails does not take the others with it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg.pq import ExecStatus

from semlex.errors import SemlexError
from semlex.store.connection import is_retryable, set_local, translate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from numpy.typing import NDArray
    from psycopg import sql

    from semlex.store.connection import Connection, Database

Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with its values.

    Attributes:
        text: The statement; bytes when it was rendered before.
        parameters: Values bound by name.
    """

    text: sql.Composed | bytes
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Leg:
    """One way of finding chunks.

    Attributes:
        name: ``vector`` or ``keyword``.
        statements: Sent with those of the other legs in one go.
        finish: Makes the answer of the rows of each statement; it may ask more of the same transaction. It is told what
            the legs before it found, because the scores of these may be wanted next.
        settings: Settings of the leg's transaction.
    """

    name: str
    statements: tuple[Statement, ...]
    finish: Callable[[Connection, list[list[Any]], Sequence[Key]], Awaitable[LegAnswer]]
    settings: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LegAnswer:
    """What a leg found, or why it found nothing.

    Attributes:
        keys: (document_id, chunk_id), best first.
        scores: float64, shape (n,), the leg's own scores.
        milliseconds: From sending to the last row; the legs of one pipeline overlap.
        error: What went wrong, or None.
        scores_of: Gives the leg's exact scores of other chunks in the same transaction, float64, shape (n,); NaN for
            one that has none.
        filters: Whether NaN of `scores_of` means that the query's own words leave the chunk out.
        warnings: What the user should know of this answer.
    """

    keys: list[Key]
    scores: NDArray[np.float64]
    milliseconds: float = 0.0
    error: BaseException | None = None
    scores_of: Callable[[Connection, Sequence[Key]], Awaitable[NDArray[np.float64]]] | None = None
    filters: bool = False
    warnings: tuple[str, ...] = ()


def key_arrays(keys: Sequence[Key]) -> dict[str, Any]:
    """Keys as the values of two arrays, ``document_ids`` and ``chunk_ids``."""
    return {"document_ids": [key[0] for key in keys], "chunk_ids": [key[1] for key in keys]}


async def scores_by_key(connection: Connection, statement: Statement, keys: Sequence[Key]) -> NDArray[np.float64]:
    """Scores by a statement that takes `key_arrays` and returns one score a key, in their order; NULL is NaN."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement.text, {**statement.parameters, **key_arrays(keys)})
    return np.array([row[0] for row in await cursor.fetchall()], dtype=np.float64)


async def completed_scores(connection: Connection, answer: LegAnswer, keys: Sequence[Key]) -> NDArray[np.float64]:
    """A leg's scores of chunks: of those it found as found, of the others as it gives them when asked, else NaN."""
    found = dict(zip(answer.keys, answer.scores.tolist(), strict=True))
    others = [key for key in keys if key not in found]
    if others and answer.scores_of is not None:
        found |= zip(others, (await answer.scores_of(connection, others)).tolist(), strict=True)
    return np.array([found.get(key, np.nan) for key in keys], dtype=np.float64)


async def without_excluded(connection: Connection, answers: dict[str, LegAnswer]) -> tuple[dict[str, LegAnswer], bool]:
    """The answers without the nearest chunks that the query's own words leave out, and whether there were any."""
    keyword, vector = answers.get("keyword"), answers.get("vector")
    if keyword is None or vector is None or not keyword.filters or keyword.scores_of is None:
        return answers, False
    kept = np.flatnonzero(~np.isnan(await keyword.scores_of(connection, vector.keys)))
    left = replace(vector, keys=[vector.keys[place] for place in kept], scores=vector.scores[kept])
    return answers | {"vector": left}, len(left.keys) < len(vector.keys)


def ranked_rows(rows: list[Any]) -> tuple[list[Key], NDArray[np.float64]]:
    """Keys and scores of rows that begin with document_id, chunk_id, score."""
    return [(row[0], row[1]) for row in rows], np.array([row[2] for row in rows], dtype=np.float64)


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
    cursors, failure = await _send(connection, legs)
    answers: dict[str, LegAnswer] = {}
    for leg in legs:
        sent = cursors.get(leg.name, [])
        if len(sent) < len(leg.statements) or not all(map(_answered, sent)):
            if failure is not None:
                answers[leg.name] = failed(translate(failure, f"{leg.name} leg"), _milliseconds(started))
            break
        try:
            before = [key for answer in answers.values() for key in answer.keys]
            answer = await leg.finish(connection, [await cursor.fetchall() for cursor in sent], before)
        except SemlexError as error:
            answer = failed(error)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            answers[leg.name] = failed(translate(error, f"{leg.name} leg"), _milliseconds(started))
            break
        answers[leg.name] = replace(answer, milliseconds=_milliseconds(started))
    return answers


async def _send(
    connection: Connection, legs: list[Leg]
) -> tuple[dict[str, list[psycopg.AsyncCursor[Any]]], psycopg.Error | None]:
    """Sends the statements of all legs in one go; returns the cursors of each leg, and the first failure."""
    cursors: dict[str, list[psycopg.AsyncCursor[Any]]] = {}
    try:
        async with connection.pipeline():
            for leg in legs:
                if leg.settings:
                    await set_local(connection, **leg.settings)
                cursors[leg.name] = []
                for statement in leg.statements:
                    cursor = connection.cursor(binary=True)
                    cursors[leg.name].append(cursor)
                    await cursor.execute(statement.text, statement.parameters)
    except psycopg.Error as error:
        if is_retryable(error):
            raise  # the whole transaction is run again
        return cursors, error
    return cursors, None


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000


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
