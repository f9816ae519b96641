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
from semlex.store.postgres.database import in_one_go
from semlex.store.postgres.errors import is_retryable, translate
from semlex.store.postgres.settings import set_local

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg import sql

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

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
class Beside:
    """What a leg wants to know of the chunks that another leg finds, so that it can score them without asking again.

    Attributes:
        expression: SQL over the chunk's row (alias ``c``).
        parameters: Values bound by name in it.
    """

    expression: sql.Composable
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leg:
    """One way of finding chunks.

    Attributes:
        name: ``vector`` or ``keyword``.
        statements: Makes what is sent with the statements of the other legs in one go, given what another leg wants to
            know of the chunks. Called when the legs before this one are on their way, so what it computes costs no time
            that the server does not need anyway.
        finish: Makes the answer of the rows of each statement; it may ask more of the same transaction.
        settings: Settings of the leg's transaction.
        beside: What it wants to know of the chunks that another leg finds.
    """

    name: str
    statements: Callable[[Beside | None], Sequence[Statement]]
    finish: Callable[[Connection, list[list[Any]]], Awaitable[LegAnswer]]
    settings: dict[str, str | int] = field(default_factory=dict)
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a leg has to ask for the scores of chunks that another leg found.

    Attributes:
        statements: Sent with those of other questions in one go.
        scores: Makes the scores of the rows of each statement: float64, shape (n,), one a chunk; NaN for one that has
            none.
    """

    statements: Sequence[Statement]
    scores: Callable[[list[list[Any]]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class LegAnswer:
    """What a leg found, or why it found nothing.

    Attributes:
        keys: (document_id, chunk_id), best first.
        scores: float64, shape (n,), the leg's own scores.
        milliseconds: From sending to the last row; the legs of one pipeline overlap.
        error: What went wrong, or None.
        besides: What another leg wanted to know of each chunk; None when that was not asked.
        score: Makes the leg's exact scores of other chunks out of what it wanted to know of them: float64, shape (n,),
            NaN for one that has none.
        scores_of: The question for the leg's exact scores of other chunks, to be asked in the same transaction; for
            chunks of which another leg could not tell.
        filters: Whether NaN of `scores_of` means that the query's own words leave the chunk out.
        by_words: Where the query's phrases leave chunks out: makes the leg that searches their words instead, given the
            number of rows wanted.
        coverage: Share of the query's weight that chunks hold, by their ids in the keyword index (int64, shape (n,)):
            float64, shape (n,), NaN where it cannot be told.
        warnings: What the user should know of this answer.
    """

    keys: list[Key]
    scores: NDArray[np.float64]
    milliseconds: float = 0.0
    error: BaseException | None = None
    besides: list[Any] | None = None
    score: Callable[[list[Any]], NDArray[np.float64]] | None = None
    scores_of: Callable[[Sequence[Key]], Question] | None = None
    filters: bool = False
    by_words: Callable[[int], Leg | None] | None = None
    coverage: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None
    warnings: tuple[str, ...] = ()


def key_arrays(keys: Sequence[Key]) -> dict[str, Any]:
    """Keys as the values of two arrays, ``document_ids`` and ``chunk_ids``."""
    return {"document_ids": [key[0] for key in keys], "chunk_ids": [key[1] for key in keys]}


def by_key(statement: Statement, keys: Sequence[Key]) -> Question:
    """The question of a statement that takes `key_arrays` and returns one score a key, in their order; NULL is NaN."""
    asked = Statement(statement.text, {**statement.parameters, **key_arrays(keys)})
    return Question((asked,), lambda rows: np.array([row[0] for row in rows[0]], dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Union:
    """Every chunk that a leg found.

    Attributes:
        keys: Of n chunks, by (document_id, chunk_id).
        places: Leg name -> where in `keys` each chunk stands that the leg found, int64, best first.
    """

    keys: list[Key]
    places: dict[str, NDArray[np.int64]]


def key_order(key: Key) -> tuple[int, str]:
    """Sorts as Postgres sorts (document_id, chunk_id): numbers like their bytes, code points like UTF-8."""
    return key[0].int, key[1]


def in_key_order(keys: Iterable[Key]) -> list[Key]:
    """Keys by (document_id, chunk_id)."""
    return sorted(keys, key=key_order)


def union_of(answers: Mapping[str, LegAnswer]) -> Union:
    """The union of answers, by the leg's name."""
    keys = in_key_order({key for answer in answers.values() for key in answer.keys})
    numbers = {key: number for number, key in enumerate(keys)}
    places = {name: np.array([numbers[key] for key in answer.keys], dtype=np.int64) for name, answer in answers.items()}
    return Union(keys, places)


async def completed_scores(
    connection: Connection, answers: Mapping[str, LegAnswer], union: Union
) -> dict[str, NDArray[np.float64]]:
    """Each leg's scores of all chunks: of those it found as found, of the others as it says when asked, else NaN.

    Args:
        connection: In the transaction of the answers.
        answers: By the leg's name.
        union: Of the answers.

    Returns:
        By the leg's name, float64, shape (n,).
    """
    number = len(union.keys)
    completed, questions, asked = {}, {}, {}
    for name, answer in answers.items():
        scores, own = np.full(number, np.nan), set(union.places[name].tolist())
        scores[union.places[name]] = answer.scores
        # Best first, because a leg may have to stop before the last.
        others = dict.fromkeys(place for other in answers if other != name for place in union.places[other].tolist())
        completed[name], missing = scores, [place for place in others if place not in own]
        told = _told_by_others(answers, union, name)
        if answer.score is not None and all(place in told for place in missing):
            scores[missing] = answer.score([told[place] for place in missing])
        elif answer.scores_of is not None and missing:
            questions[name], asked[name] = answer.scores_of([union.keys[place] for place in missing]), missing
    for name, scores in (await ask(connection, questions)).items():
        completed[name][asked[name]] = scores
    return completed


def _told_by_others(answers: Mapping[str, LegAnswer], union: Union, name: str) -> dict[int, Any]:
    """What a leg wanted to know of chunks, by their place, as far as other legs have found them and told."""
    told: dict[int, Any] = {}
    for other, answer in answers.items():
        if other != name and answer.besides is not None:
            told |= zip(union.places[other].tolist(), answer.besides, strict=True)
    return told


async def ask(connection: Connection, questions: dict[str, Question]) -> dict[str, NDArray[np.float64]]:
    """Asks all questions in one go; the scores of each."""
    if not questions:
        return {}
    async with in_one_go(connection):
        sent = {name: [await _execute(connection, one) for one in own.statements] for name, own in questions.items()}
    rows = {name: [await cursor.fetchall() for cursor in cursors] for name, cursors in sent.items()}
    return {name: question.scores(rows[name]) for name, question in questions.items()}


async def without_excluded(connection: Connection, answers: dict[str, LegAnswer]) -> tuple[dict[str, LegAnswer], bool]:
    """The answers without the nearest chunks that the query's own words leave out, and whether there were any."""
    keyword, vector = answers.get("keyword"), answers.get("vector")
    if keyword is None or vector is None or not keyword.filters:
        return answers, False
    union = union_of(answers)
    scores = (await completed_scores(connection, answers, union))["keyword"]
    own = scores[union.places["vector"]]
    kept = np.flatnonzero(~np.isnan(own)).tolist()
    # What the words gave is told with the chunks from here on, so that it is not asked again.
    left = replace(
        vector, keys=[vector.keys[place] for place in kept], scores=vector.scores[kept], besides=own[kept].tolist()
    )
    return answers | {"vector": left, "keyword": replace(keyword, score=as_told)}, len(kept) < len(vector.keys)


def as_told(scores: list[float | None]) -> NDArray[np.float64]:
    """The scores of a leg that wanted to know just these: float64, shape (n,), NaN for None."""
    return np.array(scores, dtype=np.float64)


def ranked(rows: Sequence[Sequence[Any]], *, with_besides: bool = False, **of_answer: Any) -> LegAnswer:
    """The answer of rows that begin with document_id, chunk_id, score.

    Args:
        rows: Best first.
        with_besides: Whether the next column is what another leg wanted to know.
        **of_answer: Other attributes of the answer.
    """
    scores = np.array([row[2] for row in rows], dtype=np.float64)
    besides = [row[3] for row in rows] if with_besides else None
    return LegAnswer([(row[0], row[1]) for row in rows], scores, besides=besides, **of_answer)


async def run_legs(
    connection: Connection, legs: list[Leg], meanwhile: Callable[[], object] = lambda: None
) -> dict[str, LegAnswer]:
    """Sends all legs at once and reads their answers.

    Args:
        connection: In a transaction; broken afterwards if a leg failed.
        legs: In the order of the answers.
        meanwhile: Something to compute while the server works.

    Returns:
        The answers so far. After the first failure the server ignores the rest of the pipeline: legs behind it are
        missing from the result.
    """
    started = time.perf_counter()
    cursors, failure = await _send(connection, legs, meanwhile)
    answers: dict[str, LegAnswer] = {}
    for leg in legs:
        sent = cursors.get(leg.name)
        if sent is None or not all(map(_answered, sent)):
            if failure is not None:
                answers[leg.name] = failed(translate(failure, f"{leg.name} leg"), _milliseconds(started))
            break
        try:
            answer = await leg.finish(connection, [await cursor.fetchall() for cursor in sent])
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
    connection: Connection, legs: list[Leg], meanwhile: Callable[[], object]
) -> tuple[dict[str, list[psycopg.AsyncCursor[Any]]], psycopg.Error | None]:
    """Sends the statements of all legs in one go; returns the cursors of each leg, and the first failure."""
    cursors: dict[str, list[psycopg.AsyncCursor[Any]]] = {}
    try:
        async with in_one_go(connection):
            for leg in legs:
                if leg.settings:
                    await set_local(connection, **leg.settings)
                beside = next((other.beside for other in legs if other is not leg), None)
                cursors[leg.name] = [await _execute(connection, statement) for statement in leg.statements(beside)]
            meanwhile()
    except psycopg.Error as error:
        if is_retryable(error):
            raise  # the whole transaction is run again
        return cursors, error
    return cursors, None


async def fetch(connection: Connection, statement: Statement) -> list[Any]:
    """The rows of a statement. When it fails, the connection can be used again as far as its transaction allows."""
    async with in_one_go(connection):
        cursor = await _execute(connection, statement)
    return await cursor.fetchall()


async def _execute(connection: Connection, statement: Statement) -> psycopg.AsyncCursor[Any]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement.text, statement.parameters)
    return cursor


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
    remaining: Callable[[], float | None] = lambda: None,
) -> None:
    """Runs the legs that a failure of another cut off, each in a transaction of its own (and so its own snapshot).

    Args:
        database: An open database.
        legs: All legs.
        answers: Those that are there; completed here.
        prepare: Called at the beginning of each transaction.
        remaining: Seconds until a server that does not answer is given up, or None.

    Raises:
        SearchTimeoutError: It was given up.
    """
    for leg in legs:
        if leg.name in answers:
            continue

        async def work(connection: Connection, leg: Leg = leg) -> dict[str, LegAnswer]:
            await prepare(connection)
            return await run_legs(connection, [leg])

        answers |= await database.read(f"{leg.name} leg", work, deadline=remaining())
