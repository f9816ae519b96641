"""Files as rows for the store, and the models that their vectors are of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ModelMismatchError
from semlex.ingest.chunk_rows import chunk_context, text_hashes
from semlex.ingest.document_chunks import cut_file
from semlex.ingest.files.discovery import FileProblem, find_files
from semlex.ingest.files.reading import read_file
from semlex.ingest.files.selection import Skipped
from semlex.ingest.loaders.base import LoadError
from semlex.store.query.chunk_keys import indexed_chunk_id, indexed_document_id
from semlex.store.schema.collection import EmbeddingVersion
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.documents import DocumentRow
from semlex.store.write.sources import FileState
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from semlex.embedding.base import Embedder
    from semlex.ingest.document_chunks import DocumentChunk, Reading
    from semlex.ingest.files.discovery import FoundFile
    from semlex.ingest.files.roots import Place
    from semlex.ingest.files.selection import Selection
    from semlex.store.write.sources import KnownDocument, Source
    from semlex.types.vectors import Vectors

# What a collection remembers as the model of vectors that somebody else made.
GIVEN = "given"


def embedder_version(embedder: Embedder) -> EmbeddingVersion:
    """The embedding version that an embedder's vectors belong to."""
    identity = embedder.identity
    return EmbeddingVersion(0, identity.key, identity.model, identity.revision, identity.dimensions)


def given_version(embeddings: Vectors, model: EmbeddingVersion | None) -> EmbeddingVersion:
    """The embedding version of vectors that the caller brings.

    It is the open model's, else one of which only the dimension is known.
    """
    dimensions = next(len(vector) for vector in embeddings if vector is not None)
    if model is None:
        return EmbeddingVersion(0, f"{GIVEN}/{dimensions}", GIVEN, None, dimensions)
    if model.dimensions != dimensions:
        raise ModelMismatchError(
            f"the given vectors have {dimensions} dimensions, {model.model} makes {model.dimensions}; "
            "where they come from elsewhere, name the model 'none' (embedding_model=, --model)"
        )
    return model


def list_files(
    paths: Sequence[Path | Place], selection: Selection
) -> tuple[list[FoundFile], list[FileProblem], Skipped]:
    """The files to read, what cannot be one, and what was left out."""
    found: list[FoundFile] = []
    problems: list[FileProblem] = []
    skipped = Skipped()
    for entry in find_files(list(paths), selection, skipped):
        if isinstance(entry, FileProblem):
            problems.append(entry)
        else:
            found.append(entry)
    return found, problems, skipped


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file, read and cut.

    Attributes:
        row: Its document.
        chunks: Its chunks, without vectors.
        repaired: How many characters were put for what was no text.
    """

    row: DocumentRow
    chunks: ChunkBatch
    repaired: int


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """A file that is known and did not change.

    Attributes:
        is_outdated: Whether it would be cut in another way today.
        state: What is to be stored, so that it need not be read again; None where that is stored.
    """

    is_outdated: bool
    state: FileState | None = None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is left out because of its text, as was asked for.

    Attributes:
        uri: Its path below the root of its source.
    """

    uri: str


def prepare_file(
    file: FoundFile,
    source: Source,
    known: Mapping[UUID, KnownDocument],
    reading: Reading,
    *,
    again: bool = False,
) -> PreparedFile | UnchangedFile | SkippedFile | FileProblem:
    """Reads and cuts a file; one that has the state in which it was read before is not read."""
    key = indexed_document_id(source.key, file.uri)
    before = known.get(key)
    if again and before is not None:
        reading = reading.as_read(before)
    fields = reading.fields_for(file.uri)
    if before is not None and before.fields != fields:
        before = None  # its rows are to be read by other fields
    if before is not None and before.file_state == file.state and not again:
        return UnchangedFile(reading.is_outdated(before))
    read = read_file(file)
    if isinstance(read, FileProblem):
        return read
    chunker = reading.chunker
    if before is not None and before.content_hash == read.content_hash:
        outdated = reading.is_outdated(before)
        if not (again and outdated):
            return UnchangedFile(outdated, new_state(key, before, file))
    try:
        cut = cut_file(read, reading)
    except LoadError as error:
        if reading.options.leaves_out(error):
            return SkippedFile(file.uri)
        return FileProblem(file.uri, error.code, error.message)
    chunks = _chunk_rows(key, file.uri, cut.title, cut.chunks, with_context=reading.with_context)
    row = DocumentRow(
        document_id=key,
        source_id=source.source_id,
        uri=file.uri,
        title=cut.title,
        format=cut.format,
        content_hash=read.content_hash,
        size_bytes=len(read.data),
        modified_at=read.modified_at,
        chunk_count=len(chunks),
        loader_version=cut.loader.version,
        chunker_version=chunker.version,
        **chunker.settings._asdict(),
        metadata=dict(cut.loaded.metadata),
        file_state=file.settled_state,
        encoding=cut.loaded.encoding,
        fields=fields,
    )
    return PreparedFile(row, chunks, cut.loaded.repaired)


def new_state(key: UUID, known: KnownDocument, file: FoundFile) -> FileState | None:
    """The state by which a file is known from now on whose bytes are those that were read before."""
    state = file.settled_state
    return None if state is None or state == known.file_state else FileState(key, known.content_hash, state)


def _chunk_rows(
    document_id: UUID, uri: str, title: str, cut: Sequence[DocumentChunk], *, with_context: bool
) -> ChunkBatch:
    chunks = [one.chunk for one in cut]
    paths = [chunk.heading_path for chunk in chunks]
    contexts = [chunk_context(title, chunk) if with_context else "" for chunk in chunks]
    identities = text_hashes(contexts, [chunk.text for chunk in chunks])
    chunk_ids: list[str] = []
    seen: Counter[bytes] = Counter()
    for identity in identities:
        chunk_ids.append(indexed_chunk_id(document_id, identity, seen[identity]))
        seen[identity] += 1
    children: dict[int, list[str]] = {}
    for one, chunk_id in zip(cut, chunk_ids, strict=True):
        if one.parent is not None:
            children.setdefault(one.parent, []).append(chunk_id)
    none: list[str] = []  # one for all: a load makes so many rows that each object more is felt
    count, now = len(chunks), utc_now()
    return ChunkBatch(
        document_id=[document_id.bytes] * count,
        chunk_id=chunk_ids,
        chunk_no=[chunk.chunk_no for chunk in chunks],
        parent_chunk_id=[None if one.parent is None else chunk_ids[one.parent] for one in cut],
        chunk_type=[chunk.chunk_type for chunk in chunks],
        source_document=[uri] * count,
        chapter_title=[path[0] if path else "" for path in paths],
        section_title=[path[1] if len(path) > 1 else "" for path in paths],
        subsection_title=[list(path[2:]) or none for path in paths],
        summary=[one.summary for one in cut],
        context=contexts,
        chunk_text=[chunk.text for chunk in chunks],
        token_count=[chunk.token_count for chunk in chunks],
        char_start=[chunk.char_start for chunk in chunks],
        char_end=[chunk.char_end for chunk in chunks],
        line=[chunk.line for chunk in chunks],
        page=[one.page for one in cut],
        content_hash=identities,
        language=[None] * count,
        metadata=[one.metadata for one in cut],
        child_ids=[children.get(number, none) for number in range(count)],
        timestamp_start=[None] * count,
        timestamp_end=[None] * count,
        created_at=[now] * count,
        updated_at=[now] * count,
    )
