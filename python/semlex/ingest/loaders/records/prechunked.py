"""JSON: chunks that were cut elsewhere, and anything else as source code."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semlex.errors import ValidationError
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode
from semlex.ingest.loaders.records.json_text import check_metadata, parse_json
from semlex.ingest.loaders.records.rows import RecordText
from semlex.ingest.loaders.storable import storable
from semlex.ingest.loaders.text import CodeLoader
from semlex.types.chunks import ChunkMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

LIST_NAME = "chunks"
SIGNS = ("chunk_text", "chunk_id")
# Of a file that cannot be read as JSON, so much is looked at to see whether chunks were meant.
LOOKED_AT = 256 * 1024

_BEGINNING = re.compile(r'\s*+(?:\{[^\[]*?"chunks"\s*+:\s*+)?\[\s*+')


class PrechunkedLoader:
    """Reads JSON that holds chunks, each of which stays whole; any other JSON is read as source code.

    They are a list of objects with the fields of `ChunkMetadata`, or such a list by the name ``chunks`` in an object.
    """

    name = "chunks"
    suffixes = ("json",)
    version = 1

    def __init__(self) -> None:
        self._code = CodeLoader()

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file.

        What an object holds beside its list of chunks is metadata of the document.
        """
        text, encoding, repaired = decode(file.data, options)
        found = _chunks_of(text)
        if found is None:
            return replace(self._code.load(file, options), format=self._code.name)
        beside, count = storable(found.metadata, "beside the chunks", options)
        repaired += count
        check_metadata(beside, "beside the chunks")
        made = RecordText()
        numbers: dict[str, int] = {}
        for number, item in enumerate(found.items, 1):
            stored, count = storable(item, f"chunk {number}", options)
            repaired += count
            chunk = _chunk(stored, number)
            first = numbers.setdefault(chunk.chunk_id, number)
            if first != number:
                message = f"chunks {first} and {number} have the same chunk_id: give each its own"
                raise LoadError("repeated_id", message)
            metadata = {name: getattr(chunk, name) for name in ("chunk_id", "source_document", "token_count")}
            check_metadata(metadata, f"chunk {number}")
            made.add(
                chunk.chunk_text, titles=chunk.heading_path, summary=chunk.summary, metadata=metadata, is_chunk=True
            )
        return LoadedDocument(
            made.text, "plain", metadata=beside, records=made.records, encoding=encoding, repaired=repaired
        )


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Objects that should be chunks, and what stands beside them."""

    items: Sequence[Any]
    metadata: dict[str, Any]


def _chunks_of(text: str) -> _Chunks | None:
    if not all(f'"{sign}"' in text for sign in SIGNS):
        return None
    try:
        value = parse_json(text)
    except LoadError:
        if _begins_with_chunk(text[:LOOKED_AT]):
            raise
        return None
    metadata: dict[str, Any] = {}
    if isinstance(value, dict):
        metadata = {name: below for name, below in value.items() if name != LIST_NAME}
        value = value.get(LIST_NAME)
    return _Chunks(value, metadata) if isinstance(value, list) and value and _is_chunk(value[0]) else None


def _begins_with_chunk(head: str) -> bool:
    found = _BEGINNING.match(head)
    if found is None:
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(head, found.end())
    except (ValueError, RecursionError):
        return False
    return _is_chunk(first)


def _is_chunk(value: object) -> bool:
    return isinstance(value, dict) and all(sign in value for sign in SIGNS)


def _chunk(item: object, number: int) -> ChunkMetadata:
    if not isinstance(item, dict):
        raise LoadError("bad_chunk", f"chunk {number} is no object: give it the fields of the others")
    try:
        return ChunkMetadata.from_dict(item)
    except ValidationError as error:
        raise LoadError("bad_chunk", f"chunk {number}: {error.errors[0]}") from None
