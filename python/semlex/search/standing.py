"""Find the rank of a document in a search, its place among all candidates, and arguments that would make it a hit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semlex.filters.evaluate import failing
from semlex.options.search import MAX_CANDIDATES
from semlex.search.planner import documents_wanted, rows_wanted
from semlex.search.retrieval import Retrieval
from semlex.store.keyword.base import TermScores, texts_of
from semlex.store.keyword.engine import LegRequest
from semlex.store.query.chunks import DocumentKey, documents_of
from semlex.store.query.documents import NamedDocument, Records, find_named, read_records
from semlex.store.query.explain import VectorRank, read_fields, read_passes, vector_rank
from semlex.store.query.run import ask, fetch, run_legs
from semlex.store.query.vector import register_vector_parameter
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.open_collection import OpenCollection
    from semlex.search.fusion import Candidate
    from semlex.search.pipeline import SearchPipeline
    from semlex.search.state import Found, SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key


# A larger top_k may mean more candidates, and these another place.
MAX_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Reach:
    """Arguments that were tried and bring a document into the results."""

    top_k: int  # the necessary one; for a list that is read page by page, its `max_results`
    candidates: int | None  # of vector and of keyword search; None if the default is enough


@dataclass(frozen=True, slots=True)
class Ranking:
    """All candidates of a search, in the order of the fusion, and a document's chunks among them."""

    candidates: list[Candidate]  # best first
    own: frozenset[Key]  # of the document's chunks that pass the filter
    first: frozenset[Key]  # candidates that the stages after the fusion received
    documents: Mapping[Key, DocumentKey] | None  # of each candidate, if the search is grouped
    reranks: bool  # whether a reranker orders the first ones

    @property
    def best(self) -> tuple[int, Candidate] | None:
        """Return the document's best candidate with its place, from 1; None if it has no candidate."""
        return next(((place, one) for place, one in enumerate(self.candidates, 1) if one.key in self.own), None)

    @property
    def farthest(self) -> list[Key]:
        """Return keys of the document's chunks that reached the stages after the fusion, else of its best candidate."""
        later = [one.key for one in self.candidates if one.key in self.own & self.first]
        return later or ([] if self.best is None else [self.best[1].key])

    @property
    def place(self) -> int | None:
        """The place in the results, from 1: of the best candidate, or of the document if the search is grouped."""
        return _place(self.candidates, self.own, self.documents)

    def place_in_document(self, key: Key) -> int:
        """Return the place of a candidate among the candidates of its document, from 1; for grouped searches."""
        documents = self.documents or {}
        mine = [one.key for one in self.candidates if documents.get(one.key) == documents.get(key)]
        return mine.index(key) + 1

    async def reach(
        self, snapshot: Snapshot, opened: OpenCollection, state: SearchState, ranks: Sequence[int]
    ) -> Reach | None:
        """Return arguments with which the document passes the fusion; None if it passes now or no arguments help."""
        request, wanted = state.request, state.request.top_k
        if request.page is not None:
            return await self._of_list(opened, state, ranks, request.page.max_results)
        # Of a document that is in, the chunk may have better ones beside it.
        is_in = self.documents is not None and (self.place or wanted + 1) <= wanted
        if is_in or self.own & self.first:
            return None
        given = request.candidates
        if self.best is None:
            given = max(min(ranks, default=MAX_CANDIDATES + 1), wanted)
        for _ in range(MAX_LOOKS if given is None or given <= MAX_CANDIDATES else 0):
            is_in, place = await self._with(snapshot, opened, state, Reach(wanted, given))
            if is_in:
                if given is not None and request.candidates is None:
                    by_itself, _ = await self._with(snapshot, opened, state, Reach(wanted, None))
                    given = None if by_itself else given
                return Reach(wanted, given)
            room = (rows_wanted if self.documents is None else documents_wanted)(
                replace(request, top_k=wanted), reranks=self.reranks
            )
            if place is None or (wanted := max(wanted + 1, -(-place * wanted // room))) > MAX_TOP_K:
                return None
            given = None if given is None else max(given, wanted)
        return None

    async def _of_list(
        self, opened: OpenCollection, state: SearchState, ranks: Sequence[int], most: int
    ) -> Reach | None:
        """Do the work of `reach` for a list that is read page by page, for which `Reach.top_k` is the list's length."""
        place = self.place
        depth = min(ranks, default=MAX_CANDIDATES + 1) if place is None else max(place, state.request.candidates or 0)
        if place is not None and place <= most:
            return None
        for _ in range(MAX_LOOKS):
            if depth > MAX_CANDIDATES:
                return None
            place = _place(await _all(opened, state, max(depth, most)), self.own, None)
            if place is None or place > MAX_TOP_K:
                return None
            if place <= max(depth, most):
                return Reach(max(place, most), max(depth, most))
            depth = place
        return None

    async def _with(
        self, snapshot: Snapshot, opened: OpenCollection, state: SearchState, reach: Reach
    ) -> tuple[bool, int | None]:
        """Return whether the document passes the fusion with other arguments, and if not, its place with these."""
        asked = state.copy()
        asked.request = state.request.without("deadline", top_k=reach.top_k).with_candidates(reach.candidates)
        found = await Retrieval(opened, reranks=self.reranks).find_enough(asked)
        if any(candidate.key in self.own for candidate, _ in found.hits):
            return True, None
        candidates = await _all(opened, state, found.depth)
        return False, _place(candidates, self.own, await _documents(snapshot, state, candidates))


def _place(
    candidates: Sequence[Candidate], own: frozenset[Key], documents: Mapping[Key, DocumentKey] | None
) -> int | None:
    if documents is None:
        return next((place for place, one in enumerate(candidates, 1) if one.key in own), None)
    order = list(dict.fromkeys(documents[one.key] for one in candidates if one.key in documents))
    mine = {documents[key] for key in own if key in documents}
    return next((place for place, one in enumerate(order, 1) if one in mine), None)


async def _documents(
    snapshot: Snapshot, state: SearchState, candidates: Sequence[Candidate]
) -> dict[Key, DocumentKey] | None:
    """Return the document of each candidate; None if the search is not grouped."""
    if state.request.group_size is None:
        return None
    return await documents_of(snapshot.connection, state.collection, [one.key for one in candidates])


async def _all(opened: OpenCollection, state: SearchState, depth: int) -> list[Candidate]:
    """Return all candidates at a depth, by running the search again with a `top_k` that keeps all of them."""
    unbounded = state.request.without("deadline", "min_similarity", top_k=2 * depth, page=None, group_size=None)
    own = state.copy()
    own.request = unbounded.with_candidates(depth)
    found = await Retrieval(opened, reranks=False).find(own, depth)
    return [candidate for candidate, _ in found.hits]


# Chunks of which it is looked up why they do not pass the filter.
MAX_FILTERED = 1_000


@dataclass(frozen=True, slots=True)
class KeywordRank:
    """The rank of a document's best chunk in keyword search."""

    key: Key | None = None  # None if the query's exclusions leave out all chunks, or nothing is known
    score: float | None = None  # 0 if the chunk shares no word with the query; None if unknown
    rank: int | None = None  # among all chunks that pass the filter; None after the first 10,000


@dataclass(frozen=True, slots=True)
class Standing:
    """The rank of a document in a search, with all that explains it."""

    state: SearchState
    found: Found  # hits that its database stages found
    named: NamedDocument
    passes: dict[Key, bool]  # whether each of the document's chunks passes the filter
    failing: list[str]  # smallest parts of the filter that the best fitting chunk fails; empty if a chunk passes
    vector: VectorRank | None  # the nearest chunk that passes; None without one, or without vector search
    keyword: KeywordRank | None  # the best chunk that passes in the keyword search; None without one
    broken: list[str]  # quotes and exclusions of the query that its chunks violate; empty if a chunk violates none
    ranking: Ranking  # all candidates, with the place of the document among them
    chunks: list[Key]  # the document's chunks that passed the most stages, the best first
    terms: list[TermScores] | None  # the query's words, with what they add to the scores of `chunks`; None if unknown
    reach: Reach | None  # arguments that bring the document into the results; None if it is there, or none help


async def find_standing(
    opened: OpenCollection,
    pipeline: SearchPipeline,
    begun: SearchState,
    document: str,
    places: Sequence[tuple[str, str]],
) -> Standing | Records:
    """Find a document's rank; if no document has the name, return recent indexing runs and known paths instead."""

    async def look(snapshot: Snapshot) -> Standing | Records:
        register_vector_parameter(snapshot.connection)
        state = begun.copy()  # this may be run once more
        named = await find_named(snapshot.connection, opened.info.names, document, places)
        if named is None:
            return await read_records(snapshot.connection, opened.info.names)
        inside = opened.within(snapshot)
        found = await pipeline.find(state, inside)
        return await _standing(snapshot, inside, state, found, named, reranks=pipeline.reranks)

    return await opened.reader.read_snapshot("explain a search", look, with_vectors=True)


async def _standing(
    snapshot: Snapshot, opened: OpenCollection, state: SearchState, found: Found, named: NamedDocument, *, reranks: bool
) -> Standing:
    condition, collection = state.condition, state.collection
    passes = await read_passes(snapshot, collection, condition, named.keys)
    passing = [key for key, one in passes.items() if one]
    left_out = [] if passing or not passes else await _failing(snapshot, state, list(passes))
    vector = None
    if "vector" in found.answered and state.vector is not None and passing:
        vector = await vector_rank(snapshot, collection, state.vector, condition, passing)
    keyword = await _keyword_rank(snapshot, state, found, passing) if passing else None
    broken: list[str] = []
    is_unread = bool(state.request.exclude) and not collection.keyword.reads_operators
    is_left_out = keyword is None or (keyword.score is None and found.results["keyword"].has_exclusions)
    if passing and (is_unread or is_left_out):
        told = await _broken(snapshot, state, passing, by_words=keyword is not None)
        broken = list(dict.fromkeys(one for own in told for one in own)) if all(told) else []
    candidates = await _all(opened, state, found.depth)
    documents = await _documents(snapshot, state, candidates)
    first = frozenset(candidate.key for candidate, _ in found.hits)
    ranking = Ranking(candidates, frozenset(passing), first, documents, reranks)
    chunks = ranking.farthest or [one.key for one in (keyword, vector) if one is not None and one.key is not None]
    chunks = chunks or passing[:1] or list(passes)[:1]
    terms = None
    query = state.keyword_query
    if "keyword" in found.answered and query is not None and chunks:
        terms = await collection.keyword.term_scores(snapshot, collection.names, query, chunks)
    reach = None
    if passing and not broken:
        ranks = [one.rank for one in (vector, keyword) if one is not None and one.rank is not None]
        reach = await ranking.reach(snapshot, opened, state, ranks)
    return Standing(state, found, named, passes, left_out, vector, keyword, broken, ranking, chunks, terms, reach)


async def _broken(snapshot: Snapshot, state: SearchState, keys: list[Key], *, by_words: bool) -> list[list[str]]:
    """Return which of the query's exclusions and (with keyword search) quoted phrases each chunk breaks."""
    collection, request = state.collection, state.request
    if by_words and collection.keyword.reads_operators:
        return await collection.keyword.broken_conditions(
            snapshot, collection.names, state.keyword_query or "", keys, with_phrases=state.with_phrases
        )
    exclusions = collection.keyword.exclusions(request.words, request.exclude)
    if exclusions is None:
        return []
    return [exclusions.broken(row) for row in await fetch(snapshot, texts_of(collection.names, keys))]


async def _failing(snapshot: Snapshot, state: SearchState, keys: Sequence[Key]) -> list[str]:
    """Take the chunk that fails the fewest parts of the filter, and return these parts."""
    tree = state.request.condition.tree
    if tree is None:
        return []
    names_rows = state.condition.names_rows
    fields = await read_fields(snapshot, state.collection, keys[:MAX_FILTERED], with_rows=names_rows)
    # Python may read a number differently from the server: a chunk that meets the filter here has failed there.
    parts = [failing(tree, metadata, own) or [tree] for metadata, own in fields]
    return [str(part) for part in min(parts, key=len)]


async def _keyword_rank(
    snapshot: Snapshot, state: SearchState, found: Found, keys: Sequence[Key]
) -> KeywordRank | None:
    """Return these chunks' best rank in keyword search; if none is a candidate, score them and search deeper."""
    result, own = found.answered.get("keyword"), set(keys)
    if result is None:
        return None
    for rank, (key, score) in enumerate(zip(result.keys, result.scores.tolist(), strict=True), 1):
        if key in own:
            return KeywordRank(key, score, rank)
    if result.scorer is None:
        return KeywordRank()
    scores = (await ask(snapshot, {"keyword": result.scorer.missing_scores(keys)}))["keyword"]
    if np.isnan(scores).all():
        return KeywordRank()
    best = int(np.nanargmax(scores))
    query = state.keyword_query
    if scores[best] <= 0 or query is None:
        return KeywordRank(keys[best], float(scores[best]))
    request = LegRequest(state.collection, query, MAX_CANDIDATES, state.condition, state.with_phrases)
    leg = state.collection.keyword.leg(request)
    deep = (await run_legs(snapshot, [] if leg is None else [leg])).results.get("keyword")
    placed = [] if deep is None or deep.error is not None else deep.keys
    place = next((place for place, key in enumerate(placed, 1) if key in own), None)
    return KeywordRank(keys[best], float(scores[best]), place)
