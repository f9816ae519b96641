"""Rows for the chunk table, stored by column, and the only list of the columns that a write fills."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.query.leg import Key

# Rows made at a time: a full socket buffer keeps the server busy for about as long.
PART_ROWS = 128
# Types that have no array of their own kind in a small batch: they travel as JSON.
AS_JSON = ("text[]", "jsonb")


class Column(NamedTuple):
    """A column of the chunk table."""

    name: str
    wire: str  # its type in a COPY
    is_updated: bool = True  # whether an existing chunk takes the new value
    # Whether it locates a chunk in the document that it was cut from: a text written over it does not know.
    is_place: bool = False

    @property
    def array(self) -> str:
        """The SQL type of the elements if the column is sent as an array, as in small batches."""
        return "text" if self.wire in AS_JSON else self.wire


def _as(wire: str, **options: bool) -> dict[str, Any]:
    return {"wire": wire, **options}


@dataclass(slots=True, kw_only=True)
class ChunkBatch:
    """Rows for the chunk table, as one list for each column; all lists have the same length, no key occurs twice."""

    document_id: list[bytes] = field(metadata=_as("uuid", is_updated=False))  # 16 bytes each
    chunk_id: list[str] = field(metadata=_as("text", is_updated=False))
    chunk_no: list[int] = field(metadata=_as("int4", is_place=True))
    parent_chunk_id: list[str | None] = field(metadata=_as("text"))
    chunk_type: list[str] = field(metadata=_as("text", is_place=True))
    source_document: list[str] = field(metadata=_as("text", is_place=True))
    chapter_title: list[str] = field(metadata=_as("text", is_place=True))
    section_title: list[str] = field(metadata=_as("text", is_place=True))
    subsection_title: list[list[str]] = field(metadata=_as("text[]", is_place=True))
    summary: list[str] = field(metadata=_as("text"))
    context: list[str] = field(metadata=_as("text"))
    chunk_text: list[str] = field(metadata=_as("text"))
    token_count: list[int | None] = field(metadata=_as("int4"))
    char_start: list[int | None] = field(metadata=_as("int4", is_place=True))
    char_end: list[int | None] = field(metadata=_as("int4", is_place=True))
    line: list[int | None] = field(metadata=_as("int4", is_place=True))
    page: list[int | None] = field(metadata=_as("int4", is_place=True))
    # `semlex.types.documents.StoredPlace` as JSON; None if nothing is known.
    place: list[Mapping[str, Any] | None] = field(metadata=_as("jsonb", is_place=True))
    content_hash: list[bytes] = field(metadata=_as("bytea"))
    language: list[str | None] = field(metadata=_as("text"))
    metadata: list[Mapping[str, Any]] = field(metadata=_as("jsonb"))
    child_ids: list[list[str]] = field(metadata=_as("text[]"))
    timestamp_start: list[str | None] = field(metadata=_as("text"))
    timestamp_end: list[str | None] = field(metadata=_as("text"))
    # A changed text keeps the time it was first made.
    created_at: list[datetime] = field(metadata=_as("timestamptz", is_updated=False))
    updated_at: list[datetime] = field(metadata=_as("timestamptz"))
    # float32, shape (n, d); or a list with None for rows without a vector; or None.
    embeddings: NDArray[np.float32] | list[NDArray[np.float32] | None] | None = None
    # Whether a row without a vector has the one that is stored with the same text.
    is_embedded: bool = field(default=False, init=False)
    # Ids in the keyword index, if it has to know them in advance; otherwise the identity default.
    keyword_id: list[int] | None = None

    @classmethod
    def joined(cls, batches: Sequence[ChunkBatch]) -> ChunkBatch:
        """Return the rows of several batches, in their order, without vectors."""
        columns = {name: [batch.values(name) for batch in batches] for name in COLUMN_NAMES}
        return cls(**{name: list(chain.from_iterable(parts)) for name, parts in columns.items()})

    def __len__(self) -> int:
        return len(self.chunk_id)

    def values(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return getattr(self, name)  # type: ignore[no-any-return]

    def parts(self) -> Iterator[ChunkBatch]:
        """Yield the rows in parts of up to `PART_ROWS`."""
        for start in range(0, len(self), PART_ROWS):
            stop = start + PART_ROWS
            columns = {name: self.values(name)[start:stop] for name in COLUMN_NAMES}
            yield self._part(columns, None if self.embeddings is None else self.embeddings[start:stop])

    def whole(self) -> ChunkBatch:
        """Return all rows as one batch, which is this one."""
        return self

    def selected(self, numbers: Sequence[int]) -> ChunkBatch:
        """Return the rows at these positions, with their vectors."""
        columns = {name: [self.values(name)[number] for number in numbers] for name in COLUMN_NAMES}
        vectors = self.embeddings
        return self._part(columns, None if vectors is None else [vectors[number] for number in numbers])

    def _part(self, columns: dict[str, Any], vectors: Any) -> ChunkBatch:
        part = ChunkBatch(**columns, embeddings=vectors)
        part.is_embedded = self.is_embedded
        return part

    @property
    def has_every_vector(self) -> bool:
        """Return whether every row has its vector."""
        vectors = self.embeddings
        return vectors is not None and not (isinstance(vectors, list) and any(vector is None for vector in vectors))

    @property
    def relies_on_stored(self) -> bool:
        """Whether rows without a vector here are to keep the vector that is stored already."""
        return self.is_embedded and not self.has_every_vector

    def keys(self) -> list[Key]:
        """(document_id, chunk_id) of every row."""
        documents = (UUID(bytes=document_id) for document_id in self.document_id)
        return list(zip(documents, self.chunk_id, strict=True))


COLUMNS = tuple(Column(one.name, **one.metadata) for one in fields(ChunkBatch) if one.metadata)
COLUMN_NAMES = tuple(column.name for column in COLUMNS)
KEYWORD_ID = Column("keyword_id", "int8")


class RowSource(Protocol):
    """Rows to write, which exist already or are made part by part while they are written."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    @property
    def relies_on_stored(self) -> bool:
        """Whether rows without a vector here are to keep the vector that is stored already."""
        ...

    def parts(self) -> Iterator[ChunkBatch]:
        """Yield the rows in parts of up to `PART_ROWS`; every call begins with the first row."""
        ...

    def whole(self) -> ChunkBatch:
        """Return all rows at once."""
        ...
