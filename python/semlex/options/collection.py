"""Options of the server and of collections: defaults of new ones, chunk sizes, BM25 parameters, file size limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from semlex.errors import CollectionSettingsError, ConfigurationError
from semlex.validation import check_parameters, check_range, number_errors, whole_number_errors, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from semlex.types.results import ReadPreference

DistanceName = Literal["cosine", "l2", "inner_product"]
StorageName = Literal["vector", "halfvec"]

# What counts tokens where no model brings a tokenizer: words as Unicode defines them (Annex 29).
UNICODE_WORDS = "unicode-words/1"
# Memory for posting lists.
DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
MAX_CACHE_BYTES = 2**40
MIB = 1024 * 1024
MAX_FILE_BYTES = 1024 * MIB
# A statement locks every partition and its indexes.
MAX_PARTITIONS = 64

KINDS: dict[str, type] = {
    "language": str,
    "keyword": str,
    "stop_words": bool,
    "distance": str,
    "vector_storage": str,
    "with_context": bool,
    "partitions": int,
    "chunk_tokens": int,
    "overlap_tokens": int,
    "min_tokens": int,
}
"""The options that are decided when a collection is made (chunk settings: when its first file is split)."""

MODEL_KINDS: dict[str, type] = {"embedding_model": str, "dimensions": int, "tokenizer": str}
"""Options that are decided when the first vectors are stored; they have defaults, too."""

BUILT_IN: dict[str, Any] = {
    "language": "english",
    "keyword": "bm25",
    "stop_words": True,
    "distance": "cosine",
    "with_context": True,
    "partitions": 0,
}


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The address of the server, and how to connect.

    Attributes:
        db_url: libpq connection string; None (and no `pool` or `connection`) starts the embedded Postgres.
        schema: Schema that holds semlex's tables.
        pool: An open pool, which semlex uses and never closes.
        connection: An open connection, which semlex never closes; writes join its transaction.
        data_folder: Folder of the embedded Postgres: a path, or its text.
        keep_alive: Seconds until the unused embedded Postgres stops; 0: at once. None: if a semlex command keeps it
            running, that command's time; else 0.
        max_connections: Size of the pool.
        timeout: Seconds to wait for the server or for a free connection.
        read_from: Where searches and other reads of users go: ``primary``, or ``replica`` for a standby among the hosts
            of `db_url`.
    """

    db_url: str | None = None
    schema: str = "semlex"
    pool: AsyncConnectionPool[Any] | None = None
    connection: AsyncConnection[Any] | None = None
    data_folder: str | PathLike[str] | None = None
    keep_alive: float | None = None
    max_connections: int = 8
    timeout: float = 10.0
    read_from: ReadPreference = "primary"


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """The settings that are fixed when a collection is made.

    Attributes:
        distance: cosine, l2 or inner_product.
        language: Text-search language, a Snowball name such as ``english``.
        keyword_engine: ``bm25``, ``tsvector``, ``tsvector_cd``, ``pg_textsearch``, ``pg_search`` or ``none``.
        token_counter: Name of the token counter.
        with_context: Whether titles and heading path are analysed and embedded with the text.
        stop_words: Whether very frequent words are left out of the keyword index (engine ``bm25``).
        partitions: Partitions of each large table; 0: plain tables.
        chunk_settings: How texts are split into chunks; None until the first file is indexed.
    """

    distance: DistanceName = "cosine"
    language: str = "english"
    keyword_engine: str = "bm25"
    token_counter: str = UNICODE_WORDS
    with_context: bool = True
    stop_words: bool = True
    partitions: int = 0
    chunk_settings: ChunkSettings | None = None


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """Options that are fixed when a collection is made; an existing one must have every value that is not None.

    Attributes:
        language: Language of the texts, a Snowball name such as ``english`` (the default), or its ISO 639-1 code.
        keyword: Keyword engine: ``bm25`` (the default), ``tsvector``, ``tsvector_cd`` or ``none``, or that of an
            extension which the server has: ``pg_textsearch``, ``pg_search``.
        stop_words: Whether very frequent words are left out of the keyword index (``bm25``). Default: True.
        distance: ``cosine`` (the default), ``l2`` or ``inner_product``.
        vector_storage: ``vector`` (float32), or ``halfvec`` (float16: half the size, and indexes up to 4,000
            dimensions where float32 has them up to 2,000). By default vectors of length 1 with more than 512
            dimensions are stored as ``halfvec`` if the distance is ``cosine``, others as ``vector``.
        with_context: Whether titles and heading path are analysed and embedded with the text. Default: True.
        partitions: Partitions of the tables of documents, chunks and vectors, by the hash of the document: 2 to 64,
            or 0 (the default) for plain tables. For millions of chunks on a server with many cores.
        chunk_tokens: Maximum tokens of a chunk, 16 to 2,000. Default: 500. Stored when the first file is read.
        overlap_tokens: Maximum tokens shared by neighbouring chunks. Default: 50. Stored when the first file is read.
        min_tokens: Sections with fewer tokens are joined with the next one if both fit. At most half of `chunk_tokens`.
            Default: 32, or a quarter of `chunk_tokens` if that is less. Stored when the first file is read.

    Raises:
        ConfigurationError: A value has the wrong kind or is out of range.
    """

    language: str | None = None
    keyword: str | None = None
    stop_words: bool | None = None
    distance: DistanceName | None = None
    vector_storage: StorageName | None = None
    with_context: bool | None = None
    partitions: int | None = None
    chunk_tokens: int | None = None
    overlap_tokens: int | None = None
    min_tokens: int | None = None

    def __post_init__(self) -> None:
        WantedOptions.of(self, None)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Maximum sizes of files; larger files are not read, but reported.

    Attributes:
        file: Maximum bytes of a text, a table, a web page or source code, up to 1 GiB. Default: 16 MiB.
        document: Maximum bytes of a file that the extra ``files`` reads (PDF, office, books, mail), up to 1 GiB.
            Default: 128 MiB.

    Raises:
        ConfigurationError: A number is out of range.
    """

    file: int = 16 * MIB
    document: int = 128 * MIB

    def __post_init__(self) -> None:
        check_parameters(
            whole_number_errors("file", self.file, 1, MAX_FILE_BYTES),
            whole_number_errors("document", self.document, 1, MAX_FILE_BYTES),
        )


DEFAULT_LIMITS = FileLimits()


@dataclass(frozen=True, slots=True)
class Bm25Options:
    """How the engine ``bm25`` scores, and how much memory it uses.

    Attributes:
        k1: Term-frequency saturation, from 0: higher values let repetitions count more (Robertson and Zaragoza,
            "The Probabilistic Relevance Framework", 2009).
        b: How strongly the length of a text lowers its score, 0 to 1.
        cache_bytes: Maximum bytes of posting lists that are kept in memory.

    Raises:
        ConfigurationError: A number is out of range.
    """

    k1: float = 1.2
    b: float = 0.75
    cache_bytes: int = DEFAULT_CACHE_BYTES

    def __post_init__(self) -> None:
        check_parameters(
            number_errors("k1", self.k1, 0, 1000),  # beyond, it is the plain number of occurrences
            number_errors("b", self.b, 0, 1),
            whole_number_errors("cache_bytes", self.cache_bytes, 0, MAX_CACHE_BYTES),
        )


DEFAULT_BM25 = Bm25Options()


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """The options that a caller wants a collection to have, checked.

    Attributes:
        said: Values that the caller gave for this collection; refused if they differ from the stored ones.
        defaults: Values for new collections, used for options that are not in `said`; never refused.
    """

    said: dict[str, Any]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, options: CollectionOptions, defaults: Mapping[str, Any] | None) -> WantedOptions:
        """Check the options that a user gave; see `checked`."""
        return cls.checked({name: getattr(options, name) for name in KINDS}, defaults)

    @classmethod
    def checked(cls, said: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> WantedOptions:
        """Check options, and return them without those that are None."""
        given = {name: value for name, value in (defaults or {}).items() if name not in MODEL_KINDS}
        if unknown := sorted(given.keys() - KINDS.keys()):
            known = ", ".join((*KINDS, *MODEL_KINDS))
            raise ConfigurationError(
                f"defaults: unknown option {', '.join(map(repr, unknown))}; known options: {known}"
            )
        options = cls(
            {name: value for name, value in said.items() if value is not None},
            {name: value for name, value in given.items() if value is not None},
        )
        for values in (options.said, options.defaults):
            _check(values)
        if options.wanted("chunk_tokens") is not None:
            options.chunk_settings().check()
        return options

    def wanted(self, name: str) -> Any:
        """Return an option's value for a new collection: the one in `said`, else the default."""
        return self.said.get(name, self.defaults.get(name, BUILT_IN.get(name)))

    @property
    def storage(self) -> StorageName | None:
        """Pgvector's type of a new collection's vectors; None: chosen when the first vectors are stored."""
        named = self.wanted("vector_storage")
        return None if named is None else storage_named(named)

    def settings(self) -> CollectionSettings:
        """Return the settings of a new collection, without chunk settings, which are fixed with its first file."""
        given = {name: self.wanted(name) for name in BUILT_IN}
        return CollectionSettings(keyword_engine=given.pop("keyword"), **given)

    def chunk_settings(self) -> ChunkSettings:
        """Return the chunk settings for a collection into which no file was indexed yet."""
        chunk_tokens = self.said.get("chunk_tokens", self.defaults.get("chunk_tokens", DEFAULT_CHUNK_TOKENS))
        return self._cut(
            chunk_tokens,
            self._default("overlap_tokens", DEFAULT_OVERLAP_TOKENS, max_overlap(chunk_tokens)),
            self._default("min_tokens", default_min(chunk_tokens), max_min(chunk_tokens)),
        )

    def _default(self, name: str, built_in: int, most: int) -> int:
        """Return the default of `name`, limited to `most` unless it and the chunk size both come from `defaults`."""
        # Then both come from one place, and an overlap that does not fit is a mistake, which is refused.
        value: int = self.defaults.get(name, built_in)
        is_set = name in self.defaults and "chunk_tokens" in self.defaults and "chunk_tokens" not in self.said
        return value if is_set else min(value, most)

    def rechunk_settings(self, stored: ChunkSettings | None) -> ChunkSettings:
        """Return chunk settings for splitting a collection again: the stored ones, changed by those in `said`."""
        if stored is None:
            return self.chunk_settings()
        chunk_tokens = self.said.get("chunk_tokens", stored.chunk_tokens)
        was_default = stored.min_tokens == default_min(stored.chunk_tokens)
        min_tokens = default_min(chunk_tokens) if was_default else stored.min_tokens
        return self._cut(
            chunk_tokens, min(stored.overlap_tokens, max_overlap(chunk_tokens)), min(min_tokens, max_min(chunk_tokens))
        )

    def _cut(self, chunk_tokens: int, overlap_tokens: int, min_tokens: int) -> ChunkSettings:
        """Return chunk settings from these values, replaced by those in `said`."""
        return ChunkSettings(
            chunk_tokens, self.said.get("overlap_tokens", overlap_tokens), self.said.get("min_tokens", min_tokens)
        )

    def saying(self, **said: int | None) -> WantedOptions:
        """Return these options together with the options of one call."""
        given = {name: value for name, value in said.items() if value is not None}
        return self.checked(self.said | given, self.defaults)

    def without(self, *names: str) -> WantedOptions:
        """Return the options without these, because the collection has been changed to their values."""
        said = {name: value for name, value in self.said.items() if name not in names}
        return WantedOptions(said, self.defaults)

    def check(self, collection: str, stored: Mapping[str, Any]) -> None:
        """Compare the values that the caller named with the stored ones; raise if they differ."""
        for name, asked in self.said.items():
            found = stored[name]
            if found is not None and not _same(name, asked, found):
                raise CollectionSettingsError(collection, name, asked, found)

    def unused(self, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the defaults that a collection with stored options does not follow: name -> (default, stored)."""
        return {
            name: (value, found)
            for name, value in self.defaults.items()
            if name not in self.said and (found := stored[name]) is not None and not _same(name, value, found)
        }


# Bytes of a name in Postgres.
MAX_NAME = 63


def _same(name: str, one: Any, other: Any) -> bool:
    if name != "language":
        return bool(one == other)
    return _language(one) == _language(other)


def _language(name: str) -> str:
    """Return a language by its full name; names that only Postgres knows are returned unchanged."""
    from semlex import _core  # noqa: PLC0415 - help needs none of it

    try:
        return _core.language_named(name)
    except ValueError:
        return name


def model_defaults(defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the defaults that concern the model, by their names in `semlex.retriever.model_selection.ModelOptions`."""
    given = {name: (defaults or {}).get(name) for name in MODEL_KINDS}
    for name, value in given.items():
        if value is not None and (not isinstance(value, MODEL_KINDS[name]) or isinstance(value, bool)):
            check_parameters(wrong_type(f"defaults: {name}", MODEL_KINDS[name].__name__, value))
    names = {"embedding_model": "default_model", "dimensions": "default_dimensions", "tokenizer": "default_tokenizer"}
    return {names[name]: value for name, value in given.items()}


def _check(values: dict[str, Any]) -> None:
    for name, value in values.items():
        kind = KINDS[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            check_parameters(wrong_type(name, kind.__name__, value))
        if isinstance(value, str) and not (value.isascii() and value.isprintable() and len(value) <= MAX_NAME):
            raise ConfigurationError(
                f"{name} must be a name of at most {MAX_NAME} ASCII characters; got {len(value):,}"
            )
    if "distance" in values and values["distance"] not in get_args(DistanceName):
        known = ", ".join(get_args(DistanceName))
        raise ConfigurationError(f"distance must be one of {known}; got {values['distance']!r}")
    if values.get("partitions"):
        check_parameters(whole_number_errors("partitions", values["partitions"], 2, MAX_PARTITIONS))
    if "vector_storage" in values:
        storage_named(values["vector_storage"])


def storage_named(name: str) -> StorageName:
    """Return the type of pgvector with this name."""
    for known in get_args(StorageName):
        if name == known:
            found: StorageName = known
            return found
    raise ConfigurationError(f"vector_storage must be one of {', '.join(get_args(StorageName))}; got {name!r}")


# 200 to 2,000 is the documented range; smaller bounds serve tests and models of short context.
MIN_CHUNK_TOKENS = 16
MAX_CHUNK_TOKENS = 2000
DEFAULT_CHUNK_TOKENS = 500
DEFAULT_OVERLAP_TOKENS = 50
# About two sentences: less says too little alone, and is joined with its neighbour. Chosen, not measured.
DEFAULT_MIN_TOKENS = 32


class ChunkSettings(NamedTuple):
    """How the texts of a collection are split, in tokens.

    Attributes:
        overlap_tokens: Maximum tokens that neighbouring chunks of a section share.
        min_tokens: A section with fewer tokens is joined with the next one if both fit into a chunk.
    """

    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    overlap_tokens: int = DEFAULT_OVERLAP_TOKENS
    min_tokens: int = DEFAULT_MIN_TOKENS

    @classmethod
    def stored(cls, *values: int | None) -> ChunkSettings | None:
        """Make the settings from stored values, in the order of the fields; None if a value is not stored yet."""
        known = [value for value in values if value is not None]
        return cls(*known) if len(known) == len(cls._fields) else None

    def check(self) -> None:
        """Raise `ConfigurationError` if a number is out of its range."""
        check_range("chunk_tokens", self.chunk_tokens, MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS)
        check_range("overlap_tokens", self.overlap_tokens, 0, max_overlap(self.chunk_tokens))
        check_range("min_tokens", self.min_tokens, 0, max_min(self.chunk_tokens))


def max_overlap(chunk_tokens: int) -> int:
    """Return the maximum overlap: below half of a chunk."""
    return max(0, chunk_tokens - 1) // 2


def max_min(chunk_tokens: int) -> int:
    """Return the maximum of `min_tokens`: half of a chunk."""
    return chunk_tokens // 2


def default_min(chunk_tokens: int) -> int:
    """Return the default of `min_tokens`: 32, or a quarter of a chunk if that is less."""
    return min(DEFAULT_MIN_TOKENS, chunk_tokens // 4)
