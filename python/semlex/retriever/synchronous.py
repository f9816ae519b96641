"""Client, collection, retriever, knowledge base without an event loop: the same methods, without ``await``.

Made by ``./x synchronous`` from the asynchronous classes: change those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar

from semlex.retriever.loop_thread import LoopRunner
from semlex.store.query.hits import Relation, fill_table_sync
from semlex.types.reports import JobInfo
from semlex.answering.options import DEFAULT_HITS
from semlex.answering.options import DEFAULT_NEAR_DUPLICATES
from semlex.answering.options import DEFAULT_NEIGHBOURS
from semlex.answering.options import DEFAULT_SECTIONS
from semlex.answering.options import DEFAULT_TOKENS
from semlex.embedding.query_cache import DEFAULT_QUERIES
from semlex.parameters import DEFAULT_BM25
from semlex.parameters import DEFAULT_CACHE_BYTES
from semlex.parameters import DEFAULT_LIMITS
from semlex.retriever.client import ANY_OPTIONS
from semlex.retriever.client import Client
from semlex.retriever.configured.search_defaults import NO_DEFAULTS
from semlex.retriever.knowledge_base import KnowledgeBase
from semlex.retriever.parts.explaining import DEFAULT_DEPTH
from semlex.retriever.parts.queries import DEFAULT_LISTED
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.search.facets import DEFAULT_CANDIDATES
from semlex.search.facets import DEFAULT_VALUES
from semlex.store.write.copy import DEFAULT_BULK
from semlex.types.answers import MIN_COVERAGE
from semlex.types.answers import MIN_SIMILARITY
from semlex.types.reports import DEFAULT_ATTEMPTS
from semlex.types.reports import DEFAULT_KEEP_DAYS
from semlex.types.reports import DEFAULT_LEASE_SECONDS

if TYPE_CHECKING:
    from psycopg import Connection
    from collections.abc import Callable
    from collections.abc import Coroutine
    from collections.abc import Generator
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence
    from datetime import datetime
    from numpy.typing import ArrayLike
    from os import PathLike
    from pathlib import Path
    from semlex.answering.options import ContextOrder
    from semlex.answering.options import Count
    from semlex.chat.base import ChatModel
    from semlex.diagnostics.status import CountedCollection
    from semlex.diagnostics.status import CollectionStatus
    from semlex.diagnostics.status import ServerHealth
    from semlex.embedding.base import Embedder
    from semlex.filters.forms import Boosts
    from semlex.filters.forms import Filters
    from semlex.ingest.bulk.load import LoadReport
    from semlex.ingest.document_states import Documents
    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.given_documents import Given
    from semlex.ingest.given_documents import OnError
    from semlex.ingest.loaders.base import OnBadText
    from semlex.ingest.loaders.extraction import Extract
    from semlex.ingest.loaders.extraction import MetadataExtraction
    from semlex.ingest.progress import DeleteReport
    from semlex.ingest.progress import IndexReport
    from semlex.ingest.progress import SyncReport
    from semlex.jobs.job import Job
    from semlex.json_values import AnyId
    from semlex.maintenance.dump import TransferReport
    from semlex.maintenance.reembed import ReembedReport
    from semlex.parameters import Bm25Options
    from semlex.parameters import CollectionOptions
    from semlex.parameters import DistanceName
    from semlex.parameters import FileLimits
    from semlex.parameters import StorageName
    from semlex.progress import ProgressOption
    from semlex.reranking.base import Reranker
    from semlex.retriever.base import DocumentRetriever
    from semlex.retriever.collection import Collection
    from semlex.retriever.configured.search_defaults import SearchDefaults
    from semlex.retriever.parts.answers import Hits
    from semlex.retriever.parts.embeddings import Figures
    from semlex.retriever.parts.explaining import Chunks
    from semlex.retriever.parts.reads import ManyResults
    from semlex.retriever.parts.reads import Vectors
    from semlex.retriever.parts.upkeep import Sources
    from semlex.search.fusion import FusionMethod
    from semlex.search.postprocess.steps import HitStep
    from semlex.store.foreign_tables import LayoutName
    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.estimate import IndexEstimate
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.keyword.base import Rebuilt
    from semlex.store.postgres.connection import CallersConnection
    from semlex.store.query.hits import Included
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.collection import ListedCollection
    from semlex.store.schema.registry import Step
    from semlex.store.write.chunks import OnDuplicate
    from semlex.store.write.copy import BulkIngestConfig
    from semlex.types.answers import Answer
    from semlex.types.answers import AnswerSentence
    from semlex.types.answers import Context
    from semlex.types.checkups import Checkup
    from semlex.types.checkups import Diagnosis
    from semlex.types.confidence import ConfidenceCurve
    from semlex.types.documents import Ids
    from semlex.types.documents import Outline
    from semlex.types.documents import WholeDocument
    from semlex.types.explanations import Explanation
    from semlex.types.fields import Facets
    from semlex.types.fields import FieldSummaries
    from semlex.types.fields import IndexedType
    from semlex.types.queries import RouteBy
    from semlex.types.queries import SearchQuery
    from semlex.types.query_log import QueryLogMode
    from semlex.types.query_log import QueryLogOptions
    from semlex.types.query_log import QueryLogSummary
    from semlex.types.reports import EnrichmentReport
    from semlex.types.reports import JobState
    from semlex.types.reports import TableImport
    from semlex.types.results import KnowledgeResults
    from semlex.types.results import SearchMode
    from semlex.types.results import SearchResult
    from semlex.types.results import SearchResults

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncJob(JobInfo):
    """A job as it was when it was read. It is a value: its methods give the job as it is then."""

    _job: Job = field(repr=False, compare=False, kw_only=True)
    _runner: LoopRunner = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, job: Job, runner: LoopRunner) -> Self:
        """The same job without ``await``."""
        return cls(**job.values(), _job=job, _runner=runner)

    def status(self) -> SyncJob:
        """The job as it is now.

        Raises:
            ConfigurationError: It has ended, and was removed.
        """
        return SyncJob.of(self._runner.run(self._job.status), self._runner)

    def wait(
        self,
        timeout: float | None = None,
    ) -> SyncJob:
        """The job when it has ended: done, failed or cancelled.

        Args:
            timeout: Seconds to wait at most; None: any time.

        Raises:
            JobTimeoutError: It has not ended by then; it goes on.
        """
        return SyncJob.of(self._runner.run(self._job.wait, timeout), self._runner)

    def cancel(self) -> SyncJob:
        """Ends it, if it is queued; if it is running, its worker ends it soon, with whole batches only.

        Raises:
            ConfigurationError: It is done, or has failed.
        """
        return SyncJob.of(self._runner.run(self._job.cancel), self._runner)

    def retry(self) -> SyncJob:
        """Puts it back into the queue after it has failed, or was cancelled; what it had done is not done again.

        Raises:
            ConfigurationError: It is in another state.
        """
        return SyncJob.of(self._runner.run(self._job.retry), self._runner)


class SyncCollection:
    """`Collection` behind plain functions, callable from any thread; `SyncClient.collection` makes one."""

    def __init__(self, collection: Collection, runner: LoopRunner) -> None:
        self._collection = collection
        self._runner = runner

    @property
    def collection(self) -> Collection:
        """The asynchronous collection behind this one."""
        return self._collection

    def using(self, connection: CallersConnection) -> SyncCollection:
        """Return the same collection through your connection: what is read and written joins your transaction.

        If no transaction has begun, the first call begins it, as any statement would; you commit it or roll it back.
        In autocommit, outside a transaction, every call has transactions of its own.

        Args:
            connection: Of psycopg, with or without ``await``; Django's ``django.db.connection``; or a session or
                connection of SQLAlchemy on psycopg (of an `AsyncSession`: ``await session.connection()``). It is open,
                stays yours, and must not be used by others during a call.

        Raises:
            ConfigurationError: It is something else.
        """
        return SyncCollection(self._collection.using(connection), self._runner)

    def hits_into(
        self,
        connection: Connection[Any],
        results: Sequence[SearchResult],
        table: str,
        *,
        include: Sequence[Included] = (),
    ) -> int:
        """Puts hits into a temporary table of a transaction of yours, to be joined with your tables.

        The table ends with the transaction. Its columns: ``rank``, ``document_rank`` (of a search that is grouped by
        document), ``id``, ``document_id`` (with ``id`` the key of the collection's chunks), ``source``,
        ``source_document``, ``line``, ``page``, ``vector_rank``, ``keyword_rank``, and every score under its name;
        what a hit does not have is NULL. It works on any server, behind PgBouncer in transaction mode as well, and
        changes no setting of the session.

        Args:
            connection: Open, of psycopg, in a transaction or without autocommit (it begins one then); it stays yours.
            results: What a search found, or some of it.
            table: Its name, any that is free; it is quoted.
            include: Texts that are wanted as well: ``excerpt``, ``content``, ``metadata`` (as jsonb).

        Returns:
            How many hits are in it.

        Raises:
            ConfigurationError: The connection is in autocommit and in no transaction, or its transaction has failed;
                there is a table of that name, or it is no name; `results` are no hits.
            ReadOnlyError: The transaction is read-only, or the server a standby.
        """
        return fill_table_sync(connection, Relation(results, include), table)

    async def awaited(
        self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Calls a method of `collection` from an event loop of yours, which goes on meanwhile.

        The call itself runs on the loop of this object, so that sync and async callers can share it.

        Raises:
            WorkAbandonedError: It was closed meanwhile.
        """
        return await self._runner.awaited(method, *arguments, **options)

    @property
    def info(self) -> CollectionInfo:
        """What is known of the open collection."""
        return self._collection.info

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The defaults that the open collection does not follow, because it was made with another value.

        Name -> (default, what the collection has).
        """
        return self._collection.unused_defaults

    @property
    def embedding_choice(self) -> str:
        """One line: which embedding model was chosen for the open collection, and why."""
        return self._collection.embedding_choice

    def add_documents(
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
        """Stores documents as they are: one document, one chunk; nothing is cut.

        All rows are checked before anything is embedded or written. They are written in transactions of
        `bulk.batch_size` rows; running the call again after a failure neither loses nor doubles anything. Of a repeated
        id the last document wins, with ``skip`` the first. A document without an id gets one that follows from its
        content and metadata.

        A chunk that was read, changed and passed here replaces the stored one; a changed file replaces it again.

        Args:
            documents: Any iterable, read once, of `Document`, `ChunkMetadata` or `VectorDocument` (whose vectors are
                used; all or none). They are copied: what is changed during the call is not stored.
            embeddings: Your own vectors, shape (n, d); else the model makes them. A list may have None for a document
                that brings none. An array of float32 is not copied.
            on_duplicate: ``update`` replaces a stored document of the same id, ``skip`` leaves it, ``fail`` refuses
                the batch.
            on_error: ``raise`` refuses all documents if one breaks a rule; ``skip`` leaves those out, stores the
                others, and returns in `Ids.skipped` what is wrong with each.
            extract_metadata: As for `index`; where it fails, nothing is written.
            enrichment: As for `index`. Chunks that get no line are logged as a warning.
            progress: Called after every batch; ``bar`` shows it.

        Returns:
            The ids of what is stored, in the order of `documents`.

        Raises:
            ValidationError: With every error of every row; nothing was written.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            DuplicateError: With ``fail``: ids are repeated, or stored.
        """
        return self._runner.run(self._collection.add_documents, documents, embeddings, on_duplicate=on_duplicate, on_error=on_error, extract_metadata=extract_metadata, enrichment=enrichment, progress=progress)

    def upsert(
        self,
        documents: Given,
        embeddings: ArrayLike | None = None,
        *,
        on_error: OnError = "raise",
    ) -> Ids:
        """`add_documents` by the name that says that a stored document of the same id is replaced."""
        return self._runner.run(self._collection.upsert, documents, embeddings, on_error=on_error)

    def add_texts(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[AnyId] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        embeddings: ArrayLike | None = None,
        on_duplicate: OnDuplicate = "update",
        on_error: OnError = "raise",
    ) -> Ids:
        """`add_documents` for texts with their ids and metadata beside them; all must have the same length."""
        return self._runner.run(self._collection.add_texts, texts, ids=ids, metadata=metadata, embeddings=embeddings, on_duplicate=on_duplicate, on_error=on_error)

    def index(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> IndexReport:
        """Reads files and folders, cuts them at headings and by tokens, and stores their chunks.

        Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be
        read does not stop the run; it is in the report.

        A path belongs to the source whose folder contains it; another becomes a source of its own, named after it (a
        file: after its folder). A document is its path below that folder.

        Args:
            paths: Files or folders.
            source: Name of the new source, instead of its folder's.
            include: Glob patterns of files to read; by default the usual text formats.
            exclude: Glob patterns of files and folders to leave out.
            recursive: Whether to enter folders below.
            chunk_tokens: Most tokens of a chunk; None is what the collection's other files were cut with.
            overlap_tokens: Most tokens that neighbours share; None likewise.
            min_tokens: Sections with fewer tokens are joined with the next one where both fit; None likewise.
            text_fields: Of tables and JSON Lines: the fields that are text; the others become metadata. By default all
                that hold text are.
            id_field: Of tables and JSON Lines: the field that names a record; no two of a file may share a value.
            detect_encoding: Whether a text that is not UTF-8 is read in the encoding that it most probably has; it is
                reported as a problem otherwise.
            on_bad_text: What becomes of a file with bytes that are no text, or with characters that cannot be stored
                (NUL, half of a surrogate pair): ``error`` reports it as a problem, ``repair`` puts U+FFFD for each of
                them, ``skip`` leaves the file out. The report counts them.
            extract_metadata: A function of yours that reads metadata out of a text, sync or async, or a
                `MetadataExtraction`. It is called for files that are read; one for which it fails is a problem of the
                report. What was given by hand wins over what it returns.
            enrichment: A language model that writes a line about each chunk of these files, as for `enrich`, when they
                are stored; None asks nobody, and lines that were written before stay with chunks that did not change.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A path does not exist or contains the folders of sources, a name is another folder's,
                or a number is out of bounds.
            CollectionSettingsError: The files of this collection are cut in another way.
            ModelError: The language model fails before anything is written.
        """
        return self._runner.run(self._collection.index, *paths, source=source, include=include, exclude=exclude, recursive=recursive, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens, text_fields=text_fields, id_field=id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text, extract_metadata=extract_metadata, enrichment=enrichment, progress=progress)

    def embed_missing(
        self,
        progress: ProgressOption = None,
    ) -> int:
        """Computes the vectors of chunks that have none; returns how many were written."""
        return self._runner.run(self._collection.embed_missing, progress)

    def search(
        self,
        query: str | SearchQuery | None = None,
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod | None = None,
        weights: Mapping[str, float] | None = None,
        rrf_k: float | None = None,
        candidates: int | None = None,
        ef_search: int | None = None,
        probes: int | None = None,
        deadline: float | None = None,
        exact_rows: int | None = None,
        index_share: float | None = None,
        boost: Boosts | None = None,
        max_results: int | None = None,
        group_by: Literal["document"] | None = None,
        group_size: int | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
        fallback: DocumentRetriever | Literal[False] | None = None,
        explain: bool = False,
        route: RouteBy | Literal[False] | None = None,
    ) -> SearchResults:
        """The chunks that fit a query best.

        Both legs run in one snapshot of the database. When one of them fails, or is late for the `deadline`, the other
        answers and `SearchResults.warnings` says so. `top_k` results come back whenever as many exist. What a call
        leaves out is as the retriever was made (`SearchDefaults`), else as it stands here.

        Args:
            query: A question or words, 1 character to 4 KiB after trimming; or a `SearchQuery` that brings text,
                vector, top_k and filters, which must not be given beside it then.
            top_k: Number of results, 1 to 1,000; 5.
            filters: A mapping, a text, or what `F` makes; see docs/filters.md.
            vector: A query vector of your own, numbers of shape (d,); the model is not asked then.
            mode: ``vector``, ``keyword`` or ``hybrid``; None is hybrid where both legs are possible.
            rerank: Whether the reranker orders the best 4 x top_k candidates; None as the retriever was made.
            fusion: ``completed`` (both legs' exact scores of all candidates; the default), ``rrf`` or ``linear``.
            weights: Weight per leg. ``completed``: the legs' shares, by default the embedder's ``fusion_weight`` (else
                0.5) for ``vector``; the others: factors, by default 1.
            rrf_k: Constant of RRF; 60.
            candidates: Candidates per leg; by default max(30, 3 x top_k), and 4 x top_k before a reranker.
            ef_search: Size of the HNSW index's candidate list, at most 1,000.
            probes: Lists of an IVFFlat index to look into, at most 32,768; by default as the index was asked for.
            deadline: Seconds from the beginning of the call; what has answered by then is the answer.
            exact_rows: Ids that a filter with both legs is read as, at most; by default 20,000.
            index_share: Least share of the chunks that must pass a filter for the vector index to be asked, 0 to 1; by
                default 0.08. Of a narrower one the answer is exact.
            boost: Filter -> factor (above 0, at most 1,000), or pairs of both: what passes a filter has its fused score
                multiplied before the best are chosen, by every factor that fits. A reranker goes by the texts alone.
            max_results: Opens a list of at most so many hits, `top_k` to 1,000, of which this is the first page:
                `SearchResults.next_cursor` leads to the next one (`search_page`). The reranker orders the best
                4 x `top_k` of the list.
            group_by: ``document``: `top_k` counts documents then, which stand in the order of their best chunks
                (`SearchResults.documents`). As many come back whenever as many exist.
            group_size: Most chunks of a document, which are its best among the candidates; 3.
            min_similarity: Least cosine of a hit, -1 to 1; which one means "relevant" depends on the model and the
                texts. Completed fusion or mode ``vector``. A fused score takes no threshold: it orders the candidates
                of one query, and means nothing beside another's.
            min_rerank: Least score by the reranker, 0 to 1. Where nothing reaches a threshold, the result is empty and
                its warnings say what the best has.
            fallback: Asked, with query, `top_k` and filters, when nothing was found, such as a `JSONKBRetriever`; the
                result says so (`SearchResults.fallback`). None: that of the retriever, if it has one; False: none.
            explain: Whether `SearchResults.explanation` says what the answer rests on: the plan, and of every hit the
                words that it shares with the question. It costs a look at the keyword index for each word.
            route: Whether the kind of the question sets `candidates`, `rerank` and `group_by` where they are not given:
                ``rules`` or ``chat`` (the chat model, which is sent it) decides; see `SearchResults.route`. None: as
                the retriever was made; False: never.

        Raises:
            ValidationError: The query, top_k or a filter is refused.
            EmbeddingsMissingError: mode="vector" and the collection has no vectors.
            SearchTimeoutError: Nothing had answered at the deadline.
        """
        return self._runner.run(self._collection.search, query, top_k, filters, vector=vector, mode=mode, rerank=rerank, fusion=fusion, weights=weights, rrf_k=rrf_k, candidates=candidates, ef_search=ef_search, probes=probes, deadline=deadline, exact_rows=exact_rows, index_share=index_share, boost=boost, max_results=max_results, group_by=group_by, group_size=group_size, min_similarity=min_similarity, min_rerank=min_rerank, fallback=fallback, explain=explain, route=route)

    def search_page(
        self,
        cursor: str,
        filters: Filters | None = None,
        *,
        deadline: float | None = None,
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
        return self._runner.run(self._collection.search_page, cursor, filters, deadline=deadline)

    def search_many(
        self,
        queries: Iterable[str | SearchQuery],
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod | None = None,
        weights: Mapping[str, float] | None = None,
        rrf_k: float | None = None,
        candidates: int | None = None,
        ef_search: int | None = None,
        probes: int | None = None,
        exact_rows: int | None = None,
        index_share: float | None = None,
        boost: Boosts | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
    ) -> ManyResults:
        """Many searches at once: the model embeds all queries in one batch, and all see one snapshot of the database.

        The results are those of `search`, query by query. They are answered one after another on one connection, which
        is what measuring, deduplicating and the like want; for many users at once, many calls of `search` are faster.

        Args:
            queries: At most 1,000, each as for `search`.
            top_k: Number of results of each. All queries together load at most 50,000 rows: `top_k` for each, and
                4 x `top_k` before a reranker.
            filters: As for `search`; so are the others.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            rrf_k: As for `search`.
            candidates: As for `search`.
            ef_search: As for `search`.
            probes: As for `search`.
            exact_rows: As for `search`.
            index_share: As for `search`.
            boost: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.

        Returns:
            The results of each query, in their order.

        Raises:
            ValidationError: With every query that is refused, or there are too many.
            EmbeddingsMissingError: As for `search`.
        """
        return self._runner.run(self._collection.search_many, queries, top_k, filters, mode=mode, rerank=rerank, fusion=fusion, weights=weights, rrf_k=rrf_k, candidates=candidates, ef_search=ef_search, probes=probes, exact_rows=exact_rows, index_share=index_share, boost=boost, min_similarity=min_similarity, min_rerank=min_rerank)

    def get(
        self,
        ids: Iterable[AnyId],
    ) -> Chunks:
        """Chunks by id, in the order of `ids`; missing ones are left out."""
        return self._runner.run(self._collection.get, ids)

    def vectors(
        self,
        ids: Iterable[AnyId],
    ) -> Vectors:
        """Vectors of chunks as they are stored, float32 of shape (d,), by id; missing are those without one."""
        return self._runner.run(self._collection.vectors, ids)

    def count(
        self,
        filters: Filters | None = None,
    ) -> int:
        """Number of chunks that pass a filter; a field that no chunk has is logged."""
        return self._runner.run(self._collection.count, filters)

    def list(
        self,
        filters: Filters | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
    ) -> Chunks:
        """Chunks without a question, in the order of their keys.

        Args:
            filters: As for `search`.
            limit: Most chunks, 1 to 10,000.
            after: Id of the last chunk of the page before; None for the first page.

        Raises:
            ValidationError: A number, an id or a filter is refused.
        """
        return self._runner.run(self._collection.list, filters, limit=limit, after=after)

    def context(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        neighbours: int = DEFAULT_NEIGHBOURS,
        sections: float | None = DEFAULT_SECTIONS,
        parents: bool = False,
        per_document: int | None = None,
        near_duplicates: float | None = DEFAULT_NEAR_DUPLICATES,
        diversity: float | None = None,
        order: ContextOrder = "score",
        count: Count | None = None,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod | None = None,
        weights: Mapping[str, float] | None = None,
        candidates: int | None = None,
        deadline: float | None = None,
        boost: Boosts | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
        route: RouteBy | None = None,
    ) -> Context:
        """The passages that fit a question best, as numbered text for a prompt.

        The hits of a search are joined with what stands around them in their documents: chunks that touch or overlap
        become one passage, in which no character stands twice; others are passages of their own. The best hits are
        taken first, each with its surroundings where they fit, else alone, else not (`Context.left_out`). The best hit
        alone is cut behind a sentence where it is longer than the budget.

        Args:
            question: 1 character to 4 KiB after trimming.
            tokens: Most tokens of the whole text, numbers and places included, 1 to 10,000,000. They are counted as
                those of the collection's chunks are.
            top_k: Hits of the search, 1 to 200.
            filters: As for `search`; they hold for hits, not for what stands around them in the same documents.
            neighbours: How many chunks before and after each hit belong to it, 0 to 100.
            sections: A section belongs to its hits as a whole where at least this share of its chunks are hits, 0.01 to
                1; None for never.
            parents: Whether the chunk that a hit names as its parent belongs to it.
            per_document: Most hits of a document; None for any number.
            near_duplicates: A hit is left out where at least this share of its runs of five words stand in one better
                hit, 0.01 to 1; its place is in `ContextSource.same_as`. None keeps all.
            diversity: 0 to 1: how much a hit gains by being unlike those before it, by their vectors (maximal marginal
                relevance); None for the order of the search.
            order: ``score``: passages in the order of their best hits; ``document``: those of one document together, in
                its order.
            count: Counts the tokens of a text for another model, in a thread.
            vector: As for `search`; so are the others.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            candidates: As for `search`.
            deadline: As for `search`; what stands around the hits is read afterwards.
            boost: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.
            route: As for `search`; it sets `candidates`, `rerank` and `per_document` where they are not given.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or `count` gave no number.
        """
        return self._runner.run(self._collection.context, question, tokens, top_k=top_k, filters=filters, neighbours=neighbours, sections=sections, parents=parents, per_document=per_document, near_duplicates=near_duplicates, diversity=diversity, order=order, count=count, vector=vector, mode=mode, rerank=rerank, fusion=fusion, weights=weights, candidates=candidates, deadline=deadline, boost=boost, min_similarity=min_similarity, min_rerank=min_rerank, route=route)

    def diversify(
        self,
        hits: Sequence[SearchResult],
        diversity: float = 0.5,
    ) -> Hits:
        """Hits in another order: each as relevant, and as unlike those before it, as possible, by their stored vectors.

        This is maximal marginal relevance; the relevance is that of the scores that ordered the hits, from 1 for the
        best to 0 for the last. A hit without a vector keeps its place.

        Args:
            hits: Of a search of this collection, best first.
            diversity: 0 (the order that they have) to 1 (as unlike as possible).

        Raises:
            ConfigurationError: A hit is none, or the number is out of bounds.
        """
        return self._runner.run(self._collection.diversify, hits, diversity)

    def answer(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        min_coverage: float = MIN_COVERAGE,
        min_similarity: float = MIN_SIMILARITY,
        route: RouteBy | None = None,
    ) -> Answer:
        """An answer to a question, from the collection's documents alone, with every quote looked up.

        With a `chat_model` it is written by that model, which is sent the question and the passages. Without one it
        consists of up to three sentences of the documents, chosen by the question's words.

        There is an answer or a reason why not (`Answer.refused`): nothing was found, the hits hardly speak of what is
        asked, or the model finds no answer in them. A model's server that fails is a warning, and sentences of the
        documents stand in for it. What the model wrote without a quote that stands in the documents is in the answer,
        and in `Answer.unsupported`.

        Args:
            question: As for `context`.
            tokens: As for `context`.
            context: What is answered from, made by `context` with other options; none of the search's beside it.
            top_k: As for `context`.
            filters: As for `context`.
            mode: As for `context`.
            rerank: As for `context`.
            min_coverage: 0 to 1. There is no answer where `SearchResults.coverage` is below this and
                `SearchResults.best_similarity` below the other, as far as they are known. 0 in one of both: always one.
            min_similarity: 0 to 1, for `SearchResults.best_similarity`.
            route: As for `context`; the result has it in ``context.results.route``.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, or the chat model's name cannot be used.
        """
        return self._runner.run(self._collection.answer, question, tokens, context=context, top_k=top_k, filters=filters, mode=mode, rerank=rerank, min_coverage=min_coverage, min_similarity=min_similarity, route=route)

    def answer_stream(
        self,
        question: str,
        tokens: int = DEFAULT_TOKENS,
        *,
        context: Context | None = None,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        min_coverage: float = MIN_COVERAGE,
        min_similarity: float = MIN_SIMILARITY,
        route: RouteBy | None = None,
    ) -> Generator[AnswerSentence | Answer, None, None]:
        """`answer`, sentence by sentence while it is written: each after its citations were looked up.

        Args:
            question: As for `answer`; so are the others.
            tokens: As for `answer`.
            context: As for `answer`.
            top_k: As for `answer`.
            filters: As for `answer`.
            mode: As for `answer`.
            rerank: As for `answer`.
            min_coverage: As for `answer`.
            min_similarity: As for `answer`.
            route: As for `answer`.

        Returns:
            Each sentence, and at the end the answer as a whole.

        Raises:
            ValidationError: As for `answer`.
            ConfigurationError: As for `answer`.
        """
        return self._runner.iterate(self._collection.answer_stream, question, tokens, context=context, top_k=top_k, filters=filters, mode=mode, rerank=rerank, min_coverage=min_coverage, min_similarity=min_similarity, route=route)

    def checkup(
        self,
        sample: int | None = None,
        *,
        seed: int = 0,
        mode: SearchMode | None = None,
        progress: ProgressOption = None,
        estimated: Callable[[float], None] | None = None,
    ) -> Checkup:
        """How well this collection can be searched, without judged questions: its own headings are asked.

        Each heading of the sample (of Python code the first line of a docstring) is a question, which should find the
        section below it. It is taken out of that section first, in memory: of the path above the chunks and of their
        text. They are embedded and analysed anew so, and ranked among all other chunks as they are, in the order of
        the default fusion, without a reranker. Nothing is written.

        Args:
            sample: Most headings, 1 to 100,000; None for 200 with a model that takes long to embed, else 2,000.
            seed: Of the sample, 0 to 2,147,483,647; the same one asks the same headings.
            mode: As for `search`.
            progress: Called after every heading; ``bar`` shows it.
            estimated: Called once, after the first headings, with the seconds that the others will take.

        Raises:
            ConfigurationError: An argument is refused, the collection is empty, it has no heading that could be asked,
                or its keyword engine is none that tells its scores.
            EmbeddingsMissingError: As for `search`.
        """
        return self._runner.run(self._collection.checkup, sample, seed=seed, mode=mode, progress=progress, estimated=estimated)

    def queries(
        self,
        *,
        limit: int = DEFAULT_LISTED,
    ) -> QueryLogSummary:
        """What the query log holds: the most frequent questions, and those that found nothing.

        Questions of this process that are not written yet are not in it.

        Args:
            limit: Most questions of each list, 1 to 10,000.
        """
        return self._runner.run(self._collection.queries, limit=limit)

    def clear_queries(self) -> int:
        """Deletes all logged questions; returns how many.

        Raises:
            PrivilegeError: This role may not delete.
        """
        return self._runner.run(self._collection.clear_queries)

    def why(
        self,
        document: str,
        question: str | SearchQuery | None = None,
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod | None = None,
        weights: Mapping[str, float] | None = None,
        rrf_k: float | None = None,
        candidates: int | None = None,
        ef_search: int | None = None,
        probes: int | None = None,
        deadline: float | None = None,
        exact_rows: int | None = None,
        index_share: float | None = None,
        boost: Boosts | None = None,
        max_results: int | None = None,
        group_by: Literal["document"] | None = None,
        group_size: int | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
        route: RouteBy | Literal[False] | None = None,
    ) -> Explanation:
        """Why a document is where it is in the answer to a question, or why it is missing.

        The search is made as `search` would make it, with what the retriever was made with. Then it is counted how many
        chunks are nearer, looked up which words are shared, and tried what would bring the document in. It reads only.

        Args:
            document: Id of a chunk or of an added document; a path as `documents` lists it, with or without its source
                (``docs: keys.md``), the end of one path only, or a path on disk; a line may follow (``keys.md:9``).
            question: As `query` of `search`; so are the others.
            top_k: As for `search`.
            filters: As for `search`.
            vector: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            rrf_k: As for `search`.
            candidates: As for `search`.
            ef_search: As for `search`.
            probes: As for `search`.
            deadline: As for `search`: of the search itself, not of what is read beside it.
            exact_rows: As for `search`.
            index_share: As for `search`.
            boost: As for `search`.
            max_results: As for `search`; the first page is looked at.
            group_by: As for `search`.
            group_size: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.
            route: As for `search`.

        Raises:
            ValidationError: The document's name, the query, top_k or a filter is refused.
            ConfigurationError: The name means several documents; the message lists them.
            EmbeddingsMissingError: As for `search`.
        """
        return self._runner.run(self._collection.why, document, question, top_k, filters, vector=vector, mode=mode, rerank=rerank, fusion=fusion, weights=weights, rrf_k=rrf_k, candidates=candidates, ef_search=ef_search, probes=probes, deadline=deadline, exact_rows=exact_rows, index_share=index_share, boost=boost, max_results=max_results, group_by=group_by, group_size=group_size, min_similarity=min_similarity, min_rerank=min_rerank, route=route)

    def candidates(
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
        return self._runner.run(self._collection.candidates, query, depth, filters, weights=weights, boost=boost, deadline=deadline)

    def get_document(
        self,
        document: str,
    ) -> WholeDocument:
        """The text of a document with its chunks; of a place in one (``keys.md:9``) or of an id, the chunks it means.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        return self._runner.run(self._collection.get_document, document)

    def outline(
        self,
        document: str,
    ) -> Outline:
        """The headings of a document in their order, each with its line and the chunks below it.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        return self._runner.run(self._collection.outline, document)

    def fields(
        self,
        *,
        values: bool = False,
    ) -> FieldSummaries:
        """The fields that chunks have: names, types with counts, and which have an index.

        At most 10,000 chunks on random pages are looked at, fewer where their metadata is large; a field of few chunks
        may be missing. Names are those of the metadata, and with ``@`` what semlex knows itself; never a chunk's text.

        Args:
            values: Whether to give values, too: of each field the five most frequent ones, at most 40 characters of
                each.
        """
        return self._runner.run(self._collection.fields, values=values)

    def add_field(
        self,
        name: str,
        type: IndexedType,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Builds an index that serves comparisons of a field: ``<``, ``<=``, ``>``, ``>=``, ``between``, and prefixes.

        Equality needs none: the index on the whole metadata serves it. A filter finds the same chunks with and without;
        it finds them faster where few pass. An index that is there already is left as it is.

        Args:
            name: The field, as filters write it.
            type: ``number`` or ``text``, as which it is compared (a date is a text); ``instant`` for ``@created`` and
                ``@updated``.
            force: Whether to build it, too, when no chunk that was looked at has such a value.
            progress: Called as the work goes on; ``bar`` shows it.

        Returns:
            The name of the index; empty when it was there. Its `warnings` say what should be known.

        Raises:
            ValidationError: It is no name of a field, or no index can serve that.
            ConfigurationError: No chunk that was looked at has such a value.
        """
        return self._runner.run(self._collection.add_field, name, type, force=force, progress=progress)

    def remove_field(
        self,
        name: str,
    ) -> tuple[IndexedType, ...]:
        """Drops the index of a field; values and what filters find stay as they are.

        Args:
            name: The field, as filters write it.

        Returns:
            The types that it had an index for.

        Raises:
            ConfigurationError: It has none.
        """
        return self._runner.run(self._collection.remove_field, name)

    def facets(
        self,
        fields: Sequence[str],
        filters: Filters | None = None,
        *,
        query: str | None = None,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        candidates: int = DEFAULT_CANDIDATES,
        limit: int = DEFAULT_VALUES,
    ) -> Facets:
        """Which values fields have, and how many chunks have each.

        Without a query, over all chunks that pass the filter: exact. With one, over its candidates: the best chunks of
        each leg. `Facets.of` and `Facets.exact` say which it was.

        Args:
            fields: 1 to 20 names as in filters: a key of the metadata, a path with dots, or ``@source`` and the like. A
                list counts with each of its values.
            filters: As for `search`.
            query: As for `search`.
            vector: As for `search`.
            mode: As for `search`; ``keyword`` counts only chunks that hold words of the query.
            candidates: Of each leg, 1 to 10,000.
            limit: Most values of a field, 1 to 1,000.

        Raises:
            ValidationError: A field, the filter or the query is refused.
        """
        return self._runner.run(self._collection.facets, fields, filters, query=query, vector=vector, mode=mode, candidates=candidates, limit=limit)

    def enrich(
        self,
        enrichment: Enrichment | str | ChatModel,
        *,
        source: str | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> EnrichmentReport:
        """Lets a language model write one line about each chunk that has none, and stores the chunk with it.

        The line says what the chunk is about, in words that people would ask with. It is embedded and found by words
        with the chunk, and is never a part of its text. The model is sent the titles and the text of each chunk. A
        chunk whose titles and text do not change keeps its line, whoever stores it again; a run that was ended is
        continued by the same call.

        Args:
            enrichment: A language model, its name, or both with how it is asked (`Enrichment`).
            source: Name of the only source whose chunks are wanted.
            dry_run: Whether only to count what the lines would cost; nothing is sent then.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: The model's name cannot be used, or there is no such source.
            ModelError: The model fails before the first line; nothing was written.
            EmbeddingsMissingError: The collection has vectors, and their model is not open.
        """
        return self._runner.run(self._collection.enrich, enrichment, source=source, dry_run=dry_run, progress=progress)

    def sync(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        dry_run: bool = False,
        keep_deleted: bool = False,
        allow_empty: bool = False,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> SyncReport:
        """Makes the collection hold what files and folders hold: as `index`, and what is gone is deleted.

        A file that has its size, times and inode of the last run is not read. One that was renamed keeps its chunks and
        vectors; nothing of it is embedded. A document whose file cannot be looked at stays.

        Args:
            paths: Files or folders.
            source: As for `index`.
            include: As for `index`.
            exclude: As for `index`; documents of what a pattern leaves out stay.
            recursive: As for `index`.
            dry_run: Whether to compare only; the report's `plan` says what would be done.
            keep_deleted: Whether documents stay whose file is gone.
            allow_empty: Whether a path that is missing, or holds no file, means that its documents are to be deleted.
            text_fields: As for `index`.
            id_field: As for `index`.
            detect_encoding: As for `index`.
            on_bad_text: As for `index`.
            chunk_tokens: As for `index`.
            overlap_tokens: As for `index`.
            min_tokens: As for `index`.
            extract_metadata: As for `index`.
            enrichment: As for `index`.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A path is missing or empty while documents of it are stored; or as for `index`.
            CollectionSettingsError: As for `index`.
        """
        return self._runner.run(self._collection.sync, *paths, source=source, include=include, exclude=exclude, recursive=recursive, dry_run=dry_run, keep_deleted=keep_deleted, allow_empty=allow_empty, text_fields=text_fields, id_field=id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens, extract_metadata=extract_metadata, enrichment=enrichment, progress=progress)

    def watch(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        keep_deleted: bool = False,
        allow_empty: bool = False,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        extract_metadata: MetadataExtraction | Extract | None = None,
        poll: bool = False,
        progress: ProgressOption = None,
    ) -> Generator[SyncReport, None, None]:
        """Synchronises, and again whenever something changes, until the iteration is ended.

        Changes are gathered for at most a second. Every five minutes all is looked at, whatever the system has told.

        Args:
            paths: Files or folders.
            source: As for `sync`.
            include: As for `sync`.
            exclude: As for `sync`.
            recursive: As for `sync`.
            keep_deleted: As for `sync`.
            allow_empty: As for `sync`.
            text_fields: As for `sync`.
            id_field: As for `sync`.
            detect_encoding: As for `sync`.
            on_bad_text: As for `sync`.
            chunk_tokens: As for `sync`.
            overlap_tokens: As for `sync`.
            min_tokens: As for `sync`.
            extract_metadata: As for `sync`.
            poll: Whether to look again and again instead of asking the system for events, as for network drives. So
                it is, too, where the system cannot watch so many folders; `watched_by` of the reports says which.
            progress: Called as the work goes on; ``bar`` shows it.

        Returns:
            The report of the first synchronisation, then of each that did something or met other problems.

        Raises:
            ConfigurationError: As for `sync`.
        """
        return self._runner.iterate(self._collection.watch, *paths, source=source, include=include, exclude=exclude, recursive=recursive, keep_deleted=keep_deleted, allow_empty=allow_empty, text_fields=text_fields, id_field=id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens, extract_metadata=extract_metadata, poll=poll, progress=progress)

    def documents(
        self,
        source: str | None = None,
        *,
        limit: int | None = None,
        after: str | None = None,
    ) -> Documents:
        """The documents that were read from files, with the states of these, and what the last run could not read.

        A file with the size, times and inode of the last run is not read. Documents that were added are not among them.

        Args:
            source: Name of the only source to list.
            limit: Maximum number of documents, up to 1,000,000; None: all.
            after: ``next_after`` of the page before.

        Raises:
            ConfigurationError: There is no such source.
        """
        return self._runner.run(self._collection.documents, source, limit=limit, after=after)

    def load_vectors(
        self,
        rows: Any,
        *,
        text_field: str = "text",
        vector_field: str = "vector",
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str = "metadata",
        on_duplicate: OnDuplicate = "update",
        progress: ProgressOption = None,
    ) -> LoadReport:
        """Loads rows that bring their vectors, at the speed of COPY; a row is a chunk, nothing is cut or embedded.

        Vectors of float32 are stored bit for bit; other numbers are rounded to it. Rows are read, checked and written
        in transactions of `bulk.batch_size` rows (fewer where vectors are long), so memory is bounded by the batch
        however many there are. An error names the row; the batches before it are stored, and loading all rows again
        doubles nothing. In a transaction of yours (`using`) it is all or nothing.

        Args:
            rows: A table with an Arrow stream (pyarrow, polars, DuckDB, pandas); a mapping of columns, lists or NumPy
                arrays; an iterable of these; or the path of a Parquet or JSON Lines file, of a folder of them, or
                several paths. Tables of Arrow and Parquet need the extra ``arrow``.
            text_field: The text.
            vector_field: Its vector: numbers, as many in every row.
            id_field: What names a row, a text or a whole number; by default ``id``, where there is such a field. Rows
                without one get ids that follow from text and metadata.
            metadata_fields: Fields that become metadata, each under its name; by default all others. Times become text
                (ISO 8601, to the microsecond, in UTC if they have a zone). What a row does not have, or is null, is no
                key of it.
            metadata_field: A field that holds objects, or their JSON text: their keys become metadata as they are.
            on_duplicate: Of a row whose id is stored: ``update`` replaces it, ``skip`` leaves it, ``fail`` fails the
                batch. Of an id that is repeated in a batch the last row wins, or it fails.
            progress: Called after every batch; ``bar`` shows it.

        Raises:
            ConfigurationError: A field is missing or of another type, a file cannot be read; nothing was written,
                unless it says how many rows are.
            ValidationError: With every error of every row of the batch.
            DuplicateError: An id is stored or repeated, with ``fail``.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            MissingExtraError: pyarrow is needed and not installed.
        """
        return self._runner.run(self._collection.load_vectors, rows, text_field=text_field, vector_field=vector_field, id_field=id_field, metadata_fields=metadata_fields, metadata_field=metadata_field, on_duplicate=on_duplicate, progress=progress)

    def import_table(
        self,
        table: str,
        *,
        layout: LayoutName | None = None,
        source_url: str | None = None,
        source_schema: str = "public",
        text_field: str | None = None,
        vector_field: str | None = None,
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str | None = None,
        on_duplicate: OnDuplicate = "update",
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> TableImport:
        """Loads the rows of a table that another library has filled; a row is a chunk, nothing is cut or embedded.

        The table is read in one snapshot, and nothing in it is changed. Vectors are stored bit for bit, texts, ids and
        metadata as that library gives them. Rows are written in transactions, as by `load_vectors`; loading the table
        again updates what it holds. A row that cannot be stored is skipped, and the report names it.

        Args:
            table: Of langchain-postgres, LlamaIndex (with or without ``data_`` before it) or Haystack; or a collection
                of LangChain's older `PGVector`.
            layout: ``langchain-postgres``, ``langchain-pgvector``, ``llama-index`` or ``haystack``; ``pgvector`` is any
                other table. None: the one that its columns show.
            source_url: Connection string for libpq of the database that it is in; None: the collection's.
            source_schema: The schema that it is in.
            text_field: Column of the text; None: the layout's own.
            vector_field: Column of the vectors; None: the layout's own.
            id_field: Column of the ids; None: the layout's own.
            metadata_fields: Other columns that become metadata, each under its name; None: all of them where the layout
                has such. A null is no key.
            metadata_field: Column of JSON objects whose keys become metadata; None: the layout's own.
            on_duplicate: Of a row whose id is stored: ``update`` replaces it, ``skip`` leaves it, ``fail`` fails the
                batch.
            dry_run: Whether to read all rows and say what would be skipped, and to write nothing; the collection need
                not exist.
            progress: As for `load_vectors`.

        Raises:
            ConfigurationError: There is no such table, or several may be meant; an argument cannot be used.
            ConnectionFailedError: The source cannot be reached, or is lost; the batches before that are stored.
            PrivilegeError: The role may not read the table.
            DuplicateError: An id is stored, with ``fail``.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
        """
        return self._runner.run(self._collection.import_table, table, layout=layout, source_url=source_url, source_schema=source_schema, text_field=text_field, vector_field=vector_field, id_field=id_field, metadata_fields=metadata_fields, metadata_field=metadata_field, on_duplicate=on_duplicate, dry_run=dry_run, progress=progress)

    def dump(
        self,
        folder: str | PathLike[str],
        progress: ProgressOption = None,
    ) -> TransferReport:
        """Writes the collection into a new folder: chunks with vectors, documents, sources and the log, as Parquet.

        It is one snapshot, streamed, while others search and write. The manifest is written last; without it the folder
        is no dump. `Client.restore` reads it, on any server; so do pandas and DuckDB. Needs the extra ``arrow``.

        Args:
            folder: Does not exist, is empty, or holds what a dump that was killed has left.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: The folder holds something, another dump writes into it, or it cannot be made.
            MissingExtraError: pyarrow is not installed.
        """
        return self._runner.run(self._collection.dump, folder, progress)

    def hits_as_sql(
        self,
        results: Sequence[SearchResult],
        *,
        include: Sequence[Included] = (),
    ) -> str:
        """A SELECT that answers with hits, to be pasted into psql, into ``WITH hits AS (…)`` or after FROM.

        The columns are those of `hits_into`. Every value is quoted by the driver, as the settings of a connection to
        this collection's server ask for; the statement holds the hits as they are, and asks nothing of the collection.
        No hits are a relation without rows, of the same types. It ends without a semicolon.

        Args:
            results: What a search found, or some of it.
            include: Texts that are wanted as well: ``excerpt``, ``content``, ``metadata`` (as jsonb).

        Raises:
            ConfigurationError: `results` are no hits, or `include` names something else.
            ValidationError: A hit that was made by hand holds what cannot be stored.
        """
        return self._runner.run(self._collection.hits_as_sql, results, include=include)

    def reembed(
        self,
        model: str | Embedder,
        *,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        vector_storage: StorageName | None = None,
        restart: bool = False,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> ReembedReport:
        """Changes the embedding model, while the collection is searched and written.

        The vectors of the new model are made beside those that serve. When none is missing, their index is built and
        both were looked at, they serve whoever opens the collection from then on. Who holds the old model, this object
        included, goes on with the old vectors; open the collection anew with the new model. A run that was ended is
        continued by the same call.

        Args:
            model: An `Embedder`; a model's name or folder; or ``"static"``.
            dimensions: Length of the new vectors, as for a retriever.
            tokenizer: Of a model behind a server, as for a retriever.
            vector_storage: ``vector`` or ``halfvec``; None is as the vectors are stored now.
            restart: Whether what an earlier run has made is dropped first.
            dry_run: Whether to count only.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: The collection has this model already, or a change to another one was begun.
            StoreError: Another process is at it, or a check failed: nothing was switched.
            ModelError: The model fails, or makes other vectors of the same text than before.
        """
        return self._runner.run(self._collection.reembed, model, dimensions=dimensions, tokenizer=tokenizer, vector_storage=vector_storage, restart=restart, dry_run=dry_run, progress=progress)

    def rollback_embeddings(
        self,
        model: str | Embedder | None = None,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> ReembedReport:
        """Lets the vectors serve again that served before the last change, after making those that it lacks.

        Args:
            model: The one that made them; None: as the collection names it, where it can be used here.
            force: Whether to go back although chunks lack a vector and the model cannot be used.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: Nothing served before.
            StoreError: Chunks lack a vector and the model cannot be used, or another process is at it.
            ModelMismatchError: The named model makes other vectors.
        """
        return self._runner.run(self._collection.rollback_embeddings, model, force=force, progress=progress)

    def embeddings(self) -> Figures:
        """All sets of vectors with their counts, by their numbers."""
        return self._runner.run(self._collection.embeddings)

    @property
    def calibration(self) -> ConfidenceCurve | None:
        """What gives hits their `SearchResult.confidence`: the curve of the named file, else the stored one.

        Raises:
            ConfigurationError: The collection is not open, or the file is of another model.
        """
        return self._collection.calibration

    def store_calibration(
        self,
        curve: ConfidenceCurve | None,
    ) -> None:
        """Stores a curve with the vectors in use, in place of the one that they have; other vectors have others.

        Processes that search notice it within 20 seconds.

        Args:
            curve: As `semlex.evaluation.calibrate` has learned it; None drops the one that there is.

        Raises:
            ConfigurationError: It was learned with another model, or there are no vectors.
            PrivilegeError: This role may not write: keep the curve in a file.
        """
        self._runner.run(self._collection.store_calibration, curve)

    def drop_embeddings(
        self,
        version: int,
        *,
        force: bool = False,
    ) -> None:
        """Drops a set of vectors.

        Args:
            version: Its number; not that of the serving one.
            force: Whether to drop it although a process has searched it within the last minute, or fills it.

        Raises:
            ConfigurationError: There is none of that number, or it serves.
            StoreError: It is in use.
        """
        self._runner.run(self._collection.drop_embeddings, version, force=force)

    def submit(
        self,
        kind: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        priority: int = 0,
        unique_key: str | None = None,
        not_before: datetime | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
    ) -> SyncJob:
        """Stores a job for this collection, which a worker does (`Client.work`, ``semlex worker``).

        The kinds are ``index``, ``sync`` (with ``paths``, and what the methods take), ``add`` (with ``documents``, and
        ``on_duplicate``), ``optimize``, ``rechunk``, ``embed`` and ``reembed`` (with ``model``). A job may be begun
        more than once: it goes on where it was, and what it does is there once. A collection that is not there yet is
        made, but its model is not loaded.

        Args:
            kind: What is to be done.
            arguments: What it is done with, at most 1 MiB as JSON. Paths are made absolute; they are the worker's.
            priority: A higher one goes first; -1,000,000 to 1,000,000.
            unique_key: While a job of this key is queued for the collection, that one is returned, and no other is
                stored; at most 512 bytes.
            not_before: When it may be begun.
            max_attempts: How often it is begun before it has failed; 1 to 1,000.

        Raises:
            ConfigurationError: There is no such kind or argument, or a value is refused.
            ValidationError: With every error of every document.
            CollectionNotFoundError: There is no collection, and none is to be made.
        """
        return SyncJob.of(self._runner.run(self._collection.submit, kind, arguments, priority=priority, unique_key=unique_key, not_before=not_before, max_attempts=max_attempts), self._runner)

    def delete(
        self,
        ids: Sequence[AnyId] | None = None,
        *,
        document: str | None = None,
        source: str | None = None,
        filters: Filters | None = None,
        vanished: bool = False,
        dry_run: bool = False,
    ) -> DeleteReport:
        """Deletes chunks with their vectors; what is given must all hold. Missing ones are fine.

        At most 1,000 documents are deleted in one transaction. A document of which nothing is left is forgotten, so
        that indexing its file brings it back.

        Args:
            ids: Ids of chunks.
            document: Path of a document below the folder of its source, or `source_document` of an added one.
            source: Name of a source: the documents that were read from it. With nothing else given, the source is
                removed as well.
            filters: As for `search`.
            vanished: Only documents whose file is gone.
            dry_run: Whether to count only.

        Raises:
            ConfigurationError: Nothing is given, there is no such source, or the folder of a source is not there.
        """
        return self._runner.run(self._collection.delete, ids, document=document, source=source, filters=filters, vanished=vanished, dry_run=dry_run)

    def sources(self) -> Sources:
        """Every source with its counts, by name."""
        return self._runner.run(self._collection.sources)

    def move_source(
        self,
        name: str,
        root: str | Path,
    ) -> None:
        """Says where the folder of a source is now. Its documents stay what they are.

        Args:
            name: Name of the source.
            root: The folder.

        Raises:
            ConfigurationError: There is no such source, `root` is no folder, or it contains or lies in the folder of
                another source.
        """
        self._runner.run(self._collection.move_source, name, root)

    def rechunk(
        self,
        *,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        source: str | None = None,
        dry_run: bool = False,
        extract_metadata: MetadataExtraction | Extract | None = None,
        progress: ProgressOption = None,
    ) -> IndexReport:
        """Cuts documents anew, from their files: those that an older version of semlex has read or cut.

        With other settings, which are the collection's from then on, it cuts all of them. A chunk whose text stays the
        same keeps its vector. A run that was ended is completed by the next one.

        Args:
            chunk_tokens: Most tokens of a chunk; None is what the collection has.
            overlap_tokens: Most tokens that neighbours share; None likewise.
            min_tokens: Sections with fewer tokens are joined with the next one where both fit; None likewise.
            source: Name of the only source to work on.
            dry_run: Whether to count only: `changed`, `chunks` and `embedded` of the report are what would be done.
            extract_metadata: As for `index`: without it, what it gave before is gone from chunks that are cut anew.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A number is out of range, there is no such source, or other settings for one source.
        """
        return self._runner.run(self._collection.rechunk, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens, source=source, dry_run=dry_run, extract_metadata=extract_metadata, progress=progress)

    def create_index(
        self,
        index: VectorIndex | None = None,
        *,
        concurrently: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Builds the indexes now; by itself that happens after a load that passes 10,000 rows.

        A vector index of another kind, or with other options, is built first, then the old one is dropped. What was
        not built to its end is dropped, too.

        Args:
            index: `HnswIndex`, `IvfflatIndex` or `NoIndex`, from now on; None is what was asked for last, and at first
                `HnswIndex()`.
            concurrently: Whether writers go on meanwhile, instead of waiting until it is built; it takes about twice as
                long. Needs ``db_url``. Behind a transaction pooler writers wait all the same, and a warning says so.
            progress: Called as the work goes on; ``bar`` shows it.

        Returns:
            Names of the indexes that were made; its `busy` names those that another process is building, `dropped`
            those that were dropped.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message says what there is.
            StoreError: It could not be built; writers may have held the table for too long.
        """
        return self._runner.run(self._collection.create_index, index, concurrently=concurrently, progress=progress)

    def estimate_index(
        self,
        index: VectorIndex | None = None,
    ) -> IndexEstimate | None:
        """What building a vector index would take: memory, time and size; None when there is nothing to build.

        Args:
            index: As for `create_index`.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message says what there is.
        """
        return self._runner.run(self._collection.estimate_index, index)

    def optimize(
        self,
        progress: ProgressOption = None,
    ) -> int:
        """Merges the keyword index (engine ``bm25``) to few, full segments; returns how many were merged.

        Writers merge a little after each write. This goes on to the end, for example after a large load.
        """
        return self._runner.run(self._collection.optimize, progress)

    def reindex_keyword(
        self,
        progress: ProgressOption = None,
    ) -> Rebuilt:
        """Makes the keyword index (engine ``bm25``) anew from the stored texts, while it is searched and written.

        It is the way to another version of the analyzer, and the way out of a damaged index.

        Raises:
            ConfigurationError: The collection has another keyword engine.
        """
        return self._runner.run(self._collection.reindex_keyword, progress)

    def status(
        self,
        *,
        exact: bool = False,
    ) -> CollectionStatus:
        """Where the collection is, and its figures: counts, model, indexes, the last run.

        Large tables are estimated (``estimated`` is True), and what only a count can give is None, unless `exact`.
        """
        return self._runner.run(self._collection.status, exact=exact)

    def drop(self) -> bool:
        """Drops the collection with everything in it; whether it was there."""
        return self._runner.run(self._collection.drop)


class SyncClient:
    """`Client` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `Client` itself: waiting here would block that loop. `close` ends the calls of other threads with a
    `WorkAbandonedError`. A forked child opens everything anew at its first call.

    Args:
        db_url: libpq connection string; None (and no `pool`) starts the embedded Postgres.
        embedding_model: As for `PostgreSQLRetriever`.
        reranker_model: As for `PostgreSQLRetriever`.
        use_reranking: As for `PostgreSQLRetriever`.
        device: As for `PostgreSQLRetriever`.
        dimensions: As for `PostgreSQLRetriever`.
        tokenizer: As for `PostgreSQLRetriever`.
        models: As for `PostgreSQLRetriever`.
        chat_model: As for `PostgreSQLRetriever`.
        schema: Schema that holds semlex's tables.
        defaults: As for `PostgreSQLRetriever`.
        data_folder: Folder of the embedded Postgres: a path, or its text.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        max_connections: Size of the pool: so many searches run at a time, the others wait in order.
        timeout: Seconds to wait for the server. A call that waits for a connection is refused if none becomes free for
            so long.
        cached_queries: Most query vectors that are kept in memory for when they are asked again; 0 keeps none.
        query_log: As for `PostgreSQLRetriever`.
        file_limits: As for `PostgreSQLRetriever`.
        keyword_cache_bytes: Most bytes of posting lists that are kept in memory, of all collections together.
        role: Role of the database whose rights everything has but `work` and `diagnose`, as for `collection`.
        search_defaults: What searches of its collections begin with, as for `PostgreSQLRetriever`.
    """

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        device: str | None = None,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        models: Sequence[str] = (),
        chat_model: str | ChatModel | None = None,
        schema: str = "semlex",
        defaults: Mapping[str, Any] | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        max_connections: int = 8,
        timeout: float = 10.0,
        cached_queries: int = DEFAULT_QUERIES,
        query_log: QueryLogMode | QueryLogOptions = "off",
        file_limits: FileLimits = DEFAULT_LIMITS,
        keyword_cache_bytes: int = DEFAULT_CACHE_BYTES,
        role: str | None = None,
        search_defaults: SearchDefaults = NO_DEFAULTS,
    ) -> None:
        self._client = Client(db_url, embedding_model, reranker_model, use_reranking, device=device, dimensions=dimensions, tokenizer=tokenizer, models=models, chat_model=chat_model, schema=schema, defaults=defaults, data_folder=data_folder, keep_alive=keep_alive, max_connections=max_connections, timeout=timeout, cached_queries=cached_queries, query_log=query_log, file_limits=file_limits, keyword_cache_bytes=keyword_cache_bytes, role=role, search_defaults=search_defaults)
        self._runner = LoopRunner(self._client)

    @property
    def client(self) -> Client:
        """The asynchronous client behind this one."""
        return self._client

    def collection(
        self,
        name: str,
        options: CollectionOptions = ANY_OPTIONS,
        *,
        create: bool = True,
        bm25: Bm25Options = DEFAULT_BM25,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        schema: str | None = None,
        role: str | None = None,
        calibration: str | PathLike[str] | None = None,
    ) -> SyncCollection:
        """A collection; it is opened, or made, by the first call of one of its methods.

        Args:
            name: Lower-case letters, digits and underscores, at most 48.
            options: For a new collection; refused where an existing one has another value.
            create: Whether to make it when it does not exist.
            bm25: Constants of the keyword engine ``bm25``. (Its memory is the client's: `keyword_cache_bytes`.)
            bulk: How documents are written: rows of a transaction, size of a COPY block.
            schema: Schema of its tables; None: the client's.
            role: Role of the database whose rights every transaction of the collection has, so that the server refuses
                what is not the role's; None: the client's. The login must be a member of it (docs/tenants.md).
            calibration: As for `PostgreSQLRetriever`.

        Raises:
            ValidationError: The name or the schema cannot be used.
            ConfigurationError: An option or the role cannot be used.
        """
        return SyncCollection(self._client.collection(name, options, create=create, bm25=bm25, bulk=bulk, schema=schema, role=role, calibration=calibration), self._runner)

    def collections(self) -> list[ListedCollection]:
        """Every collection of the schema, by name.

        Raises:
            SchemaVersionError: A newer or an unreleased semlex made them.
        """
        return self._runner.run(self._client.collections)

    def count_collections(self) -> list[CountedCollection]:
        """Every collection of the schema, by name, with its counts; large tables are estimated."""
        return self._runner.run(self._client.count_collections)

    def migrate(
        self,
        *,
        dry_run: bool = False,
    ) -> list[Step]:
        """Migrates the tables of all collections to the form that this version uses; opening one does that, too.

        Args:
            dry_run: Whether only to say what there is to do.

        Returns:
            What was done, or is to be done: each step with the SQL for a role that may change tables.

        Raises:
            PrivilegeError: This role may not change them.
            SchemaVersionError: A newer or an unreleased semlex made one of them.
        """
        return self._runner.run(self._client.migrate, dry_run=dry_run)

    def drop(
        self,
        name: str,
    ) -> None:
        """Drops a collection with everything in it, whatever its version.

        Raises:
            CollectionNotFoundError: There is none of that name.
        """
        self._runner.run(self._client.drop, name)

    def restore(
        self,
        folder: str | PathLike[str],
        collection: str | None = None,
        *,
        keyword: str | None = None,
        vector_storage: StorageName | None = None,
        build_indexes: bool = True,
        progress: ProgressOption = None,
    ) -> TransferReport:
        """Makes a collection from a dump, with its vectors; its keyword index and vector indexes are built anew.

        The files are compared with their hashes first; then all rows are written in one transaction and counted.
        Needs the extra ``arrow``.

        Args:
            folder: What `Collection.dump` has made.
            collection: Another name; the collection does not exist, or is empty.
            keyword: Another keyword engine, where the server lacks the dumped one.
            vector_storage: ``vector`` or ``halfvec``, where it is to be another.
            build_indexes: Whether vector indexes are built where there are many rows; if not, call `create_index`.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            DumpError: The dump is cut, changed, or of another version; nothing was restored.
            ConfigurationError: The collection is not empty.
            MissingExtraError: pyarrow is not installed.
        """
        return self._runner.run(self._client.restore, folder, collection, keyword=keyword, vector_storage=vector_storage, build_indexes=build_indexes, progress=progress)

    def jobs(
        self,
        *,
        state: JobState | None = None,
        collection: str | None = None,
        limit: int = 100,
    ) -> list[SyncJob]:
        """The jobs of all collections that were submitted last, the newest first; without their documents.

        Args:
            state: Only those in it: ``queued``, ``running``, ``done``, ``failed`` or ``cancelled``.
            collection: Only those of the collection of this name.
            limit: At most so many.
        """
        return [SyncJob.of(job, self._runner) for job in self._runner.run(self._client.jobs, state=state, collection=collection, limit=limit)]

    def count_jobs(
        self,
        *,
        deadline: float | None = None,
    ) -> dict[JobState, int]:
        """Return the number of jobs in each state.

        Args:
            deadline: Seconds to wait for the database; None: as long as it takes.

        Raises:
            SearchTimeoutError: The deadline passed.
        """
        return self._runner.run(self._client.count_jobs, deadline=deadline)

    def job(
        self,
        job_id: str,
    ) -> SyncJob:
        """A job by its id.

        Raises:
            ConfigurationError: There is none.
        """
        return SyncJob.of(self._runner.run(self._client.job, job_id), self._runner)

    def work(
        self,
        *,
        concurrency: int = 1,
        allow: Sequence[str | Path] = (),
        models: Sequence[str | Embedder] = (),
        drain: bool = False,
        limit: int | None = None,
        lease: float = DEFAULT_LEASE_SECONDS,
        keep_days: float = DEFAULT_KEEP_DAYS,
        tell: Callable[[str], None] | None = None,
    ) -> int:
        """Does the jobs of all collections of the schema, until it is cancelled; any number may work side by side.

        When it is cancelled, running jobs come to the end of their batch, and are given back; cancelled once more, it
        waits for no batch. Models are those of this client and of the collections, never of a job.

        Args:
            concurrency: Most jobs at a time.
            allow: Folders that jobs may read, with all below them; none by default.
            models: Names or embedders to which jobs may change a collection; none by default.
            drain: Whether it ends when no job is left that may be begun now.
            limit: How many jobs it begins before it ends; None: any number.
            lease: Seconds after which a job of a silent worker goes on elsewhere, at least 1.
            keep_days: Days for which ended jobs are kept.
            tell: Gets a line about each job, and about a server that is lost.

        Returns:
            How many jobs have ended here.

        Raises:
            ConfigurationError: A value is refused, or a folder is not there.
        """
        return self._runner.run(self._client.work, concurrency=concurrency, allow=allow, models=models, drain=drain, limit=limit, lease=lease, keep_days=keep_days, tell=tell)

    def diagnose(
        self,
        collection: str | None = None,
        *,
        tell: Callable[[str], None] | None = None,
    ) -> Diagnosis:
        """What is wrong with models, server and collections, each with what helps. Nothing is written.

        The models that this client was made with are tried. A large table is looked at in samples, each check in a
        short transaction of its own; the answer says what was sampled, and what could not be checked.

        Args:
            collection: The only collection whose rows are looked at; None for all of the schema.
            tell: Told what is looked at, before it is.

        Raises:
            CollectionNotFoundError: There is no such collection.
        """
        return self._runner.run(self._client.diagnose, collection, tell=tell)

    def pool_figures(self) -> dict[str, int]:
        """Connections to the database: ``size``, ``idle``, and how many callers are ``waiting`` for one."""
        return self._runner.run(self._client.pool_figures)

    def health_check(
        self,
        *,
        deadline: float | None = None,
    ) -> ServerHealth:
        """Return whether the database answers; never raises for a database that does not.

        Args:
            deadline: Seconds to wait for its answer; by default the client's ``timeout``. Opening, which the first call
                does, takes as long as it takes.
        """
        return self._runner.run(self._client.health_check, deadline=deadline)

    def initialize(self) -> None:
        """Opens it; does nothing when it is open."""
        self._runner.initialize()

    def close(self) -> None:
        """Closes what was opened; calls of other threads end with a `WorkAbandonedError`."""
        self._runner.close()

    def __reduce__(self) -> str:
        return self._runner.__reduce__()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncRetriever(SyncCollection):
    """`PostgreSQLRetriever` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `PostgreSQLRetriever` itself: waiting here would block that loop. `close` ends the calls of other threads with a
    `WorkAbandonedError`. A forked child opens everything anew at its first call.

    Args:
        db_url: libpq connection string; None (and no `pool` or `connection`) starts the embedded Postgres.
        embedding_model: An `Embedder`; a model's name or folder; ``"static"``; ``"none"`` for keywords only; or None:
            the model that the collection was made with, else the best that is at hand (`embedding_choice` says which
            and why).
        reranker_model: A `Reranker`, a model's name or folder, ``"none"`` or None.
        use_reranking: True, False, or ``"auto"``: when a reranker is named, or cached and a GPU is there.
        device: Where local models run: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        dimensions: Length of the vectors: they are cut to it; for static models and your own embedder it is a check.
        tokenizer: The ``tokenizer.json`` of a model behind a server, whose tokens then measure chunks: its path, that
            of its folder, or a hub id in the local cache. Without one a word counts as two tokens.
        models: Models behind servers or in folders that a collection may name, beside those of ``SEMLEX_MODELS`` and of
            your own settings file. Other such names are not followed: words answer then, with a warning.
        chat_model: Writes answers: a `ChatModel`, or the name of one behind a server (``openai:MODEL``,
            ``http(s)://HOST/v1#MODEL``), which is sent questions and passages; ``"none"`` or None: answers are
            sentences of the documents.
        collection: Name: lower-case letters, digits and underscores, at most 48.
        schema: Schema that holds semlex's tables.
        role: Role of the database whose rights every transaction has, so that the server refuses what is not the
            role's; None: those of the login. The login must be a member of it (docs/tenants.md).
        create: Whether to make the collection when it does not exist.
        language: Language of the texts, a Snowball name such as ``english`` (the default), or its ISO 639-1 code.
        keyword: Keyword engine: ``bm25`` (the default), ``tsvector``, ``tsvector_cd`` or ``none``, or that of an
            extension which the server has: ``pg_textsearch``, ``pg_search``.
        stop_words: Whether words that every text has are left out of the keyword index (``bm25``); True.
        bm25: Constants of ``bm25``, and how much of its index is kept in memory.
        distance: ``cosine`` (the default), ``l2`` or ``inner_product``.
        vector_storage: ``vector`` (float32, the default), or ``halfvec`` (float16: half the size, and indexes up to
            4,000 dimensions where float32 has them up to 2,000).
        with_context: Whether titles and heading path are analysed and embedded with the text; True.
        chunk_tokens: Most tokens of a chunk, 16 to 2,000; 500. Stored when the first file is cut.
        overlap_tokens: Most tokens that neighbouring chunks share; 50. Stored when the first file is cut.
        min_tokens: Sections with fewer tokens are joined with the next one where both fit, up to half of
            `chunk_tokens`; 32, or a quarter of `chunk_tokens` where that is less. Stored when the first file is cut.
        defaults: For new collections only: `embedding_model` (a name), `dimensions`, `tokenizer` (a path), and the
            options from `language` to `min_tokens` (without `bm25`). An argument of its own is refused where an
            existing collection has another value; a default is not, and `unused_defaults` tells. The model ``none`` is
            for all collections.
        data_folder: Folder of the embedded Postgres: a path, or its text.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        bulk: How documents are written: rows of a transaction, size of a COPY block.
        max_connections: Size of the pool: so many searches run at a time, the others wait in order.
        timeout: Seconds to wait for the server. A call that waits for a connection is refused if none becomes free for
            so long.
        cached_queries: Most query vectors that are kept in memory for when they are asked again; 0 keeps none.
        calibration: File of a calibration that gives hits their `SearchResult.confidence`, in place of the one that is
            stored; refused where it was learned with another model.
        query_log: What is kept of the questions that are asked: ``off`` (the default), ``hash``, ``text``, or
            `QueryLogOptions`. It is written after the answer, and read with `Collection.queries`.
        file_limits: The largest files that are read: 16 MiB, and 128 MiB of PDF, office files, books and mail.
        search_defaults: Arguments of searches that their calls may leave out.
        fallback: Asked when a search has found nothing, as the `fallback` of `Collection.search`.
    """

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        device: str | None = None,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        models: Sequence[str] = (),
        chat_model: str | ChatModel | None = None,
        collection: str = "default_collection",
        schema: str = "semlex",
        role: str | None = None,
        create: bool = True,
        language: str | None = None,
        keyword: str | None = None,
        stop_words: bool | None = None,
        bm25: Bm25Options = DEFAULT_BM25,
        distance: DistanceName | None = None,
        vector_storage: StorageName | None = None,
        with_context: bool | None = None,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        defaults: Mapping[str, Any] | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        max_connections: int = 8,
        timeout: float = 10.0,
        cached_queries: int = DEFAULT_QUERIES,
        calibration: str | PathLike[str] | None = None,
        query_log: QueryLogMode | QueryLogOptions = "off",
        file_limits: FileLimits = DEFAULT_LIMITS,
        search_defaults: SearchDefaults = NO_DEFAULTS,
        fallback: DocumentRetriever | None = None,
    ) -> None:
        self._retriever = PostgreSQLRetriever(db_url, embedding_model, reranker_model, use_reranking, device=device, dimensions=dimensions, tokenizer=tokenizer, models=models, chat_model=chat_model, collection=collection, schema=schema, role=role, create=create, language=language, keyword=keyword, stop_words=stop_words, bm25=bm25, distance=distance, vector_storage=vector_storage, with_context=with_context, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens, defaults=defaults, data_folder=data_folder, keep_alive=keep_alive, bulk=bulk, max_connections=max_connections, timeout=timeout, cached_queries=cached_queries, calibration=calibration, query_log=query_log, file_limits=file_limits, search_defaults=search_defaults, fallback=fallback)
        super().__init__(self._retriever, LoopRunner(self._retriever))

    @property
    def retriever(self) -> PostgreSQLRetriever:
        """The asynchronous retriever behind this one."""
        return self._retriever

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""
        return self._retriever.embedder

    @property
    def reranker(self) -> Reranker | None:
        """The model that reranks, or None; the first search that reranks chooses it."""
        return self._retriever.reranker

    @property
    def reranking_choice(self) -> str:
        """One line: which reranker was chosen, and why."""
        return self._retriever.reranking_choice

    def open_reranker(self) -> Reranker | None:
        """The reranker, or None; chosen at the first call, as by the first search that reranks."""
        return self._runner.run(self._retriever.open_reranker)

    def drop_collection(self) -> bool:
        """Drops the collection with everything in it, and closes this retriever."""
        dropped = self._runner.run(self._retriever.drop_collection)
        self.close()
        return dropped

    def collections(self) -> list[ListedCollection]:
        """Every collection of the schema, by name."""
        return self._runner.run(self._retriever.collections)

    def health_check(
        self,
        *,
        deadline: float | None = None,
    ) -> ServerHealth:
        """Return whether the database answers; never raises for a database that does not.

        Args:
            deadline: Seconds to wait for its answer; by default the retriever's ``timeout``. Opening, which the first
                call does, takes as long as it takes.
        """
        return self._runner.run(self._retriever.health_check, deadline=deadline)

    def initialize(self) -> None:
        """Opens it; does nothing when it is open."""
        self._runner.initialize()

    def close(self) -> None:
        """Closes what was opened; calls of other threads end with a `WorkAbandonedError`."""
        self._runner.close()

    def __reduce__(self) -> str:
        return self._runner.__reduce__()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncKnowledgeBase:
    """`KnowledgeBase` behind plain functions, callable from any thread; it owns one event loop in one thread.

    It is put together step by step, and every step gives a new one. Close it with `close`, or use it with ``with``.
    Inside a running event loop use `KnowledgeBase` itself: waiting here would block that loop.
    """

    def __init__(self) -> None:
        self._take(KnowledgeBase())

    def _take(self, knowledge_base: KnowledgeBase) -> Self:
        self._knowledge_base = knowledge_base
        self._runner = LoopRunner(knowledge_base)
        return self

    @property
    def knowledge_base(self) -> KnowledgeBase:
        """The asynchronous knowledge base behind this one."""
        return self._knowledge_base

    def collection(self, label: str) -> SyncCollection:
        """One of the collections, to be filled or searched by itself.

        Args:
            label: Its name in the knowledge base.

        Raises:
            ConfigurationError: There is none of that name, or the knowledge base was closed.
            ConnectionFailedError: Its server cannot be reached.
        """
        return SyncCollection(self._runner.run(self._knowledge_base.collection, label), self._runner)

    def with_model(
        self,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        device: str | None = None,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        models: Sequence[str] = (),
    ) -> SyncKnowledgeBase:
        """The same with these models for the collections that are added from now on.

        Without it a collection is searched with the model that it was made with.

        Args:
            embedding_model: As for `PostgreSQLRetriever`.
            reranker_model: As for `PostgreSQLRetriever`.
            use_reranking: As for `PostgreSQLRetriever`.
            device: As for `PostgreSQLRetriever`.
            dimensions: As for `PostgreSQLRetriever`.
            tokenizer: As for `PostgreSQLRetriever`.
            models: As for `PostgreSQLRetriever`.
        """
        return SyncKnowledgeBase()._take(self._knowledge_base.with_model(embedding_model, reranker_model, use_reranking, device=device, dimensions=dimensions, tokenizer=tokenizer, models=models))

    def with_database(
        self,
        db_url: str | None = None,
        *,
        schema: str = "semlex",
        role: str | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        max_connections: int = 8,
        timeout: float = 10.0,
    ) -> SyncKnowledgeBase:
        """The same with this server for the collections that are added from now on.

        Without it they are those of the embedded Postgres.

        Args:
            db_url: libpq connection string; None (and no `pool`) starts the embedded Postgres.
            schema: Schema of the collections, where `add` names no other.
            role: Role as which they are read, where `add` names no other; see `Client.collection`.
            pool: An open pool that stays yours.
            data_folder: Folder of the embedded Postgres: a path, or its text.
            keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
            max_connections: Size of the pool.
            timeout: Seconds to wait for the server or for a free connection.

        Raises:
            ValidationError: The schema cannot be used.
            ConfigurationError: The role cannot be used.
        """
        return SyncKnowledgeBase()._take(self._knowledge_base.with_database(db_url, schema=schema, role=role, data_folder=data_folder, keep_alive=keep_alive, max_connections=max_connections, timeout=timeout))

    def add(
        self,
        name: str,
        options: CollectionOptions = ANY_OPTIONS,
        *,
        label: str | None = None,
        schema: str | None = None,
        role: str | None = None,
        create: bool = False,
        calibration: str | PathLike[str] | None = None,
    ) -> SyncKnowledgeBase:
        """The same with one more collection: of the server and with the models that were named last.

        Args:
            name: Name of the collection.
            options: For a new collection (its language, for example); refused where an existing one has another value.
            label: Its name in the knowledge base, where another collection has its own there: lower-case letters,
                digits and underscores, at most 48.
            schema: Its schema; None: that of `with_database`.
            role: Role as which it is read; None: that of `with_database`.
            create: Whether to make it when it does not exist.
            calibration: As for `PostgreSQLRetriever`.

        Raises:
            ValidationError: A name cannot be used.
            ConfigurationError: The collection, or another of its name, is there already; there are too many; or an
                option or the role cannot be used.
        """
        return SyncKnowledgeBase()._take(self._knowledge_base.add(name, options, label=label, schema=schema, role=role, create=create, calibration=calibration))

    @property
    def labels(self) -> list[str]:
        """Names of the collections, in the order in which they were added."""
        return self._knowledge_base.labels

    def retrieve(
        self,
        question: str,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        *,
        steps: Sequence[HitStep] = (),
        per_collection: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod = "completed",
        weights: Mapping[str, float] | None = None,
        candidates: int | None = None,
        deadline: float | None = None,
        boost: Boosts | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
    ) -> KnowledgeResults:
        """The hits of all collections that fit a question best.

        All are searched at once, each by itself. Where every hit has a confidence, confidences order them; else their
        places do: all first hits, then all second ones (`KnowledgeResults.merge` says which, docs/tenants.md more).
        Of equals the one of the collection whose name comes first is first, then the one whose id does.

        Args:
            question: 1 character to 4 KiB after trimming.
            top_k: Number of hits, 1 to 1,000.
            filters: As for `search`; they hold for every collection.
            steps: What is done with the hits before the best are taken, in this order: each takes a list of hits and
                gives one, such as those of `semlex.search.postprocess.steps`, or a function of yours, which runs in a
                thread, or an asynchronous one.
            per_collection: Hits of each collection, 1 to 1,000; by default `top_k`, and three times as many with steps.
            on_error: ``raise``, or ``skip``: who does not answer is left out, and the result says so.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            candidates: As for `search`.
            deadline: As for `search`.
            boost: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, a step gives no hits, or two collections are the same one.
            CollectionFailedError: A collection did not answer; with ``skip``, none did.
        """
        return self._runner.run(self._knowledge_base.retrieve, question, top_k, filters, steps=steps, per_collection=per_collection, on_error=on_error, mode=mode, rerank=rerank, fusion=fusion, weights=weights, candidates=candidates, deadline=deadline, boost=boost, min_similarity=min_similarity, min_rerank=min_rerank)

    def initialize(self) -> None:
        """Opens it; does nothing when it is open."""
        self._runner.initialize()

    def close(self) -> None:
        """Closes what was opened; calls of other threads end with a `WorkAbandonedError`."""
        self._runner.close()

    def __reduce__(self) -> str:
        return self._runner.__reduce__()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_sync(
    db_url: str | None = None,
    embedding_model: str | Embedder | None = None,
    reranker_model: str | Reranker | None = None,
    use_reranking: bool | Literal["auto"] = "auto",
    *,
    device: str | None = None,
    dimensions: int | None = None,
    tokenizer: str | PathLike[str] | None = None,
    models: Sequence[str] = (),
    chat_model: str | ChatModel | None = None,
    schema: str = "semlex",
    defaults: Mapping[str, Any] | None = None,
    data_folder: str | PathLike[str] | None = None,
    keep_alive: float = 0,
    max_connections: int = 8,
    timeout: float = 10.0,
    cached_queries: int = DEFAULT_QUERIES,
    query_log: QueryLogMode | QueryLogOptions = "off",
    file_limits: FileLimits = DEFAULT_LIMITS,
    keyword_cache_bytes: int = DEFAULT_CACHE_BYTES,
    role: str | None = None,
    search_defaults: SearchDefaults = NO_DEFAULTS,
) -> SyncClient:
    """A `SyncClient`, to be opened with ``with``; the arguments are its own."""
    return SyncClient(db_url, embedding_model, reranker_model, use_reranking, device=device, dimensions=dimensions, tokenizer=tokenizer, models=models, chat_model=chat_model, schema=schema, defaults=defaults, data_folder=data_folder, keep_alive=keep_alive, max_connections=max_connections, timeout=timeout, cached_queries=cached_queries, query_log=query_log, file_limits=file_limits, keyword_cache_bytes=keyword_cache_bytes, role=role, search_defaults=search_defaults)
