"""Answers of several collections at once. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semlex.types.display.hits import hit_lines, hit_table
from semlex.types.documents import json_value
from semlex.types.results import SearchResult

if TYPE_CHECKING:
    from semlex.types.results import SearchResults

Merge = Literal["calibrated", "ranks"]


@dataclass(slots=True, kw_only=True, repr=False)
class KnowledgeHit(SearchResult):
    """A hit of one of several collections. Its `rank` is its place among all of them.

    Attributes:
        collection: The collection's name in the knowledge base.
        collection_rank: Place in the answer of its collection, from 1.
        merge_score: What it was placed by: its confidence, or 1 / (60 + `collection_rank`).
    """

    collection: str
    collection_rank: int
    merge_score: float


class KnowledgeResults(list[KnowledgeHit]):
    """The hits of several collections, best first, and how they were found.

    Attributes:
        merge: ``calibrated``: by confidence, which every hit has; ``ranks``: by the place in the own collection's
            answer.
        uncalibrated: The collections that have hits without a confidence, by name.
        searched: Name of a collection -> its own answer, with its legs, times and warnings.
        skipped: Name of a collection that did not answer -> why; empty unless ``on_error="skip"``.
        warnings: What did not go as asked, each with the name of its collection; what was skipped comes first.
    """

    def __init__(
        self,
        hits: list[KnowledgeHit] | None = None,
        *,
        merge: Merge = "ranks",
        uncalibrated: list[str] | None = None,
        searched: dict[str, SearchResults] | None = None,
        skipped: dict[str, str] | None = None,
    ) -> None:
        super().__init__(hits or [])
        self.merge: Merge = merge
        self.uncalibrated = uncalibrated or []
        self.searched = searched or {}
        self.skipped = skipped or {}
        self.warnings = [f"collection {name!r} was skipped: {why}" for name, why in self.skipped.items()]
        self.warnings += [f"{name}: {one}" for name, found in self.searched.items() for one in found.warnings]

    def _repr_html_(self) -> str:
        """The hits as a table, which notebooks show."""
        return hit_table(self, self.warnings, collections=[hit.collection for hit in self])

    def __repr__(self) -> str:
        """How the answers were merged, and the first hits, a line each."""
        return hit_lines(f"KnowledgeResults of {len(self.searched)} collections, merged by {self.merge}", self)

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``hits``, every hit's `KnowledgeHit.to_dict`: of JSON's types only."""
        attributes: dict[str, Any] = json_value(vars(self))
        attributes["searched"] = {name: found.to_dict() for name, found in self.searched.items()}
        return attributes | {"hits": [hit.to_dict() for hit in self]}
