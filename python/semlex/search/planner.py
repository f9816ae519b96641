"""How a request is answered: by which legs, and with how many candidates of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ModelMismatchError
from semlex.store.query.vector import vector_leg

if TYPE_CHECKING:
    from semlex.open_collection import OpenModels
    from semlex.search.request import Request
    from semlex.search.state import SearchState
    from semlex.store.query.leg import LegPlan
    from semlex.store.schema.collection import Collection

MIN_CANDIDATES = 30
OVERSAMPLING = 3  # candidates per leg, times top_k: deep enough that fusion sees what both legs nearly agree on
RERANK_OVERSAMPLING = 4  # candidates for the reranker, times top_k


def choose_legs(request: Request, collection: Collection, models: OpenModels) -> tuple[list[str], list[str]]:
    """The legs that answer a request, and what the user should know of the choice.

    Raises:
        ConfigurationError: No keyword engine for mode="keyword".
        EmbeddingsMissingError: No vectors for mode="vector", or nothing to search by at all.
        ModelError: Nothing embeds the query of mode="vector".
    """
    has_vectors = collection.embedding is not None
    can_embed = request.vector is not None or (models.embedder is not None and request.text is not None)
    vector = has_vectors and can_embed
    keyword = request.text is not None and collection.settings.keyword_engine != "none"
    name = collection.names.collection
    if request.mode == "vector" or (request.mode is None and not keyword and not vector):
        if not has_vectors:
            raise EmbeddingsMissingError(
                f"collection {name!r} holds no vectors yet; fill them in with: semlex embed --collection {name}"
            )
        if not can_embed:
            models.refuse_without_model()
            raise ModelError("no embedding model is open to embed the query: name one, or pass vector=")
        return ["vector"], []
    warnings = []
    if models.missing is not None and has_vectors and not can_embed and request.mode != "keyword":
        warnings.append(f"answered by words alone: {models.missing}")
    if request.mode == "keyword" or (request.mode is None and not vector):
        if not keyword:
            raise ConfigurationError(f"collection {name!r} was made without a keyword engine (keyword='none')")
        return ["keyword"], warnings
    legs = [leg for leg, possible in (("vector", vector), ("keyword", keyword)) if possible]
    if not legs:
        raise EmbeddingsMissingError(f"collection {name!r} has neither vectors nor a keyword engine for this query")
    if request.mode == "hybrid" and len(legs) == 1:
        missing = "keyword" if legs == ["vector"] else "vector"
        warnings.append(f"the {missing} leg is not possible here; the {legs[0]} leg answers alone")
    return legs, warnings


def candidate_depth(request: Request, *, reranks: bool) -> int:
    """How many candidates each leg finds."""
    if request.candidates is not None:
        return request.candidates
    depth = max(MIN_CANDIDATES, OVERSAMPLING * request.top_k)
    return max(depth, RERANK_OVERSAMPLING * request.top_k) if reranks else depth


def rows_wanted(request: Request, *, reranks: bool) -> int:
    """How many hits are loaded."""
    return request.top_k * (RERANK_OVERSAMPLING if reranks else 1)


def plan_legs(state: SearchState, collection: Collection, depth: int, *, exact: bool) -> list[LegPlan]:
    """The legs of a search that can run.

    Args:
        state: Says which are wanted, and has the query's vector.
        collection: As opened.
        depth: Candidates of each leg.
        exact: Whether the vector leg goes round its index.

    Raises:
        ModelMismatchError: The query's vector has another length than the stored ones.
    """
    request, vector, stored = state.request, state.vector, collection.embedding
    plans: list[LegPlan] = []
    if "vector" in state.legs and vector is not None and stored is not None:
        if vector.shape != (stored.dimensions,):
            raise ModelMismatchError(
                f"the query vector has {vector.shape[0]} dimensions, the collection's {stored.dimensions}"
            )
        plans.append(vector_leg(collection, vector, depth, request.condition, exact=exact, ef_search=request.ef_search))
    if "keyword" in state.legs and request.text is not None:
        leg = collection.keyword.leg(
            collection.names, request.text, depth, request.condition, with_phrases=state.with_phrases
        )
        if leg is not None:
            plans.append(leg)
    return plans
