"""How a context is made, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from semlex.search.postprocess.surroundings import Around
from semlex.types.queries import MIN_SHARE
from semlex.validation import (
    Errors,
    callable_errors,
    check_parameters,
    kind_errors,
    number_errors,
    refuse,
    whole_number_errors,
    wrong_type,
)

ContextOrder = Literal["score", "document"]
"""Whether passages stand in the order of their best hits, or document by document in the order of each."""

Count = Callable[[str], int]
"""Counts the tokens of a text."""

MAX_TOKENS = 10_000_000
MAX_NEIGHBOURS = 100
# Hits of a context; near-duplicates are looked for by comparing each with each.
MAX_HITS = 200
DEFAULT_TOKENS = 4000
DEFAULT_HITS = 20
DEFAULT_NEIGHBOURS = 1
DEFAULT_SECTIONS = 0.5
DEFAULT_NEAR_DUPLICATES = 0.9


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """The options of a context; the fields are arguments of `Collection.context`."""

    tokens: int
    around: Around
    per_document: int | None = None
    near_duplicates: float | None = None
    diversity: float | None = None
    order: ContextOrder = "score"

    @classmethod
    def checked(
        cls,
        *,
        tokens: int,
        top_k: int,
        neighbours: int,
        sections: float | None,
        parents: bool,
        per_document: int | None,
        near_duplicates: float | None,
        diversity: float | None,
        order: ContextOrder,
        count: Count | None,
    ) -> ContextOptions:
        """Checks them."""
        check_parameters(
            whole_number_errors("tokens", tokens, 1, MAX_TOKENS),
            whole_number_errors("top_k", top_k, 1, MAX_HITS),
            whole_number_errors("neighbours", neighbours, 0, MAX_NEIGHBOURS),
            _share_errors("sections", sections, MIN_SHARE),
            kind_errors("parents", parents, bool),
            [] if per_document is None else whole_number_errors("per_document", per_document, 1, MAX_HITS),
            _share_errors("near_duplicates", near_duplicates, MIN_SHARE),
            _share_errors("diversity", diversity, 0),
            _order_errors(order),
            callable_errors("count", count),
        )
        around = Around(neighbours, sections, parents)
        return cls(tokens, around, per_document, near_duplicates, diversity, order)


def _share_errors(name: str, value: object, least: float) -> Errors:
    return [] if value is None else number_errors(name, value, least, 1)


def _order_errors(order: object) -> Errors:
    if not isinstance(order, str):
        return wrong_type("order", "'score' or 'document'", order)
    return [] if order in get_args(ContextOrder) else refuse("order", "unknown_type", "'score' and 'document'")
