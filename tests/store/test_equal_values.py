"""Indexes over columns that hold one value in all rows: a new row costs the same, however many rows there are."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from semlex.filters.fields import Field
from semlex.store.indexes.choice import other_indexes
from semlex.store.indexes.field_indexes import FieldIndex
from semlex.store.schema.names import TableIndex
from tests.support.databases import execute
from tests.support.retrievers import opened

pytestmark = pytest.mark.pg16
ROWS, NEW_ROWS = 3_000, 200
# A tree that has grown by a level reads a block more.
MAX_MORE_BLOCKS = 3
FIELDS = (
    FieldIndex(Field(("kind",)), "text"),
    FieldIndex(Field(("year",)), "number"),
    FieldIndex(Field(("created",), is_own=True), "instant"),
)
ADD = """
    INSERT INTO {table} (document_id, chunk_id, chunk_no, child_ids, chunk_type, source_document, chapter_title,
        section_title, subsection_title, summary, context, chunk_text, content_hash, metadata, created_at, updated_at)
    SELECT gen_random_uuid(), 'id', 0, '{{}}', 'text', 'handbook/one.pdf', '', '', '{{}}', '', '', 'text', '',
        '{{"kind": "page", "year": 2026}}', 'epoch', 'epoch' FROM generate_series(1, {rows})
"""


def blocks_of_a_row(connection, names, index):
    """Blocks that a new row reads and writes in a table of `ROWS` equal rows, and of twice as many."""
    connection.execute("CREATE SCHEMA equal")
    table = sql.Identifier("equal", f"{names.collection}_chunk")
    connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING IDENTITY)").format(table, names.chunk))
    connection.execute(TableIndex(index.suffix, table, index.definition).create(names))
    found = []
    for _ in range(2):
        connection.execute(sql.SQL(ADD).format(table=table, rows=ROWS))
        add = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + ADD).format(table=table, rows=NEW_ROWS)
        row = connection.execute(add).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        found.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / NEW_ROWS)
    connection.execute("DROP SCHEMA equal CASCADE")
    return found


async def test_a_row_costs_the_same_beside_any_number_of_equal_ones(database_url):
    async with opened(database_url, collection="equal") as retriever:
        await retriever.add_texts(["one"], ids=["one"])
        names, indexes = retriever.info.names, other_indexes(retriever.info)
    indexes += [field.table_index(names) for field in FIELDS]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for index in indexes:
            few, many = blocks_of_a_row(connection, names, index)
            assert many <= few + MAX_MORE_BLOCKS, index.suffix
        # The measure finds an index that reads all equal entries for a new one.
        hashed = TableIndex("hashed", names.chunk, sql.SQL("USING hash (source_document)"))
        few, many = blocks_of_a_row(connection, names, hashed)
        assert many > few + MAX_MORE_BLOCKS


async def test_no_other_index_is_of_that_kind(database_url):
    """A hash index is only over keys of rows, of which each is there once."""
    async with opened(database_url, collection="equal") as retriever:
        await retriever.add_texts(["one"], ids=["one"])
        await retriever.indexes.create()
    found = execute(
        database_url,
        "SELECT c.relname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam "
        "WHERE a.amname = 'hash' AND c.relnamespace = 'semlex'::regnamespace",
    )
    assert found == [("row_change_problem",)]
