"""`import_table`: what other libraries' tables hold is kept, bit for bit; what cannot be is named."""

from functools import partial
from itertools import product

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from semlex import BulkIngestConfig, Client, SyncClient
from semlex.errors import ConfigurationError, ConnectionFailedError, DuplicateError, ModelMismatchError, PrivilegeError
from semlex.store import tables as store_tables
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES
from tests.support.databases import new_role
from tests.support.filter_trees import STORABLE, values
from tests.support.foreign_tables import COLLECTION, KINDS, Row, ids, stored_rows
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_opened

SMALL = BulkIngestConfig(batch_size=4, small_batch_rows=0)
names = st.text(STORABLE, min_size=1, max_size=8).filter(lambda key: key not in ("title", "headings"))
rows_of_all_kinds = st.lists(
    st.tuples(
        st.text(STORABLE, min_size=1).filter(str.strip),
        st.dictionaries(names, values, max_size=4),
        # Halves are numbers of float32, too, and none of these is so small that a cosine could not be computed.
        st.lists(st.floats(-1000, 1000, width=16).filter(lambda x: x == 0 or abs(x) > 0.001), min_size=3, max_size=3),
        st.lists(st.floats(2.0**-20, 2.0**20, width=32), min_size=3, max_size=3),
    ).filter(lambda row: any(row[2])),
    max_size=12,
)
retriever = partial(sync_opened, model="none", collection="moved", bulk=SMALL)


@pytest.fixture
def source(database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def moved(database_url):
    with retriever(database_url) as opened:
        yield opened


def plain(count, first=0):
    return [Row(f"r{n}", f"apple number{n}", f"[{n + 1},1,0.1]", {"n": n}) for n in range(first, first + count)]


def made(source, layout="haystack", count=0, **options):
    """Make a table of this layout with `count` plain rows; return its kind."""
    kind = KINDS[layout]
    kind.make(source, **options)
    kind.fill(source, plain(count))
    return kind


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "storage"), [*((layout, "vector") for layout in KINDS), ("haystack", "halfvec")])
def test_texts_ids_metadata_and_bits_are_equal(database_url, source, layout, storage):
    with retriever(database_url, vector_storage=storage) as moved:
        kind, numbers, every = made(source, layout, vector_type=f"{storage}(3)"), 2 if storage == "halfvec" else 3, []

        @settings(OWN_ROWS, max_examples=examples(10, full=10_000))
        @given(rows=rows_of_all_kinds)
        def check(rows):
            source.execute(f"TRUNCATE {kind.table}")
            moved.delete(every)
            every[:] = [f"é {number}" for number in range(len(rows))]
            named = zip(every, rows, strict=True)
            kind.fill(source, [Row(name, row[0], str(row[numbers]), row[1]) for name, row in named])
            report = moved.tables.import_table(kind.name)
            assert (report.layout, report.vector_type, report.problems) == (kind.layout, storage, [])
            assert (report.rows, report.taken, report.written, report.skipped) == (len(rows), len(rows), len(rows), 0)
            assert report.metadata_keys == sorted({key for row in rows for key in row[1]})
            if rows:
                assert stored_rows(database_url, "moved") == kind.rows(source)

        check()


@pytest.mark.parametrize("layout", KINDS)
def test_halves_become_whole_numbers_without_a_change(database_url, source, moved, layout):
    kind = made(source, layout, vector_type="halfvec(3)")
    kind.fill(source, [Row("a", "apple", "[0.1,-0.33325,65504]", {}), Row("b", "pear", "[6e-8,1,-0.0]", None)])
    moved.tables.import_table(kind.name)
    key, _, vector, _ = kind.columns
    expected = source.execute(f"SELECT {key}, vector_send({vector}::vector) FROM {kind.table}").fetchall()
    assert {name: row[2] for name, row in stored_rows(database_url, "moved").items()} == dict(expected)


def test_vectors_that_a_collection_rounds_are_told(database_url, source, moved):
    kind = made(source, count=2)
    kind.fill(source, [Row("big", "apple", "[1e6,1,1]", {})])
    with retriever(database_url, vector_storage="halfvec", collection="halves") as halves:
        report = halves.tables.import_table(kind.name)
    assert any("rounded" in warning for warning in report.warnings)
    assert (report.written, report.skipped, [problem.id for problem in report.problems]) == (2, 1, ["big"])
    # A collection of float32 vectors does not round long vectors.
    vector = np.random.default_rng(1).normal(size=600).astype(np.float32)
    vector /= np.linalg.norm(vector)
    kind = made(source, "langchain-postgres", vector_type="vector(600)")
    kind.fill(source, [Row("a", "apple", str(vector.tolist()), {})])
    assert moved.tables.import_table(kind.name).warnings == []
    assert np.array_equal(moved.embeddings.vectors(["a"])["a"], vector)


def test_a_node_of_llama_index_is_part_of_its_document(source, moved):
    old = '{"year": 2001, "ref_doc_id": "None"}'  # as old versions stored it
    made(source, "llama-index", 1).fill(source, [Row("old", "apple", "[1,2,3]", old)])
    moved.tables.import_table("li_docs", layout="llama-index")
    found = {hit.id: (hit.parent_id, hit.metadata) for hit in moved.search("apple", mode="keyword")}
    assert found == {"old": (None, {"year": 2001, "ref_doc_id": "None"}), "r0": ("d", {"n": 0})}


def test_columns_beside_the_layout_are_metadata(source, moved):
    source.execute(
        "CREATE TABLE lc (langchain_id uuid PRIMARY KEY, content text NOT NULL, embedding vector(2) NOT NULL, "
        "content_tsv tsvector NOT NULL, year int, price numeric, ratio float8, at timestamptz, tags text[], extra json,"
        " raw bytea, langchain_metadata json);"
        "INSERT INTO lc VALUES ('00000000-0000-0000-0000-00000000000a', 'apple', '[1,2]', '', 2020, 1.25, 0.1, "
        "'2024-01-02 03:04:05+02', '{a,b}', '{\"k\": null}', '\\x00', '{\"n\": null, \"year\": 7}'), "
        "('00000000-0000-0000-0000-00000000000b', 'pear', '[1,2]', '', NULL, NULL, NULL, NULL, NULL, "
        "'null', NULL, NULL)"
    )
    assert moved.tables.import_table("lc").left_out == {"raw": 1}
    [apple] = moved.search("apple", mode="keyword")
    assert apple.id == "00000000-0000-0000-0000-00000000000a"
    others = {"at": "2024-01-02T01:04:05+00:00", "tags": ["a", "b"], "extra": {"k": None}}
    assert apple.metadata == {"n": None, "year": 2020, "price": 1.25, "ratio": 0.1} | others
    assert [hit.metadata for hit in moved.search("pear", mode="keyword")] == [{}]
    moved.tables.import_table("lc", metadata_fields=["year"])
    assert moved.search("apple", mode="keyword")[0].metadata == {"n": None, "year": 2020}
    # Any table with vectors can be imported if its columns are named.
    source.execute(
        'CREATE TABLE "My Items" (nr int, body text, "Vec" halfvec(2), kind text); '
        "INSERT INTO \"My Items\" VALUES (7, 'plum', '[1,2]', 'fruit'), (NULL, 'pear', '[1,2]', 'fruit')"
    )
    named = {"id_field": "nr", "text_field": "body", "vector_field": "Vec"}
    report = moved.tables.import_table("My Items", layout="pgvector", **named)
    assert (report.written, report.reasons) == (1, {"nr: missing": 1})
    [hit] = moved.search("plum", mode="keyword")
    assert (hit.id, hit.metadata) == ("7", {"kind": "fruit"})


LONG = "x" * (MAX_ID_BYTES + 1)
WRONG = {
    "langchain-postgres": {
        "content: too_short": Row("w", "", "[1,2,3]", {}),
        "content: too_long": Row("w", "x" * (MAX_CHUNK_BYTES + 1), "[1,2,3]", {}),
        "langchain_id: too_long": Row(LONG, "pear", "[1,2,3]", {}),
        "langchain_id: missing": Row("", "pear", "[1,2,3]", {}),
        "embedding: all_zero": Row("w", "pear", "[0,0,0]", {}),
        "langchain_metadata: nul": Row("w", "pear", "[1,2,3]", '{"a": "\\u0000"}'),
        "langchain_metadata: lone_surrogate": Row("w", "pear", "[1,2,3]", '{"a": "\\ud800"}'),
        "langchain_metadata: wrong_type": Row("w", "pear", "[1,2,3]", "[1]"),
        "langchain_metadata: too_deep": Row("w", "pear", "[1,2,3]", '{"a": ' + "[" * 99 + "]" * 99 + "}"),
        "langchain_metadata: not_finite": Row("w", "pear", "[1,2,3]", '{"a": 1e999}'),
    },
    "langchain-pgvector": {
        "document: missing": Row("w", None, "[1,2,3]", {}),
        "embedding: missing": Row("w", "pear", None, {}),
        "embedding: wrong_dimension": Row("w", "pear", "[1,2]", {}),
        "id: too_long": Row(LONG, "pear", "[1,2,3]", {}),
    },
    "llama-index": {
        "node_id: missing": Row(None, "pear", "[1,2,3]", {}),
        "embedding: missing": Row("w", "pear", None, {}),
    },
    "haystack": {"content: missing": Row("w", None, "[1,2,3]", {}), "embedding: missing": Row("w", "pear", None, {})},
}


@pytest.mark.parametrize("layout", WRONG)
def test_a_row_that_cannot_be_taken_is_named_and_the_others_are_stored(database_url, source, moved, layout):
    kind, names = KINDS[layout], sorted(str(row.id) for row in plain(10))
    kind.make(source, "vector" if any(reason.endswith("dimension") for reason in WRONG[layout]) else "vector(3)")
    for reason, wrong in WRONG[layout].items():
        moved.delete(names)
        source.execute(f"TRUNCATE {kind.table} RESTART IDENTITY")
        kind.fill(source, [*plain(5), wrong, *plain(5, 5)])
        dry = moved.tables.import_table(kind.name, dry_run=True)
        assert source.execute("SELECT count(*) FROM semlex.moved_chunk").fetchone() == (0,)
        report = moved.tables.import_table(kind.name)
        for one in (dry, report):
            assert (one.rows, one.taken, one.skipped, one.reasons) == (11, 10, 1, {reason: 1})
            [problem] = one.problems
            assert (problem.row, problem.id) == (5, "id 6" if wrong.id is None else wrong.id[:80] or None)
            for secret in (wrong.text, wrong.vector):
                assert not secret or secret not in str(problem)
        assert (report.written, sorted(stored_rows(database_url, "moved"))) == (10, names)


def test_wrong_rows_blobs_and_other_dimensions_are_reported(source, moved):
    kind = made(source)
    kind.fill(source, [Row(f"w{number}", None, None, {}) for number in range(150)])
    report = moved.tables.import_table(kind.name)
    assert (report.rows, report.skipped, report.written, report.dimensions) == (150, 150, 0, None)
    assert (report.reasons, len(report.problems)) == ({"content: missing": 150, "embedding: missing": 150}, 100)
    source.execute("TRUNCATE haystack_docs")
    kind.fill(source, plain(3))
    source.execute("UPDATE haystack_docs SET blob_data = 'x', blob_mime_type = 'a/b' WHERE id <> 'r0'")
    report = moved.tables.import_table("haystack_docs")
    assert (report.written, report.left_out) == (3, {"blob_data": 2, "blob_mime_type": 2})
    made(source, "langchain-postgres", vector_type="vector(2)").fill(source, [Row("other", "apple", "[1,2]", {})])
    with pytest.raises(ModelMismatchError, match="dimension"):
        moved.tables.import_table("lc_docs")
    assert ids(moved, "apple") == ["r0", "r1", "r2"]


@pytest.mark.parametrize("layout", KINDS)
def test_a_second_run_updates_and_never_doubles(database_url, source, moved, layout):
    kind = made(source, layout, 9)
    for _ in range(2):
        assert moved.tables.import_table(kind.name).written == 9
        assert stored_rows(database_url, "moved") == kind.rows(source)
    key, text, vector, _ = kind.columns
    source.execute(f"UPDATE {kind.table} SET {text} = 'plum', {vector} = '[7,8,9]' WHERE {key} = 'r3'")
    kind.fill(source, plain(3, 20))
    assert (moved.tables.import_table(kind.name, on_duplicate="skip").written, ids(moved, "plum")) == (3, [])
    with pytest.raises(DuplicateError):
        moved.tables.import_table(kind.name, on_duplicate="fail")
    moved.tables.import_table(kind.name)
    assert (stored_rows(database_url, "moved"), ids(moved, "plum")) == (kind.rows(source), ["r3"])
    nearest = source.execute(f"SELECT {key} FROM {kind.table} ORDER BY {vector} <=> '[5,1,0.1]'").fetchall()
    assert [(hit.id,) for hit in moved.search(vector=[5, 1, 0.1], top_k=99)] == nearest


@pytest.mark.slow
def test_of_a_node_that_was_added_again_the_latest_counts(source, moved):
    """LlamaIndex adds a second row of the same node."""
    kind = made(source, "llama-index")

    @settings(OWN_ROWS, max_examples=examples(10, full=10_000))
    @given(added=st.lists(st.sampled_from("abcde"), max_size=15))
    def check(added):
        source.execute("TRUNCATE data_li_docs")
        moved.delete(list("abcde"))
        rows = [Row(name, f"apple {n}", f"[{n + 1},1,1]", {"n": n}) for n, name in enumerate(added)]
        kind.fill(source, rows)
        source.execute("UPDATE data_li_docs SET text = text WHERE id % 2 = 1")  # another order on disk
        report = moved.tables.import_table("li_docs")
        latest = {row.id: row.metadata["n"] for row in rows}
        assert (report.written, report.repeated) == (len(latest), len(rows) - len(latest))
        assert {hit.id: hit.metadata["n"] for hit in moved.search("apple", mode="keyword", top_k=99)} == latest

    check()


def test_it_is_one_snapshot(monkeypatch, source, moved):
    """What others add, change and delete meanwhile is not seen."""
    monkeypatch.setattr(store_tables, "PART_BYTES", 100)
    kind, told = made(source, count=50), []

    def interfere(progress):
        if not told:
            kind.fill(source, plain(5, 100))
            source.execute("DELETE FROM haystack_docs WHERE id = 'r40'; UPDATE haystack_docs SET content = 'plum'")
        told.append(progress)

    report = moved.tables.import_table("haystack_docs", progress=interfere)
    assert (report.rows, report.written) == (50, 50)
    assert len(told) > 5
    assert [(one.stage, one.total, one.unit) for one in told[:-1]] == [("write", 50, "rows")] * (len(told) - 1)
    assert len(ids(moved, "apple")) == 50


def test_only_the_rows_of_the_named_collection(database_url, source):
    made(source, "langchain-pgvector", 4)
    source.execute(
        "INSERT INTO langchain_pg_embedding SELECT id || '!', (SELECT uuid FROM langchain_pg_collection WHERE "
        "name = 'other'), embedding, document, cmetadata FROM langchain_pg_embedding WHERE id <> 'r0'"
    )
    with SyncClient(database_url, "none", use_reranking=False) as client:
        report = client.collection("not_there").tables.import_table(COLLECTION, dry_run=True)
        assert (report.rows, report.taken, report.written, client.collections()) == (4, 4, 0, [])
        moved = client.collection("moved")
        assert moved.tables.import_table(COLLECTION).written == 4
        assert moved.tables.import_table("other", layout="langchain-postgres").written == 3
        assert len(ids(moved, "apple")) == 7


@pytest.fixture
def libraries(source):
    """Make the tables of all four libraries."""
    for layout in KINDS:
        made(source, layout, 6)
    return source


TABLES = [
    ("lc_docs", None, "public.lc_docs"), ("lc_docs", "langchain-postgres", "public.lc_docs"),
    (COLLECTION, None, "collection 'old docs' of public.langchain_pg_embedding"),
    (COLLECTION, "langchain-postgres", "collection 'old docs' of public.langchain_pg_embedding"),
    (COLLECTION, "langchain-pgvector", "collection 'old docs' of public.langchain_pg_embedding"),
    ("li_docs", None, "public.data_li_docs"), ("LI_Docs", "llama-index", "public.data_li_docs"),
    ("data_li_docs", "llama-index", "public.data_li_docs"), ("haystack_docs", None, "public.haystack_docs"),
]  # fmt: skip
UNCLEAR = [
    ("nothing", {}, r"no table .* 'nothing' .*this schema has 'data_li_docs' \(llama-index\).*'old docs'"),
    ("nothing", {"source_schema": "semlex"}, "no table of a known layout: name another schema"),
    ("lc_docs", {"source_schema": "nowhere"}, "schema 'nowhere'"),
    ("lc_docs", {"layout": "haystack"}, "has no column 'id', 'blob_data'.*columns are 'langchain_id'"),
    ("lc_docs", {"layout": "pgvector", "text_field": "content"}, "has no column 'id', 'vector'"),
    ("lc_docs", {"id_field": "nr"}, "match no known layout"),
    ("lc_docs", {"layout": "langchain-postgres", "metadata_fields": ["nr"]}, "no column 'nr'"),
    ("langchain_pg_embedding", {"layout": "langchain-pgvector"}, "give the name of one of these collections"),
    ("odd", {}, "match no known layout"),
    ("odd", {"layout": "pgvector", "text_field": "t", "vector_field": "t"}, "other than vectors in its column 't'"),
    ("plain", {"layout": "pgvector"}, "no table with vectors"),
    ("lc_docs", {"layout": "chroma"}, "layout must be one of langchain-postgres"),
    ("", {}, "table"),
    ("twice", {"layout": "langchain-postgres"}, "langchain-pgvector"),
    ("twice", {}, r"the table 'twice' \(--from langchain-postgres\) or the collection 'twice'"),
    ("two", {}, "may be the table 'two'.* or the table 'data_two'"),
]


def test_a_table_is_found_by_its_name_and_layout(libraries, moved):
    libraries.execute(
        "CREATE TABLE odd (id text, t text, v vector); CREATE TABLE plain (id text, text text, vector text);"
        "CREATE TABLE twice AS SELECT * FROM lc_docs; CREATE TABLE two AS SELECT * FROM data_li_docs;"
        "CREATE TABLE data_two AS SELECT * FROM data_li_docs;"
        "INSERT INTO langchain_pg_collection VALUES (gen_random_uuid(), 'twice')"
    )
    for name, layout, table in TABLES:
        report = moved.tables.import_table(name, layout=layout, dry_run=True)
        assert (report.table, report.rows) == (table, 6)
        assert report.layout in (layout, "langchain-pgvector") or layout is None
    for (name, options, message), dry_run in product(UNCLEAR, (True, False)):
        with pytest.raises(ConfigurationError, match=message):
            moved.tables.import_table(name, **options, dry_run=dry_run)
    assert moved.tables.import_table("twice", layout="langchain-pgvector").rows == 0
    named = {"id_field": "key", "text_field": "body", "vector_field": "v", "metadata_field": "extra"}
    columns = ("langchain_id", "content", "embedding", "langchain_metadata")
    for column, name in zip(columns, named.values(), strict=True):
        libraries.execute(f"ALTER TABLE lc_docs RENAME {column} TO {name}")
    assert moved.tables.import_table("lc_docs", layout="langchain-postgres", **named).written == 6
    assert moved.search("apple", mode="keyword", top_k=9)[0].metadata.keys() == {"n"}


def test_views_other_schemas_and_other_databases_are_imported(database_url, libraries, moved, empty_database_url):
    libraries.execute(
        "CREATE VIEW some_docs AS SELECT * FROM haystack_docs WHERE id <> 'r3'; "
        "CREATE MATERIALIZED VIEW kept_docs AS SELECT * FROM some_docs"
    )
    for view in ("some_docs", "kept_docs"):
        assert moved.tables.import_table(view).written == 5
    assert "r3" not in ids(moved, "apple")
    with retriever(empty_database_url) as elsewhere:
        with pytest.raises(ConfigurationError, match="source_url="):
            elsewhere.tables.import_table("lc_docs")
        assert elsewhere.tables.import_table("lc_docs", source_url=database_url).written == 6
        assert stored_rows(empty_database_url, "moved") == KINDS["langchain-postgres"].rows(libraries)
    libraries.execute('CREATE SCHEMA "its ""own"; ALTER TABLE lc_docs SET SCHEMA "its ""own"')
    libraries.execute('ALTER TABLE "its ""own".lc_docs RENAME TO "ta;b\'le"')
    assert moved.tables.import_table("ta;b'le", source_schema='its "own').written == 6
    assert sorted(stored_rows(database_url, "moved")) == [row.id for row in plain(6)]
    # Errors never show the password of an address.
    secret = "fiddlesticks"  # noqa: S105
    for url, kind, message in (
        (f"postgresql://me:{secret}@127.0.0.1:1/db", ConnectionFailedError, "host=127.0.0.1"),
        (f"postgresql+psycopg://me:{secret}@127.0.0.1/db", ConfigurationError, "begins with postgresql\\+psycopg"),
        ("", ConfigurationError, "the database URL is empty"),
    ):
        with pytest.raises(kind, match=message) as refused:
            moved.tables.import_table("lc_docs", source_url=url)
        assert secret not in str(refused.value)


def test_a_role_needs_no_more_than_to_read(database_url, libraries, moved):
    with new_role(database_url) as role:
        reader = make_conninfo(database_url, user=role)
        with pytest.raises(PrivilegeError):
            moved.tables.import_table("lc_docs", source_url=reader)
        # Rows are there only for whom no time limit holds.
        unlimited = "SELECT * FROM lc_docs WHERE current_setting('statement_timeout') = '0'"
        libraries.execute(f"CREATE VIEW unlimited AS {unlimited}; GRANT SELECT ON unlimited TO {role}")
        for setting in ("statement_timeout = '10min'", "jit = off", "search_path = nothing", "TimeZone = 'Asia/Tokyo'"):
            libraries.execute(f"ALTER ROLE {role} SET {setting}")
        assert moved.tables.import_table("unlimited", source_url=reader).written == 6


@pytest.mark.usefixtures("libraries")
async def test_a_pool_a_connection_and_a_transaction_of_the_users(database_url):
    pool = AsyncConnectionPool(database_url, min_size=1, max_size=3, open=False)
    async with pool, opened(model="none", pool=pool, collection="moved") as moved:
        assert (await moved.tables.import_table("lc_docs")).written == 6
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection, Client(database_url, "none", use_reranking=False) as client:
        bound = client.collection("bound").using(connection)
        with pytest.raises(ConfigurationError, match="source_url="):
            await bound.tables.import_table("lc_docs")
        await connection.execute("CREATE TABLE mine ()")
        assert (await bound.tables.import_table("lc_docs", source_url=database_url)).written == 6
        await connection.rollback()
        assert await client.collection("bound").search("apple", mode="keyword") == []


@pytest.mark.slow
def test_a_source_that_is_lost_is_told_and_what_is_stored_stays(database_url, source, monkeypatch):
    monkeypatch.setattr("semlex.store.tables.PART_BYTES", 100_000)
    made(source)
    # So many bytes that the server is still sending them when the first batch is stored.
    source.execute(
        "INSERT INTO haystack_docs (id, content, embedding) SELECT 'm' || n, 'pear' || repeat(' ', 10000) || n, "
        "'[1,2,3]' FROM generate_series(1, 1000) AS n"
    )
    reading = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT t.%'"
    with retriever(database_url, bulk=BulkIngestConfig(batch_size=50)) as moved:
        with pytest.raises(ConnectionFailedError, match="read the table"):
            moved.tables.import_table("haystack_docs", progress=lambda _: source.execute(reading))
        assert 0 < moved.count() < 1_000
        assert moved.tables.import_table("haystack_docs").written == 1_000
