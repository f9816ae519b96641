"""The table of logged queries: add queries, delete old ones, summarise them, and empty the table."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.postgres.settings import cursor_with_times, set_local
from semlex.store.schema.locks import check_present
from semlex.types.query_log import LoggedQuery, QueryLogSummary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity, Names

HASH_BYTES = 16
# Most rows that one transaction deletes of each kind: too many, too old.
PRUNED_ROWS = 1_000
# Writing gives up soon on a locked table; no search waits for its log.
LOCK_TIMEOUT = "500ms"
STATEMENT_TIMEOUT = "10s"


@dataclass(frozen=True, slots=True)
class Question:
    """A logged query."""

    asked_at: datetime  # by this process's clock
    query_hash: bytes  # of its text; see `hash_of`
    query: str | None
    mode: str  # the legs that answered
    filtered: bool
    hits: int  # how many
    # Its key: writing it twice stores it once.
    query_id: uuid.UUID = field(default_factory=uuid.uuid4)


def hash_of(collection: CollectionIdentity, text: str) -> bytes:
    """Return the hash of a query. It ignores case and spacing, and differs between collections."""
    # The key is not a secret: every process that searches would need it. It only keeps the hashes of collections apart.
    words = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return hashlib.blake2b(
        words.encode("utf-8"), digest_size=HASH_BYTES, key=collection.collection_id.bytes, person=b"semlex-query"
    ).digest()


def _lock(collection: CollectionIdentity) -> int:
    """Return the key of the advisory lock that a process takes to write a collection's log."""
    return int.from_bytes(collection.collection_id.bytes[2:10], signed=True)


async def write_questions(
    connection: Connection,
    collection: CollectionIdentity,
    questions: Sequence[Question],
    *,
    max_rows: int,
    oldest: datetime,
) -> int | None:
    """Log queries, delete surplus and old ones; return how many were deleted, or None if another process is writing."""
    # One process at a time does this for a collection, because what one deletes depends on what others wrote.
    await set_local(connection, lock_timeout=LOCK_TIMEOUT, statement_timeout=STATEMENT_TIMEOUT)
    cursor = await connection.execute("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", [_lock(collection)])
    if await cursor.fetchone() != (True,):
        return None
    table = collection.names.query_log
    if questions:
        columns: list[list[Any]] = [
            [getattr(question, name) for question in questions]
            for name in ("query_id", "asked_at", "query_hash", "query", "mode", "filtered", "hits")
        ]
        await connection.execute(
            sql.SQL(
                "INSERT INTO {} (query_id, asked_at, query_hash, query, mode, filtered, hits) "
                "SELECT * FROM unnest(%s::uuid[], %s::timestamptz[], %s::bytea[], %s::text[], %s::text[], %s::bool[], "
                "%s::int[]) ON CONFLICT (query_id) DO NOTHING"
            ).format(table),
            columns,
        )
    # The keys first: a DELETE with an order and a limit in it is not understood by every distributed Postgres.
    cursor = await connection.execute(
        sql.SQL(
            "(SELECT query_id FROM {0} ORDER BY asked_at DESC, query_id DESC OFFSET %(rows)s LIMIT %(most)s) "
            "UNION (SELECT query_id FROM {0} WHERE asked_at < %(oldest)s ORDER BY asked_at LIMIT %(most)s)"
        ).format(table),
        {"rows": max_rows, "most": PRUNED_ROWS, "oldest": oldest},
    )
    surplus = [query_id for (query_id,) in await cursor.fetchall()]
    await check_present(connection, collection)
    if surplus:
        await connection.execute(sql.SQL("DELETE FROM {} WHERE query_id = ANY(%s)").format(table), [surplus])
    return len(surplus)


async def summarise(connection: Connection, names: Names, limit: int) -> QueryLogSummary:
    """Summarise the log; the transaction must have one snapshot."""
    cursor = await cursor_with_times(connection).execute(
        sql.SQL("SELECT count(*), count(*) FILTER (WHERE hits = 0), min(asked_at), max(asked_at) FROM {}").format(
            names.query_log
        )
    )
    row = await cursor.fetchone()
    logged, without_hits, oldest, newest = row or (0, 0, None, None)
    most_asked = await _grouped(connection, names, limit, sql.SQL("asked"), sql.SQL("true"))
    nothing_found = await _grouped(connection, names, limit, sql.SQL("nothing"), sql.SQL("q.nothing > 0"))
    return QueryLogSummary(logged, without_hits, oldest, newest, most_asked, nothing_found)


async def _grouped(
    connection: Connection, names: Names, limit: int, order: sql.SQL, condition: sql.SQL
) -> tuple[LoggedQuery, ...]:
    cursor = await cursor_with_times(connection).execute(
        sql.SQL(
            "SELECT q.text, encode(q.query_hash, 'hex'), q.asked, q.nothing, q.last FROM ("
            "SELECT query_hash, count(*) AS asked, count(*) FILTER (WHERE hits = 0) AS nothing, max(asked_at) AS last, "
            "(array_agg(query ORDER BY asked_at DESC, query_id) FILTER (WHERE query IS NOT NULL))[1] AS text "
            "FROM {} GROUP BY query_hash) AS q WHERE {} ORDER BY q.{} DESC, q.last DESC, q.query_hash LIMIT {}"
        ).format(names.query_log, condition, order, sql.Literal(limit))
    )
    return tuple(LoggedQuery(*row) for row in await cursor.fetchall())


async def count_since(connection: Connection, names: Names, since: datetime) -> tuple[int, int]:
    """Return how many queries were logged since `since`, and how many of these had no hit."""
    cursor = await connection.execute(
        sql.SQL("SELECT count(*), count(*) FILTER (WHERE hits = 0) FROM {} WHERE asked_at >= %s").format(
            names.query_log
        ),
        [since],
    )
    row = await cursor.fetchone()
    return row or (0, 0)


async def clear_batch(connection: Connection, collection: CollectionIdentity) -> int:
    """Delete up to 1,000 logged queries; return how many."""
    names = collection.names
    cursor = await connection.execute(
        sql.SQL("SELECT query_id FROM {} ORDER BY asked_at LIMIT {}").format(names.query_log, sql.Literal(PRUNED_ROWS))
    )
    keys = [query_id for (query_id,) in await cursor.fetchall()]
    await check_present(connection, collection)
    if keys:
        await connection.execute(sql.SQL("DELETE FROM {} WHERE query_id = ANY(%s)").format(names.query_log), [keys])
    return len(keys)
