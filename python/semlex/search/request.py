"""Check the arguments of a search before anything runs: queries, vectors, ids, and minimum scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

from semlex import _core
from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.json_values import AnyId, id_text
from semlex.options.declare import declared
from semlex.options.search import (
    DEFAULT_GROUP_SIZE,
    MAX_CANDIDATES,
    MAX_FILTER_IDS,
    MAX_FILTER_ROWS,
    MAX_GROUPED,
    MIN_FILTER_SHARE,
    OLD_SCORE,
    RRF_K,
    FusionMethod,
    SearchArguments,
    SearchDefaults,
    SearchOptions,
    Tuning,
)
from semlex.search.fusion import Candidate, check_weights
from semlex.store.keyword.base import PLAIN, without_operators
from semlex.store.query.filters import Filter, parse_filters
from semlex.store.query.selection import Boost, parse_boosts
from semlex.types.documents import MAX_ID_BYTES
from semlex.types.queries import DEFAULT_TOP_K, MAX_TOP_K, Rewrite, Route, SearchQuery, words_of_terms
from semlex.types.vectors import checked_array
from semlex.validation import check_parameters, check_range, check_rows, refuse, shown, whole_number_errors, wrong_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from semlex.filters.forms import Filters
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.types.results import SearchMode

MAX_QUERIES = 1000  # of one call
OPERATORS_NOTE = (
    "the query reads as a sentence or a command line, so words with a dash or in quotes were searched like other "
    "words; to leave words out, use exclude"
)
NO_DEFAULTS = SearchDefaults()


def check_ids(ids: Iterable[AnyId]) -> list[str]:
    """Return ids as texts; refuse ids that no chunk can have."""
    if isinstance(ids, (str, bytes, Mapping)) or not isinstance(ids, Iterable):
        raise ValidationError(refuse("ids", "wrong_type", "list of str", type(ids).__name__))
    listed = list(map(id_text, ids))
    check_rows("id", listed, max_bytes=MAX_ID_BYTES)
    return listed


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a longer list of hits: its position, and data about the hits on earlier pages."""

    max_results: int  # of the whole list
    offset: int = 0  # number of hits before the page
    fingerprint: str = ""  # of the hits on earlier pages; empty for the first page
    # For the first n hits in the order of the fusion, the reranker's scores, then the mixed ones: float32, shape (2,
    # n); None without a reranker.
    scores: NDArray[np.float32] | None = None
    reranker: str | None = None  # the model that gave the scores

    @property
    def reranked(self) -> int:
        """How many of the first hits have the reranker's scores."""
        return 0 if self.scores is None else self.scores.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The checked arguments of a search."""

    text: str | None
    vector: NDArray[np.float32] | None
    top_k: int
    condition: Filter
    # The text that keyword search reads: the terms, then the query's text; if that is a sentence or a command line,
    # without its dashes and quotes.
    words: str | None = None
    terms: str = ""  # searched together with the text
    terms_by: str | None = None  # the language model that wrote the terms; None if the caller did
    mode: SearchMode | None = None
    rerank: bool | None = None
    fusion: FusionMethod = "score"
    page: Page | None = None  # None for a search without pages
    group_size: int | None = None  # maximum number of chunks of a document, if hits are grouped
    boosts: tuple[Boost, ...] = ()  # factors on the fused score
    # The other options, after defaults; stages read their own by name.
    options: SearchOptions = field(default_factory=SearchOptions)
    tuning: Tuning = field(default_factory=Tuning)  # numbers of candidates and other limits
    route: Route | None = None  # the kind of the question, if it was determined
    notes: tuple[str, ...] = ()  # what the results report about defaults that the call cannot keep
    clock: Clock = SYSTEM  # measures the deadline
    started: float = field(default_factory=SYSTEM.monotonic)  # on that clock, in seconds

    @classmethod
    def of(
        cls,
        query: str | SearchQuery | None,
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        names: Names,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        options: SearchOptions | None = None,
        defaults: SearchDefaults = NO_DEFAULTS,
        route: Route | None = None,
        rewrite: Rewrite | None = None,
        clock: Clock = SYSTEM,
        started: float | None = None,
    ) -> Request:
        """Make a request from a call, whose options `check_options` has checked, and the defaults of its retriever."""
        given = cast("SearchOptions", {name: value for name, value in (options or {}).items() if value is not None})
        vector, terms = given.pop("vector", None), given.pop("terms", None)
        if isinstance(query, SearchQuery):
            query, vector, top_k, filters, terms = _parts_of(query, vector, top_k, filters, terms)
        rewrite = rewrite or Rewrite()
        if (words := words_of_terms(terms) or words_of_terms(rewrite.terms)) and query is None:
            raise ConfigurationError("terms are searched together with a query text: give a query text, or no terms")
        top_k = defaults.get("top_k") if top_k is None else top_k
        top_k = DEFAULT_TOP_K if top_k is None else top_k
        array = None if vector is None else checked_array(vector, 1)
        SearchQuery(query, None if array is None else (1.0,), top_k)  # has the rules of text and top_k
        # A length out of float32's range would make every cosine NaN.
        faults = [] if array is None else _core.validate_rows([("vector", "vector", array[None], None)])
        if faults:
            raise ValidationError(FieldError(-1, None, *fault[2:]) for fault in faults)
        check_parameters(declared(SearchArguments)["mode"].errors(mode))
        if not isinstance(rerank, (bool, NoneType)):
            raise ConfigurationError(f"rerank must be True, False or None; got {shown(rerank)}")
        if mode == "keyword" and query is None:
            raise ConfigurationError("mode 'keyword' needs a query text")
        if mode is None and query is not None:
            mode = defaults.get("mode")
        text = None if query is None else query.strip()
        plain = None if text is None else without_operators(text)
        searched = text if plain is None else plain
        for one in given.get("exclude") or ():
            if not PLAIN.terms(one):
                raise ConfigurationError(f"every entry of exclude must contain a word; got {shown(one)}")
        given.pop("rewrite", None)
        notes = [*_fill(given, defaults, mode), *([OPERATORS_NOTE] if plain is not None else [])]
        notes += [] if rewrite.warning is None else [rewrite.warning]
        tuning, most = _tuning(given, defaults, top_k)
        fusion = cast("FusionMethod", given.get("fusion") or "score")
        check_weights(fusion, given.get("weights"))
        check_thresholds(given, mode)
        max_results = given.get("max_results")
        return cls(
            text=text,
            vector=array,
            top_k=top_k,
            condition=parse_filters(filters, names),
            words=f"{words} {searched}" if words else searched,
            terms=words,
            terms_by=rewrite.model,
            mode=mode,
            rerank=rerank,
            fusion=fusion,
            page=None if max_results is None else Page(most),
            group_size=_group_size(given, top_k),
            boosts=parse_boosts(given.get("boost"), names),
            options=given,
            tuning=tuning,
            route=route,
            notes=tuple(notes),
            clock=clock,
            started=clock.monotonic() if started is None else started,
        )

    @property
    def exclude(self) -> list[str]:
        """Words and phrases that no hit may contain, in addition to the exclusions in the text."""
        return list(self.options.get("exclude") or ())

    @property
    def embedded_texts(self) -> tuple[str, ...]:
        """The texts that vector search embeds: the query's text and the terms."""
        return tuple(text for text in (self.text, self.terms) if text)

    @property
    def most(self) -> int:
        """Maximum number of hits: of the search, or of the list that is read page by page."""
        return self.top_k if self.page is None else self.page.max_results

    @property
    def candidates(self) -> int | None:
        """Number of candidates of each search; None for the default."""
        return self.tuning.get("candidates")

    @property
    def rrf_k(self) -> float:
        """Constant of reciprocal rank fusion."""
        given = self.options.get("rrf_k")
        return RRF_K if given is None else given

    @property
    def max_filter_ids(self) -> int:
        """If at most this many chunks pass a filter, their ids are read as a list."""
        given = self.tuning.get("max_filter_ids")
        return MAX_FILTER_IDS if given is None else given

    @property
    def max_filter_rows(self) -> int:
        """Maximum number of passing rows that are remembered for a filter."""
        given = self.tuning.get("max_filter_ids")
        return MAX_FILTER_ROWS if given is None else given

    def min_filter_share(self, vectors: int) -> float:
        """Return the share of all vectors that must pass a filter for the vector index to be used."""
        given = self.tuning.get("min_filter_share")
        return min(MIN_FILTER_SHARE, MAX_FILTER_ROWS / max(vectors, 1)) if given is None else given

    def remaining(self) -> float | None:
        """Seconds until the deadline (at least a millisecond), or None without one."""
        return seconds_left(self.options.get("deadline"), self.started, self.clock)

    def with_candidates(self, candidates: int | None, **changes: Any) -> Request:
        """Return this search with another number of candidates, and other changes."""
        return replace(self, tuning=Tuning(**{**self.tuning, "candidates": candidates}), **changes)

    def without(self, *options: str, **changes: Any) -> Request:
        """Return this search without some of its options, and with other changes."""
        left = {name: value for name, value in self.options.items() if name not in options}
        return replace(self, options=cast("SearchOptions", left), **changes)


def _fill(options: SearchOptions, defaults: SearchDefaults, mode: SearchMode | None) -> tuple[str, ...]:
    """Add the retriever's defaults for options that a call leaves out; return notes on defaults that cannot apply."""
    for name in ("fusion", "rrf_k"):
        if options.get(name) is None and defaults.get(name) is not None:
            options[name] = defaults[name]
    if options.get("fusion") == OLD_SCORE:
        options["fusion"] = "score"
    weight = defaults.get("hybrid_weight")
    if options.get("weights") is None and weight is not None:
        options["weights"] = {"vector": weight, "keyword": 1 - weight}
    least = defaults.get("min_similarity")
    if options.get("min_similarity") is None and least is not None:
        if found := without_cosines(options, mode):
            return (f"the default min_similarity={least:g} is ignored: {found[0]}",)
        options["min_similarity"] = least
    return ()


def _tuning(options: SearchOptions, defaults: SearchDefaults, top_k: int) -> tuple[Tuning, int]:
    """Return the search's tuning, and the maximum number of its hits."""
    most, named = top_k, "top_k"
    max_results = options.get("max_results")
    if max_results is not None:
        check_parameters(whole_number_errors("max_results", max_results, top_k, MAX_TOP_K))
        most, named = max_results, "max_results"
    tuning = Tuning(**(options.pop("tuning", None) or {}))
    candidates, oversampling = tuning.get("candidates"), defaults.get("oversampling")
    if candidates is None and oversampling is not None and options.get("group_by") is None:
        tuning["candidates"] = min(max(most, round(oversampling * most)), MAX_CANDIDATES)
    elif candidates is not None and candidates < most:
        raise ConfigurationError(
            f"candidates must be between {named} ({most}) and {MAX_CANDIDATES:,}; got {shown(candidates)}"
        )
    return tuning, most


def _group_size(options: SearchOptions, top_k: int) -> int | None:
    """Return the maximum number of chunks of a document; None if nothing is grouped."""
    size = options.get("group_size")
    if options.get("group_by") is None:
        if size is not None:
            raise ConfigurationError("group_size needs group_by='document'")
        return None
    if options.get("max_results") is not None:
        raise ConfigurationError("group_by and max_results exclude each other: documents are not paged")
    size = DEFAULT_GROUP_SIZE if size is None else size
    check_range("group_size", size, 1, MAX_GROUPED // top_k)
    return size


def seconds_left(deadline: float | None, started: float, clock: Clock) -> float | None:
    """Return the seconds, at least a millisecond, until the deadline of work that began at `started`, or None."""
    return None if deadline is None else max(0.001, deadline - (clock.monotonic() - started))


def requests_of(queries: Iterable[str | SearchQuery], filters: Filters | None, **call: Any) -> list[Request]:
    """Return the requests of many queries that share the options of `Request.of`."""
    if isinstance(queries, (str, bytes, Mapping, SearchQuery)) or not isinstance(queries, Iterable):
        raise ValidationError(wrong_type("queries", "list of str", queries))
    # A wrong option is reported once, and filters are read once.
    like = Request.of("any", filters=filters, **call)
    options = cast("SearchOptions", dict(call.pop("options")))
    boost = options.pop("boost", None)
    requests: list[Request] = []
    errors: list[FieldError] = []
    for row, query in enumerate(queries):
        if row == MAX_QUERIES:
            raise ValidationError(refuse("queries", "too_long", f"{MAX_QUERIES} queries", "more"))
        try:
            if query is None:
                raise ValidationError(wrong_type("query", "str", query))  # noqa: TRY301 (reported with its row)
            if isinstance(query, SearchQuery):
                requests.append(Request.of(query, filters=filters, options=options | {"boost": boost}, **call))
                continue
            request = Request.of(query, options=options, **call)
            requests.append(replace(request, condition=like.condition, boosts=like.boosts))
        except ValidationError as error:
            errors += [replace(one, row=row) for one in error.errors]
    if errors:
        raise ValidationError(errors)
    return requests


def _parts_of(
    query: SearchQuery,
    vector: ArrayLike | None,
    top_k: int | None,
    filters: Filters | None,
    terms: str | Sequence[str] | None,
) -> tuple[str | None, ArrayLike | None, int, Filters | None, str | Sequence[str] | None]:
    """Return text, vector, top_k, filters and terms of a `SearchQuery`; refuse arguments that are given twice."""
    twice = {
        "vector": vector is not None,
        "top_k": top_k not in (None, DEFAULT_TOP_K, query.top_k),
        "filters": filters is not None,
        "terms": terms is not None and query.terms is not None,
    }
    if any(twice.values()):
        names = " and ".join(name for name, given in twice.items() if given)
        raise ConfigurationError(
            f"{names} cannot be given beside a SearchQuery: set them in the SearchQuery (dataclasses.replace), or "
            "pass its text as the query"
        )
    return query.query_text, query.query_embedding, query.top_k, query.filters, query.terms or terms


def check_thresholds(options: SearchOptions, mode: str | None) -> None:
    """Refuse thresholds that a search cannot apply."""
    if options.get("min_similarity") is not None and (found := without_cosines(options, mode)):
        raise ConfigurationError(f"min_similarity cannot be applied: {found[0]}; {found[1]}")
    if options.get("min_rerank") is not None and options.get("max_results") is not None:
        raise ConfigurationError("min_rerank cannot be combined with max_results: leave max_results out, raise top_k")


def without_cosines(options: SearchOptions, mode: str | None) -> tuple[str, str] | None:
    """Return why a search cannot apply a minimum cosine, and what helps; None if it can."""
    if mode == "keyword":
        return "mode 'keyword' computes no cosines", "use another mode"
    if options.get("max_results") is not None:
        return "it cannot be combined with max_results (hits page by page)", "leave max_results out, raise top_k"
    if mode != "vector" and options.get("fusion") not in (None, "score"):
        why = f"the fusion {options['fusion']!r} does not compute the cosine of every hit"
        return why, "use fusion='score' or mode='vector'"
    return None


def check_similarity(collection: CollectionInfo, legs: Iterable[str]) -> None:
    """Refuse a minimum cosine if the search computes no cosines."""
    if collection.distance.name != "cosine":
        raise ConfigurationError(
            f"min_similarity is a cosine; collection {collection.names.collection!r} compares by "
            f"{collection.distance.name}"
        )
    if "vector" not in legs:
        raise ConfigurationError(
            "min_similarity needs vector search, and this search has no vector: name a model with "
            "embedding_model= or --model, or give vector="
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Summary of the candidates to which a minimum cosine was applied."""

    least: float  # the minimum cosine
    best: float | None  # greatest cosine of all candidates; None if no candidate has one
    unknown: int  # candidates without a cosine: without a vector, or not computed in time

    def notes(self, hits: int) -> list[str]:
        """Return the warnings about left-out candidates, for a search with this number of hits."""
        notes = []
        if not hits and self.best is not None:
            notes.append(f"no candidate reaches min_similarity={self.least:g}; the best cosine is {self.best:.3f}")
        if self.unknown:
            notes.append(
                f"{self.unknown} chunks were left out because they have no cosine to compare with min_similarity: "
                "they have no vector (semlex models fill computes missing vectors), or time was short"
            )
        return notes


def reaching(candidates: Iterable[Candidate], least: float) -> tuple[list[Candidate], LeftOut | None]:
    """Return the candidates whose cosine is `least` or more, and a summary (None if `candidates` is empty)."""
    every = list(candidates)
    scores = [candidate.vector_score for candidate in every]
    known = [score for score in scores if score is not None]
    kept = [one for one, score in zip(every, scores, strict=True) if score is not None and score >= least]
    return kept, LeftOut(least, max(known, default=None), len(every) - len(known)) if every else None
