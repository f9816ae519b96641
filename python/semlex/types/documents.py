"""Documents, chunks and headings, as they are added (whole or already split) and as they are stored."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import UUID

from semlex.errors import FieldError, ValidationError
from semlex.types.display import shortened
from semlex.validation import text_errors, time_errors, vector_of, whole_number_errors, wrong_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from semlex.json_values import AnyId
    from semlex.types.followed import RowKey

# Limits that hold everywhere: a document of one word is legitimate; the upper bounds keep one call from occupying the
# server.
MAX_ID_BYTES = 512  # a B-tree key ends at 2,704 bytes, and a chunk's key holds more than its id
MAX_CHUNK_BYTES = 128 * 1024  # the tsvector of a longer text may pass 1 MB, which would fail the whole batch
MAX_METADATA_BYTES = 1024 * 1024
MAX_TITLES_BYTES = 16 * 1024  # they are analysed and embedded with the text of every chunk
MAX_METADATA_DEPTH = 64


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def line_breaks(text: str) -> int:
    """Count the line ends in a text; a carriage return with a line feed counts once."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


@dataclass(slots=True)
class Document:
    """A text with its metadata.

    Attributes:
        content: The text, from 1 character.
        metadata: JSON values (no NaN, at most 64 levels and 1 MiB). Times, dates, UUIDs, decimals and scalars of NumPy
            are stored as text or numbers.
        id: Unique within the collection, at most 512 bytes of UTF-8. Whole numbers and UUIDs are stored as text. ""
            stands for an id computed from text and metadata.
        parent_id, child_ids: Ids of the document that this one is a part of, and of its parts.
        language: Language of the text for the keyword index (engine ``bm25``), by name or ISO 639-1 code; None for the
            collection's.
        timestamp_start, timestamp_end: Where it begins and ends in a recording, as texts in any format, at most 512
            bytes each; or None.
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
        return f"{type(self).__name__}(id={shortened(str(self.id), 80)!r}, content={shortened(self.content, 80)!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return every field by its name as JSON values: times are ISO 8601 texts, tuples are lists."""
        return {name: json_value(getattr(self, name)) for name in _names(self)}


@dataclass(slots=True, repr=False)
class StoredChunk(Document):
    """A stored chunk, with its place in the document that it was read from. Storing it again does not change the place.

    Attributes:
        source, root: Name and absolute folder of the source that the chunk was read from; "" for added documents. Rows
            of tables have no folder.
        source_document: Path of its document below that folder; for added documents the name in their metadata.
        heading_path: Titles above the text, outermost first.
        char_start, char_end: Where it begins and ends in its document, in characters (end exclusive); None for added
            documents.
        line, page: Where it begins in its document, from 1; None without lines or pages.
        row: Row of a table, from 1, as spreadsheets number them; the line of an object in JSON Lines; else None.
        cell: Cell of a notebook, from 1, or None.
        sheet: Name of the sheet, or None.
        table: Name of the followed table that the chunk is from; None for all other chunks. Its `source_document` is
            ``TABLE/KEY``.
        key: Key of that row in its own type: int, str or UUID; a tuple of them for a key of several columns.
        place: Its place as shown to people: ``p. 36``, ``sheet Prices, row 4``, ``line 9``; "" if none is known, and
            for rows of tables, whose text is their columns joined.
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
    row: int | None = None
    cell: int | None = None
    sheet: str | None = None
    table: str | None = None
    key: RowKey | None = None
    place: str = ""

    @property
    def location(self) -> str:
        """Return document and place, as ``keys.md:9`` or ``keys.pdf, p. 36``; "" without a document."""
        return located(self.source_document, self.place)


def place_of(
    line: int | None, page: int | None = None, row: int | None = None, cell: int | None = None, sheet: str | None = None
) -> str:
    """Return a place in a document as shown to people, such as ``p. 36``; "" if it is unknown."""
    if page is not None:
        return f"p. {page}"
    if row is not None:
        return f"row {row}" if sheet is None else f"sheet {sheet}, row {row}"
    if cell is not None:
        return f"cell {cell}"
    return "" if line is None else f"{LINE}{line}"


class Place(NamedTuple):
    """A place in a document; parts that are unknown are None."""

    line: int | None = None
    page: int | None = None
    row: int | None = None
    cell: int | None = None
    sheet: str | None = None


def places_of(first: Place, last: Place) -> str:
    """Return a range of places as shown to people, such as ``p. 1-2``; for lines, only the first one."""
    begin, end = place_of(*first), place_of(*last)
    if begin == end or not begin or not end or begin.startswith(LINE):
        return begin
    if first.page is not None:
        return f"{begin}-{last.page}"
    if first.sheet != last.sheet:
        return f"{begin} to {end}"
    kind, number = ("rows", last.row) if first.row is not None else ("cells", last.cell)
    sheet = "" if first.sheet is None else f"sheet {first.sheet}, "
    return f"{sheet}{kind} {first.row or first.cell}-{number}"


def located(document: str, place: str) -> str:
    """Join a document and a place in it; a line follows a colon, as editors and terminals expect."""
    if not document or not place:
        return document
    return f"{document}:{place.removeprefix(LINE)}" if place.startswith(LINE) else f"{document}, {place}"


LINE = "line "


class StoredPlace(NamedTuple):
    """The parts of a chunk's place that are stored in addition to line and page.

    Attributes:
        breaks: Positions in the chunk's text at which another page or row begins, ascending.
        table, key: For a row of a followed table: the table's name, and the parts of the row's key. A UUID is
            ``{"uuid": TEXT}``.
    """

    row: int | None = None
    cell: int | None = None
    sheet: str | None = None
    breaks: Sequence[int] = ()
    table: str | None = None
    key: Sequence[int | str | dict[str, str]] = ()

    @property
    def row_key(self) -> RowKey | None:
        """The key of the row in its own type."""
        parts = tuple(UUID(part["uuid"]) if isinstance(part, dict) else part for part in self.key)
        return (parts if len(parts) > 1 else parts[0]) if parts else None

    def for_people(self, line: int | None, page: int | None) -> str:
        """Return the place in a document as shown to people; "" for a row of a followed table or an unknown place."""
        return "" if self.table is not None else place_of(line, page, self.row, self.cell, self.sheet)

    def at(self, before: str, line: int | None, page: int | None) -> Place:
        """Return the place of the text that follows `before` in the chunk; `line` and `page` are the chunk's."""
        # The text of a table's row has lines that its file does not have.
        lines = 0 if line is None or self.row is not None else line_breaks(before)
        return self.behind(bisect_right(self.breaks, len(before)), None if line is None else line + lines, page)

    def behind(self, breaks: int, line: int | None, page: int | None) -> Place:
        """Return the place of that part of the chunk which follows `breaks` breaks between pages or rows."""
        if page is not None:
            return Place(line, page + breaks, self.row, self.cell, self.sheet)
        return Place(line, None, None if self.row is None else self.row + breaks, self.cell, self.sheet)

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> StoredPlace:
        """Make a place from its stored JSON object, in which unknown parts are missing."""
        return cls(**stored) if stored else NOWHERE

    def as_json(self) -> dict[str, Any] | None:
        """Return the place as a JSON object, or None if nothing is known."""
        known = {name: value for name, value in self._asdict().items() if value}
        return known or None


NOWHERE = StoredPlace()


class Ids(list[str]):
    """The ids of added documents, in their order; `skipped` lists errors of documents that were left out."""

    def __init__(self, ids: Iterable[str] = (), skipped: Sequence[FieldError] = ()) -> None:
        super().__init__(ids)
        self.skipped = list(skipped)


def _names(value: Any) -> Iterable[str]:
    """Return the names of a dataclass's fields, faster than `dataclasses.fields`, which makes a list at every call."""
    names: dict[str, Any] = value.__dataclass_fields__
    return names


# What most values are.
_PLAIN = frozenset({str, int, float, bool})


def json_value(value: Any) -> Any:
    """Convert a value to JSON types."""
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: json_value(getattr(value, name)) for name in _names(value)}
    return _json_scalar(value)


def json_object(value: Any) -> dict[str, Any]:
    """Convert a mapping, or the fields of a dataclass, to a JSON object."""
    made: dict[str, Any] = json_value(value)
    return made


def _json_scalar(value: Any) -> Any:
    """Convert a single value; a type that JSON lacks, such as an interval or a range, becomes text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    from semlex.json_values import json_scalar  # noqa: PLC0415 - it needs NumPy, which the help of a command does not

    made = json_scalar(value)
    return made if made is None or type(made) in _PLAIN else str(made)


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """The text of a document, of its part at a given line, or of a chunk.

    Attributes:
        name: Source and path as lists of documents show them, or an id.
        text: The texts of its chunks, each character once. A document that was read from a file has the text of the
            file, except that blanks between chunks become spaces and line breaks.
        chunks: In the order of the document.
        notes: Why this document or part was chosen, if that is not obvious.
    """

    name: str
    text: str
    chunks: tuple[StoredChunk, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return every field by its name as JSON values."""
        chunks = [chunk.to_dict() for chunk in self.chunks]
        return {"name": self.name, "text": self.text, "chunks": chunks, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document.

    Attributes:
        level: 1 for an outermost one.
        title: Its words, up to 256 characters.
        line: Line of the document, from 1; None if the document has no lines.
        chunk_ids: Chunks that hold the text below it, up to the next heading.
    """

    level: int
    title: str
    line: int | None
    chunk_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The headings of a document from its beginning to its end; `name` and `notes` are as in `WholeDocument`."""

    name: str
    headings: tuple[Heading, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return every field by its name as JSON values."""
        return json_object(self)


MAX_SUMMARY_CHARACTERS = 500
TITLES_IN_METADATA = ("chapter_title", "section_title", "subsection_title")
TITLES = frozenset(TITLES_IN_METADATA)
IN_METADATA = ("source_document", "chapter_title", "section_title", "summary", "token_count")


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """A chunk of a document, made by another program, with its place.

    Attributes:
        chunk_id: Unique within the collection, at most 512 bytes.
        chunk_text: 1 character to 128 KiB.
        token_count: Tokens of ``chunk_text``, from 1, as counted by the program that made the chunk.
        subsection_title: Titles below `section_title`, outermost first; a list becomes a tuple.
        summary: A short description, at most 500 characters.

    Raises:
        ValidationError: With every rule that is broken.
    """

    chunk_id: str
    source_document: str
    chunk_text: str
    token_count: int
    chapter_title: str = ""
    section_title: str = ""
    subsection_title: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        errors = self._errors()
        if errors:
            raise ValidationError(errors)

    def _errors(self) -> list[FieldError]:
        errors = text_errors("chunk_id", self.chunk_id, max_bytes=MAX_ID_BYTES, blank=False)
        errors += text_errors("source_document", self.source_document, blank=False)
        errors += text_errors("chunk_text", self.chunk_text, max_bytes=MAX_CHUNK_BYTES, blank=False)
        errors += whole_number_errors("token_count", self.token_count, 1, 2**31 - 1)
        errors += text_errors("chapter_title", self.chapter_title)
        errors += text_errors("section_title", self.section_title)
        errors += text_errors("summary", self.summary, max_characters=MAX_SUMMARY_CHARACTERS)
        titles: object = self.subsection_title
        if not isinstance(titles, (list, tuple)):
            return errors + wrong_type("subsection_title", "list of str", titles)
        object.__setattr__(self, "subsection_title", tuple(titles))
        return errors + [error for title in titles for error in text_errors("subsection_title", title)]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a chunk of a JSON object; raise `ValidationError` with all wrong keys, else all broken rules."""
        known = {one.name: one for one in fields(cls)}
        required = [one.name for one in known.values() if one.default is MISSING and one.default_factory is MISSING]
        errors = [
            FieldError(-1, None, str(name), "unknown_field", ", ".join(known)) for name in values if name not in known
        ]
        errors += [FieldError(-1, None, name, "missing") for name in required if name not in values]
        if errors:
            raise ValidationError(errors)
        return cls(**values)

    def __repr__(self) -> str:
        place, text = shortened(self.source_document, 80), shortened(self.chunk_text, 80)
        return f"{type(self).__name__}(chunk_id={shortened(self.chunk_id, 80)!r}, source_document={place!r}, {text!r})"

    @property
    def heading_path(self) -> tuple[str, ...]:
        """Return the titles above the text, outermost first, without the empty ones."""
        return tuple(title for title in (self.chapter_title, self.section_title, *self.subsection_title) if title)

    def to_document(self) -> Document:
        """Return the chunk as a `Document`, its titles, summary and token count in the metadata."""
        metadata: dict[str, Any] = {name: getattr(self, name) for name in IN_METADATA}
        metadata["subsection_title"] = list(self.subsection_title)
        return Document(self.chunk_text, metadata, self.chunk_id)


@dataclass(frozen=True, slots=True, repr=False)
class VectorDocument(ChunkMetadata):
    """A chunk with its vector (finite, not all zero, of the collection's dimension), made at `created_at`."""

    embedding: tuple[float, ...] = ()
    created_at: datetime = field(default_factory=utc_now)

    def _errors(self) -> list[FieldError]:
        embedding, errors = vector_of("embedding", self.embedding)
        object.__setattr__(self, "embedding", embedding)
        return super(VectorDocument, self)._errors() + errors + time_errors("created_at", self.created_at)

    def to_document(self) -> Document:
        """Return the chunk as a `Document`, whose `created_at` and `updated_at` are this object's `created_at`."""
        document = ChunkMetadata.to_document(self)
        document.created_at = document.updated_at = self.created_at
        return document


def titles_in(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the titles in metadata by their keys, outer ones first; values other than texts are left out."""
    found: dict[str, list[str]] = {}
    for key in TITLES_IN_METADATA:
        value = metadata.get(key)
        several = value if key == "subsection_title" and isinstance(value, (list, tuple)) else [value]
        found[key] = [title for title in several if isinstance(title, str)]
    return found
