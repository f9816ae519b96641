"""Fuse the results of vector and keyword search into one ranking, by scores or by ranks."""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.options.search import RRF_K, FusionMethod
from semlex.store.keyword.base import Exclusions, texts_of
from semlex.store.query.run import ask, fetch
from semlex.validation import number_errors, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegResult, ScoreQuery
    from semlex.store.query.score_calibration import Spread
    from semlex.store.schema.names import Names

LEGS = ("vector", "keyword")
# Weight of vector search in score fusion if the embedder declares none: with it a model that does not fit the texts
# costs least (at most 0.02 of nDCG@10 against keyword search alone, measured on nine collections).
DEFAULT_VECTOR_WEIGHT = 0.5


@dataclass(slots=True)
class Candidate:
    """A chunk that vector or keyword search found; a rank counts from 1, and is None if its search did not find it."""

    # Score fusion adds the scores of the search that did not find it, and what each search contributed to the fused
    # score.

    key: Key
    vector_rank: int | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    fused_score: float | None = None
    vector_contribution: float | None = None
    keyword_contribution: float | None = None
    boost: float | None = None
    heading_factor: float | None = None
    number: int | None = None  # the chunk's id in the keyword index, if it is known

    @property
    def order_score(self) -> float:
        """The score that orders the candidate: the fused one, or that of the search that answered alone."""
        if self.fused_score is not None:
            return self.fused_score
        return (self.keyword_score if self.vector_score is None else self.vector_score) or 0.0


def check_weights(method: FusionMethod, weights: Mapping[str, float] | None) -> None:
    """Refuse weights that the fusion cannot use, before anything is searched."""
    if not isinstance(weights, (Mapping, NoneType)):
        raise ConfigurationError(
            f"weights must be a mapping of searches to numbers, such as {{'vector': 0.7}}; got {shown(weights)}"
        )
    unknown = set(weights or {}) - set(LEGS)
    if unknown:
        raise ConfigurationError(
            f"weights must be for 'vector' and 'keyword' only; got {', '.join(sorted(map(shown, unknown)))}"
        )
    for name, value in (weights or {}).items():
        if number_errors(name, value, 0):
            raise ConfigurationError(
                f"the weight of {name} search must be a finite number, at least 0; got {shown(value)}"
            )
    if method == "score":
        vector_weight(weights, DEFAULT_VECTOR_WEIGHT)


def vector_weight(weights: Mapping[str, float] | None, declared: float) -> float:
    """Return the weight of vector search in score fusion, 0 to 1; keyword search has the rest."""
    given = {name: float(weight) for name, weight in (weights or {}).items()}
    if not given:
        if not 0 <= declared <= 1:
            raise ConfigurationError(f"an embedder's fusion_weight must be between 0 and 1; got {declared!r}")
        return declared
    greatest = max(given.values())
    if len(given) == len(LEGS):
        if greatest == 0:
            raise ConfigurationError("score fusion needs a weight above 0 for at least one search; both are 0")
        shares = {name: weight / greatest for name, weight in given.items()}  # their sum may be beyond float64
        return shares["vector"] / (shares["vector"] + shares["keyword"])
    if greatest > 1:
        raise ConfigurationError(
            f"in score fusion a weight given for one search only must be between 0 and 1; got {greatest!r}"
        )
    return given["vector"] if "vector" in given else 1 - given["keyword"]


def ranked_alone(name: str, result: LegResult) -> Iterator[Candidate]:
    """Yield the chunks of the only search that answered, in its order."""
    for rank, (key, score) in enumerate(zip(result.keys, result.scores.tolist(), strict=True), start=1):
        if name == "vector":
            yield Candidate(key, rank, score)
        else:
            yield Candidate(key, keyword_rank=rank, keyword_score=score)


def fuse(
    results: Mapping[str, LegResult],
    *,
    method: Literal["rrf", "linear"],
    weights: Mapping[str, float] | None = None,
    rrf_k: float = RRF_K,
) -> Iterator[Candidate]:
    """Yield the candidates of both searches, fused by ranks or scores, best first; ties by (document_id, chunk_id)."""
    union = union_of(results)
    rankings = [union.indices[name] for name in results]
    chosen = [float((weights or {}).get(name, 1.0)) for name in results]
    try:
        if method == "rrf":
            indices, scores = _core.reciprocal_rank_fusion(rankings, weights=chosen, k=rrf_k)
        else:
            leg_scores = [result.scores for result in results.values()]
            indices, scores = _core.linear_fusion(rankings, leg_scores, weights=chosen)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    found = {
        name: dict(zip(own.tolist(), enumerate(results[name].scores.tolist(), start=1), strict=True))
        for name, own in union.indices.items()
    }

    def candidates() -> Iterator[Candidate]:
        for index, score in zip(indices.tolist(), scores.tolist(), strict=True):
            near, worded = (found[name].get(index, (None, None)) for name in LEGS)
            yield Candidate(union.keys[index], near[0], near[1], worded[0], worded[1], score)

    return candidates()


def multiplied(
    candidates: Iterable[Candidate], name: Literal["boost", "heading_factor"], factors: Mapping[Key, float]
) -> Iterator[Candidate]:
    """Multiply scores by factors, and store each factor as attribute `name`; yield best first, ties in given order."""
    ordered = list(candidates)
    for candidate in ordered:
        factor = factors.get(candidate.key)
        setattr(candidate, name, factor)
        # A score below 0 is divided by its factor, so that a factor below 1 always moves down. If one search answered
        # alone, its score is multiplied.
        score, times = candidate.order_score, 1.0 if factor is None else factor
        candidate.fused_score = score * times if score >= 0 else score / times
    return iter(sorted(ordered, key=lambda candidate: -candidate.order_score))


# Factor on the score of a chunk whose heading is the query. Its stop words count, which keyword search leaves out.
HEADING_FACTOR = 2.0
_WORD = re.compile(r"\w+")


def heading_factors(text: str | None, results: Mapping[str, LegResult]) -> dict[Key, float]:
    """Return the factor of each chunk whose innermost heading equals `text`, ignoring case and punctuation."""
    keyword = results.get("keyword")
    if text is None or keyword is None or keyword.headings is None or not (words := _heading_words(text)):
        return {}
    headings = zip(keyword.keys, keyword.headings, strict=True)
    return {key: HEADING_FACTOR for key, heading in headings if heading and _heading_words(heading) == words}


@lru_cache(maxsize=4096)  # a collection's headings come again with every search
def _heading_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def fuse_completed(
    results: Mapping[str, LegResult], others: OtherScores, *, spread: Spread, weight: float
) -> Iterator[Candidate]:
    """Yield candidates fused by the exact scores of both searches, best first; ties by (document_id, chunk_id)."""
    # The score is (1 - weight) * keyword score / greatest keyword score + weight * z / 6, with z = (vector score -
    # mean) / deviation over a sample of the stored vectors.
    numbers = _numbers(results)
    fused = None if numbers is None else _fused(results, others, numbers, spread, weight)
    if fused is None or (fused[0][1:] == fused[0][:-1]).any():  # the order of the keys decides
        fused = _fused(results, others, union_of(results).indices, spread, weight)
    return _candidates(results, fused, numbers)


def _numbers(results: Mapping[str, LegResult]) -> dict[str, NDArray[np.int64]] | None:
    """Return, for each search, the keyword-index ids of the chunks that it found; None if ids were not read."""
    values, numbers = results["vector"].side_values, results["keyword"].numbers
    if values is None or numbers is None:
        return None
    # The row of a vector may be gone.
    near = [-row if value is None else value for row, value in enumerate(values, start=1)]
    return {"vector": np.array(near, dtype=np.int64), "keyword": numbers}


def _fused(
    results: Mapping[str, LegResult],
    others: OtherScores,
    numbers: Mapping[str, NDArray[np.int64]],
    spread: Spread,
    weight: float,
) -> tuple[NDArray[Any], ...]:
    vector, keyword = ((numbers[name], results[name].scores, others[name]) for name in LEGS)
    try:
        return _core.fuse_legs(vector, keyword, mean=spread.mean, deviation=spread.deviation, vector_weight=weight)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _candidates(
    results: Mapping[str, LegResult], fused: tuple[NDArray[Any], ...], numbers: Mapping[str, NDArray[np.int64]] | None
) -> Iterator[Candidate]:
    vector_keys, keyword_keys = (results[name].keys for name in LEGS)
    columns = [column.tolist() for column in fused]
    for score, near, worded, vector_rank, vector, keyword_rank, keyword in zip(*columns, strict=True):
        yield Candidate(
            vector_keys[vector_rank - 1] if vector_rank else keyword_keys[keyword_rank - 1],
            vector_rank or None,
            None if math.isnan(vector) else vector,
            keyword_rank or None,
            None if math.isnan(keyword) else keyword,
            score,
            near,
            worded,
            number=None if numbers is None else _number(numbers, vector_rank, keyword_rank),
        )


def _number(numbers: Mapping[str, NDArray[np.int64]], vector_rank: int, keyword_rank: int) -> int | None:
    """Return the id of a candidate in the keyword index; None if its row is gone."""
    number = numbers["vector"][vector_rank - 1] if vector_rank else numbers["keyword"][keyword_rank - 1]
    return int(number) if number >= 0 else None


# Name of a search -> the other one's score of each chunk that it found, float64, shape (n,); NaN for none.
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
    """Return the union of the results of searches, which are given by name."""
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
    """Return the candidates, without chunks found by vector search that contain excluded words or phrases."""
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
    """Return each search's scores of the chunks that the other search found; NaN for a search without a scorer."""
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
