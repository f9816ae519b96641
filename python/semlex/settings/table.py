"""The table of all settings: names, sections, variables, and what each is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.models.model_names import leads_to
from semlex.settings import readers
from semlex.types.queries import MAX_OVERSAMPLING, MAX_TOP_K
from semlex.types.query_log import keeps_questions, query_log_mode

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX, FOREIGN_PREFIX = "SEMLEX_", "RAG_"
# Variables that are no settings: keys, and where the own settings file is.
OTHER_VARIABLES = {
    "SEMLEX_EMBEDDING_API_KEY": "key of an embedding model behind an address",
    "SEMLEX_RERANKER_API_KEY": "key of a reranker behind an address",
    "SEMLEX_CHAT_API_KEY": "key of a language model behind an address",
    "SEMLEX_LLM_MODEL": "language model for the reranker 'auto'",
    "SEMLEX_CONFIG": "your own settings file",
}
# Of programs that develop semlex.
OTHER_PREFIXES = ("SEMLEX_BENCH_", "SEMLEX_REQUIRE_", "SEMLEX_TEST_")


def _never(_value: object) -> bool:
    return False


def _always(_value: object) -> bool:
    return True


def _by_chat(by: object) -> bool:
    return by == "chat"  # which is sent every question


def _elsewhere(name: str) -> bool:
    return leads_to(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes:
        name: As in a file; its variable is ``SEMLEX_`` and the same in capitals.
        read: Turns a text, or a value of a file, into the setting's own; `ValueError` says what it must be.
        what: What it is, in a few words.
        section: Of a file; there it stands under its name or under one of `keys`.
        keys: Other names in its section; in the ``rag`` section of a JSON file, too, where they are in `json_keys`.
        json_keys: Names in the ``rag`` section of a JSON file, beside its own in camel case.
        others: Environment variables that count where its own is not set, the first before the next.
        example: A value for a file that explains a setting without a default.
        of_collection: Whether it is decided when a collection is made.
        leads_away: Whether a value says where texts or data go, or what is loaded from a path.
        attribute: Its name in `semlex.settings.values.Settings`.
    """

    name: str
    read: Callable[[Any], Any]
    what: str
    section: str
    keys: tuple[str, ...] = ()
    json_keys: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    example: Any = None
    of_collection: bool = False
    leads_away: Callable[[Any], bool] = _never
    attribute: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.attribute or self.name)

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the first that is set counts."""
        return (f"{PREFIX}{self.name.upper()}", *self.others)

    @property
    def key(self) -> str:
        """Its shortest name in its section."""
        return min((self.name, *self.keys), key=len)


def _database() -> tuple[Setting, ...]:
    return (
        Setting(
            name="database_url", read=readers.text, what="server to use; none: the embedded Postgres",
            section="database", keys=("url",), others=("RAG_DB_URL", "DATABASE_URL"), leads_away=_always,
            example="postgresql://semlex@localhost:5432/semlex",
        ),
        Setting(
            name="data_dir", read=readers.folder, what="folder of the embedded Postgres's data", section="database",
            leads_away=_always, example="~/semlex",
        ),
        Setting(
            name="keep_alive", read=readers.number_between(0, math.inf, "a number of seconds"), section="database",
            what="seconds for which the embedded Postgres stays after its last user",
        ),
        Setting(
            name="schema", read=readers.text, what="schema of semlex's tables", section="database",
            attribute="schema_name",
        ),
        Setting(
            name="collection", read=readers.text, what="collection to work on", section="database",
            json_keys=("collectionName",),
        ),
    )  # fmt: skip


def _embeddings() -> tuple[Setting, ...]:
    return (
        Setting(
            name="embedding_model", read=readers.text, what="model for vectors, of new collections",
            section="embeddings", keys=("model",), others=("RAG_EMBEDDING_MODEL",), of_collection=True,
            leads_away=_elsewhere, example="static",
        ),
        Setting(
            name="models", read=readers.names, what="models elsewhere that a collection may name",
            section="embeddings", leads_away=_always, example=("ollama:qwen3-embedding:0.6b",),
        ),
        Setting(
            name="dimensions", read=readers.whole, what="length of the vectors, of new collections",
            section="embeddings", others=("RAG_EMBEDDING_DIMS",), of_collection=True, example=256,
        ),
        Setting(
            name="device", read=readers.one_of("mps", "cuda", "cpu"), section="embeddings", example="cpu",
            what="where local models run: mps, cuda or cpu",
        ),
        Setting(
            name="tokenizer", read=readers.text, what="tokenizer.json of a model behind a server, of new collections",
            section="embeddings", of_collection=True, leads_away=_always, example="/models/tokenizer.json",
        ),
        Setting(
            name="vector_storage", read=readers.one_of("vector", "halfvec"), section="embeddings", of_collection=True,
            what="vector or halfvec, of new collections",
        ),
        Setting(
            name="vector_index", read=readers.one_of("hnsw", "ivfflat", "none"), section="embeddings",
            keys=("index_type",), what="what create-index builds: hnsw, ivfflat or none", example="hnsw",
        ),
        Setting(
            name="hnsw_m", read=readers.whole_between(2, 100), section="embeddings",
            what="connections per node of an index that create-index builds", example=16,
        ),
        Setting(
            name="hnsw_ef_construction", read=readers.whole_between(4, 1000), section="embeddings",
            what="candidates that create-index looks at while it builds", example=64,
        ),
    )  # fmt: skip


def _files() -> tuple[Setting, ...]:
    return (
        Setting(
            name="max_file_mib", read=readers.whole_between(1, 1024), section="files",
            what="size of the largest text or table that is read, in MiB",
        ),
        Setting(
            name="max_document_mib", read=readers.whole_between(1, 1024), section="files",
            what="size of the largest PDF, office file, book or mail that is read, in MiB",
        ),
    )  # fmt: skip


def _chunking() -> tuple[Setting, ...]:
    return (
        Setting(
            name="chunk_tokens", read=readers.whole, what="most tokens of a chunk, in new collections",
            section="chunking", keys=("size",), json_keys=("chunkSize",), others=("RAG_CHUNK_SIZE",),
            of_collection=True,
        ),
        Setting(
            name="overlap_tokens", read=readers.whole, what="most tokens that neighbours share, in new collections",
            section="chunking", keys=("overlap",), json_keys=("chunkOverlap",), others=("RAG_CHUNK_OVERLAP",),
            of_collection=True,
        ),
        Setting(
            name="min_tokens", read=readers.whole, section="chunking", of_collection=True,
            what="smaller sections are joined with the next, in new collections",
        ),
    )  # fmt: skip


def _search() -> tuple[Setting, ...]:
    return (
        Setting(
            name="language", read=readers.text, what="language of new collections", section="search",
            keys=("text_search_language",), of_collection=True,
        ),
        Setting(
            name="keyword", read=readers.text, what="keyword engine of new collections", section="search",
            of_collection=True,
        ),
        Setting(
            name="stop_words", read=readers.switch, what="whether new collections leave out stop words",
            section="search", of_collection=True,
        ),
        Setting(
            name="top_k", read=readers.whole_between(1, MAX_TOP_K), what="number of hits", section="search",
            others=("RAG_TOP_K",),
        ),
        Setting(
            name="mode", read=readers.one_of("vector", "keyword", "hybrid"), section="search", keys=("search_type",),
            what="what answers: vector, keyword or hybrid", example="hybrid",
        ),
        Setting(
            name="fusion", read=readers.one_of("completed", "rrf", "linear"), section="search",
            what="how the legs are put together: completed, rrf or linear",
        ),
        Setting(
            name="hybrid_weight", read=readers.number_between(0, 1), section="search",
            json_keys=("hybridSearchWeight",), others=("RAG_HYBRID_WEIGHT",), example=0.5,
            what="share of the vectors, 0 (words) to 1 (vectors)",
        ),
        Setting(name="rrf_k", read=readers.number_between(0, 1e308), section="search", what="constant of fusion rrf"),
        Setting(
            name="oversampling", read=readers.number_between(1, MAX_OVERSAMPLING), section="search",
            keys=("hybrid_oversampling",), what="candidates of each leg, as a multiple of top_k", example=3.0,
        ),
        Setting(
            name="min_similarity", read=readers.number_between(-1, 1), section="search",
            keys=("similarity_threshold",), json_keys=("similarityThreshold",),
            others=("RAG_SIMILARITY_THRESHOLD",), example=0.3, what="least cosine of a hit",
        ),
        Setting(
            name="route", read=readers.one_of("rules", "chat"), section="search", example="rules",
            leads_away=_by_chat,
            what="what decides the kind of a question: rules or chat",
        ),
        Setting(
            name="calibration", read=readers.folder, what="file of a calibration, instead of the stored one",
            section="search", leads_away=_always, example="~/calibration.json",
        ),
        Setting(
            name="fallback_folder", read=readers.folder, section="search", leads_away=_always, example="~/knowledge",
            what="folder of JSON files: asked when nothing is found",
        ),
        Setting(
            name="use_database", read=readers.switch, section="search", others=("RAG_ENABLED",),
            what="false: from_settings() asks fallback_folder alone",
        ),
        Setting(
            name="query_log", read=query_log_mode, what="what is kept of questions: off, hash or text",
            section="search", leads_away=keeps_questions,
        ),
    )  # fmt: skip


def _models() -> tuple[Setting, ...]:
    return (
        Setting(
            name="reranker_model", read=readers.text, what="reranker", section="reranking", keys=("model",),
            leads_away=_elsewhere, example="term-overlap",
        ),
        Setting(
            name="use_reranking", read=readers.reranking, what="whether to rerank", section="reranking",
            keys=("enabled",), json_keys=("rerankingEnabled",),
        ),
        Setting(
            name="chat_model", read=readers.text, what="language model that writes answers", section="answers",
            keys=("model",), leads_away=_elsewhere, example="ollama:qwen3:4b",
        ),
        Setting(
            name="enrichment_model", read=readers.text, what="language model that writes lines about chunks",
            section="answers", json_keys=("contextualEnrichmentModel",), leads_away=_elsewhere,
            example="ollama:qwen3:4b",
        ),
    )  # fmt: skip


SETTINGS = (*_database(), *_embeddings(), *_files(), *_chunking(), *_search(), *_models())
NAMED = {setting.name: setting for setting in SETTINGS}
SECTIONS: dict[str, dict[str, Setting]] = {}
for _setting in SETTINGS:
    for _key in (_setting.name, *_setting.keys):
        SECTIONS.setdefault(_setting.section, {})[_key] = _setting


def camel(name: str) -> str:
    """A name as JSON files have it: ``top_k`` is ``topK``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


JSON_KEYS = {key: setting for setting in SETTINGS for key in (camel(setting.name), *setting.json_keys)}
