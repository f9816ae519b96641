"""Steps between finding hits and returning them: each takes hits, best first, and returns those that remain.

Any function of the user with this signature is a step as well, also an asynchronous one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias

from semlex.errors import ConfigurationError
from semlex.search.postprocess.merge import renumbered
from semlex.search.postprocess.reduction import at_most_per_document, without_near_duplicates
from semlex.types.queries import MIN_SHARE
from semlex.types.results import KnowledgeHit
from semlex.validation import check_parameters, check_range, kind_errors, number_errors

if TYPE_CHECKING:
    from semlex.types.results import SearchResult

# Given hits of a knowledge base, a step gives hits of a knowledge base.
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

    def keep(hits: list[KnowledgeHit]) -> list[KnowledgeHit]:
        taken: Counter[str] = Counter()
        kept = []
        for hit in hits:
            taken[hit.collection] += 1
            if taken[hit.collection] <= count:
                kept.append(hit)
        return kept

    return keep


def check_steps(steps: object) -> None:
    """Raise `ConfigurationError` if `steps` is not a list, or contains something that cannot be called."""
    check_parameters(kind_errors("steps", steps, list, tuple))
    for number, step in enumerate(steps if isinstance(steps, (list, tuple)) else (), 1):
        if not callable(step):
            raise ConfigurationError(f"step {number} must be a function of hits; got {type(step).__name__}")


async def taken(hits: list[KnowledgeHit], steps: Sequence[HitStep]) -> list[KnowledgeHit]:
    """Run all steps; return the remaining hits in their order, with their places as ranks."""
    for number, step in enumerate(steps, 1):
        given = await asyncio.to_thread(step, list(hits))
        found = await given if isawaitable(given) else given
        hits = _checked(found, f"step {number} ({getattr(step, '__name__', type(step).__name__)})")
    return renumbered(hits)


def _checked(found: object, step: str) -> list[KnowledgeHit]:
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise ConfigurationError(f"{step} must give a list of hits; got {type(found).__name__}")
    hits = [hit for hit in found if isinstance(hit, KnowledgeHit)]
    if len(hits) < len(found):
        raise ConfigurationError(f"{step} must give hits as it gets them; others are in its list")
    if len({id(hit) for hit in hits}) < len(hits):
        raise ConfigurationError(f"{step} gives the same hit twice")
    return hits
