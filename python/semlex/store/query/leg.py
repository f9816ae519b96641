"""A leg (vector or keyword search) in its three states: planned, prepared to be sent, answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self
from uuid import UUID

import numpy as np
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from semlex import _core
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter

Key = tuple[UUID, str]

# The keys that `key_arrays` binds, as a table for FROM; and with their numbers, from 1.
GIVEN_KEYS = sql.SQL("unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id)")
NUMBERED_KEYS = sql.SQL(
    "unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) WITH ORDINALITY AS k(document_id, chunk_id, number)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement with the values that it binds."""

    text: sql.Composed | bytes  # bytes if it was rendered before
    parameters: dict[str, Any]  # bound by name
    # Whether all its names, including operators, have a schema, so that the search path does not matter.
    is_qualified: bool = False
    # Places of columns that are as large as texts and metadata.
    large_columns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SideColumn:
    """An SQL column for one search's scores, which is added to the SELECT of the other search to save a round trip."""

    expression: bytes  # rendered, over the chunk's row (alias ``c``)
    parameters: dict[str, Any] = field(default_factory=dict)  # bound by name in it


@dataclass(frozen=True, slots=True)
class BestRows:
    """Columns of the best chunks that a single search returns with its hits, which saves a second statement."""

    columns: bytes  # rendered, over the chunk's row (alias ``c``), qualified
    large_columns: tuple[int, ...]  # places among them
    count: int  # of how many chunks
    has_places: bool  # whether they include the sources of chunks that were read from files


class LegPlan(Protocol):
    """A planned vector or keyword search."""

    @property
    def name(self) -> str:
        """``vector`` or ``keyword``."""
        ...

    @property
    def settings(self) -> Mapping[str, str | int]:
        """The server settings that the search needs in its transaction."""
        ...

    @property
    def side_column(self) -> SideColumn | None:
        """The column that this search adds to the SELECT of the other search."""
        ...

    @property
    def takes_long(self) -> bool:
        """Whether `prepare` takes more than half a millisecond, so that it must run in a thread."""
        ...

    def prepare(self, side_column: SideColumn | None) -> PreparedLeg:
        """Prepare the search for sending; the server may work on the other search meanwhile."""
        ...


class PreparedLeg(Protocol):
    """A search that is ready to be sent, and makes its result from the rows that come back."""

    @property
    def statements(self) -> Sequence[Statement]:
        """Statements, sent together with those of the other search."""
        ...

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Make the result from the rows of each statement; it may read more in the same snapshot."""
        ...


class PlainKeywordLeg:
    """Base class of keyword searches without side columns: one object is both the `LegPlan` and the `PreparedLeg`."""

    name: ClassVar[str] = "keyword"
    settings: ClassVar[dict[str, str | int]] = {}
    side_column: ClassVar[None] = None
    takes_long: ClassVar[bool] = False

    def prepare(self, side_column: SideColumn | None) -> Self:
        """Return this search itself; it takes no column of the other search."""
        del side_column
        return self


class ScoreQuery(Protocol):
    """Reads one search's exact scores of chunks that the other search found."""

    @property
    def statements(self) -> Sequence[Statement]:
        """Statements, sent together with those of other queries."""
        ...

    def scores(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Return the chunks' scores from the rows of each statement: float64, shape (n,); NaN for no score."""
        ...


class Scorer(Protocol):
    """Computes one search's exact scores of chunks that the other search found."""

    def scores_from_column(self, values: list[Any]) -> NDArray[np.float64] | None:
        """Return the scores of chunks by the values of the side column; None if the values do not suffice."""
        # The scores have the shape (n,); NaN stands for a chunk that has none.
        del values
        return None

    def missing_scores(self, keys: Sequence[Key]) -> ScoreQuery:
        """Return the query for the scores of chunks whose side column is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class LegResult:
    """The result of vector or keyword search, or the error with which it failed."""

    keys: list[Key]  # (document_id, chunk_id), best first
    scores: NDArray[np.float64]  # float64, shape (n,), the leg's own scores
    # From sending to the last row; the legs of one pipeline overlap.
    milliseconds: float = 0.0
    error: BaseException | None = None
    side_values: list[Any] | None = None  # the other leg's side column for each chunk
    rows: dict[Key, Any] | None = None  # `BestRows.columns` of chunks whose rows came along
    # Each chunk's value of the leg's own side column, int64, shape (n,); None if two chunks may have the same.
    numbers: NDArray[np.int64] | None = None
    headings: list[str] | None = None  # the innermost heading above each chunk, or ""; None if it is not known
    scorer: Scorer | None = None  # scores chunks that the other leg found
    # Whether a score of NaN means that the query's own words exclude the chunk.
    has_exclusions: bool = False
    has_phrases: bool = False  # whether chunks without the query's phrases were left out
    # The keyword index as the leg read it; knows which share of the query's weight a chunk has.
    postings: _core.PostingSnapshot | None = None
    terms: int = 0  # how many of the query's terms were searched
    warnings: tuple[str, ...] = ()  # for the user
    plan: str = ""  # how the chunks were found, in words
    work: dict[str, int] | None = None  # what that took; see `LegReport`
    selection: Filter | None = None  # the filter, with its share or ids


@dataclass(frozen=True, slots=True)
class ScoresInOrder:
    """A statement that returns one score for each chunk, in the given order."""

    statements: tuple[Statement]  # one; NULL is NaN

    def scores(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Return the scores."""
        return scores_in_column([row[0] for row in rows[0]])


@dataclass(frozen=True, slots=True)
class KeyedScores:
    """Statements that return rows of document_id, chunk_id, score, in any order; the last row of a chunk counts."""

    statements: tuple[Statement, ...]
    keys: Sequence[Key]  # of the requested chunks

    def scores(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Return the scores; NaN for a chunk without a row."""
        known = {(row[0], row[1]): row[2] for part in rows for row in part}
        return scores_in_column([known.get(key) for key in self.keys])


@dataclass(frozen=True, slots=True)
class KnownScores:
    """Scores that are known without a statement."""

    statements: ClassVar[tuple[()]] = ()
    known: NDArray[np.float64]  # float64, shape (n,)

    def scores(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Return the scores."""
        del rows
        return self.known


def key_arrays(keys: Sequence[Key]) -> dict[str, Any]:
    """Return keys as two arrays, ``document_ids`` and ``chunk_ids``."""
    return {"document_ids": [key[0] for key in keys], "chunk_ids": [key[1] for key in keys]}


def scores_by_key(statement: Statement, keys: Sequence[Key]) -> ScoresInOrder:
    """Return the query for scores by a statement that takes `key_arrays` and returns a score for each key, in order."""
    return ScoresInOrder((Statement(statement.text, {**statement.parameters, **key_arrays(keys)}),))


def key_order(key: Key) -> tuple[int, str]:
    """Return a sort key that orders keys as Postgres does: by document id, then by the code points of the chunk id."""
    return key[0].int, key[1]


def in_key_order(keys: Iterable[Key]) -> list[Key]:
    """Return keys ordered by (document_id, chunk_id)."""
    return sorted(keys, key=key_order)


def scores_in_column(values: list[float | None]) -> NDArray[np.float64]:
    """Return the scores in a column of rows: float64, shape (n,), NaN for NULL."""
    return np.array(values, dtype=np.float64)


def ranked(
    rows: Sequence[Sequence[Any]],
    scorer: Scorer,
    *,
    with_side_values: bool = False,
    warnings: tuple[str, ...] = (),
    plan: str = "",
    selection: Filter | None = None,
) -> LegResult:
    """Make the result of a search from rows that begin with document_id, chunk_id, score."""
    scores = np.array([row[2] for row in rows], dtype=np.float64)
    side_values = [row[3] for row in rows] if with_side_values else None
    keys = [(row[0], row[1]) for row in rows]
    return LegResult(
        keys, scores, side_values=side_values, scorer=scorer, warnings=warnings, plan=plan, selection=selection
    )


def failed_leg(error: BaseException, milliseconds: float = 0.0) -> LegResult:
    """Return the result of a search that could not answer."""
    return LegResult([], np.empty(0, dtype=np.float64), milliseconds, error)
