"""Keys of chunks (document id, chunk id), which are computed from the chunk's id alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from uuid import UUID

from semlex import _core

# The form of the ids that `indexed_chunk_id` makes.
_INDEXED = re.compile("[0-9a-f]{32}-[0-9a-f]{16}(-[1-9][0-9]*)?").fullmatch
DASH = 32


def indexed_document_id(source_uri: str, uri: str) -> UUID:
    """Return the key of a document that was read from a source."""
    return UUID(bytes=_core.hash_rows("indexed", [[source_uri], [uri]])[0])


def indexed_chunk_id(document_id: UUID, text_hash: bytes, occurrence: int) -> str:
    """Return the id of an indexed document's chunk; `occurrence` numbers chunks with the same text, from 0."""
    # The id derives from the document and the text, so that an unchanged chunk keeps its id and its vector, and it
    # begins with the document's key, so that the id alone is enough to find the chunk.
    suffix = f"-{occurrence}" if occurrence else ""
    return f"{document_id.hex}-{text_hash.hex()[:16]}{suffix}"


def is_indexed(chunk_id: str) -> bool:
    """Return whether an id names a chunk of an indexed document."""
    return len(chunk_id) > DASH and chunk_id[DASH] == "-" and _INDEXED(chunk_id) is not None


def indexed_keys(chunk_ids: Iterable[str]) -> list[tuple[UUID, str]]:
    """Return the keys of those chunks that, by their ids, belong to an indexed document."""
    return [(UUID(hex=one[:32]), one) for one in chunk_ids if is_indexed(one)]


def chunk_keys(chunk_ids: Sequence[str]) -> list[bytes]:
    """Return, as bytes, the keys of the documents to which chunks with these ids belong."""
    # The keys derive from the id alone, so that two writers cannot make a chunk twice. A chunk of an indexed document
    # belongs to that document, whichever program writes it; any other is a document of its own.
    keys = _core.hash_rows("added", [chunk_ids])
    places = {chunk_id: document_id.bytes for document_id, chunk_id in indexed_keys(chunk_ids)}
    return [places.get(chunk_id, key) for chunk_id, key in zip(chunk_ids, keys, strict=True)] if places else keys


def keys_of(chunk_ids: Sequence[str]) -> list[tuple[UUID, str]]:
    """Return the keys of chunks with these ids."""
    return [(UUID(bytes=key), one) for key, one in zip(chunk_keys(chunk_ids), chunk_ids, strict=True)]
