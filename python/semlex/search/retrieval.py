"""Run the database stages of a search in one snapshot, or in a new one after a failure: find, score, fuse, load."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import ModelError, ModelMismatchError, SearchTimeoutError, SemlexError, StoreError
from semlex.options.search import MAX_CANDIDATES, FusionMethod
from semlex.search.fusion import (
    DEFAULT_VECTOR_WEIGHT,
    LEGS,
    Candidate,
    Candidates,
    fuse,
    fuse_completed,
    heading_factors,
    hold_excluded,
    multiplied,
    other_scores,
    ranked_alone,
    vector_weight,
    without_excluded,
)
from semlex.search.planner import (
    NEVER,
    bytes_of_vectors,
    candidate_depth,
    documents_wanted,
    exact_plan,
    is_slow_without_index,
    plan_legs,
    rows_wanted,
    searches_before_rows,
    vector_plan,
)
from semlex.search.request import LeftOut, Request, reaching
from semlex.search.results import best_of_documents, lacks_documents
from semlex.search.state import Found, SearchState
from semlex.store.indexes.choice import INDEX_FROM_ROWS
from semlex.store.postgres.snapshot import NO_SETTINGS, Lasting, Snapshot, SnapshotDiffersError, SnapshotEndedError
from semlex.store.query.chunk_keys import is_indexed
from semlex.store.query.chunks import DocumentKey, best_rows, documents_of, load_results
from semlex.store.query.filters import Filter, unknown_fields, with_rows
from semlex.store.query.passing_chunks import read_again, read_ids, read_passing_rows
from semlex.store.query.rows import read_live_tables, row_columns, visible_rows
from semlex.store.query.run import run_legs
from semlex.store.query.score_calibration import Calibration, Spread
from semlex.store.query.selection import boost_factors, sampled_share
from semlex.store.query.vector import VectorPlan, read_vectors, register_vector_parameter, vector_leg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.open_collection import OpenCollection
    from semlex.store.postgres.database import Database
    from semlex.store.query.leg import BestRows, Key, LegPlan, LegResult
    from semlex.store.query.passing_rows import PassingRows, RememberedFilter
    from semlex.store.schema.collection import CollectionInfo
    from semlex.types.results import SearchResult

T = TypeVar("T")

DEEPER = 4  # times the candidates, when those that were found are not enough
# Share of what a deadline leaves that all legs together may take; the rest is for loading the rows of what they found.
LEGS_SHARE = 0.8
# Share of the rest that completing the scores may take.
COMPLETION_SHARE = 0.5
FEWER = "the deadline passed before enough chunks without the excluded words were found"
# If less time is left, a search does not read rows into memory, which only later searches would use.
SECONDS_FOR_ROWS = 2.0
# Seconds that looking for the fields of a filter may take, when nothing passed it.
LOOK_SECONDS = 1.0


class Retrieval:
    """Finds the hits of a search in an open collection."""

    def __init__(self, opened: OpenCollection, *, reranks: bool) -> None:
        self._database = opened.reader
        self._opened = opened
        self._rows = opened.passing_rows
        self._indexes = opened.indexes
        self._reranks = reranks

    async def find_enough(self, state: SearchState) -> Found:
        """Find hits; if too few, search again past deleted rows or with more candidates, as long as this may help."""
        request = state.request
        depth = candidate_depth(request, reranks=self._reranks, legs=state.legs)
        found = await self.find(state, depth)
        if found.is_short:
            # Rows were deleted outside semlex: their vectors are still there. Look again past them, exactly.
            found = await self.find(state, depth, exact=True)
        while found.has_exclusions and len(found.keys) < request.most and depth < MAX_CANDIDATES:
            # The best chunks hold words that the query excludes: look among more of them, if there are more.
            if not _has_more(found, depth, state.collection):
                break
            # A leg that failed is not asked again: it has taken its share of the time.
            state.failed |= {name: result for name, result in found.results.items() if result.error is not None}
            depth = min(depth * DEEPER, MAX_CANDIDATES)
            try:
                found = await self.find(state, depth)
            except SearchTimeoutError:
                state.warnings.append(FEWER)
                break
        while depth < MAX_CANDIDATES and lacks_documents(found, request, depth):
            depth = min(depth * DEEPER, MAX_CANDIDATES)
            found = await self.find(state, depth)
        return found

    async def find(self, state: SearchState, depth: int, *, exact: bool = False) -> Found:
        """Find hits among `depth` candidates of each search."""
        request = state.request
        remaining = request.remaining()
        # The server measures each statement separately.
        seconds = None if remaining is None else remaining * LEGS_SHARE / max(1, len(state.legs) - len(state.failed))

        # Whether the last snapshot ended after a question, and had another index than expected.
        was_asked = has_moved = False

        async def search(snapshot: Snapshot) -> Found | dict[str, LegResult] | None:
            nonlocal was_asked, has_moved
            was_asked = has_moved = False
            state.read_from = snapshot.read_from
            try:
                result = await self._find(snapshot, state, depth, seconds, rows, exact=exact)
            except SnapshotEndedError as error:
                was_asked, has_moved = snapshot.is_asked, isinstance(error, SnapshotDiffersError)
                return None
            _refuse_failed(result, snapshot)
            return result

        started = time.perf_counter()
        rows = None if exact else self._rows_along(state)
        is_by_vectors = "vector" in state.legs
        is_plain = is_by_vectors and request.condition.is_empty and not exact
        found: Found | dict[str, LegResult] | None = None
        snapshots: Sequence[Lasting] = _snapshots(state, rows, exact=exact)
        index = state.collection.keyword.index
        while found is None:
            # Even in the last one a search may learn that rows of files need their places, and begin again.
            lasting, *snapshots = snapshots or ["whole"]
            found = await self._database.read_snapshot(
                "search",
                search,
                deadline=request.remaining(),
                with_vectors=is_by_vectors,
                lasting=lasting,
                settings=self._opened.vector_settings if is_plain else NO_SETTINGS,
            )
            if has_moved and index is not None and index.cache.is_steady:
                if snapshots[:1] == [lasting]:
                    continue  # what has changed is in memory now
                index.cache.in_vain()  # commits come faster than answers
            elif was_asked and not has_moved:
                rows = None  # too few rows came with the keys, or one statement is not enough
            snapshots = [longer for longer in snapshots if longer != lasting]
        if not isinstance(found, Found):
            # Ids that were read hold in that snapshot only.
            min_share = request.min_filter_share(self._indexes.last.rows)
            plan = vector_plan(state.condition, has_index=True, min_share=min_share)
            plans = plan_legs(state, depth, state.condition, plan=plan, indexes=self._indexes.last)
            results = state.failed | await run_remaining_legs(self._database, plans, found, seconds, request)
            load = partial(self._load, state=state, results=results)
            found = await self._database.read_snapshot("search", load, deadline=request.remaining())
        state.add_time("database", time.perf_counter() - started)
        return replace(found, depth=depth)

    async def _find(
        self,
        snapshot: Snapshot,
        state: SearchState,
        depth: int,
        seconds: float | None,
        rows: int | None,
        *,
        exact: bool,
    ) -> Found | dict[str, LegResult] | None:
        """Return the hits; or the results up to the first failed search; or None if another snapshot is needed."""
        # `rows` is how many rows of hits keyword search returns with its keys.
        if "vector" in state.legs:
            register_vector_parameter(snapshot.connection)
        await snapshot.limit(seconds)
        state.collection = await self._opened.follow(snapshot)
        state.condition = await self._written(snapshot, state, exact=exact)
        along: BestRows | None = None
        if rows is not None:
            along = best_rows(state.collection.names, rows, has_places=self._opened.has_sources)
        indexes = self._indexes
        found: Found | dict[str, LegResult] | None = None
        for takes_rows in (not exact, not exact, not exact, False):
            selection, plan = await self._select(snapshot, state, exact=exact, takes_rows=takes_rows)
            plans = plan_legs(
                state, depth, selection, plan=plan, indexes=indexes.last, iterates=indexes.has_dead_rows, rows=along
            )
            if plans and plans[0].settings and selection.is_empty:
                self._opened.vector_settings = plans[0].settings
            found = await self._search(snapshot, state, plans, depth, selection, plan=plan)
            if found is not None:
                break
        if not isinstance(found, Found):
            # Outside a transaction the defaults of the server hold, which may refuse what a transaction may do.
            return None if snapshot.is_single else found
        if along is not None and not along.has_places and any(is_indexed(hit.id) for _, hit in found.hits):
            self._opened.has_sources = True
            return None
        return found

    def _rows_along(self, state: SearchState) -> int | None:
        """Return how many rows keyword search loads together with its keys; None if rows are loaded in a later step."""
        request, keyword = state.request, state.collection.keyword
        if state.legs != ["keyword"] or request.boosts or request.group_size or request.options.get("columns"):
            return None
        if keyword.exclusions(request.words, request.exclude) is not None:
            return None
        if keyword.index is None or keyword.index.cache.passing.wants(request.condition):
            return None  # with too few of the best chunks that pass it takes more than one question
        return rows_wanted(request, reranks=self._reranks)

    async def _written(self, snapshot: Snapshot, state: SearchState, *, exact: bool) -> Filter:
        """Return the filter as SQL; if `exact` and hits get live columns, also exclude chunks whose row is gone."""
        names, condition = state.collection.names, state.request.condition
        if condition.unwritten is not None:
            condition = await with_rows(snapshot.connection, names, condition)
        if exact and state.request.options.get("columns"):
            visible = visible_rows(await read_live_tables(snapshot.connection, names))
            condition = replace(condition, conditions=(*condition.conditions, visible), sees_rows=True)
        return condition

    async def _select(
        self, snapshot: Snapshot, state: SearchState, *, exact: bool, takes_rows: bool
    ) -> tuple[Filter, VectorPlan]:
        """Return the filter with the share, ids or rows of the chunks that pass, and the plan of vector search."""
        # The share of chunks that pass is measured. If they are few, both searches take the rows that are known to
        # pass, or else keyword search takes their ids.
        request = state.request
        condition = state.condition
        has_index = False
        if "vector" in state.legs:
            indexes = await self._indexes.read(snapshot, state.collection)
            has_index = indexes.used is not None
            if condition.is_empty and "keyword" in state.legs and is_slow_without_index(state.collection, indexes):
                state.legs = ["keyword"]
                state.warnings.append(
                    f"answered by words alone: the vector index is not built yet, and comparing about {indexes.rows:,} "
                    "vectors without it takes seconds; semlex status shows whether it is being built, "
                    "mode='vector' compares all of them"
                )
        if condition.is_empty:
            return condition, exact_plan(condition) if exact else "index"
        share = self._opened.filter_shares.get(condition)
        if share is None:
            share = await sampled_share(snapshot, state.collection, condition)
            self._opened.filter_shares.put(condition, share)
        condition = replace(condition, share=share)
        vectors = self._indexes.last.rows
        min_share = request.min_filter_share(vectors)
        plan = vector_plan(condition, has_index=has_index, min_share=min_share)
        if takes_rows and "vector" in state.legs and "vector" not in state.failed and state.vector is not None:
            rows = await self._passing_rows(snapshot, state, condition, plan)
            if rows is not None:
                return condition.among(rows), "rows"
        are_few = share < min_share and share * vectors <= request.max_filter_ids
        if are_few and "keyword" in state.legs and state.collection.keyword.index is not None:
            ids = await read_ids(snapshot, state.collection.names, condition, request.max_filter_ids)
            condition = condition if ids is None else condition.selecting(ids)
        return condition, exact_plan(condition) if exact else plan

    async def _passing_rows(
        self, snapshot: Snapshot, state: SearchState, condition: Filter, plan: VectorPlan, *, is_short: bool = False
    ) -> PassingRows | None:
        """Return the rows that pass the filter, if they are few; None to search without them."""
        # `is_short` means that the index has found too few, so that all that pass have to be compared anyway.
        request = state.request
        after = searches_before_rows(
            request, state.collection, self._indexes.last, condition, plan=plan, legs=state.legs
        )
        if after is None:
            return None
        found, limit = self._remembered(state), request.max_filter_rows
        has_time = _has_time(request)
        leaves_out_index = plan == "index" and found.leaves_out_index()
        if is_short:
            found.leave_out_index()
        elif after == NEVER and not leaves_out_index:
            return None
        if found.rows is None or found.is_moving:
            compares_all = plan != "index" or leaves_out_index
            is_due = has_time and found.is_due(0 if is_short else after)
            if (found.rows is None or not compares_all) and not is_due:
                return None
            asked = snapshot, state.collection.names, state.collection.vectors.version, condition, limit
            rows: PassingRows | None = None
            async with snapshot.in_time():
                if found.rows is not None:
                    rows = await read_again(*asked, rows=found.rows)
                if rows is None and not has_time:
                    found.rows = None
                    return None
                rows = rows or await read_passing_rows(*asked)
            found.keep(rows)
            self._rows.forget_oldest()
        else:
            rows = found.rows
        if rows is None or not rows.number or len(rows.ids) > limit:
            return None
        size = bytes_of_vectors(state.collection, rows.number)
        if (
            has_time
            and rows is found.rows
            and found.lacks_vectors()
            and size is not None
            and self._rows.have_room(size)
        ):
            with found.reading_vectors(math.ceil(size)):
                async with snapshot.in_time():
                    rows = await read_vectors(snapshot, state.collection, rows, partial(_has_time, request)) or rows
                found.take_vectors(rows)
        return rows

    def _remembered(self, state: SearchState) -> RememberedFilter:
        return self._rows.of((state.condition.key, state.collection.vectors.version))

    async def _search(
        self,
        snapshot: Snapshot,
        state: SearchState,
        plans: list[LegPlan],
        depth: int,
        selection: Filter,
        *,
        plan: VectorPlan,
    ) -> Found | dict[str, LegResult] | None:
        """Return the hits; or the results up to the first failed search, whose failure has ended the transaction."""
        # None means that the rows of the selection were those of an earlier state: look for others.
        request = state.request
        is_completed = request.fusion == "score" and len(plans) == len(LEGS)
        run = await run_legs(snapshot, plans, self._calibration(state) if is_completed else None)
        results = run.results
        failed = len(results) < len(plans) or any(result.error for result in results.values())
        nearest = results.get("vector")
        if selection.rows is not None and nearest is not None and nearest.error is None:
            self._remembered(state).note(selection.rows, worked=bool(nearest.keys))
            if not nearest.keys:  # but some rows pass: the database has changed since they were read
                del results["vector"]
                return results if failed else None
        if failed:
            return results
        # Without an index the answer is exact already.
        may_be_short = plan == "index" and self._indexes.last.used is not None
        if nearest is not None and len(nearest.keys) < depth and may_be_short:
            again = await self._nearest_again(snapshot, state, depth, selection, nearest)
            if again is None:
                return results
            results["vector"] = again
        return await self._load(snapshot, state, state.failed | results, run.spread)

    async def _nearest_again(
        self, snapshot: Snapshot, state: SearchState, depth: int, selection: Filter, nearest: LegResult
    ) -> LegResult | None:
        """Search the vectors again, as the index returned too few; None if this fails or takes too long."""
        # The index may stop early (dead rows, a filter that leaves out what is near, its own limits). An exact scan
        # tells whether more exist; in a large collection the index is first searched past dead rows.
        indexes, ef_search = self._indexes, state.request.tuning.get("ef_search")
        leg = partial(vector_leg, state.collection, query_vector(state), depth)
        plan = exact_plan(selection)
        legs = [leg(selection, plan=plan)]
        used, is_small = indexes.last.used, 0 < indexes.last.rows < INDEX_FROM_ROWS
        rows: PassingRows | None = None
        if not selection.is_empty:
            rows = await self._passing_rows(snapshot, state, selection, plan, is_short=True)
        elif used is not None and used.kind == "hnsw" and not (is_small or indexes.has_dead_rows):
            indexes.has_dead_rows = True
            legs.insert(0, leg(selection, indexes=indexes.last, ef_search=ef_search, iterates=True))
        if rows is not None:
            legs.insert(0, leg(selection.among(rows), plan="rows"))
        for again in legs:
            found = (await run_legs(snapshot, [again])).results["vector"]
            if found.error is not None:
                return None
            if rows is not None and again is legs[0]:
                self._remembered(state).note(rows, worked=bool(found.keys))
                if found.keys:
                    break
            if len(found.keys) == depth:
                break
        return replace(found, plan=f"{found.plan}, as {nearest.plan} gave {len(nearest.keys)}")

    async def _load(
        self, snapshot: Snapshot, state: SearchState, results: dict[str, LegResult], spread: Spread | None = None
    ) -> Found:
        """Load the rows of the best candidates."""
        good = {name: result for name, result in results.items() if result.error is None}
        if not good:
            raise next(result.error for result in results.values() if result.error is not None)
        collection, request, keyword = state.collection, state.request, good.get("keyword")
        exclusions = collection.keyword.exclusions(request.words, request.exclude)
        if keyword is None and exclusions is not None:
            await snapshot.limit(request.remaining())
        candidates = await without_excluded(snapshot, good, collection.names, exclusions)
        fused, fusion = await self._fuse(snapshot, state, candidates, spread)
        if request.boosts:
            fused = await self._boost(snapshot, state, candidates, fused)
        if factors := heading_factors(request.text, candidates.results):
            fused = multiplied(fused, "heading_factor", factors)
        left_out: LeftOut | None = None
        least = request.options.get("min_similarity")
        if least is not None:
            reached, left_out = reaching(fused, least)
            fused = iter(reached)
        await snapshot.limit(request.remaining())
        shown = request.options.get("columns")
        columns = await row_columns(snapshot.connection, collection.names, shown) if shown else None
        wanted = rows_wanted(request, reranks=self._reranks)
        # A damaged index does not know which chunks hold what is excluded: their texts are looked at as well.
        unsure = None if keyword is None else exclusions
        held: set[Key] = set()
        documents: dict[Key, DocumentKey] | None = None
        if request.group_size is not None:
            keys = candidates.union.keys
            if unsure is not None:  # before the best documents are chosen
                held = set(compress(keys, await hold_excluded(snapshot, collection.names, keys, unsure)))
                fused, unsure = iter([candidate for candidate in fused if candidate.key not in held]), None
            documents = await documents_of(snapshot.connection, state.collection, keys)
            count = documents_wanted(request, reranks=self._reranks)
            best = best_of_documents(fused, documents, count=count, size=request.group_size)
            fused, wanted = iter(best), len(best)
            documents = {candidate.key: documents[candidate.key] for candidate in best}
        hits: list[tuple[Candidate, SearchResult]] = []
        dropped = 0
        # The next candidates replace rows that are gone, and chunks that hold what is excluded.
        while len(hits) < wanted and (batch := list(islice(fused, wanted - len(hits)))):
            keys = [candidate.key for candidate in batch]
            loaded = await load_results(
                snapshot,
                collection,
                keys,
                state.keyword_query,
                brought=None if keyword is None else keyword.rows,
                numbers=[candidate.number for candidate in batch],
                postings=None if keyword is None else keyword.postings,
                columns=columns,
                is_last=unsure is None,
            )
            dropped += len(batch) - len(loaded)
            if unsure is not None:
                excluded = await hold_excluded(snapshot, collection.names, keys, unsure)
                held |= set(compress(keys, excluded))
                batch = [candidate for candidate in batch if candidate.key not in held]
            found = ((candidate, loaded.get(candidate.key)) for candidate in batch)
            hits += [(candidate, hit) for candidate, hit in found if hit is not None]
        return Found(
            results,
            fusion,
            hits,
            candidates=candidates,
            is_short=dropped > 0 and len(hits) < wanted,
            has_exclusions=candidates.has_exclusions or bool(held),
            documents=documents,
            left_out=left_out,
            excluded=frozenset(held),
        )

    async def _fuse(
        self, snapshot: Snapshot, state: SearchState, candidates: Candidates, spread: Spread | None
    ) -> tuple[Iterator[Candidate], FusionMethod]:
        """Return candidates, best first, and the fusion that ordered them; the order of a single search is kept."""
        request, results = state.request, candidates.results
        if len(results) < len(LEGS):
            ((name, result),) = results.items()
            return ranked_alone(name, result), request.fusion
        if request.fusion != "score":
            fused = fuse(results, method=request.fusion, weights=request.options.get("weights"), rrf_k=request.rrf_k)
            return fused, request.fusion
        completed = await _in_time(snapshot, request, partial(self._complete, snapshot, state, candidates, spread))
        return (fuse(results, method="rrf"), "rrf") if completed is None else (completed, "score")

    async def _boost(
        self, snapshot: Snapshot, state: SearchState, candidates: Candidates, fused: Iterator[Candidate]
    ) -> Iterator[Candidate]:
        """Return candidates ordered by their scores times the boosts whose conditions they meet."""
        keys, names, boosts = candidates.union.keys, state.collection.names, state.request.boosts
        factors = await _in_time(snapshot, state.request, partial(boost_factors, snapshot, names, keys, boosts))
        if factors is None:
            state.warnings.append("the boosts could not be applied in time: hits are ordered without them")
            return fused
        return multiplied(fused, "boost", dict(zip(keys, factors.tolist(), strict=True)))

    async def _complete(
        self, snapshot: Snapshot, state: SearchState, candidates: Candidates, spread: Spread | None
    ) -> Iterator[Candidate]:
        """Return candidates ordered by both searches' scores of all chunks that either one found."""
        declared = getattr(self._opened.models.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
        weight = vector_weight(state.request.options.get("weights"), declared)
        others = candidates.others or await other_scores(snapshot, candidates.results)
        state.spread = spread or await self._calibration(state).spread(snapshot)
        return fuse_completed(candidates.results, others, spread=state.spread, weight=weight)

    def _calibration(self, state: SearchState) -> Calibration:
        return Calibration(self._opened.sample, state.collection, query_vector(state))

    async def unknown_fields(self, request: Request) -> list[str]:
        """Return notes about fields of the filter that no chunk has; no notes if looking for them takes too long."""
        remaining = request.remaining()
        seconds = LOOK_SECONDS if remaining is None else min(LOOK_SECONDS, remaining)

        async def look(snapshot: Snapshot) -> list[str]:
            await snapshot.limit(seconds)
            async with snapshot.in_time():
                return await unknown_fields(snapshot.connection, self._opened.info.names, request.condition)
            return []  # it took too long

        try:
            return await self._database.read_snapshot("look at the filter's fields", look, deadline=remaining)
        except SemlexError:
            return []  # the results are good without the hint


def _refuse_failed(found: Found | dict[str, LegResult] | None, snapshot: Snapshot) -> None:
    """Raise the error of a search that a replica could not answer, because the primary may be able to."""
    if found is None or snapshot.read_from is None or snapshot.read_from.kind == "primary":
        return
    for result in (found.results if isinstance(found, Found) else found).values():
        if isinstance(result.error, (StoreError, ModelMismatchError)):
            raise result.error


def _snapshots(state: SearchState, rows: int | None, *, exact: bool) -> Sequence[Lasting]:
    """Return the kinds of snapshots to search in, to be tried in turn until one suffices."""
    # A snapshot that lasts for fewer statements takes fewer round trips; a search that needs more begins again.
    if exact:
        return ["whole"]
    index = state.collection.keyword.index
    if rows is not None and index is not None and index.cache.is_steady:
        # After a commit the first statement tells that the index has changed, one tells how, and one has the rows.
        return ["statement", "statement", "statement", "last question", "whole"]
    return ["last question", "whole"]


def _has_time(request: Request) -> bool:
    """Return whether the deadline leaves time to read rows into memory, which speeds up only later searches."""
    remaining = request.remaining()
    return remaining is None or remaining >= SECONDS_FOR_ROWS


async def _in_time(snapshot: Snapshot, request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of `work`; None if one of its statements exceeds its share of the remaining time."""
    remaining = request.remaining()
    if remaining is None:
        return await work()
    async with snapshot.in_time():
        await snapshot.limit(remaining * COMPLETION_SHARE)
        return await work()
    return None  # it took too long


def _has_more(found: Found, depth: int, collection: CollectionInfo) -> bool:
    """Return whether searching with more candidates may find more hits, after the query excluded some chunks."""
    vector, keyword = found.results.get("vector"), found.results.get("keyword")
    if keyword is not None and keyword.has_phrases:
        return False  # what holds a phrase has its words, too, and was found by them
    filled = keyword is not None and len(keyword.keys) >= depth and not collection.keyword.reads_operators
    return filled or (vector is not None and len(vector.keys) >= depth)


async def run_remaining_legs(
    database: Database, plans: list[LegPlan], results: dict[str, LegResult], seconds: float | None, request: Request
) -> dict[str, LegResult]:
    """Run the searches that did not run because another failed, each in its own transaction and snapshot."""
    # `seconds` limits each statement.
    for plan in plans:
        if plan.name in results:
            continue

        async def run(snapshot: Snapshot, plan: LegPlan = plan) -> dict[str, LegResult]:
            await snapshot.limit(seconds)
            return (await run_legs(snapshot, [plan])).results

        results = results | await database.read_snapshot(f"{plan.name} search", run, deadline=request.remaining())
    return results


def query_vector(state: SearchState) -> NDArray[np.float32]:
    """Return the query's vector."""
    if state.vector is None:
        raise ModelError("the vector search ran without a vector")
    return state.vector
