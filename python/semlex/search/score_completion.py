"""Unite the results of both searches, and compute the scores of chunks that only the other search found."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from semlex.store.keyword.base import texts_of
from semlex.store.query.run import ask, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from semlex.store.keyword.base import Exclusions
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegResult, ScoreQuery
    from semlex.store.schema.names import Names

# Leg name -> the other leg's score of each chunk that the leg found, float64, shape (n,); NaN for none.
OtherScores = dict[str, "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class Union:
    """Every chunk that vector or keyword search found."""

    keys: list[Key]  # of n chunks, in the order of (document_id, chunk_id)
    # Name of a search -> indices into `keys` of the chunks that it found, best first.
    indices: dict[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks that were found, without those that the query excludes."""

    results: dict[str, LegResult]  # by the name of the search
    others: OtherScores | None = None  # scores of chunks that only the other search found; None if not known yet
    has_exclusions: bool = False  # whether chunks were left out

    @property
    def union(self) -> Union:
        """The union of the results."""
        return union_of(self.results)


def union_of(results: Mapping[str, LegResult]) -> Union:
    """Return the union of results, by the leg's name."""
    # By the number of the UUID, which is hashed and compared much faster.
    found = {(document.int, chunk): (document, chunk) for result in results.values() for document, chunk in result.keys}
    numbers = {one: number for number, one in enumerate(sorted(found))}
    indices = {
        name: np.array([numbers[document.int, chunk] for document, chunk in result.keys], dtype=np.int64)
        for name, result in results.items()
    }
    return Union([found[one] for one in numbers], indices)


async def without_excluded(
    snapshot: Snapshot, results: dict[str, LegResult], names: Names, exclusions: Exclusions | None
) -> Candidates:
    """Return the candidates without the nearest chunks that the query excludes."""
    # Keyword search knows which these are. If it has not answered, excluded words are searched in the texts.
    if "vector" not in results:
        return Candidates(results)
    vector, others = results["vector"], None
    if "keyword" not in results:
        if exclusions is None:
            return Candidates(results)
        excluded = await hold_excluded(snapshot, names, vector.keys, exclusions)
    elif not results["keyword"].has_exclusions:
        return Candidates(results)
    else:
        others = await other_scores(snapshot, results)
        excluded = np.isnan(others["vector"])
    if not excluded.any():
        return Candidates(results, others)
    kept = np.flatnonzero(~excluded).tolist()
    nearest = replace(vector, keys=[vector.keys[row] for row in kept], scores=vector.scores[kept], side_values=None)
    others = None if others is None else others | {"vector": others["vector"][kept]}
    return Candidates(results | {"vector": nearest}, others, has_exclusions=True)


async def hold_excluded(snapshot: Snapshot, names: Names, keys: list[Key], exclusions: Exclusions) -> NDArray[np.bool_]:
    """Return whether the text of each of n chunks contains an excluded word: bool, shape (n,)."""
    rows = await fetch(snapshot, texts_of(names, keys))
    return await asyncio.to_thread(exclusions.held, rows)


# Each search adds a side column to the other one's SELECT for this. If the column does not suffice, the missing scores
# of both are read afterwards in one round trip.
async def other_scores(snapshot: Snapshot, results: Mapping[str, LegResult]) -> OtherScores:
    """Return each leg's scores of the chunks that only the other leg found; NaN without a scorer."""
    found: OtherScores = {}
    queries: dict[str, ScoreQuery] = {}
    missing: dict[str, tuple[str, list[int]]] = {}
    for name, scoring in permutations(results, 2):
        result, scorer = results[name], results[scoring].scorer
        known = None
        if scorer is not None and result.side_values is not None:
            known = scorer.scores_from_column(result.side_values)
        if known is None:
            own = dict(zip(results[scoring].keys, results[scoring].scores.tolist(), strict=True))
            known = np.array([own.get(key, math.nan) for key in result.keys], dtype=np.float64)
            # Best first, because a leg may have to stop before the last.
            rows = [row for row, key in enumerate(result.keys) if key not in own]
            if scorer is not None and rows:
                missing[scoring] = name, rows
                queries[scoring] = scorer.missing_scores([result.keys[row] for row in rows])
        found[name] = known
    for scoring, scores in (await ask(snapshot, queries)).items():
        name, rows = missing[scoring]
        found[name][rows] = scores
    return found
