"""Results: hits, and how they were found. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import MissingExtraError, ValidationError
from semlex.types.display import bold, hit_lines, hit_table, joined, paragraph, shortened
from semlex.types.documents import StoredChunk, json_value
from semlex.validation import number_errors, whole_number_errors

if TYPE_CHECKING:
    from langchain_core.documents import Document as LangChainDocument

    from semlex.types.explanations import SearchExplanation
    from semlex.types.queries import Route


SearchMode = Literal["vector", "keyword", "hybrid"]


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
        keyword_score: The keyword engine's own score; comparable only within one query. Completed fusion gives both
            scores to every hit: 0 where no word matches, None where there is no vector.
        fused_score: Score of the fusion; not a similarity, and in completed fusion without bounds: mostly 0 to 1, below
            0 for what neither words nor vector speak for, above 1 for a vector more than 6 standard deviations near.
        vector_contribution: What the vector leg adds to the fused score of completed fusion.
        keyword_contribution: What the keyword leg adds to it.
        boost: Product of the factors of the boosts that fit it, which the fused score holds; None where none were
            given. Where one leg answered alone, the fused score is that leg's score times this.
        rerank_score: The reranker's score: 0 to 1 from all that semlex brings, any finite number from one of your own.
        excerpt: A short part of the content with the matched words between ``**``.
        match_line: Line of its document on which the first matched word stands, from 1; None where no word matched, or
            the document has no lines (it was added, not read from a file).
        coverage: Share of the question's weight whose words occur in the chunk, 0 to 1; each word weighs by its idf, so
            a rare one more than a common one, and one that no chunk has the most. None without a keyword leg, for
            engines other than ``bm25``, and where the question has no word to look for.
        confidence: Probability that the hit is relevant, by the collection's calibration (``semlex eval calibrate``);
            None without one, and for a hit without a cosine.

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
    boost: float | None = None
    rerank_score: float | None = None
    excerpt: str = ""
    match_line: int | None = None
    coverage: float | None = None
    confidence: float | None = None

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
        """The hit as a table of one row, which notebooks show."""
        return hit_table([self])

    def __repr__(self) -> str:
        """Rank, id, place, and the scores that there are; the text is in `content`."""
        parts = [f"rank={self.rank}", f"id={shortened(self.id, SHOWN_ID)!r}"]
        parts += [f"place={shortened(place, SHOWN_ID)!r}"] if (place := self.place) else []
        parts += [f"{name}={score:.4g}" for name in SCORES if (score := getattr(self, name)) is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

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


SHOWN_ID = 80
RANKS = ("rank", "vector_rank", "keyword_rank")
SCORES = (
    "vector_score",
    "keyword_score",
    "fused_score",
    "vector_contribution",
    "keyword_contribution",
    "boost",
    "rerank_score",
    "confidence",
)
# A row of the database becomes a hit before its numbers are known.
_numbers_of = attrgetter(*RANKS, *SCORES)
NO_NUMBERS = (0, *[None] * (len(RANKS) + len(SCORES) - 1))


@dataclass(frozen=True, slots=True)
class LegReport:
    """How one leg answered; as text, a line for people.

    Attributes:
        leg: ``vector`` or ``keyword``.
        plan: What was done, in words.
        share: About which share of the chunks passes the filter, 0 to 1, by a sample; None without a filter.
        passing: How many chunks pass it; None where they were not counted.
        candidates: Chunks that the leg found.
        milliseconds: From sending to the last row; the legs of one search overlap.
    """

    leg: str
    plan: str
    share: float | None
    passing: int | None
    candidates: int
    milliseconds: float

    def __str__(self) -> str:
        passing = "" if self.passing is None else f", {self.passing:,} chunks"
        kept = "" if self.share is None else f"; the filter keeps about {_percent(self.share)}{passing}"
        return f"{self.leg}: {self.plan}{kept}; {self.candidates} candidates in {self.milliseconds:.1f} ms"


def _percent(share: float) -> str:
    return "less than 0.1 %" if share < SMALLEST_SHARE else f"{share:.1%}".replace("%", " %")


SMALLEST_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class DocumentHits:
    """A document with its best chunks, of a search that is grouped by document.

    Attributes:
        rank: Place of the document, from 1.
        source: Name of the source that it was read from; "" for added documents.
        root: Folder of that source; "" for added documents.
        source_document: Path below that folder; for added documents the name in their metadata, "" where there is none.
        hits: Its best chunks, best first; they stand in the `SearchResults` as well.
    """

    rank: int
    source: str
    root: str
    source_document: str
    hits: list[SearchResult]

    def __repr__(self) -> str:
        """The document, and its hits, a line each."""
        return hit_lines(f"DocumentHits {self.rank}. {self._name}", self.hits)

    def _repr_html_(self) -> str:
        """The document with its hits as a table, which notebooks show."""
        return joined([paragraph(bold(f"{self.rank}. {self._name}")), hit_table(self.hits)])

    @property
    def _name(self) -> str:
        return shortened(self.source_document or "".join(hit.id for hit in self.hits[:1]), SHOWN_ID)

    def to_dict(self) -> dict[str, Any]:
        """Every attribute by its name, of JSON's types only."""
        values: dict[str, Any] = json_value(self)
        return values


class SearchResults(list[SearchResult]):
    """The hits of one search, best first, and how they were found.

    Grouped by document, the hits stand document by document, each document's best first.

    Attributes:
        mode: The legs that answered: ``vector``, ``keyword`` or ``hybrid``.
        requested_mode: The legs that were asked for.
        embedding_model: Identity of the model that embedded the query, or None.
        reranker_model: Identity of the reranker, or None when no reranking took place.
        fusion: Name of the fusion, or None when one leg answered.
        legs: How each leg answered, by its name.
        timings: Milliseconds per stage.
        query_cached: Whether the query's vector was known from an earlier search.
        best_similarity: Greatest cosine among the hits; None without vectors or with another distance.
        coverage: Greatest `SearchResult.coverage` among the hits; None where no hit has one. Where both are low, the
            collection probably holds no answer.
        warnings: What did not go as asked, for example a leg that failed; empty when all went well.
        next_cursor: Leads to the next page of a list that is read page by page; None where there is none.
        without_vector: How many of the hits have no vector yet and were found by their words (``semlex embed`` makes
            what is missing); None without both legs, and with another fusion than ``completed``, which do not know it.
        documents: The documents with their hits, best first, of a search that is grouped by document; else empty.
        fallback: What answered because the search found nothing, such as ``json:handbook``, or None.
        explanation: What the answer rests on, of a search with ``explain=True``; else None.
        route: The kind of the question by which the search was made; None without ``route=``.
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
        legs: dict[str, LegReport] | None = None,
        timings: dict[str, float] | None = None,
        query_cached: bool = False,
        best_similarity: float | None = None,
        coverage: float | None = None,
        warnings: list[str] | None = None,
        next_cursor: str | None = None,
        without_vector: int | None = None,
        documents: list[DocumentHits] | None = None,
        fallback: str | None = None,
        explanation: SearchExplanation | None = None,
        route: Route | None = None,
    ) -> None:
        super().__init__(hits or [])
        self.mode: SearchMode = mode
        self.requested_mode: SearchMode = requested_mode
        self.embedding_model = embedding_model
        self.reranker_model = reranker_model
        self.fusion = fusion
        self.legs = legs or {}
        self.timings = timings or {}
        self.query_cached = query_cached
        self.best_similarity = best_similarity
        self.coverage = coverage
        self.warnings = warnings or []
        self.next_cursor = next_cursor
        self.without_vector = without_vector
        self.documents = documents or []
        self.fallback = fallback
        self.explanation = explanation
        self.route = route

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``hits``, every hit's `SearchResult.to_dict`: of JSON's types only."""
        attributes: dict[str, Any] = json_value(vars(self))
        return attributes | {"hits": [hit.to_dict() for hit in self]}

    def _repr_html_(self) -> str:
        """The hits as a table, which notebooks show."""
        return hit_table(self, self.warnings)

    def __repr__(self) -> str:
        """How the hits were found, and the first of them, a line each."""
        how = f", fused by {self.fusion}" if self.fusion else ""
        return hit_lines(f"SearchResults, {self.mode}{how}", self)

    def to_documents(self) -> list[LangChainDocument]:
        """The hits as documents of LangChain.

        The metadata is the user's. Beside it, unless the user has such a key, stand ``source``, ``root``,
        ``source_document``, ``heading_path``, ``line`` and ``page`` where they are known, and the scores.

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


def _places_and_scores(hit: SearchResult) -> dict[str, Any]:
    places = {name: getattr(hit, name) for name in ("source", "root", "source_document", "line", "page")}
    places["heading_path"] = list(hit.heading_path)
    shown = {name: value for name, value in places.items() if value}
    return shown | {name: score for name in SCORES if (score := getattr(hit, name)) is not None}


def with_route(results: SearchResults, route: Route | None) -> SearchResults:
    """Notes by which route hits were found, with what went wrong when it was chosen."""
    results.route = route
    if route is not None and route.warning is not None:
        results.warnings.append(route.warning)
    return results


Merge = Literal["calibrated", "ranks"]


@dataclass(slots=True, kw_only=True, repr=False)
class KnowledgeHit(SearchResult):
    """A hit of one of several collections. Its `rank` is its place among all of them.

    Attributes:
        collection: The collection's name in the knowledge base.
        collection_rank: Place in the answer of its collection, from 1.
        merge_score: What it was placed by: its confidence, or 1 / (60 + `collection_rank`).
    """

    collection: str
    collection_rank: int
    merge_score: float


class KnowledgeResults(list[KnowledgeHit]):
    """The hits of several collections, best first, and how they were found.

    Attributes:
        merge: ``calibrated``: by confidence, which every hit has; ``ranks``: by the place in the own collection's
            answer.
        uncalibrated: The collections that have hits without a confidence, by name.
        searched: Name of a collection -> its own answer, with its legs, times and warnings.
        skipped: Name of a collection that did not answer -> why; empty unless ``on_error="skip"``.
        warnings: What did not go as asked, each with the name of its collection; what was skipped comes first.
    """

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
        self.merge: Merge = merge
        self.uncalibrated = uncalibrated or []
        self.searched = searched or {}
        self.skipped = skipped or {}
        self.warnings = [f"collection {name!r} was skipped: {why}" for name, why in self.skipped.items()]
        self.warnings += [f"{name}: {one}" for name, found in self.searched.items() for one in found.warnings]

    def _repr_html_(self) -> str:
        """The hits as a table, which notebooks show."""
        return hit_table(self, self.warnings, collections=[hit.collection for hit in self])

    def __repr__(self) -> str:
        """How the answers were merged, and the first hits, a line each."""
        return hit_lines(f"KnowledgeResults of {len(self.searched)} collections, merged by {self.merge}", self)

    def to_dict(self) -> dict[str, Any]:
        """The attributes and, as ``hits``, every hit's `KnowledgeHit.to_dict`: of JSON's types only."""
        attributes: dict[str, Any] = json_value(vars(self))
        attributes["searched"] = {name: found.to_dict() for name, found in self.searched.items()}
        return attributes | {"hits": [hit.to_dict() for hit in self]}
