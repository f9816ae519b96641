"""All statements on a collection keep to the rules of distributed tables (`tests.support.distributed_rules`)."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from psycopg import AsyncCursor, sql

from semlex import BulkIngestConfig, CollectionOptions, Document, HnswIndex, SyncClient
from semlex.errors import DuplicateError
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.distributed_rules import CHANGING_WITH, DISTRIBUTED, LATERAL, PLACES, broken_rules, refused

KEPT = [
    """SELECT 1 FROM unnest(%s::uuid[], %s::text[]) AS k(document_id, chunk_id) JOIN s.c_chunk AS c
        USING (document_id, chunk_id) JOIN s.c_embedding_1 AS e USING (document_id, chunk_id)""",
    """SELECT 1 FROM s.c_chunk AS c WHERE NOT EXISTS (SELECT FROM s.c_embedding_2 AS e
        WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))""",
    """DELETE FROM s.c_embedding_1 AS e USING pg_temp.given AS g JOIN s.c_chunk AS c USING (document_id, chunk_id)
        WHERE e.document_id OPERATOR(pg_catalog.=) g.document_id AND c.content_hash <> g.content_hash""",
    "WITH found AS (SELECT document_id FROM s.c_chunk) SELECT 1 FROM found JOIN s.c_document AS d USING (document_id)",
    "COPY (SELECT 1 FROM s.c_chunk AS c WHERE c.chunk_id IN (SELECT e.chunk_id FROM s.c_embedding_1 AS e)) TO STDOUT",
]
BROKEN = [
    ("SELECT 1 FROM s.c_chunk AS c JOIN s.c_embedding_1 AS e USING (chunk_id)", "not joined on document_id"),
    ("SELECT 1 FROM s.c_chunk AS c, s.c_embedding_1 AS e WHERE c.chunk_id = e.chunk_id", "not joined on document_id"),
    ("SELECT 1 FROM s.c_chunk AS c LEFT JOIN s.c_document AS d ON d.title = c.chunk_id", "not joined on document_id"),
    (
        "DELETE FROM s.c_embedding_1 AS e USING s.c_chunk AS c WHERE e.chunk_id = c.chunk_id",
        "not joined on document_id",
    ),
    (
        "SELECT 1 FROM s.c_chunk AS c WHERE EXISTS (SELECT FROM s.c_embedding_1 AS e WHERE e.chunk_id = c.chunk_id)",
        "not bound to c by document_id",
    ),
    (
        "SELECT (SELECT d.title FROM s.c_document AS d WHERE d.uri = c.source_document) FROM s.c_chunk AS c",
        "not bound to c by document_id",
    ),
    ("INSERT INTO s.c_chunk (chunk_id) VALUES (%s) ON CONFLICT (chunk_id) DO NOTHING", "ON CONFLICT without"),
    (
        "INSERT INTO s.c_chunk (document_id) VALUES (%s) ON CONFLICT (document_id) DO UPDATE SET updated_at = now()",
        "on each server",
    ),
    ("UPDATE s.c_chunk SET document_id = %s", "moves a row"),
    ("CREATE UNIQUE INDEX one ON s.c_chunk (chunk_id)", "unique index without"),
    ("CREATE TABLE s.c_chunk (document_id uuid, chunk_id text PRIMARY KEY)", "key without"),
    ("CREATE TABLE s.c_chunk (document_id uuid, chunk_id text, UNIQUE (chunk_id))", "key without"),
    ("CREATE TABLE s.c_chunk (document_id uuid PRIMARY KEY REFERENCES s.c_document)", "foreign key"),
    ("SELECT 1 FROM s.c_chunk FOR UPDATE SKIP LOCKED", "SKIP LOCKED"),
    ("MERGE INTO s.c_chunk AS c USING g ON c.document_id = g.document_id WHEN MATCHED THEN DELETE", "MERGE"),
]


@pytest.mark.parametrize("statement", KEPT)
def test_statements_that_keep_to_the_rules(statement):
    assert broken_rules(statement) == []


@pytest.mark.parametrize(("statement", "why"), BROKEN)
def test_statements_that_break_a_rule(statement, why):
    assert any(why in broken for broken in broken_rules(statement))


@pytest.fixture
def statements(monkeypatch):
    """The different statements that programs of this process send."""
    seen = set()

    def noted(method):
        def call(cursor, query, *arguments, **options):
            if isinstance(query, sql.Composable):
                seen.add(query.as_string(cursor.connection))
            else:
                seen.add(query.decode() if isinstance(query, bytes) else query)
            return method(cursor, query, *arguments, **options)

        return call

    for name in ("execute", "executemany", "copy", "stream"):
        monkeypatch.setattr(AsyncCursor, name, noted(getattr(AsyncCursor, name)))
    return seen


def rows(count, text, dimensions):
    vectors = np.random.default_rng(1).random((count, dimensions), np.float32)
    return {"id": [f"l{n}" for n in range(count)], "text": [f"{text} {n}" for n in range(count)], "vector": vectors}


def use_everything(url, folder, partitions):
    """Writes, searches, reads, follows, changes the model, dumps, restores and deletes."""
    docs = folder / "docs"
    docs.mkdir()
    for number in range(4):
        (docs / f"page{number}.md").write_text(f"# Keys {number}\n\nA key of page {number}.\n\n## Doors\n\nA door.\n")
    execute(
        url,
        "CREATE TABLE public.article AS SELECT n AS id, 'article ' || n AS body, n % 2 AS year "
        "FROM generate_series(1, 9) AS n",
    )
    execute(url, "ALTER TABLE public.article ADD PRIMARY KEY (id)")
    bulk = BulkIngestConfig(batch_size=8, small_batch_rows=3)
    with SyncClient(url, HashEmbedder(32), use_reranking=False) as client:
        collection = client.collection("c", options=CollectionOptions(partitions=partitions), bulk=bulk)
        write(collection, docs)
        search(collection)
        collection.indexes.create(HnswIndex())
        search(collection)
        collection.indexes.create(concurrently=True)
        collection.indexes.rebuild_keyword()
        collection.tables.follow("public.article", text="body", metadata=["year"])
        collection.tables.sync()
        execute(url, "UPDATE public.article SET body = 'changed' WHERE id = 3")
        execute(url, "DELETE FROM public.article WHERE id = 4")
        collection.tables.sync()
        collection.fields.add("year", "number")
        collection.tables.dump(folder / "dump")
        collection.embeddings.change(HashEmbedder(16))
        client.restore(folder / "dump", "r")
    with SyncClient(url, HashEmbedder(16), use_reranking=False) as client:
        collection = client.collection("c", bulk=bulk)
        write(collection, docs)  # with a second set of vectors beside
        search(collection)
        collection.embeddings.fill()
        collection.embeddings.drop(1, force=True)
        collection.delete(["d1"])
        collection.delete(filters={"year": 1})
        collection.status()
        client.diagnose("c")


def write(collection, docs):
    collection.index(docs)
    (docs / "page0.md").write_text("# Changed\n\nAnother text.\n")
    (docs / "page1.md").unlink(missing_ok=True)
    collection.sync(docs)
    collection.add_documents([Document("one text", {"year": 1}, id="x")])
    many = [Document(f"text {number}", {"year": number}, id=f"d{number}") for number in range(12)]
    collection.add_documents(many)
    collection.add_documents([*many, Document("new", id="new")], on_duplicate="skip")
    with pytest.raises(DuplicateError):
        collection.add_documents(many, on_duplicate="fail")
    dimensions = collection.info.embedding.dimensions
    collection.tables.load(rows(20, "row", dimensions))
    collection.tables.load(rows(20, "other row", dimensions))
    collection.tables.load(rows(5, "row", dimensions), skip_unchanged=True)
    collection.tables.read()


def search(collection):
    for mode in ("hybrid", "vector", "keyword"):
        for options in (
            {},
            {"filters": {"year": 3}},
            {"filters": "year > 5"},
            {"filters": {"@source_document": "page2.md"}},
            {"explain": True},
            {"max_results": 20},
        ):
            collection.search("key door text", 5, mode=mode, **options)
    collection.search('"a door" key', 5, exclude=["text"])
    collection.search_many(["key", "door"], 3)
    collection.why("page2.md", "key")
    collection.candidates("key")
    collection.context("key")
    collection.checkup(3)
    collection.list_chunks({"year": 3})
    collection.get(["d1", "x"])
    collection.count({"year": 3})
    collection.documents.list()
    collection.documents.get("page2.md")
    collection.documents.sources()
    collection.fields.list(values=True)
    collection.indexes.optimize()


@pytest.mark.parametrize("partitions", [0, 2])
def test_every_statement_keeps_to_the_rules(database_url, tmp_path, statements, partitions):
    use_everything(database_url, tmp_path, partitions)
    assert sum("_chunk" in one for one in statements) > 50
    assert {one: broken for one in statements if (broken := broken_rules(one))} == {}
    # What else Citus would refuse, as docs/design/distribution.md says.
    places = set() if partitions else {PLACES}
    assert {why for one in statements for why in refused(one)} == {LATERAL, CHANGING_WITH, *places}
    with psycopg.connect(database_url) as connection:
        keys = connection.execute(
            "SELECT t.relname, array_agg(a.attname::text) FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid "
            "JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indisunique AND t.relnamespace = 'semlex'::regnamespace GROUP BY i.indexrelid, t.relname"
        ).fetchall()
        distributed = [(table, columns) for table, columns in keys if DISTRIBUTED.fullmatch(table)]
        assert {table for table, _ in distributed} >= {"c_document", "c_chunk", "c_embedding_2"}
        assert [table for table, columns in distributed if "document_id" not in columns] == []
        assert connection.execute("SELECT conname FROM pg_constraint WHERE contype = 'f'").fetchall() == []
        assert connection.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").fetchall() == []
