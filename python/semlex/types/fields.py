"""Fields: counts of their values, and summaries of each field. This module does no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from semlex.types.display import Html, bold, joined, notes, paragraph, shortened, table, text
from semlex.types.documents import json_object, json_value

SHOWN_VALUES, SHOWN_FIELDS = 5, 8


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field, as JSON (for a list, each of its elements), and how many chunks have it."""

    value: Any
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of a field, most frequent first (ties by their JSON), and how many values are left out."""

    field: str
    values: list[FacetValue]
    left_out: int = 0

    def __repr__(self) -> str:
        values = ", ".join(f"{shortened(str(one.value), 24)} ({one.count:,})" for one in self.values[:SHOWN_VALUES])
        left = len(self.values) - SHOWN_VALUES + self.left_out
        more = f", … and {left:,} more" if left > 0 else ""
        return f"Facet {shortened(self.field, 40)}: {values}{more}"

    def _repr_html_(self) -> str:
        return _table(self)


def _table(facet: Facet) -> Html:
    rows = [[text(str(one.value)), text(f"{one.count:,}")] for one in facet.values]
    more = [paragraph(text(f"… and {facet.left_out:,} more values"))] if facet.left_out else []
    return joined([table([facet.field, "chunks"], rows), *more])


class Facets(dict[str, Facet]):
    """The values of fields, by the names of the fields.

    Attributes:
        of: Which chunks were counted: all that pass the ``filter``, or the ``candidates`` of a query.
        exact: Whether all chunks that pass the filter, or that the query can find, were counted.
        chunks: How many chunks were counted.
        warnings: What did not go as requested, for example a field that no chunk has.
    """

    of: Literal["filter", "candidates"]
    exact: bool
    chunks: int
    warnings: list[str]

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
        self.of = of
        self.exact = exact
        self.chunks = chunks
        self.warnings = warnings or []

    def __repr__(self) -> str:
        fields = [f"  {facet!r}" for facet in list(self.values())[:SHOWN_FIELDS]]
        more = [f"  … and {len(self) - SHOWN_FIELDS:,} more fields"] if len(self) > SHOWN_FIELDS else []
        return "\n".join([f"Facets of {'' if self.exact else 'at least '}{self.chunks:,} chunks", *fields, *more])

    def _repr_html_(self) -> str:
        counted = bold(f"{'' if self.exact else 'at least '}{self.chunks:,} chunks")
        return joined([paragraph(counted), *map(_table, self.values()), notes(self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and, as ``facets``, the fields with their values, as JSON values."""
        return json_object(vars(self)) | {"facets": json_object(dict(self))}


IndexedType = Literal["number", "text", "instant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSummary:
    """A metadata field, as found in some chunks.

    Attributes:
        name: Name of the field, as filters write it.
        types: Type -> how many of the chunks have a value of this type, the most frequent first: ``number``, ``text``,
            ``boolean``, ``list``, ``object``, ``null``; of semlex's own fields ``text``, ``texts``, ``instant`` or
            ``key``.
        elements: Type -> how many elements of the field's lists have this type.
        values: The most frequent values (or elements), texts shortened, if they were requested.
        indexed, unfinished: Types with an index for comparisons, and those whose index was not completed.
    """

    name: str
    types: dict[str, int]
    elements: dict[str, int]
    values: tuple[Any, ...] = ()
    indexed: tuple[IndexedType, ...] = ()
    unfinished: tuple[IndexedType, ...] = ()


class FieldSummaries(list[FieldSummary]):
    """The metadata fields of a collection, sorted by name, with semlex's own fields at the end.

    Attributes:
        chunks: How many chunks were read.
        are_all: Whether all chunks were read; if not, those of random pages of the table were.
        left_out: How many fields of the metadata are not in the list, because there are too many.
    """

    chunks: int
    are_all: bool
    left_out: int

    def __init__(
        self, fields: list[FieldSummary] | tuple[FieldSummary, ...] = (), *, chunks: int, are_all: bool, left_out: int
    ) -> None:
        super().__init__(fields)
        self.chunks = chunks
        self.are_all = are_all
        self.left_out = left_out

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and, as ``fields``, the fields, as JSON values."""
        return {"fields": json_value(list(self)), **vars(self)}
