"""Documents by the names that people call them: the text and the headings of one, and why it is in an answer or not."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import ConfigurationError
from semlex.ingest.files.absence import places_of, why_absent
from semlex.ingest.loaders.registry import structure_named
from semlex.options.declare import operation
from semlex.options.search import SearchArguments, SearchOptions, WhyArguments
from semlex.search.explain.answer import explained_search
from semlex.search.explain.why import explain
from semlex.search.fusion import LEGS
from semlex.search.postprocess.whole_document import headings_of, text_of
from semlex.search.request import Request, check_search
from semlex.store.query.chunks import fetch_documents
from semlex.store.query.documents import (
    Records,
    find_named,
    read_known_sources,
    read_records,
    without_line,
)
from semlex.types.documents import MAX_ID_BYTES, Outline, WholeDocument
from semlex.types.explanations import Explanation
from semlex.validation import check_range, check_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Unpack

    from semlex.filters.forms import Boosts, Filters
    from semlex.ingest.indexer import Indexer
    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.retriever.resources import Resources
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.documents import KnownSource, NamedDocument
    from semlex.store.schema.names import Names
    from semlex.types.documents import StoredChunk
    from semlex.types.explanations import Reason
    from semlex.types.queries import SearchQuery
    from semlex.types.results import SearchMode, SearchResults

    # A collection has methods called `list` and `sources`.
    Chunks = list[StoredChunk]
    Sources = list[KnownSource]
    Places = list[tuple[str, str]]

T = TypeVar("T")

# Candidates of each leg, where all are given.
DEFAULT_DEPTH = 50
MAX_DEPTH = 500
# The longest path that is taken.
MAX_PATH_BYTES = 8 * MAX_ID_BYTES


class CollectionExplaining(ABC):
    """Documents by name, and explanations of searches; `Collection` is one."""

    names: Names
    _resources: Resources

    @abstractmethod
    async def _searched(self, *, has_vector: bool = False) -> OpenCollection:
        """The open collection, with the vectors that there are."""

    @abstractmethod
    async def _reading(self, read: Callable[[Indexer], Awaitable[T]]) -> T:
        """Read the open collection; once more if it was dropped, since another one may have its name now."""

    @abstractmethod
    async def _run_search(
        self, opened: OpenCollection, run: Callable[[OpenCollection], Awaitable[T]], *, has_vector: bool = False
    ) -> T:
        """Run a search; once more if the collection was dropped, since another one may have its name now."""

    @abstractmethod
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

    @abstractmethod
    async def _reranker(
        self, wanted: bool | None, request: Request | None = None
    ) -> tuple[Reranker | None, Sequence[str]]:
        """What reranks a search that wants it so, and a warning if it is not open in time."""

    @operation("why", "read", SearchArguments, WhyArguments, hidden=("rerank", "query", "queries", "explain"))
    async def why(
        self,
        document: str,
        question: str | SearchQuery | None = None,
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[SearchOptions],
    ) -> Explanation:
        """Explain why a document is where it is in the answer to a question, or why it is missing.

        The search is made as `search` would make it. Then the chunks that are nearer are counted, the shared words are
        looked up, and arguments that would bring the document in are tried. Nothing is written.

        Args:
            document: Id of a chunk or of an added document; a path as `documents` lists it, with or without its source
                (``docs: keys.md``), the end of one path only, or a path on disk; a line may follow (``keys.md:9``).
            question: As `query` of `search`.
            top_k: As for `search`.
            filters: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            **options: As for `search`. The deadline is that of the search, not of what is read beside it; of a list of
                pages, the first is explained.

        Raises:
            ValidationError: The document's name, the query, top_k or a filter is refused.
            ConfigurationError: The name means several documents; the message lists them.
            EmbeddingsMissingError: As for `search`.
        """
        check_rows("document", [document], max_bytes=MAX_PATH_BYTES, blank=False)
        has_vector = options.get("vector") is not None
        request = await self._request(question, top_k, filters, mode=mode, rerank=rerank, options=options)

        async def run(opened: OpenCollection) -> Explanation:
            sources, places = await self._places(opened, document)
            reranker, late = await self._reranker(request.rerank, request)
            found = await explain(opened, reranker, request, document, places)
            if isinstance(found, Records):
                return Explanation(document, None, (await self._absent(document, sources, places, found),))
            routed = [] if request.route is None else [f"the question was taken as {request.route}"]
            return replace(found, notes=(*found.notes, *routed, *request.notes, *late))

        return await self._run_search(await self._searched(has_vector=has_vector), run, has_vector=has_vector)

    async def candidates(
        self,
        query: str,
        depth: int = DEFAULT_DEPTH,
        filters: Filters | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        boost: Boosts | None = None,
        deadline: float | None = None,
    ) -> SearchResults:
        """Every candidate of both legs as a hit, with both scores, and what the fusion has measured them against.

        Whoever has these can order them anew by another weight, without asking again.

        Args:
            query: As for `search`.
            depth: Candidates of each leg, 1 to 500.
            filters: As for `search`.
            weights: As for `search`.
            boost: As for `search`.
            deadline: As for `search`.

        Returns:
            The hits, at most twice `depth`; `SearchResults.explanation` has mean, deviation and the best keyword score.

        Raises:
            ValidationError: As for `search`.
        """
        check_range("depth", depth, 1, MAX_DEPTH)
        opened = await self._searched()
        options = SearchOptions(weights=weights, boost=boost, deadline=deadline, tuning={"candidates": depth})
        check_search(options, "candidates")
        request = Request.of(query, 1, filters, names=self.names, rerank=False, options=options, clock=opened.clock)
        all_of_them = replace(request, top_k=len(LEGS) * depth)
        return await self._run_search(opened, lambda opened: explained_search(opened, None, all_of_them))

    async def get_document(self, document: str) -> WholeDocument:
        """The text of a document with its chunks; of a place in one (``keys.md:9``) or of an id, the chunks it means.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        named, chunks = await self._named(document)
        return WholeDocument(named.name, text_of(chunks), tuple(chunks), named.notes)

    async def outline(self, document: str) -> Outline:
        """The headings of a document in their order, each with its line and the chunks below it.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        named, chunks = await self._named(document)
        structure = structure_named(chunks[0].source_document) if chunks else "plain"
        return Outline(named.name, headings_of(chunks, structure), named.notes)

    async def _named(self, document: str) -> tuple[NamedDocument, Chunks]:
        """What stands under a name, with its chunks in order."""
        check_rows("document", [document], max_bytes=MAX_PATH_BYTES, blank=False)

        async def read(indexer: Indexer) -> tuple[NamedDocument, Chunks]:
            sources, places = await self._places(indexer.opened, document)

            async def look(connection: Connection) -> tuple[NamedDocument, Chunks] | Records:
                named = await find_named(connection, self.names, document, places)
                if named is None:
                    return await read_records(connection, self.names)
                ids = [chunk_id for _, chunk_id in named.keys]
                found = await fetch_documents(connection, indexer.collection, ids)
                return named, [found[one] for one in ids if one in found]

            found = await indexer.database.read("read a document", look)
            if isinstance(found, Records):
                absent = await self._absent(document, sources, places, found)
                helps = f"; what helps: {absent.remedy}" if absent.remedy else ""
                raise ConfigurationError(f"there is no document {document!a}: {absent.text}{helps}")
            return found

        return await self._reading(read)

    async def _places(self, opened: OpenCollection, document: str) -> tuple[Sources, Places]:
        """The sources, and where in them a name leads on this machine."""
        sources = await opened.database.read(
            "read the sources", lambda connection: read_known_sources(connection, self.names)
        )
        # Of a file whose name ends like a line, both are looked for.
        names = dict.fromkeys((document, without_line(document)))
        return sources, [place for one in names for place in await asyncio.to_thread(places_of, one, sources)]

    async def _absent(self, document: str, sources: Sources, places: Places, records: Records) -> Reason:
        name = without_line(document)
        limits = self._resources.file_limits
        return await asyncio.to_thread(why_absent, name, places, sources, records, self.names.collection, limits=limits)
