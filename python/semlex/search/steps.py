"""Steps between finding hits and returning them: merge, drop near duplicates, diversify. Each gets hits, best first.

A step can also be any function of the user that takes and returns a list of hits, synchronous or asynchronous.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import isawaitable
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.options.search import RRF_K
from semlex.search.passages import document_of
from semlex.types.display import DECIDING
from semlex.types.queries import MIN_SHARE
from semlex.types.results import KnowledgeHit, Merge, SearchResult
from semlex.validation import check_parameters, check_range, kind_errors, number_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray


def chosen_merge(confidences: Iterable[float | None]) -> Merge:
    """Return how to merge hits of several collections: by confidence if every hit has one, else by rank."""
    found = list(confidences)
    return "calibrated" if found and None not in found else "ranks"


def merged(answers: Mapping[str, Sequence[SearchResult]]) -> tuple[list[KnowledgeHit], Merge]:
    """Return the hits of all collections in one order, and the method that ordered them."""
    # "calibrated" orders by confidence. "ranks" orders by 1 / (60 + place), reciprocal rank fusion (Cormack, Clarke and
    # Buettcher, SIGIR 2009). Collections share no chunks, so no two places are added: all the first hits come first,
    # then all the second ones. Ties are broken by collection name, then by id.
    merge = chosen_merge(hit.confidence for hits in answers.values() for hit in hits)
    hits = []
    for name, answer in answers.items():
        for place, hit in enumerate(answer, 1):
            by_place = hit.confidence is None or merge == "ranks"
            score = 1 / (RRF_K + place) if by_place else hit.confidence
            hits.append(_of_collection(hit, name, place, score or 0.0))
    hits.sort(key=lambda hit: (-hit.merge_score, hit.collection, hit.id))
    return renumbered(hits), merge


def _of_collection(hit: SearchResult, name: str, place: int, score: float) -> KnowledgeHit:
    # Not copied: metadata may be large.
    values = {one.name: getattr(hit, one.name) for one in fields(hit)}
    return KnowledgeHit(**values, collection=name, collection_rank=place, merge_score=score)


def renumbered(hits: Iterable[KnowledgeHit]) -> list[KnowledgeHit]:
    """Set the rank of each hit to its place, from 1, and return the hits."""
    numbered = list(hits)
    for place, hit in enumerate(numbered, 1):
        hit.rank = place
    return numbered


def without_near_duplicates(
    hits: Sequence[SearchResult], share: float
) -> list[tuple[SearchResult, list[SearchResult]]]:
    """Return the hits that are not near duplicates of a better hit, each with the hits left out as its duplicates."""
    # A hit is left out if at least `share` of its runs of five words occur in one better hit; it is listed with the one
    # with which it shares most. The share is of its own runs, not Jaccard's of both: a longer hit that contains a
    # better one and says more is kept. Overlapping chunks of one document are never compared, because joining them
    # removes the shared text.
    shares = _core.shared_shingles([hit.content for hit in hits])
    kept: dict[int, list[SearchResult]] = {}
    for number, hit in enumerate(hits):
        like = [other for other in kept if shares[number, other] >= share and not _overlap(hit, hits[other])]
        if like:
            kept[max(like, key=lambda other: (shares[number, other], -other))].append(hit)
        else:
            kept[number] = []
    return [(hits[number], same) for number, same in kept.items()]


def _overlap(one: SearchResult, other: SearchResult) -> bool:
    """Return whether both hits are parts of one document's text that share characters."""
    if one.char_start is None or one.char_end is None or other.char_start is None or other.char_end is None:
        return False
    shares = max(one.char_start, other.char_start) < min(one.char_end, other.char_end)
    return shares and document_of(one) == document_of(other)


def at_most_per_document(hits: Sequence[SearchResult], count: int) -> list[SearchResult]:
    """Return up to `count` hits of each document, in the order of `hits`."""
    return _at_most(hits, count, document_of)


def _at_most(hits: Sequence[SearchResult], count: int, group_of: Callable[[SearchResult], str]) -> list[SearchResult]:
    """Return up to `count` hits of each group, in the order of `hits`."""
    taken: Counter[str] = Counter()
    chosen = []
    for hit in hits:
        group = group_of(hit)
        taken[group] += 1
        if taken[group] <= count:
            chosen.append(hit)
    return chosen


def relevances(hits: Sequence[SearchResult]) -> NDArray[np.float64]:
    """Return the relevance of each hit: the scores that ordered the hits, scaled to 1 (best) to 0 (last)."""
    ranks = -np.arange(len(hits), dtype=np.float64)
    for name in DECIDING:
        given = [getattr(hit, name) for hit in hits]
        if None not in given:
            scores = np.array(given, dtype=np.float64)
            return _scaled(scores if (np.diff(scores) <= 0).all() else ranks)
    # No score orders all hits.
    return _scaled(ranks)


def _scaled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = np.ptp(scores) if scores.size else 0.0
    return (scores - scores.min()) / spread if spread > 0 else np.ones_like(scores)


def diversified(
    hits: Sequence[SearchResult], vectors: Mapping[str, NDArray[np.float32]], diversity: float
) -> list[SearchResult]:
    """Return the hits in the order of maximal marginal relevance; a hit without a vector keeps its place."""
    # The first is the best hit. Next is always the hit with the greatest (1 - diversity) x relevance - diversity x
    # greatest cosine with a chosen hit; of equals the better one.
    places = [place for place, hit in enumerate(hits) if hit.id in vectors]
    if not places:
        return list(hits)
    rows = np.stack([vectors[hits[place].id] for place in places]).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1.0)
    gains = (1 - diversity) * relevances(hits)[places]
    nearest = np.zeros(len(places))
    is_left = np.ones(len(places), dtype=bool)
    ordered = list(hits)
    for turn, place in enumerate(places):
        # argmax takes the first of equals.
        chosen = int(np.argmax(np.where(is_left, gains - diversity * nearest, -np.inf))) if turn else 0
        ordered[place] = hits[places[chosen]]
        is_left[chosen] = False
        cosines = rows @ rows[chosen]
        nearest = np.maximum(nearest, cosines) if turn else cosines
    return ordered


# A step takes and returns hits of a knowledge base.
HitStep: TypeAlias = Callable[[list[KnowledgeHit]], "Sequence[SearchResult] | Awaitable[Sequence[SearchResult]]"]


def no_near_duplicates(share: float = 0.9) -> HitStep:
    """Return a step that drops a hit if one better hit contains at least this share of its five-word runs.

    Args:
        share: 0.01 to 1.

    Raises:
        ConfigurationError: `share` is not such a number.
    """
    check_parameters(number_errors("share", share, MIN_SHARE, 1))
    return lambda hits: [hit for hit, _ in without_near_duplicates(hits, share)]


def per_document(count: int) -> HitStep:
    """Return a step that keeps the best hits of each document.

    Args:
        count: Maximum number of hits of a document, from 1.

    Raises:
        ConfigurationError: `count` is not such a number.
    """
    check_range("count", count, 1)
    return lambda hits: at_most_per_document(hits, count)


def per_collection(count: int) -> HitStep:
    """Return a step that keeps the best hits of each collection of a knowledge base.

    Args:
        count: Maximum number of hits of a collection, from 1.

    Raises:
        ConfigurationError: `count` is not such a number.
    """
    check_range("count", count, 1)
    return lambda hits: _at_most(hits, count, attrgetter("collection"))


def check_steps(steps: object) -> None:
    """Raise `ConfigurationError` if `steps` is not a list, or contains something that cannot be called."""
    check_parameters(kind_errors("steps", steps, list, tuple))
    for number, step in enumerate(steps if isinstance(steps, (list, tuple)) else (), 1):
        if not callable(step):
            raise ConfigurationError(f"step {number} must be a function of hits; got {type(step).__name__}")


async def taken(hits: list[KnowledgeHit], steps: Sequence[HitStep]) -> list[KnowledgeHit]:
    """Run all steps on the hits; return the hits that the last step returned, ranked from 1."""
    for number, step in enumerate(steps, 1):
        given = await asyncio.to_thread(step, list(hits))
        found = await given if isawaitable(given) else given
        hits = _checked(found, f"step {number} ({getattr(step, '__name__', type(step).__name__)})")
    return renumbered(hits)


def _checked(found: object, step: str) -> list[KnowledgeHit]:
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise ConfigurationError(f"{step} must return a list of hits; got {type(found).__name__}")
    hits = [hit for hit in found if isinstance(hit, KnowledgeHit)]
    if len(hits) < len(found):
        raise ConfigurationError(f"{step} must return only hits that it was given; its list has others")
    if len({id(hit) for hit in hits}) < len(hits):
        raise ConfigurationError(f"{step} returned the same hit twice")
    return hits
