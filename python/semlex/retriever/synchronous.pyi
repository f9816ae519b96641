"""Types of the synchronous classes, written by ``./x stubs``."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from numpy.typing import ArrayLike
from os import PathLike
from pathlib import Path
from pyarrow import RecordBatch
from semlex.chat import ChatModel
from semlex.diagnostics.status import CollectionStatus, CountedCollection, ServerHealth
from semlex.embedding.base import Embedder
from semlex.filters.forms import Filters
from semlex.ingest.bulk.load import LoadReport
from semlex.ingest.bulk.row_batch import RowFields
from semlex.ingest.document_states import DocumentStates
from semlex.ingest.enrichment import Enrichment
from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.given_documents import Given, OnError
from semlex.ingest.loaders.base import Extract, MetadataExtraction
from semlex.ingest.progress import DeleteReport, EnrichmentReport, IndexReport, SyncReport, TableImport
from semlex.json_values import AnyId
from semlex.maintenance.dump import TransferReport
from semlex.maintenance.reembed import ReembedReport
from semlex.options.answers import AnswerOptions, ContextOptions
from semlex.options.collection import Bm25Options, CollectionOptions, StorageName
from semlex.options.indexing import JobOptions, RechunkOptions, TableOptions
from semlex.options.search import CandidateOptions, FacetOptions, RankingOptions, SearchOptions
from semlex.progress import ProgressOption
from semlex.reranking.base import Reranker
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.client import Client
from semlex.retriever.collection import Collection
from semlex.retriever.documents import Documents, Sources
from semlex.retriever.embeddings import Embeddings, Figures, Vectors
from semlex.retriever.fields import Fields
from semlex.retriever.indexes import Indexes
from semlex.retriever.jobs import Job, Jobs
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.retriever.knowledge_base import KnowledgeBase
from semlex.retriever.options import ClientOptions, IndexOptions, KnowledgeOptions, ModelKeys, RetrieverOptions, ServerKeys, SyncOptions, WatchOptions
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.retriever.queries import Queries
from semlex.retriever.tables import RowVectors, Tables
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
from semlex.types.jobs import JobError, JobProgress, JobState
from semlex.types.queries import SearchQuery
from semlex.types.query_log import QueryLogSummary
from semlex.types.results import KnowledgeResults, SearchMode, SearchResult, SearchResults
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ['Synchronous', 'SyncJob', 'SyncCollection', 'SyncClient', 'SyncRetriever', 'SyncKnowledgeBase', 'SyncJSONKBRetriever', 'SyncDocuments', 'SyncEmbeddings', 'SyncFields', 'SyncIndexes', 'SyncJobs', 'SyncQueries', 'SyncTables', 'connect_sync', 'without_await']

class Synchronous():
    """An asynchronous object behind plain functions, callable from any thread."""

    def __init_subclass__(cls, of: type | None = None) -> None:
        """Give the class the public members of an asynchronous class, except those written by hand."""

    @property
    def asynchronous(self) -> Any:
        """The asynchronous object behind this one."""

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous function on this object's event loop and wait for its result."""

    async def awaited(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call an asynchronous function on this object's event loop from your own event loop, which keeps running."""

    def __eq__(self, other: object) -> bool: ...

    def __hash__(self) -> int: ...

class Opened(Synchronous):
    """A synchronous object that runs its own event loop until it is closed."""

    def initialize(self) -> None:
        """Open the object; do nothing if it is open."""

    def close(self) -> None:
        """Close what was opened; calls of other threads end with a `WorkAbandonedError`."""

    def __reduce__(self) -> str: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None: ...

class SyncJob(Synchronous):
    """The state of a job when it was read; `status` reads it again."""

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

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON values: times are ISO 8601 texts."""

    def status(self) -> SyncJob:
        """Return the job as it is now."""

    def wait(self, timeout: float | None = None) -> SyncJob:
        """Return the job when it has ended: done, failed or cancelled."""

    def cancel(self) -> SyncJob:
        """Cancel the job: at once if it is queued; if it is running, its worker ends it after the current batch."""

    def retry(self) -> SyncJob:
        """Queue the job again after it failed or was cancelled; finished parts are not repeated."""

class SyncCollection(Synchronous):
    """`Collection` behind plain functions, callable from any thread; `SyncClient.collection` makes one."""

    @property
    def asynchronous(self) -> Collection: ...

    @property
    def documents(self) -> SyncDocuments:
        """Return the operations on documents: list, read, split again, describe by a language model."""

    @property
    def embeddings(self) -> SyncEmbeddings:
        """Return the operations on sets of vectors: change the model, roll back, compute missing vectors, calibrate."""

    @property
    def indexes(self) -> SyncIndexes:
        """Return the operations on the vector and keyword indexes: build, estimate, merge, rebuild."""

    @property
    def fields(self) -> SyncFields:
        """Return the operations on metadata fields: list fields, count their values, index them."""

    @property
    def jobs(self) -> SyncJobs:
        """Return the object that submits background jobs for this collection."""

    @property
    def queries(self) -> SyncQueries:
        """Return the operations on the query log: summarise and clear it."""

    @property
    def tables(self) -> SyncTables:
        """Return the operations with tables: load rows with vectors, follow tables, dump, return hits as rows."""

    @property
    def names(self) -> Names:
        """The name of the collection, its schema and its tables."""

    @property
    def info(self) -> CollectionInfo:
        """The stored properties of the open collection."""

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The defaults that do not apply to the open collection, because it was made with other values."""

    @property
    def embedding_choice(self) -> str:
        """One line that says which embedding model was chosen for the open collection, and why."""

    def using(self, connection: CallersConnection) -> SyncCollection:
        """Return this collection over your connection: its reads and writes join your transaction."""

    def open(self) -> Self:
        """Open or create the collection; reopen it if it is open. Every other method opens it if necessary."""

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
        """Return the next page of hits of a `search` that was called with `max_results`."""

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
        """Answer a question from the collection's documents alone; every quote is checked against them."""

    def answer_stream(
        self,
        question: str,
        tokens: int = 4000,
        *,
        context: Context | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Generator[AnswerSentence | Answer, None, None]:
        """Yield the sentences of an answer while it is written, each after its citations were checked."""

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
        """Explain why a document has its rank in the results of a search, or why it is missing."""

    def candidates(
        self,
        query: str,
        depth: int = 50,
        filters: Filters | None = None,
        **options: Unpack[CandidateOptions],
    ) -> SearchResults:
        """Return every candidate of both searches as a hit, with both scores and the figures that the fusion used."""

    def diversify(self, hits: Sequence[SearchResult], diversity: float = 0.5) -> list[SearchResult]:
        """Return hits reordered so that each is relevant and differs from those before it."""

    def checkup(
        self,
        sample: int | None = None,
        *,
        seed: int = 0,
        mode: SearchMode | None = None,
        progress: ProgressOption = None,
        estimated: Callable[[float], None] | None = None,
    ) -> Checkup:
        """Measure how well this collection can be searched, without judged questions: its headings serve as questions."""

    def get(self, ids: Iterable[AnyId]) -> list[StoredChunk]:
        """Return chunks by id, in the order of `ids`; missing ones are left out."""

    def list_chunks(
        self,
        filters: Filters | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
    ) -> list[StoredChunk]:
        """Return chunks in the order of their keys, without a query."""

    def count(self, filters: Filters | None = None) -> int:
        """Return the number of chunks that pass a filter; log a warning about a field that no chunk has."""

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
        """Store documents without splitting them: each becomes one chunk."""

    def upsert(self, documents: Given, embeddings: ArrayLike | None = None, *, on_error: OnError = 'raise') -> Ids:
        """Store documents as `add_documents` does; a stored document of the same id is replaced."""

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
        """Store texts as `add_documents` does; ids and metadata are lists of the same length."""

    def index(self, *paths: str | Path, **options: Unpack[IndexOptions]) -> IndexReport:
        """Read files and folders, split them at headings and by tokens, and store their chunks."""

    def sync(self, *paths: str | Path, **options: Unpack[SyncOptions]) -> SyncReport:
        """Index files and folders as `index` does, and delete documents whose files are gone."""

    def watch(
        self,
        *paths: str | Path,
        poll: bool = False,
        **options: Unpack[WatchOptions],
    ) -> Generator[SyncReport, None, None]:
        """Synchronise now, and again whenever something changes, until you end the iteration."""

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
        """Delete the chunks, with their vectors, that meet all given conditions; ids that do not exist are ignored."""

    def status(self, *, exact: bool = False) -> CollectionStatus:
        """Return where the collection is stored, and its figures: counts, model, indexes, the last run."""

    def description(self) -> str:
        """Return the collection's description: the text given to `describe`, else titles of its documents."""

    def describe(self, text: str | None) -> None:
        """Store a description of the collection, for language models that choose a collection or write search terms."""

    def drop(self) -> bool:
        """Drop the collection with everything in it; return whether it existed."""

class SyncClient(Opened):
    """`Client` behind plain functions, callable from any thread."""

    @property
    def asynchronous(self) -> Client: ...

    def stop_builds(self) -> None:
        """Stop index builds that loads have started; the next load, a worker or `indexes.create` starts them again."""

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
        """Return a collection; the first call of one of its methods opens or makes it."""

    def collections(self) -> list[ListedCollection]:
        """Return every collection of the schema, sorted by name."""

    def count_collections(self) -> list[CountedCollection]:
        """Return every collection of the schema with its counts, sorted by name; large tables are estimated."""

    def migrate(self, *, dry_run: bool = False) -> list[Step]:
        """Migrate the tables of all collections to this version of semlex; opening a collection also migrates it."""

    def drop(self, name: str) -> None:
        """Drop a collection with everything in it, even one that another version of semlex made."""

    def restore(
        self,
        folder: str | PathLike[str],
        collection: str | None = None,
        *,
        keyword: str | None = None,
        vector_storage: StorageName | None = None,
        partitions: int | None = None,
        build_indexes: bool = True,
        progress: ProgressOption = None,
    ) -> TransferReport:
        """Make a collection from a dump, with its vectors; its keyword index and vector indexes are rebuilt."""

    def jobs(self, *, state: JobState | None = None, collection: str | None = None, limit: int = 100) -> list[SyncJob]:
        """Return the newest jobs of all collections, newest first, without the documents that ``add`` jobs store."""

    def count_jobs(self, *, deadline: float | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each state."""

    def job(self, job_id: str) -> SyncJob:
        """Return a job by its id."""

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
        """Run the jobs of all collections of the schema and sync their followed tables, until cancelled."""

    def diagnose(self, collection: str | None = None, *, tell: Callable[[str], None] | None = None) -> Diagnosis:
        """Return what is wrong with models, server and collections, each with a remedy. Nothing is written."""

    def pool_figures(self) -> dict[str, int]:
        """Return the figures of the connection pool: ``size``, ``idle``, and how many callers are ``waiting``."""

    def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; a database that does not answer raises no error."""

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
        """Drop the collection with everything in it and close this retriever; return whether it existed."""

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""

    @property
    def reranker(self) -> Reranker | None:
        """The reranker, or None; it is chosen by the first search that reranks."""

    @property
    def reranking_choice(self) -> str:
        """One line that says which reranker was chosen, and why."""

    def open_reranker(self) -> Reranker | None:
        """Return the reranker, or None; the first call chooses it, unless a search that reranks has done so."""

    def collections(self) -> list[ListedCollection]:
        """Return every collection of the schema, sorted by name."""

    def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; a database that does not answer raises no error."""

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
    """`KnowledgeBase` behind plain functions, callable from any thread; `add` and `with_…` return a new one."""

    @property
    def asynchronous(self) -> KnowledgeBase: ...

    def with_model(
        self,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal['auto'] = 'auto',
        **options: Unpack[ModelKeys],
    ) -> SyncKnowledgeBase:
        """Return a knowledge base with these models for collections that are added later."""

    def with_database(self, db_url: str | None = None, **options: Unpack[ServerKeys]) -> SyncKnowledgeBase:
        """Return a knowledge base with this server for collections that are added later."""

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
        """Return a knowledge base with one more collection, on the server and with the models that were named last."""

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
        """Return the hits of all collections that fit a question best; for arguments and errors see `search_all`."""

    def __init__(self) -> None: ...

class SyncJSONKBRetriever(Opened):
    """`JSONKBRetriever` behind plain functions, callable from any thread."""

    @property
    def asynchronous(self) -> JSONKBRetriever: ...

    def search(self, query: str, top_k: int | None = None, filters: Filters | None = None) -> SearchResults:
        """Return the entries that fit a query best, best first."""

    def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Raise an error: this retriever only reads the files."""

    @property
    def problems(self) -> list[FileProblem]: ...

    @property
    def identity(self) -> str:
        """The name of this retriever in `SearchResults.fallback`."""

    def __init__(self, folder: str | Path, *, language: str = 'english', top_k: int = 5) -> None: ...

class SyncDocuments(Synchronous):
    """`Documents` behind plain functions."""

    @property
    def asynchronous(self) -> Documents: ...

    def list(self, source: str | None = None, *, limit: int | None = None, after: str | None = None) -> DocumentStates:
        """Return the documents that were read from files, with the state of each file, and the last run's problems."""

    def get(self, document: str) -> WholeDocument:
        """Return a document's text and chunks; for a line (``keys.md:9``) or a chunk's id, only the chunks there."""

    def outline(self, document: str) -> Outline:
        """Return the headings of a document in order, each with its line and the chunks below it."""

    def sources(self) -> Sources:
        """Return every source with its counts, sorted by name."""

    def move_source(self, name: str, root: str | Path) -> None:
        """Store the new path of a source's folder, after the folder was moved. The stored documents do not change."""

    def rechunk(
        self,
        *,
        extract_metadata: MetadataExtraction | Extract | None = None,
        progress: ProgressOption = None,
        **options: Unpack[RechunkOptions],
    ) -> IndexReport:
        """Read and split documents again from their files, if an older version of semlex read or split them."""

    def enrich(
        self,
        enrichment: Enrichment | str | ChatModel,
        *,
        source: str | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> EnrichmentReport:
        """Let a language model write a one-line description of each chunk that has none, and store it with the chunk."""

class SyncEmbeddings(Synchronous):
    """`Embeddings` behind plain functions."""

    @property
    def asynchronous(self) -> Embeddings: ...

    def list(self) -> Figures:
        """Return all sets of vectors with their counts, sorted by number."""

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
        """Change the embedding model, while the collection is searched and written."""

    def roll_back(
        self,
        model: str | Embedder | None = None,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> ReembedReport:
        """Return to the vectors that were in use before the last change of the model; first compute missing ones."""

    def drop(self, version: int, *, force: bool = False) -> None:
        """Drop a set of vectors."""

    def fill(self, progress: ProgressOption = None) -> int:
        """Compute the vectors of chunks that have none; return how many vectors were written."""

    def vectors(self, ids: Iterable[AnyId]) -> Vectors:
        """Return the stored vectors of chunks by id, float32 of shape (d,); chunks without a vector are left out."""

    @property
    def calibration(self) -> ConfidenceCurve | None:
        """Return the curve for `SearchResult.confidence`: that of the file ``calibration=``, else the stored one."""

    def store_calibration(self, curve: ConfidenceCurve | None) -> None:
        """Store a confidence curve for the set of vectors in use, in place of an earlier curve; each set has its own."""

class SyncFields(Synchronous):
    """`Fields` behind plain functions."""

    @property
    def asynchronous(self) -> Fields: ...

    def list(self, *, values: bool = False) -> FieldSummaries:
        """Return the fields that chunks have: names, types with counts, and which have an index."""

    def add(
        self,
        name: str,
        type: IndexedType,
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Build an index for comparisons of a field: ``<``, ``<=``, ``>``, ``>=``, ``between``, and prefixes."""

    def remove(self, name: str) -> tuple[IndexedType, ...]:
        """Drop the index of a field; its values stay, and filters find the same chunks."""

    def facets(
        self,
        fields: Sequence[str],
        filters: Filters | None = None,
        *,
        query: str | None = None,
        **options: Unpack[FacetOptions],
    ) -> Facets:
        """Count, for each field, how many chunks have each value."""

class SyncIndexes(Synchronous):
    """`Indexes` behind plain functions."""

    @property
    def asynchronous(self) -> Indexes: ...

    @property
    def building(self) -> bool:
        """Whether index builds that a load of this client has started are still running."""

    def wait(self, *, progress: ProgressOption = None) -> list[str]:
        """Wait for the index builds that loads of this client have started."""

    def create(
        self,
        index: VectorIndex | None = None,
        *,
        concurrently: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Build the indexes now; a load that takes the collection past 10,000 rows does so automatically."""

    def estimate(self, index: VectorIndex | None = None) -> IndexEstimate | None:
        """Estimate the memory, time and size that building a vector index takes; None if nothing is to be built."""

    def optimize(self, progress: ProgressOption = None) -> int:
        """Merge the keyword index (engine ``bm25``) into few, full segments; return how many segments were merged."""

    def rebuild_keyword(self, progress: ProgressOption = None) -> Rebuilt:
        """Rebuild the keyword index (engine ``bm25``) from the stored texts, while it is searched and written."""

class SyncJobs(Synchronous):
    """`Jobs` behind plain functions."""

    @property
    def asynchronous(self) -> Jobs: ...

    def submit(self, kind: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> SyncJob:
        """Store a job for this collection; a worker runs it (`Client.work`, ``semlex worker``)."""

class SyncQueries(Synchronous):
    """`Queries` behind plain functions."""

    @property
    def asynchronous(self) -> Queries: ...

    def summary(self, *, limit: int = 20) -> QueryLogSummary:
        """Return figures of the query log, the most frequent questions, and questions that found nothing."""

    def clear(self) -> int:
        """Delete all logged questions; return how many were deleted."""

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
        skip_unchanged: bool = False,
        progress: ProgressOption = None,
    ) -> LoadReport:
        """Load rows that have vectors, at the speed of COPY; each row becomes a chunk. Nothing is split or embedded."""

    def stored_vectors(self, rows: Any, fields: RowFields = ...) -> RowVectors:
        """Return the stored vectors of rows whose id and text are already stored, so that you need not compute them."""

    def read(self, *, part: int = 0, parts: int = 1, after: str | None = None, limit: int = 5000) -> RecordBatch:
        """Return chunks with their vectors as an Arrow batch, in the order of their keys; needs the extra ``arrow``."""

    def follow(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Follow a table or view: its rows become documents, which `sync` or a worker keeps up to date."""

    def followed(self) -> list[FollowedStatus]:
        """Return the followed tables, sorted by name, each with its counts and when it was last read."""

    def change(self, name: str, *, table: str | None = None, **options: Unpack[TableOptions]) -> FollowedTable:
        """Change which columns of a followed table are read, or how its changes are noticed."""

    def ddl(self, table: str, *, name: str | None = None, **options: Unpack[TableOptions]) -> str:
        """Return the SQL that creates the triggers of a table, without running it."""

    def stop(self, name: str, *, keep: bool = False) -> int:
        """Stop following a table; its definition, its triggers and the documents of its rows are deleted."""

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
        """Load the rows of a table that another library filled; each becomes a chunk. Nothing is split or embedded."""

    def sync(
        self,
        table: str | None = None,
        *,
        compare: bool = False,
        allow_empty: bool = False,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> list[TableSync]:
        """Update the collection from followed tables: store rows added or changed there, delete those that are gone."""

    def dump(self, folder: str | PathLike[str], progress: ProgressOption = None) -> TransferReport:
        """Write the collection into a new folder: chunks with vectors, documents, sources, ingestion log, as Parquet."""

    def hits_as_sql(self, results: Sequence[SearchResult], *, include: Sequence[Included] = ...) -> str:
        """Return a SELECT that gives the hits as rows, for psql, ``WITH hits AS (…)`` or a FROM clause."""

    def hits_into(
        self,
        connection: CallersConnection,
        results: Sequence[SearchResult],
        table: str,
        *,
        include: Sequence[Included] = ...,
    ) -> int:
        """Put hits into a temporary table of your transaction, to join them with your tables."""

connect_sync = SyncClient

def without_await(found: Any, runner: Any = None) -> Any: ...
