"""Decide which searches (vector, keyword) answer a request, how many candidates they find, and by which plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ModelMismatchError, ValidationError
from semlex.options.search import MAX_CANDIDATES
from semlex.store.embedding_versions import MAX_ROW_BYTES
from semlex.store.indexes.choice import wanted_vector_index
from semlex.store.keyword.engine import LegRequest
from semlex.store.query.passing_rows import BYTES_BESIDE, MAX_VECTOR_BYTES
from semlex.store.query.vector import VectorPlan, filtered_ef_search, vector_leg
from semlex.store.schema.collection import CollectionInfo, for_model
from semlex.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.open_collection import OpenModels
    from semlex.search.request import Request
    from semlex.search.state import SearchState
    from semlex.store.indexes.catalog import VectorIndexes
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import BestRows, LegPlan

MIN_CANDIDATES = 30
OVERSAMPLING = 3  # candidates per leg, times top_k: deep enough that fusion sees what both legs nearly agree on
# Rows of all queries of one call together: they are in memory at the same time.
MAX_ROWS = 50_000
RERANK_OVERSAMPLING = 4  # candidates for the reranker, times top_k
# A scan of so many numbers takes about a second: of 250,000 vectors of 1,024 dimensions, or of a million of 256.
MAX_SCANNED_NUMBERS = 256_000_000
# Rows that pass a filter are compared instead of using the vector index if they are at most so many times its list of
# candidates; of vectors that the server keeps out of line, because they have more bytes, a part of that.
ROWS_PER_CANDIDATE = 20
MAX_INLINE_BYTES, OUT_OF_LINE_COST = MAX_ROW_BYTES - 80, 4
# They are also compared if their rounded vectors are kept in memory, and are at most so many numbers.
MAX_COMPARED_NUMBERS = 5_120_000
# Reading the rows costs as much as so many searches gain.
SEARCHES_BEFORE_ROWS = 8
NEVER = 2**31
# Above this share a scan is faster than one look-up after another.
SCAN_SHARE = 0.2


def choose_legs(request: Request, collection: CollectionInfo, models: OpenModels) -> tuple[list[str], list[str]]:
    """Return which searches (vector, keyword) answer a request, and warnings about the choice."""
    has_vectors = collection.embedding is not None
    can_embed = request.vector is not None or (models.embedder is not None and request.text is not None)
    vector = has_vectors and can_embed
    keyword = request.text is not None and collection.settings.keyword_engine != "none"
    name = collection.names.collection
    if request.mode == "vector" or (request.mode != "keyword" and not keyword and not vector):
        if not has_vectors and models.version is not None:
            for_model(collection, models.version)
        if not has_vectors:
            raise EmbeddingsMissingError(
                f"collection {name!r} holds no vectors yet; compute them with: semlex models fill --collection {name}"
            )
        if not can_embed:
            models.refuse_without_model()
            by_words = ", or search by words (mode='keyword')" if keyword else ""
            raise ModelError(
                f"the model that made the vectors of collection {name!r} is not loaded: name it (embedding_model=, "
                f"--model), or give the query's vector (vector=){by_words}"
            )
        return ["vector"], []
    warnings = []
    if models.missing is not None and has_vectors and not can_embed and request.mode != "keyword":
        warnings.append(f"answered by words alone: {models.missing}")
    if request.mode == "keyword" or (request.mode is None and not vector):
        if not keyword:
            raise ConfigurationError(f"collection {name!r} has no keyword engine (keyword='none'): use mode='vector'")
        return ["keyword"], warnings
    legs = [leg for leg, possible in (("vector", vector), ("keyword", keyword)) if possible]
    if request.mode == "hybrid" and len(legs) == 1:
        missing = "keyword" if legs == ["vector"] else "vector"
        warnings.append(f"{missing} search is not possible here; {legs[0]} search answers alone")
    return legs, warnings


def candidate_depth(request: Request, *, reranks: bool, legs: Sequence[str] = ()) -> int:
    """Return how many candidates each search finds."""
    if request.candidates is not None:
        return request.candidates
    if list(legs) == ["vector"] and not request.condition.is_empty and request.group_size is None:
        # The leg's order is the answer, and the rows that it finds exist: no more are looked for.
        return rows_wanted(request, reranks=reranks)
    depth = max(MIN_CANDIDATES, OVERSAMPLING * request.most * (request.group_size or 1))
    depth = max(depth, RERANK_OVERSAMPLING * request.top_k) if reranks else depth
    return min(depth, MAX_CANDIDATES)


def check_rows_wanted(requests: Sequence[Request], *, reranks: bool) -> None:
    """Refuse queries of one call that together would load too many chunks."""
    rows = sum(rows_wanted(request, reranks=reranks) for request in requests)
    if rows > MAX_ROWS:
        limit = f"so small that all queries of a call load at most {MAX_ROWS} chunks; use fewer queries per call"
        raise ValidationError(refuse("top_k", "out_of_range", limit, str(rows)))


def documents_wanted(request: Request, *, reranks: bool) -> int:
    """Return how many documents to load; for a reranker, enough for about 4 x top_k chunks."""
    if not reranks or request.group_size is None:
        return request.top_k
    return max(request.top_k, -(-RERANK_OVERSAMPLING * request.top_k // request.group_size))


def rows_wanted(request: Request, *, reranks: bool) -> int:
    """Return how many hits to load; for a page also those before it and one after it."""
    page, reranked = request.page, request.top_k * (RERANK_OVERSAMPLING if reranks else 1)
    if page is None:
        return reranked
    first = reranked if reranks and not page.offset else page.reranked
    return max(first, min(page.offset + request.top_k + 1, page.max_results))


def vector_plan(selection: Filter, *, has_index: bool, min_share: float) -> VectorPlan:
    """Return how vector search finds its chunks, with or without the index."""
    is_wide = selection.is_empty or (selection.share is not None and selection.share >= min_share)
    return "index" if is_wide and has_index else exact_plan(selection)


def exact_plan(selection: Filter) -> VectorPlan:
    """Return the plan by which vector search finds its chunks without the vector index."""
    is_narrow = selection.ids is not None or (selection.share is not None and selection.share < SCAN_SHARE)
    return "keys" if is_narrow else "scan"


def searches_before_rows(
    request: Request,
    collection: CollectionInfo,
    indexes: VectorIndexes,
    selection: Filter,
    *,
    plan: VectorPlan,
    legs: Sequence[str],
) -> int | None:
    """Return how many searches with one filter run before the passing rows are read into memory; None: never read."""
    # With `NEVER` they are read if the index finds too few, and used while it probably would.
    share = selection.share or 0.0
    expected = share * indexes.rows
    if plan == "scan" or expected > request.max_filter_rows:
        return None
    if collection.names.partitions:  # a place says nothing without its partition
        return None
    if plan == "keys":  # it reads these rows anyway, and keyword search reads their ids
        return 0 if "keyword" in legs else 1
    tuned = any(request.tuning.get(name) is not None for name in ("min_filter_share", "ef_search", "probes"))
    if tuned or not expected:
        return None
    vectors = collection.vectors
    keeps_vectors = bytes_of_vectors(collection, expected) is not None
    if keeps_vectors and expected * vectors.dimensions <= MAX_COMPARED_NUMBERS:
        return SEARCHES_BEFORE_ROWS
    is_inline = vectors.dimensions * (2 if vectors.storage == "halfvec" else 4) <= MAX_INLINE_BYTES
    listed = filtered_ef_search(share, indexes.rows)
    most = ROWS_PER_CANDIDATE / (1 if is_inline else OUT_OF_LINE_COST) * listed
    return SEARCHES_BEFORE_ROWS if expected <= most else NEVER


def bytes_of_vectors(collection: CollectionInfo, rows: float) -> float | None:
    """Return the bytes of `rows` rows' vectors in memory; None if these are too many or are not compared by cosine."""
    size = rows * (collection.vectors.dimensions + BYTES_BESIDE)
    return size if collection.distance.name == "cosine" and size <= MAX_VECTOR_BYTES else None


def is_slow_without_index(collection: CollectionInfo, indexes: VectorIndexes) -> bool:
    """Return whether the index that the collection should have is missing, and comparing all vectors takes seconds."""
    if indexes.used is not None or indexes.rows * collection.vectors.dimensions <= MAX_SCANNED_NUMBERS:
        return False
    wanted = wanted_vector_index(collection, indexes)
    return wanted is not None and wanted.is_missing(indexes)


def plan_legs(
    state: SearchState,
    depth: int,
    selection: Filter,
    *,
    plan: VectorPlan,
    indexes: VectorIndexes,
    # Whether the vector index is searched past dead rows.
    iterates: bool = False,
    # Columns of hits that a search that answers alone returns with its best chunks, if it can.
    rows: BestRows | None = None,
) -> list[LegPlan]:
    """Return the plans of the vector and keyword searches that can run."""
    request, collection, vector = state.request, state.collection, state.vector
    stored = collection.embedding
    plans: list[LegPlan] = []
    if "vector" in state.legs and "vector" not in state.failed and vector is not None and stored is not None:
        if vector.shape != (stored.dimensions,):
            raise ModelMismatchError(
                f"the query vector has {vector.shape[0]} dimensions, the collection's vectors have {stored.dimensions}"
            )
        plans.append(
            vector_leg(
                collection,
                vector,
                depth,
                selection,
                plan=plan,
                indexes=indexes,
                ef_search=request.tuning.get("ef_search"),
                probes=request.tuning.get("probes"),
                iterates=iterates,
            )
        )
    query = state.keyword_query
    if "keyword" in state.legs and "keyword" not in state.failed and query is not None:
        # Engines without an index of semlex take the filter as it is written.
        condition = state.condition if collection.keyword.index is None else selection
        wanted = LegRequest(collection, query, depth, condition, state.with_phrases, None if plans else rows)
        leg = collection.keyword.leg(wanted)
        if leg is not None:
            plans.append(leg)
    return plans
