"""Rows of the chunk table: their columns, the text that is embedded, and added documents as rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from semlex import _core
from semlex.errors import DuplicateError
from semlex.store.query.chunk_keys import chunk_keys, indexed_keys
from semlex.store.write.chunk_batch import PART_ROWS, ChunkBatch
from semlex.types.chunks import titles_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from semlex.ingest.chunking import Chunk
    from semlex.ingest.given_documents import GivenDocuments
    from semlex.store.query.leg import Key
    from semlex.store.write.chunks import OnDuplicate
    from semlex.types.vectors import Vectors

TEXTS_IN_METADATA = ("source_document", "chapter_title", "section_title", "summary")
IN_METADATA = frozenset({*TEXTS_IN_METADATA, "token_count", "subsection_title"})
CONTEXT_SEPARATOR = " > "


def text_hashes(contexts: Sequence[str], texts: Sequence[str]) -> list[bytes]:
    """Identity of what is analysed and embedded; a chunk with the same one keeps its vector."""
    return _core.hash_rows("text", [contexts, texts])


def context_line(title: str | None, headings: Sequence[str]) -> str:
    """Title and heading path in one line, for analysis and embedding; the shown text stays as it was."""
    parts = list(headings)
    if title and (not parts or parts[0] != title):
        parts.insert(0, title)
    return CONTEXT_SEPARATOR.join(parts)


def chunk_context(title: str | None, chunk: Chunk) -> str:
    """What is analysed and embedded with a chunk: title and heading path, and below them what announces it."""
    line = context_line(title, chunk.heading_path)
    return f"{line}\n{chunk.introduction}" if line and chunk.introduction else line or chunk.introduction


def embedded_text(context: str, text: str) -> str:
    """The text that the model sees."""
    return f"{context}\n{text}" if context else text


def unrepeated(ids: Sequence[str], on_duplicate: OnDuplicate) -> list[int]:
    """Numbers of the rows without repeated ids: the last one of each, or the first where what is there stays."""
    rows = list(enumerate(ids))
    kept = {chunk_id: number for number, chunk_id in (reversed(rows) if on_duplicate == "skip" else rows)}
    if on_duplicate == "fail" and len(kept) < len(ids):
        raise DuplicateError([chunk_id for number, chunk_id in rows if kept[chunk_id] != number])
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Checked documents as rows for the chunk table, one a document, made as they are written.

    They come in the order of their keys: two writers who take the same keys in the same order never wait for each
    other in a circle.

    Attributes:
        documents: All of a call, checked.
        keyed: Bytes of the document's key, id, and number, of those that are wanted, in order.
        embeddings: Of all of the call; None where no document brings one.
        with_context: Whether titles in the metadata are part of what is analysed and embedded.
        contexts: By id, the titles of those chunks that were cut out of a document: they keep them.
    """

    documents: GivenDocuments
    keyed: Sequence[tuple[bytes, str, int]]
    embeddings: Vectors | None
    with_context: bool
    contexts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        documents: GivenDocuments,
        numbers: Sequence[int],
        embeddings: Vectors | None,
        *,
        with_context: bool,
    ) -> DocumentRows:
        """The rows of these numbers, no id twice."""
        ids = [documents.ids[number] for number in numbers]
        # The server compares uuids byte by byte, as Python compares bytes, and ids by their UTF-8, as Python does.
        return cls(documents, sorted(zip(chunk_keys(ids), ids, numbers, strict=True)), embeddings, with_context)

    def indexed(self) -> list[Key]:
        """The keys of those that name a chunk of an indexed document."""
        return indexed_keys([chunk_id for _, chunk_id, _ in self.keyed])

    def __len__(self) -> int:
        return len(self.keyed)

    def keys(self) -> list[Key]:
        """(document_id, chunk_id) of every row."""
        return [(UUID(bytes=document_id), chunk_id) for document_id, chunk_id, _ in self.keyed]

    def parts(self) -> Iterator[ChunkBatch]:
        """The rows in runs."""
        for start in range(0, len(self), PART_ROWS):
            yield self._made(self.keyed[start : start + PART_ROWS])

    def whole(self) -> ChunkBatch:
        """All rows at once."""
        return self._made(self.keyed)

    def _made(self, keyed: Sequence[tuple[bytes, str, int]]) -> ChunkBatch:
        numbers = [number for *_, number in keyed]
        given = self.documents
        metadata: list[Mapping[str, Any]] = [given.metadata[number] for number in numbers]
        count = len(numbers)
        chunk_ids = [chunk_id for _, chunk_id, _ in keyed]
        texts = [given.contents[number] for number in numbers]
        named = _named_in_metadata(metadata, with_context=self.with_context)
        if self.contexts:
            own = zip(chunk_ids, named["context"], strict=True)
            named["context"] = [self.contexts.get(chunk_id, context) for chunk_id, context in own]
        return ChunkBatch(
            document_id=[key for key, *_ in keyed],
            chunk_id=chunk_ids,
            chunk_no=[0] * count,
            parent_chunk_id=[given.parent_ids[number] for number in numbers],
            chunk_type=["text"] * count,
            char_start=[None] * count,
            char_end=[None] * count,
            line=[None] * count,
            page=[None] * count,
            chunk_text=texts,
            content_hash=text_hashes(named["context"], texts),
            language=[given.languages[number] for number in numbers],
            metadata=metadata,
            child_ids=[given.child_ids[number] for number in numbers],
            timestamp_start=[given.timestamps[0][number] for number in numbers],
            timestamp_end=[given.timestamps[1][number] for number in numbers],
            created_at=[given.created_at[number] for number in numbers],
            updated_at=[given.updated_at[number] for number in numbers],
            embeddings=self._vectors(numbers),
            **named,
        )

    def _vectors(self, numbers: list[int]) -> Vectors | None:
        vectors = self.embeddings
        if isinstance(vectors, list):
            return [vectors[number] for number in numbers]
        return None if vectors is None else vectors[numbers]


def _named_in_metadata(metadata: Sequence[Mapping[str, Any]], *, with_context: bool) -> dict[str, list[Any]]:
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
    titles = [titles_in(values) for values in metadata]
    columns["subsection_title"] = [found["subsection_title"] for found in titles]
    if with_context:
        paths = ([title for part in found.values() for title in part if title] for found in titles)
        columns["context"] = [context_line(None, path) for path in paths]
    return columns


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None
