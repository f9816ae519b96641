"""Hybrid search on the Postgres you already have.

    async with PostgreSQLRetriever(db_url) as retriever:
        await retriever.add_documents([Document("Postgres keeps rows in heap pages.", id="heap")])
        hits = await retriever.search("how are rows stored?", top_k=5)

One server, many collections: connect, Client: A server with its collections, which share a pool and models. Collection:
    One collection: add documents, search. connect_sync, SyncClient, SyncCollection: The same for programs without an
    event loop.

Retrievers: PostgreSQLRetriever: One collection with its own pool and models. SyncRetriever: The same for programs
    without an event loop. DocumentRetriever: The methods that an application needs; base class of retrievers.
    JSONKBRetriever, SyncJSONKBRetriever: Search JSON files in memory; a fallback for when the database fails.
    from_settings, from_settings_sync: Make a retriever from the environment and settings files. SearchDefaults: A
    retriever's defaults of search options. SearchOptions, Tuning, ContextOptions, AnswerOptions: Keyword arguments of
    its methods, for your own signatures.

Several collections at once: KnowledgeBase, SyncKnowledgeBase: Collections of any servers, searched together.
    KnowledgeResults, KnowledgeHit: Their hits in one list, and one hit with its collection.

Values: Document: A text with its metadata. SearchQuery: A checked query. F: A field, to write filters with: F("year")
    >= 2020. FilterTree: A filter written with F. SearchResults: The hits of one search, and how they were found.
    DocumentHits: A document with its best chunks, from a search grouped by document. Facet, FacetValue, Facets: The
    values of a field with numbers of chunks, one value, and several fields. LegReport: How one leg of a search
    answered. Context, ContextSource: Numbered passages for a prompt, and one of them. Answer, AnswerSentence, Citation:
    An answer, a sentence of it, and a quote that was looked up. SearchResult: One hit, with its rank and score in every
    stage. Route: The kind of a question by which a search was made. ConfidenceCurve: From a hit's cosine to the
    probability that it is relevant. Explanation, Reason, LegFigures, QueryTerm: Why a document has its rank among the
    hits, or why it is missing. SearchExplanation, HitExplanation: Why a search found its hits, and one hit of it.
    Checkup: How well a collection can be searched. StoredChunk: A document as it is stored. WholeDocument, Outline,
    Heading: A document with all its text; its headings, and one of them. FieldSummary, FieldSummaries: A field of the
    metadata, and all of a collection. ChunkMetadata: A chunk with its metadata, as in a JSON file. VectorDocument: A
    chunk with its metadata and its vector. QueryLogSummary, LoggedQuery: A summary of the query log, and one logged
    question. Diagnosis, Finding: The problems of a database, and one problem with its remedy.

Models that embed: StaticEmbedder, Qwen3EmbeddingEncoder, SentenceTransformersEmbedder, OpenAIEmbedder, GeminiEmbedder
    BaseEmbedder, Embedder, EmbedderIdentity: For an embedder of your own.

Models that rerank: TermOverlapReranker, Qwen3Reranker, CrossEncoderReranker, LLMReranker, CohereReranker, TEIReranker
    Reranker: For a reranker of your own.

Models that write answers and chunk descriptions: OpenAIChatModel: A model behind a server. ChatModel: For a model of
    your own. Enrichment: How a model describes each chunk in one line.

Long work: Job, SyncJob: Work that a worker does later: `Collection.jobs.submit`, `Client.jobs`, `Client.work`.
    Progress: Passed to your callback during long work. IndexReport, DeleteReport, LoadReport, TransferReport: The
    result of an operation, in numbers. TableImport: The result of importing another library's table. ReembedReport,
    EmbeddingFigures: The result of a change of the embedding model; one set of vectors of a collection.
    EnrichmentReport, EnrichmentEstimate: The result of describing chunks, and an estimate of its cost. SyncReport,
    SyncPlan, SyncCounts: The differences between folders and a collection, and what a sync did. DocumentStates,
    DocumentInfo: The documents that were read from files, with the states of their files; one of them. DocumentName,
    MovedDocument: The name of a document; a document whose file has been renamed.

Files in: preview_chunks: Split files into chunks without writing anything. register_loader, Loader, FileBytes,
    LoadOptions, LoadedDocument, Record, LoadError: For a format of your own. MetadataExtraction: A function of your own
    that reads metadata out of texts.

Options: CollectionOptions: Options that are fixed when a collection is made. Bm25Options: Constants of the keyword
    engine. FileLimits: The largest files that are read. HnswIndex, IvfflatIndex, NoIndex: The kind of vector index to
    build. BulkIngestConfig: How documents are written. RowFields: The names of the fields of rows with vectors.
    QueryLogOptions: How much of each question the query log keeps.

Errors: SemlexError: Every error of semlex; `semlex.errors` has them all. ValidationError: A value was refused; its
    `errors` name the field, the row and the rule.

Each name is loaded when it is first used: `import semlex` costs nothing.
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
