"""The values that travel through semlex: documents in, results out. No IO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import FieldError, MissingExtraError, ValidationError
from semlex.results_table import results_table
from semlex.value_checks import number_errors, text_errors, time_errors, vector_of, whole_number_errors, wrong_type

if TYPE_CHECKING:
    from langchain_core.documents import Document as LangChainDocument

SearchMode = Literal["vector", "keyword", "hybrid"]

# Limits that hold everywhere (docs/design/decisions.md): a query of one character is legitimate ("C"), and so is a
# document of one word; the upper bounds keep one call from occupying the server.
MAX_QUERY_BYTES = 4096
MAX_TOP_K = 1000
DEFAULT_TOP_K = 5
MAX_ID_BYTES = 512  # a B-tree key ends at 2,704 bytes, and a chunk's key holds more than its id
MAX_CHUNK_BYTES = 128 * 1024  # the tsvector of a longer text may pass 1 MB, which would fail the whole batch
MAX_METADATA_BYTES = 1024 * 1024
MAX_TITLES_BYTES = 16 * 1024  # they are analysed and embedded with the text of every chunk
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
        timestamp_start: Where it begins in a recording, in a form of yours, at most 512 bytes; None where there is
            none.
        timestamp_end: Where it ends there.
    """

    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    parent_id: str | None = None
    child_ids: list[str] = field(default_factory=list)
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    language: str | None = None
    timestamp_start: str | None = None
    timestamp_end: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Every field by its name, of JSON's types only: times are ISO 8601 texts, tuples are lists."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}


@dataclass(slots=True)
class StoredChunk(Document):
    """A document as it is stored, with its place in what it was read from. Storing it again does not move it.

    Attributes:
        source: Name of the source that it was read from; "" for added documents.
        root: Folder of that source, absolute; "" for added documents.
        source_document: Path of its document below that folder; for added documents the name in their metadata.
        heading_path: Titles above the text, outermost first.
        char_start: Where the text begins in its document, in characters; None for added documents.
        char_end: Where it ends (exclusive).
        line: Line of its document on which it begins, from 1.
    """

    source: str = ""
    root: str = ""
    source_document: str = ""
    heading_path: tuple[str, ...] = ()
    char_start: int | None = None
    char_end: int | None = None
    line: int | None = None


class HitMetadata(dict[str, Any]):
    """The metadata of a hit: the user's own, and two scores that can be read beside it.

    ``metadata["similarity"]`` is the hit's `vector_score`, ``metadata["rerank_score"]`` its `rerank_score`, unless the
    user's metadata has such a key. They are found by ``[]`` and `get` only: length, iteration, comparison, JSON and
    what is stored when the hit is added again are the user's metadata alone. A stage that did not run has None by
    ``[]``, and `get` gives its default then.

    Args:
        metadata: The user's.
        similarity: Score of the vector leg.
        rerank_score: Score of the reranker.
    """

    __slots__ = ("_scores",)

    def __init__(self, metadata: dict[str, Any], similarity: float | None, rerank_score: float | None) -> None:
        super().__init__(metadata)
        self._scores = {"similarity": similarity, "rerank_score": rerank_score}

    def __missing__(self, key: str) -> float | None:
        return self._scores[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, else the score of that name, else the default."""
        if key in self:
            return self[key]
        score = self._scores.get(key)
        return default if score is None else score

    def __reduce__(self) -> tuple[type[HitMetadata], tuple[dict[str, Any], float | None, float | None]]:
        """Copies and pickles with the scores."""
        return HitMetadata, (dict(self), self._scores["similarity"], self._scores["rerank_score"])


@dataclass(slots=True)
class SearchResult(StoredChunk):
    """One hit. Every stage's rank and score stands under its own name; None where the stage did not run.

    Attributes:
        rank: Place in the answer, from 1.
        vector_rank: Place in the vector leg, from 1; None where it is not among that leg's candidates.
        vector_score: Cosine similarity, -1 to 1 (or minus the L2 distance, or the inner product).
        keyword_rank: Place in the keyword leg, from 1; None where it is not among that leg's candidates.
        keyword_score: The lexical engine's own score; comparable only within one query. Completed fusion gives both
            scores to every hit: 0 where no word matches, None where there is no vector.
        fused_score: Score of the fusion; not a similarity, and in completed fusion without bounds: mostly 0 to 1, below
            0 for what neither words nor vector speak for, above 1 for a vector more than 6 standard deviations near.
        vector_contribution: What the vector leg adds to the fused score of completed fusion.
        keyword_contribution: What the keyword leg adds to it.
        rerank_score: The reranker's score: 0 to 1 from all that semlex brings, any finite number from one of your own.
        excerpt: A short part of the content with the matched words between ``**``.
        match_line: Line of its document on which the first matched word stands, from 1; None where no word matched, or
            the document has no lines (it was added, not read from a file).
        coverage: Share of the question's weight whose words occur in the chunk, 0 to 1; each word weighs by its idf, so
            a rare one more than a common one, and one that no chunk has the most. None without a keyword leg, for
            engines other than ``bm25``, and where the question has no word to look for.

    Raises:
        ValidationError: A rank is below 1 (0: not ranked), or a score is no finite number.
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
    excerpt: str = ""
    match_line: int | None = None
    coverage: float | None = None

    def __post_init__(self) -> None:
        if type(self.rank) is int and _numbers_of(self) == NO_NUMBERS:
            return
        errors = []
        for name in RANKS:
            value = getattr(self, name)
            if value is not None:
                errors += whole_number_errors(name, value, 0 if name == "rank" else 1)
        for name in SCORES:
            value = getattr(self, name)
            if value is not None:
                errors += number_errors(name, value)
        if errors:
            raise ValidationError(errors)

    def __repr__(self) -> str:
        """Rank, id, place, and the scores that there are; the text is in `content`."""
        parts = [f"rank={self.rank}", f"id={self.id!r}", *([f"place={place!r}"] if (place := self.place) else [])]
        parts += [f"{name}={score:.4g}" for name in SCORES if (score := getattr(self, name)) is not None]
        return f"SearchResult({', '.join(parts)})"

    @property
    def place(self) -> str:
        """The document below its source's folder and the line of the match, as ``keys.md:9``; "" where none is known.

        The line is the chunk's first where no word matched.
        """
        line = self.match_line or self.line
        return self.source_document + (f":{line}" if line is not None and self.source_document else "")

    @property
    def chunk_id(self) -> str:
        """The id, under the name that chunks use."""
        return self.id

    @property
    def similarity_score(self) -> float | None:
        """The vector leg's score, under its older name."""
        return self.vector_score


RANKS = ("rank", "vector_rank", "keyword_rank")
SCORES = (
    "vector_score",
    "keyword_score",
    "fused_score",
    "vector_contribution",
    "keyword_contribution",
    "rerank_score",
)
# A row of the database becomes a hit before its numbers are known.
_numbers_of = attrgetter(*RANKS, *SCORES)
NO_NUMBERS = (0, *[None] * (len(RANKS) + len(SCORES) - 1))


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
        best_similarity: Greatest cosine among the hits; None without vectors or with another distance.
        coverage: Greatest `SearchResult.coverage` among the hits; None where no hit has one. Where both are low, the
            collection probably holds no answer.
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
        best_similarity: float | None = None,
        coverage: float | None = None,
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
        self.best_similarity = best_similarity
        self.coverage = coverage
        self.warnings = warnings or []

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``hits``, every hit's `SearchResult.to_dict`: of JSON's types only."""
        attributes: dict[str, Any] = _plain(vars(self))
        return attributes | {"hits": [hit.to_dict() for hit in self]}

    def _repr_html_(self) -> str:
        """The hits as a table, which notebooks show."""
        return results_table(self)

    def to_documents(self) -> list[LangChainDocument]:
        """The hits as documents of LangChain.

        The metadata is the user's. Beside it, unless the user has such a key, stand ``source``, ``root``,
        ``source_document``, ``heading_path`` and ``line`` where they are known, and the scores that there are.

        Raises:
            MissingExtraError: LangChain is not installed.
        """
        try:
            from langchain_core.documents import Document as LangChainDocument  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtraError("langchain-core", "langchain", "SearchResults.to_documents()") from None
        return [
            LangChainDocument(page_content=hit.content, id=hit.id, metadata=_places_and_scores(hit) | hit.metadata)
            for hit in self
        ]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A checked query.

    Attributes:
        query_text: 1 character to 4 KiB after trimming; None when only a vector is given.
        query_embedding: Numbers (a list or an array), as many as the collection's dimension; None when only a text is
            given.
        top_k: Number of results, 1 to 1,000.
        filters: Field -> value, as `PostgreSQLRetriever.search` takes them.
        timestamp: When the query was made.

    Raises:
        ValidationError: With every rule that is broken.
    """

    query_text: str | None = None
    query_embedding: tuple[float, ...] | None = None
    top_k: int = DEFAULT_TOP_K
    filters: dict[str, Any] | None = None
    timestamp: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        errors = []
        if self.query_text is None and self.query_embedding is None:
            errors.append(FieldError(-1, None, "query", "missing", "a text or a vector"))
        if self.query_text is not None:
            # What is searched is trimmed.
            text = self.query_text.strip() if isinstance(self.query_text, str) else self.query_text
            errors += text_errors("query", text, max_bytes=MAX_QUERY_BYTES, blank=False)
        if self.query_embedding is not None:
            embedding, faults = vector_of("vector", self.query_embedding)
            object.__setattr__(self, "query_embedding", embedding)
            errors += faults
        errors += whole_number_errors("top_k", self.top_k, 1, MAX_TOP_K)
        if self.filters is not None and not isinstance(self.filters, Mapping):
            errors += wrong_type("filters", "a mapping", self.filters)
        errors += time_errors("timestamp", self.timestamp)
        if errors:
            raise ValidationError(errors)


def _places_and_scores(hit: SearchResult) -> dict[str, Any]:
    places = {name: getattr(hit, name) for name in ("source", "root", "source_document", "line")}
    places["heading_path"] = list(hit.heading_path)
    shown = {name: value for name, value in places.items() if value}
    return shown | {name: score for name in SCORES if (score := getattr(hit, name)) is not None}


def _plain(value: Any) -> Any:
    """The value in JSON's types."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


class DocumentRetriever(ABC):
    """What an application needs of a retriever."""

    @abstractmethod
    async def search(self, query: str, top_k: int = 5, filters: dict[str, Any] | None = None) -> Sequence[Document]:
        """The documents that fit a query best, best first."""

    @abstractmethod
    async def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Stores documents and returns their ids."""
