"""The table of logged queries: add queries, delete old ones, summarise them, and empty the table."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.postgres.rows import fetch_rows, fetch_value, only_row
from semlex.store.postgres.settings import set_local
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
    mode: str  # the searches that answered
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
    if not await fetch_value(connection, "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", [_lock(collection)]):
        return None
    table = collection.names.query_log
    if questions:
        await connection.execute(
            sql.SQL(
                "INSERT INTO {} (asked_at, query_hash, query, mode, filtered, hits, query_id) "
                "SELECT * FROM unnest(%s::timestamptz[], %s::bytea[], %s::text[], %s::text[], %s::bool[], %s::int[], "
                "%s::uuid[]) ON CONFLICT (query_id) DO NOTHING"
            ).format(table),
            [list(values) for values in zip(*map(astuple, questions), strict=True)],
        )
    return await _delete(
        connection,
        collection,
        sql.SQL(
            "(SELECT query_id FROM {0} ORDER BY asked_at DESC, query_id DESC OFFSET %(rows)s LIMIT %(most)s) "
            "UNION (SELECT query_id FROM {0} WHERE asked_at < %(oldest)s ORDER BY asked_at LIMIT %(most)s)"
        ).format(table),
        {"rows": max_rows, "most": PRUNED_ROWS, "oldest": oldest},
    )


async def _delete(
    connection: Connection, collection: CollectionIdentity, chosen: sql.Composed, values: dict[str, Any]
) -> int:
    """Delete the logged queries whose keys the query `chosen` returns; return how many."""
    # The keys first: a DELETE with an order and a limit in it is not understood by every distributed Postgres.
    keys = [query_id for (query_id,) in await fetch_rows(connection, chosen, values)]
    await check_present(connection, collection)
    if keys:
        deleted = sql.SQL("DELETE FROM {} WHERE query_id = ANY(%s)").format(collection.names.query_log)
        await connection.execute(deleted, [keys])
    return len(keys)


async def summarise(connection: Connection, names: Names, limit: int) -> QueryLogSummary:
    """Summarise the log; the transaction must have one snapshot."""
    counted = sql.SQL("SELECT count(*), count(*) FILTER (WHERE hits = 0), min(asked_at), max(asked_at) FROM {}")
    logged, without_hits, oldest, newest = await only_row(connection, counted.format(names.query_log))
    most_asked = await _grouped(connection, names, limit, sql.SQL("asked"), sql.SQL("true"))
    nothing_found = await _grouped(connection, names, limit, sql.SQL("nothing"), sql.SQL("q.nothing > 0"))
    return QueryLogSummary(logged, without_hits, oldest, newest, most_asked, nothing_found)


async def _grouped(
    connection: Connection, names: Names, limit: int, order: sql.SQL, condition: sql.SQL
) -> tuple[LoggedQuery, ...]:
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT q.text, encode(q.query_hash, 'hex'), q.asked, q.nothing, q.last FROM ("
            "SELECT query_hash, count(*) AS asked, count(*) FILTER (WHERE hits = 0) AS nothing, max(asked_at) AS last, "
            "(array_agg(query ORDER BY asked_at DESC, query_id) FILTER (WHERE query IS NOT NULL))[1] AS text "
            "FROM {} GROUP BY query_hash) AS q WHERE {} ORDER BY q.{} DESC, q.last DESC, q.query_hash LIMIT {}"
        ).format(names.query_log, condition, order, sql.Literal(limit)),
    )
    return tuple(LoggedQuery(*row) for row in found)


async def count_since(connection: Connection, names: Names, since: datetime) -> tuple[int, int]:
    """Return how many queries were logged since `since`, and how many of these had no hit."""
    counted = sql.SQL("SELECT count(*), count(*) FILTER (WHERE hits = 0) FROM {} WHERE asked_at >= %s")
    logged, without_hits = await only_row(connection, counted.format(names.query_log), [since])
    return logged, without_hits


async def clear_batch(connection: Connection, collection: CollectionIdentity) -> int:
    """Delete up to 1,000 logged queries; return how many."""
    chosen = sql.SQL("SELECT query_id FROM {} ORDER BY asked_at LIMIT %(most)s").format(collection.names.query_log)
    return await _delete(connection, collection, chosen, {"most": PRUNED_ROWS})
