"""Types of the synchronous classes, written by ``./x stubs``."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from numpy.typing import ArrayLike
from os import PathLike
from pathlib import Path
from semlex.chat.base import ChatModel
from semlex.diagnostics.status import CollectionStatus, CountedCollection, ServerHealth
from semlex.embedding.base import Embedder
from semlex.filters.forms import Filters
from semlex.ingest.bulk.load import LoadReport
from semlex.ingest.document_states import DocumentStates
from semlex.ingest.enrichment.options import Enrichment
from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.given_documents import Given, OnError
from semlex.ingest.loaders.extraction import Extract, MetadataExtraction
from semlex.ingest.progress import DeleteReport, IndexReport, SyncReport
from semlex.jobs.job import Job
from semlex.json_values import AnyId
from semlex.maintenance.dump import TransferReport
from semlex.maintenance.reembed import ReembedReport
from semlex.options.answers import AnswerOptions, ContextOptions
from semlex.options.following import TableOptions
from semlex.options.indexing import JobOptions, RechunkOptions
from semlex.options.search import CandidateOptions, FacetOptions, RankingOptions, SearchOptions
from semlex.parameters import Bm25Options, CollectionOptions, StorageName
from semlex.progress import ProgressOption
from semlex.reranking.base import Reranker
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.client import Client
from semlex.retriever.collection import Collection
from semlex.retriever.documents import Documents, Sources
from semlex.retriever.embeddings import Embeddings, Figures, Vectors
from semlex.retriever.fields import Fields
from semlex.retriever.indexes import Indexes
from semlex.retriever.jobs import Jobs
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.retriever.knowledge_base import KnowledgeBase
from semlex.retriever.options import ClientOptions, IndexOptions, KnowledgeOptions, ModelKeys, RetrieverOptions, ServerKeys, SyncOptions, WatchOptions
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.retriever.queries import Queries
from semlex.retriever.tables import Tables
from semlex.store.foreign_tables import LayoutName
from semlex.store.indexes.build import IndexesBuilt
from semlex.store.indexes.estimate import IndexEstimate
from semlex.store.indexes.options import VectorIndex
from semlex.store.keyword.base import Rebuilt
from semlex.store.postgres.connection import CallersConnection
from semlex.store.query.hits import Included
from semlex.store.schema.collection import CollectionInfo, ListedCollection
from semlex.store.schema.names import Names
from semlex.store.schema.registry import Step
from semlex.store.write.chunks import OnDuplicate
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.answers import Answer, AnswerSentence, Context
from semlex.types.checkups import Checkup, Diagnosis
from semlex.types.confidence import ConfidenceCurve
from semlex.types.documents import Document, Ids, Outline, StoredChunk, WholeDocument
from semlex.types.explanations import Explanation
from semlex.types.fields import Facets, FieldSummaries, IndexedType
from semlex.types.followed import FollowedStatus, FollowedTable, TableSync
from semlex.types.queries import SearchQuery
from semlex.types.query_log import QueryLogSummary
from semlex.types.reports import EnrichmentReport, JobError, JobProgress, JobState, TableImport
from semlex.types.results import KnowledgeResults, SearchMode, SearchResult, SearchResults
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ['Synchronous', 'SyncJob', 'SyncDocuments', 'SyncEmbeddings', 'SyncIndexes', 'SyncFields', 'SyncJobs', 'SyncQueries', 'SyncTables', 'SyncCollection', 'SyncClient', 'SyncRetriever', 'SyncKnowledgeBase', 'SyncJSONKBRetriever', 'connect_sync', 'without_await']

class Synchronous():
    """An asynchronous object behind plain functions, callable from any thread."""

    def __init_subclass__(cls, of: type | None = None) -> None:
        """Give the class what an asynchronous class has, but for what is written by hand."""

    @property
    def asynchronous(self) -> Any:
        """The asynchronous object behind this one."""

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous function on the event loop of this object, and wait."""

    async def awaited(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call an asynchronous function on the event loop of this object from your own loop, which goes on meanwhile."""

    def __eq__(self, other: object) -> bool: ...

    def __hash__(self) -> int: ...

class Opened(Synchronous):
    """An object with an event loop of its own, to be closed."""

    def initialize(self) -> None:
        """Open it; do nothing when it is open."""

    def close(self) -> None:
        """Close what was opened; calls of other threads end with a `WorkAbandonedError`."""

    def __reduce__(self) -> str: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None: ...

class SyncJob(Synchronous):
    """A job as it was when it was read. It is a value: its methods give the job as it is then."""

    @property
    def asynchronous(self) -> Job: ...

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def collection(self) -> str: ...

    @property
    def arguments(self) -> Any: ...

    @property
    def state(self) -> JobState: ...

    @property
    def priority(self) -> int: ...

    @property
    def unique_key(self) -> str | None: ...

    @property
    def cancel_wanted(self) -> bool: ...

    @property
    def attempts(self) -> int: ...

    @property
    def max_attempts(self) -> int: ...

    @property
    def progress(self) -> JobProgress | None: ...

    @property
    def error(self) -> JobError | None: ...

    @property
    def result(self) -> dict[str, Any] | None: ...

    @property
    def due_at(self) -> datetime: ...

    @property
    def submitted_at(self) -> datetime: ...

    @property
    def started_at(self) -> datetime | None: ...

    @property
    def finished_at(self) -> datetime | None: ...

    @property
    def has_ended(self) -> bool:
        """Return whether it is done, failed or cancelled."""

    def values(self) -> dict[str, Any]:
        """Return every attribute of a `JobInfo` by its name."""

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON values: times are ISO 8601 texts."""

    def status(self) -> SyncJob:
        """Return the job as it is now."""

    def wait(self, timeout: float | None = None) -> SyncJob:
        """Return the job when it has ended: done, failed or cancelled."""

    def cancel(self) -> SyncJob:
        """End it if it is queued; if it is running, its worker ends it soon, after a whole batch."""

    def retry(self) -> SyncJob:
        """Queue it again after it failed or was cancelled; finished parts are not repeated."""

class SyncDocuments(Synchronous):
    """`Documents` behind plain functions."""

    @property
    def asynchronous(self) -> Documents: ...

    def list(self, source: str | None = None, *, limit: int | None = None, after: str | None = None) -> DocumentStates:
        """The documents that were read from files, with the states of these, and what the last run could not read."""

    def get(self, document: str) -> WholeDocument:
        """The text of a document with its chunks; of a place in one (``keys.md:9``) or of an id, the chunks it means."""

    def outline(self, document: str) -> Outline:
        """The headings of a document in their order, each with its line and the chunks below it."""

    def sources(self) -> Sources:
        """Every source with its counts, by name."""

    def move_source(self, name: str, root: str | Path) -> None:
        """Says where the folder of a source is now. Its documents stay what they are."""

    def rechunk(
        self,
        *,
        extract_metadata: MetadataExtraction | Extract | None = None,
        progress: ProgressOption = None,
        **options: Unpack[RechunkOptions],
    ) -> IndexReport:
        """Cut documents again, from their files: those that an older version of semlex has read or cut."""

    def enrich(
        self,
        enrichment: Enrichment | str | ChatModel,
        *,
        source: str | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> EnrichmentReport:
        """Lets a language model write one line about each chunk that has none, and stores the chunk with it."""

class SyncEmbeddings(Synchronous):
    """`Embeddings` behind plain functions."""

    @property
    def asynchronous(self) -> Embeddings: ...

    def list(self) -> Figures:
        """All sets of vectors with their counts, by their numbers."""

    def change(
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
        """Changes the embedding model, while the collection is searched and written."""

    def roll_back(
        self,
        model: str | Embedder | None = None,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> ReembedReport:
        """Lets the vectors serve again that served before the last change, after making those that it lacks."""

    def drop(self, version: int, *, force: bool = False) -> None:
        """Drops a set of vectors."""

    def fill(self, progress: ProgressOption = None) -> int:
        """Computes the vectors of chunks that have none; returns how many were written."""

    def vectors(self, ids: Iterable[AnyId]) -> Vectors:
        """Vectors of chunks as they are stored, float32 of shape (d,), by id; missing are those without one."""

    @property
    def calibration(self) -> ConfidenceCurve | None:
        """What gives hits their `SearchResult.confidence`: the curve of the named file, else the stored one."""

    def store_calibration(self, curve: ConfidenceCurve | None) -> None:
        """Stores a curve with the vectors in use, in place of the one that they have; other vectors have others."""

class SyncIndexes(Synchronous):
    """`Indexes` behind plain functions."""

    @property
    def asynchronous(self) -> Indexes: ...

    @property
    def building(self) -> bool:
        """Whether indexes are still being built that a load of this client has begun."""

    def wait(self, *, progress: ProgressOption = None) -> list[str]:
        """Wait until the indexes are built that loads of this client have begun."""

    def create(
        self,
        index: VectorIndex | None = None,
        *,
        concurrently: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Build the indexes now; this happens automatically after a load that passes 10,000 rows."""

    def estimate(self, index: VectorIndex | None = None) -> IndexEstimate | None:
        """What building a vector index would take: memory, time and size; None when there is nothing to build."""

    def optimize(self, progress: ProgressOption = None) -> int:
        """Merges the keyword index (engine ``bm25``) to few, full segments; returns how many were merged."""

    def rebuild_keyword(self, progress: ProgressOption = None) -> Rebuilt:
        """Rebuild the keyword index (engine ``bm25``) from the stored texts, while it is searched and written."""

class SyncFields(Synchronous):
    """`Fields` behind plain functions."""

    @property
    def asynchronous(self) -> Fields: ...

    def list(self, *, values: bool = False) -> FieldSummaries:
        """The fields that chunks have: names, types with counts, and which have an index."""

    def add(
        self,
        name: str,
        type: IndexedType,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Builds an index that serves comparisons of a field: ``<``, ``<=``, ``>``, ``>=``, ``between``, and prefixes."""

    def remove(self, name: str) -> tuple[IndexedType, ...]:
        """Drops the index of a field; values and what filters find stay as they are."""

    def facets(
        self,
        fields: Sequence[str],
        filters: Filters | None = None,
        *,
        query: str | None = None,
        **options: Unpack[FacetOptions],
    ) -> Facets:
        """Which values fields have, and how many chunks have each."""

class SyncJobs(Synchronous):
    """`Jobs` behind plain functions."""

    @property
    def asynchronous(self) -> Jobs: ...

    def submit(self, kind: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> SyncJob:
        """Stores a job for this collection, which a worker does (`Client.work`, ``semlex worker``)."""

class SyncQueries(Synchronous):
    """`Queries` behind plain functions."""

    @property
    def asynchronous(self) -> Queries: ...

    def summary(self, *, limit: int = 20) -> QueryLogSummary:
        """What the query log holds: the most frequent questions, and those that found nothing."""

    def clear(self) -> int:
        """Deletes all logged questions; returns how many."""

class SyncTables(Synchronous):
    """`Tables` behind plain functions."""

    @property
    def asynchronous(self) -> Tables: ...

    def load(
        self,
        rows: Any,
        *,
        text_field: str = 'text',
        vector_field: str = 'vector',
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str = 'metadata',
        on_duplicate: OnDuplicate = 'update',
        progress: ProgressOption = None,
    ) -> LoadReport:
        """Loads rows that bring their vectors, at the speed of COPY; a row is a chunk, nothing is cut or embedded."""

    def follow(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Follow a table or a view: its rows become documents, and `sync` or a worker keeps them in step."""

    def followed(self) -> list[FollowedStatus]:
        """List the followed tables, by name, with how far each is in step."""

    def change(self, name: str, *, table: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Change what is read of a followed table, or how its changes are noticed."""

    def ddl(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> str:
        """Return the SQL that makes the triggers of a table, and run nothing."""

    def stop(self, name: str, *, keep: bool = False) -> int:
        """Stop following a table: its definition, its triggers and the documents of its rows go."""

    def import_table(
        self,
        table: str,
        *,
        layout: LayoutName | None = None,
        source_url: str | None = None,
        source_schema: str = 'public',
        text_field: str | None = None,
        vector_field: str | None = None,
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str | None = None,
        on_duplicate: OnDuplicate = 'update',
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> TableImport:
        """Loads the rows of a table that another library has filled; a row is a chunk, nothing is cut or embedded."""

    def sync(
        self,
        table: str | None = None,
        *,
        compare: bool = False,
        allow_empty: bool = False,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> list[TableSync]:
        """Bring the collection in step with followed tables: rows that were added, changed or deleted."""

    def dump(self, folder: str | PathLike[str], progress: ProgressOption = None) -> TransferReport:
        """Writes the collection into a new folder: chunks with vectors, documents, sources and the log, as Parquet."""

    def hits_as_sql(self, results: Sequence[SearchResult], *, include: Sequence[Included] = ...) -> str:
        """A SELECT that answers with hits, to be pasted into psql, into ``WITH hits AS (…)`` or after FROM."""

    def hits_into(
        self,
        connection: CallersConnection,
        results: Sequence[SearchResult],
        table: str,
        *,
        include: Sequence[Included] = ...,
    ) -> int:
        """Put hits into a temporary table of your own transaction, to be joined with your tables."""

class SyncCollection(Synchronous):
    """`Collection` behind plain functions, callable from any thread; `SyncClient.collection` makes one."""

    @property
    def asynchronous(self) -> Collection: ...

    @property
    def documents(self) -> SyncDocuments:
        """Its documents and their sources: listed, read, cut again, described by a language model."""

    @property
    def embeddings(self) -> SyncEmbeddings:
        """Its sets of vectors: another embedding model, the way back, missing vectors, the confidence curve."""

    @property
    def indexes(self) -> SyncIndexes:
        """Its vector and keyword indexes: built, estimated, merged, made again."""

    @property
    def fields(self) -> SyncFields:
        """Its metadata fields: listed, counted by value, indexed."""

    @property
    def jobs(self) -> SyncJobs:
        """Its work in the background."""

    @property
    def queries(self) -> SyncQueries:
        """Its log of questions."""

    @property
    def tables(self) -> SyncTables:
        """Rows with vectors in; dumps, and hits as rows, out."""

    @property
    def names(self) -> Names:
        """The name of the collection, its schema and its tables."""

    @property
    def info(self) -> CollectionInfo:
        """What is known of the open collection."""

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The defaults that the open collection does not follow, because it was made with another value."""

    @property
    def embedding_choice(self) -> str:
        """One line: which embedding model was chosen for the open collection, and why."""

    def using(self, connection: CallersConnection) -> SyncCollection:
        """Return the same collection through your connection: what is read and written joins your transaction."""

    def open(self) -> Self:
        """Open or create the collection; reopen it if it is open. Every other method opens it if need be."""

    def search(
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
        """Return the chunks that fit a query best."""

    def search_page(
        self,
        cursor: str,
        filters: Filters | None = None,
        *,
        deadline: float | None = None,
    ) -> SearchResults:
        """The next page of a list that `search` opened with `max_results`."""

    def search_many(
        self,
        queries: Iterable[str | SearchQuery],
        top_k: int | None = None,
        filters: Filters | None = None,
        *,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[RankingOptions],
    ) -> list[SearchResults]:
        """Search for many queries at once: the model embeds them in one batch, and all see one snapshot."""

    def context(
        self,
        question: str,
        tokens: int = 4000,
        *,
        filters: Filters | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """Return the passages that fit a question best, as numbered text for a prompt."""

    def answer(
        self,
        question: str,
        tokens: int = 4000,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Answer a question from the collection's documents alone, with every quote looked up."""

    def answer_stream(
        self,
        question: str,
        tokens: int = 4000,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Generator[AnswerSentence | Answer, None, None]:
        """Answer sentence by sentence while the answer is written: each after its citations were looked up."""

    def why(
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
        """Explain why a document is where it is in the answer to a question, or why it is missing."""

    def candidates(
        self,
        query: str,
        depth: int = 50,
        filters: Filters | None = None,
        **options: Unpack[CandidateOptions],
    ) -> SearchResults:
        """Every candidate of both searches as a hit, with both scores, and what the fusion has measured them against."""

    def diversify(self, hits: Sequence[SearchResult], diversity: float = 0.5) -> list[SearchResult]:
        """Return hits in another order: each as relevant, and as different from those before it, as possible."""

    def checkup(
        self,
        sample: int | None = None,
        *,
        seed: int = 0,
        mode: SearchMode | None = None,
        progress: ProgressOption = None,
        estimated: Callable[[float], None] | None = None,
    ) -> Checkup:
        """How well this collection can be searched, without judged questions: its own headings are asked."""

    def get(self, ids: Iterable[AnyId]) -> list[StoredChunk]:
        """Return chunks by id, in the order of `ids`; missing ones are left out."""

    def list_chunks(
        self,
        filters: Filters | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
    ) -> list[StoredChunk]:
        """Return chunks without a question, in the order of their keys."""

    def count(self, filters: Filters | None = None) -> int:
        """Number of chunks that pass a filter; a field that no chunk has is logged."""

    def add_documents(
        self,
        documents: Given,
        embeddings: ArrayLike | Sequence[ArrayLike | None] | None = None,
        *,
        on_duplicate: OnDuplicate = 'update',
        on_error: OnError = 'raise',
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> Ids:
        """Stores documents as they are: one document, one chunk; nothing is cut."""

    def upsert(self, documents: Given, embeddings: ArrayLike | None = None, *, on_error: OnError = 'raise') -> Ids:
        """`add_documents` by the name that says that a stored document of the same id is replaced."""

    def add_texts(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[AnyId] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        embeddings: ArrayLike | None = None,
        on_duplicate: OnDuplicate = 'update',
        on_error: OnError = 'raise',
    ) -> Ids:
        """`add_documents` for texts with their ids and metadata beside them; all must have the same length."""

    def index(self, *paths: str | Path, **options: Unpack[IndexOptions]) -> IndexReport:
        """Reads files and folders, cuts them at headings and by tokens, and stores their chunks."""

    def sync(self, *paths: str | Path, **options: Unpack[SyncOptions]) -> SyncReport:
        """Makes the collection hold what files and folders hold: as `index`, and what is gone is deleted."""

    def watch(
        self,
        *paths: str | Path,
        poll: bool = False,
        **options: Unpack[WatchOptions],
    ) -> Generator[SyncReport, None, None]:
        """Synchronises, and again whenever something changes, until the iteration is ended."""

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
        """Deletes chunks with their vectors; what is given must all hold. Missing ones are fine."""

    def status(self, *, exact: bool = False) -> CollectionStatus:
        """Where the collection is, and its figures: counts, model, indexes, the last run."""

    def description(self) -> str:
        """What is in the collection: the text that `describe` was given, else titles of its documents; maybe empty."""

    def describe(self, text: str | None) -> None:
        """Say what is in the collection, for language models that choose a collection or write search terms."""

    def drop(self) -> bool:
        """Drops the collection with everything in it; whether it was there."""

class SyncClient(Opened):
    """`Client` behind plain functions, callable from any thread."""

    @property
    def asynchronous(self) -> Client: ...

    def stop_builds(self) -> None:
        """Stop building indexes that loads have left; the next load, a worker or `indexes.create` builds them."""

    def collection(
        self,
        name: str,
        options: CollectionOptions = ...,
        *,
        create: bool = True,
        bm25: Bm25Options = ...,
        bulk: BulkIngestConfig = ...,
        schema: str | None = None,
        role: str | None = None,
        calibration: str | PathLike[str] | None = None,
    ) -> SyncCollection:
        """A collection; it is opened, or made, by the first call of one of its methods."""

    def collections(self) -> list[ListedCollection]:
        """Every collection of the schema, by name."""

    def count_collections(self) -> list[CountedCollection]:
        """Every collection of the schema, by name, with its counts; large tables are estimated."""

    def migrate(self, *, dry_run: bool = False) -> list[Step]:
        """Migrates the tables of all collections to the form that this version uses; opening one does that, too."""

    def drop(self, name: str) -> None:
        """Drops a collection with everything in it, whatever its version."""

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
        """Makes a collection from a dump, with its vectors; its keyword index and vector indexes are rebuilt."""

    def jobs(self, *, state: JobState | None = None, collection: str | None = None, limit: int = 100) -> list[SyncJob]:
        """The jobs of all collections that were submitted last, the newest first; without their documents."""

    def count_jobs(self, *, deadline: float | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each state."""

    def job(self, job_id: str) -> SyncJob:
        """A job by its id."""

    def work(
        self,
        *,
        concurrency: int = 1,
        allow: Sequence[str | Path] = ...,
        models: Sequence[str | Embedder] = ...,
        drain: bool = False,
        limit: int | None = None,
        lease: float = 60.0,
        keep_days: float = 7.0,
        compare_every: float = 600.0,
        tell: Callable[[str], None] | None = None,
    ) -> int:
        """Do the jobs of all collections of the schema and keep their followed tables in step, until it is cancelled."""

    def diagnose(self, collection: str | None = None, *, tell: Callable[[str], None] | None = None) -> Diagnosis:
        """What is wrong with models, server and collections, each with what helps. Nothing is written."""

    def pool_figures(self) -> dict[str, int]:
        """Connections to the database: ``size``, ``idle``, and how many callers are ``waiting`` for one."""

    def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; never raises for a database that does not."""

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal['auto'] = 'auto',
        **options: Unpack[ClientOptions],
    ) -> None: ...

class SyncRetriever(SyncCollection, Opened):
    """`PostgreSQLRetriever` behind plain functions, callable from any thread."""

    @property
    def asynchronous(self) -> PostgreSQLRetriever: ...

    def drop_collection(self) -> bool:
        """Drop the collection with everything in it, and close this retriever."""

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""

    @property
    def reranker(self) -> Reranker | None:
        """The model that reranks, or None; the first search that reranks chooses it."""

    @property
    def reranking_choice(self) -> str:
        """One line: which reranker was chosen, and why."""

    def open_reranker(self) -> Reranker | None:
        """The reranker, or None; chosen at the first call, as by the first search that reranks."""

    def collections(self) -> list[ListedCollection]:
        """Every collection of the schema, by name."""

    def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; never raises for a database that does not."""

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal['auto'] = 'auto',
        *,
        collection: str = 'default_collection',
        **options: Unpack[RetrieverOptions],
    ) -> None: ...

class SyncKnowledgeBase(Opened):
    """`KnowledgeBase` behind plain functions, callable from any thread; every step of building it gives another."""

    @property
    def asynchronous(self) -> KnowledgeBase: ...

    def with_model(
        self,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal['auto'] = 'auto',
        **options: Unpack[ModelKeys],
    ) -> SyncKnowledgeBase:
        """Return the same with these models for the collections that are added from now on."""

    def with_database(self, db_url: str | None = None, **options: Unpack[ServerKeys]) -> SyncKnowledgeBase:
        """Return the same with this server for the collections that are added from now on."""

    def add(
        self,
        name: str,
        options: CollectionOptions = ...,
        *,
        label: str | None = None,
        schema: str | None = None,
        role: str | None = None,
        create: bool = False,
        calibration: str | PathLike[str] | None = None,
    ) -> SyncKnowledgeBase:
        """Return the same with one more collection: of the server and with the models that were named last."""

    @property
    def labels(self) -> list[str]:
        """Names of the collections, in the order in which they were added."""

    def collection(self, label: str) -> SyncCollection:
        """Return one of the collections, to fill or search it alone."""

    def retrieve(
        self,
        question: str,
        top_k: int = 10,
        filters: Filters | None = None,
        **options: Unpack[KnowledgeOptions],
    ) -> KnowledgeResults:
        """Return the hits of all collections that fit a question best; arguments and errors as for `search_all`."""

    def __init__(self) -> None: ...

class SyncJSONKBRetriever(Opened):
    """`JSONKBRetriever` behind plain functions, callable from any thread."""

    @property
    def asynchronous(self) -> JSONKBRetriever: ...

    def search(self, query: str, top_k: int | None = None, filters: Filters | None = None) -> SearchResults:
        """The entries that fit a query best, best first."""

    def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Stores nothing: the files are somebody's own."""

    @property
    def problems(self) -> list[FileProblem]: ...

    @property
    def identity(self) -> str:
        """What a result that comes from it says."""

    def __init__(self, folder: str | Path, *, language: str = 'english', top_k: int = 5) -> None: ...

connect_sync = SyncClient

def without_await(found: Any, runner: Any = None) -> Any: ...
