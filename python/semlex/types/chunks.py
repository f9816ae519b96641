"""Chunks that another program has cut, which can be added as documents."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from semlex.errors import FieldError, ValidationError
from semlex.types.display import shortened
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES, Document, utc_now
from semlex.validation import text_errors, time_errors, vector_of, whole_number_errors, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


MAX_SUMMARY_CHARACTERS = 500
TITLES_IN_METADATA = ("chapter_title", "section_title", "subsection_title")
TITLES = frozenset(TITLES_IN_METADATA)
IN_METADATA = ("source_document", "chapter_title", "section_title", "summary", "token_count")


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """A piece of a document, cut by another program, with its place.

    Attributes:
        chunk_id: Unique within the collection, at most 512 bytes.
        chunk_text: 1 character to 128 KiB.
        token_count: Tokens of ``chunk_text``, from 1, as counted by the program that cut it.
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
        """Return the chunk of a JSON object; raise `ValidationError` with all wrong keys, else all broken rules."""
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
    """A chunk with its vector (finite numbers, not all zero, of the collection's dimension) and when that was made."""

    embedding: tuple[float, ...] = ()
    created_at: datetime = field(default_factory=utc_now)

    def _errors(self) -> list[FieldError]:
        embedding, errors = vector_of("embedding", self.embedding)
        object.__setattr__(self, "embedding", embedding)
        return super(VectorDocument, self)._errors() + errors + time_errors("created_at", self.created_at)

    def to_document(self) -> Document:
        """Return the chunk as a `Document`, with the time of the vector as its time."""
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
