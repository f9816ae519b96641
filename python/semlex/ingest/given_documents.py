"""Check documents that are added as they are, without being split."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.ingest.loaders.base import LoadError, MetadataExtraction, extracted_metadata
from semlex.json_values import AnyId, id_text, json_tree
from semlex.types.documents import (
    MAX_CHUNK_BYTES,
    MAX_ID_BYTES,
    MAX_METADATA_BYTES,
    MAX_METADATA_DEPTH,
    MAX_TITLES_BYTES,
    TITLES,
    ChunkMetadata,
    Document,
    VectorDocument,
    titles_in,
    utc_now,
)
from semlex.types.vectors import given_vectors
from semlex.validation import is_one_of, refuse, wrong_type

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from semlex.types.vectors import Vectors

    class DataFrame(Protocol):
        """A data frame of pandas or polars, or a table of pyarrow."""

        @property
        def columns(self) -> Any:
            """Return the columns, or their names."""

    Given = Iterable[Document | ChunkMetadata | Mapping[str, Any]] | DataFrame

# What is done with documents that break a rule.
OnError = Literal["raise", "skip"]
SHOWN_ID_CHARACTERS = 80
# After this many wrong items at its beginning, an iterable is not read further: it may be endless.
MAX_WRONG_ITEMS = 1_000
# Shared: every further object is one that the garbage collector visits.
NO_METADATA: dict[str, Any] = {}
NO_CHILDREN: list[str] = []
TEXT_KEYS = {"content", "text"}
DOCUMENT_FIELDS = frozenset(one.name for one in fields(Document)) - {"content"}
# Fields of documents that are copied as they are.
AS_GIVEN = ("content", "metadata", "created_at", "updated_at", "language", "timestamp_start", "timestamp_end")
# How pandas, polars and pyarrow give their rows as mappings.
ROWS = {"to_dicts": (), "to_pylist": (), "to_dict": ("records",)}
# Keys of metadata that a message may name.
SHOWN_KEY = re.compile(r"[\w .-]{1,40}")


def listed(
    values: object, name: str, of: str, *, field: str = "", kinds: tuple[type, ...] = (object,), most: int | None = None
) -> list[Any]:
    """Return the items of any iterable, reading it once."""
    single = isinstance(values, (str, bytes, Mapping, Document, ChunkMetadata))
    if single or not isinstance(values, Iterable):
        raise ValidationError(wrong_type(name, f"list of {of}", values))
    if isinstance(values, (list, tuple)):
        return list(values)
    items: list[Any] = []
    errors: list[FieldError] = []
    for row, item in enumerate(itertools.islice(values, most)):
        items.append(item)
        if row == len(errors) < MAX_WRONG_ITEMS and not isinstance(item, kinds):
            errors.append(FieldError(row, None, field, "wrong_type", of, type(item).__name__))
            if len(errors) == MAX_WRONG_ITEMS:
                raise ValidationError(errors)
    return items


def documents_in(documents: Given) -> list[Any]:
    """Return the documents of an iterable, reading it once."""
    if hasattr(documents, "columns"):  # iterating a data frame would give the names of its columns
        return [_document_of(row) for row in _rows_of(documents)]
    kinds = (Document, ChunkMetadata, Mapping)
    found = listed(documents, "documents", "Document", field="document", kinds=kinds)
    return [_document_of(one) if isinstance(one, Mapping) else one for one in found]


def _rows_of(frame: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a data frame as mappings, without values that are missing; arrays in them become lists."""
    names = getattr(frame, "column_names", None) or list(frame.columns)
    if not TEXT_KEYS & {name for name in names if isinstance(name, str)}:
        limit = (
            f"a data frame with a column 'content' or 'text' (it has {_shown(names)}: rename the one with the texts)"
        )
        raise ValidationError(wrong_type("documents", limit, frame))
    if twice := [name for name, count in Counter(names).items() if count > 1]:  # all but one would be left out
        limit = f"a data frame whose columns have different names (several are called {_shown(twice)}: rename them)"
        raise ValidationError(wrong_type("documents", limit, frame))
    method = next((name for name in ROWS if hasattr(frame, name)), None)
    if method is None:  # such as a lazy frame
        limit = "a data frame of pandas or polars, or a table of pyarrow, with its rows in memory"
        raise ValidationError(wrong_type("documents", limit, frame))
    rows = getattr(frame, method)(*ROWS[method])
    return [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in row.items()
            if not _is_missing(value)
        }
        for row in rows
    ]


def _shown(names: Iterable[object]) -> str:
    """Return names of columns for a message, without names that may be texts of documents."""
    return ", ".join(str(name) for name in names if SHOWN_KEY.fullmatch(str(name))) or "none"


def _is_missing(value: object) -> bool:
    """Return whether a value means "missing": NaN, NaT, `pandas.NA` or None."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124
    except (TypeError, ValueError):  # pandas.NA and arrays have no truth value
        return type(value).__name__ == "NAType"


def _document_of(given: Mapping[str, Any]) -> Any:
    """Make a document of a mapping with ``content`` or ``text``; keys that `Document` lacks are metadata."""
    rest = dict(given)
    content = rest.pop("content" if "content" in rest else "text", None)
    known = {name: rest.pop(name) for name in DOCUMENT_FIELDS & rest.keys()}
    metadata = known.pop("metadata", {})
    if isinstance(metadata, Mapping):
        metadata = {**metadata, **rest}
    return Document(content, metadata, **known)  # checked with all other rows


def documents_from_texts(
    texts: Iterable[str], ids: Iterable[AnyId] | None, metadata: Iterable[dict[str, Any]] | None
) -> list[Document]:
    """Make documents from lists of texts, ids and metadata."""
    texts = listed(texts, "texts", "str", field="content", kinds=(str,))
    count = len(texts)
    ids = None if ids is None else listed(ids, "ids", "str", most=count + 1)
    metadata = None if metadata is None else listed(metadata, "metadata", "dict", most=count + 1)
    errors: list[FieldError] = []
    for name, values in (("ids", ids), ("metadata", metadata)):
        if values is not None and len(values) != count:
            errors += refuse(name, "unequal_lengths", f"{count} texts", str(len(values)))
    if errors:
        raise ValidationError(errors)
    return [
        Document(text, {} if metadata is None else metadata[row], "" if ids is None else id_text(ids[row]))
        for row, text in enumerate(texts)
    ]


@dataclass(frozen=True, slots=True)
class GivenDocuments:
    """The documents of one call, one list for each field, so that later changes by the caller have no effect."""

    ids: list[str]
    content: list[str]
    metadata: list[dict[str, Any]]
    parent_id: list[str | None]
    child_ids: list[list[str]]
    created_at: list[Any]
    updated_at: list[Any]
    language: list[str | None]
    timestamp_start: list[str | None]
    timestamp_end: list[str | None]
    vectors: list[tuple[float, ...]] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def plain(
        cls,
        ids: list[str],
        contents: list[str],
        metadata: list[dict[str, Any]],
        parents: list[str | None] | None = None,
    ) -> GivenDocuments:
        """Make documents with only these fields, created now."""
        none: list[Any] = [None] * len(ids)
        times = [utc_now()] * len(ids)
        children = [NO_CHILDREN] * len(ids)
        return cls(ids, contents, metadata, parents or none, children, times, times, none, none, none)

    @classmethod
    def taken(cls, documents: Given) -> GivenDocuments:
        """Copy the documents of an iterable, reading it once."""
        items = documents_in(documents)
        rows = [item.to_document() if isinstance(item, ChunkMetadata) else item for item in items]
        errors = [
            FieldError(row, None, "document", "wrong_type", "Document", type(document).__name__)
            for row, document in enumerate(rows)
            if not isinstance(document, Document)
        ]
        # JSON may be a list, but metadata is an object.
        for name, kinds, expected in (("metadata", (dict,), "dict"), ("child_ids", (list, tuple), "list of str")):
            errors += [
                FieldError(row, None, name, "wrong_type", expected, type(getattr(document, name)).__name__)
                for row, document in enumerate(rows)
                if isinstance(document, Document) and not isinstance(getattr(document, name), kinds)
            ]
        vectors = [item.embedding for item in items if isinstance(item, VectorDocument)]
        if vectors and not errors:
            errors += [
                FieldError(
                    row, str(one.id or "")[:SHOWN_ID_CHARACTERS] or None, "embedding", "missing", "all rows or none"
                )
                for row, (one, item) in enumerate(zip(rows, items, strict=True))
                if not isinstance(item, VectorDocument)
            ]
        if errors:
            raise ValidationError(sorted(errors, key=lambda error: error.row))
        return cls(
            ids=["" if document.id is None else id_text(document.id) for document in rows],
            parent_id=[id_text(document.parent_id) for document in rows],
            child_ids=[list(map(id_text, one.child_ids)) if one.child_ids else NO_CHILDREN for one in rows],
            vectors=vectors or None,
            **{name: list(map(attrgetter(name), rows)) for name in AS_GIVEN},
        )

    def vectors_or(
        self, embeddings: ArrayLike | Sequence[ArrayLike | None] | None
    ) -> ArrayLike | Sequence[ArrayLike | None] | None:
        """Return the documents' own vectors, else the given ones."""
        if embeddings is not None and self.vectors is not None:
            raise ConfigurationError("these documents have their own vectors: leave embeddings= out")
        return self.vectors if embeddings is None else embeddings

    async def extracted(self, extraction: MetadataExtraction | None) -> GivenDocuments:
        """Return the documents with metadata from a user's function."""
        if extraction is None:
            return self
        loop = asyncio.get_running_loop()

        def merged() -> list[dict[str, Any]]:
            made = []
            for row, (own_id, content, metadata) in enumerate(zip(self.ids, self.content, self.metadata, strict=True)):
                try:
                    made.append(extracted_metadata(extraction, Document(content, dict(metadata), own_id), loop))
                except LoadError as error:
                    shown = f" ({own_id[:SHOWN_ID_CHARACTERS]!a})" if own_id else ""
                    raise ConfigurationError(f"row {row}{shown}: {error.message}") from error
            return made

        return replace(self, metadata=await asyncio.to_thread(merged))

    def checked(self, embeddings: Vectors | None, storage: str = "vector", *, copied: bool = True) -> GivenDocuments:
        """Return the documents, each with an id, after checking all fields and vectors."""
        # With `copied`, later changes of the caller's metadata have no effect.
        given: GivenDocuments = self
        errors = self.row_errors(embeddings, storage)
        foreign = {error.row for error in errors if error.code == "unsupported_type"}
        if foreign:  # values that JSON does not have; rare, so converted only now
            metadata = [json_tree(one) if row in foreign else one for row, one in enumerate(self.metadata)]
            given = replace(self, metadata=metadata)
            errors = given.row_errors(embeddings, storage)
        if errors:
            raise ValidationError(sorted(errors, key=lambda error: error.row))
        ids, metadata, languages = given.ids, given.metadata, given.language
        if not all(ids):
            named = zip(ids, metadata, given.content, strict=True)
            ids = [chunk_id or default_id(own, content) for chunk_id, own, content in named]
        if copied:
            metadata = [_copied(one) if one else NO_METADATA for one in metadata]
        if any(language is not None for language in languages):
            languages = [language_named(language) for language in languages]
        return replace(given, ids=ids, metadata=metadata, language=languages)

    def row_errors(self, embeddings: Vectors | None, storage: str) -> list[FieldError]:
        """Return every error of every row."""
        metadata_limits = {"max_bytes": MAX_METADATA_BYTES, "max_depth": MAX_METADATA_DEPTH}
        fields: list[tuple[str, str, object, dict[str, Any] | None]] = [
            ("content", "text", self.content, {"min_chars": 1, "max_bytes": MAX_CHUNK_BYTES}),
            ("metadata", "jsonb", self.metadata, metadata_limits),
            ("created_at", "timestamptz", self.created_at, None),
            ("updated_at", "timestamptz", self.updated_at, None),
            ("parent_id", "text", self.parent_id, {"max_bytes": MAX_ID_BYTES, "nullable": True}),
            ("timestamp_start", "text", self.timestamp_start, {"max_bytes": MAX_ID_BYTES, "nullable": True}),
            ("timestamp_end", "text", self.timestamp_end, {"max_bytes": MAX_ID_BYTES, "nullable": True}),
        ]
        if embeddings is not None:
            # None in a list: the row has no vector.
            fields.append(("embedding", storage, embeddings, {"nullable": isinstance(embeddings, list)}))
        # An empty id is made later, from checked content and metadata.
        fields.append(("id", "text", self.ids, {"max_bytes": MAX_ID_BYTES}))
        errors = [
            replace(error, key=_refused_key(self.metadata[error.row], error)) if error.field == "metadata" else error
            for error in (FieldError(*found) for found in _core.validate_rows(fields, self.ids))
        ]
        errors += self._child_errors()
        if not errors:
            errors += self._title_errors()
        if any(language is not None for language in self.language):
            errors += self._language_errors({error.row for error in errors if error.field == "id"})
        return errors

    def _language_errors(self, unusable: set[int]) -> list[FieldError]:
        """Return the errors of the documents' languages; each names its document's id, unless that id is unusable."""
        return [
            FieldError(row, None if row in unusable else chunk_id[:SHOWN_ID_CHARACTERS] or None, "language", code)
            for row, (chunk_id, language) in enumerate(zip(self.ids, self.language, strict=True))
            if (code := _language_code(language)) is not None
        ]

    def _child_errors(self) -> list[FieldError]:
        """Return the errors of the documents' child ids."""
        parts = [(row, child) for row, children in enumerate(self.child_ids) for child in children]
        found = _core.validate_rows([("child_ids", "id", [child for _, child in parts], None)]) if parts else []
        return [
            FieldError(parts[number][0], None, field, code, limit, actual)
            for number, _, field, code, limit, actual in found
        ]

    def _title_errors(self) -> list[FieldError]:
        """Return the errors of the documents' titles, which are analysed and embedded with the text."""
        errors = []
        for row, metadata in enumerate(self.metadata):
            if TITLES.isdisjoint(metadata):
                continue
            sizes = {key: sum(len(title.encode()) for title in titles) for key, titles in titles_in(metadata).items()}
            size = sum(sizes.values())
            if size > MAX_TITLES_BYTES:
                shown = self.ids[row][:SHOWN_ID_CHARACTERS] or None
                limit = f"{MAX_TITLES_BYTES} bytes, with the other titles"
                longest = max(sizes, key=sizes.__getitem__)
                errors.append(FieldError(row, shown, "metadata", "too_long", limit, f"{size} bytes", longest))
        return errors


def without_refused(
    documents: Given, embeddings: ArrayLike | Sequence[ArrayLike | None] | None, storage: str
) -> tuple[list[Any], Any, list[FieldError]]:
    """Return the documents that break no rule, their vectors, and the errors of the others."""
    items = documents_in(documents)
    numbers, refused = list(range(len(items))), list[FieldError]()
    given: Any = embeddings if embeddings is None or isinstance(embeddings, (list, tuple)) else np.asarray(embeddings)
    count = given.shape[:1] if isinstance(given, np.ndarray) else (len(items if given is None else given),)
    if count != (len(items),):
        return items, given, []  # refused as usual
    while True:
        kept = [items[number] for number in numbers]
        beside = given
        if given is not None and refused:
            beside = given[numbers] if isinstance(given, np.ndarray) else [given[number] for number in numbers]
        try:
            taken = GivenDocuments.taken(kept)
            own = taken.vectors_or(beside)
            taken.checked(None if own is None or not kept else given_vectors(own, taken.ids), storage)
        except ValidationError as error:
            if any(one.row < 0 for one in error.errors):
                raise
            refused += [replace(one, row=numbers[one.row]) for one in error.errors]
            rows = {one.row for one in refused}
            numbers = [number for number in numbers if number not in rows]
        else:
            return kept, beside, sorted(refused, key=lambda one: one.row)


def check_on_duplicate(on_duplicate: object) -> None:
    """Refuse an unknown value of `on_duplicate`."""
    if not is_one_of(on_duplicate, ("update", "skip", "fail")):
        raise ConfigurationError(f"on_duplicate must be 'update', 'skip' or 'fail'; got {on_duplicate!r:.80}")


def checked_on_error(on_error: OnError) -> OnError:
    """Return the option `on_error` after checking it."""
    if not is_one_of(on_error, ("raise", "skip")):
        raise ConfigurationError(f"on_error must be 'raise' or 'skip'; got {on_error!r:.80}")
    return on_error


def default_id(metadata: dict[str, Any], content: str) -> str:
    """Return an id derived from content and metadata, so that adding the same document again replaces it."""
    return hashlib.sha256(_core.to_json(metadata) + b"\0" + content.encode()).hexdigest()[:32]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, (list, tuple)) else value


def _refused_key(metadata: dict[str, Any], error: FieldError) -> str | None:
    """Return the metadata key whose value causes the error; None if the key might contain text of the document."""
    for key, value in metadata.items():
        if isinstance(key, str) and SHOWN_KEY.fullmatch(key):
            found = _core.validate_rows([("metadata", "jsonb", [{key: value}], {"max_depth": MAX_METADATA_DEPTH})])
            if any(code == error.code for _, _, _, code, _, _ in found):
                return key
    return None


def _language_code(language: object) -> str | None:
    """Return the code of the rule that a language breaks, or None."""
    if language is not None and not isinstance(language, str):
        return "wrong_type"
    try:
        language_named(language)
    except ValueError:
        return "unknown_language"
    return None


@lru_cache(maxsize=256)
def language_named(name: str | None) -> str | None:
    """Return the full name of a language, or None, which means the collection's language."""
    return None if name is None else _core.language_named(name)
