"""What is asked of a retriever, checked before anything runs: queries, vectors, ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from semlex import _core
from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.json_values import id_text
from semlex.search.fusion import FusionMethod, check_fusion, is_number, shown
from semlex.search.thresholds import check_thresholds
from semlex.store.indexes.options import MAX_LISTS
from semlex.store.query.filters import Filter, parse_filters
from semlex.store.query.selection import Boost, parse_boosts
from semlex.store.query.vector import MAX_EF_SEARCH
from semlex.types.documents import MAX_ID_BYTES
from semlex.types.queries import DEFAULT_TOP_K, MAX_TOP_K, SearchQuery
from semlex.types.results import SearchMode
from semlex.types.vectors import checked_array
from semlex.validation import (
    check_parameters,
    check_range,
    check_rows,
    number_errors,
    refuse,
    whole_number_errors,
    wrong_type,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from semlex.filters.forms import Boosts, Filters
    from semlex.json_values import AnyId
    from semlex.store.schema.names import Names

MAX_CANDIDATES = 10_000
MAX_QUERIES = 1000  # of one call
DEFAULT_GROUP_SIZE = 3
# Chunks of all documents together, of a search that is grouped.
MAX_GROUPED = 10_000
# Of a filter that keeps less than this share the exact answer is found by reading what passes; of a wider one the
# vector index is asked. 100,000 x 256 real texts, 30 rows: 1/30 exact 19 ms, index 19 ms with recall .95; 1/10 exact
# 44 ms, index 13 ms.
INDEX_SHARE = 0.08
# At most so many ids are read, once for both legs.
EXACT_ROWS = 20_000
MAX_EXACT_ROWS = 1_000_000
# Far below what the server's own time limits can hold.
MAX_DEADLINE_SECONDS = 1_000_000


def check_ids(ids: Iterable[AnyId]) -> list[str]:
    """Refuses ids that cannot stand in the database."""
    if isinstance(ids, (str, bytes, Mapping)) or not isinstance(ids, Iterable):
        raise ValidationError(refuse("ids", "wrong_type", "list of str", type(ids).__name__))
    listed = list(map(id_text, ids))
    check_rows("id", listed, max_bytes=MAX_ID_BYTES)
    return listed


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list a search gives.

    Attributes:
        max_results: Most hits of the list.
        offset: How many of its hits stand before the page.
        fingerprint: Of what the page before has seen of the list; empty for the first page.
        scores: The reranker's, of the first hits in the order of the fusion: float32, shape (n,); None where nothing
            was reranked.
        reranker: What gave them.
    """

    max_results: int
    offset: int = 0
    fingerprint: str = ""
    scores: NDArray[np.float32] | None = None
    reranker: str | None = None

    @property
    def reranked(self) -> int:
        """How many of the first hits have the reranker's scores."""
        return 0 if self.scores is None else len(self.scores)


@dataclass(frozen=True, slots=True)
class Request:
    """A checked search. The fields are the arguments of `PostgreSQLRetriever.search`.

    Attributes:
        page: Which part of a list is asked for; None for a search without pages.
        group_size: Most chunks of a document, where they are grouped; None where they are not.
        boosts: Factors on the fused score.
        clock: Measures the deadline.
        started: Time on that clock at which the search began.
    """

    text: str | None
    vector: NDArray[np.float32] | None
    top_k: int
    condition: Filter
    mode: SearchMode | None
    fusion: FusionMethod
    weights: Mapping[str, float] | None
    rrf_k: float
    candidates: int | None
    ef_search: int | None
    deadline: float | None
    exact_rows: int = EXACT_ROWS
    index_share: float = INDEX_SHARE
    page: Page | None = None
    group_size: int | None = None
    boosts: tuple[Boost, ...] = ()
    probes: int | None = None
    min_similarity: float | None = None
    min_rerank: float | None = None
    clock: Clock = SYSTEM
    started: float = field(default_factory=SYSTEM.monotonic)

    @classmethod
    def checked(
        cls,
        *,
        query: str | SearchQuery | None,
        vector: ArrayLike | None,
        top_k: int | None,
        filters: Filters | None,
        names: Names,
        mode: SearchMode | None,
        candidates: int | None,
        ef_search: int | None,
        deadline: float | None,
        fusion: FusionMethod,
        weights: Mapping[str, float] | None,
        rrf_k: float,
        rerank: bool | None,
        exact_rows: int | None = None,
        index_share: float | None = None,
        max_results: int | None = None,
        group_by: str | None = None,
        group_size: int | None = None,
        boost: Boosts | None = None,
        probes: int | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
        default_top_k: int = DEFAULT_TOP_K,
        oversampling: float | None = None,
        clock: Clock = SYSTEM,
        started: float | None = None,
    ) -> Request:
        """Checks the arguments of a search.

        `default_top_k` is for a call without `top_k` whose query brings none; `oversampling` times the number of
        results is that of the candidates, where neither these nor groups are asked for.
        """
        if isinstance(query, SearchQuery):
            query, vector, top_k, filters = _parts_of(query, vector, top_k, filters)
        top_k = default_top_k if top_k is None else top_k
        array = None if vector is None else checked_array(vector, 1)
        SearchQuery(query, None if array is None else (1.0,), top_k)  # has the rules of text and top_k
        faults = [] if array is None else vector_faults(array)
        if faults:
            raise ValidationError(faults)
        if mode is not None and not (isinstance(mode, str) and mode in get_args(SearchMode)):
            raise ConfigurationError(f"mode must be 'vector', 'keyword' or 'hybrid'; got {shown(mode)}")
        if not isinstance(rerank, (bool, NoneType)):
            raise ConfigurationError(f"rerank must be True, False or None; got {shown(rerank)}")
        if mode == "keyword" and query is None:
            raise ConfigurationError("mode 'keyword' needs a query text")
        least, named = top_k, "top_k"
        if max_results is not None:
            check_parameters(whole_number_errors("max_results", max_results, top_k, MAX_TOP_K))
            least, named = max_results, "max_results"
        candidates = oversampled(candidates, oversampling, least, group_by)
        if not (candidates is None or (_is_integer(candidates) and least <= candidates <= MAX_CANDIDATES)):
            raise ConfigurationError(
                f"candidates must be between {named} ({least}) and {MAX_CANDIDATES:,}; got {shown(candidates)}"
            )
        if ef_search is not None:
            check_range("ef_search", ef_search, 1, MAX_EF_SEARCH)
        if probes is not None:
            check_range("probes", probes, 1, MAX_LISTS)
        check_deadline(deadline)
        check_fusion(fusion, weights, rrf_k)
        check_thresholds(min_similarity, min_rerank, mode=mode, fusion=fusion, paged=max_results is not None)
        exact_rows = EXACT_ROWS if exact_rows is None else exact_rows
        index_share = INDEX_SHARE if index_share is None else index_share
        check_parameters(
            whole_number_errors("exact_rows", exact_rows, 0, MAX_EXACT_ROWS),
            number_errors("index_share", index_share, 0, 1),
        )
        text = None if query is None else query.strip()
        condition = parse_filters(filters, names)
        return cls(
            text,
            array,
            top_k,
            condition,
            mode,
            fusion,
            weights,
            rrf_k,
            candidates,
            ef_search,
            deadline,
            exact_rows,
            index_share,
            None if max_results is None else Page(max_results),
            checked_group_size(group_by, group_size, top_k, max_results),
            parse_boosts(boost, names),
            probes,
            min_similarity,
            min_rerank,
            clock,
            clock.monotonic() if started is None else started,
        )

    @property
    def most(self) -> int:
        """Most hits: of the search, or of the list that is read page by page."""
        return self.top_k if self.page is None else self.page.max_results

    def remaining(self) -> float | None:
        """Seconds until the deadline (at least a millisecond), or None without one."""
        return seconds_left(self.deadline, self.started, self.clock)


def seconds_left(deadline: float | None, started: float, clock: Clock) -> float | None:
    """Seconds until a deadline (at least a millisecond) of what began at a time on a clock; None without one."""
    return None if deadline is None else max(0.001, deadline - (clock.monotonic() - started))


def requests_of(queries: Iterable[str | SearchQuery], **options: Any) -> list[Request]:
    """The requests of many queries that have the same options."""
    if isinstance(queries, (str, bytes, Mapping, SearchQuery)) or not isinstance(queries, Iterable):
        raise ValidationError(wrong_type("queries", "list of str", queries))
    # An option that is wrong is told once, and filters are read once.
    like = Request.checked(query="any", vector=None, deadline=None, **options)
    without_filters = options | {"filters": None, "boost": None}
    requests: list[Request] = []
    errors: list[FieldError] = []
    for row, query in enumerate(queries):
        if row == MAX_QUERIES:
            raise ValidationError(refuse("queries", "too_long", f"{MAX_QUERIES} queries", "more"))
        try:
            if query is None:
                raise ValidationError(wrong_type("query", "str", query))  # noqa: TRY301 (told with its row)
            if isinstance(query, SearchQuery):
                requests.append(Request.checked(query=query, vector=None, deadline=None, **options))
                continue
            request = Request.checked(query=query, vector=None, deadline=None, **without_filters)
            requests.append(replace(request, condition=like.condition, boosts=like.boosts))
        except ValidationError as error:
            errors += [replace(one, row=row) for one in error.errors]
    if errors:
        raise ValidationError(errors)
    return requests


def oversampled(candidates: int | None, oversampling: float | None, most: int, group_by: object) -> int | None:
    """The candidates that are asked for; else, where nothing is grouped, so many times the number of results."""
    if candidates is not None or oversampling is None or group_by is not None:
        return candidates
    return min(max(most, round(oversampling * most)), MAX_CANDIDATES)


def check_deadline(deadline: float | None) -> None:
    """Refuses what is no number of seconds."""
    if not (deadline is None or (is_number(deadline) and 0 < deadline <= MAX_DEADLINE_SECONDS)):
        raise ConfigurationError(
            f"deadline must be above 0 and at most {MAX_DEADLINE_SECONDS:,} seconds; got {shown(deadline)}"
        )


def checked_group_size(group_by: object, group_size: object, top_k: int, max_results: int | None) -> int | None:
    """Most chunks of a document; None where nothing is grouped."""
    if group_by is None:
        if group_size is not None:
            raise ConfigurationError("group_size needs group_by='document'")
        return None
    if not (isinstance(group_by, str) and group_by == "document"):
        raise ConfigurationError(f"group_by must be 'document' or None; got {shown(group_by)}")
    if max_results is not None:
        raise ConfigurationError("group_by and max_results exclude each other: documents are not paged")
    size = DEFAULT_GROUP_SIZE if group_size is None else group_size
    check_range("group_size", size, 1, MAX_GROUPED // top_k)
    return int(size)  # type: ignore[call-overload,no-any-return]


def _parts_of(
    query: SearchQuery, vector: ArrayLike | None, top_k: int | None, filters: Filters | None
) -> tuple[str | None, ArrayLike | None, int, Filters | None]:
    """Text, vector, top_k and filters of a query that brings them all; what is given twice is refused."""
    twice = {
        "vector": vector is not None,
        "top_k": top_k not in (None, DEFAULT_TOP_K, query.top_k),
        "filters": filters is not None,
    }
    if any(twice.values()):
        names = " and ".join(name for name, given in twice.items() if given)
        raise ConfigurationError(
            f"a SearchQuery brings its own {names}: set it there (dataclasses.replace), or search by its text"
        )
    return query.query_text, query.query_embedding, query.top_k, query.filters


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def vector_faults(vector: NDArray[np.float32]) -> list[FieldError]:
    """What is wrong with a query vector, by the rule for stored ones.

    A length out of float32's range would make every cosine NaN.
    """
    found = _core.validate_rows([("vector", "vector", vector[None], None)])
    return [FieldError(-1, None, *error[2:]) for error in found]
