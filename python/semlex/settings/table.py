"""All settings: each declared once, as a field of `Settings`, with default, reader, section and description.

Names, environment variables, sections of files, and the template of a settings file are derived from these fields.
"""

# ruff: noqa: RUF009 - `setting` and `search_setting` make fields

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from semlex.errors import ConfigurationError
from semlex.models.model_names import leads_to
from semlex.options.collection import MAX_PARTITIONS, MIB, CollectionOptions, FileLimits
from semlex.options.declare import declared
from semlex.options.search import RRF_K, FusionMethod, SearchDefaults
from semlex.types.queries import DEFAULT_TOP_K, RouteBy
from semlex.types.query_log import QueryLogMode, keeps_questions, query_log_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semlex.types.results import ReadPreference, SearchMode

PREFIX, FOREIGN_PREFIX = "SEMLEX_", "RAG_"
JSON_SUFFIX = ".json"
ARGUMENT, BUILT_IN = "argument", "built in"
# Variables that are not settings: keys, and where the user's own settings file is.
OTHER_VARIABLES = {
    "SEMLEX_EMBEDDING_API_KEY": "key for an embedding model given as a URL or as ollama:NAME",
    "SEMLEX_RERANKER_API_KEY": "key for a reranker given as a URL",
    "SEMLEX_CHAT_API_KEY": "key for a language model given as a URL or as ollama:NAME",
    "SEMLEX_LLM_MODEL": "language model for the reranker 'auto'",
    "SEMLEX_CONFIG": "your own settings file",
}
# Of programs that develop semlex.
OTHER_PREFIXES = ("SEMLEX_BENCH_", "SEMLEX_REQUIRE_", "SEMLEX_TEST_")
# Parameters of a retriever with the names of settings.
_SAME = ("models", "reranker_model", "use_reranking", "chat_model", "device", "calibration", "query_log")
# Parameters of a retriever that a client does not have.
_OF_COLLECTION = {"collection", "calibration", *(one.name for one in fields(CollectionOptions))}

# --- readers: a text, or a value of a file, as the setting's own; `ValueError` says what it must be -------------------

SHOWN_CHARACTERS = 40
SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def model_names(value: object) -> list[str]:
    """Read a list of models: a text with commas between the names, or a list of names."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigurationError('models must be a list of names, for example models = ["ollama:qwen3-embedding"]')
    return [entry.strip() for entry in entries if entry.strip()]


def text(value: Any) -> str:
    """Read a text."""
    if not isinstance(value, str):
        raise ValueError("must be a text, between quotes")  # noqa: TRY004 - one kind of error for all readers
    return value


def folder(value: Any) -> Path:
    """Read a path; ``~`` stands for a home folder."""
    try:
        return (value if isinstance(value, Path) else Path(text(value))).expanduser()
    except RuntimeError:
        raise ValueError(f"begins with the home of a user that does not exist; got {shown(str(value))}") from None


def reader(
    read: Callable[[Any], Any], must: str, is_allowed: Callable[[Any], bool] = lambda _: True
) -> Callable[[Any], Any]:
    """Return a reader that applies `read`; if `read` or `is_allowed` fails, the error is "must be MUST; got …"."""

    def checked(value: Any) -> Any:
        with suppress(AttributeError, KeyError, OverflowError, TypeError, ValueError):
            found = read(value)
            if is_allowed(found):
                return found
        raise ValueError(f"must be {must}; got {shown(value)}")

    return checked


def _whole(value: Any) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()):
        return int(value)
    raise TypeError


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


whole = reader(_whole, "a whole number")
switch = reader(lambda value: value if isinstance(value, bool) else SWITCH[value.lower()], "true or false")
reranking = reader(lambda value: "auto" if value == "auto" else switch(value), "true, false or auto")
partition_number = reader(
    _whole, f"0, or between 2 and {MAX_PARTITIONS}", {0, *range(2, MAX_PARTITIONS + 1)}.__contains__
)


def whole_between(least: int, most: int) -> Callable[[Any], Any]:
    """Return a reader of whole numbers within bounds."""
    return reader(_whole, f"a whole number between {least:,} and {most:,}", lambda number: least <= number <= most)


def number_between(least: float, most: float, what: str = "a number") -> Callable[[Any], Any]:
    """Return a reader of finite numbers within bounds."""
    bounds = f", at least {least:g}" if most == math.inf else f" between {least:g} and {most:g}"
    return reader(_number, f"{what}{bounds}", lambda number: least <= number <= most and math.isfinite(number))


def one_of(*known: str) -> Callable[[Any], Any]:
    """Return a reader that accepts one of some words."""
    return reader(lambda value: value, f"{', '.join(known[:-1])} or {known[-1]}", known.__contains__)


def names(value: Any) -> tuple[str, ...]:
    """Read a list of models."""
    try:
        return tuple(model_names(value))
    except ConfigurationError as error:
        raise ValueError(str(error).removeprefix("models ")) from None


def shown(value: object) -> str:
    """Return a refused value as text for a message; a table or list, which may contain anything, becomes its kind."""
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else "a list"
    found = repr(value)
    return found if len(found) <= SHOWN_CHARACTERS else f"{found[:SHOWN_CHARACTERS]}…"


# --- the settings -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting: its names, reader, description and effects."""

    attribute: str  # its name in `Settings`
    name: str  # as in a file; its variable is SEMLEX_ and the same in capitals
    read: Callable[[Any], Any]
    what: str
    section: str  # of a file; there it has its name or one of `keys`
    keys: tuple[str, ...] = ()
    json_keys: tuple[str, ...] = ()  # in the ``rag`` section of a JSON file, beside its own in camel case
    others: tuple[str, ...] = ()  # environment variables that are read if its own is not set, the first one that is set
    example: Any = None  # for a file that explains a setting without a default
    of_collection: bool = False  # decided when a collection is made
    # whether a value decides where texts or data go, or what is loaded from a path
    leads_away: Callable[[Any], bool] = lambda _: False

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the setting's environment variables; the first one that is set is used."""
        return (f"{PREFIX}{self.name.upper()}", *self.others)

    @property
    def key(self) -> str:
        """Return the setting's shortest name in its section."""
        return min((self.name, *self.keys), key=len)


def setting(default: Any, read: Callable[[Any], Any], what: str, section: str, **more: Any) -> Any:
    """Declare a setting as a field; `more` sets further attributes of `Setting`."""
    # Addresses may hold secrets.
    is_shown = "leads_away" not in more
    return field(default=default, repr=is_shown, metadata={"read": read, "what": what, "section": section, **more})


def search_setting(name: str, default: Any, *, what: str = "", **more: Any) -> Any:
    """Declare a setting for a default of searches; its range and description are those of the search option."""
    one = declared(SearchDefaults)[name]
    least, most = one.option.minimum or 0, math.inf if one.option.maximum is None else one.option.maximum
    if one.choices:
        read: Callable[[Any], Any] = one_of(*one.choices)
    elif one.form == "flag":
        read = switch
    else:
        read = whole_between(int(least), int(most)) if one.form == "integer" else number_between(least, most)
    sentence = one.option.text.partition(". ")[0].rstrip(".")
    bounds = "" if one.option.maximum is None or " to " in sentence else f", {least:,} to {most:,}"
    choices = f": {', '.join(one.choices)}" if one.choices else bounds
    return setting(default, read, what or f"{sentence[0].lower()}{sentence[1:]}{choices}", "search", **more)


def _elsewhere(name: str) -> bool:
    return leads_to(name) is not None


def _always(_value: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Overridden:
    """A value that is not used, because another source takes precedence."""

    origin: str
    value: Any = field(repr=False)  # as it is there, unread


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, and where its value comes from."""

    # fmt: off
    database_url: str | None = setting(
        None, text,
        "server to use: a libpq URL or name=value text; not set: libpq's variables, else the embedded Postgres",
        "database", keys=("url",), others=("RAG_DB_URL", "DATABASE_URL"), leads_away=_always,
        example="postgresql://semlex@localhost:5432/semlex")
    data_dir: Path | None = setting(
        None, folder, "folder of semlex's data; the embedded Postgres is in postgres below it", "database",
        leads_away=_always, example="~/semlex")
    keep_alive: float = setting(
        300.0, number_between(0, math.inf, "a number of seconds"),
        "seconds that the embedded Postgres keeps running after its last user; 0 stops it at once", "database")
    read_from: ReadPreference = setting(
        "primary", one_of("primary", "replica"), "server that searches read from: primary, or replica (a standby)",
        "database", example="replica")
    schema_name: str = setting("semlex", text, "schema of semlex's tables", "database", name="schema")
    collection: str = setting(
        "default_collection", text, "collection to work on", "database", json_keys=("collectionName",))
    partitions: int = setting(
        0, partition_number, "partitions of the tables of new collections, 2 to 64; 0: plain tables", "database",
        of_collection=True, example=16)

    embedding_model: str | None = setting(
        None, text,
        "embedding model: name, folder or server's model, static, or none (keywords only); not set: the best available",
        "embeddings", keys=("model",), others=("RAG_EMBEDDING_MODEL",), of_collection=True, leads_away=_elsewhere,
        example="static")
    models: tuple[str, ...] = setting(
        (), names,
        "models on servers or in folders that collections may use; in the variable, separated by commas",
        "embeddings", leads_away=_always, example=("ollama:qwen3-embedding:0.6b",))
    dimensions: int | None = setting(
        None, whole, "shorten vectors of new collections to this length; a static model must already have it",
        "embeddings", others=("RAG_EMBEDDING_DIMS",), of_collection=True, example=256)
    device: str | None = setting(
        None, one_of("mps", "cuda", "cpu"),
        "where local models run: mps, cuda or cpu; not set: the best of this machine", "embeddings", example="cpu")
    tokenizer: str | None = setting(
        None, text, "tokenizer.json of a model on a server; new collections measure chunks with it", "embeddings",
        of_collection=True, leads_away=_always, example="/models/tokenizer.json")
    vector_storage: Literal["vector", "halfvec"] | None = setting(
        None, one_of("vector", "halfvec"),
        "vectors of new collections: vector (float32) or halfvec (float16); not set: by dimensions and distance",
        "embeddings", of_collection=True, example="halfvec")
    vector_index: Literal["hnsw", "ivfflat", "none"] | None = setting(
        None, one_of("hnsw", "ivfflat", "none"),
        "kind of index that create-index builds: hnsw, ivfflat or none; not set: it builds missing indexes",
        "embeddings", keys=("index_type",), example="hnsw")
    hnsw_m: int | None = setting(
        None, whole_between(2, 100),
        "connections per node of an HNSW index that create-index builds, 2 to 100; not set: 16", "embeddings",
        example=16)
    hnsw_ef_construction: int | None = setting(
        None, whole_between(4, 1000),
        "candidates examined while HNSW is built, 4 to 1,000 and at least twice hnsw_m; not set: 64", "embeddings",
        example=64)

    max_file_mib: int = setting(
        16, whole_between(1, 1024), "maximum size of a text, table or web page, in MiB, 1 to 1,024", "files")
    max_document_mib: int = setting(
        128, whole_between(1, 1024),
        "maximum size of a PDF, office file, book or mail, in MiB, 1 to 1,024; larger ones take more memory", "files")

    chunk_tokens: int = setting(
        500, whole, "maximum tokens of a chunk, in new collections", "chunking", keys=("size",),
        json_keys=("chunkSize",), others=("RAG_CHUNK_SIZE",), of_collection=True)
    overlap_tokens: int = setting(
        50, whole, "maximum tokens that neighbouring chunks share, in new collections", "chunking", keys=("overlap",),
        json_keys=("chunkOverlap",), others=("RAG_CHUNK_OVERLAP",), of_collection=True)
    min_tokens: int = setting(
        32, whole, "shorter sections are joined with the next, in new collections; at most half of chunk_tokens",
        "chunking", of_collection=True)

    language: str = setting(
        "english", text, "language of new collections", "search", keys=("text_search_language",), of_collection=True)
    keyword: str = setting(
        "bm25", text, "keyword engine of new collections: bm25, tsvector, tsvector_cd, none, or an extension's",
        "search", of_collection=True)
    stop_words: bool = setting(
        True, switch, "whether the keyword index of new collections leaves out stop words", "search",
        of_collection=True)
    top_k: int = search_setting("top_k", DEFAULT_TOP_K, others=("RAG_TOP_K",))
    mode: SearchMode | None = search_setting("mode", None, keys=("search_type",), example="hybrid")
    fusion: FusionMethod = search_setting("fusion", "score")
    # Elsewhere it means weight x vector + (1 - weight) x words. Score fusion is that sum over complete scores, so the
    # fusion stays as it is; `linear` knows no cosine of what only words found.
    hybrid_weight: float | None = search_setting(
        "hybrid_weight", None, json_keys=("hybridSearchWeight",), others=("RAG_HYBRID_WEIGHT",), example=0.5)
    rrf_k: float = search_setting("rrf_k", RRF_K)
    oversampling: float | None = search_setting("oversampling", None, keys=("hybrid_oversampling",), example=3.0)
    min_similarity: float | None = search_setting(
        "min_similarity", None, keys=("similarity_threshold",), json_keys=("similarityThreshold",),
        others=("RAG_SIMILARITY_THRESHOLD",), example=0.3)
    route: RouteBy | None = search_setting(
        "route", None,
        what="choose candidates, reranking and grouping by the kind of question, decided by: rules or chat",
        example="rules", leads_away=lambda by: by == "chat")  # it gets every question
    rewrite: bool = search_setting(
        "rewrite", False, what="whether the chat model writes search terms for questions", leads_away=bool)
    calibration: Path | None = setting(
        None, folder, "file of a calibration, instead of the collection's own", "search", leads_away=_always,
        example="~/calibration.json")
    fallback_folder: Path | None = setting(
        None, folder, "folder of JSON files that are searched if nothing is found", "search", leads_away=_always,
        example="~/knowledge")
    use_database: bool = setting(
        True, switch, "false: from_settings() searches only fallback_folder; the command line ignores this", "search",
        others=("RAG_ENABLED",))
    query_log: QueryLogMode = setting(
        "off", query_log_mode, "what the query log keeps: off, hash or text", "search", leads_away=keeps_questions)

    reranker_model: str | None = setting(
        None, text, "reranker: name, folder or server's model, term-overlap, none or auto", "reranking",
        keys=("model",), leads_away=_elsewhere, example="term-overlap")
    use_reranking: bool | Literal["auto"] = setting(
        "auto", reranking, "true, false, or auto: if a reranker is named, or one is cached and the machine has a GPU",
        "reranking", keys=("enabled",), json_keys=("rerankingEnabled",))
    chat_model: str | None = setting(
        None, text,
        "language model on a server, to write answers; not set: answers are sentences of the documents",
        "answers", keys=("model",), leads_away=_elsewhere, example="ollama:qwen3:4b")
    enrichment_model: str | None = setting(
        None, text, "language model on a server, to write chunk descriptions", "answers",
        json_keys=("contextualEnrichmentModel",), leads_away=_elsewhere, example="ollama:qwen3:4b")
    # fmt: on
    origins: dict[str, str] = field(default_factory=dict)  # by the setting's name
    # what did not count, in the order of the sources
    overridden: dict[str, tuple[Overridden, ...]] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)  # what has no effect, and names that look like settings
    files: tuple[Path, ...] = field(default=(), compare=False)  # read or looked for, in the order of the sources

    @property
    def server_options(self) -> dict[str, Any]:
        """Return the server and schema to use, as parameters of a client."""
        return {
            "db_url": self.database_url,
            "data_folder": self.server_folder if self.database_url is None else None,
            "keep_alive": self.keep_alive,
            "read_from": self.read_from,
            "schema": self.schema_name,
        }

    @property
    def server_folder(self) -> Path | None:
        """Return the folder of the embedded Postgres, which is in `data_dir`; None means the default folder."""
        return None if self.data_dir is None else self.data_dir / "postgres"

    @property
    def file_limits(self) -> FileLimits:
        """Return the maximum sizes of files that are read."""
        return FileLimits(self.max_file_mib * MIB, self.max_document_mib * MIB)

    def is_set(self, name: str) -> bool:
        """Return whether an argument, the environment or a file sets a setting."""
        return name in self.origins

    def calibration_of(self, collection: str) -> Path | None:
        """Return the setting `calibration` if the collection is the one that the settings name, else None."""
        return self.calibration if collection == self.collection else None

    @property
    def retriever_options(self) -> dict[str, Any]:
        """Return the parameters of a retriever.

        Collection options from the command line are arguments, which are refused if the collection has other values;
        those from the environment and files are defaults for new collections.
        """
        said: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.of_collection and setting.name in self.origins:
                (said if self.origins[setting.name] == ARGUMENT else defaults)[setting.name] = self.value(setting)
        return (
            {name: getattr(self, name) for name in _SAME}
            | said
            | self.server_options
            | {"defaults": defaults, "collection": self.collection, "file_limits": self.file_limits}
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Return the parameters of a client: those of a retriever that do not concern a single collection."""
        return {name: value for name, value in self.retriever_options.items() if name not in _OF_COLLECTION}

    @property
    def collection_options(self) -> CollectionOptions:
        """Return the collection options that arguments set; those of other sources are only defaults."""
        given = self.retriever_options
        return CollectionOptions(
            **{one.name: given[one.name] for one in fields(CollectionOptions) if one.name in given}
        )

    @property
    def search_options(self) -> SearchDefaults:
        """Return the defaults of searches, by the names of `SearchDefaults`."""
        # Without a mode, a search is hybrid if it can be.
        given = {name: getattr(self, name) for name in declared(SearchDefaults)} | {"mode": self.mode}
        return cast("SearchDefaults", given | ({"mode": None} if self.mode == "hybrid" else {}))

    def value(self, setting: Setting) -> Any:
        """Return the value of a setting."""
        return getattr(self, setting.attribute)

    def values(self) -> dict[str, Any]:
        """Return every setting's value by its name."""
        return {setting.name: self.value(setting) for setting in SETTINGS}


SETTINGS = tuple(
    Setting(attribute=one.name, **{"name": one.name, **one.metadata}) for one in fields(Settings) if one.metadata
)
NAMED = {one.name: one for one in SETTINGS}
SECTIONS: dict[str, dict[str, Setting]] = {}
for _setting in SETTINGS:
    for _key in (_setting.name, *_setting.keys):
        SECTIONS.setdefault(_setting.section, {})[_key] = _setting


def camel(name: str) -> str:
    """Return a name in the form of JSON files: ``top_k`` becomes ``topK``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


JSON_KEYS = {key: one for one in SETTINGS for key in (camel(one.name), *one.json_keys)}

# --- a file that explains all settings --------------------------------------------------------------------------------

NONE = (None, ())


def as_toml(values: Mapping[str, Any]) -> str:
    """Return the text of a TOML file that sets these values, and explains all other settings."""
    built_in = Settings().values()
    lines = [
        "# Settings of semlex. A value after # is the default, or an example if it says so.",
        "# Options of a command and the environment take precedence over this file; see `semlex config show`.",
    ]
    for section in SECTIONS:
        lines += ["", f"[{section}]"]
        for setting in (one for one in SETTINGS if one.section == section):
            value = values.get(setting.name)
            default = built_in[setting.name]
            is_example = default in NONE
            lines.append(f"# {setting.what}{'; an example:' if is_example and value in NONE else ''}")
            if value not in NONE:
                lines.append(f"{setting.key} = {_literal(value)}")
            else:
                lines.append(f"# {setting.key} = {_literal(setting.example if is_example else default)}")
    return "\n".join(lines) + "\n"


def write_template(path: Path, *, replace: bool = False) -> None:
    """Write a settings file with all settings commented out; only its owner can read it."""
    if path.suffix.lower() == JSON_SUFFIX:
        raise ConfigurationError(
            f"{path} would be JSON, which cannot have comments; let SEMLEX_CONFIG name a .toml file"
        )
    if path.exists() and not replace:
        raise ConfigurationError(f"{path} exists; --force replaces it by a new one, and its settings are lost")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(as_toml({}), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; choose another place") from None


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(one) for one in value)}]"
    if isinstance(value, (str, Path)):
        # TOML's basic strings are JSON's, but for one control character more that must be escaped.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
