"""What is read of a collection: searches, chunks by id, counts, lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Literal, TypeVar

from semlex.answering.routing import SEARCHES
from semlex.errors import CollectionDroppedError, ConfigurationError, SearchTimeoutError
from semlex.options.declare import operation
from semlex.options.search import PageArguments, RankingOptions, SearchArguments, SearchDefaults, SearchOptions
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.json_fallback import fallen_back
from semlex.search.explain.answer import explained_search
from semlex.search.pagination import read_cursor
from semlex.search.pipeline import SearchPipeline
from semlex.search.planner import check_rows_wanted
from semlex.search.request import NO_DEFAULTS, Request, check_ids, check_search, requests_of, seconds_left
from semlex.store.query import chunks
from semlex.store.query.filters import log_unknown_fields, parse_filters
from semlex.types.queries import DEFAULT_TOP_K, SearchQuery
from semlex.types.results import with_route
from semlex.validation import check_parameters, check_range, kind_errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import Unpack

    import numpy as np
    from numpy.typing import NDArray

    from semlex.filters.forms import Filters
    from semlex.ingest.indexer import Indexer
    from semlex.json_values import AnyId
    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.retriever.resources import Resources
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.types.documents import StoredChunk
    from semlex.types.queries import Route, RouteBy
    from semlex.types.results import SearchMode, SearchResults

    # Inside the class `list` is a method.
    Chunks = list[StoredChunk]
    ManyResults = list[SearchResults]
    Vectors = dict[str, NDArray[np.float32]]

T = TypeVar("T")

MAX_LISTED = 10_000
# Share of what a deadline leaves that opening the reranker may take.
OPENING_SHARE = 0.5
LATE_RERANKER = "the reranker was not open in time"


class CollectionReads(ABC):
    """Searches and reads; `Collection` is one."""

    names: Names
    _resources: Resources
    # What calls may leave out; a retriever is made with others.
    _search_defaults: SearchDefaults = NO_DEFAULTS
    _fallback: DocumentRetriever | None = None

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    @abstractmethod
    async def _readable(self) -> Indexer:
        """The same for reading, which makes no collection in the place of one that was dropped."""

    @abstractmethod
    async def _reading(self, read: Callable[[Indexer], Awaitable[T]]) -> T:
        """Read the open collection; once more if it was dropped, since another one may have its name now."""

    @abstractmethod
    async def _route(
        self, question: str | None, by: RouteBy | Literal[False] | None, seconds: float | None
    ) -> Route | None:
        """The kind of a question, found in a part of so many seconds; None where it is not asked for."""

    @operation("search", "read", SearchArguments, hidden=("rerank", "queries"))
    async def search(
        self,
        query: str | SearchQuery | None = None,
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        explain: bool = False,
        fallback: DocumentRetriever | Literal[False] | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResults:
        """Return the chunks that fit a query best.

        Both searches run in one snapshot of the database. If one of them fails, or is late for the `deadline`, the
        other answers and `SearchResults.warnings` says so. You get exactly `top_k` results if as many exist. Options
        you leave out take the retriever's defaults (`SearchDefaults`), then their own.

        Args:
            query: A question or words, 1 character to 4 KiB after trimming; or a `SearchQuery` that brings text,
                vector, top_k and filters, which must not be given beside it then.
            top_k: Number of results, 1 to 1,000. Default: 5.
            filters: A mapping, a text, or what `F` makes; see docs/filters.md.
            mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
            rerank: Whether the reranker orders the best 4 x top_k candidates. Default: if one is configured.
            explain: Whether `SearchResults.explanation` has the query plan and, for each hit, the words it shares with
                the query. It costs a look at the keyword index for each word.
            fallback: Searched, with query, `top_k` and filters, if nothing was found, such as a `JSONKBRetriever`; see
                `SearchResults.fallback`. None: that of the retriever; False: none.
            **options: See `SearchOptions`, or docs/searching.md.

        Raises:
            ValidationError: The query, top_k or a filter is refused.
            ConfigurationError: An option is out of range, or two of them exclude each other.
            EmbeddingsMissingError: mode="vector" and the collection has no vectors.
            SearchTimeoutError: Nothing had answered at the deadline.
        """
        fallback = self._fallback if fallback is None else None if fallback is False else fallback
        check_parameters(
            kind_errors("fallback", fallback, DocumentRetriever, NoneType), kind_errors("explain", explain, bool)
        )
        has_vector = options.get("vector") is not None
        request = await self._request(query, top_k, filters, mode=mode, rerank=rerank, options=options)
        opened = await self._searched(has_vector=has_vector)
        reranker, late = await self._reranker(request.rerank, request)

        async def run(opened: OpenCollection) -> SearchResults:
            if explain:
                found = await explained_search(opened, reranker, request)
            else:
                found = await SearchPipeline(opened, reranker).run(request)
            self._log(opened, [request], [found])
            return found

        found = await self._run_search(opened, run, has_vector=has_vector)
        found = with_route(found, request.route)
        found.warnings += [*request.notes, *late]
        if found or fallback is None or request.text is None:
            return found
        filters = query.filters if isinstance(query, SearchQuery) else filters
        return fallen_back(found, fallback, await fallback.search(request.text, request.top_k, filters))

    async def _request(
        self,
        query: str | SearchQuery | None,
        top_k: int | None,
        filters: Filters | None,
        *,
        mode: SearchMode | None,
        rerank: bool | None,
        options: SearchOptions,
    ) -> Request:
        """Check a search, let the kind of its question choose what the call leaves open, and fill in the defaults."""
        clock, defaults = self._resources.clock, self._search_defaults
        started = clock.monotonic()
        check_search(options)
        await self._searched(has_vector=options.get("vector") is not None)
        text = query.query_text if isinstance(query, SearchQuery) else query
        routed = await self._route(text, options.get("route"), seconds_left(options.get("deadline"), started, clock))
        if routed is not None:
            own_top_k = query.top_k if isinstance(query, SearchQuery) else top_k or defaults.get("top_k")
            options, rerank = SEARCHES[routed.kind].options(options, rerank, own_top_k or DEFAULT_TOP_K)
        return Request.of(
            query,
            top_k,
            filters,
            names=self.names,
            mode=mode,
            rerank=rerank,
            options=options,
            defaults=defaults,
            route=routed,
            clock=clock,
            started=started,
        )

    @operation("search page", "read", PageArguments)
    async def search_page(
        self, cursor: str, filters: Filters | None = None, *, deadline: float | None = None
    ) -> SearchResults:
        """The next page of a list that `search` opened with `max_results`.

        It is the same search, cut elsewhere: the pages together are one list, and no hit stands on two of them. Where
        the list has changed since the page before, because something was written, `warnings` says so. What was
        reranked for the first page is not reranked again.

        Args:
            cursor: `SearchResults.next_cursor` of the page before. It holds the query with its options and works in
                any process that opens this collection.
            filters: Conditions that the search of the cursor must have, such as those that your server sets for a
                tenant. They do not narrow the page. Each of them must be one of the conditions that its filters join
                with "and".
            deadline: Seconds; what has answered by then is the answer.

        Raises:
            ValidationError: The cursor is damaged, or that of another collection or version of semlex, or its search
                lacks one of the conditions.
            SearchTimeoutError: Nothing had answered at the deadline.
        """
        started = self._resources.clock.monotonic()

        async def run(opened: OpenCollection) -> SearchResults:
            request = replace(read_cursor(cursor, opened.info, filters, deadline, opened.clock), started=started)
            is_reranked = request.page is not None and request.page.scores is not None
            reranker, late = await self._reranker(None if is_reranked else False, request)
            found = await SearchPipeline(opened, reranker).run(request)
            found.warnings += late
            return found

        return await self._run_search(await self._searched(), run)

    @operation("search many", "read", SearchArguments, hidden=("rerank", "query", "explain"))
    async def search_many(
        self,
        queries: Iterable[str | SearchQuery],
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[RankingOptions],
    ) -> ManyResults:
        """Search for many queries at once: the model embeds them in one batch, and all see one snapshot.

        The results are those of `search`, query by query. They are answered one after another on one connection, which
        suits measuring and deduplicating; for many users at once, many calls of `search` are faster.

        Args:
            queries: Up to 1,000, each as for `search`.
            top_k: Number of results of each. All queries together load up to 50,000 rows: `top_k` for each, and
                4 x `top_k` before a reranker.
            filters: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            **options: See `RankingOptions`.

        Returns:
            The results of each query, in their order.

        Raises:
            ValidationError: With every query that is refused, or there are too many.
            EmbeddingsMissingError: As for `search`.
        """
        check_search(options, "search_many", RankingOptions)
        requests = requests_of(
            queries,
            filters,
            top_k=top_k,
            names=self.names,
            mode=mode,
            rerank=rerank,
            options=options,
            defaults=self._search_defaults,
        )
        has_vector = any(request.vector is not None for request in requests)
        opened = await self._searched(has_vector=has_vector)
        reranker, _ = await self._reranker(rerank)
        check_rows_wanted(requests, reranks=reranker is not None)

        async def run(opened: OpenCollection) -> ManyResults:
            found = await SearchPipeline(opened, reranker).run_many(requests)
            for request, results in zip(requests, found, strict=True):
                results.warnings += request.notes
            self._log(opened, requests, found)
            return found

        return await self._run_search(opened, run, has_vector=has_vector)

    def _log(self, opened: OpenCollection, requests: Sequence[Request], found: Sequence[SearchResults]) -> None:
        """Notes questions for the query log, where there is one; it is written later."""
        # Beside the transaction of a connection that somebody else owns, but never with more rights.
        database, role = self._resources.database, opened.database.role
        database = database if role is None else database.acting_as(role)
        self._resources.query_log.note(database, opened.info, requests, found)

    async def _reranker(
        self, wanted: bool | None, request: Request | None = None
    ) -> tuple[Reranker | None, Sequence[str]]:
        """What reranks a search that wants it so, and a warning if it is not open in time."""
        if wanted is False:
            return None, ()
        remaining = None if request is None else request.remaining()
        chosen = await self._resources.reranker(None if remaining is None else remaining * OPENING_SHARE)
        if chosen is None:
            if request is not None and request.options.get("min_rerank") is not None:
                raise SearchTimeoutError(
                    f"{LATE_RERANKER}, and min_rerank needs it; search again, or raise the deadline"
                )
            return None, (f"{LATE_RERANKER}; the order is that of the fusion",)
        reranker = chosen.reranker
        if wanted is True and reranker is None:
            raise ConfigurationError("rerank=True needs a reranker: name one with reranker_model=")
        return reranker, ()

    async def _searched(self, *, has_vector: bool = False) -> OpenCollection:
        """The open collection, with the vectors that there are."""

        async def look(indexer: Indexer) -> OpenCollection:
            opened = indexer.opened
            opened.brings_vectors |= has_vector
            if opened.info.embedding is None and (opened.models.embedder is not None or has_vector):
                await opened.refresh()  # another process may have stored the first vectors in the meantime
            return opened

        return await self._reading(look)

    async def _run_search(
        self, opened: OpenCollection, run: Callable[[OpenCollection], Awaitable[T]], *, has_vector: bool = False
    ) -> T:
        """Run a search; once more if the collection was dropped, since another one may have its name now."""
        try:
            found = await run(opened)
        except CollectionDroppedError:
            opened = await self._searched(has_vector=has_vector)
            found = await run(opened)
        await opened.note_use()
        return found

    async def get(self, ids: Iterable[AnyId]) -> Chunks:
        """Chunks by id, in the order of `ids`; missing ones are left out."""
        listed = check_ids(ids)
        found = await self._read("get documents", lambda c, info: chunks.fetch_documents(c, info, listed))
        return [found[chunk_id] for chunk_id in listed if chunk_id in found]

    async def vectors(self, ids: Iterable[AnyId]) -> Vectors:
        """Vectors of chunks as they are stored, float32 of shape (d,), by id; missing are those without one."""
        listed = check_ids(ids)

        async def read(indexer: Indexer) -> Vectors:
            opened = indexer.opened
            if opened.info.embedding is None:
                await opened.refresh()  # another process may have stored the first vectors in the meantime

            async def look(connection: Connection) -> Vectors:
                return await chunks.fetch_vectors(connection, await opened.follow(connection), listed)

            return await opened.database.read("read vectors", look)

        return await self._reading(read)

    async def count(self, filters: Filters | None = None) -> int:
        """Number of chunks that pass a filter; a field that no chunk has is logged."""
        condition = parse_filters(filters, self.names)
        number = await self._read("count", lambda c, info: chunks.count_chunks(c, info, condition))
        if not number and condition.fields:
            await self._read("count", lambda c, info: log_unknown_fields(c, info.names, condition))
        return number

    async def list(self, filters: Filters | None = None, *, limit: int = 100, after: str | None = None) -> Chunks:
        """Chunks without a question, in the order of their keys.

        Args:
            filters: As for `search`.
            limit: Most chunks, 1 to 10,000.
            after: Id of the last chunk of the page before; None for the first page.

        Raises:
            ValidationError: A number, an id or a filter is refused.
        """
        check_range("limit", limit, 1, MAX_LISTED)
        condition = parse_filters(filters, self.names)
        begin = None if after is None else check_ids([after])[0]
        return await self._read("list chunks", lambda c, info: chunks.list_chunks(c, info, condition, limit, begin))

    async def _read(self, doing: str, work: Callable[[Connection, CollectionInfo], Awaitable[T]]) -> T:

        async def read(indexer: Indexer) -> T:
            return await indexer.database.read(doing, lambda connection: work(connection, indexer.collection))

        return await self._reading(read)
