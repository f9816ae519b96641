"""Documents and files as rows for the store: checking, columns, hashes, the text that is embedded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.documents.loading import FileProblem, load_file
from semlex.errors import FieldError, ModelMismatchError, ValidationError
from semlex.store.bulk import CHUNK_COLUMN_NAMES, ChunkRows, DocumentRow
from semlex.store.rows import added_document_id, indexed_chunk_id, indexed_document_id
from semlex.store.schema import EmbeddingVersion
from semlex.types import MAX_CHUNK_BYTES, MAX_ID_BYTES, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Document, utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from semlex.documents.chunking import Chunker
    from semlex.documents.loading import FoundFile, LoadedText
    from semlex.embedding.base import Embedder

HASH_BYTES = 16
# One way of reading files. Part of a document's hash: another way reads every file again.
PIPELINE_VERSION = b"1"
CONTEXT_SEPARATOR = " > "


def empty_columns() -> dict[str, list[Any]]:
    """A list for every column of the chunk table."""
    return {name: [] for name in CHUNK_COLUMN_NAMES}


def text_hash(context: str, text: str) -> bytes:
    """Identity of what is analysed and embedded; a chunk with the same hash keeps its vector."""
    return hashlib.blake2b(f"{context}\0{text}".encode(), digest_size=HASH_BYTES).digest()


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
        FieldError(-1, None, name, "unequal_lengths", f"{count} texts", f"{len(values)} {name}")
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
    documents: Sequence[Document], embeddings: NDArray[np.float32] | None, *, with_context: bool
) -> ChunkRows:
    """Checks every row of a call, then turns the documents into columns.

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
        fields.append(("embedding", "vector", embeddings, None))
    # An empty id is one to be made below, once content and metadata are known to be good.
    fields.append(("id", "text", given_ids, {"max_bytes": MAX_ID_BYTES}))
    errors = [FieldError(*error) for error in _core.validate_rows(fields, given_ids)]
    if errors:
        raise ValidationError(errors)
    ids = [document.id or default_id(document) for document in documents]
    columns = empty_columns()
    columns["chunk_id"] = ids
    columns["document_id"] = [added_document_id(chunk_id) for chunk_id in ids]
    count = len(ids)
    columns["chunk_no"] = [0] * count
    columns["parent_chunk_id"] = [document.parent_id for document in documents]
    columns["chunk_type"] = ["text"] * count
    for name in ("char_start", "char_end", "line"):
        columns[name] = [None] * count
    # A text that was not cut here is not counted here either.
    columns["token_count"] = [_count(document.metadata.get("token_count")) for document in documents]
    columns["chunk_text"] = [document.content for document in documents]
    columns["metadata"] = [document.metadata for document in documents]
    columns["created_at"] = [document.created_at for document in documents]
    columns["updated_at"] = [document.updated_at for document in documents]
    for name in ("source_document", "chapter_title", "section_title", "summary"):
        columns[name] = [_text(document.metadata.get(name)) for document in documents]
    columns["subsection_title"] = [_texts(document.metadata.get("subsection_title")) for document in documents]
    if with_context:
        titles = zip(columns["chapter_title"], columns["section_title"], columns["subsection_title"], strict=True)
        columns["context"] = [context_line(None, [t for t in (one, two, *rest) if t]) for one, two, rest in titles]
    else:
        columns["context"] = [""] * count
    columns["content_hash"] = [
        text_hash(context, text) for context, text in zip(columns["context"], columns["chunk_text"], strict=True)
    ]
    return ChunkRows(columns, embeddings)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def slice_rows(rows: ChunkRows, start: int, stop: int) -> ChunkRows:
    """Rows from `start` to `stop`."""
    columns = {name: values[start:stop] for name, values in rows.columns.items()}
    return ChunkRows(columns, None if rows.embeddings is None else rows.embeddings[start:stop])


def distinct_rows(rows: ChunkRows) -> ChunkRows:
    """The rows without repeated ids: the last one wins, in the place of the last one."""
    ids = rows.columns["chunk_id"]
    last = {chunk_id: number for number, chunk_id in enumerate(ids)}
    if len(last) == len(ids):
        return rows
    kept = sorted(last.values())
    columns = {name: [values[number] for number in kept] if values else [] for name, values in rows.columns.items()}
    embeddings = rows.embeddings
    if isinstance(embeddings, np.ndarray):
        embeddings = embeddings[kept]
    return ChunkRows(columns, embeddings)


def embedder_version(embedder: Embedder) -> EmbeddingVersion:
    """The embedding version that an embedder's vectors belong to."""
    identity = embedder.identity
    return EmbeddingVersion(0, identity.key, identity.model, identity.revision, identity.dimensions)


def given_version(embeddings: NDArray[np.float32], embedder: Embedder | None) -> EmbeddingVersion:
    """The embedding version of vectors that the caller brings.

    It is the configured model's, else one of which only the dimension is known.

    Raises:
        ModelMismatchError: They have another dimension than the configured model.
    """
    dimensions = int(embeddings.shape[1])
    if embedder is None:
        return EmbeddingVersion(0, f"given/{dimensions}", "given", None, dimensions)
    version = embedder_version(embedder)
    if version.dimensions != dimensions:
        raise ModelMismatchError(
            f"the given vectors have {dimensions} dimensions, {version.model} makes {version.dimensions}; "
            "pass embedding_model='none' when the vectors come from elsewhere"
        )
    return version


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
    seen: dict[bytes, int] = {}
    for chunk in chunker.chunk(loaded.text, markdown=loaded.format in ("markdown", "html")):
        titles = chunk.heading_path
        context = context_line(loaded.title, titles) if with_context else ""
        identity = text_hash(context, chunk.text)
        occurrence = seen.get(identity, 0)
        seen[identity] = occurrence + 1
        values = {
            "document_id": document_id,
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
            "metadata": {},
            "created_at": now,
            "updated_at": now,
        }
        for name, value in values.items():
            columns[name].append(value)
    return columns


class EmbedderCounter:
    """Counts tokens with an embedder's tokenizer."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.counter_name
        self._embedder = embedder

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Character offsets of the tokens; int64, shape (t, 2)."""
        return self._embedder.token_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each text; int64, shape (n,)."""
        return self._embedder.count_tokens(texts)
