"""The union of the legs' results, and each leg's exact score of every chunk in it.

A leg scores what it found. For what only the other leg found, it adds a side column to that leg's SELECT; where the
column does not suffice, the missing scores are read afterwards, those of both legs in one round trip.
"""

from __future__ import annotations

import asyncio
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

# Leg name -> its score of every chunk of the union, float64, shape (n,); NaN for none.
Scores = dict[str, "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class Union:
    """Every chunk that a leg found.

    Attributes:
        keys: Of n chunks, by (document_id, chunk_id).
        indices: Leg name -> indices into `keys` of the chunks that the leg found, int64, best first.
    """

    keys: list[Key]
    indices: dict[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the legs found, without the chunks that the query's own words leave out.

    Attributes:
        results: By the leg's name.
        union: Of the results.
        scores: Of the union; None where they were not completed yet.
        has_exclusions: Whether chunks were left out.
    """

    results: dict[str, LegResult]
    union: Union
    scores: Scores | None = None
    has_exclusions: bool = False


def union_of(results: Mapping[str, LegResult]) -> Union:
    """The union of results, by the leg's name."""
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
    """The union, without those of the nearest chunks that the query's own words leave out.

    The keyword leg knows which these are. If it has not answered, what the query excludes is looked for in the texts.
    """
    union, scores = union_of(results), None
    if "vector" not in results:
        return Candidates(results, union)
    if "keyword" not in results:
        if exclusions is None:
            return Candidates(results, union)
        excluded = (await hold_excluded(snapshot, names, union.keys, exclusions))[union.indices["vector"]]
    elif not results["keyword"].has_exclusions:
        return Candidates(results, union)
    else:
        scores = await completed_scores(snapshot, results, union)
        excluded = np.isnan(scores["keyword"][union.indices["vector"]])
    if not excluded.any():
        return Candidates(results, union, scores)
    vector, kept = results["vector"], np.flatnonzero(~excluded).tolist()
    nearest = replace(vector, keys=[vector.keys[number] for number in kept], scores=vector.scores[kept])
    stays = np.full(len(union.keys), fill_value=True)
    stays[union.indices["vector"][excluded]] = False
    left = results | {"vector": replace(nearest, side_values=None)}
    scores = None if scores is None else {name: own[stays] for name, own in scores.items()}
    return Candidates(left, union_of(left), scores, has_exclusions=True)


async def hold_excluded(snapshot: Snapshot, names: Names, keys: list[Key], exclusions: Exclusions) -> NDArray[np.bool_]:
    """Whether the text of each of n chunks holds something that is excluded: bool, shape (n,)."""
    rows = await fetch(snapshot, texts_of(names, keys))
    return await asyncio.to_thread(exclusions.held, rows)


async def completed_scores(snapshot: Snapshot, results: Mapping[str, LegResult], union: Union) -> Scores:
    """Each leg's scores of all chunks: of those it found as found, of the others as its scorer says, else NaN."""
    completed: Scores = {}
    queries: dict[str, ScoreQuery] = {}
    missing: dict[str, NDArray[np.int64]] = {}
    for name, other in permutations(results, 2):
        scorer, found_by_other = results[name].scorer, results[other]
        scores, is_own = np.full(len(union.keys), np.nan), np.full(len(union.keys), fill_value=False)
        scores[union.indices[name]], is_own[union.indices[name]] = results[name].scores, True
        completed[name] = scores
        # Best first, because a leg may have to stop before the last.
        rows = np.flatnonzero(~is_own[union.indices[other]]).tolist()
        missing[name] = union.indices[other][rows]
        if scorer is None or not rows:
            continue
        values, known = found_by_other.side_values, None
        if values is not None:
            known = scorer.scores_from_column([values[row] for row in rows])
        if known is not None:
            scores[missing[name]] = known
        else:
            queries[name] = scorer.missing_scores([found_by_other.keys[row] for row in rows])
    for name, scores in (await ask(snapshot, queries)).items():
        completed[name][missing[name]] = scores
    return completed
