"""The union of the legs' results, and each leg's exact score of every chunk in it.

A leg scores what it found. For what only the other leg found, it adds a side column to that leg's SELECT; where the
column does not suffice, the missing scores are read afterwards, those of both legs in one round trip.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.store.keyword.base import texts_of
from semlex.store.query.leg import in_key_order
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
    keys = in_key_order({key for result in results.values() for key in result.keys})
    numbers = {key: number for number, key in enumerate(keys)}
    indices = {
        name: np.array([numbers[key] for key in result.keys], dtype=np.int64) for name, result in results.items()
    }
    return Union(keys, indices)


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
    missing: dict[str, list[int]] = {}
    for name, result in results.items():
        scores, own = np.full(len(union.keys), np.nan), set(union.indices[name].tolist())
        scores[union.indices[name]] = result.scores
        completed[name] = scores
        # Best first, because a leg may have to stop before the last.
        others = dict.fromkeys(index for other in results if other != name for index in union.indices[other].tolist())
        missing[name] = [index for index in others if index not in own]
        if result.scorer is None or not missing[name]:
            continue
        values = _side_values(results, union, name)
        found = None
        if all(index in values for index in missing[name]):
            found = result.scorer.scores_from_column([values[index] for index in missing[name]])
        if found is not None:
            scores[missing[name]] = found
        else:
            queries[name] = result.scorer.missing_scores([union.keys[index] for index in missing[name]])
    for name, scores in (await ask(snapshot, queries)).items():
        completed[name][missing[name]] = scores
    return completed


def _side_values(results: Mapping[str, LegResult], union: Union, name: str) -> dict[int, Any]:
    """Values of the side column of leg `name`, by index into the union."""
    values: dict[int, Any] = {}
    for other, result in results.items():
        if other != name and result.side_values is not None:
            values |= zip(union.indices[other].tolist(), result.side_values, strict=True)
    return values
