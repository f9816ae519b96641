"""Find the rank of a document in a search, with all that an explanation reads, in the search's snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semlex.filters.evaluate import failing
from semlex.options.search import MAX_CANDIDATES
from semlex.search.explain.ranking import Ranking, Reach
from semlex.store.keyword.base import texts_of
from semlex.store.keyword.engine import LegRequest
from semlex.store.postgres.database import SnapshotReads
from semlex.store.query.documents import Records, find_named, read_records
from semlex.store.query.explain import read_facts, read_fields, vector_rank
from semlex.store.query.run import ask, fetch, run_legs
from semlex.store.query.vector import register_vector_parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.open_collection import OpenCollection
    from semlex.search.pipeline import SearchPipeline
    from semlex.search.state import Found, SearchState
    from semlex.store.keyword.base import TermScores
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.documents import NamedDocument
    from semlex.store.query.explain import ChunkFacts, VectorRank
    from semlex.store.query.leg import Key

# Chunks of which it is looked up why they do not pass the filter.
MAX_FILTERED = 1_000


@dataclass(frozen=True, slots=True)
class KeywordRank:
    """The best of some chunks in the keyword search."""

    key: Key | None = None  # None if the query's exclusions leave out all chunks, or nothing is known
    score: float | None = None  # 0 if the chunk shares no word with the query; None if unknown
    rank: int | None = None  # among all chunks that pass the filter; None after the first 10,000


@dataclass(frozen=True, slots=True)
class Standing:
    """The rank of a document in a search, with all that explains it."""

    state: SearchState
    found: Found  # hits that its database stages found
    named: NamedDocument
    facts: list[ChunkFacts]  # about the document's chunks
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
    """Find a document's rank; if no document has the name, return the records of its files instead."""

    async def look(snapshot: Snapshot) -> Standing | Records:
        register_vector_parameter(snapshot.connection)
        state = begun.copy()  # this may be run once more
        named = await find_named(snapshot.connection, opened.info.names, document, places)
        if named is None:
            return await read_records(snapshot.connection, opened.info.names)
        inside = replace(opened, database=SnapshotReads(snapshot))
        found = await pipeline.find(state, inside)
        return await _standing(snapshot, inside, state, found, named, reranks=pipeline.reranks)

    return await opened.database.read_snapshot("explain a search", look, with_vectors=True)


async def _standing(
    snapshot: Snapshot, opened: OpenCollection, state: SearchState, found: Found, named: NamedDocument, *, reranks: bool
) -> Standing:
    condition, collection = state.condition, state.collection
    facts = await read_facts(snapshot, collection, condition, named.keys)
    passing = [one.key for one in facts if one.passes]
    left_out = [] if passing or not facts else await _failing(snapshot, state, [one.key for one in facts])
    vector = None
    if "vector" in _answered(found) and state.vector is not None and passing:
        vector = await vector_rank(snapshot, collection, state.vector, condition, passing)
    keyword = await _keyword_rank(snapshot, state, found, passing) if passing else None
    broken: list[str] = []
    is_unread = bool(state.request.exclude) and not collection.keyword.reads_operators
    is_left_out = keyword is None or (keyword.score is None and found.results["keyword"].has_exclusions)
    if passing and (is_unread or is_left_out):
        told = await _broken(snapshot, state, passing, by_words=keyword is not None)
        broken = list(dict.fromkeys(one for own in told for one in own)) if all(told) else []
    ranking = await Ranking.read(snapshot, opened, state, found, passing, reranks=reranks)
    chunks = ranking.farthest or [one.key for one in (keyword, vector) if one is not None and one.key is not None]
    chunks = chunks or passing[:1] or [one.key for one in facts[:1]]
    terms = None
    query = state.keyword_query
    if "keyword" in _answered(found) and query is not None and chunks:
        terms = await collection.keyword.term_scores(snapshot, collection.names, query, chunks)
    reach = None
    if passing and not broken:
        ranks = [one.rank for one in (vector, keyword) if one is not None and one.rank is not None]
        reach = await ranking.reach(snapshot, opened, state, ranks)
    return Standing(state, found, named, facts, left_out, vector, keyword, broken, ranking, chunks, terms, reach)


async def _broken(snapshot: Snapshot, state: SearchState, keys: list[Key], *, by_words: bool) -> list[list[str]]:
    """Return which quotes and exclusions of the query each chunk breaks; without keyword search, which exclusions."""
    collection, request = state.collection, state.request
    if by_words and collection.keyword.reads_operators:
        return await collection.keyword.broken_conditions(
            snapshot, collection.names, state.keyword_query or "", keys, with_phrases=state.with_phrases
        )
    exclusions = collection.keyword.exclusions(request.words, request.exclude)
    if exclusions is None:
        return []
    return [exclusions.broken(row) for row in await fetch(snapshot, texts_of(collection.names, keys))]


def _answered(found: Found) -> list[str]:
    return [name for name, result in found.results.items() if result.error is None]


async def _failing(snapshot: Snapshot, state: SearchState, keys: Sequence[Key]) -> list[str]:
    """Return the parts of the filter that fail, for the chunk for which the fewest fail."""
    tree = state.request.condition.tree
    if tree is None:
        return []
    names_rows = state.condition.names_rows
    fields = await read_fields(snapshot, state.collection, keys[:MAX_FILTERED], with_rows=names_rows)
    # Numbers come as Python reads them: where these agree with the filter, the server's have decided.
    parts = [failing(tree, metadata, own) or [tree] for metadata, own in fields]
    return [str(part) for part in min(parts, key=len)]


async def _keyword_rank(
    snapshot: Snapshot, state: SearchState, found: Found, keys: Sequence[Key]
) -> KeywordRank | None:
    """Return the best chunk in the keyword leg: among its candidates, else by the index's scores and a deeper look."""
    result, own = found.results.get("keyword"), set(keys)
    if result is None or result.error is not None:
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
