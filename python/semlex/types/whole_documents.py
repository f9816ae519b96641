"""A document as a whole: its text, and its headings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.types.documents import json_value

if TYPE_CHECKING:
    from semlex.types.documents import StoredChunk


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """What stands under a name: a document, the part of one at a line, or a chunk.

    Attributes:
        name: Source and path as lists of documents show them, or an id.
        text: The texts of its chunks, each character once. Of a document that was read from a file it is the text that
            was read; of blank characters between chunks the number of lines is right.
        chunks: In the order of the document.
        notes: What should be known of the choice.
    """

    name: str
    text: str
    chunks: tuple[StoredChunk, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, of JSON's types only; the chunks with theirs."""
        chunks = [chunk.to_dict() for chunk in self.chunks]
        return {"name": self.name, "text": self.text, "chunks": chunks, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document.

    Attributes:
        level: Number of the headings that it stands under, and itself: 1 for an outermost one.
        title: Its words; at most 256 characters.
        line: Line of the document on which it stands, from 1; None where the document has no lines.
        chunk_ids: Ids of the chunks that hold what follows it, up to the next heading.
    """

    level: int
    title: str
    line: int | None
    chunk_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The headings of a document.

    Attributes:
        name: Source and path as lists of documents show them, or an id.
        headings: In the order of the document.
        notes: What should be known of the choice.
    """

    name: str
    headings: tuple[Heading, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, of JSON's types only."""
        found: dict[str, Any] = json_value(self)
        return found
