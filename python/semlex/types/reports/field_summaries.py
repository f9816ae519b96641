"""What is known of the fields that chunks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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
