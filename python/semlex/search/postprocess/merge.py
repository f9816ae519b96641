"""Merge the results of several collections, whose scores cannot be compared directly."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from semlex.options.search import RRF_K
from semlex.types.results import KnowledgeHit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from semlex.types.results import Merge, SearchResult


def chosen_merge(confidences: Iterable[float | None]) -> Merge:
    """Return the method that merges hits of several collections."""
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
    """Return the hits with their places as ranks."""
    numbered = list(hits)
    for place, hit in enumerate(numbered, 1):
        hit.rank = place
    return numbered
