"""Documents, their chunks and their headings: what goes in, and what is stored. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from semlex.types.display import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.errors import FieldError
    from semlex.json_values import AnyId

# Limits that hold everywhere (docs/design/decisions.md): a document of one word is legitimate; the upper bounds keep
# one call from occupying the server.
MAX_ID_BYTES = 512  # a B-tree key ends at 2,704 bytes, and a chunk's key holds more than its id
MAX_CHUNK_BYTES = 128 * 1024  # the tsvector of a longer text may pass 1 MB, which would fail the whole batch
MAX_METADATA_BYTES = 1024 * 1024
MAX_TITLES_BYTES = 16 * 1024  # they are analysed and embedded with the text of every chunk
MAX_METADATA_DEPTH = 64


def utc_now() -> datetime:
    """The current time, with its zone."""
    return datetime.now(UTC)


def line_breaks(text: str) -> int:
    """How many lines end in a text; a carriage return and a line feed are one end."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


@dataclass(slots=True)
class Document:
    """A text with its metadata: what goes in, and the base of what comes out.

    Attributes:
        content: The text, from 1 character.
        metadata: Mapping of JSON values (no NaN, at most 64 levels and 1 MiB). Times, dates, UUIDs, decimals and
            scalars of NumPy are stored as text or numbers.
        id: Unique within the collection, at most 512 bytes of UTF-8. Whole numbers and UUIDs are stored as text. With
            "" it follows from the text and the metadata.
        parent_id: Id of the document that this one is a part of.
        child_ids: Ids of its parts.
        created_at: When it was made.
        updated_at: When it was last changed.
        language: Language of the text for the keyword index (engine ``bm25``), by name or ISO 639-1 code; None for the
            collection's.
        timestamp_start: Where it begins in a recording, in a form of yours, at most 512 bytes; None where there is
            none.
        timestamp_end: Where it ends there.
    """

    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: AnyId = ""
    parent_id: AnyId | None = None
    child_ids: Sequence[AnyId] = field(default_factory=list)
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    language: str | None = None
    timestamp_start: str | None = None
    timestamp_end: str | None = None

    def __repr__(self) -> str:
        """Id, and the beginning of the text."""
        return f"{type(self).__name__}(id={shortened(str(self.id), 80)!r}, content={shortened(self.content, 80)!r})"

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, of JSON's types only: times are ISO 8601 texts, tuples are lists."""
        return {name: json_value(getattr(self, name)) for name in _names(self)}


@dataclass(slots=True, repr=False)
class StoredChunk(Document):
    """A document as it is stored, with its position in what it was read from. Storing it again does not move it.

    Attributes:
        source: Name of the source that it was read from; "" for added documents.
        root: Folder of that source, absolute; "" for added documents.
        source_document: Path of its document below that folder; for added documents the name in their metadata.
        heading_path: Titles above the text, outermost first.
        char_start: Where the text begins in its document, in characters; None for added documents.
        char_end: Where it ends (exclusive).
        line: Line of its document on which it begins, from 1.
        page: Page of its document on which it begins, from 1; None where there are no pages.
    """

    id: str = ""
    parent_id: str | None = None
    child_ids: list[str] = field(default_factory=list)
    source: str = ""
    root: str = ""
    source_document: str = ""
    heading_path: tuple[str, ...] = ()
    char_start: int | None = None
    char_end: int | None = None
    line: int | None = None
    page: int | None = None


class Ids(list[str]):
    """The ids of added documents, in their order.

    Attributes:
        skipped: What is wrong with the documents that ``on_error="skip"`` left out: row, id, field and rule of each.
    """

    def __init__(self, ids: Iterable[str] = (), skipped: Sequence[FieldError] = ()) -> None:
        super().__init__(ids)
        self.skipped = list(skipped)


def _names(value: Any) -> Iterable[str]:
    """The names of a dataclass's fields; `fields` makes a list of more at every call."""
    names: dict[str, Any] = value.__dataclass_fields__
    return names


# What most values are.
_PLAIN = frozenset({str, int, float, bool})


def json_value(value: Any) -> Any:
    """The value in JSON's types."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: json_value(getattr(value, name)) for name in _names(value)}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    from semlex.json_values import json_scalar  # noqa: PLC0415 - it needs NumPy, which the help of a command does not

    return json_scalar(value)


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
