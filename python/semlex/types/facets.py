"""Facets: how many chunks have which values of a field. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from semlex.types.documents import json_value


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field.

    Attributes:
        value: Of JSON's types; of a list, each of its values.
        count: How many chunks have it; each counts once, however often it has the value.
    """

    value: Any
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of a field.

    Attributes:
        field: Its name, as it was asked for.
        values: The most frequent first; equally frequent ones in the order of their JSON.
        left_out: How many more values there are.
    """

    field: str
    values: list[FacetValue]
    left_out: int = 0


class Facets(dict[str, Facet]):
    """The values of fields, by the names of the fields.

    Attributes:
        of: What was counted: all chunks that pass the ``filter``, or the ``candidates`` of a query.
        exact: Whether every chunk was counted that passes the filter, or that the query can find; False where the
            query has more candidates than were looked at.
        chunks: How many chunks were counted.
        warnings: What did not go as asked; empty when all went well.
    """

    def __init__(
        self,
        facets: dict[str, Facet] | None = None,
        *,
        of: Literal["filter", "candidates"] = "filter",
        exact: bool = True,
        chunks: int = 0,
        warnings: list[str] | None = None,
    ) -> None:
        super().__init__(facets or {})
        self.of: Literal["filter", "candidates"] = of
        self.exact = exact
        self.chunks = chunks
        self.warnings = warnings or []

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``facets``, the fields with their values: of JSON's types only."""
        attributes: dict[str, Any] = json_value(vars(self))
        return attributes | {"facets": json_value(dict(self))}
