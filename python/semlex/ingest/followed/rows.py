"""Turn rows of a followed table into documents with chunks, column by column."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from semlex import _core
from semlex.errors import FieldError, StoreError
from semlex.ingest.chunk_rows import chunk_batch, rows_of_chunks, text_hashes
from semlex.ingest.document_chunks import (
    MAX_TITLE_CHARACTERS,
    RULES_VERSION,
    Chunk,
    Chunker,
    check_copies,
    cut_document,
)
from semlex.ingest.loaders.base import FileBytes, Loader, LoadError, LoadOptions
from semlex.ingest.loaders.registry import load, loader_named
from semlex.store.followed.compare import RowState, from_json
from semlex.store.followed.queue import FailedRow
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.documents import RowDocuments
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES, line_breaks, utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.followed.definitions import StoredTable
    from semlex.types.followed import FollowedTable

T = TypeVar("T")
SEPARATOR = "\n\n"  # between the texts of a row
_TO_SPLIT = -1
REPEATED = "repeated"  # instead of the hash of a row whose key others have, too


@dataclass(slots=True)
class RowBatch:
    """Rows that are written in one transaction, with the rows that failed or are missing."""

    keys: list[str]
    versions: list[str | None]  # see `RowState`
    documents: RowDocuments
    chunks: ChunkBatch
    failed: list[FailedRow] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # keys without a row
    # Numbers of the chunks that need a vector.
    wanted: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def states(self) -> dict[str, RowState]:
        """Return the state (hashes and version) in which each row was read, by the row's key."""
        columns = self.documents.content_hash, self.documents.file_state, self.versions
        return dict(zip(self.keys, map(RowState, *columns), strict=True))

    def failure(self, number: int, error: Exception) -> FailedRow:
        """Make the record of a row that could not be stored because of an error."""
        code = (error.sqlstate if isinstance(error, StoreError) else None) or type(error).__name__
        row_hash = combined(self.documents.content_hash[number], self.documents.file_state[number])
        return FailedRow(self.keys[number], row_hash, code, str(error))

    def selected(self, numbers: Sequence[int]) -> RowBatch:
        """Return the rows with these numbers and their chunks, without the failed and missing ones."""
        documents = self.documents.selected(numbers)
        kept = set(documents.document_id)
        chunks = [number for number, key in enumerate(self.chunks.document_id) if key in kept]
        return RowBatch(
            [self.keys[number] for number in numbers],
            [self.versions[number] for number in numbers],
            documents,
            self.chunks.selected(chunks),
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows read from a table, as columns; `texts` has one list per text column, or a single list of joined texts."""

    keys: list[str]
    documents: list[bytes]  # ids of their documents
    uris: list[str]
    titles: list[str]  # from the column of the heading
    text_hashes: list[bytes]
    metadata_hashes: list[str]
    versions: list[str | None]
    sizes: list[int]
    places: list[dict[str, Any]]
    metadata: list[dict[str, Any]]
    texts: tuple[list[str], ...]

    @classmethod
    def of(cls, table: FollowedTable, rows: Sequence[tuple[Any, ...]]) -> _Rows:
        """Make columns of rows as `ComparedTable.rows` returns them; at least one row."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        keys, texts, hashes, versions, sizes, metadata, headings, *items = columns
        uris = [f"{table.name}/{key}" for key in keys]
        documents = _core.hash_rows("indexed", [[table.name] * len(uris), uris])
        titles = [(heading or "")[:MAX_TITLE_CHARACTERS].strip() for heading in headings]
        places = [{"table": table.name, "key": key_parts(table, key)} for key in keys]
        own = from_json(metadata)
        as_read = cls(keys, documents, uris, titles, texts, hashes, versions, sizes, places, own, tuple(items))
        return as_read.selected(sorted(range(len(keys)), key=documents.__getitem__))

    def failed(self, number: int, code: str, message: str) -> FailedRow:
        """Make the record of a row that could not be stored."""
        row_hash = combined(self.text_hashes[number], self.metadata_hashes[number])
        return FailedRow(self.keys[number], row_hash, code, message)

    def selected(self, numbers: Sequence[int]) -> _Rows:
        """Return the rows with these numbers."""

        def some(column: list[Any]) -> list[Any]:
            return [column[number] for number in numbers]

        columns = {one.name: some(getattr(self, one.name)) for one in fields(self) if one.name != "texts"}
        return _Rows(**columns, texts=tuple(some(column) for column in self.texts))


@dataclass(frozen=True, slots=True)
class RowSplitter:
    """Splits rows of a table into chunks, and makes batches of them."""

    stored: StoredTable
    chunker: Chunker
    loaders: Mapping[str, Loader]
    with_context: bool
    max_bytes: int  # of the texts of a row

    @property
    def table(self) -> FollowedTable:
        """The definition of the table."""
        return self.stored.table

    @property
    def joins_texts(self) -> bool:
        """Whether the server joins the texts of a row; only texts without a format can be joined."""
        return not self.table.formats

    def batch(self, keys: Sequence[str], read: Sequence[tuple[Any, ...]]) -> RowBatch:
        """Make a batch of the rows that were read for some keys. Callable from any thread."""
        missing = sorted(set(keys).difference(row[0] for row in read))
        if not read:
            return RowBatch([], [], self._documents([], [], [], [], [], [], []), ChunkBatch.joined([]), [], missing)
        rows = _Rows.of(self.table, read)
        if failed := self._failures(rows):
            bad = {row.row_key for row in failed}
            rows = rows.selected([number for number, key in enumerate(rows.keys) if key not in bad])
        batch, refused = self._split(rows)
        batch.failed, batch.missing = [*failed, *refused], missing
        return batch

    def _failures(self, rows: _Rows) -> list[FailedRow]:
        """Return rows that cannot be stored, found before their texts are split."""
        times = Counter(rows.keys)
        wrong: dict[int, tuple[str, str]] = {
            number: ("repeated_key", f"{times[key]:,} rows have this key: make the key unique")
            for number, key in enumerate(rows.keys)
            if times[key] > 1
        }
        for field_name, sizes, limit in (
            ("text", rows.sizes, self.max_bytes),
            ("key", [len(key.encode()) for key in rows.keys], MAX_ID_BYTES),
        ):
            for number, size in enumerate(sizes):
                if size > limit:
                    error = FieldError(-1, None, field_name, "too_long", f"{limit} bytes", f"{size} bytes")
                    wrong.setdefault(number, (error.code, str(error)))
        if self.table.metadata:
            for found in _core.validate_rows([("metadata", "jsonb", rows.metadata, None)]):
                error = FieldError(-1, *found[1:])
                wrong.setdefault(found[0], (error.code, str(error)))
        made = {rows.keys[number]: rows.failed(number, *reason) for number, reason in sorted(wrong.items())}
        return [replace(row, row_hash=REPEATED) if times[row.row_key] > 1 else row for row in made.values()]

    # Most rows are one chunk: they are counted and hashed as columns. Rows that are longer, or written in a format, are
    # split one by one, as files are.
    def _split(self, rows: _Rows) -> tuple[RowBatch, list[FailedRow]]:
        keys, uris, titles = rows.documents, rows.uris, list(rows.titles)
        tokens = self._tokens(rows)
        whole = {number: count for number, count in enumerate(tokens) if count > 0}
        counts = [int(count > 0) for count in tokens]
        parts = [self._whole(rows, whole)]
        refused: dict[int, FailedRow] = {}
        for number, count in enumerate(tokens):
            if count != _TO_SPLIT:
                continue
            try:
                titles[number], chunks = self._chunks(rows, number, titles[number])
            except LoadError as error:
                refused[number] = rows.failed(number, error.code, error.message)
                continue
            counts[number] = len(chunks)
            key = UUID(bytes=keys[number])
            parts.append(rows_of_chunks(key, uris[number], titles[number], chunks, with_context=self.with_context))
        shown = [title or uri for title, uri in zip(titles, uris, strict=True)]
        documents = self._documents(keys, uris, shown, rows.text_hashes, rows.metadata_hashes, rows.sizes, counts)
        batch = RowBatch(rows.keys, rows.versions, documents, ChunkBatch.joined([part for part in parts if len(part)]))
        if refused:
            batch = batch.selected([number for number in range(len(batch)) if number not in refused])
        return batch, list(refused.values())

    def _tokens(self, rows: _Rows) -> list[int]:
        """Return each row's token count if it is one chunk, 0 if it has no text, `_TO_SPLIT` if it must be split."""
        if not self.joins_texts:
            return [_TO_SPLIT] * len(rows.keys)
        [texts] = rows.texts
        most = self.chunker.settings.chunk_tokens
        room = MAX_CHUNK_BYTES - len(SEPARATOR) * len(self.table.text)
        return [
            0 if not text or text.isspace() else max(count, 1) if count <= most and size <= room else _TO_SPLIT
            for text, count, size in zip(texts, self.chunker.counts(texts), rows.sizes, strict=True)
        ]

    def _documents(self, *columns: list[Any]) -> RowDocuments:
        names = ("document_id", "uri", "title", "content_hash", "file_state", "size_bytes", "chunk_count")
        return RowDocuments(
            source_id=self.stored.source_id,
            chunker_version=RULES_VERSION,
            chunk_settings=self.chunker.settings,
            **dict(zip(names, columns, strict=True)),
        )

    def _whole(self, rows: _Rows, tokens: Mapping[int, int]) -> ChunkBatch:
        """Return the chunks of rows that are one chunk each; `tokens` maps row numbers to token counts."""

        def some(column: Sequence[T]) -> list[T]:
            return [column[number] for number in tokens]

        given = some(rows.texts[0])
        texts = [text.strip() for text in given]
        starts = [0 if text == own else own.index(text) for text, own in zip(texts, given, strict=True)]
        keys, headings = some(rows.documents), some(rows.titles)
        contexts = list(headings) if self.with_context else [""] * len(texts)
        identities = text_hashes(contexts, texts)
        now = utc_now()
        return chunk_batch(
            document_id=keys,
            chunk_id=[f"{key.hex()}-{identity.hex()[:16]}" for key, identity in zip(keys, identities, strict=True)],
            source_document=some(rows.uris),
            chapter_title=headings,
            context=contexts,
            chunk_text=texts,
            token_count=list(tokens.values()),
            char_start=starts,
            char_end=[start + len(text) for start, text in zip(starts, texts, strict=True)],
            line=[1 + line_breaks(own[:start]) if start else 1 for start, own in zip(starts, given, strict=True)],
            place=some(rows.places),
            content_hash=identities,
            metadata=some(rows.metadata),
            created_at=[now] * len(tokens),
            updated_at=[now] * len(tokens),
        )

    def _chunks(self, rows: _Rows, number: int, heading: str) -> tuple[str, list[Chunk]]:
        """Split one row; return its title and chunks."""
        texts = [column[number] or "" for column in rows.texts]
        names = self.table.text if not self.joins_texts else ("",)
        title, start, line = heading, 0, 0
        chunks: list[Chunk] = []
        for name, text in zip(names, texts, strict=True):
            if not text or text.isspace():
                continue
            own, found, length = self._item(text, self.table.formats.get(name))
            title = title or (own or "")[:MAX_TITLE_CHARACTERS]
            base = len(chunks)
            for chunk in found:
                chunk.chunk_no += base
                chunk.parent = None if chunk.parent is None else chunk.parent + base
                chunk.char_start += start
                chunk.char_end += start
                chunk.line = None if chunk.line is None else chunk.line + line
            chunks += found
            start += length + len(SEPARATOR)
            line += line_breaks(text) + len(SEPARATOR)
        metadata = rows.metadata[number]
        check_copies(len(_core.to_json(metadata)) * len(chunks), "follow fewer columns as metadata")
        for chunk in chunks:
            chunk.metadata, chunk.place = metadata, rows.places[number]
            if heading:
                chunk.heading_path = (heading, *chunk.heading_path)
        return title, chunks

    def _item(self, text: str, written_in: str | None) -> tuple[str | None, list[Chunk], int]:
        """Split one text of a row; return its title, its chunks, and the length of the text that was split."""
        if written_in is None:
            _, chunks = self.chunker.cut(text, "plain")
            return None, chunks, len(text)
        name = f"text.{written_in}"
        loader = loader_named(name, self.loaders)
        file = FileBytes(name, text.encode(), b"", utc_now())
        loaded = replace(load(file, loader, LoadOptions()), metadata={})
        title, chunks = cut_document(loaded, self.chunker)
        return title, chunks, len(loaded.text)


def key_parts(table: FollowedTable, key: str) -> list[Any]:
    """Return the parts of a row's key as `StoredPlace` stores them with a chunk."""
    parts = [key] if len(table.key) == 1 else json.loads(key)
    return [
        int(part) if kind == "int" else {"uuid": part} if kind == "uuid" else part
        for kind, part in zip(table.key_kinds, parts, strict=True)
    ]


def combined(text_hash: bytes, metadata_hash: str) -> str:
    """Combine the hashes of a row's text and metadata into one, to notice later whether a failed row has changed."""
    return f"{text_hash.hex()[:32]}{metadata_hash[:32]}"
