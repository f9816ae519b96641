"""Hybrid search on the Postgres you already have.

    async with PostgreSQLRetriever(db_url) as retriever:
        await retriever.add_documents([Document("Postgres keeps rows in heap pages.", id="heap")])
        hits = await retriever.search("how are rows stored?", top_k=5)

Classes whose name begins with ``Sync`` are for programs without an event loop. The public names by task:

- One collection: PostgreSQLRetriever, SyncRetriever; or made from the environment and settings files: from_settings,
  from_settings_sync.
- Many collections on one server, with one pool and one set of models: connect, Client, Collection; connect_sync,
  SyncClient, SyncCollection.
- Several collections searched together, on any servers: KnowledgeBase, SyncKnowledgeBase; their results:
  KnowledgeResults, KnowledgeHit.
- JSON files searched in memory, for example if the database fails: JSONKBRetriever, SyncJSONKBRetriever. Base class of
  all retrievers: DocumentRetriever.
- Documents: Document; with your own chunks or vectors: ChunkMetadata, VectorDocument; as stored: StoredChunk,
  WholeDocument, Outline, Heading.
- Searches: SearchQuery; filters written as F("year") >= 2020: F, FilterTree; options: SearchOptions, SearchDefaults,
  Tuning; results: SearchResults, SearchResult, DocumentHits, LegReport, Route, ConfidenceCurve.
- Contexts for prompts, and answers: ContextOptions, Context, ContextSource; AnswerOptions, Answer, AnswerSentence,
  Citation.
- Why a document is found or missing: Explanation, Reason, LegFigures, QueryTerm, SearchExplanation, HitExplanation.
- Metadata: FieldSummaries, FieldSummary; counts of values: Facets, Facet, FacetValue.
- Checks and logs: Checkup, Diagnosis, Finding, QueryLogOptions, QueryLogSummary, LoggedQuery.
- Embedding models: StaticEmbedder, Qwen3EmbeddingEncoder, SentenceTransformersEmbedder, OpenAIEmbedder, GeminiEmbedder;
  to write your own: BaseEmbedder, Embedder, EmbedderIdentity.
- Rerankers: TermOverlapReranker, Qwen3Reranker, CrossEncoderReranker, LLMReranker, CohereReranker, TEIReranker; to
  write your own: Reranker.
- Language models for answers and chunk descriptions: OpenAIChatModel, Enrichment; to write your own: ChatModel.
- Reading files: preview_chunks, FileLimits, MetadataExtraction; for a format of your own: register_loader, Loader,
  FileBytes, LoadOptions, LoadedDocument, Record, LoadError.
- Options of collections and writes: CollectionOptions, Bm25Options, BulkIngestConfig, RowFields; vector indexes:
  HnswIndex, IvfflatIndex, NoIndex.
- Jobs that a worker runs later: Job, SyncJob. Progress and reports of long calls: Progress, IndexReport, DeleteReport,
  LoadReport, TransferReport, TableImport, ReembedReport, EmbeddingFigures, EnrichmentReport, EnrichmentEstimate,
  SyncReport, SyncPlan, SyncCounts, DocumentStates, DocumentInfo, DocumentName, MovedDocument.
- Errors: SemlexError, the base of all errors in `semlex.errors`; ValidationError, which names the field, the row and
  the broken rule of each refused value.

`import semlex` costs nothing: each name is loaded when it is first used.
"""

import logging
from importlib import import_module
from typing import Any

# What a program does with the lines of the logger "semlex" is its own choice; without one, nothing is written.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# The public names of each module. Type checkers read `__init__.pyi`, which `./x stubs` writes from it.
_NAMES = {
    "chat": "ChatModel OpenAIChatModel",
    "embedding.base": "BaseEmbedder Embedder EmbedderIdentity",
    "embedding.qwen3": "Qwen3EmbeddingEncoder",
    "embedding.remote": "GeminiEmbedder OpenAIEmbedder",
    "embedding.sentence_transformers": "SentenceTransformersEmbedder",
    "embedding.static": "StaticEmbedder",
    "errors": "SemlexError ValidationError",
    "filters.tree": "F FilterTree",
    "ingest.bulk.load": "LoadReport",
    "ingest.bulk.row_batch": "RowFields",
    "ingest.document_states": "DocumentInfo DocumentStates",
    "ingest.enrichment": "Enrichment",
    "ingest.loaders.base": "FileBytes LoadError LoadOptions LoadedDocument Loader MetadataExtraction Record",
    "ingest.loaders.registry": "register_loader",
    "ingest.preview": "preview_chunks",
    "ingest.progress": (
        "DeleteReport DocumentName EnrichmentEstimate EnrichmentReport IndexReport MovedDocument Progress SyncCounts "
        "SyncPlan SyncReport TableImport"
    ),
    "retriever.jobs": "Job",
    "maintenance.dump": "TransferReport",
    "maintenance.reembed": "EmbeddingFigures ReembedReport",
    "options.answers": "AnswerOptions ContextOptions",
    "options.search": "SearchDefaults SearchOptions Tuning",
    "options.collection": "Bm25Options CollectionOptions FileLimits",
    "reranking.base": "Reranker",
    "reranking.cross_encoder": "CrossEncoderReranker",
    "reranking.qwen3": "Qwen3Reranker",
    "reranking.remote": "CohereReranker LLMReranker TEIReranker",
    "reranking.term_overlap": "TermOverlapReranker",
    "retriever.base": "DocumentRetriever",
    "retriever.client": "Client connect",
    "retriever.collection": "Collection",
    "retriever.configured": "from_settings from_settings_sync",
    "retriever.json_fallback": "JSONKBRetriever",
    "retriever.knowledge_base": "KnowledgeBase",
    "retriever.postgres": "PostgreSQLRetriever",
    "retriever.synchronous": (
        "SyncClient SyncCollection SyncJSONKBRetriever SyncJob SyncKnowledgeBase SyncRetriever connect_sync"
    ),
    "store.indexes.options": "HnswIndex IvfflatIndex NoIndex",
    "store.write.copy": "BulkIngestConfig",
    "types.answers": "Answer AnswerSentence Citation Context ContextSource",
    "types.checkups": "Checkup Diagnosis Finding",
    "types.confidence": "ConfidenceCurve",
    "types.documents": "ChunkMetadata Document Heading Outline StoredChunk VectorDocument WholeDocument",
    "types.explanations": "Explanation HitExplanation LegFigures QueryTerm Reason SearchExplanation",
    "types.fields": "Facet FacetValue Facets FieldSummaries FieldSummary",
    "types.queries": "Route SearchQuery",
    "types.query_log": "LoggedQuery QueryLogOptions QueryLogSummary",
    "types.results": "DocumentHits KnowledgeHit KnowledgeResults LegReport SearchResult SearchResults",
}
# Their methods run on the caller's event loop, so what a method needs is loaded with its class: no loop waits for it.
_OF_EVENT_LOOPS = ("client", "collection", "configured", "json_fallback", "knowledge_base", "postgres")
_MODULES = {name: f"semlex.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)  # noqa: PLE0605 - the names are in the stub


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("semlex")
    if name not in _MODULES:
        raise AttributeError(f"module 'semlex' has no attribute {name!r}")
    if _MODULES[name].removeprefix("semlex.retriever.") in _OF_EVENT_LOOPS:
        import_module("semlex.retriever.operations")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
