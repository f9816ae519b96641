"""Tables in parts: partitions change no answer, and all statements keep to the rules of distributed tables."""

import asyncio
import itertools
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncCursor, sql

from semlex import BulkIngestConfig, Client, CollectionOptions, Document, HnswIndex, IvfflatIndex, NoIndex, SyncClient
from semlex.errors import CollectionSettingsError, ConfigurationError, DuplicateError, StoreError
from semlex.store.indexes import estimate
from semlex.store.indexes.partitions import PartitionedBuild
from semlex.testing import HashEmbedder
from tests.support.databases import execute, set_in_database
from tests.support.distributed_rules import CHANGING_WITH, DISTRIBUTED, LATERAL, PLACES, broken_rules, refused
from tests.support.keyword_index import check_index
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import filled, ids_of
from tests.support.waiting import LIMIT

PARTITIONS = 3
texts = st.lists(st.sampled_from(["key", "door", "vault", "ship", "banana"]), min_size=1, max_size=6).map(" ".join)
documents = st.dictionaries(st.integers(0, 30), st.tuples(texts, st.integers(0, 3)), min_size=1, max_size=12)
FILTERS = (None, {"year": 1}, "year > 1", {"@source_document": "page1.md"})
INDEXES = (None, HnswIndex(), HnswIndex(m=8, quantization="halfvec"), IvfflatIndex(lists=1), NoIndex())


def _added(rows, on_duplicate):
    given = [Document(text, {"year": year}, id=f"d{number}") for number, (text, year) in rows.items()]

    def add(collection, _):
        try:
            return collection.add_documents(given, on_duplicate=on_duplicate)
        except DuplicateError as error:
            return str(error)

    return add


def _files(number, text):
    def index(collection, folder):
        (folder / f"page{number}.md").write_text(f"# Page {number}\n\n{text}\n\n## Section\n\n{text} again.\n")
        report = collection.index(folder)
        return report.added, report.changed, report.unchanged

    return index


steps = st.one_of(
    st.builds(_added, documents, st.sampled_from(["update", "skip", "fail"])),
    st.builds(_files, st.integers(0, 2), texts),
    st.integers(0, 30).map(lambda number: lambda collection, _: collection.delete([f"d{number}"])),
    st.integers(0, 3).map(lambda year: lambda collection, _: collection.delete(filters={"year": year})),
    st.tuples(st.sampled_from(INDEXES), st.booleans()).map(
        lambda wanted: lambda collection, _: sorted(collection.indexes.create(wanted[0], concurrently=wanted[1]))
    ),
    st.sampled_from(["optimize", "rebuild_keyword"]).map(
        lambda name: lambda collection, _: bool(getattr(collection.indexes, name)())
    ),
)


def seen(collection):
    """What a user sees of a collection, without times and sizes."""
    found = {}
    for mode, filters in itertools.product(("hybrid", "vector", "keyword"), FILTERS):
        hits = collection.search("key door", top_k=8, mode=mode, filters=filters)
        found[mode, str(filters)] = [(hit.id, hit.content, hit.keyword_score, hit.vector_score) for hit in hits]
    status = collection.status()
    names = ("documents", "chunks", "embedded", "orphaned_vectors", "sources", "index_postings", "index_problem")
    return found | {
        "chunks": [(one.id, one.content, one.metadata) for one in collection.list_chunks(limit=1000)],
        "counts": [collection.count(filters) for filters in FILTERS],
        "status": [getattr(status, name) for name in names],
        "indexes": [(one.kind, one.element, one.m, one.lists, one.valid) for one in status.vector_indexes],
    }


@pytest.mark.pg16
def test_a_partitioned_collection_is_like_a_plain_one(database_url, tmp_path):
    numbers = iter(range(1_000))

    @settings(OWN_ROWS, max_examples=examples(5))
    @given(st.lists(steps, min_size=2, max_size=6))
    def like_a_plain_one(drawn):
        folder = tmp_path / str(next(numbers))
        (folder / "pages").mkdir(parents=True)
        with SyncClient(database_url, HashEmbedder(8), use_reranking=False) as client:
            for listed in client.collections():  # of an example that failed
                client.drop(listed.name)
            plain = client.collection("plain", options=CollectionOptions(partitions=0))
            parts = client.collection("parts", options=CollectionOptions(partitions=PARTITIONS))
            for step in [_added({99: ("a key", 1)}, "update"), *drawn]:
                assert step(plain, folder / "pages") == step(parts, folder / "pages")
            assert seen(plain) == seen(parts)
            assert (plain.status().partitions, parts.status().partitions) == (0, PARTITIONS)
            check_index(database_url, "parts")
            for name, collection in (("plain", plain), ("parts", parts)):
                collection.tables.dump(folder / name)
                collection.embeddings.change(HashEmbedder(4))
            assert seen(plain) == seen(parts)
            codes = [[one.code for one in client.diagnose(name).findings] for name in ("plain", "parts")]
            assert codes[0] == codes[1]
            # A dump of one is restored as the other.
            client.restore(folder / "parts", "again", partitions=0)
            client.restore(folder / "plain", "back", partitions=2)
            assert seen(client.collection("again")) == seen(client.collection("back"))
            for name in ("plain", "parts", "again", "back"):
                client.drop(name)
        assert execute(database_url, "SELECT relname FROM pg_class WHERE relname ~ '^(plain|parts|again|back)_'") == []

    like_a_plain_one()


TEXTS = {f"t{number}": f"text {number} of the door" for number in range(60)}


def indexes_of(connection):
    """Name of an index -> its oid, whether it is valid, and whether it is a partition of another."""
    found = connection.execute(
        "SELECT i.relname, i.oid, x.indisvalid, i.relispartition FROM pg_index AS x "
        "JOIN pg_class AS i ON i.oid = x.indexrelid WHERE i.relname ~ '^parts_(hnsw|metadata|field)'"
    )
    return {name: figures for name, *figures in found}


async def test_a_build_beside_writers_goes_on_where_it_was_interrupted(database_url, monkeypatch):
    real, begun = PartitionedBuild._build, []

    async def interrupted(build, table, connection):
        begun.append(table)
        if table.endswith("_p1") and interrupts:
            other = replace(build.index, suffix="hnsw_1_p1", table=sql.Identifier("semlex", table))
            await build.create(other, connection)
            raise StoreError("interrupted before it was attached")
        await real(build, table, connection)

    monkeypatch.setattr(PartitionedBuild, "_build", interrupted)
    set_in_database(database_url, "max_parallel_maintenance_workers", "0")  # one partition after another
    async with filled(database_url, TEXTS, collection="parts", partitions=PARTITIONS) as store:
        await store.indexes.create()
        nearest = partial(store.search, "text 7 of the door", top_k=20, mode="vector")
        exact = ids_of(await nearest())
        interrupts, wanted = True, HnswIndex(m=8, quantization="halfvec")
        with pytest.raises(StoreError, match="interrupted"):
            await store.indexes.create(wanted, concurrently=True)
        with psycopg.connect(database_url, autocommit=True) as connection:
            left = indexes_of(connection)
            names = ["parts_hnsw_1_2", "parts_hnsw_1_2_p0", "parts_hnsw_1_p1"]
            assert [left[name][1:] for name in names] == [[False, False], [True, True], [True, False]]
            assert ids_of(await nearest()) == exact
            async with Client(database_url, "none", use_reranking=False) as client:
                findings = (await client.diagnose()).findings
            assert "index_invalid" in [one.code for one in findings]
            begun.clear()
            interrupts = False
            await store.indexes.create(wanted, concurrently=True)
            assert [table[-3:] for table in begun] == ["_p1", "_p2"]
            now = indexes_of(connection)
            assert now["parts_hnsw_1_2_p0"] == left["parts_hnsw_1_2_p0"]
            # The whole replaced index is gone, and what was never attached.
            whole = {f"parts_hnsw_1_2{end}" for end in ("", "_p0", "_p1", "_p2")}
            assert {name for name in now if "hnsw" in name} == whole
            assert all(valid for _, valid, _ in now.values())
            # No figures about the expressions, in no partition.
            targets = "SELECT DISTINCT attstattarget FROM pg_attribute WHERE attrelid = ANY(%s)"
            hnsw = [oid for name, (oid, *_) in now.items() if "hnsw" in name]
            assert connection.execute(targets, [hnsw]).fetchall() == [(0,)]
        (stored,) = (await store.status()).vector_indexes
        assert (stored.name, stored.m, stored.valid, stored.bytes > 0) == ("parts_hnsw_1_2", 8, True, True)
        assert ids_of(await nearest()) == exact


async def test_partitions_are_built_in_as_many_sessions_as_a_build_may_have_workers(database_url, monkeypatch):
    real, together, backends = PartitionedBuild._build, asyncio.Barrier(PARTITIONS), defaultdict(set)

    async def noted(build, table, connection):
        backends[build.index.suffix].add(connection.info.backend_pid)
        async with asyncio.timeout(LIMIT):
            await together.wait()
        await real(build, table, connection)

    monkeypatch.setattr(PartitionedBuild, "_build", noted)
    monkeypatch.setattr(estimate, "MIN_PARALLEL_SECONDS", 0)
    set_in_database(database_url, "max_parallel_maintenance_workers", str(PARTITIONS - 1))
    async with filled(database_url, TEXTS, collection="parts", partitions=PARTITIONS) as store:
        told = []
        built = await store.indexes.create(concurrently=True, progress=told.append)
        assert {suffix: len(pids) for suffix, pids in backends.items()} == dict.fromkeys(built, PARTITIONS)
        assert "hnsw_1" in built
        assert {(step.done, step.total) for step in told if step.total == PARTITIONS} >= {(PARTITIONS, PARTITIONS)}
        assert len(await store.search("text 7 of the door", top_k=60, mode="vector")) == len(TEXTS)


def test_what_cannot_be_partitioned_is_refused(database_url):
    with SyncClient(database_url, "none", use_reranking=False) as client:
        for partitions, name in ((1, "parts"), (-1, "parts"), (65, "parts"), (2, "n" * 41)):
            with pytest.raises(ConfigurationError, match=r"partitions"):
                client.collection(name, options=CollectionOptions(partitions=partitions)).count()
            assert client.collections() == []
        client.collection("n" * 40, options=CollectionOptions(partitions=2)).count()
        with pytest.raises(CollectionSettingsError, match="partitions"):
            client.collection("n" * 40, options=CollectionOptions(partitions=3)).count()


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
BROKEN = {
    "not joined on document_id": (
        "SELECT 1 FROM s.c_chunk AS c JOIN s.c_embedding_1 AS e USING (chunk_id)",
        "SELECT 1 FROM s.c_chunk AS c, s.c_embedding_1 AS e WHERE c.chunk_id = e.chunk_id",
        "SELECT 1 FROM s.c_chunk AS c LEFT JOIN s.c_document AS d ON d.title = c.chunk_id",
        "DELETE FROM s.c_embedding_1 AS e USING s.c_chunk AS c WHERE e.chunk_id = c.chunk_id",
    ),
    "not bound to c by document_id": (
        "SELECT 1 FROM s.c_chunk AS c WHERE EXISTS (SELECT FROM s.c_embedding_1 AS e WHERE e.chunk_id = c.chunk_id)",
        "SELECT (SELECT d.title FROM s.c_document AS d WHERE d.uri = c.source_document) FROM s.c_chunk AS c",
    ),
    "ON CONFLICT without": ("INSERT INTO s.c_chunk (chunk_id) VALUES (%s) ON CONFLICT (chunk_id) DO NOTHING",),
    "on each server": (
        "INSERT INTO s.c_chunk (document_id) VALUES (%s) ON CONFLICT (document_id) DO UPDATE SET updated_at = now()",
    ),
    "moves a row": ("UPDATE s.c_chunk SET document_id = %s",),
    "unique index without": ("CREATE UNIQUE INDEX one ON s.c_chunk (chunk_id)",),
    "key without": (
        "CREATE TABLE s.c_chunk (document_id uuid, chunk_id text PRIMARY KEY)",
        "CREATE TABLE s.c_chunk (document_id uuid, chunk_id text, UNIQUE (chunk_id))",
    ),
    "foreign key": ("CREATE TABLE s.c_chunk (document_id uuid PRIMARY KEY REFERENCES s.c_document)",),
    "SKIP LOCKED": ("SELECT 1 FROM s.c_chunk FOR UPDATE SKIP LOCKED",),
    "MERGE": ("MERGE INTO s.c_chunk AS c USING g ON c.document_id = g.document_id WHEN MATCHED THEN DELETE",),
}


def test_statements_keep_to_the_rules_or_break_one():
    for statement in KEPT:
        assert broken_rules(statement) == [], statement
    for why, statements in BROKEN.items():
        for statement in statements:
            assert any(why in broken for broken in broken_rules(statement)), statement


@pytest.fixture
def statements(monkeypatch):
    """The different statements that programs of this process send."""
    seen = set()

    def noted(method):
        def call(cursor, query, *arguments, **options):
            text = query.as_string(cursor.connection) if isinstance(query, sql.Composable) else query
            seen.update((text.decode() if isinstance(text, bytes) else text).split(";\n"))  # `execute_all` joins them
            return method(cursor, query, *arguments, **options)

        return call

    for name in ("execute", "executemany", "copy", "stream"):
        monkeypatch.setattr(AsyncCursor, name, noted(getattr(AsyncCursor, name)))
    return seen


def use_everything(url, folder, partitions):
    """Writes, searches, reads, follows, changes the model, dumps, restores and deletes."""
    docs = folder / "docs"
    docs.mkdir()
    for number in range(4):
        (docs / f"page{number}.md").write_text(f"# Keys {number}\n\nA key of page {number}.\n\n## Doors\n\nA door.\n")
    execute(url, "CREATE TABLE public.article (id int PRIMARY KEY, body text, year int)")
    execute(url, "INSERT INTO public.article SELECT n, 'article ' || n, n % 2 FROM generate_series(1, 9) AS n")
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
        execute(url, "UPDATE public.article SET body = 'changed' WHERE id = 3; DELETE FROM public.article WHERE id = 4")
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
    for count, text in ((20, "row"), (20, "other row"), (5, "row")):
        vectors = np.random.default_rng(1).random((count, collection.info.embedding.dimensions), np.float32)
        rows = {"id": [f"l{n}" for n in range(count)], "text": [f"{text} {n}" for n in range(count)], "vector": vectors}
        collection.tables.load(rows, skip_unchanged=count == 5)
    collection.tables.read()


def search(collection):
    filters = ({"year": 3}, "year > 5", {"@source_document": "page2.md"})
    for mode in ("hybrid", "vector", "keyword"):
        for options in ({}, *({"filters": one} for one in filters), {"explain": True}, {"max_results": 20}):
            collection.search("key door text", 5, mode=mode, **options)
    collection.search('"a door" key', 5, exclude=["text"])
    collection.search_many(["key", "door"], 3)
    collection.why("page2.md", "key")
    collection.candidates("key")
    collection.context("key")
    collection.documents.get("page2.md")
    collection.checkup(3)
    collection.get(["d1", "x"])
    for read in (collection.list_chunks, collection.count):
        read({"year": 3})
    for read in (collection.documents.list, collection.documents.sources, collection.indexes.optimize):
        read()
    collection.fields.list(values=True)


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
