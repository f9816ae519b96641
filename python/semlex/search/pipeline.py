"""One search: its stages in order."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from semlex.errors import (
    ConfigurationError,
    EmbeddingsMissingError,
    ModelError,
    ModelMismatchError,
    SemlexError,
)
from semlex.search.fusion import (
    DEFAULT_VECTOR_WEIGHT,
    LEGS,
    Candidate,
    candidates_of,
    fuse,
    fuse_completed,
    vector_weight,
)
from semlex.search.model_answers import embedding_error, kind_of, usable_scores, usable_vector
from semlex.search.request import MAX_CANDIDATES
from semlex.store.postgres.database import in_time
from semlex.store.postgres.settings import set_local
from semlex.store.query.chunks import load_results
from semlex.store.query.filters import unknown_fields
from semlex.store.query.legs import (
    Leg,
    LegAnswer,
    completed_scores,
    failed,
    run_legs,
    run_remaining_legs,
    union_of,
    without_excluded,
)
from semlex.store.query.vector import register_vector_parameter, vector_leg
from semlex.types.results import HitMetadata, SearchMode, SearchResult, SearchResults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.fusion import FusionMethod
    from semlex.search.request import Request
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.legs import Union
    from semlex.store.query.score_calibration import Spread

MINIMUM_CANDIDATES = 30
DEEPER = 4  # times the candidates, when those that were found are not enough
OVERSAMPLING = 3  # candidates per leg, times top_k: deep enough that fusion sees what both legs nearly agree on
RERANK_OVERSAMPLING = 4  # candidates for the reranker, times top_k
# Share of a deadline that embedding the query may take; the rest is the database's.
EMBEDDING_SHARE = 0.7
# Share of what is left then that all legs together may take; the rest is for loading the rows of what they found.
LEGS_SHARE = 0.8
# Share of the rest that completing the scores may take.
COMPLETION_SHARE = 0.5
# Seconds that looking for the fields of a filter may take, when nothing passed it.
LOOK_SECONDS = 1.0
# Scores of a candidate that its hit bears.
STAGE_SCORES = ("vector_score", "keyword_score", "fused_score", "vector_contribution", "keyword_contribution")


@dataclass(slots=True)
class _Found:
    """What the database part of a search brings."""

    answers: dict[str, LegAnswer]
    fusion: FusionMethod
    hits: list[tuple[Candidate, SearchResult]]
    short_of_rows: bool
    words_left_out: bool


class Search:
    """Runs requests against an open collection.

    Args:
        opened: The collection.
        reranker: Orders the best candidates; None for the fused order.
    """

    def __init__(self, opened: OpenCollection, reranker: Reranker | None) -> None:
        self._database = opened.database
        self._collection = opened.info
        self._embedder = opened.models.embedder
        self._reranker = reranker
        self._models = opened.models
        # What the embedder is, as it said when it was opened: asking it again may mean waiting for its model.
        self._identity = "" if opened.models.version is None else opened.models.version.identity_key
        self._caller = opened.caller
        self._query_cache = opened.query_cache
        self._sample = opened.sample
        self._query_cached = False
        self._spread: Spread | None = None
        # Makes the keyword leg, given the number of candidates.
        self._keyword_leg: Callable[[int], Leg | None] = lambda _: None
        self._timings: dict[str, float] = {}
        self._warnings: list[str] = []

    async def run(self, request: Request) -> SearchResults:
        """Embeds, searches, fuses, loads, reranks."""
        text = request.text or ""
        lexical, names = self._collection.lexical, self._collection.names
        self._keyword_leg = lambda depth: lexical.leg(names, text, depth, request.condition)
        wanted = self._legs_of(request)
        vector = request.vector
        answers: dict[str, LegAnswer] = {}
        if "vector" in wanted and vector is None:
            outcome = await self._embed(request, alone=wanted == ["vector"])
            if isinstance(outcome, LegAnswer):
                answers["vector"] = outcome
            else:
                vector = outcome
        found = await self._find_enough(request, wanted, vector, answers)
        keyword = found.answers.get("keyword")
        if not found.hits and keyword is not None and keyword.by_words is not None:
            told = "no chunk was found that holds the quoted phrase; its words were searched instead"
            self._warnings += [*keyword.warnings, told]
            self._keyword_leg = keyword.by_words
            found = await self._find_enough(request, wanted, vector, answers)
        hits = found.hits
        reranked = None
        if self._reranker is not None and request.text is not None and hits:
            hits, reranked = await self._rerank(request, self._reranker, hits)
        results = [_scored(hit, candidate, rank) for rank, (candidate, hit) in enumerate(hits[: request.top_k], 1)]
        if not results and request.condition.fields:
            self._warnings += await self._unknown_fields(request)
        return self._results(request, wanted, found, results, reranked)

    async def _find_enough(
        self,
        request: Request,
        wanted: list[str],
        vector: NDArray[np.float32] | None,
        failures: dict[str, LegAnswer],
    ) -> _Found:
        """As `_find`, again and deeper where that brings rows that are lacking."""
        depth = self._depth(request)
        found = await self._find(request, wanted, vector, failures, depth)
        if found.short_of_rows:
            # Rows were deleted behind our back: their vectors still stand. Look again past them, exactly.
            found = await self._find(request, wanted, vector, failures, depth, exact=True)
        while found.words_left_out and len(found.hits) < request.top_k and depth < MAX_CANDIDATES:
            # The nearest chunks hold words that the query excludes: look among more of them, if there are more. What
            # holds a phrase has its words, too, and was found by them.
            if len(found.answers["vector"].keys) < depth or found.answers["keyword"].by_words is not None:
                break
            depth = min(depth * DEEPER, MAX_CANDIDATES)
            found = await self._find(request, wanted, vector, failures, depth)
        return found

    # --- which legs -------------------------------------------------------------------------------------------------

    def _legs_of(self, request: Request) -> list[str]:
        has_vectors = self._collection.embedding is not None
        can_embed = request.vector is not None or (self._embedder is not None and request.text is not None)
        vector = has_vectors and can_embed
        keyword = request.text is not None and self._collection.settings.lexical_engine != "none"
        name = self._collection.names.collection
        if request.mode == "vector" or (request.mode is None and not keyword and not vector):
            if not has_vectors:
                raise EmbeddingsMissingError(
                    f"collection {name!r} holds no vectors yet; fill them in with: semlex embed --collection {name}"
                )
            if not can_embed:
                self._models.refuse_without_model()
                raise ModelError("no embedding model is open to embed the query: name one, or pass vector=")
            return ["vector"]
        if self._models.missing is not None and has_vectors and not can_embed and request.mode != "keyword":
            self._warnings.append(f"answered by words alone: {self._models.missing}")
        if request.mode == "keyword" or (request.mode is None and not vector):
            if not keyword:
                raise ConfigurationError(f"collection {name!r} was made without a keyword engine (lexical='none')")
            return ["keyword"]
        legs = [leg for leg, possible in (("vector", vector), ("keyword", keyword)) if possible]
        if not legs:
            raise EmbeddingsMissingError(f"collection {name!r} has neither vectors nor a keyword engine for this query")
        if request.mode == "hybrid" and len(legs) == 1:
            missing = "keyword" if legs == ["vector"] else "vector"
            self._warnings.append(f"the {missing} leg is not possible here; the {legs[0]} leg answers alone")
        return legs

    def _depth(self, request: Request) -> int:
        if request.candidates is not None:
            return request.candidates
        depth = max(MINIMUM_CANDIDATES, OVERSAMPLING * request.top_k)
        return max(depth, RERANK_OVERSAMPLING * request.top_k) if self._reranker is not None else depth

    # --- the stages -------------------------------------------------------------------------------------------------

    async def _embed(self, request: Request, *, alone: bool) -> NDArray[np.float32] | LegAnswer:
        """The query's vector, or the failed answer of the vector leg when another leg can go on without it."""
        embedder = self._embedder
        if embedder is None or request.text is None:
            raise ModelError("no embedding model is open to embed the query")
        remaining = request.remaining()
        limit = None if remaining is None else remaining * (1.0 if alone else EMBEDDING_SHARE)
        started = time.perf_counter()
        deadline: asyncio.Timeout | None = None
        try:
            made = self._query_cache.find(self._identity, request.text)
            self._query_cached = made is not None
            if made is None:
                async with asyncio.timeout(limit) as deadline:
                    made = await self._caller.query(
                        self._query_cache.embed, embedder, self._identity, request.text, model=embedder
                    )
            vector = usable_vector(made)
        except Exception as reason:  # noqa: BLE001 - whatever a model raises, the other leg may answer
            error = embedding_error(reason, request, is_late=deadline is not None and deadline.expired())
            if alone:
                raise error from (None if isinstance(reason, (SemlexError, TimeoutError)) else reason)
        else:
            self._timings["embed"] = (time.perf_counter() - started) * 1000
            return vector
        return failed(error, (time.perf_counter() - started) * 1000)

    async def _unknown_fields(self, request: Request) -> list[str]:
        """Why nothing may have passed the filter, as far as that can be told soon."""
        remaining = request.remaining()
        seconds = LOOK_SECONDS if remaining is None else min(LOOK_SECONDS, remaining)

        async def look(connection: Connection) -> list[str]:
            await _limit(connection, seconds)
            told = await in_time(
                connection, lambda: unknown_fields(connection, self._collection.names, request.condition)
            )
            return told or []

        try:
            return await self._database.read("look at the filter's fields", look, deadline=remaining)
        except SemlexError:
            return []  # the answer stands without the hint

    def _statements(
        self, request: Request, wanted: list[str], vector: NDArray[np.float32] | None, depth: int, *, exact: bool
    ) -> list[Leg]:
        legs: list[Leg] = []
        stored = self._collection.embedding
        if "vector" in wanted and vector is not None and stored is not None:
            if vector.shape != (stored.dimensions,):
                raise ModelMismatchError(
                    f"the query vector has {vector.shape[0]} dimensions, the collection's {stored.dimensions}"
                )
            legs.append(
                vector_leg(self._collection, vector, depth, request.condition, exact=exact, ef_search=request.ef_search)
            )
        if "keyword" in wanted and request.text is not None:
            leg = self._keyword_leg(depth)
            if leg is not None:
                legs.append(leg)
        return legs

    async def _find(
        self,
        request: Request,
        wanted: list[str],
        vector: NDArray[np.float32] | None,
        failures: dict[str, LegAnswer],
        depth: int,
        *,
        exact: bool = False,
    ) -> _Found:
        legs = self._statements(request, wanted, vector, depth, exact=exact)
        remaining = request.remaining()
        # The server measures each statement by itself.
        leg_seconds = None if remaining is None or not legs else remaining * LEGS_SHARE / len(legs)

        async def work(connection: Connection) -> _Found | dict[str, LegAnswer]:
            register_vector_parameter(connection)
            await _limit(connection, leg_seconds)
            answers = await run_legs(connection, legs, partial(self._prepare_fusion, request, legs, vector))
            if len(answers) < len(legs) or any(answer.error for answer in answers.values()):
                return answers
            nearest = answers.get("vector")
            if nearest is not None and len(nearest.keys) < depth and request.condition.is_empty and not exact:
                # The index may stop early (dead rows, its own limits); an exact scan tells whether more exist.
                again = vector_leg(self._collection, _not_none(vector), depth, request.condition, exact=True)
                complete = await run_legs(connection, [again])
                if complete["vector"].error is not None:
                    return answers  # out of time: what the index found stands
                answers |= complete
            return await self._load(connection, request, vector, failures | answers)

        started = time.perf_counter()
        outcome = await self._database.read("search", work, deadline=request.remaining())
        if not isinstance(outcome, _Found):
            answers = dict(outcome)
            limit = partial(_limit, seconds=leg_seconds)
            await run_remaining_legs(self._database, legs, answers, limit, request.remaining)
            complete = failures | answers
            load = partial(self._load, request=request, vector=vector, answers=complete)
            outcome = await self._database.read("search", load, deadline=request.remaining())
        self._timings["database"] = self._timings.get("database", 0.0) + (time.perf_counter() - started) * 1000
        return outcome

    async def _load(
        self,
        connection: Connection,
        request: Request,
        vector: NDArray[np.float32] | None,
        answers: dict[str, LegAnswer],
    ) -> _Found:
        good = {name: answer for name, answer in answers.items() if answer.error is None}
        if not good:
            raise next(answer.error for answer in answers.values() if answer.error is not None)
        good, words_left_out = await without_excluded(connection, good)
        fused, fusion = await self._fuse(connection, request, vector, good)
        await _limit(connection, request.remaining())
        wanted = request.top_k * (RERANK_OVERSAMPLING if self._reranker is not None else 1)
        coverage = good["keyword"].coverage if "keyword" in good else None
        hits: list[tuple[Candidate, SearchResult]] = []
        dropped = 0
        # Rows that are gone are replaced by the next candidates.
        while len(hits) < wanted and (batch := list(islice(fused, wanted - len(hits)))):
            keys = [candidate.key for candidate in batch]
            loaded = await load_results(connection, self._collection, keys, request.text, coverage)
            hits += [(candidate, loaded[candidate.key]) for candidate in batch if candidate.key in loaded]
            dropped += len(batch) - len(loaded)
        short = dropped > 0 and len(hits) < wanted
        return _Found(answers, fusion, hits, short_of_rows=short, words_left_out=words_left_out)

    async def _fuse(
        self,
        connection: Connection,
        request: Request,
        vector: NDArray[np.float32] | None,
        answers: dict[str, LegAnswer],
    ) -> tuple[Iterator[Candidate], FusionMethod]:
        """Candidates, best first, and the fusion that ordered them; one leg's own order stands."""
        union = union_of(answers)
        if len(answers) < len(LEGS):
            return candidates_of(answers, union), request.fusion
        if request.fusion != "completed":
            fused = fuse(answers, union, method=request.fusion, weights=request.weights, rrf_k=request.rrf_k)
            return fused, request.fusion
        query = _not_none(vector)
        remaining = request.remaining()
        if remaining is None:
            return await self._complete(connection, request, query, answers, union), "completed"

        async def complete() -> Iterator[Candidate]:
            await _limit(connection, remaining * COMPLETION_SHARE)
            return await self._complete(connection, request, query, answers, union)

        completed = await in_time(connection, complete)
        return (fuse(answers, union, method="rrf"), "rrf") if completed is None else (completed, "completed")

    def _prepare_fusion(self, request: Request, legs: list[Leg], vector: NDArray[np.float32] | None) -> None:
        """What completed fusion needs that does not depend on what the legs find."""
        if request.fusion == "completed" and len(legs) == len(LEGS):
            self._spread = self._sample.spread_at_hand(self._collection, _not_none(vector))

    async def _complete(
        self,
        connection: Connection,
        request: Request,
        vector: NDArray[np.float32],
        answers: dict[str, LegAnswer],
        union: Union,
    ) -> Iterator[Candidate]:
        """Candidates by both legs' scores of all that either found."""
        declared = getattr(self._embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
        weight = vector_weight(request.weights, declared)
        scores = await completed_scores(connection, answers, union)
        spread = self._spread or await self._sample.spread(connection, self._collection, vector)
        return fuse_completed(answers, union, scores, spread=spread, weight=weight)

    async def _rerank(
        self, request: Request, reranker: Reranker, hits: list[tuple[Candidate, SearchResult]]
    ) -> tuple[list[tuple[Candidate, SearchResult]], str | None]:
        started = time.perf_counter()
        deadline: asyncio.Timeout | None = None
        texts = [hit.content for _, hit in hits]
        try:
            async with asyncio.timeout(request.remaining()) as deadline:
                judged = await self._caller.query(reranker.score, request.text, texts, model=reranker)
            scores = usable_scores(judged, len(texts))
        except Exception as reason:  # noqa: BLE001 - whatever a model raises, the fused answer stands
            is_late = deadline is not None and deadline.expired()
            what = "was late for the deadline" if is_late else f"failed ({kind_of(reason)})"
            self._warnings.append(f"the reranker {what}; the order is that of the fusion")
            return hits, None
        self._timings["rerank"] = (time.perf_counter() - started) * 1000
        for (_, hit), score in zip(hits, scores.tolist(), strict=True):
            hit.rerank_score = score + 0.0  # never -0.0
        # A stable sort keeps the fused order among equals.
        return sorted(hits, key=lambda pair: -(pair[1].rerank_score or 0.0)), reranker.identity

    def _results(
        self,
        request: Request,
        wanted: list[str],
        found: _Found,
        results: list[SearchResult],
        reranked: str | None,
    ) -> SearchResults:
        answers = found.answers
        answered = [name for name in wanted if name in answers and answers[name].error is None]
        for name in wanted:
            error = answers[name].error if name in answers else None
            if error is not None:
                self._warnings.append(f"the {name} leg did not answer: {error}")
        if found.fusion != request.fusion:
            self._warnings.append("the legs' scores were not completed in time; the order is that of rrf")
        for name in answered:
            self._warnings += answers[name].warnings
            self._timings[f"{name}_leg"] = answers[name].milliseconds
        self._timings["total"] = (time.perf_counter() - request.started) * 1000
        embedding = self._collection.embedding
        is_cosine = self._collection.distance.name == "cosine"
        similarities = [hit.vector_score for hit in results if hit.vector_score is not None and is_cosine]
        return SearchResults(
            results,
            mode=_mode(answered),
            requested_mode=request.mode or _mode(wanted),
            embedding_model=embedding.model if embedding is not None and "vector" in answered else None,
            reranker_model=reranked,
            fusion=found.fusion if len(answered) > 1 else None,
            leg_hits={name: len(answers[name].keys) for name in answered},
            timings=self._timings,
            query_cached=self._query_cached,
            best_similarity=max(similarities, default=None),
            coverage=max((hit.coverage for hit in results if hit.coverage is not None), default=None),
            warnings=list(dict.fromkeys(self._warnings)),
        )


async def _limit(connection: Connection, seconds: float | None) -> None:
    """Lets no statement of this transaction take longer."""
    if seconds is not None:
        await set_local(connection, statement_timeout=math.ceil(seconds * 1000))


def _mode(legs: list[str]) -> SearchMode:
    if legs == ["vector"]:
        return "vector"
    return "keyword" if legs == ["keyword"] else "hybrid"


def _not_none(vector: NDArray[np.float32] | None) -> NDArray[np.float32]:
    if vector is None:
        raise ModelError("the vector leg ran without a vector")
    return vector


def _scored(hit: SearchResult, candidate: Candidate, rank: int) -> SearchResult:
    """The loaded row with the scores of every stage; two of them can be read from the metadata, too."""
    hit.rank, hit.vector_rank, hit.keyword_rank = rank, candidate.vector_rank, candidate.keyword_rank
    for name in STAGE_SCORES:
        score = getattr(candidate, name)
        # Adding 0 makes -0.0 an ordinary zero.
        setattr(hit, name, None if score is None else score + 0.0)
    hit.metadata = HitMetadata(hit.metadata, hit.vector_score, hit.rerank_score)
    return hit
