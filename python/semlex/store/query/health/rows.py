"""Rows that have lost what they belong to, or lack what they should have; counted in samples of large tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from semlex.store.keyword.bm25.segments import tombstone_ids
from semlex.store.query.health.sample import RowSample, sample_rows
from semlex.store.query.statistics import SMALL_BYTES, is_orphaned
from semlex.types.checkups import Finding, of_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

MAX_ROWS = 20_000


class Share(NamedTuple):
    """How many rows of a sample are of a kind.

    Attributes:
        found: Those.
        looked: The rows that were looked at.
        sample: What they were drawn from.
    """

    found: int
    looked: int
    sample: RowSample

    def counted(self, noun: str) -> str:
        """The number in words: of all rows, or of those that were looked at."""
        found = noun if self.found == 1 else f"{noun}s"
        return (
            f"{self.found:,} {found}" if self.sample.is_whole else f"{self.found:,} of {self.looked:,} sampled {noun}s"
        )


KEY = sql.SQL("document_id, chunk_id")


async def _share(
    connection: Connection, table: sql.Identifier, columns: sql.Composable, condition: sql.Composable
) -> Share:
    """How many rows ``e`` of a sample of a table meet a condition."""
    sample = await sample_rows(connection, table, columns, MAX_ROWS)
    cursor = await connection.execute(
        sql.SQL("SELECT count(*) FILTER (WHERE {}), count(*) FROM {} AS e").format(condition, sample.rows)
    )
    row = await cursor.fetchone()
    found, looked = row or (0, 0)
    return Share(found, looked, sample)


async def orphaned_vectors(connection: Connection, names: Names, version: int) -> list[Finding]:
    """Vectors without their chunk."""
    table, orphaned = names.embedding(version), is_orphaned(names.chunk)
    share = await _share(connection, table, KEY, orphaned)
    if not share.found:
        return []
    return [
        Finding(
            "vectors_orphaned",
            "warning",
            of_collection(names.schema, names.collection),
            f"has {share.counted('vector')} whose chunk is gone",
            "they only take room; delete them",
            sql.SQL("DELETE FROM {} AS e WHERE {};").format(table, orphaned).as_string(connection),
        )
    ]


async def orphaned_chunks(connection: Connection, names: Names) -> Share:
    """Chunks that were read from a document, and have none.

    Their ids begin with the key of the document; those of texts that were added do not, and they have no document.
    """
    condition = sql.SQL(
        "starts_with(e.chunk_id, replace(e.document_id::text, '-', '') || '-') "
        "AND NOT EXISTS (SELECT FROM {} AS d WHERE d.document_id = e.document_id)"
    ).format(names.document)
    return await _share(connection, names.chunk, KEY, condition)


async def chunks_without_vector(connection: Connection, names: Names, version: int) -> Share:
    """Chunks that searches by vectors do not find."""
    condition = sql.SQL(
        "NOT EXISTS (SELECT FROM {} AS v WHERE v.document_id = e.document_id AND v.chunk_id = e.chunk_id)"
    ).format(names.embedding(version))
    return await _share(connection, names.chunk, KEY, condition)


async def documents_without_source(connection: Connection, names: Names) -> Share:
    """Documents whose source is not there."""
    condition = sql.SQL("NOT EXISTS (SELECT FROM {} AS s WHERE s.source_id = e.source_id)").format(names.source)
    return await _share(connection, names.document, sql.SQL("source_id"), condition)


async def documents_without_text(connection: Connection, names: Names) -> Share:
    """Documents of which nothing is searched."""
    condition = sql.SQL("NOT EXISTS (SELECT FROM {} AS c WHERE c.document_id = e.document_id)").format(names.chunk)
    return await _share(connection, names.document, sql.SQL("document_id"), condition)


async def long_chunks(connection: Connection, names: Names, tokens: int) -> Share:
    """Chunks with more tokens than a model reads."""
    condition = sql.SQL("e.token_count > {}").format(sql.Literal(tokens))
    return await _share(connection, names.chunk, sql.SQL("token_count"), condition)


async def some_texts(connection: Connection, names: Names, most: int, characters: int) -> tuple[list[str], RowSample]:
    """Beginnings of texts of chunks, in the order of their keys.

    Args:
        connection: In a transaction.
        characters: Most characters of each.
    """
    columns = sql.SQL("document_id, chunk_id, left(chunk_text, {}) AS beginning").format(sql.Literal(characters))
    sample = await sample_rows(connection, names.chunk, columns, most)
    cursor = await connection.execute(
        sql.SQL("SELECT e.beginning FROM {} AS e ORDER BY e.document_id, e.chunk_id").format(sample.rows)
    )
    return [text for (text,) in await cursor.fetchall()], sample


async def is_large(connection: Connection, table: sql.Identifier) -> bool:
    """Whether a table takes longer to read than a check may."""
    cursor = await connection.execute(
        "SELECT pg_catalog.pg_relation_size(pg_catalog.to_regclass(%s)) > %s",
        [table.as_string(connection), SMALL_BYTES],
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def tombstone_share(connection: Connection, names: Names, generation: int) -> tuple[int, int]:
    """Chunks of the keyword index that are gone, and all that its segments hold, of a generation."""
    cursor = await connection.execute(
        sql.SQL("SELECT coalesce(sum(chunks), 0)::bigint FROM {} WHERE generation = %s").format(names.segment),
        [generation],
    )
    row = await cursor.fetchone()
    gone = sum(ids.count for ids in (await tombstone_ids(connection, names, generation)).values())
    return gone, 0 if row is None else row[0]


class DeadRows(NamedTuple):
    """Rows of a table that were deleted or replaced and still take room.

    Attributes:
        table: Its name, quoted and qualified.
        live: About how many rows it has.
        dead: About how many are dead.
    """

    table: str
    live: int
    dead: int


async def dead_rows(connection: Connection, tables: Sequence[sql.Identifier]) -> list[DeadRows]:
    """What the server's statistics say of tables; it loses them in a crash, and a standby has none."""
    cursor = await connection.execute(
        "SELECT t.name, s.n_live_tup, s.n_dead_tup FROM unnest(%s::text[]) WITH ORDINALITY AS t(name, place) "
        "JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = pg_catalog.to_regclass(t.name) ORDER BY t.place",
        [[table.as_string(connection) for table in tables]],
    )
    return [DeadRows(*row) for row in await cursor.fetchall()]
