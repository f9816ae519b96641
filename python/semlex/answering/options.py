"""How a context is made, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.options.answers import DEFAULT_NEAR_DUPLICATES, DEFAULT_NEIGHBOURS, DEFAULT_SECTIONS
from semlex.search.postprocess.surroundings import Around
from semlex.validation import callable_errors, check_parameters

if TYPE_CHECKING:
    from semlex.options.answers import ContextOptions, ContextOrder


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """How a context is made of hits."""

    tokens: int
    around: Around
    per_document: int | None = None
    near_duplicates: float | None = None
    diversity: float | None = None
    order: ContextOrder = "score"

    @classmethod
    def of(cls, tokens: int, options: ContextOptions) -> ContextPlan:
        """Fill in what options, which were checked, leave out."""
        check_parameters(callable_errors("count", options.get("count")))
        around = Around(
            options.get("neighbours", DEFAULT_NEIGHBOURS),
            options.get("sections", DEFAULT_SECTIONS),
            options.get("parents", False),
        )
        return cls(
            tokens,
            around,
            per_document=options.get("per_document"),
            near_duplicates=options.get("near_duplicates", DEFAULT_NEAR_DUPLICATES),
            diversity=options.get("diversity"),
            order=options.get("order", "score"),
        )
