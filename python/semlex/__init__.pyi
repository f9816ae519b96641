"""The public names for type checkers."""

from semlex.chat.base import ChatModel as ChatModel
from semlex.chat.openai import OpenAIChatModel as OpenAIChatModel
from semlex.embedding.base import BaseEmbedder as BaseEmbedder
from semlex.embedding.base import Embedder as Embedder
from semlex.embedding.base import EmbedderIdentity as EmbedderIdentity
from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder as Qwen3EmbeddingEncoder
from semlex.embedding.remote import GeminiEmbedder as GeminiEmbedder
from semlex.embedding.remote import OpenAIEmbedder as OpenAIEmbedder
from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder as SentenceTransformersEmbedder
from semlex.embedding.static import StaticEmbedder as StaticEmbedder
from semlex.errors import SemlexError as SemlexError
from semlex.errors import ValidationError as ValidationError
from semlex.filters.tree import F as F
from semlex.filters.tree import FilterTree as FilterTree
from semlex.ingest.bulk.load import LoadReport as LoadReport
from semlex.ingest.document_states import DocumentInfo as DocumentInfo
from semlex.ingest.document_states import Documents as Documents
from semlex.ingest.enrichment.options import Enrichment as Enrichment
from semlex.ingest.loaders.base import FileBytes as FileBytes
from semlex.ingest.loaders.base import LoadedDocument as LoadedDocument
from semlex.ingest.loaders.base import Loader as Loader
from semlex.ingest.loaders.base import LoadError as LoadError
from semlex.ingest.loaders.base import LoadOptions as LoadOptions
from semlex.ingest.loaders.base import Record as Record
from semlex.ingest.loaders.extraction import MetadataExtraction as MetadataExtraction
from semlex.ingest.loaders.registry import register_loader as register_loader
from semlex.ingest.preview import preview_chunks as preview_chunks
from semlex.ingest.progress import DeleteReport as DeleteReport
from semlex.ingest.progress import DocumentName as DocumentName
from semlex.ingest.progress import IndexReport as IndexReport
from semlex.ingest.progress import MovedDocument as MovedDocument
from semlex.ingest.progress import Progress as Progress
from semlex.ingest.progress import SyncCounts as SyncCounts
from semlex.ingest.progress import SyncPlan as SyncPlan
from semlex.ingest.progress import SyncReport as SyncReport
from semlex.jobs.job import Job as Job
from semlex.maintenance.dump import TransferReport as TransferReport
from semlex.maintenance.reembed import EmbeddingFigures as EmbeddingFigures
from semlex.maintenance.reembed import ReembedReport as ReembedReport
from semlex.options.answers import AnswerOptions as AnswerOptions
from semlex.options.answers import ContextOptions as ContextOptions
from semlex.options.search import SearchDefaults as SearchDefaults
from semlex.options.search import SearchOptions as SearchOptions
from semlex.options.search import Tuning as Tuning
from semlex.parameters import Bm25Options as Bm25Options
from semlex.parameters import CollectionOptions as CollectionOptions
from semlex.parameters import FileLimits as FileLimits
from semlex.reranking.base import Reranker as Reranker
from semlex.reranking.cross_encoder import CrossEncoderReranker as CrossEncoderReranker
from semlex.reranking.qwen3 import Qwen3Reranker as Qwen3Reranker
from semlex.reranking.remote import CohereReranker as CohereReranker
from semlex.reranking.remote import LLMReranker as LLMReranker
from semlex.reranking.remote import TEIReranker as TEIReranker
from semlex.reranking.term_overlap import TermOverlapReranker as TermOverlapReranker
from semlex.retriever.base import DocumentRetriever as DocumentRetriever
from semlex.retriever.client import Client as Client
from semlex.retriever.client import connect as connect
from semlex.retriever.collection import Collection as Collection
from semlex.retriever.configured.retrievers import from_settings as from_settings
from semlex.retriever.configured.retrievers import from_settings_sync as from_settings_sync
from semlex.retriever.json_fallback import JSONKBRetriever as JSONKBRetriever
from semlex.retriever.knowledge_base import KnowledgeBase as KnowledgeBase
from semlex.retriever.postgres import PostgreSQLRetriever as PostgreSQLRetriever
from semlex.retriever.synchronous import SyncClient as SyncClient
from semlex.retriever.synchronous import SyncCollection as SyncCollection
from semlex.retriever.synchronous import SyncJob as SyncJob
from semlex.retriever.synchronous import SyncJSONKBRetriever as SyncJSONKBRetriever
from semlex.retriever.synchronous import SyncKnowledgeBase as SyncKnowledgeBase
from semlex.retriever.synchronous import SyncRetriever as SyncRetriever
from semlex.retriever.synchronous import connect_sync as connect_sync
from semlex.store.indexes.options import HnswIndex as HnswIndex
from semlex.store.indexes.options import IvfflatIndex as IvfflatIndex
from semlex.store.indexes.options import NoIndex as NoIndex
from semlex.store.write.copy import BulkIngestConfig as BulkIngestConfig
from semlex.types.answers import Answer as Answer
from semlex.types.answers import AnswerSentence as AnswerSentence
from semlex.types.answers import Citation as Citation
from semlex.types.answers import Context as Context
from semlex.types.answers import ContextSource as ContextSource
from semlex.types.checkups import Checkup as Checkup
from semlex.types.checkups import Diagnosis as Diagnosis
from semlex.types.checkups import Finding as Finding
from semlex.types.chunks import ChunkMetadata as ChunkMetadata
from semlex.types.chunks import VectorDocument as VectorDocument
from semlex.types.confidence import ConfidenceCurve as ConfidenceCurve
from semlex.types.documents import Document as Document
from semlex.types.documents import Heading as Heading
from semlex.types.documents import Outline as Outline
from semlex.types.documents import StoredChunk as StoredChunk
from semlex.types.documents import WholeDocument as WholeDocument
from semlex.types.explanations import Explanation as Explanation
from semlex.types.explanations import HitExplanation as HitExplanation
from semlex.types.explanations import LegFigures as LegFigures
from semlex.types.explanations import QueryTerm as QueryTerm
from semlex.types.explanations import Reason as Reason
from semlex.types.explanations import SearchExplanation as SearchExplanation
from semlex.types.fields import Facet as Facet
from semlex.types.fields import Facets as Facets
from semlex.types.fields import FacetValue as FacetValue
from semlex.types.fields import FieldSummaries as FieldSummaries
from semlex.types.fields import FieldSummary as FieldSummary
from semlex.types.queries import Route as Route
from semlex.types.queries import SearchQuery as SearchQuery
from semlex.types.query_log import LoggedQuery as LoggedQuery
from semlex.types.query_log import QueryLogOptions as QueryLogOptions
from semlex.types.query_log import QueryLogSummary as QueryLogSummary
from semlex.types.reports import EnrichmentEstimate as EnrichmentEstimate
from semlex.types.reports import EnrichmentReport as EnrichmentReport
from semlex.types.reports import TableImport as TableImport
from semlex.types.results import DocumentHits as DocumentHits
from semlex.types.results import KnowledgeHit as KnowledgeHit
from semlex.types.results import KnowledgeResults as KnowledgeResults
from semlex.types.results import LegReport as LegReport
from semlex.types.results import SearchResult as SearchResult
from semlex.types.results import SearchResults as SearchResults

__all__ = [
    "Answer",
    "AnswerOptions",
    "AnswerSentence",
    "BaseEmbedder",
    "Bm25Options",
    "BulkIngestConfig",
    "ChatModel",
    "Checkup",
    "ChunkMetadata",
    "Citation",
    "Client",
    "CohereReranker",
    "Collection",
    "CollectionOptions",
    "ConfidenceCurve",
    "Context",
    "ContextOptions",
    "ContextSource",
    "CrossEncoderReranker",
    "DeleteReport",
    "Diagnosis",
    "Document",
    "DocumentHits",
    "DocumentInfo",
    "DocumentName",
    "DocumentRetriever",
    "Documents",
    "Embedder",
    "EmbedderIdentity",
    "EmbeddingFigures",
    "Enrichment",
    "EnrichmentEstimate",
    "EnrichmentReport",
    "Explanation",
    "F",
    "Facet",
    "FacetValue",
    "Facets",
    "FieldSummaries",
    "FieldSummary",
    "FileBytes",
    "FileLimits",
    "FilterTree",
    "Finding",
    "GeminiEmbedder",
    "Heading",
    "HitExplanation",
    "HnswIndex",
    "IndexReport",
    "IvfflatIndex",
    "JSONKBRetriever",
    "Job",
    "KnowledgeBase",
    "KnowledgeHit",
    "KnowledgeResults",
    "LLMReranker",
    "LegFigures",
    "LegReport",
    "LoadError",
    "LoadOptions",
    "LoadReport",
    "LoadedDocument",
    "Loader",
    "LoggedQuery",
    "MetadataExtraction",
    "MovedDocument",
    "NoIndex",
    "OpenAIChatModel",
    "OpenAIEmbedder",
    "Outline",
    "PostgreSQLRetriever",
    "Progress",
    "QueryLogOptions",
    "QueryLogSummary",
    "QueryTerm",
    "Qwen3EmbeddingEncoder",
    "Qwen3Reranker",
    "Reason",
    "Record",
    "ReembedReport",
    "Reranker",
    "Route",
    "SearchDefaults",
    "SearchExplanation",
    "SearchOptions",
    "SearchQuery",
    "SearchResult",
    "SearchResults",
    "SemlexError",
    "SentenceTransformersEmbedder",
    "StaticEmbedder",
    "StoredChunk",
    "SyncClient",
    "SyncCollection",
    "SyncCounts",
    "SyncJSONKBRetriever",
    "SyncJob",
    "SyncKnowledgeBase",
    "SyncPlan",
    "SyncReport",
    "SyncRetriever",
    "TEIReranker",
    "TableImport",
    "TermOverlapReranker",
    "TransferReport",
    "Tuning",
    "ValidationError",
    "VectorDocument",
    "WholeDocument",
    "connect",
    "connect_sync",
    "from_settings",
    "from_settings_sync",
    "preview_chunks",
    "register_loader",
]
__version__: str
