"""Rank all candidates of a search, find a document's place among them, and find arguments that would bring it in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from semlex.options.search import MAX_CANDIDATES
from semlex.search.planner import documents_wanted, rows_wanted
from semlex.search.retrieval import Retrieval
from semlex.store.query.chunks import documents_of
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.open_collection import OpenCollection
    from semlex.search.fusion import Candidate
    from semlex.search.state import Found, SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.chunks import DocumentKey
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

    @classmethod
    async def read(
        cls,
        snapshot: Snapshot,
        opened: OpenCollection,
        state: SearchState,
        found: Found,
        own: Sequence[Key],
        *,
        reranks: bool,
    ) -> Self:
        """Read all candidates of a search and the document's chunks among them."""
        candidates = await _all(opened, state, found.depth)
        documents = None
        if state.request.group_size is not None:
            documents = await documents_of(snapshot.connection, state.collection, [one.key for one in candidates])
        first = frozenset(candidate.key for candidate, _ in found.hits)
        return cls(candidates, frozenset(own), first, documents, reranks)

    @property
    def best(self) -> tuple[int, Candidate] | None:
        """Return the document's best candidate with its place, from 1; None if it has no candidate."""
        return next(((place, one) for place, one in enumerate(self.candidates, 1) if one.key in self.own), None)

    @property
    def farthest(self) -> list[Key]:
        """Return the document's chunks that reached the stages after the fusion, else its best candidate."""
        later = [one.key for one in self.candidates if one.key in self.own & self.first]
        return later or ([] if self.best is None else [self.best[1].key])

    @property
    def place(self) -> int | None:
        """The place that `top_k` counts, from 1: of the best candidate, or of the document if the search is grouped."""
        return _place(self.candidates, self.own, self.documents)

    def place_in_document(self, key: Key) -> int:
        """Return the place of a candidate among those of its document, from 1; for grouped searches."""
        documents = self.documents or {}
        mine = [one.key for one in self.candidates if documents.get(one.key) == documents.get(key)]
        return mine.index(key) + 1

    async def reach(
        self, snapshot: Snapshot, opened: OpenCollection, state: SearchState, ranks: Sequence[int]
    ) -> Reach | None:
        """Return arguments that bring the document past the fusion; None if it is past it, or none help."""
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
        """Return whether other arguments bring the document past the fusion, and the place that it has then."""
        asked = state.copy()
        asked.request = state.request.without("deadline", top_k=reach.top_k).with_candidates(reach.candidates)
        found = await Retrieval(opened, reranks=self.reranks).find_enough(asked)
        if any(candidate.key in self.own for candidate, _ in found.hits):
            return True, None
        candidates = await _all(opened, state, found.depth)
        documents = self.documents
        if documents is not None:
            documents = await documents_of(snapshot.connection, state.collection, [one.key for one in candidates])
        return False, _place(candidates, self.own, documents)


def _place(
    candidates: Sequence[Candidate], own: frozenset[Key], documents: Mapping[Key, DocumentKey] | None
) -> int | None:
    if documents is None:
        return next((place for place, one in enumerate(candidates, 1) if one.key in own), None)
    order = list(dict.fromkeys(documents[one.key] for one in candidates if one.key in documents))
    mine = {documents[key] for key in own if key in documents}
    return next((place for place, one in enumerate(order, 1) if one in mine), None)


async def _all(opened: OpenCollection, state: SearchState, depth: int) -> list[Candidate]:
    """Return all candidates at a depth, by running the search again with room for all of them."""
    unbounded = state.request.without("deadline", "min_similarity", top_k=2 * depth, page=None, group_size=None)
    own = state.copy()
    own.request = unbounded.with_candidates(depth)
    found = await Retrieval(opened, reranks=False).find(own, depth)
    return [candidate for candidate, _ in found.hits]
