"""The values that travel through semlex: documents in, results out. No IO."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from semlex.errors import FieldError, ValidationError

SearchMode = Literal["vector", "keyword", "hybrid"]

# Limits that hold everywhere (docs/design/decisions.md): a query of one character is legitimate ("C"), and so is a
# document of one word; the upper bounds keep one call from occupying the server.
MAX_QUERY_BYTES = 4096
MAX_TOP_K = 1000
MAX_ID_BYTES = 512  # a B-tree key ends at 2,704 bytes, and a chunk's key holds more than its id
MAX_CHUNK_BYTES = 128 * 1024  # the tsvector of a longer text may pass 1 MB, which would fail the whole batch
MAX_METADATA_BYTES = 1024 * 1024
MAX_METADATA_DEPTH = 64


def utc_now() -> datetime:
    """The current time, with its zone."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Document:
    """A text with its metadata: what goes in, and the base of what comes out.

    Attributes:
        content: The text, from 1 character.
        metadata: JSON-compatible mapping (no NaN, at most 64 levels and 1 MiB).
        id: Unique within the collection, at most 512 bytes of UTF-8.
        parent_id: Id of the document that this one is a part of.
        child_ids: Ids of its parts.
        created_at: When it was made.
        updated_at: When it was last changed.
        language: Language of the text for the keyword index (engine ``bm25``), by name or ISO 639-1 code; None for the
            collection's.
    """

    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    parent_id: str | None = None
    child_ids: list[str] = field(default_factory=list)
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    language: str | None = None


@dataclass(slots=True)
class SearchResult(Document):
    """One hit. Every stage's rank and score stands under its own name; None where the stage did not run.

    Attributes:
        rank: Place in the answer, from 1.
        vector_rank: Place in the vector leg, from 1; None where it is not among that leg's candidates.
        vector_score: Cosine similarity, -1 to 1 (or minus the L2 distance, or the inner product).
        keyword_rank: Place in the keyword leg, from 1; None where it is not among that leg's candidates.
        keyword_score: The lexical engine's own score; comparable only within one query. Completed fusion gives both
            scores to every hit: 0 where no word matches, None where there is no vector.
        fused_score: Score of the fusion; not a similarity.
        vector_contribution: What the vector leg adds to the fused score of completed fusion.
        keyword_contribution: What the keyword leg adds to it.
        rerank_score: The reranker's probability of relevance, 0 to 1.
        source: File or address that the text came from.
        heading_path: Titles above the text, outermost first.
        char_start: Where the text begins in its document, in characters; None for added documents.
        char_end: Where it ends (exclusive).
        line: Line of its document on which it begins, from 1.
        excerpt: A short part of the content with the matched words between ``**``.
    """

    rank: int = 0
    vector_rank: int | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    fused_score: float | None = None
    vector_contribution: float | None = None
    keyword_contribution: float | None = None
    rerank_score: float | None = None
    source: str = ""
    heading_path: tuple[str, ...] = ()
    char_start: int | None = None
    char_end: int | None = None
    line: int | None = None
    excerpt: str = ""

    @property
    def chunk_id(self) -> str:
        """The id, under the name that chunks use."""
        return self.id

    @property
    def similarity_score(self) -> float | None:
        """The vector leg's score, under its older name."""
        return self.vector_score


class SearchResults(list[SearchResult]):
    """The hits of one search, best first, and how they were found.

    Attributes:
        mode: The legs that answered: ``vector``, ``keyword`` or ``hybrid``.
        requested_mode: The legs that were asked for.
        embedding_model: Identity of the model that embedded the query, or None.
        reranker_model: Identity of the reranker, or None when no reranking took place.
        fusion: Name of the fusion, or None when one leg answered.
        leg_hits: Number of candidates that each leg returned.
        timings: Milliseconds per stage.
        query_cached: Whether the query's vector was known from an earlier search.
        warnings: What did not go as asked, for example a leg that failed; empty when all went well.
    """

    def __init__(
        self,
        hits: list[SearchResult] | None = None,
        *,
        mode: SearchMode = "hybrid",
        requested_mode: SearchMode = "hybrid",
        embedding_model: str | None = None,
        reranker_model: str | None = None,
        fusion: str | None = None,
        leg_hits: dict[str, int] | None = None,
        timings: dict[str, float] | None = None,
        query_cached: bool = False,
        warnings: list[str] | None = None,
    ) -> None:
        super().__init__(hits or [])
        self.mode: SearchMode = mode
        self.requested_mode: SearchMode = requested_mode
        self.embedding_model = embedding_model
        self.reranker_model = reranker_model
        self.fusion = fusion
        self.leg_hits = leg_hits or {}
        self.timings = timings or {}
        self.query_cached = query_cached
        self.warnings = warnings or []


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A checked query.

    Attributes:
        query_text: 1 character to 4 KiB after trimming; None when only a vector is given.
        query_embedding: float values, as many as the collection's dimension; None when only a text is given.
        top_k: Number of results, 1 to 1,000.
        filters: Field -> value, or the key ``metadata`` -> a mapping that must be contained.
        timestamp: When the query was made.

    Raises:
        ValidationError: With every rule that is broken.
    """

    query_text: str | None = None
    query_embedding: tuple[float, ...] | None = None
    top_k: int = 5
    filters: dict[str, Any] | None = None
    timestamp: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        errors = []

        def refuse(name: str, code: str, limit: str | None = None, actual: str | None = None) -> None:
            errors.append(FieldError(-1, None, name, code, limit, actual))

        if self.query_text is None and self.query_embedding is None:
            refuse("query", "missing", "a text or a vector")
        if self.query_text is not None:
            errors += _text_errors(self.query_text)
        if self.query_embedding is not None and not (
            all(map(math.isfinite, self.query_embedding)) and any(self.query_embedding)
        ):
            refuse("vector", "not_usable", "finite values, not all zero")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int):
            refuse("top_k", "wrong_type", "int", type(self.top_k).__name__)
        elif not 1 <= self.top_k <= MAX_TOP_K:
            refuse("top_k", "out_of_range", f"1 to {MAX_TOP_K}", str(self.top_k) if abs(self.top_k) < 2**63 else "huge")
        if errors:
            raise ValidationError(errors)


def _text_errors(text: object) -> list[FieldError]:
    if not isinstance(text, str):
        return [FieldError(-1, None, "query", "wrong_type", "str", type(text).__name__)]
    if not text.strip():
        return [FieldError(-1, None, "query", "blank", "1 character after trimming", "0")]
    try:
        size = len(text.strip().encode())
    except UnicodeEncodeError as error:
        return [FieldError(-1, None, "query", "lone_surrogate", None, f"character {error.start}")]
    if size > MAX_QUERY_BYTES:
        return [FieldError(-1, None, "query", "too_long", f"{MAX_QUERY_BYTES} bytes", f"{size} bytes")]
    if "\0" in text:
        return [FieldError(-1, None, "query", "nul", None, f"character {text.index(chr(0))}")]
    return []


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """A piece of a document and where it stands.

    Attributes:
        chunk_id: Unique within its document, at most 512 bytes.
        source_document: File or name of the document.
        chunk_text: The text.
        chapter_title: Title at level 1.
        section_title: Title at level 2.
        subsection_title: Titles below, outermost first.
        summary: A short description.
        token_count: Tokens of ``chunk_text``, counted by the collection's counter.

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
        errors = [
            FieldError(0, None, name, "blank", "1 character", "0")
            for name in ("chunk_id", "source_document", "chunk_text")
            if not getattr(self, name)
        ]
        if self.token_count < 1:
            errors.append(FieldError(0, self.chunk_id, "token_count", "out_of_range", ">= 1", str(self.token_count)))
        if errors:
            raise ValidationError(errors)

    @property
    def heading_path(self) -> tuple[str, ...]:
        """The titles above the text, outermost first, without the empty ones."""
        return tuple(title for title in (self.chapter_title, self.section_title, *self.subsection_title) if title)


@dataclass(frozen=True, slots=True)
class VectorDocument(ChunkMetadata):
    """A chunk with its vector.

    Attributes:
        embedding: float values, finite and not all zero; the dimension is the collection's.
        created_at: When the vector was made.
    """

    embedding: tuple[float, ...] = ()
    created_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        ChunkMetadata.__post_init__(self)
        if not (self.embedding and all(map(math.isfinite, self.embedding)) and any(self.embedding)):
            limit = "finite values, not all zero"
            raise ValidationError([FieldError(0, self.chunk_id, "embedding", "not_usable", limit)])

    def to_document(self) -> Document:
        """The chunk as a `Document`, its titles, summary and token count in the metadata."""
        names = ("source_document", "chapter_title", "section_title", "summary", "token_count")
        metadata: dict[str, Any] = {name: getattr(self, name) for name in names}
        metadata["subsection_title"] = list(self.subsection_title)
        return Document(
            self.chunk_text, metadata, self.chunk_id, created_at=self.created_at, updated_at=self.created_at
        )
