"""Make rows of the chunk table, from files that are read and split, and from added documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from semlex import _core
from semlex.errors import DuplicateError
from semlex.ingest.batches import in_parts
from semlex.ingest.document_chunks import RULES_VERSION, Chunk, Reading, cut_file
from semlex.ingest.files.discovery import FileProblem, FoundFile, read_file
from semlex.ingest.loaders.base import LoadError, is_left_out
from semlex.store.descriptions import TEXT_HASH_BYTES, stored_lines, without_line
from semlex.store.query.chunk_keys import chunk_keys, indexed_chunk_id, indexed_document_id, indexed_keys
from semlex.store.write.chunk_batch import COLUMN_NAMES, PART_ROWS, ChunkBatch
from semlex.store.write.documents import DocumentRow
from semlex.store.write.sources import FileState, KnownDocument, Source
from semlex.types.documents import titles_in, utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from semlex.ingest.given_documents import GivenDocuments
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.chunks import OnDuplicate
    from semlex.types.vectors import Vectors


TEXTS_IN_METADATA = ("source_document", "chapter_title", "section_title", "summary")
IN_METADATA = frozenset({*TEXTS_IN_METADATA, "token_count", "subsection_title"})
# Values of columns that a batch leaves out, if not NULL. The lists are shared: a load makes so many rows that every
# object counts.
DEFAULTS: dict[str, Any] = {
    "chunk_no": 0,
    "chunk_type": "text",
    "subsection_title": [],
    "child_ids": [],
    **dict.fromkeys((*TEXTS_IN_METADATA, "context"), ""),
}
# Columns with the values of a chunk's attributes of the same names.
OF_CHUNK = tuple(one.name for one in fields(Chunk) if one.name in COLUMN_NAMES)
# Columns with the values of a document's fields of the same names.
OF_DOCUMENT = ("metadata", "child_ids", "created_at", "updated_at", "language", "timestamp_start", "timestamp_end")
CONTEXT_SEPARATOR = " > "


def chunk_batch(**columns: Any) -> ChunkBatch:
    """Make rows of the chunk table from some of its columns; the others are empty."""
    count = len(columns["chunk_id"])
    return ChunkBatch(**{name: [DEFAULTS.get(name)] * count for name in COLUMN_NAMES} | columns)


def text_hashes(contexts: Sequence[str], texts: Sequence[str]) -> list[bytes]:
    """Return hashes of texts with their context; a stored chunk with the same hash keeps its vector."""
    return _core.hash_rows("text", [contexts, texts])


def context_line(title: str | None, headings: Sequence[str]) -> str:
    """Return title and heading path in one line, to be analysed and embedded with the text."""
    parts = list(headings)
    if title and (not parts or parts[0] != title):
        parts.insert(0, title)
    return CONTEXT_SEPARATOR.join(parts)


def chunk_context(title: str | None, chunk: Chunk) -> str:
    """Return title and heading path of a chunk and, below them, the text that introduces its list, table or code."""
    line = context_line(title, chunk.heading_path)
    return f"{line}\n{chunk.introduction}" if line and chunk.introduction else line or chunk.introduction


def embedded_text(context: str, text: str) -> str:
    """Return the text that the model embeds: the context, and the chunk's text below it."""
    return f"{context}\n{text}" if context else text


def document_texts(documents: GivenDocuments, *, with_context: bool) -> list[str]:
    """Return the text that the model embeds for each added document."""
    contexts = _named_in_metadata(documents.metadata, with_context=with_context)["context"]
    return [embedded_text(context, text) for context, text in zip(contexts, documents.content, strict=True)]


def unrepeated(ids: Sequence[str], on_duplicate: OnDuplicate) -> list[int]:
    """Return which row to keep for each id: the last, or with ``skip`` the first; with ``fail``, raise on repeats."""
    rows = list(enumerate(ids))
    kept = {chunk_id: number for number, chunk_id in (reversed(rows) if on_duplicate == "skip" else rows)}
    if on_duplicate == "fail" and len(kept) < len(ids):
        raise DuplicateError([chunk_id for number, chunk_id in rows if kept[chunk_id] != number])
    return list(kept.values())


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Checked documents as rows, in the order of their keys, so that two writers never deadlock."""

    documents: GivenDocuments
    keyed: Sequence[tuple[bytes, str, int]]
    embeddings: Vectors | None
    with_context: bool
    contexts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, documents: GivenDocuments, numbers: Sequence[int], embeddings: Vectors | None, *, with_context: bool
    ) -> DocumentRows:
        """Return the rows of the documents with these numbers; no id may occur twice."""
        ids = [documents.ids[number] for number in numbers]
        # The server compares uuids byte by byte, as Python compares bytes, and ids by their UTF-8, as Python does.
        return cls(documents, sorted(zip(chunk_keys(ids), ids, numbers, strict=True)), embeddings, with_context)

    @property
    def relies_on_stored(self) -> bool:
        """Return False: rows of added documents never rely on vectors that are already stored."""
        return False

    def indexed(self) -> list[Key]:
        """Return the keys of those rows that replace a chunk of an indexed file."""
        return indexed_keys([chunk_id for _, chunk_id, _ in self.keyed])

    def __len__(self) -> int:
        return len(self.keyed)

    def keys(self) -> list[Key]:
        """Return (document_id, chunk_id) of every row."""
        return [(UUID(bytes=document_id), chunk_id) for document_id, chunk_id, _ in self.keyed]

    def parts(self) -> Iterator[ChunkBatch]:
        """Yield the rows in batches of up to `PART_ROWS`."""
        return map(self._made, in_parts(self.keyed, PART_ROWS))

    def whole(self) -> ChunkBatch:
        """Return all rows as one batch."""
        return self._made(self.keyed)

    def _made(self, keyed: Sequence[tuple[bytes, str, int]]) -> ChunkBatch:
        numbers = [number for *_, number in keyed]
        given = self.documents
        chunk_ids = [chunk_id for _, chunk_id, _ in keyed]
        texts = [given.content[number] for number in numbers]
        columns = {name: getattr(given, name) for name in OF_DOCUMENT}
        named = _named_in_metadata([given.metadata[number] for number in numbers], with_context=self.with_context)
        if self.contexts:
            own = zip(chunk_ids, named["context"], strict=True)
            named["context"] = [self.contexts.get(chunk_id, context) for chunk_id, context in own]
        return chunk_batch(
            document_id=[key for key, *_ in keyed],
            chunk_id=chunk_ids,
            parent_chunk_id=[given.parent_id[number] for number in numbers],
            chunk_text=texts,
            content_hash=text_hashes(named["context"], texts),
            embeddings=self._vectors(numbers),
            **named,
            **{name: [column[number] for number in numbers] for name, column in columns.items()},
        )

    def _vectors(self, numbers: list[int]) -> Vectors | None:
        vectors = self.embeddings
        if isinstance(vectors, list):
            return [vectors[number] for number in numbers]
        return None if vectors is None else vectors[numbers]


def _named_in_metadata(metadata: Sequence[Mapping[str, Any]], *, with_context: bool) -> dict[str, list[Any]]:
    """Return the columns of the chunk table that are read from the metadata, by name."""
    columns: dict[str, list[Any]] = {"context": [""] * len(metadata)}
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


async def keep_lines(connection: Connection, collection: CollectionInfo, rows: ChunkBatch) -> int:
    """Copy the stored descriptions into rows whose titles and text are unchanged; return how many rows got one."""
    keys = rows.keys()
    stored = await stored_lines(connection, collection, keys)
    found = [number for number, key in enumerate(keys) if key in stored] if stored else []
    contexts = [stored[keys[number]][0] for number in found]
    now = text_hashes(contexts, [rows.chunk_text[number] for number in found])
    kept = 0
    for number, context, text_hash in zip(found, contexts, now, strict=True):
        content_hash = stored[keys[number]][1]
        plain = without_line(context, content_hash)
        if plain == rows.context[number] and content_hash[:TEXT_HASH_BYTES] == text_hash:
            rows.context[number], rows.content_hash[number] = context, content_hash
            kept += 1
    return kept


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file that was read and split into chunks."""

    row: DocumentRow
    chunks: ChunkBatch
    repaired: int


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """A file that has not changed since it was last read; `state` is stored so that the next run need not read it."""

    is_outdated: bool
    state: FileState | None = None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is left out because its text cannot be stored (`on_bad_text="skip"`)."""

    uri: str


def prepare_file(
    file: FoundFile, source: Source, known: Mapping[UUID, KnownDocument], reading: Reading, *, again: bool = False
) -> PreparedFile | UnchangedFile | SkippedFile | FileProblem:
    """Read and split a file, unless its state or its bytes show that it has not changed."""
    key = indexed_document_id(source.key, file.uri)
    before = known.get(key)
    if again and before is not None:
        reading = reading.as_read(before)
    fields = reading.fields_for(file.uri)
    if before is not None and before.fields != fields:
        before = None  # its rows must be read by other fields
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
        if is_left_out(reading.options, error):
            return SkippedFile(file.uri)
        return FileProblem(file.uri, error.code, error.message)
    chunks = rows_of_chunks(key, file.uri, cut.title, cut.chunks, with_context=reading.with_context)
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
        chunker_version=RULES_VERSION,
        **chunker.settings._asdict(),
        metadata=dict(cut.loaded.metadata),
        file_state=file.settled_state,
        encoding=cut.loaded.encoding,
        fields=fields,
    )
    return PreparedFile(row, chunks, cut.loaded.repaired)


def new_state(key: UUID, known: KnownDocument, file: FoundFile) -> FileState | None:
    """Return the state to store for a file with unchanged bytes; None if stored already or if too recently changed."""
    state = file.settled_state
    return None if state is None or state == known.file_state else FileState(key, known.content_hash, state)


def rows_of_chunks(
    document_id: UUID, uri: str, title: str, chunks: Sequence[Chunk], *, with_context: bool
) -> ChunkBatch:
    """Return the rows of the chunks of one document."""
    paths = [chunk.heading_path for chunk in chunks]
    contexts = [chunk_context(title, chunk) if with_context else "" for chunk in chunks]
    texts = [chunk.text for chunk in chunks]
    identities = text_hashes(contexts, texts)
    chunk_ids: list[str] = []
    seen: Counter[bytes] = Counter()
    for identity in identities:
        chunk_ids.append(indexed_chunk_id(document_id, identity, seen[identity]))
        seen[identity] += 1
    children: dict[int, list[str]] = {}
    for chunk, chunk_id in zip(chunks, chunk_ids, strict=True):
        if chunk.parent is not None:
            children.setdefault(chunk.parent, []).append(chunk_id)
    none: list[str] = DEFAULTS["child_ids"]
    count, now = len(chunks), utc_now()
    return chunk_batch(
        document_id=[document_id.bytes] * count,
        chunk_id=chunk_ids,
        parent_chunk_id=[None if chunk.parent is None else chunk_ids[chunk.parent] for chunk in chunks],
        source_document=[uri] * count,
        chapter_title=[path[0] if path else "" for path in paths],
        section_title=[path[1] if len(path) > 1 else "" for path in paths],
        subsection_title=[list(path[2:]) or none for path in paths],
        context=contexts,
        chunk_text=texts,
        content_hash=identities,
        child_ids=[children.get(number, none) for number in range(count)],
        created_at=[now] * count,
        updated_at=[now] * count,
        **{name: list(map(attrgetter(name), chunks)) for name in OF_CHUNK},
    )
