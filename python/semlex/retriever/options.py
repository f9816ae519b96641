"""Options of a client, of a retriever and of reading files; each is declared once, with its description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from semlex.options.collection import Bm25Options, DistanceName, FileLimits, StorageName
from semlex.options.declare import Option, unchecked
from semlex.options.indexing import ChunkSizes, FindOptions, FolderKeys, ReadOptions
from semlex.options.search import Mode, QuestionOptions, Rerank, SearchDefaults
from semlex.types.queries import MAX_TOP_K
from semlex.types.results import ReadPreference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from semlex.chat import ChatModel
    from semlex.ingest.enrichment import Enrichment
    from semlex.ingest.loaders.base import Extract, MetadataExtraction
    from semlex.progress import ProgressOption
    from semlex.retriever.base import DocumentRetriever
    from semlex.search.steps import HitStep
    from semlex.store.write.copy import BulkIngestConfig
    from semlex.types.query_log import QueryLogMode, QueryLogOptions


class ModelKeys(TypedDict, total=False):
    """Options that choose models."""

    device: Annotated[str | None, unchecked("Where local models run: mps, cuda, cpu; None: the best of this machine.")]
    dimensions: Annotated[
        int | None,
        unchecked(
            "Length to which vectors are shortened. Static models and your own embedder must already make this length."
        ),
    ]
    tokenizer: Annotated[
        str | PathLike[str] | None,
        unchecked(
            "The tokenizer.json of a model on a server, to measure chunks in that model's tokens: the file's path, "
            "its folder, or a hub id in the local cache. Without it, a word counts as two tokens."
        ),
    ]
    models: Annotated[
        Sequence[str],
        unchecked(
            "Models on servers or in folders that collections may use, in addition to those of SEMLEX_MODELS and your "
            "own settings file. A collection made with any other such model has only keyword search."
        ),
    ]
    chat_model: Annotated[
        str | ChatModel | None,
        unchecked(
            "Model that writes answers: a ChatModel, or the name of one on a server (openai:MODEL, "
            "http(s)://HOST/v1#MODEL), which is sent questions and passages; 'none' or None: answers are sentences of "
            "the documents."
        ),
    ]


class ServerKeys(TypedDict, total=False):
    """Options that choose the server and how it is used."""

    schema: Annotated[str, unchecked("Schema that holds semlex's tables. Default: semlex.")]
    role: Annotated[
        str | None,
        unchecked(
            "Database role for every transaction: the server refuses what the role may not do. None: the login "
            "itself. The login must be a member of the role (docs/how-to/tenants.md)."
        ),
    ]
    data_folder: Annotated[str | PathLike[str] | None, unchecked("Folder of the embedded Postgres.")]
    keep_alive: Annotated[
        float | None,
        unchecked(
            "Seconds until the unused embedded Postgres stops; 0: at once. Default: if a semlex command keeps it "
            "running, that command's time; else 0."
        ),
    ]
    max_connections: Annotated[
        int, unchecked("Size of the pool: this many searches run at a time, others wait in order. Default: 8.")
    ]
    timeout: Annotated[
        float,
        unchecked(
            "Seconds to wait for the server. A call that waits for a connection is refused if none becomes free "
            "in this time. Default: 10."
        ),
    ]
    read_from: Annotated[
        ReadPreference,
        Option(
            "Where searches, get, count and status read: 'primary' (the default), or 'replica': a standby among "
            "the hosts of db_url, which may be a little behind; if none answers, the primary, with a warning."
        ),
    ]
    cached_queries: Annotated[
        int, unchecked("Maximum number of query vectors kept in memory; 0 keeps none. Default: 1,024.")
    ]
    query_log: Annotated[
        QueryLogMode | QueryLogOptions,
        unchecked(
            "What the query log keeps of questions: 'off' (default), 'hash', 'text', or QueryLogOptions. Read it "
            "with Collection.queries."
        ),
    ]
    file_limits: Annotated[
        FileLimits,
        unchecked(
            "Maximum size of a file that is read. Default: 16 MiB; 128 MiB for PDF, office files, books and mail."
        ),
    ]
    search_defaults: Annotated[SearchDefaults, Option("Search options for calls that leave them out.")]
    defaults: Annotated[
        Mapping[str, Any] | None,
        unchecked(
            "For new collections only: embedding_model (a name), dimensions, tokenizer (a path), and the options "
            "from language to min_tokens. An argument is refused if an existing collection has another value; a "
            "default is not, and unused_defaults reports it. The model 'none' applies to all collections."
        ),
    ]


class CollectionKeys(TypedDict, total=False):
    """Options that are fixed when a collection is made; refused if an existing one has another value."""

    language: Annotated[
        str | None,
        unchecked("Language of the texts, a Snowball name such as english (the default), or its ISO 639-1 code."),
    ]
    keyword: Annotated[
        str | None,
        unchecked(
            "Keyword engine: bm25 (the default), tsvector, tsvector_cd or none, or that of an extension of the "
            "server: pg_textsearch, pg_search."
        ),
    ]
    stop_words: Annotated[
        bool | None, unchecked("Whether very frequent words are left out of the keyword index (bm25). Default: True.")
    ]
    distance: Annotated[DistanceName | None, unchecked("Distance of vectors. Default: cosine.")]
    vector_storage: Annotated[
        StorageName | None,
        unchecked(
            "vector (float32), or halfvec (float16: half the size, and indexes up to 4,000 dimensions instead of "
            "2,000). Default: halfvec for vectors of length 1 with more than 512 dimensions and distance cosine."
        ),
    ]
    with_context: Annotated[
        bool | None,
        unchecked("Whether titles and heading path are analysed and embedded with the text. Default: True."),
    ]
    partitions: Annotated[
        int | None,
        unchecked(
            "Partitions of the tables of documents, chunks and vectors, 2 to 64, or 0 for plain tables. "
            "Default: 0. For millions of chunks on a server with many cores."
        ),
    ]
    chunk_tokens: Annotated[
        int | None,
        unchecked("Maximum tokens of a chunk, 16 to 2,000. Default: 500. Stored when the first file is read."),
    ]
    overlap_tokens: Annotated[
        int | None,
        unchecked("Maximum tokens shared by neighbouring chunks. Default: 50. Stored when the first file is read."),
    ]
    min_tokens: Annotated[
        int | None,
        unchecked(
            "Sections with fewer tokens are joined with the next one if both fit. At most half of chunk_tokens. "
            "Default: 32, or a quarter of chunk_tokens if that is less. Stored when the first file is read."
        ),
    ]


class ClientOptions(ModelKeys, ServerKeys, total=False):
    """Options of `Client`."""

    keyword_cache_bytes: Annotated[
        int, unchecked("Maximum bytes of posting lists kept in memory, of all collections together. Default: 64 MiB.")
    ]


class RetrieverOptions(ModelKeys, ServerKeys, CollectionKeys, total=False):
    """Options of `PostgreSQLRetriever`."""

    create: Annotated[bool, unchecked("Whether to make the collection if it does not exist. Default: True.")]
    bm25: Annotated[Bm25Options, unchecked("Constants of bm25, and how much of its index is kept in memory.")]
    bulk: Annotated[
        BulkIngestConfig, unchecked("How documents are written: rows per transaction, size of a COPY block.")
    ]
    calibration: Annotated[
        str | PathLike[str] | None,
        unchecked(
            "File of a calibration that gives hits their confidence, instead of the stored one; refused if it was "
            "learned with another model."
        ),
    ]
    fallback: Annotated[
        DocumentRetriever | None,
        unchecked("Retriever to search if nothing was found, like the fallback of Collection.search."),
    ]


class FileOptions(FindOptions, ChunkSizes, ReadOptions, total=False):
    """Options for finding, reading and splitting files."""

    extract_metadata: Annotated[
        MetadataExtraction | Extract | None,
        Option(
            "Your function that reads metadata out of a text, sync or async, or a MetadataExtraction. It is "
            "called for files that are read; a file for which it fails is listed in the report's problems. Metadata "
            "given by hand takes precedence.",
            form="object",
            offered=False,
        ),
    ]
    progress: Annotated[
        ProgressOption,
        Option("Called repeatedly with the progress; 'bar' shows a progress bar.", form="object", offered=False),
    ]


class IndexOptions(FileOptions, total=False):
    """Options of `Collection.index`."""

    enrichment: Annotated[
        Enrichment | str | ChatModel | None,
        unchecked(
            "A language model that describes each chunk of these files, as documents.enrich does; without one, "
            "descriptions stay with chunks that did not change."
        ),
    ]


class WatchOptions(FileOptions, FolderKeys, total=False):
    """Options of `Collection.watch`."""


class SyncOptions(WatchOptions, IndexOptions, total=False):
    """Options of `Collection.sync`."""

    dry_run: Annotated[bool, Option("Compare only; the report's plan lists what would be done.")]


class KnowledgeOptions(QuestionOptions, total=False):
    """Options of `KnowledgeBase.retrieve`."""

    mode: Mode
    rerank: Rerank
    steps: Annotated[
        Sequence[HitStep],
        unchecked(
            "Functions that run on the hits, in this order, before the best are taken: each takes a list of "
            "hits and returns one, as in semlex.search.steps. Your functions run in a thread, unless they are "
            "asynchronous."
        ),
    ]
    per_collection: Annotated[
        int | None,
        Option(
            "Hits of each collection. Default: top_k, and three times as many with steps.", minimum=1, maximum=MAX_TOP_K
        ),
    ]
    on_error: Annotated[
        Literal["raise", "skip"],
        Option("'skip' leaves out a collection that does not answer, and reports it. Default: raise."),
    ]
