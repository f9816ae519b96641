"""Hits, how they were found, and which server they were read from. This module does no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from semlex.errors import MissingExtraError, ValidationError
from semlex.types.confidence import SUPPORT_TEXT, Support
from semlex.types.display import DECIDING, HEADING_SEPARATOR, bold, hit_lines, hit_table, joined, paragraph, shortened
from semlex.types.documents import Document, StoredChunk, json_object
from semlex.validation import number_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import MemberDescriptorType

    from langchain_core.documents import Document as LangChainDocument
    from pandas import DataFrame

    from semlex.types.explanations import SearchExplanation
    from semlex.types.queries import Route

SearchMode = Literal["vector", "keyword", "hybrid"]


class HitMetadata(dict[str, Any]):
    """The metadata of a hit: the user's own keys, and two scores that can be read by key.

    ``metadata["similarity"]`` is the hit's `vector_score`, ``metadata["rerank_score"]`` its `rerank_score`, unless the
    user's metadata has such a key. Only ``[]`` and `get` return these scores. Length, iteration, comparison and JSON
    cover the user's metadata alone; a hit that is added again stores only that. For a stage that did not run, ``[]``
    returns None and `get` its default.
    """

    __slots__ = ("_scores",)

    def __init__(
        self,
        metadata: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        similarity: float | None = None,
        rerank_score: float | None = None,
    ) -> None:
        super().__init__(metadata)
        self._scores = {"similarity": similarity, "rerank_score": rerank_score}

    def __missing__(self, key: str) -> float | None:
        return self._scores[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, else the score of that name, else the default."""
        if key in self:
            return self[key]
        score = self._scores.get(key)
        return default if score is None else score

    def __reduce__(self) -> tuple[type[HitMetadata], tuple[dict[str, Any], float | None, float | None]]:
        """Keep the scores in copies and pickles."""
        return HitMetadata, (dict(self), self._scores["similarity"], self._scores["rerank_score"])


# The slot of a hit's metadata: JSON text until it is first read.
_METADATA = Document.__dict__["metadata"]


class Shown(NamedTuple):
    """Attributes of a hit that are computed when they are first read: its excerpt and place."""

    excerpt: str
    match_line: int | None
    page: int | None
    row: int | None
    place: str


@dataclass(slots=True)
class SearchResult(StoredChunk):
    """One hit. Every stage has a rank and a score; None if it did not run.

    Attributes:
        rank: Place among the hits, from 1.
        vector_rank, keyword_rank: Place in vector and in keyword search, from 1; None if it is not a candidate there.
        vector_score: Cosine similarity, -1 to 1 (or minus the L2 distance, or the inner product).
        keyword_score: The keyword engine's own score; comparable only within one query. Fusion ``score`` gives both
            scores to every hit: 0 if no word matches, None without a vector.
        fused_score: Score of the fusion; not a similarity. In fusion ``score`` mostly 0 to 1; below 0 if few words
            match and the cosine is below the sample's mean; above 1 by a boost, a heading factor, or a cosine more than
            6 standard deviations above the mean.
        vector_contribution, keyword_contribution: What each search adds to the fused score of fusion ``score``.
        boost: Product of the factors of matching boosts, already in the fused score; None if none were given. If one
            search answered alone, the fused score is its score times this.
        heading_factor: Factor that is already in the fused score because the chunk's heading is the query; else None.
        rerank_score: The reranker's score: 0 to 1 from the rerankers of semlex, any finite number from your own.
        mixed_score: Score that orders reranked hits: the reranker's and the fused score, each in standard deviations
            from its mean over all reranked hits, weighted by `rerank_weight`. Comparable only within one search.
        excerpt: A short part of the content with the matched words between ``**``.
        match_line: Line of its document with the first matched word of the excerpt, from 1; None if no word matched, or
            if the document has no lines.
        page, row, place: Those of the first matched word of the excerpt, else where the chunk begins.
        coverage: Share of the question's words that occur in the chunk, 0 to 1, each word weighted by its idf. None
            without keyword search, for engines other than ``bm25``, and for a question without a word to search.
        confidence: Probability that the hit is relevant, by the collection's calibration (``semlex eval calibrate``);
            None without one, and for a hit without a cosine.
        columns: Values of the search's `columns`, as the followed table had them in the search's snapshot, in the
            driver's types; None without `columns`, and for hits that are not rows of a followed table.

    Raises:
        ValidationError: A rank is below 1 (0: not ranked), or a score is not a finite number.
    """

    rank: int = 0
    vector_rank: int | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    fused_score: float | None = None
    vector_contribution: float | None = None
    keyword_contribution: float | None = None
    boost: float | None = None
    heading_factor: float | None = None
    rerank_score: float | None = None
    mixed_score: float | None = None
    excerpt: str = ""
    match_line: int | None = None
    coverage: float | None = None
    confidence: float | None = None
    columns: dict[str, Any] | None = None

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

    def _repr_html_(self) -> str:
        return hit_table([self])

    def __repr__(self) -> str:
        location = self.location
        parts = [
            f"rank={self.rank}",
            f"{'location' if location else 'id'}={shortened(location or self.id, SHOWN_ID)!r}",
        ]
        parts += [
            f"{name}={value:.4g}" for name in ("score", "confidence") if (value := getattr(self, name)) is not None
        ]
        return f"{type(self).__name__}({', '.join([*parts, f'text={shortened(self.content, SHOWN_ID)!r}'])})"

    @property
    def text(self) -> str:
        """Return the content, under the name that most libraries use."""
        return self.content

    @property
    def score(self) -> float | None:
        """Return the score that orders the hits: the mixed score, else the fused one, else the only search's own."""
        return next((score for name in DECIDING if (score := getattr(self, name)) is not None), None)

    @property
    def chunk_id(self) -> str:
        """Return the id, under the name that chunks use."""
        return self.id

    @property
    def similarity_score(self) -> float | None:
        """Return `vector_score`, under its older name."""
        return self.vector_score


def _metadata(hit: SearchResult) -> dict[str, Any]:
    """Return the metadata, from which two scores can be read as well."""
    stored: dict[str, Any] | str = _METADATA.__get__(hit)
    if isinstance(stored, str):
        stored = HitMetadata(json.loads(stored), hit.vector_score, hit.rerank_score)
        _METADATA.__set__(hit, stored)
    return stored


# Most metadata is never looked at. A dataclass with slots takes no property of a field's name into its body.
SearchResult.metadata = property(_metadata, _METADATA.__set__)  # type: ignore[assignment,misc]


# The slot of a hit's excerpt. Until the excerpt or the place is first read, it holds a function that makes both, and
# the place so far.
_EXCERPT = SearchResult.__dict__["excerpt"]


def _shown(slot: MemberDescriptorType) -> property:
    """Return the property of an attribute that is computed when it is first read."""

    def shown(hit: SearchResult) -> Any:
        """Return the attribute, computed now if necessary; see the attributes of `SearchResult`."""
        pending = _EXCERPT.__get__(hit)
        if isinstance(pending, tuple):
            make, before = pending
            excerpt, *others = make()
            for own, old, value in zip(_PLACES, before, others, strict=True):
                if own.__get__(hit) == old:
                    own.__set__(hit, value)
            _EXCERPT.__set__(hit, excerpt)  # last, for other threads
        return slot.__get__(hit)

    return property(shown, slot.__set__)


_PLACES = (SearchResult.__dict__["match_line"], *(StoredChunk.__dict__[name] for name in ("page", "row", "place")))
for _slot in (_EXCERPT, *_PLACES):
    setattr(SearchResult, _slot.__name__, _shown(_slot))


def show_when_read(hit: SearchResult, make: Callable[[], Shown]) -> None:
    """Let a hit call `make` for its excerpt and place when one of them is first read; values set before stay."""
    _EXCERPT.__set__(hit, (make, [slot.__get__(hit) for slot in _PLACES]))


def show_scores(hit: SearchResult) -> None:
    """Let the scores of a hit be read from its metadata."""
    stored = _METADATA.__get__(hit)
    if not isinstance(stored, str):
        hit.metadata = HitMetadata(stored, hit.vector_score, hit.rerank_score)


SHOWN_ID = 80
PLACES = ("source", "root", "source_document", "line", "page", "row", "cell", "sheet", "table", "key", "place")
RANKS = ("rank", "vector_rank", "keyword_rank")
SCORES = (
    "vector_score",
    "keyword_score",
    "fused_score",
    "vector_contribution",
    "keyword_contribution",
    "boost",
    "heading_factor",
    "rerank_score",
    "mixed_score",
    "confidence",
)
# A row of the database becomes a hit before its numbers are known.
_numbers_of = attrgetter(*RANKS, *SCORES)
NO_NUMBERS = (0, *[None] * (len(RANKS) + len(SCORES) - 1))


@dataclass(frozen=True, slots=True)
class LegReport:
    """How vector or keyword search answered; ``str()`` gives a line for people.

    Attributes:
        leg: ``vector`` or ``keyword``.
        plan: What was done, in words.
        share: Approximate share of the chunks that pass the filter, 0 to 1, from a sample; None without a filter.
        passing: How many chunks pass the filter, or None if they were not counted.
        candidates: Chunks that were found.
        milliseconds: Time from sending the query to its last row; both searches run at once.
        work: Numbers of semlex's own keyword index: ``postings`` that were read, ``skipped_blocks`` of up to 128
            postings each, and chunks ``rescored`` exactly; otherwise None.
    """

    leg: str
    plan: str
    share: float | None
    passing: int | None
    candidates: int
    milliseconds: float
    work: dict[str, int] | None = None

    def __str__(self) -> str:
        passing = "" if self.passing is None else f", {self.passing:,} chunks"
        kept = "" if self.share is None else f"; the filter keeps about {_percent(self.share)}{passing}"
        found = f"{self.leg}: {self.plan}{kept}; {self.candidates} candidates in {self.milliseconds:.1f} ms"
        return f"{found}; {self.work_in_words}" if self.work else found

    @property
    def work_in_words(self) -> str:
        """The numbers of `work` in words; empty if they were not counted."""
        if self.work is None:
            return ""
        postings, blocks, rescored = (self.work[name] for name in ("postings", "skipped_blocks", "rescored"))
        return f"{postings:,} postings read, {blocks:,} blocks skipped, {rescored:,} chunks rescored"


def _percent(share: float) -> str:
    return "less than 0.1 %" if share < SMALLEST_SHARE else f"{share:.1%}".replace("%", " %")


SMALLEST_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class DocumentHits:
    """A document with its best chunks, from a search that is grouped by document.

    Attributes:
        rank: Place of the document, from 1.
        source, root, source_document: As in `StoredChunk`.
        hits: Its best chunks, best first; they are in the `SearchResults` as well.
    """

    rank: int
    source: str
    root: str
    source_document: str
    hits: list[SearchResult]

    def __repr__(self) -> str:
        return hit_lines(f"DocumentHits {self.rank}. {self._name}", self.hits)

    def _repr_html_(self) -> str:
        return joined([paragraph(bold(f"{self.rank}. {self._name}")), hit_table(self.hits)])

    @property
    def _name(self) -> str:
        return shortened(self.source_document or "".join(hit.id for hit in self.hits[:1]), SHOWN_ID)

    def to_dict(self) -> dict[str, Any]:
        """Return every attribute by its name, as JSON values."""
        return json_object(self)


class SearchResults(list[SearchResult]):
    """The hits of one search, best first (grouped: document by document), and how they were found.

    Attributes:
        mode, requested_mode: The search that answered, and the requested one: ``vector``, ``keyword`` or ``hybrid``.
        embedding_model, reranker_model, fusion: Models and fusion that were used, or None.
        legs: How vector and keyword search answered, by name.
        timings: Milliseconds per stage.
        query_cached: Whether the query's vector was known from an earlier search.
        best_similarity: Greatest cosine among the hits; None without vectors or with another distance.
        coverage: Greatest `SearchResult.coverage` among the hits, or None.
        support: Whether the collection holds what was searched for: ``likely``, ``unsure`` or ``unlikely``. Judged by
            the words of the question that the best hits hold, the best similarity against that of other chunks, and
            whether vector and keyword search agree. ``unsure`` if too little is known.
        warnings: What did not go as requested, for example a failed vector search.
        next_cursor: With ``max_results``, the cursor for the next page; None on the last page.
        without_vector: How many of the hits have no vector yet and were found by their words (``semlex models fill``
            computes missing vectors); None unless the fusion is ``score``.
        documents: The documents with their hits, if the search is grouped by document.
        fallback: Name of the fallback that answered because the search found nothing, such as ``json:handbook``, or
            None.
        explanation: With ``explain=True``, how the hits were found.
        route: The kind of the question, with ``route=``.
        read_from: The server that answered, with its lag, if the client has ``read_from="replica"``; otherwise None.
    """

    mode: SearchMode
    requested_mode: SearchMode
    embedding_model: str | None
    reranker_model: str | None
    fusion: str | None
    legs: dict[str, LegReport]
    timings: dict[str, float]
    query_cached: bool
    best_similarity: float | None
    coverage: float | None
    support: Support
    warnings: list[str]
    next_cursor: str | None
    without_vector: int | None
    documents: list[DocumentHits]
    fallback: str | None
    explanation: SearchExplanation | None
    route: Route | None
    read_from: ReadServer | None

    def __init__(
        self,
        hits: list[SearchResult] | None = None,
        *,
        mode: SearchMode = "hybrid",
        requested_mode: SearchMode = "hybrid",
        embedding_model: str | None = None,
        reranker_model: str | None = None,
        fusion: str | None = None,
        legs: dict[str, LegReport] | None = None,
        timings: dict[str, float] | None = None,
        query_cached: bool = False,
        best_similarity: float | None = None,
        coverage: float | None = None,
        support: Support | None = None,
        warnings: list[str] | None = None,
        next_cursor: str | None = None,
        without_vector: int | None = None,
        documents: list[DocumentHits] | None = None,
        fallback: str | None = None,
        explanation: SearchExplanation | None = None,
        route: Route | None = None,
        read_from: ReadServer | None = None,
    ) -> None:
        super().__init__(hits or [])
        self.mode = mode
        self.requested_mode = requested_mode
        self.embedding_model = embedding_model
        self.reranker_model = reranker_model
        self.fusion = fusion
        self.legs = legs or {}
        self.timings = timings or {}
        self.query_cached = query_cached
        self.best_similarity = best_similarity
        self.coverage = coverage
        self.support = support or ("unsure" if hits else "unlikely")
        self.warnings = warnings or []
        self.next_cursor = next_cursor
        self.without_vector = without_vector
        self.documents = documents or []
        self.fallback = fallback
        self.explanation = explanation
        self.route = route
        self.read_from = read_from

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and, as ``hits``, every hit's `SearchResult.to_dict`, as JSON values."""
        return json_object(vars(self)) | {"hits": [hit.to_dict() for hit in self]}

    def _repr_html_(self) -> str:
        return hit_table(self, self.warnings, verdict=SUPPORT_TEXT[self.support] if self else "")

    def __repr__(self) -> str:
        how = f", fused by {self.fusion}" if self.fusion else ""
        verdict = f", {SUPPORT_TEXT[self.support]}" if self else ""
        return hit_lines(f"SearchResults, {self.mode}{how}{verdict}", self)

    def to_pandas(self) -> DataFrame:
        """Return a data frame with a row per hit (raise `MissingExtraError` without pandas).

        Its columns are rank, score, ``document``, ``place``, ``heading``, text and id; for rows of tables also ``key``
        and the `SearchResult.columns`; and a column for every key of the user's metadata. If a name is taken by an
        earlier column, it gets the prefix ``columns.`` or ``metadata.``.
        """
        try:
            from pandas import DataFrame  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtraError("pandas", "", "SearchResults.to_pandas()") from None
        return DataFrame([_row(hit) for hit in self], columns=None if self else list(_row(SearchResult(""))))

    def to_documents(self) -> list[LangChainDocument]:
        """Return the hits as documents of LangChain (raise `MissingExtraError` without it).

        Unless the user's metadata has these keys, ``source``, ``root``, ``source_document``, ``heading_path``,
        ``line``, ``page``, ``row``, ``cell``, ``sheet``, ``table``, ``key``, ``place`` and the scores are added to it,
        as far as they are known.
        """
        try:
            from langchain_core.documents import Document as LangChainDocument  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtraError("langchain-core", "langchain", "SearchResults.to_documents()") from None
        return [
            LangChainDocument(page_content=hit.content, id=hit.id, metadata=_places_and_scores(hit) | hit.metadata)
            for hit in self
        ]


def _row(hit: SearchResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": hit.rank,
        "score": hit.score,
        "document": hit.source_document,
        "place": hit.place,
        "heading": HEADING_SEPARATOR.join(hit.heading_path),
        "text": hit.content,
        "id": hit.id,
    }
    if hit.table is not None:
        row["key"] = hit.key
    row |= {f"columns.{name}" if name in row else name: value for name, value in (hit.columns or {}).items()}
    return row | {f"metadata.{key}" if key in row else key: value for key, value in hit.metadata.items()}


def _places_and_scores(hit: SearchResult) -> dict[str, Any]:
    places = {name: getattr(hit, name) for name in PLACES}
    places["heading_path"] = list(hit.heading_path)
    shown = {name: value for name, value in places.items() if value not in (None, "", [])}
    return shown | {name: score for name in SCORES if (score := getattr(hit, name)) is not None}


def with_route(results: SearchResults, route: Route | None) -> SearchResults:
    """Store the kind of the question in the results of a search, with a warning if choosing it failed."""
    results.route = route
    if route is not None and route.warning is not None:
        results.warnings.append(route.warning)
    return results


Merge = Literal["calibrated", "ranks"]


@dataclass(slots=True, kw_only=True, repr=False)
class KnowledgeHit(SearchResult):
    """A hit of one of several collections; its `rank` is its place among all of them.

    Attributes:
        collection_rank: Place in its collection, from 1.
        merge_score: What decides its place: its confidence, or 1 / (60 + `collection_rank`).
    """

    collection: str
    collection_rank: int
    merge_score: float


class KnowledgeResults(list[KnowledgeHit]):
    """The hits of several collections, best first, and how they were found.

    Attributes:
        merge: ``calibrated``: by confidence, which every hit has; ``ranks``: by each hit's rank in its collection.
        uncalibrated: Names of collections with hits without a confidence.
        searched: Name of a collection -> the results of this collection.
        skipped: Name of a collection that did not answer -> why; empty unless ``on_error="skip"``.
        support: The best `support` of the collections: whether one of them probably holds what was searched for.
        warnings: What did not go as requested, with the name of the collection; skipped ones first.
    """

    merge: Merge
    uncalibrated: list[str]
    searched: dict[str, SearchResults]
    skipped: dict[str, str]
    warnings: list[str]
    support: Support

    def __init__(
        self,
        hits: list[KnowledgeHit] | None = None,
        *,
        merge: Merge = "ranks",
        uncalibrated: list[str] | None = None,
        searched: dict[str, SearchResults] | None = None,
        skipped: dict[str, str] | None = None,
    ) -> None:
        super().__init__(hits or [])
        self.merge = merge
        self.uncalibrated = uncalibrated or []
        self.searched = searched or {}
        self.skipped = skipped or {}
        self.warnings = [f"collection {name!r} was skipped: {why}" for name, why in self.skipped.items()]
        self.warnings += [f"{name}: {one}" for name, found in self.searched.items() for one in found.warnings]
        judged = {found.support for found in self.searched.values()}
        self.support = "unlikely" if judged == {"unlikely"} else "unsure"
        if "likely" in judged:
            self.support = "likely"

    def _repr_html_(self) -> str:
        return hit_table(self, self.warnings, collections=[hit.collection for hit in self])

    def __repr__(self) -> str:
        return hit_lines(f"KnowledgeResults of {len(self.searched)} collections, merged by {self.merge}", self)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and, as ``hits``, every hit's `KnowledgeHit.to_dict`, as JSON values."""
        attributes = json_object(vars(self))
        attributes["searched"] = {name: found.to_dict() for name, found in self.searched.items()}
        return attributes | {"hits": [hit.to_dict() for hit in self]}


ReadPreference: TypeAlias = Literal["primary", "replica"]
# A replica that lags longer is worth a warning.
MAX_USUAL_LAG = 10.0


@dataclass(frozen=True, slots=True)
class ReadServer:
    """The server that a result was read from, with ``read_from="replica"``.

    Attributes:
        kind: ``replica`` (a standby) or ``primary``.
        lag_seconds: Age of the newest transaction that the replica had replayed; 0.0 if it had replayed all that it
            had received. None if it is not known, and for the primary.
        lag_bytes: Bytes of the write-ahead log that the replica had received and not replayed; None as for
            `lag_seconds`.
        reason: Why the primary answered; None for a replica.
    """

    kind: ReadPreference
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    reason: str | None = None

    @property
    def warnings(self) -> list[str]:
        """Warnings, if any: that the primary answered, or that the replica lags by more than 10 seconds."""
        if self.reason is not None:
            return [f"the primary answered instead of a replica: {self.reason}"]
        if self.lag_seconds is not None and self.lag_seconds > MAX_USUAL_LAG:
            return [f"the replica that answered lags {self.lag_seconds:,.0f} s behind the primary"]
        return []
