"""Documents and files as rows for the store: checking, columns, hashes, the text that is embedded."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.documents.loading import FileProblem, find_files, load_file
from semlex.errors import FieldError, ModelMismatchError, ValidationError
from semlex.store.bulk import CHUNK_COLUMN_NAMES, PART_ROWS, ChunkRows
from semlex.store.ingestion import DocumentRow
from semlex.store.rows import added_document_keys, indexed_chunk_id, indexed_document_id
from semlex.store.schema import EmbeddingVersion
from semlex.types import MAX_CHUNK_BYTES, MAX_ID_BYTES, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Document, utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from semlex.documents.chunking import Chunker
    from semlex.documents.loading import FoundFile, LoadedText
    from semlex.embedding.base import Embedder

# One way of reading files. Part of a document's hash: another way reads every file again.
PIPELINE_VERSION = b"1"
TEXTS_IN_METADATA = ("source_document", "chapter_title", "section_title", "summary")
IN_METADATA = frozenset({*TEXTS_IN_METADATA, "token_count", "subsection_title"})
CONTEXT_SEPARATOR = " > "
SHOWN_ID_CHARACTERS = 80
# Keys of metadata that a message may name.
SHOWN_KEY = re.compile(r"[\w .-]{1,40}")


# What a collection remembers as the model of vectors that somebody else made.
GIVEN = "given"


def empty_columns() -> dict[str, list[Any]]:
    """A list for every column of the chunk table."""
    return {name: [] for name in CHUNK_COLUMN_NAMES}


def text_hashes(contexts: Sequence[str], texts: Sequence[str]) -> list[bytes]:
    """Identity of what is analysed and embedded; a chunk with the same one keeps its vector."""
    return _core.hash_rows("text", [contexts, texts])


def context_line(title: str | None, headings: Sequence[str]) -> str:
    """Title and heading path in one line, for analysis and embedding; the shown text stays as it was."""
    parts = list(headings)
    if title and (not parts or parts[0] != title):
        parts.insert(0, title)
    return CONTEXT_SEPARATOR.join(parts)


def embedded_text(context: str, text: str) -> str:
    """The text that the model sees."""
    return f"{context}\n{text}" if context else text


def default_id(document: Document) -> str:
    """Id of a document that has none: a hash of content and metadata, so that adding it again does not double it."""
    name = _core.to_json(document.metadata) + b"\0" + document.content.encode()
    return hashlib.sha256(name).hexdigest()[:32]


def documents_from_texts(
    texts: Sequence[str], ids: Sequence[str] | None, metadata: Sequence[dict[str, Any]] | None
) -> list[Document]:
    """Documents from texts with ids and metadata beside them.

    Raises:
        ValidationError: The lengths differ.
    """
    count = len(texts)
    errors = [
        FieldError(-1, None, name, "unequal_lengths", f"{count} texts", str(len(values)))
        for name, values in (("ids", ids), ("metadata", metadata))
        if values is not None and len(values) != count
    ]
    if errors:
        raise ValidationError(errors)
    return [
        Document(text, {} if metadata is None else metadata[row], "" if ids is None else ids[row])
        for row, text in enumerate(texts)
    ]


def check_documents(
    documents: Sequence[Document], embeddings: NDArray[np.float32] | None, storage: str = "vector"
) -> list[str]:
    """Checks every row of a call.

    Args:
        documents: What the caller passed.
        embeddings: (n, d), or None.
        storage: pgvector's type that the vectors will have.

    Returns:
        The documents' ids, those that had none included.

    Raises:
        ValidationError: With every error of every row.
    """
    strangers = [
        FieldError(row, None, "document", "wrong_type", "Document", type(document).__name__)
        for row, document in enumerate(documents)
        if not isinstance(document, Document)
    ]
    # JSON may be a list, too, but metadata has names.
    strangers += [
        FieldError(row, None, "metadata", "wrong_type", "dict", type(document.metadata).__name__)
        for row, document in enumerate(documents)
        if isinstance(document, Document) and not isinstance(document.metadata, dict)
    ]
    if strangers:
        raise ValidationError(sorted(strangers, key=lambda error: error.row))
    given_ids = [document.id for document in documents]
    fields: list[tuple[str, str, object, dict[str, Any] | None]] = [
        ("content", "text", [d.content for d in documents], {"min_chars": 1, "max_bytes": MAX_CHUNK_BYTES}),
        (
            "metadata",
            "jsonb",
            [d.metadata for d in documents],
            {"max_bytes": MAX_METADATA_BYTES, "max_depth": MAX_METADATA_DEPTH},
        ),
        ("created_at", "timestamptz", [d.created_at for d in documents], None),
        ("updated_at", "timestamptz", [d.updated_at for d in documents], None),
        ("parent_id", "text", [d.parent_id for d in documents], {"max_bytes": MAX_ID_BYTES, "nullable": True}),
    ]
    if embeddings is not None:
        fields.append(("embedding", storage, embeddings, None))
    # An empty id is one to be made below, once content and metadata are known to be good.
    fields.append(("id", "text", given_ids, {"max_bytes": MAX_ID_BYTES}))
    errors = [
        replace(error, key=_refused_key(documents[error.row].metadata, error)) if error.field == "metadata" else error
        for error in (FieldError(*found) for found in _core.validate_rows(fields, given_ids))
    ]
    unusable = {error.row for error in errors if error.field == "id"}
    errors += [
        FieldError(row, None if row in unusable else document.id[:SHOWN_ID_CHARACTERS] or None, "language", code)
        for row, document in enumerate(documents)
        if (code := _language_code(document.language)) is not None
    ]
    if errors:
        raise ValidationError(sorted(errors, key=lambda error: error.row))
    return [document.id or default_id(document) for document in documents]


def _refused_key(metadata: dict[str, Any], error: FieldError) -> str | None:
    """The key whose value breaks the rule; None where the key itself may be what is wrong."""
    for key, value in metadata.items():
        if isinstance(key, str) and SHOWN_KEY.fullmatch(key):
            found = _core.validate_rows(
                [("metadata", "jsonb", [{key: value}], {"max_depth": MAX_METADATA_DEPTH})], None
            )
            if any(code == error.code for _, _, _, code, _, _ in found):
                return key
    return None


def _language_code(language: object) -> str | None:
    """The rule that a document's language breaks, if any."""
    if language is not None and not isinstance(language, str):
        return "wrong_type"
    try:
        language_named(language)
    except ValueError:
        return "unknown_language"
    return None


@lru_cache(maxsize=256)
def language_named(name: str | None) -> str | None:
    """The language by its full name; None, which stands for the collection's, stays None."""
    return None if name is None else _core.language_named(name)


def last_of_each(ids: Sequence[str]) -> list[int]:
    """Numbers of the rows without repeated ids: the last one of each."""
    return list({chunk_id: number for number, chunk_id in enumerate(ids)}.values())


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Checked documents as rows for the chunk table, one a document, made as they are written.

    They come in the order of their keys: two writers who take the same keys in the same order never wait for each
    other in a circle.

    Attributes:
        documents: All of a call.
        ids: Their ids.
        keyed: Bytes of the key, and number, of those that are wanted, in order.
        embeddings: float32, shape (n, d), of all of the call, or None.
        with_context: Whether titles in the metadata are part of what is analysed and embedded.
    """

    documents: Sequence[Document]
    ids: Sequence[str]
    keyed: Sequence[tuple[bytes, int]]
    embeddings: NDArray[np.float32] | None
    with_context: bool

    @classmethod
    def of(
        cls,
        documents: Sequence[Document],
        ids: Sequence[str],
        numbers: Sequence[int],
        embeddings: NDArray[np.float32] | None,
        *,
        with_context: bool,
    ) -> DocumentRows:
        """The rows of these numbers, no id twice."""
        # The server compares uuids byte by byte, as Python compares bytes.
        keys = added_document_keys([ids[number] for number in numbers])
        return cls(documents, ids, sorted(zip(keys, numbers, strict=True)), embeddings, with_context)

    def __len__(self) -> int:
        return len(self.keyed)

    def parts(self) -> Iterator[ChunkRows]:
        """The rows in runs."""
        for start in range(0, len(self), PART_ROWS):
            yield self._made(self.keyed[start : start + PART_ROWS])

    def whole(self) -> ChunkRows:
        """All rows at once."""
        return self._made(self.keyed)

    def _made(self, keyed: Sequence[tuple[bytes, int]]) -> ChunkRows:
        numbers = [number for _, number in keyed]
        rows = [self.documents[number] for number in numbers]
        metadata = [row.metadata for row in rows]
        count = len(rows)
        columns = empty_columns() | {
            "chunk_id": [self.ids[number] for number in numbers],
            "document_id": [key for key, _ in keyed],
            "chunk_no": [0] * count,
            "parent_chunk_id": [row.parent_id for row in rows],
            "chunk_type": ["text"] * count,
            "char_start": [None] * count,
            "char_end": [None] * count,
            "line": [None] * count,
            "chunk_text": [row.content for row in rows],
            "metadata": metadata,
            "created_at": [row.created_at for row in rows],
            "updated_at": [row.updated_at for row in rows],
            "language": [language_named(row.language) for row in rows],
        }
        columns |= _named_in_metadata(metadata, with_context=self.with_context)
        columns["content_hash"] = text_hashes(columns["context"], columns["chunk_text"])
        return ChunkRows(columns, None if self.embeddings is None else self.embeddings[numbers])


def _named_in_metadata(metadata: Sequence[dict[str, Any]], *, with_context: bool) -> dict[str, list[Any]]:
    """The columns that stand in the metadata under their names."""
    count = len(metadata)
    columns: dict[str, list[Any]] = {name: [""] * count for name in (*TEXTS_IN_METADATA, "context")}
    # A text that was not cut here is not counted here either.
    columns["token_count"] = [None] * count
    columns["subsection_title"] = [[]] * count
    if all(map(IN_METADATA.isdisjoint, metadata)):
        return columns
    for name in TEXTS_IN_METADATA:
        columns[name] = [_text(values.get(name)) for values in metadata]
    columns["token_count"] = [_count(values.get("token_count")) for values in metadata]
    columns["subsection_title"] = [_texts(values.get("subsection_title")) for values in metadata]
    if with_context:
        titles = zip(columns["chapter_title"], columns["section_title"], columns["subsection_title"], strict=True)
        columns["context"] = [context_line(None, [t for t in (one, two, *rest) if t]) for one, two, rest in titles]
    return columns


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def embedder_version(embedder: Embedder) -> EmbeddingVersion:
    """The embedding version that an embedder's vectors belong to."""
    identity = embedder.identity
    return EmbeddingVersion(0, identity.key, identity.model, identity.revision, identity.dimensions)


def given_version(embeddings: NDArray[np.float32], model: EmbeddingVersion | None) -> EmbeddingVersion:
    """The embedding version of vectors that the caller brings.

    It is the open model's, else one of which only the dimension is known.

    Raises:
        ModelMismatchError: They have another dimension than the configured model.
    """
    dimensions = int(embeddings.shape[1])
    if model is None:
        return EmbeddingVersion(0, f"{GIVEN}/{dimensions}", GIVEN, None, dimensions)
    if model.dimensions != dimensions:
        raise ModelMismatchError(
            f"the given vectors have {dimensions} dimensions, {model.model} makes {model.dimensions}; "
            "pass embedding_model='none' when the vectors come from elsewhere"
        )
    return model


def list_files(
    paths: Sequence[Path], include: Sequence[str] | None, exclude: Sequence[str], recursive: bool
) -> tuple[list[FoundFile], list[FileProblem]]:
    """The files to read, and what cannot be one; `include` of None is what `find_files` takes by itself."""
    found: list[FoundFile] = []
    problems: list[FileProblem] = []
    options: dict[str, Any] = {"exclude": exclude, "recursive": recursive}
    if include is not None:
        options["include"] = include
    for entry in find_files(list(paths), **options):
        (problems if isinstance(entry, FileProblem) else found).append(entry)  # type: ignore[arg-type]
    return found, problems


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file, read and cut.

    Attributes:
        row: Its document.
        chunks: Columns of its chunks.
        is_new: Whether the collection does not know it yet.
    """

    row: DocumentRow
    chunks: dict[str, list[Any]]
    is_new: bool


def prepare_file(
    file: FoundFile, source: UUID, known: dict[UUID, bytes], chunker: Chunker, *, with_context: bool
) -> PreparedFile | FileProblem | None:
    """Reads and cuts a file.

    Args:
        file: As found.
        source: Key of its source.
        known: Content hash of every document of that source.
        chunker: Cuts it.
        with_context: Whether titles and heading path are part of what is analysed and embedded.

    Returns:
        The rows; or why it cannot be read; or None when it is known and did not change.
    """
    loaded = load_file(file)
    if isinstance(loaded, FileProblem):
        return loaded
    key = indexed_document_id(str(file.root), file.uri)
    parts = (PIPELINE_VERSION, chunker.identity.encode(), loaded.content_hash)
    content_hash = hashlib.sha256(b"\0".join(parts)).digest()
    if known.get(key) == content_hash:
        return None
    columns = _chunk_columns(key, loaded, chunker, with_context=with_context)
    row = DocumentRow(
        document_id=key,
        source_id=source,
        uri=loaded.uri,
        title=loaded.title or "",
        format=loaded.format,
        content_hash=content_hash,
        size_bytes=loaded.size,
        modified_at=loaded.modified_at,
        chunk_count=len(columns["chunk_id"]),
    )
    return PreparedFile(row, columns, key not in known)


def _chunk_columns(
    document_id: UUID, loaded: LoadedText, chunker: Chunker, *, with_context: bool
) -> dict[str, list[Any]]:
    columns = empty_columns()
    now = utc_now()
    chunks = chunker.chunk(loaded.text, markdown=loaded.format in ("markdown", "html"))
    contexts = [context_line(loaded.title, chunk.heading_path) if with_context else "" for chunk in chunks]
    identities = text_hashes(contexts, [chunk.text for chunk in chunks])
    seen: dict[bytes, int] = {}
    for chunk, context, identity in zip(chunks, contexts, identities, strict=True):
        titles = chunk.heading_path
        occurrence = seen.get(identity, 0)
        seen[identity] = occurrence + 1
        values = {
            "document_id": document_id.bytes,
            "chunk_id": indexed_chunk_id(document_id, identity, occurrence),
            "chunk_no": chunk.chunk_no,
            "parent_chunk_id": None,
            "chunk_type": chunk.chunk_type,
            "source_document": loaded.uri,
            "chapter_title": titles[0] if titles else "",
            "section_title": titles[1] if len(titles) > 1 else "",
            "subsection_title": list(titles[2:]),
            "summary": "",
            "context": context,
            "chunk_text": chunk.text,
            "token_count": chunk.token_count,
            "char_start": chunk.char_start,
            "char_end": chunk.char_end,
            "line": chunk.line,
            "content_hash": identity,
            "language": None,
            "metadata": {},
            "created_at": now,
            "updated_at": now,
        }
        for name, value in values.items():
            columns[name].append(value)
    return columns


class EmbedderCounter:
    """Counts tokens with an embedder's tokenizer, whose `counter_name` the caller knows."""

    def __init__(self, embedder: Embedder, name: str) -> None:
        self.name = name
        self._embedder = embedder

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Character offsets of the tokens; int64, shape (t, 2)."""
        return self._embedder.token_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text; int64, shape (n,)."""
        return self._embedder.count_tokens(texts)
