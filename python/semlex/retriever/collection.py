"""The class `Collection`: search, read, fill, answer questions; parts such as `documents` have rarer operations."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast
from uuid import UUID

from semlex.errors import ConfigurationError, FieldError, ModelMismatchError, SearchTimeoutError, ValidationError
from semlex.models.tokenizer import TokenEstimate
from semlex.options.answers import (
    DEFAULT_HITS,
    DEFAULT_TOKENS,
    AnswerArguments,
    AnswerOptions,
    ContextArguments,
    ContextOptions,
)
from semlex.options.declare import check_options, declared, operation, picked
from semlex.options.indexing import ChunkSizes, FindOptions, FolderKeys, ReadOptions
from semlex.options.search import (
    DEFAULT_DEPTH,
    CandidateArguments,
    CandidateOptions,
    PageArguments,
    QuestionOptions,
    RankingOptions,
    SearchArguments,
    SearchOptions,
    WhyArguments,
)
from semlex.progress import ProgressOption, check_progress, shown
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.handle import Part
from semlex.retriever.json_fallback import fallen_back
from semlex.retriever.options import IndexOptions, SyncOptions, WatchOptions
from semlex.search.fusion import LEGS
from semlex.search.pagination import read_cursor
from semlex.search.passages import Around, read_around
from semlex.search.pipeline import SearchPipeline
from semlex.search.planner import check_rows_wanted
from semlex.search.request import Request, check_ids, requests_of, seconds_left
from semlex.search.steps import diversified
from semlex.store.keyword.base import analyzer_of
from semlex.store.query import chunks
from semlex.store.query.chunk_keys import chunk_keys
from semlex.store.query.documents import Records
from semlex.store.query.filters import log_unknown_fields, parse_filters
from semlex.store.query.statistics import MAX_DESCRIPTION_BYTES, read_description, write_description
from semlex.types.answers import Answer, AnswerSentence, Context
from semlex.types.checkups import MAX_SAMPLE, MAX_SEED, Checkup
from semlex.types.documents import Ids, StoredChunk
from semlex.types.explanations import Explanation
from semlex.types.queries import DEFAULT_TOP_K, MAX_QUERY_BYTES, Rewrite, Route, RouteBy, SearchQuery
from semlex.types.results import SearchMode, SearchResult, SearchResults, with_route
from semlex.types.vectors import given_vectors
from semlex.validation import (
    callable_errors,
    check_parameters,
    check_range,
    check_rows,
    kind_errors,
    number_errors,
    text_errors,
    text_parameter,
    whole_number_errors,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike

    from semlex import _core
    from semlex.answering.context import Counting
    from semlex.chat import ChatModel
    from semlex.diagnostics.status import CollectionStatus
    from semlex.filters.forms import Filters
    from semlex.ingest.enrichment import Enrichment
    from semlex.ingest.given_documents import Given, OnError
    from semlex.ingest.loaders.base import Extract, MetadataExtraction
    from semlex.ingest.progress import DeleteReport, IndexReport, SyncReport
    from semlex.ingest.sync import FolderOptions
    from semlex.json_values import AnyId
    from semlex.open_collection import OpenCollection
    from semlex.options.collection import CollectionSettings
    from semlex.reranking.base import Reranker
    from semlex.retriever.documents import Documents
    from semlex.retriever.embeddings import Embeddings
    from semlex.retriever.fields import Fields
    from semlex.retriever.indexes import Indexes
    from semlex.retriever.jobs import Jobs
    from semlex.retriever.queries import Queries
    from semlex.retriever.tables import Tables
    from semlex.store.postgres.connection import CallersConnection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.store.write.chunks import OnDuplicate

T = TypeVar("T")

MAX_LISTED = 10_000
# Share of what a deadline leaves that opening the reranker may take.
OPENING_SHARE = 0.5
LATE_RERANKER = "the reranker was not loaded in time"
QUESTION_OPTIONS = declared(QuestionOptions)
# The classes of a collection's small objects, each in a module of its name, which is loaded when it is first used.
PARTS = ("Documents", "Embeddings", "Fields", "Indexes", "Jobs", "Queries", "Tables")
logger = logging.getLogger("semlex")


class Collection(Part):
    """A collection in the database: the first call of a method opens it, or makes it if it does not exist.

    `Client.collection` returns this object. Any number of calls may run at the same time.
    """

    @property
    def documents(self) -> Documents:
        """Return the operations on documents: list, read, split again, describe by a language model."""
        from semlex.retriever.documents import Documents

        return Documents(self._handle)

    @property
    def embeddings(self) -> Embeddings:
        """Return the operations on sets of vectors: change the model, roll back, compute missing vectors, calibrate."""
        from semlex.retriever.embeddings import Embeddings

        return Embeddings(self._handle)

    @property
    def indexes(self) -> Indexes:
        """Return the operations on the vector and keyword indexes: build, estimate, merge, rebuild."""
        from semlex.retriever.indexes import Indexes

        return Indexes(self._handle)

    @property
    def fields(self) -> Fields:
        """Return the operations on metadata fields: list fields, count their values, index them."""
        from semlex.retriever.fields import Fields

        return Fields(self._handle)

    @property
    def jobs(self) -> Jobs:
        """Return the object that submits background jobs for this collection."""
        from semlex.retriever.jobs import Jobs

        return Jobs(self._handle)

    @property
    def queries(self) -> Queries:
        """Return the operations on the query log: summarise and clear it."""
        from semlex.retriever.queries import Queries

        return Queries(self._handle)

    @property
    def tables(self) -> Tables:
        """Return the operations with tables: load rows with vectors, follow tables, dump, return hits as rows."""
        from semlex.retriever.tables import Tables

        return Tables(self._handle)

    @property
    def names(self) -> Names:
        """The name of the collection, its schema and its tables."""
        return self._handle.names

    @property
    def info(self) -> CollectionInfo:
        """The stored properties of the open collection."""
        return self._handle.opened.info

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The defaults that do not apply to the open collection, because it was made with other values.

        Name -> (default, the collection's value).
        """
        opened, models, wanted = self._handle.opened, self._handle.resources.models, self._handle.wanted
        counters = (opened.models.counter_name, opened.info.settings.token_counter)
        unused = models.unused(opened.info.embedding) | models.unused_tokenizer(*counters)
        return unused | wanted.unused(opened.info.options)

    @property
    def embedding_choice(self) -> str:
        """One line that says which embedding model was chosen for the open collection, and why."""
        return self._handle.opened.models.embedding_choice

    def using(self, connection: CallersConnection) -> Collection:
        """Return this collection over your connection: its reads and writes join your transaction.

        If no transaction has begun, the first call begins it, as any statement would; you commit it or roll it back. In
        autocommit, outside a transaction, every call has its own transactions.

        Args:
            connection: An open connection of psycopg, synchronous or asynchronous; Django's ``django.db.connection``;
                or a session or connection of SQLAlchemy on psycopg (of an `AsyncSession`: ``await
                session.connection()``). You close it, and nothing else may use it during a call.

        Raises:
            ConfigurationError: `connection` is none of these.
        """
        return Collection(self._handle.using(connection))

    async def open(self) -> Self:
        """Open or create the collection; reopen it if it is open. Every other method opens it if necessary.

        Raises:
            CollectionNotFoundError: The collection does not exist and `create` is False.
            ModelNotFoundError: The named model cannot be loaded.
            ModelMismatchError: The collection was made with another model.
            CollectionSettingsError: An option differs from what the collection was made with.
        """
        self._handle.forget()
        await self._handle.ready()
        return self

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

        Vector search and keyword search run in one snapshot of the database. If one fails or misses the `deadline`, the
        other answers and `SearchResults.warnings` says so. You get exactly `top_k` results if that many exist. Options
        you leave out take the retriever's defaults (`SearchDefaults`), then the documented ones.

        Args:
            query: A question or words, 1 character to 4 KiB after trimming; or a `SearchQuery` with text, vector,
                `top_k` and filters, which you then do not give here.
            top_k: Number of results, 1 to 1,000. Default: 5.
            filters: A mapping, a text, or a filter made with `F`; see docs/reference/filters.md.
            mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
            rerank: Whether the reranker orders the best 4 x top_k candidates. Default: if one is configured.
            explain: Whether `SearchResults.explanation` has the query plan and, for each hit, the words it shares with
                the query. Each word costs one read of the keyword index.
            fallback: A retriever, such as a `JSONKBRetriever`, that gets the query, `top_k` and filters if nothing was
                found; see `SearchResults.fallback`. None: the retriever's fallback; False: no fallback.
            **options: See `SearchOptions`, or docs/reference/search-options.md.

        Raises:
            ValidationError: The query, top_k or a filter is refused.
            ConfigurationError: An option is out of range, or two of them exclude each other.
            EmbeddingsMissingError: mode="vector" and the collection has no vectors.
            SearchTimeoutError: Neither search had answered by the deadline.
        """
        fallback = self._handle.fallback if fallback is None else None if fallback is False else fallback
        check_parameters(
            kind_errors("fallback", fallback, DocumentRetriever, NoneType), kind_errors("explain", explain, bool)
        )
        check_options(SearchOptions, options, "search")
        opened, request = await self._request(query, top_k, filters, mode=mode, rerank=rerank, options=options)
        reranker, late = await self._reranker(request.rerank, request)

        async def run(opened: OpenCollection) -> SearchResults:
            if explain:
                from semlex.search.why import explained_search

                found = await explained_search(opened, reranker, request)
            else:
                found = await SearchPipeline(opened, reranker).run(request)
            self._log(opened, [request], [found])
            return found

        found = await self._handle.run_search(opened, run, has_vector=request.vector is not None)
        found = with_route(found, request.route)
        found.warnings += [*request.notes, *late]
        if found or fallback is None or request.text is None:
            return found
        filters = query.filters if isinstance(query, SearchQuery) else filters
        asked = SearchQuery(request.text, None, request.top_k, filters)
        return await fallen_back(found, fallback, asked, opened.info.keyword.exclusions(None, request.exclude))

    @operation("search page", "read", PageArguments)
    async def search_page(
        self, cursor: str, filters: Filters | None = None, *, deadline: float | None = None
    ) -> SearchResults:
        """Return the next page of hits of a `search` that was called with `max_results`.

        All pages together are the hits of one search; no hit is on two pages. If a write since the page before changed
        these hits, `warnings` says so. Hits reranked for the first page are not reranked again.

        Args:
            cursor: `SearchResults.next_cursor` of the page before. It holds the query with its options and works in any
                process that opens this collection.
            filters: Conditions that the cursor's search must already contain, such as those that your server sets for a
                tenant; they are only checked and filter nothing. That search must join each of them with "and".
            deadline: Seconds; vector or keyword search is left out if it has not answered by then.

        Raises:
            ValidationError: The cursor is damaged or belongs to another collection or version of semlex, or its search
                lacks one of the conditions in `filters`.
            SearchTimeoutError: Neither search had answered by the deadline.
        """
        started = self._handle.resources.clock.monotonic()

        async def run(opened: OpenCollection) -> SearchResults:
            request = replace(read_cursor(cursor, opened.info, filters, deadline, opened.clock), started=started)
            is_reranked = request.page is not None and request.page.scores is not None
            reranker, late = await self._reranker(None if is_reranked else False, request)
            found = await SearchPipeline(opened, reranker).run(request)
            found.warnings += late
            return found

        return await self._handle.run_search(await self._handle.searched(), run)

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
    ) -> list[SearchResults]:
        """Search for many queries at once: the model embeds them in one batch, and all see one snapshot.

        Each query gets the results that `search` returns. The queries run one after another on one connection, which
        suits measuring and deduplicating; for many users at once, many calls of `search` are faster.

        Args:
            queries: Up to 1,000, each as for `search`.
            top_k: Number of results per query. All queries together may load up to 50,000 chunks: `top_k` for each
                query, or 4 x `top_k` if hits are reranked.
            filters: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            **options: See `RankingOptions`.

        Returns:
            The results of each query, in the order of `queries`.

        Raises:
            ValidationError: Queries are refused, each with its error; or there are too many queries.
            EmbeddingsMissingError: As for `search`.
        """
        check_options(RankingOptions, options, "search_many")
        requests = requests_of(
            queries,
            filters,
            top_k=top_k,
            names=self._handle.names,
            mode=mode,
            rerank=rerank,
            options=options,
            defaults=self._handle.search_defaults,
        )
        has_vector = any(request.vector is not None for request in requests)
        opened = await self._handle.searched(has_vector=has_vector)
        reranker, _ = await self._reranker(rerank)
        check_rows_wanted(requests, reranks=reranker is not None)

        async def run(opened: OpenCollection) -> list[SearchResults]:
            found = await SearchPipeline(opened, reranker).run_many(requests)
            for request, results in zip(requests, found, strict=True):
                results.warnings += request.notes
            self._log(opened, requests, found)
            return found

        return await self._handle.run_search(opened, run, has_vector=has_vector)

    @operation("context", "read", ContextArguments, hidden=("rerank",))
    async def context(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """Return the passages that fit a question best, as numbered text for a prompt.

        The hits of a search are joined with what surrounds them in their documents: chunks that touch or overlap become
        one passage, in which no character is repeated; others are separate passages. The best hits are taken first,
        each with its surroundings if they fit, else alone; a hit that does not fit is in `Context.left_out`. If even
        the best hit is longer than `tokens`, it is cut after a sentence.

        Args:
            question: 1 character to 4 KiB after trimming.
            tokens: Maximum number of tokens of the whole text, 1 to 10,000,000, including each passage's number and
                place in its file. They are counted like those of the collection's chunks.
            filters: As for `search`; they apply to hits, not to the text around them in the same documents.
            mode: As for `search`.
            rerank: As for `search`.
            **options: See `ContextOptions`. The `deadline` limits the search only; the text around hits is read after
                it. A `route` sets candidates, reranking and `per_document` if they are not given.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is refused, or your function `count` returned no number.
        """
        from semlex.answering.context import ContextPlan, Counting, make_context
        from semlex.answering.questions import SEARCHES

        clock = self._handle.resources.clock
        started, deadline = clock.monotonic(), options.get("deadline")
        check_options(ContextArguments, {"tokens": tokens, **options}, "context")
        plan, top_k = ContextPlan.of(tokens, options), options.get("top_k", DEFAULT_HITS)
        routed = await self._route(question, options.get("route"), deadline)
        search = SearchOptions(**{name: options[name] for name in QUESTION_OPTIONS if name in options})  # type: ignore[literal-required, typeddict-item]
        if routed is not None:
            way = SEARCHES[routed.kind]
            search, rerank = way.options(search, rerank, top_k)
            search.pop("group_by", None)
            search.pop("group_size", None)
            plan = replace(plan, per_document=way.group_size if plan.per_document is None else plan.per_document)
        search |= {"deadline": seconds_left(deadline, started, clock), "route": False}
        # Hits of the fallback have no surroundings in the collection.
        results = await self.search(question, top_k, filters, mode=mode, rerank=rerank, fallback=False, **search)
        results = with_route(results, routed)
        count = options.get("count")

        async def made(opened: OpenCollection) -> Context:
            counting, notes = _counting(opened) if count is None else (Counting(count), [])
            return await make_context(opened, results, plan, counting, notes)

        return await self._handle.reading(made)

    @operation("answer", "read", AnswerArguments, hidden=("rerank",))
    async def answer(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Answer a question from the collection's documents alone; every quote is checked against them.

        With a `chat_model` the answer is written by that model, which is sent the question and the passages. Without
        one it consists of up to three sentences of the documents, chosen by the question's words.

        The result has an answer, or the reason why not (`Answer.refused`): nothing was found, the documents probably
        hold no answer, or the model finds none in them. If the model's server fails, the answer has a warning and
        sentences of the documents instead. Sentences without a quote that is in the documents stay in the answer, and
        `Answer.unsupported` lists them.

        Args:
            question: As for `context`.
            tokens: As for `context`.
            context: Passages to answer from, made by `context`; then give no option of the search.
            **options: See `AnswerOptions`. With `min_coverage` or `min_similarity`, no answer is given if the figure is
                below its minimum; with both, if both figures are. Unknown figures are ignored.
                `Answer.context.results.route` is the question's route.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is refused, or the chat model's name cannot be used.
        """
        events = self.answer_stream(question, tokens, context=context, **options)
        async with aclosing(events):
            *_, answer = [event async for event in events]
        return cast("Answer", answer)

    def answer_stream(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> AsyncGenerator[AnswerSentence | Answer, None]:
        """Yield the sentences of an answer while it is written, each after its citations were checked.

        Args:
            question: As for `answer`.
            tokens: As for `answer`.
            context: As for `answer`.
            **options: As for `answer`.

        Returns:
            Each sentence, and at the end the answer as a whole.

        Raises:
            ValidationError: As for `answer`.
            ConfigurationError: As for `answer`.
        """
        if errors := text_errors("question", question, max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        check_parameters(kind_errors("context", context, Context, NoneType))
        check_options(AnswerArguments, {"tokens": tokens, **options}, "answer")
        limits = options.pop("min_coverage", None), options.pop("min_similarity", None)
        search = {name: value for name, value in options.items() if value is not None}
        if context is not None and search:
            raise ConfigurationError(
                f"context= holds the results of a search already made: pass {', '.join(search)} to `context` instead"
            )

        async def events() -> AsyncGenerator[AnswerSentence | Answer, None]:
            from semlex.answering.answer import Answering, answer_events

            started = time.perf_counter()
            await self._handle.readable()
            model = (await self._handle.resources.chat_model()).model
            passages = context
            if passages is None:
                passages = await self.context(question, tokens, **search)  # type: ignore[arg-type]
            settings = (await self._handle.readable()).info.settings
            analyzer, executor = _analyzer(settings), self._handle.resources.executor
            answering = Answering(analyzer, executor, model, *limits, started)
            async with aclosing(answer_events(question, passages, answering)) as answered:
                async for event in answered:
                    yield event

        return events()

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
        """Explain why a document has its rank in the results of a search, or why it is missing.

        The query runs as in `search`. Then the chunks that rank before the document are counted, the words it
        shares with the query are looked up, and arguments that would make it a hit are tried. Nothing is written.

        Args:
            document: Id of a chunk or of an added document; a path as `documents` lists it, with or without its source
                (``docs: keys.md``); the end of a path, if only one path ends so; or a path on disk. A line may follow
                (``keys.md:9``).
            question: As `query` of `search`.
            top_k: As for `search`.
            filters: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            **options: As for `search`. The deadline limits the search, not the explanation; with `max_results`, the
                first page is explained.

        Raises:
            ValidationError: The document's name, the query, top_k or a filter is refused.
            ConfigurationError: The name means several documents; the message lists them.
            EmbeddingsMissingError: As for `search`.
        """
        from semlex.retriever.documents import MAX_PATH_BYTES, absence, document_places
        from semlex.search.why import explain

        check_rows("document", [document], max_bytes=MAX_PATH_BYTES, blank=False)
        check_options(SearchOptions, options, "why")
        opened, request = await self._request(question, top_k, filters, mode=mode, rerank=rerank, options=options)

        async def run(opened: OpenCollection) -> Explanation:
            sources, places = await document_places(self._handle, opened, document)
            reranker, late = await self._reranker(request.rerank, request)
            found = await explain(opened, reranker, request, document, places)
            if isinstance(found, Records):
                return Explanation(document, None, (await absence(self._handle, document, sources, places, found),))
            routed = [] if request.route is None else [f"the kind of the query is {request.route}"]
            return replace(found, notes=(*found.notes, *routed, *request.notes, *late))

        return await self._handle.run_search(opened, run, has_vector=request.vector is not None)

    @operation("candidates", "read", CandidateArguments)
    async def candidates(
        self,
        query: str,
        depth: int = DEFAULT_DEPTH,
        filters: Filters | None = None,
        **options: Unpack[CandidateOptions],
    ) -> SearchResults:
        """Return every candidate of both searches as a hit, with both scores and the figures that the fusion used.

        With these figures you can weigh vector and keyword search differently, without searching again.

        Args:
            query: As for `search`.
            depth: Candidates of each search, 1 to 500.
            filters: As for `search`.
            **options: As for `search`.

        Returns:
            Up to twice `depth` hits; `SearchResults.explanation` has the mean and deviation of the cosines of a sample
            of the collection, and the best keyword score.

        Raises:
            ValidationError: As for `search`.
        """
        from semlex.search.why import explained_search

        check_options(CandidateArguments, {"depth": depth, **options}, "candidates")
        opened = await self._handle.searched()
        names, clock = self._handle.names, opened.clock
        deep = cast("SearchOptions", {**options, "tuning": {"candidates": depth}})
        request = Request.of(query, 1, filters, names=names, rerank=False, options=deep, clock=clock)
        all_of_them = replace(request, top_k=len(LEGS) * depth)
        return await self._handle.run_search(opened, lambda opened: explained_search(opened, None, all_of_them))

    async def diversify(self, hits: Sequence[SearchResult], diversity: float = 0.5) -> list[SearchResult]:
        """Return hits reordered so that each is relevant and differs from those before it.

        This is maximal marginal relevance by the stored vectors. Relevance follows the scores that ordered the hits,
        from 1 for the best to 0 for the last. A hit without a vector keeps its place.

        Args:
            hits: Hits of a search in this collection, best first.
            diversity: 0 (keep the order of `hits`) to 1 (as unlike as possible).

        Raises:
            ConfigurationError: An item of `hits` is not a hit, or `diversity` is out of range.
        """
        check_parameters(kind_errors("hits", hits, list, tuple), number_errors("diversity", diversity, 0, 1))
        check_parameters(*(kind_errors(f"hits[{row}]", hit, SearchResult) for row, hit in enumerate(hits)))
        await self._handle.searched()
        _, vectors = await self._handle.reading(lambda opened: read_around(opened, hits, Around(), with_vectors=True))
        return diversified(hits, vectors, diversity)

    @operation("checkup", "read")
    async def checkup(
        self,
        sample: int | None = None,
        *,
        seed: int = 0,
        mode: SearchMode | None = None,
        progress: ProgressOption = None,
        estimated: Callable[[float], None] | None = None,
    ) -> Checkup:
        """Measure how well this collection can be searched, without judged questions: its headings serve as questions.

        Each heading of the sample (in Python code, the first line of a docstring) is asked as a question, which should
        find its section. First the heading is removed, in memory, from the heading path and the text of that section's
        chunks; these are embedded and analysed without it and ranked among all other chunks by the default fusion,
        without a reranker. Nothing is written.

        Args:
            sample: Maximum number of headings, 1 to 100,000. None: 500, or 200 with a slow embedding model, and no
                further headings after 60 s.
            seed: Seed of the sample, 0 to 2,147,483,647; the same seed draws the same headings.
            mode: As for `search`.
            progress: Called after every heading; ``bar`` shows it.
            estimated: Called once, after the first headings, with the seconds that the remaining ones will take.

        Raises:
            ConfigurationError: An argument is refused, the collection is empty or has no heading that can serve as a
                question, or its keyword engine does not report scores.
            EmbeddingsMissingError: As for `search`.
        """
        check_parameters(
            [] if sample is None else whole_number_errors("sample", sample, 1, MAX_SAMPLE),
            whole_number_errors("seed", seed, 0, MAX_SEED),
            callable_errors("estimated", estimated),
        )
        check_options(SearchArguments, {"mode": mode}, "checkup")
        bars = shown(progress)
        from semlex.diagnostics.checkup import CheckupRun

        opened = await self._handle.searched()
        with bars as tell:
            return await self._handle.run_search(
                opened, lambda opened: CheckupRun(opened, mode, tell, estimated).run(sample, seed)
            )

    @operation("get chunks", "read")
    async def get(self, ids: Iterable[AnyId]) -> list[StoredChunk]:
        """Return chunks by id, in the order of `ids`; missing ones are left out."""
        listed = check_ids(ids)
        found = await self._handle.read("get documents", lambda c, info: chunks.fetch_documents(c, info, listed))
        return [found[chunk_id] for chunk_id in listed if chunk_id in found]

    @operation("list chunks", "read")
    async def list_chunks(
        self, filters: Filters | None = None, *, limit: int = 100, after: str | None = None
    ) -> list[StoredChunk]:
        """Return chunks in the order of their keys, without a query.

        Args:
            filters: As for `search`.
            limit: Maximum number of chunks, 1 to 10,000.
            after: Id of the last chunk of the page before; None for the first page.

        Raises:
            ValidationError: An id or a filter is refused.
            ConfigurationError: `limit` is out of range.
        """
        check_range("limit", limit, 1, MAX_LISTED)
        condition = parse_filters(filters, self._handle.names)
        begin = None if after is None else check_ids([after])[0]
        return await self._handle.read(
            "list chunks", lambda c, info: chunks.list_chunks(c, info, condition, limit, begin)
        )

    @operation("count chunks", "read")
    async def count(self, filters: Filters | None = None) -> int:
        """Return the number of chunks that pass a filter; log a warning about a field that no chunk has."""
        condition = parse_filters(filters, self._handle.names)
        number = await self._handle.read("count", lambda c, info: chunks.count_chunks(c, info, condition))
        if not number and (condition.metadata_fields or condition.names_rows):
            await self._handle.read("count", lambda c, info: log_unknown_fields(c, info.names, condition))
        return number

    @operation("add documents", "write")
    async def add_documents(
        self,
        documents: Given,
        embeddings: ArrayLike | Sequence[ArrayLike | None] | None = None,
        *,
        on_duplicate: OnDuplicate = "update",
        on_error: OnError = "raise",
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> Ids:
        """Store documents without splitting them: each becomes one chunk.

        All rows are checked before anything is embedded or written. They are written in transactions of
        `bulk.batch_size` rows; after a failure, run the call again: nothing is lost or stored twice. If an id is
        repeated, the last document wins, with ``skip`` the first. A document without an id gets one computed from its
        content and metadata.

        You can read a chunk, change it and pass it here: it replaces the stored chunk, until its file is changed and
        indexed again.

        Args:
            documents: Any iterable, read once, of `Document`, `ChunkMetadata` or `VectorDocument` (whose vectors are
                used; give one to all documents or to none), or of mappings; or a data frame of pandas or polars. A
                mapping or row has its text in ``content`` or ``text`` and may have other fields of `Document`; all
                other keys are metadata. Documents are copied at the start of the call; later changes are not stored.
            embeddings: Your own vectors, shape (n, d); else the model makes them. A list may have None for a document
                that you have no vector for. An array of float32 is not copied.
            on_duplicate: ``update`` replaces a stored document of the same id, ``skip`` leaves it, ``fail`` refuses the
                batch.
            on_error: ``raise`` refuses all documents if one is invalid; ``skip`` stores the valid ones and returns in
                `Ids.skipped` what is wrong with the others.
            extract_metadata: As for `index`; if it fails, nothing is written.
            enrichment: As for `index`. Chunks that get no description are logged as a warning.
            progress: Called after every batch; ``bar`` shows it.

        Returns:
            The ids of the stored documents, in the order of `documents`.

        Raises:
            ValidationError: Rows are invalid; it lists every error of every row. Nothing was written.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            DuplicateError: With ``fail``: an id is repeated or already stored.
        """
        from semlex.ingest.enrichment import checked_enrichment, filled
        from semlex.ingest.given_documents import GivenDocuments, checked_on_error, without_refused
        from semlex.ingest.loaders.base import checked_extraction

        bars = shown(progress)
        lines = checked_enrichment(enrichment)
        skipped: list[FieldError] = []
        if checked_on_error(on_error) == "skip":
            storage = (await self._handle.indexer()).vector_storage
            documents, embeddings, skipped = without_refused(documents, embeddings, storage)
        given = GivenDocuments.taken(documents)
        if extract_metadata is not None:
            given = await given.extracted(checked_extraction(extract_metadata))
        own = given.vectors_or(embeddings)
        vectors = None if own is None else given_vectors(own, given.ids)
        indexer = await self._handle.indexer()
        ids = Ids(skipped=skipped)

        async def fill() -> Sequence[UUID]:
            ids.extend(await indexer.add_documents(given, vectors, on_duplicate=on_duplicate, progress=tell))
            return [UUID(bytes=key) for key in chunk_keys(ids)]

        with bars as tell:
            report = await filled(indexer, lines, tell, fill)
        if report is not None and (lacking := report.failed + report.left):
            logger.warning("%d of %d chunks got no description: %s", lacking, report.chunks, report.first_failure)
        return ids

    async def upsert(
        self, documents: Given, embeddings: ArrayLike | None = None, *, on_error: OnError = "raise"
    ) -> Ids:
        """Store documents as `add_documents` does; a stored document of the same id is replaced."""
        return await self.add_documents(documents, embeddings, on_duplicate="update", on_error=on_error)

    async def add_texts(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[AnyId] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        embeddings: ArrayLike | None = None,
        on_duplicate: OnDuplicate = "update",
        on_error: OnError = "raise",
    ) -> Ids:
        """Store texts as `add_documents` does; ids and metadata are lists of the same length."""
        from semlex.ingest.given_documents import documents_from_texts

        documents = documents_from_texts(texts, ids, metadata)
        return await self.add_documents(documents, embeddings, on_duplicate=on_duplicate, on_error=on_error)

    @operation("index", "write")
    async def index(self, *paths: str | Path, **options: Unpack[IndexOptions]) -> IndexReport:
        """Read files and folders, split them at headings and by tokens, and store their chunks.

        Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be read
        does not stop the run; it is in the report.

        A path belongs to the source whose folder contains it. If no source does, the path becomes a new source named
        after the folder (or the file's folder). A document is named by its path below the source's folder.

        Args:
            *paths: Files or folders.
            **options: See `IndexOptions`.

        Raises:
            ConfigurationError: A path does not exist or contains the folders of sources, a source's name belongs to
                another folder, or a number is out of range.
            CollectionSettingsError: The collection's files were split with other settings.
            ModelError: The language model failed; nothing was written.
        """
        from semlex.ingest.enrichment import checked_enrichment, filled
        from semlex.ingest.files.discovery import checked_paths
        from semlex.ingest.loaders.base import LoadOptions, checked_extraction
        from semlex.ingest.run import FileRun

        check_options(IndexOptions, options, "index")
        lines, bars = checked_enrichment(options.get("enrichment")), shown(options.get("progress"))
        loading = LoadOptions(**picked(ReadOptions, options))
        wanted = self._handle.wanted.saying(**picked(ChunkSizes, options))
        extraction = checked_extraction(options.get("extract_metadata"))
        with bars as tell:
            indexer = await self._handle.indexer()
            run = FileRun(indexer, wanted, tell, extraction)
            found = await asyncio.to_thread(checked_paths, paths)

            async def fill() -> Sequence[UUID]:
                await run.index(found, **picked(FindOptions, options), options=loading)
                return run.documents

            run.report.enrichment = await filled(indexer, lines, tell, fill)
        return run.report

    @operation("sync", "write")
    async def sync(self, *paths: str | Path, **options: Unpack[SyncOptions]) -> SyncReport:
        """Index files and folders as `index` does, and delete documents whose files are gone.

        A file with the same size, times and inode as in the last run is not read. A renamed file keeps its chunks and
        vectors. A document whose file cannot be accessed stays.

        Args:
            *paths: Files or folders.
            **options: See `SyncOptions`; stored documents of files that `exclude` leaves out stay stored.

        Raises:
            ConfigurationError: A path is missing or empty while documents read from it are stored; or as for `index`.
            CollectionSettingsError: As for `index`.
        """
        from semlex.ingest.enrichment import checked_enrichment, filled
        from semlex.ingest.files.discovery import checked_paths
        from semlex.ingest.loaders.base import checked_extraction
        from semlex.ingest.sync import SyncRun

        check_options(SyncOptions, options, "sync")
        lines, bars = checked_enrichment(options.get("enrichment")), shown(options.get("progress"))
        wanted, dry_run = self._handle.wanted.saying(**picked(ChunkSizes, options)), options.get("dry_run", False)
        extraction, folders = checked_extraction(options.get("extract_metadata")), folder_options(options)
        if lines is not None and dry_run:
            raise ConfigurationError(
                "the cost of chunk descriptions can be estimated only after the files are stored: call sync without "
                "dry_run or without enrichment, then documents.enrich(dry_run=True)"
            )
        found, reports = await asyncio.to_thread(checked_paths, paths, must_exist=False), []
        with bars as tell:
            indexer = await self._handle.indexer()
            run = SyncRun(indexer, wanted, tell, extraction)

            async def fill() -> Sequence[UUID]:
                reports.append(await run.sync(found, folders, dry_run=dry_run))
                return run.documents

            run.report.enrichment = await filled(indexer, lines, tell, fill)
        return reports[0]

    def watch(
        self, *paths: str | Path, poll: bool = False, **options: Unpack[WatchOptions]
    ) -> AsyncGenerator[SyncReport, None]:
        """Synchronise now, and again whenever something changes, until you end the iteration.

        Changes are gathered for up to a second. Every five minutes all files are checked, even without an event.

        Args:
            *paths: Files or folders.
            poll: Whether to check the files repeatedly instead of using the system's events, as network drives need.
                This also happens if the system cannot watch that many folders; the reports' `watched_by` says which was
                used.
            **options: See `WatchOptions`.

        Returns:
            The report of the first synchronisation, then of each that changed something or met new problems.

        Raises:
            ConfigurationError: As for `sync`.
        """
        from semlex.ingest.loaders.base import checked_extraction
        from semlex.ingest.sync import SyncRun
        from semlex.ingest.watch import watch

        check_options(WatchOptions, options, "watch")
        progress = options.get("progress")
        check_parameters(kind_errors("poll", poll, bool))
        check_progress(progress)
        wanted, folders = self._handle.wanted.saying(**picked(ChunkSizes, options)), folder_options(options)
        extraction = checked_extraction(options.get("extract_metadata"))

        async def look(some: Sequence[Path], only_changes: bool) -> SyncReport:
            with shown(progress) as tell:
                run = SyncRun(await self._handle.indexer(), wanted, tell, extraction)
                return await run.sync(some, folders, only_changes=only_changes)

        return watch(paths, look, poll=poll, clock=self._handle.resources.clock)

    @operation("delete", "write")
    async def delete(
        self,
        ids: Sequence[AnyId] | None = None,
        *,
        document: str | None = None,
        source: str | None = None,
        filters: Filters | None = None,
        vanished: bool = False,
        dry_run: bool = False,
    ) -> DeleteReport:
        """Delete the chunks, with their vectors, that meet all given conditions; ids that do not exist are ignored.

        At most 1,000 documents are deleted in one transaction. A document without any chunk left is forgotten, so that
        indexing its file brings it back.

        Args:
            ids: Ids of chunks.
            document: Path of a document below the folder of its source, or `source_document` of an added one.
            source: Name of a source: the documents that were read from it. With nothing else given, the source is
                removed as well.
            filters: As for `search`.
            vanished: Only documents whose file is gone.
            dry_run: Whether to count without deleting.

        Raises:
            ConfigurationError: No condition is given, the source does not exist, or the folder of a source does not
                exist.
        """
        from semlex.ingest.deletion import Deletion

        check_parameters(
            text_parameter("document", document),
            text_parameter("source", source),
            kind_errors("vanished", vanished, bool),
            kind_errors("dry_run", dry_run, bool),
        )
        condition = parse_filters(filters, self._handle.names)
        if condition.names_rows:
            raise ConfigurationError(
                "delete accepts no filter by a column of a followed table (@row): delete the rows in that table, then "
                "sync the collection"
            )
        deletion = Deletion(None if ids is None else check_ids(ids), document, source, condition, vanished)
        return await (await self._handle.indexer()).delete(deletion, dry_run=dry_run)

    @operation("status", "read")
    async def status(self, *, exact: bool = False) -> CollectionStatus:
        """Return where the collection is stored, and its figures: counts, model, indexes, the last run.

        Counts of large tables are estimates (``estimated`` is True) or None, unless `exact`.
        """
        from semlex.diagnostics.status import collection_status

        check_parameters(kind_errors("exact", exact, bool))

        async def read(opened: OpenCollection) -> CollectionStatus:
            folder = self._handle.resources.data_folder
            log = self._handle.resources.query_log.figures(opened.database.role, opened.info)
            return await collection_status(
                opened.reader, opened.info, opened.query_cache, data_folder=folder, query_log=log, exact=exact
            )

        return await self._handle.reading(read)

    @operation("description", "read")
    async def description(self) -> str:
        """Return the collection's description: the text given to `describe`, else titles of its documents."""
        return await self._handle.read("read the description", lambda c, info: read_description(c, info.names))

    @operation("describe", "write")
    async def describe(self, text: str | None) -> None:
        """Store a description of the collection, for language models that choose a collection or write search terms.

        Args:
            text: Up to 1,000 bytes. None: the collection is described by the titles of its documents again.

        Raises:
            ValidationError: The text is blank or too long.
            PrivilegeError: This role may not write.
        """
        if text is not None and (errors := text_errors("text", text, max_bytes=MAX_DESCRIPTION_BYTES, blank=False)):
            raise ValidationError(errors)
        opened = await self._handle.ready()
        words = None if text is None else " ".join(text.split())
        await opened.database.write("describe the collection", lambda c: write_description(c, self.names, words))
        self._handle.resources.forget_rewrites()

    async def drop(self) -> bool:
        """Drop the collection with everything in it; return whether it existed."""
        from semlex.store.schema.dropping import drop_collection

        opened = await self._handle.ready()
        await opened.builds.stop(self._handle.names)
        self._handle.forget()
        return await drop_collection(await self._handle.database(), self._handle.names)

    async def _request(
        self,
        query: str | SearchQuery | None,
        top_k: int | None,
        filters: Filters | None,
        *,
        mode: SearchMode | None,
        rerank: bool | None,
        options: SearchOptions,
    ) -> tuple[OpenCollection, Request]:
        """Open the collection, and return it with a checked request that has the options of its route and defaults."""
        clock, defaults = self._handle.resources.clock, self._handle.search_defaults
        started = clock.monotonic()
        own_vector = query.query_embedding if isinstance(query, SearchQuery) else options.get("vector")
        opened = await self._handle.searched(has_vector=own_vector is not None)
        text = query.query_text if isinstance(query, SearchQuery) else query
        routed = await self._route(text, options.get("route"), seconds_left(options.get("deadline"), started, clock))
        if routed is not None:
            from semlex.answering.questions import SEARCHES

            own_top_k = query.top_k if isinstance(query, SearchQuery) else top_k or defaults.get("top_k")
            options, rerank = SEARCHES[routed.kind].options(options, rerank, own_top_k or DEFAULT_TOP_K)
        has_terms = bool(options.get("terms") or (isinstance(query, SearchQuery) and query.terms))
        left = seconds_left(options.get("deadline"), started, clock)
        rewritten = None if has_terms else await self._rewrite(text, options.get("rewrite"), left)
        return opened, Request.of(
            query,
            top_k,
            filters,
            names=self._handle.names,
            mode=mode,
            rerank=rerank,
            options=options,
            defaults=defaults,
            route=routed,
            rewrite=rewritten,
            clock=clock,
            started=started,
        )

    async def _reranker(
        self, wanted: bool | None, request: Request | None = None
    ) -> tuple[Reranker | None, Sequence[str]]:
        """Return the reranker that a search wants, and a warning if it is not loaded in time."""
        if wanted is False:
            return None, ()
        remaining = None if request is None else request.remaining()
        chosen = await self._handle.resources.reranker(None if remaining is None else remaining * OPENING_SHARE)
        if chosen is None:
            if request is not None and request.options.get("min_rerank") is not None:
                raise SearchTimeoutError(
                    f"{LATE_RERANKER}, and min_rerank needs it; search again, or raise the deadline"
                )
            return None, (f"{LATE_RERANKER}: hits are in the order of the fusion",)
        reranker = chosen.reranker
        if wanted is True and reranker is None:
            raise ConfigurationError("rerank=True needs a reranker: name one with reranker_model= or --reranker")
        return reranker, ()

    def _log(self, opened: OpenCollection, requests: Sequence[Request], found: Sequence[SearchResults]) -> None:
        """Pass questions to the query log, which writes them later; do nothing if questions are not logged."""
        # Beside the transaction of a connection that somebody else owns, but never with more rights.
        database, role = self._handle.resources.database, opened.database.role
        database = database if role is None else database.acting_as(role)
        self._handle.resources.query_log.note(database, opened.info, requests, found)

    async def _route(
        self, question: str | None, by: RouteBy | Literal[False] | None, seconds: float | None
    ) -> Route | None:
        if by is None and question is not None:
            by = self._handle.search_defaults.get("route")
        if not by:
            return None
        if question is None:
            raise ConfigurationError("route needs a question as text: leave route out if you search by a vector alone")
        if errors := text_errors("question", question, max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        from semlex.answering.questions import route_by_chat, route_by_rules

        if by == "rules":
            return route_by_rules(question)
        resources = await self._handle.resources.ready()
        model = (await resources.chat_model()).model
        if model is None:
            raise ConfigurationError("route='chat' needs a language model: name one with chat_model= or --chat-model")
        return await route_by_chat(question, model, resources.executor, resources.clock, seconds)

    async def _rewrite(self, question: str | None, wanted: bool | None, seconds: float | None) -> Rewrite | None:
        """Let a language model write search terms for a question, if the call or the retriever wants it."""
        if not (self._handle.search_defaults.get("rewrite") if wanted is None else wanted):
            return None
        if question is None:
            if wanted is None:
                return None
            raise ConfigurationError(
                "rewrite needs a question as text: leave rewrite out if you search by a vector alone"
            )
        if errors := text_errors("question", question.strip(), max_bytes=MAX_QUERY_BYTES, blank=False):
            raise ValidationError(errors)
        resources = await self._handle.resources.ready()
        model = (await resources.chat_model()).model
        if model is None and wanted is None:
            return Rewrite(warning="the query was not rewritten: no chat model is configured (chat_model)")
        if model is None:
            raise ConfigurationError("rewrite needs a language model: name one with chat_model= or --chat-model")
        from semlex.answering.questions import Rewriting

        rewriting = Rewriting(model, resources.executor, resources.clock, resources.rewrites, self.description)
        return await rewriting.rewrite(question.strip(), self.names, seconds)


def _counting(opened: OpenCollection) -> tuple[Counting, list[str]]:
    """Return a collection's token counter; if its model is not loaded, an estimate by words, and a note about that."""
    from semlex.answering.context import Counting

    own = opened.info.settings.token_counter
    try:
        counter = opened.models.token_counter(opened.info.names.collection, own)
    except ModelMismatchError:
        note = (
            f"tokens are estimated from words, because the collection's token counter {own} is not loaded here; to "
            "count them otherwise, pass a function as count="
        )
        return Counting.of(TokenEstimate()), [note]
    return Counting.of(counter), []


def _analyzer(settings: CollectionSettings) -> _core.Analyzer:
    """Return the analyzer of a collection's language; the analyzer "simple" for a language that only Postgres knows."""
    try:
        return analyzer_of(settings.language, True)
    except ConfigurationError:
        return analyzer_of("simple", True)


def folder_options(options: WatchOptions) -> FolderOptions:
    """Return the options that say which files are synchronised and how they are read."""
    from semlex.ingest.loaders.base import LoadOptions
    from semlex.ingest.sync import FolderOptions

    return FolderOptions(**picked(FolderKeys, options), loading=LoadOptions(**picked(ReadOptions, options)))
