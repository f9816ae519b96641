"""Compare the documents of a collection with their files on disk."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from semlex.ingest.files.discovery import FileProblem, find_document, read_file
from semlex.ingest.files.roots import vanished
from semlex.store.query.documents import ListedDocument, list_documents
from semlex.store.write.documents import last_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.options.collection import FileLimits
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

DocumentState = Literal["ok", "changed", "gone", "row", "unknown"]


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document that was read from a file or from a row of a table.

    Attributes:
        source_document: Path below the folder of the source.
        state: ``ok`` (unchanged), ``changed``, ``gone``, ``row``, or ``unknown`` if folder or file cannot be read from
            here.
        written_at: When it was written or moved, in UTC.
        encoding: The detected encoding; None if none was needed.
    """

    source: str
    source_document: str
    state: DocumentState
    chunks: int
    written_at: datetime
    encoding: str | None


@dataclass(frozen=True, slots=True)
class DocumentStates:
    """The documents of a collection, and the problems of the last run.

    Attributes:
        documents: By source and path.
        problems: Path (``source_document``) and ``code`` of the files that the last run could not read, at most 1,000.
        next_after: `after` of the next page; None on the last page.
    """

    documents: list[DocumentInfo]
    problems: list[dict[str, str]]
    next_after: str | None = None


async def documents_with_states(
    database: Database,
    collection: CollectionInfo,
    source: str | None,
    limits: FileLimits,
    *,
    limit: int | None = None,
    after: str | None = None,
) -> DocumentStates:
    """Return the documents of one source or of all, with the states of their files."""

    async def read(connection: Connection) -> tuple[list[ListedDocument], dict[str, Any] | None]:
        more = None if limit is None else limit + 1  # whether another page follows
        found = await list_documents(connection, collection, source, limit=more, after=after)
        return found, await last_run(connection, collection)

    listed, run = await database.read("list the documents", read)
    has_more = limit is not None and len(listed) > limit
    listed = listed[:limit]
    ended = threading.Event()
    try:
        states = await asyncio.to_thread(_states, listed, limits, ended)
    finally:
        ended.set()
    documents = [
        DocumentInfo(one.source, one.uri, state, one.chunks, one.written_at, one.encoding)
        for one, state in zip(listed, states, strict=True)
    ]
    next_after = f"{listed[-1].source}: {listed[-1].uri}" if has_more else None
    return DocumentStates(documents, [] if run is None else list(run["problems"]), next_after)


def _states(listed: Sequence[ListedDocument], limits: FileLimits, ended: threading.Event) -> list[DocumentState]:
    reachable = {root: Path(root).is_dir() for root in {one.root for one in listed if not one.is_row}}
    states: list[DocumentState] = []
    for one in listed:
        if ended.is_set():
            break
        if one.is_row:
            states.append("row")
        else:
            states.append(_state(one, limits) if reachable[one.root] else "unknown")
    return states


def _state(document: ListedDocument, limits: FileLimits) -> DocumentState:
    root = Path(document.root)
    if vanished(root, [document.uri]):
        return "gone"
    file = find_document(root, document.uri, limits)
    if isinstance(file, FileProblem):
        return "unknown"
    if file.state == document.file_state:
        return "ok"
    if file.size != document.size_bytes:
        return "changed"
    read = read_file(file)
    if isinstance(read, FileProblem):
        return "unknown"
    return "ok" if read.content_hash == document.content_hash else "changed"
