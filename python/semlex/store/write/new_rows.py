"""A few rows that are new, stored in one round trip.

A writer first asks what it goes by: generations of the keyword index, sets of vectors, ids that nobody else uses. All
that changes rarely and with the collection's row in the registry, so it is remembered from one write to the next: the
rows are sent together with the locks, and go in only where that row is as it was and none of them is there. Otherwise
nothing is written, and `semlex.store.write.chunks` takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from semlex.errors import StoreError
from semlex.store.postgres.errors import UNIQUE_VIOLATION
from semlex.store.postgres.write_guard import write_guard
from semlex.store.query.leg import Statement
from semlex.store.schema.embedding_versions import ask_versions, dropped, versions_told
from semlex.store.schema.locks import writing_lock
from semlex.store.schema.presence import gone
from semlex.store.write.arrays import Target, array_values
from semlex.store.write.insertion import collection_state, inserting_new

if TYPE_CHECKING:
    from psycopg import AsyncCursor

    from semlex.store.keyword.base import Reserved, ReservedAnswers
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.store.write.chunk_batch import ChunkBatch

    Cursor = AsyncCursor[Any]

# The first one tells what is to be known where nothing is, or something has changed.
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class _Known:
    """What a write goes by.

    Attributes:
        state: See `collection_state`.
        serving: Number of the serving set of vectors; 0: none.
        reserved: Of the keyword index, if there is one.
    """

    state: str
    serving: int
    reserved: Reserved | None


@dataclass(slots=True)
class _Answers:
    """What the server says to one attempt."""

    state: Cursor
    versions: Cursor
    inserted: Cursor | None = None
    reserved: ReservedAnswers | None = None
    sizes: Cursor | None = None


@dataclass(slots=True)
class NewRows:
    """Writes few new rows of one collection.

    Attributes:
        database: An open database.
    """

    database: Database
    _known: _Known | None = field(default=None, init=False)

    async def write(self, collection: CollectionInfo, rows: ChunkBatch) -> bool | None:
        """Stores rows where none of them is there, with their vectors and what the keyword index has of them."""
        if self.database.joins_transaction or write_guard.get() is not None:
            return None
        known, self._known = self._known, None  # its ids are used once
        for _ in range(ATTEMPTS):
            prepared = [] if known is None else await _statements(collection, rows, known)
            if prepared is None:
                return None
            try:
                answers = await self._send(collection, prepared)
            except StoreError as error:
                if error.sqlstate != UNIQUE_VIOLATION:
                    raise
                return None  # another writer has stored one of them since the statement began
            now = await _told(collection, answers)
            count = await answers.inserted.fetchone() if answers.inserted else None
            if count and count[0] == len(rows):
                self._known = now
                return await _wants_merge(collection, answers)
            if known is not None and now.state == known.state:
                self._known = now
                return None
            known = now
        return None

    async def _send(self, collection: CollectionInfo, statements: list[Statement]) -> _Answers:
        answers: list[_Answers] = []
        index = collection.keyword.index

        async def send(connection: Connection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
            state = await connection.execute(_held_state(collection.names), _identity(collection))
            sent = [await connection.cursor(binary=True).execute(one.text, one.parameters) for one in statements]
            found = _Answers(state, await ask_versions(connection, collection), next(iter(sent), None))
            if index is not None:
                found.reserved = await index.reserve(connection, collection, 1)
                found.sizes = await index.ask_sizes(connection, collection)
            answers[:] = [found]

        await self.database.write_in_one_go("add documents", send)
        return answers[0]


async def _statements(collection: CollectionInfo, rows: ChunkBatch, known: _Known) -> list[Statement] | None:
    """What writes the rows; the first one tells how many went in. None where it is too much for one round trip."""
    index, few, used = collection.keyword.index, None, collection.embedding
    if used is not None and used.version != known.serving:
        return None  # what the serving vectors lack has to be noted
    if index is not None and known.reserved is not None:
        with index.share(collection.names, known.reserved) as share:
            rows.keyword_id = share.assign_ids(rows.language, rows.context, rows.chunk_text).tolist()
            few = await share.write_few(rows.keyword_id[0])
        if few is None:
            return None
    target = Target.of(collection, numbered=index is not None)
    values = array_values(collection, target, rows) | _identity(collection) | {"expected": known.state}
    inserting = Statement(inserting_new(target), values)
    return [inserting] if few is None else [inserting, few]


async def _told(collection: CollectionInfo, answers: _Answers) -> _Known:
    """What a write goes by from now on."""
    row = await answers.state.fetchone()
    if row is None:
        raise gone(collection)
    embedding = collection.embedding
    if embedding is not None and embedding.version not in await versions_told(answers.versions):
        raise dropped(collection)
    state, serving = row
    return _Known(state, serving, None if answers.reserved is None else await answers.reserved.told())


async def _wants_merge(collection: CollectionInfo, answers: _Answers) -> bool:
    index = collection.keyword.index
    return index is not None and answers.sizes is not None and await index.wants_merge(answers.sizes)


def _identity(collection: CollectionInfo) -> dict[str, Any]:
    return {"name": collection.names.collection, "collection_id": collection.collection_id}


@lru_cache(maxsize=256)
def _held_state(names: Names) -> bytes:
    return collection_state(names, is_held=True).as_bytes()
