"""What can be done, in one table: names, arguments, results, rights.

Values only. The command line is compared with it by a test; a server's routes and tools are made from it, or compared
with it, in the same way. An operation is a method of a collection, of a client or of a job; what is left out of its
arguments belongs to programs alone: objects of Python, callbacks, tuning of one search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "text",
    "texts",
    "number",
    "whole number",
    "yes or no",
    "filter",
    "boosts",
    "path",
    "paths",
    "time",
    "object",
    "objects",
]
# read: changes nothing. write: changes documents. admin: changes tables, indexes or models, or reads all of a
# collection; the rights are in this order, each with those before it.
Rights: TypeAlias = Literal["read", "write", "admin"]
Of: TypeAlias = Literal["Collection", "Client", "Job"]


class Required:
    """Stands in place of the default of an argument that must be given."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument.

    Attributes:
        name: As the method has it.
        kind: What it is.
        default: What it is when it is not given; `Required` where it must be.
        typed: Name of the command line's parameter, where that is another; several where they say it together.
        typed_default: Its default there, where that is another.
    """

    name: str
    kind: Kind
    default: Any = None
    typed: tuple[str, ...] = ()
    typed_default: Any = Required


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done.

    Attributes:
        name: One word or two, for routes and tools.
        of: Whose method it is.
        method: The method's name.
        rights: What it needs.
        result: The type of what it gives, as the method is annotated.
        arguments: Those that can be given from outside.
        commands: Those of the command line that do it; empty where `without_command` says why.
        without_command: Why the command line has none.
    """

    name: str
    of: Of
    method: str
    rights: Rights
    result: str
    arguments: tuple[Argument, ...] = ()
    commands: tuple[str, ...] = ()
    without_command: str = ""


TOP_K = Argument("top_k", "whole number")
FILTERS = Argument("filters", "filter")
MODE = Argument("mode", "text")
FUSION = Argument("fusion", "text")
BOOST = Argument("boost", "boosts")
CANDIDATES = Argument("candidates", "whole number")
DEADLINE = Argument("deadline", "number")
THRESHOLDS = (Argument("min_similarity", "number"), Argument("min_rerank", "number"))
LIST = (
    Argument("max_results", "whole number"),
    Argument("group_by", "text", typed=("group",)),
    Argument("group_size", "whole number", typed=("group",)),
)
ROUTE = Argument("route", "text")
DOCUMENT = Argument("document", "text", Required)
SOURCE = Argument("source", "text")
DRY_RUN = Argument("dry_run", "yes or no", default=False)
CHUNKS = (
    Argument("chunk_tokens", "whole number"),
    Argument("overlap_tokens", "whole number"),
    Argument("min_tokens", "whole number"),
)
FILES = (
    Argument("paths", "paths", Required),
    SOURCE,
    Argument("include", "texts"),
    Argument("exclude", "texts", ()),
    Argument("recursive", "yes or no", default=True),
    *CHUNKS,
    Argument("text_fields", "texts", (), typed=("text_field",)),
    Argument("id_field", "text"),
    Argument("detect_encoding", "yes or no", default=False),
    Argument("on_bad_text", "text", "error"),
    Argument("enrichment", "text", typed=("enrichment_model",)),
)
ON_DUPLICATE = Argument("on_duplicate", "text", "update")
JOB_ID = Argument("job_id", "text", Required)
TOKENS = Argument("tokens", "whole number", 4000)

OPERATIONS = (
    # --- find
    Operation(
        "search", "Collection", "search", "read", "SearchResults",
        (
            Argument("query", "text", typed=("question",)), TOP_K, FILTERS, MODE, FUSION, BOOST, CANDIDATES, DEADLINE,
            *THRESHOLDS, *LIST, Argument("explain", "yes or no", default=False), ROUTE,
        ),
        ("search", "try", "shell"),
    ),
    Operation(
        "search page", "Collection", "search_page", "read", "SearchResults",
        (Argument("cursor", "text", Required, typed=("after",)), FILTERS, DEADLINE), ("search",),
    ),
    Operation(
        "search many", "Collection", "search_many", "read", "ManyResults",
        (
            Argument("queries", "texts", Required, typed_default=None), TOP_K, FILTERS, MODE, FUSION, BOOST,
            CANDIDATES, *THRESHOLDS,
        ),
        ("search",),
    ),
    Operation(
        "answer", "Collection", "answer", "read", "Answer",
        (
            Argument("question", "text", Required), TOKENS, Argument("top_k", "whole number", 20, typed_default=10),
            FILTERS, Argument("min_coverage", "number", 0.25), Argument("min_similarity", "number", 0.35), ROUTE,
        ),
        ("ask",),
    ),
    Operation(
        "context", "Collection", "context", "read", "Context",
        (
            Argument("question", "text", Required), TOKENS, Argument("top_k", "whole number", 20), FILTERS, MODE,
            FUSION, BOOST, Argument("neighbours", "whole number", 1),
            Argument("sections", "number", 0.5, typed_default=None), Argument("parents", "yes or no", default=False),
            Argument("per_document", "whole number"), Argument("near_duplicates", "number", 0.9, typed_default=None),
            Argument("diversity", "number"), Argument("order", "text", "score"), ROUTE,
        ),
        ("context",),
    ),
    Operation(
        "why", "Collection", "why", "read", "Explanation",
        (
            DOCUMENT, Argument("question", "text", typed_default=Required), TOP_K, FILTERS, MODE, FUSION, BOOST,
            CANDIDATES, DEADLINE, *LIST, *THRESHOLDS, ROUTE,
        ),
        ("why",),
    ),
    Operation(
        "candidates", "Collection", "candidates", "read", "SearchResults",
        (
            Argument("query", "text", Required), Argument("depth", "whole number", 50), FILTERS,
            Argument("weights", "object"), BOOST, DEADLINE,
        ),
        without_command="all candidates of both legs, for a page that orders them; semlex why asks for one document",
    ),
    Operation(
        "facets", "Collection", "facets", "read", "Facets",
        (
            Argument("fields", "texts", Required), FILTERS, Argument("query", "text"), MODE,
            Argument("limit", "whole number", 20),
        ),
        ("fields facets",),
    ),
    # --- documents
    Operation(
        "get document", "Collection", "get_document", "read", "WholeDocument", (DOCUMENT,), ("documents show",)
    ),
    Operation("outline", "Collection", "outline", "read", "Outline", (DOCUMENT,), ("documents outline",)),
    Operation("list documents", "Collection", "documents", "read", "Documents", (SOURCE,), ("documents list",)),
    Operation("list sources", "Collection", "sources", "read", "Sources", (), ("documents sources",)),
    Operation(
        "get chunks", "Collection", "get", "read", "Chunks", (Argument("ids", "texts", Required),),
        without_command="semlex documents show takes one id; many are a program's",
    ),
    Operation(
        "list chunks", "Collection", "list", "read", "Chunks",
        (FILTERS, Argument("limit", "whole number", 100), Argument("after", "text")),
        without_command="pages of chunks without a question are a program's; semlex collections dump writes all",
    ),
    Operation(
        "count chunks", "Collection", "count", "read", "int", (FILTERS,),
        without_command="semlex status counts all, semlex fields facets those that pass a filter",
    ),
    Operation("index", "Collection", "index", "write", "IndexReport", FILES, ("index", "try")),
    Operation(
        "sync", "Collection", "sync", "write", "SyncReport",
        (
            *FILES, DRY_RUN, Argument("keep_deleted", "yes or no", default=False),
            Argument("allow_empty", "yes or no", default=False),
        ),
        ("sync",),
    ),
    Operation(
        "add documents", "Collection", "add_documents", "write", "Ids",
        (Argument("documents", "objects", Required, typed=("files", "texts")), ON_DUPLICATE), ("documents add",),
    ),
    Operation(
        "load vectors", "Collection", "load_vectors", "write", "LoadReport",
        (
            Argument("rows", "paths", Required, typed=("sources",)),
            Argument("text_field", "text", "text", typed_default=None),
            Argument("vector_field", "text", "vector", typed_default=None), Argument("id_field", "text"),
            Argument("metadata_fields", "texts"),
            Argument("metadata_field", "text", "metadata", typed_default=None), ON_DUPLICATE,
        ),
        ("documents import",),
    ),
    Operation(
        "import table", "Collection", "import_table", "admin", "TableImport",
        (
            Argument("table", "text", Required, typed=("sources",)), Argument("layout", "text"),
            Argument("source_url", "text", typed=("source_database",)),
            Argument("source_schema", "text", "public", typed_default=None), Argument("text_field", "text"),
            Argument("vector_field", "text"), Argument("id_field", "text"), Argument("metadata_fields", "texts"),
            Argument("metadata_field", "text"), ON_DUPLICATE, DRY_RUN,
        ),
        ("documents import",),
    ),
    Operation(
        "delete", "Collection", "delete", "write", "DeleteReport",
        (
            Argument("ids", "texts", typed=("names",)), Argument("document", "text", typed=("names",)), SOURCE, FILTERS,
            Argument("vanished", "yes or no", default=False), DRY_RUN,
        ),
        ("delete",),
    ),
    Operation(
        "move source", "Collection", "move_source", "write", "None",
        (Argument("name", "text", Required), Argument("root", "path", Required)), ("documents move",),
    ),
    Operation(
        "enrich", "Collection", "enrich", "write", "EnrichmentReport",
        (Argument("enrichment", "text", Required, typed=("enrichment_model",), typed_default=None), SOURCE, DRY_RUN),
        ("maintain enrich",),
    ),
    # --- collection
    Operation(
        "list collections", "Client", "count_collections", "read", "list[CountedCollection]", (), ("collections list",)
    ),
    Operation(
        "status", "Collection", "status", "read", "CollectionStatus",
        (Argument("exact", "yes or no", default=False),), ("status",),
    ),
    Operation(
        "list fields", "Collection", "fields", "read", "FieldSummaries",
        (Argument("values", "yes or no", default=False),), ("fields list",),
    ),
    Operation(
        "checkup", "Collection", "checkup", "read", "Checkup",
        (Argument("sample", "whole number"), Argument("seed", "whole number", 0), MODE), ("eval checkup",),
    ),
    Operation(
        "queries", "Collection", "queries", "admin", "QueryLogSummary",
        (Argument("limit", "whole number", 20),), ("eval queries",),
    ),
    Operation("clear queries", "Collection", "clear_queries", "admin", "int", (), ("eval queries",)),
    Operation(
        "diagnose", "Client", "diagnose", "admin", "Diagnosis", (Argument("collection", "text"),), ("doctor run",)
    ),
    Operation(
        "add field", "Collection", "add_field", "admin", "IndexesBuilt",
        (
            Argument("name", "text", Required), Argument("type", "text", Required, typed=("of",)),
            Argument("force", "yes or no", default=False),
        ),
        ("fields add",),
    ),
    Operation(
        "remove field", "Collection", "remove_field", "admin", "tuple[IndexedType, ...]",
        (Argument("name", "text", Required),), ("fields remove",),
    ),
    Operation("optimize", "Collection", "optimize", "admin", "int", (), ("maintain optimize",)),
    Operation("reindex", "Collection", "reindex_keyword", "admin", "Rebuilt", (), ("maintain reindex",)),
    Operation(
        "rechunk", "Collection", "rechunk", "admin", "IndexReport", (*CHUNKS, SOURCE, DRY_RUN), ("maintain rechunk",)
    ),
    Operation(
        "create index", "Collection", "create_index", "admin", "IndexesBuilt",
        (
            Argument(
                "index", "object", typed=("kind", "m", "ef_construction", "quantization", "lists", "probes")
            ),
            Argument("concurrently", "yes or no", default=False),
        ),
        ("maintain create-index",),
    ),
    Operation(
        "dump", "Collection", "dump", "admin", "TransferReport", (Argument("folder", "path", Required),),
        ("collections dump",),
    ),
    Operation(
        "restore", "Client", "restore", "admin", "TransferReport",
        (
            Argument("folder", "path", Required), Argument("collection", "text"), Argument("keyword", "text"),
            Argument("vector_storage", "text"), Argument("build_indexes", "yes or no", default=True),
        ),
        ("collections restore",),
    ),
    Operation("migrate", "Client", "migrate", "admin", "list[Step]", (DRY_RUN,), ("maintain migrate",)),
    Operation(
        "drop", "Client", "drop", "admin", "None", (Argument("name", "text", Required, typed=("collection",)),),
        ("collections drop",),
    ),
    # --- models
    Operation("embed", "Collection", "embed_missing", "write", "int", (), ("models fill",)),
    Operation(
        "reembed", "Collection", "reembed", "admin", "ReembedReport",
        (
            Argument("model", "text", Required, typed=("model",), typed_default=None),
            Argument("dimensions", "whole number"), Argument("tokenizer", "path"), Argument("vector_storage", "text"),
            Argument("restart", "yes or no", default=False), DRY_RUN,
        ),
        ("models set",),
    ),
    Operation(
        "roll back embeddings", "Collection", "rollback_embeddings", "admin", "ReembedReport",
        (Argument("model", "text", typed=("embedding_model",)), Argument("force", "yes or no", default=False)),
        ("models rollback",),
    ),
    Operation("list embeddings", "Collection", "embeddings", "read", "Figures", (), ("models list",)),
    Operation(
        "drop embeddings", "Collection", "drop_embeddings", "admin", "None",
        (
            Argument("version", "whole number", Required),
            Argument("force", "yes or no", default=False),
        ),
        ("models drop",),
    ),
    # --- serve
    Operation(
        "submit job", "Collection", "submit", "write", "Job",
        (
            Argument("kind", "text", Required), Argument("arguments", "object", typed=("arguments", "paths")),
            Argument("priority", "whole number", 0), Argument("unique_key", "text"), Argument("not_before", "time"),
            Argument("max_attempts", "whole number", 5),
        ),
        ("jobs submit",),
    ),
    Operation(
        "list jobs", "Client", "jobs", "read", "list[Job]",
        (Argument("state", "text"), Argument("collection", "text"), Argument("limit", "whole number", 100)),
        ("jobs list",),
    ),
    Operation("get job", "Client", "job", "read", "Job", (JOB_ID,), ("jobs show",)),
    Operation("cancel job", "Job", "cancel", "write", "Job", (), ("jobs cancel",)),
    Operation("retry job", "Job", "retry", "write", "Job", (), ("jobs retry",)),
)  # fmt: skip
