"""Fields: how many chunks have which values of them, and what is known of each. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from semlex.types.display import Html, bold, joined, notes, paragraph, shortened, table, text
from semlex.types.documents import json_value

SHOWN_VALUES, SHOWN_FIELDS = 5, 8


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

    def __repr__(self) -> str:
        """The field with its most frequent values on one line."""
        values = ", ".join(f"{shortened(str(one.value), 24)} ({one.count:,})" for one in self.values[:SHOWN_VALUES])
        left = len(self.values) - SHOWN_VALUES + self.left_out
        more = f", … and {left:,} more" if left > 0 else ""
        return f"Facet {shortened(self.field, 40)}: {values}{more}"

    def _repr_html_(self) -> str:
        """The values as a table, which notebooks show."""
        return _table(self)


def _table(facet: Facet) -> Html:
    rows = [[text(str(one.value)), text(f"{one.count:,}")] for one in facet.values]
    more = [paragraph(text(f"… and {facet.left_out:,} more values"))] if facet.left_out else []
    return joined([table([facet.field, "chunks"], rows), *more])


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

    def __repr__(self) -> str:
        """What was counted, and the first fields, a line each."""
        fields = [f"  {facet!r}" for facet in list(self.values())[:SHOWN_FIELDS]]
        more = [f"  … and {len(self) - SHOWN_FIELDS:,} more fields"] if len(self) > SHOWN_FIELDS else []
        return "\n".join([f"Facets of {'' if self.exact else 'at least '}{self.chunks:,} chunks", *fields, *more])

    def _repr_html_(self) -> str:
        """What was counted, and a table for each field, which notebooks show."""
        counted = bold(f"{'' if self.exact else 'at least '}{self.chunks:,} chunks")
        return joined([paragraph(counted), *map(_table, self.values()), notes(self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``facets``, the fields with their values: of JSON's types only."""
        attributes: dict[str, Any] = json_value(vars(self))
        return attributes | {"facets": json_value(dict(self))}


IndexedType = Literal["number", "text", "instant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSummary:
    """A field of some chunks.

    Attributes:
        name: As filters write it: keys with dots between them, in quotes where a key is no word; with ``@`` one of
            semlex's own.
        types: Type -> how many of the chunks have a value of it: ``number``, ``text``, ``boolean``, ``list``,
            ``object``, ``null``; of semlex's own fields ``text``, ``texts``, ``instant`` or ``key``. The most frequent
            one comes first.
        elements: Type -> how many elements of lists are of it.
        values: The most frequent values (of a list, those of its elements), texts shortened, where they were asked for.
        indexed: Types whose comparisons an index serves.
        unfinished: Types whose index was not built to its end.
    """

    name: str
    types: dict[str, int]
    elements: dict[str, int]
    values: tuple[Any, ...] = ()
    indexed: tuple[IndexedType, ...] = ()
    unfinished: tuple[IndexedType, ...] = ()


class FieldSummaries(list[FieldSummary]):
    """The fields of a collection, by name, semlex's own at the end.

    Attributes:
        chunks: How many chunks were looked at.
        are_all: Whether these are all that there are; else they are those of random pages.
        left_out: How many fields of the metadata are not in the list, because there are too many.
    """

    def __init__(
        self, fields: list[FieldSummary] | tuple[FieldSummary, ...] = (), *, chunks: int, are_all: bool, left_out: int
    ) -> None:
        super().__init__(fields)
        self.chunks = chunks
        self.are_all = are_all
        self.left_out = left_out

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``fields``, the fields: of JSON's types only."""
        return {"fields": json_value(list(self)), **vars(self)}
