"""Files as rows for the store, and the models that their vectors are of."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelMismatchError
from semlex.ingest.chunk_rows import chunk_context, text_hashes
from semlex.ingest.loaders import text as loading
from semlex.ingest.loaders.text import FileProblem, find_files, load_text, read_file
from semlex.store.query.chunks import indexed_chunk_id, indexed_document_id
from semlex.store.schema.collection import EmbeddingVersion
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.documents import DocumentRow
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from semlex.embedding.base import Embedder
    from semlex.ingest.chunking import Chunk, Chunker
    from semlex.ingest.files.roots import Place
    from semlex.ingest.loaders.text import FoundFile, LoadedText
    from semlex.store.write.sources import KnownDocument, Source

# What the hash of a document is made of where its versions and settings are not stored: the first version's loader,
# and its chunker with its settings.
FIRST_VERSION = 1
# What a collection remembers as the model of vectors that somebody else made.
GIVEN = "given"


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
    paths: Sequence[Path | Place], include: Sequence[str] | None, exclude: Sequence[str], recursive: bool
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
        chunks: Its chunks, without vectors.
    """

    row: DocumentRow
    chunks: ChunkBatch


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """A file that is known and did not change.

    Attributes:
        is_outdated: Whether it would be cut in another way today.
    """

    is_outdated: bool


def prepare_file(
    file: FoundFile,
    source: Source,
    known: Mapping[UUID, KnownDocument],
    chunker: Chunker,
    *,
    with_context: bool,
    again: bool = False,
) -> PreparedFile | UnchangedFile | FileProblem:
    """Reads and cuts a file.

    Args:
        file: As found.
        source: Its source.
        known: The documents of that source.
        chunker: Cuts it.
        with_context: Whether titles and heading path are part of what is analysed and embedded.
        again: Whether a file that did not change is cut as well, if it would be cut in another way today.

    Returns:
        The rows; or that there is nothing to do; or why it cannot be read.
    """
    read = read_file(file)
    if isinstance(read, FileProblem):
        return read
    key = indexed_document_id(source.key, file.uri)
    before = known.get(key)
    if before is not None and is_unchanged(before, read.content_hash, chunker):
        outdated = is_outdated(before, chunker)
        if not (again and outdated):
            return UnchangedFile(outdated)
    loaded = load_text(read)
    if isinstance(loaded, FileProblem):
        return loaded
    cut = chunker.cut(loaded.text, structure_of(loaded))
    title = loaded.title or cut.title or ""
    chunks = _chunk_rows(key, loaded.uri, title, cut.chunks, with_context=with_context)
    row = DocumentRow(
        document_id=key,
        source_id=source.source_id,
        uri=loaded.uri,
        title=title,
        format=loaded.format,
        content_hash=loaded.content_hash,
        size_bytes=loaded.size,
        modified_at=loaded.modified_at,
        chunk_count=len(chunks),
        loader_version=loading.LOADER_VERSION,
        chunker_version=chunker.version,
        chunk_tokens=chunker.chunk_tokens,
        overlap_tokens=chunker.overlap_tokens,
    )
    return PreparedFile(row, chunks)


def is_unchanged(known: KnownDocument, content_hash: bytes, chunker: Chunker) -> bool:
    """Whether a file's bytes are those that were read before.

    A document of the first version has only one hash of the bytes and of how they were read and cut: it is recognised
    when it was cut with the same settings.
    """
    if known.loader_version is not None:
        return known.content_hash == content_hash
    parts = (str(FIRST_VERSION).encode(), chunker.identity_of(FIRST_VERSION).encode(), content_hash)
    return known.content_hash == hashlib.sha256(b"\0".join(parts)).digest()


def is_outdated(known: KnownDocument, chunker: Chunker) -> bool:
    """Whether a document would be read or cut in another way today."""
    today = (loading.LOADER_VERSION, chunker.version)
    if known.loader_version is None:
        return today != (FIRST_VERSION, FIRST_VERSION)
    settings = (chunker.chunk_tokens, chunker.overlap_tokens)
    stored = (known.loader_version, known.chunker_version, known.chunk_tokens, known.overlap_tokens)
    return stored != (*today, *settings)


def structure_of(loaded: LoadedText) -> str:
    """How the structure of a text is written, as `Chunker.chunk` takes it."""
    if loaded.format == "code":
        return f"code:{loaded.uri.rpartition('.')[2].lower()}"
    # The marks of reStructuredText are those of many plain texts.
    return "markdown" if loaded.format in ("markdown", "html") else "restructuredtext"


def _chunk_rows(document_id: UUID, uri: str, title: str, chunks: Sequence[Chunk], *, with_context: bool) -> ChunkBatch:
    contexts = [chunk_context(title, chunk) if with_context else "" for chunk in chunks]
    identities = text_hashes(contexts, [chunk.text for chunk in chunks])
    chunk_ids = []
    seen: Counter[bytes] = Counter()
    for identity in identities:
        chunk_ids.append(indexed_chunk_id(document_id, identity, seen[identity]))
        seen[identity] += 1
    count, now = len(chunks), utc_now()
    return ChunkBatch(
        document_id=[document_id.bytes] * count,
        chunk_id=chunk_ids,
        chunk_no=[chunk.chunk_no for chunk in chunks],
        parent_chunk_id=[None] * count,
        chunk_type=[chunk.chunk_type for chunk in chunks],
        source_document=[uri] * count,
        chapter_title=["".join(chunk.heading_path[:1]) for chunk in chunks],
        section_title=["".join(chunk.heading_path[1:2]) for chunk in chunks],
        subsection_title=[list(chunk.heading_path[2:]) for chunk in chunks],
        summary=[""] * count,
        context=contexts,
        chunk_text=[chunk.text for chunk in chunks],
        token_count=[chunk.token_count for chunk in chunks],
        char_start=[chunk.char_start for chunk in chunks],
        char_end=[chunk.char_end for chunk in chunks],
        line=[chunk.line for chunk in chunks],
        content_hash=identities,
        language=[None] * count,
        metadata=[{}] * count,
        child_ids=[[]] * count,
        timestamp_start=[None] * count,
        timestamp_end=[None] * count,
        created_at=[now] * count,
        updated_at=[now] * count,
    )
