"""Indexes of vectors, of fields and of equal values: what they find, what the catalog tells, and what they cost."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import product
from typing import get_args

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import Document, _core
from semlex.errors import ConfigurationError, ValidationError
from semlex.filters.fields import Field, field_named
from semlex.filters.tree import ORDER, condition
from semlex.options.collection import DistanceName, StorageName
from semlex.store.indexes.catalog import VectorIndexes, read_vector_indexes
from semlex.store.indexes.choice import other_indexes
from semlex.store.indexes.field_indexes import MAX_PATH_BYTES, FieldIndex, checked_index, read_field_indexes
from semlex.store.indexes.options import HnswIndex, IvfflatIndex, NoIndex, as_text, from_text
from semlex.store.query.filters import parse_filters
from semlex.store.query.vector import register_vector_parameter, vector_leg
from semlex.store.schema.names import Names, TableIndex
from tests.support.databases import execute, set_in_database
from tests.support.filter_trees import STORABLE, numbers, texts
from tests.support.properties import examples
from tests.support.retrievers import opened, sync_opened

pytestmark = pytest.mark.pg16

ROWS, DIMENSIONS = 1500, 64
KINDS = {
    "hnsw": HnswIndex(),
    "hnsw halfvec": HnswIndex(m=8, ef_construction=40, quantization="halfvec"),
    "hnsw bit": HnswIndex(quantization="bit"),
    "ivfflat": IvfflatIndex(lists=20, probes=8),
    "none": NoIndex(),
}


def clustered(rows, dimensions, seed=5):
    """Vectors of norm 1 out of a space of 12 dimensions, as those of texts lie in one of few."""
    chance = np.random.default_rng(seed)
    inner = chance.normal(size=(rows, 12)) @ np.random.default_rng(1).normal(size=(12, dimensions))
    return (inner / np.linalg.norm(inner, axis=1, keepdims=True)).astype(np.float32)


def documents(rows):
    return [Document(f"text {row}", {"odd": bool(row % 2)}, id=str(row)) for row in range(rows)]


def scores(vectors, query, distance):
    """The exact similarities, the larger the nearer."""
    if distance == "l2":
        return np.asarray(-np.linalg.norm(vectors - query, axis=1), dtype=np.float64)
    return np.asarray(vectors @ query, dtype=np.float64)


async def plan_of(url, retriever, query):
    """How the server finds the ten nearest vectors where it may not read all of them."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        register_vector_parameter(connection)
        await connection.execute("SET enable_seqscan = off")
        indexes = await read_vector_indexes(connection, retriever.info)
        everything = parse_filters(None, retriever.info.names)
        (statement,) = vector_leg(retriever.info, query, 10, everything, indexes=indexes).prepare(None).statements
        text = statement.text if isinstance(statement.text, bytes) else statement.text.as_bytes(connection)
        cursor = await connection.execute(b"EXPLAIN " + text, statement.parameters)
        return "\n".join(line for (line,) in await cursor.fetchall())


@pytest.fixture(scope="module", params=sorted(KINDS))
def built(request, new_database):
    """A collection with an index of each kind; the tests only read it."""
    vectors = clustered(ROWS, DIMENSIONS)
    with sync_opened(new_database(), "none") as retriever:
        retriever.add_documents(documents(ROWS), vectors)
        retriever.indexes.create(KINDS[request.param])
        yield request.param, retriever, vectors


@pytest.mark.slow
@given(number=st.integers(0, ROWS - 1), top_k=st.sampled_from([1, 10, 100, 1000]), odd=st.sampled_from([None, True]))
def test_k_rows_with_their_exact_scores(built, number, top_k, odd):
    _, retriever, vectors = built
    filters = {} if odd is None else {"odd": odd}
    hits = retriever.search(vector=vectors[number], top_k=top_k, filters=filters)
    passing = ROWS if odd is None else ROWS // 2
    assert len(hits) == len({hit.id for hit in hits}) == min(top_k, passing)
    if odd is None or number % 2:
        assert hits[0].id == str(number)
    exact = vectors @ vectors[number]
    found = [hit.vector_score for hit in hits]
    assert found == pytest.approx([exact[int(hit.id)] for hit in hits], abs=1e-5)
    assert found == sorted(found, reverse=True)


@pytest.mark.slow
def test_how_far_a_search_looks_and_what_it_finds(built):
    kind, retriever, vectors = built
    shares = []
    for query in clustered(40, DIMENSIONS, seed=6):
        nearest = {str(row) for row in np.argsort(-(vectors @ query))[:10]}
        shares.append(len(nearest & {hit.id for hit in retriever.search(vector=query, top_k=10)}) / 10)
    assert np.mean(shares) >= {"none": 1.0, "hnsw bit": 0.9}.get(kind, 0.95)

    query = clustered(1, DIMENSIONS, seed=9)[0]
    hits = retriever.search(vector=query, top_k=10, tuning={"ef_search": 1000, "probes": 20})
    assert [hit.id for hit in hits] == [str(row) for row in np.argsort(-(vectors @ query))[:10]]
    near = {
        "hnsw": "vector index, ef_search 1000",
        "hnsw halfvec": "vector index, ef_search 1000, 1000 of halfvec rescored",
        "hnsw bit": "vector index, ef_search 1000, 1000 of bit rescored",
        "ivfflat": "vector index, probes 20",
        "none": "exact, all vectors",
    }[kind]
    assert hits.legs["vector"].plan == near
    if kind == "ivfflat":
        assert retriever.search(vector=query).legs["vector"].plan == "vector index, probes 8"
        assert retriever.search(vector=query, tuning={"probes": 1}).legs["vector"].plan == "vector index, probes 1"

    # More vectors are searched with a longer list.
    stored, everything = retriever.status().vector_indexes, parse_filters(None, retriever.info.names)
    for rows, size in ((0, 120), (100_000, 120), (1_000_000, 320), (10_000_000, 520)):
        indexes = VectorIndexes(stored=stored, rows=rows)
        leg = vector_leg(retriever.info, vectors[0], 10, everything, indexes=indexes)
        assert leg.settings.get("hnsw__ef_search") == (None if kind == "ivfflat" else size)


@pytest.mark.slow
def test_the_catalog_tells_what_there_is(built):
    kind, retriever, _ = built
    wanted, indexes = KINDS[kind], retriever.status().vector_indexes
    if isinstance(wanted, NoIndex):
        assert indexes == ()
        return
    (index,) = indexes
    assert (index.valid, index.bytes > 50_000, index.kind) == (True, True, kind.split()[0])
    assert index.element == ("vector" if isinstance(wanted, IvfflatIndex) else wanted.quantization or "vector")
    expected = (wanted.m, wanted.ef_construction, None) if isinstance(wanted, HnswIndex) else (None, None, 20)
    assert (index.m, index.ef_construction, index.lists) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_with_every_distance_and_storage(database_url, kind):
    set_in_database(database_url, "enable_seqscan", "off")  # so that so few rows are found by their index
    vectors = clustered(200, 32) * np.linspace(0.5, 2.0, 200, dtype=np.float32)[:, None]
    for distance, storage in product(get_args(DistanceName), get_args(StorageName)):
        if kind == "hnsw bit" and distance != "cosine":
            continue
        name = f"{distance}_{storage}"
        made = {"collection": name, "distance": distance, "vector_storage": storage}
        async with opened(database_url, "none", keyword="none", **made) as retriever:
            await retriever.add_documents(documents(200), vectors)
            await retriever.indexes.create(KINDS[kind])
            expected = scores(vectors, vectors[7], distance)
            if distance == "cosine":
                expected /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(vectors[7])
            # The index chooses its lists and levels at random, so one of ten neighbours may be missing.
            hits = await retriever.search(vector=vectors[7], top_k=10, tuning={"ef_search": 400, "probes": 20})
            assert len(hits) == 10, name
            nearest = set(np.argsort(-expected)[:10])
            assert len(nearest & {int(hit.id) for hit in hits}) >= 9, name
            found = [hit.vector_score for hit in hits]
            assert found == pytest.approx([expected[int(hit.id)] for hit in hits], rel=2e-3, abs=2e-3), name
            scan = f"Index Scan using {name}_" + ("ivfflat_1" if kind == "ivfflat" else "hnsw_1")
            assert (scan in await plan_of(database_url, retriever, vectors[7])) == (kind != "none"), name


@pytest.mark.parametrize(
    ("dimensions", "storage", "distance", "element"),
    [
        *((8, "vector", "cosine", "halfvec"), (2560, "halfvec", "cosine", "halfvec")),
        *((2000, "vector", "l2", "vector"), (2001, "vector", "l2", "halfvec"), (4001, "vector", "l2", None)),
        *((4000, "vector", "inner_product", "halfvec"), (4000, "vector", "cosine", "halfvec")),
        *((4001, "vector", "cosine", "bit"), (4001, "halfvec", "cosine", "bit")),
    ],
)
async def test_what_the_default_index_holds_of_each_vector(database_url, dimensions, storage, distance, element):
    vectors = clustered(30, dimensions)
    async with opened(database_url, "none", keyword="none", vector_storage=storage, distance=distance) as retriever:
        await retriever.add_documents(documents(30), vectors)
        assert ("hnsw_1" in await retriever.indexes.create()) == (element is not None)
        found = [index.element for index in (await retriever.status()).vector_indexes]
        assert found == ([] if element is None else [element])
        for row in range(0, 30, 7):
            assert (await retriever.search(vector=vectors[row], top_k=1))[0].id == str(row)


async def test_numbers_that_float16_cannot_hold_are_indexed_where_directions_are_compared(database_url):
    vectors = clustered(60, 32) * np.array([1e-9, 1.0, 1e9], dtype=np.float32).repeat(20)[:, None]
    async with opened(database_url, "none", keyword="none") as retriever:
        await retriever.add_documents(documents(60), vectors)
        await retriever.indexes.create(HnswIndex(quantization="halfvec"))
        for row in (3, 23, 43):
            hits = await retriever.search(vector=vectors[row], top_k=5)
            assert hits[0].id == str(row)
            assert hits[0].vector_score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
async def test_another_kind_takes_the_place_of_the_first(database_url):
    vectors = clustered(300, 16)
    async with opened(database_url, "none", keyword="none") as retriever:
        await retriever.add_documents(documents(300), vectors)
        assert (await retriever.indexes.create())[-1:] == ["hnsw_1"]
        for index, made, dropped in (
            (None, [], []),
            (HnswIndex(m=8), ["hnsw_1_2"], ["default_collection_hnsw_1"]),
            (HnswIndex(m=8), [], []),
            (None, [], []),
            (IvfflatIndex(lists=3), ["ivfflat_1"], ["default_collection_hnsw_1_2"]),
            (IvfflatIndex(lists=3, probes=2), [], []),
            (IvfflatIndex(), [], []),
            (HnswIndex(quantization="bit"), ["hnsw_1"], ["default_collection_ivfflat_1"]),
            (NoIndex(), [], ["default_collection_hnsw_1"]),
            (None, [], []),
            (HnswIndex(), ["hnsw_1"], []),
        ):
            built = await retriever.indexes.create(index)
            assert (list(built), built.dropped, built.busy) == (made, dropped, []), index
            hits = await retriever.search(vector=vectors[7], top_k=3)
            assert hits[0].id == "7"


async def test_what_was_asked_for_is_built_again(database_url, monkeypatch):
    """By a load, after somebody has dropped it; no index was asked for is kept, too."""
    monkeypatch.setattr("semlex.store.indexes.choice.INDEX_FROM_ROWS", 50)
    async with opened(database_url, "none", keyword="none") as retriever:
        await retriever.add_documents(documents(40), clustered(40, 16))
        await retriever.indexes.create(IvfflatIndex(lists=4, probes=3))
        execute(database_url, "DROP INDEX semlex.default_collection_ivfflat_1")
        await retriever.add_documents(documents(60), clustered(60, 16))
        assert await retriever.indexes.wait() == []
        (index,) = (await retriever.status()).vector_indexes
        assert (index.kind, index.lists, index.is_ours) == ("ivfflat", 4, True)
        await retriever.indexes.create(NoIndex())
        await retriever.add_documents(documents(70), clustered(70, 16))
        assert await retriever.indexes.wait() == []
        assert (await retriever.status()).vector_indexes == ()


@pytest.mark.slow
async def test_an_index_of_somebody_else_is_used_and_left_alone(database_url):
    vectors = clustered(300, 16)
    async with opened(database_url, "none", keyword="none") as retriever:
        await retriever.add_documents(documents(300), vectors)
        of = "USING ivfflat (embedding vector_cosine_ops) WITH (lists = 4)"
        execute(database_url, f"CREATE INDEX theirs ON semlex.default_collection_embedding_1 {of}")
        built = await retriever.indexes.create(NoIndex())
        assert built.dropped == []
        (index,) = (await retriever.status()).vector_indexes
        assert (index.name, index.is_ours) == ("theirs", False)
        assert (await retriever.search(vector=vectors[7], top_k=3))[0].id == "7"
        assert "Index Scan using theirs" in await plan_of(database_url, retriever, vectors[7])


def test_the_stored_form_comes_back_and_a_comment_of_somebody_else_is_no_index():
    for index in KINDS.values():
        assert from_text(as_text(index)) == index
    for text in (None, "", "null", "[]", "1", '{"index": "other"}', '{"index": "hnsw", "m": 0}', "{"):
        assert from_text(text) is None, text


@pytest.mark.parametrize(
    ("kind", "wrong", "values"),
    [
        *(
            (HnswIndex, "m", {"m": 1}),
            (HnswIndex, "m", {"m": 101}),
            (HnswIndex, "quantization", {"quantization": "int8"}),
        ),
        *((HnswIndex, "ef_construction", {"ef_construction": n, "m": m}) for n, m in ((99, 50), (1001, 16))),
        *((IvfflatIndex, "lists", {"lists": 0}), (IvfflatIndex, "lists", {"lists": 40_000})),
        (IvfflatIndex, "probes", {"lists": 10, "probes": 11}),
    ],
)
def test_numbers_out_of_range(kind, wrong, values):
    with pytest.raises(ConfigurationError, match=f"{wrong} must be"):
        kind(**values)


@pytest.mark.parametrize(
    ("index", "dimensions", "distance", "message"),
    [
        (HnswIndex(quantization="bit"), 8, "l2", "works only with distance 'cosine'"),
        (HnswIndex(quantization="bit"), 8, "inner_product", "quantization='halfvec', or none"),
        (HnswIndex(quantization="halfvec"), 4001, "cosine", "use HnswIndex"),
        (HnswIndex(), 4001, "l2", "use NoIndex"),
        (IvfflatIndex(), 4001, "cosine", "at most 4,000 dimensions of halfvec; these vectors have 4,001"),
    ],
)
async def test_an_index_that_pgvector_does_not_have(database_url, index, dimensions, distance, message):
    async with opened(database_url, "none", keyword="none", distance=distance) as retriever:
        with pytest.raises(ConfigurationError, match="has no vectors"):
            await retriever.indexes.create(index)
        await retriever.add_documents(documents(3), clustered(3, dimensions))
        with pytest.raises(ConfigurationError, match=message):
            await retriever.indexes.create(index)
        with pytest.raises(ConfigurationError, match=message):
            await retriever.indexes.estimate(index)
        assert (await retriever.status()).vector_indexes == ()


NAMES = Names("semlex", "docs")

HOSTILE = ["", "'", "''", '"', "\\", "{", "}", ",", "NULL", "%", "%s", "%(x)s", "::text[]", "a'::text[]", "$$"]
hostile_parts = st.sampled_from(HOSTILE) | st.text(STORABLE, max_size=6)
hostile_fields = st.lists(hostile_parts, min_size=1, max_size=4).map(lambda parts: Field(tuple(parts)))


@pytest.fixture(scope="module")
def chunks(server_url):
    """A connection with a table of metadata under the name of a collection's."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")
        connection.execute("CREATE SCHEMA semlex")
        connection.execute("CREATE TABLE semlex.docs_chunk (n int, metadata jsonb, created_at timestamptz)")
        yield connection
        connection.execute("DROP SCHEMA semlex CASCADE")


def store(connection, found):
    rows = "SELECT n, t::jsonb, now() FROM unnest(%s::text[]) WITH ORDINALITY AS t(t, n)"
    texts = [_core.to_json(one).decode() for one in found]
    connection.execute("TRUNCATE semlex.docs_chunk")
    connection.execute(f"INSERT INTO semlex.docs_chunk {rows}", [texts])


@contextmanager
def indexed(connection, *indexes):
    """Makes indexes, and drops all that the table has."""
    try:
        for index in indexes:
            connection.execute(index.table_index(NAMES).create(NAMES))
        connection.execute("ANALYZE semlex.docs_chunk")
        yield
    finally:
        made = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'semlex.docs_chunk'::regclass"
        for (name,) in connection.execute(made).fetchall():
            connection.execute(f"DROP INDEX {name}")


def passing(connection, filters):
    made = parse_filters(filters, NAMES)
    query = sql.SQL("SELECT n FROM semlex.docs_chunk AS c WHERE {} ORDER BY n").format(made.expression)
    return [n for (n,) in connection.execute(query, made.parameters).fetchall()]


def plan(connection, filters):
    made = parse_filters(filters, NAMES)
    query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT * FROM semlex.docs_chunk AS c WHERE {}").format(made.expression)
    return connection.execute(query, made.parameters).fetchone()[0][0]["Plan"]


SERVED = {
    ("year", "number"): ("year >= 2019", "year between 1990 and 1991", "not year < 2019 and year >= 2019"),
    ("day", "text"): ("day > '2025-05-01'", "day startswith '2025-05'", "day like '2025-05-0%'"),
    ("author.born", "number"): ("author.born < 1902",),
    ('"100%"', "number"): ('"100%" >= 9900',),
    ("@created", "instant"): ("@created < '2020-01-05'",),
}


def test_the_server_uses_the_index_and_knows_how_many_pass(chunks):
    chunks.execute(
        """TRUNCATE semlex.docs_chunk;
        INSERT INTO semlex.docs_chunk SELECT n, jsonb_build_object('year', 1900 + n % 125,
        'day', (date '2020-01-01' + n % 2000)::text, 'author', jsonb_build_object('born', 1900 + n % 100), '100%', n,
        'text', repeat('x', 200)), timestamptz '2020-01-01 00:00Z' + n * interval '1 hour'
        FROM generate_series(1, 10000) AS n; ANALYZE semlex.docs_chunk"""
    )
    for (name, of), every in SERVED.items():
        index = checked_index(field_named(name, "name"), of)
        before = {filters: passing(chunks, filters) for filters in every}
        assert all("Seq Scan" in json.dumps(plan(chunks, filters)) for filters in every)
        with indexed(chunks, index):
            for filters, expected in before.items():
                explained = plan(chunks, filters)
                assert f"docs_{index.suffix}" in json.dumps(explained), filters
                assert passing(chunks, filters) == expected, filters
                # The server counts few matches of a pattern in its histogram, and takes two conditions for independent.
                if not any(word in filters for word in ("startswith", "like", "not")):
                    assert len(expected) / 1.5 <= explained["Plan Rows"] <= len(expected) * 1.5 + 10, filters


def test_filters_find_the_same_with_and_without_indexes(chunks, full):
    values = st.one_of(numbers, texts, st.booleans(), st.none(), st.lists(numbers, max_size=2))
    documents = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2), max_size=30)
    patterns = st.tuples(st.just("startswith"), texts.filter(bool))
    bounds = st.lists(st.tuples(st.sampled_from(ORDER), numbers | texts) | patterns, min_size=1, max_size=20)
    indexes = [FieldIndex(Field(("a",)), "number"), FieldIndex(Field(("a",)), "text")]

    @given(documents, bounds)
    @settings(max_examples=500 if full else examples(20))
    def compare(found, wanted):
        store(chunks, found)
        trees = [condition(Field(("a",)), operator, bound) for operator, bound in wanted]
        before = [passing(chunks, tree) for tree in trees]
        with indexed(chunks, *indexes):
            chunks.execute("SET enable_seqscan = off")
            after, plans = [passing(chunks, tree) for tree in trees], [json.dumps(plan(chunks, tree)) for tree in trees]
            chunks.execute("RESET enable_seqscan")
        assert after == before
        assert all("docs_field_" in one for one in plans)

    compare()


async def read_back(url, names=NAMES):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SET search_path = pg_catalog")
        return await read_field_indexes(connection, names)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(found=st.sets(st.tuples(hostile_fields, st.sampled_from(["number", "text"])), max_size=4))
async def test_what_an_index_is_over_is_read_back(chunks, server_url, found):
    indexes = [checked_index(*one) for one in found]
    with indexed(chunks, *indexes):
        assert await read_back(server_url) == dict.fromkeys(indexes, True)


async def test_an_unfinished_index_is_one_and_another_is_none(chunks, server_url):
    index = FieldIndex(Field(("a",)), "text")
    with indexed(chunks, index, FieldIndex(Field(("created",), is_own=True), "instant")):
        for letter, of in (
            ("a", "metadata #> '{b}'::text[]"),
            ("b", "metadata #>> '{b}'::text[]"),
            ("c", "lower('x' || n)"),
        ):
            chunks.execute(f"CREATE INDEX docs_field_{letter * 8} ON semlex.docs_chunk (({of}))")
        unfinished = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(%s)"
        chunks.execute(unfinished, [f"semlex.docs_{index.suffix}"])
        known = {(str(one.field), one.type, valid) for one, valid in (await read_back(server_url)).items()}
        assert known == {("a", "text", False), ("@created", "instant", True)}
        assert await read_back(server_url, Names("semlex", "other")) == {}


def test_no_value_is_too_long_and_no_name_up_to_the_limit(chunks):
    longest = Field(("".join(chr(33 + number * 7 % 90) for number in range(MAX_PATH_BYTES - 3)), "€"))
    indexes = [FieldIndex(longest, "text"), FieldIndex(Field(("a",)), "text"), FieldIndex(Field(("a",)), "number")]
    text = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(40_000))
    chunks.execute("TRUNCATE semlex.docs_chunk")
    with indexed(chunks, *indexes):
        store(chunks, [{"a": text}, {"a": int("9" * 4300)}, {longest.path[0]: {"€": text}}])
        assert passing(chunks, condition(Field(("a",)), ">=", text)) == [1]
        assert passing(chunks, condition(Field(("a",)), ">", 10**4299)) == [2]
        assert passing(chunks, condition(longest, ">", "")) == [3]


@given(field=hostile_fields, of=st.sampled_from(["number", "text"]), length=st.integers(1, 48))
def test_names_fit_and_a_name_is_read_as_it_is_written(field, of, length):
    index = FieldIndex(field, of)
    assert len(f"{'c' * length}_{index.suffix}".encode()) <= 63
    assert field_named(str(field), "name") == field


@pytest.mark.parametrize(
    ("message", "name", "of"),
    [
        ("true and false are compared for equality only", "a", "boolean"),
        ("a time in the metadata is a text", "a", "instant"),
        *(("'number' or 'text'", "a", of) for of in ("Number", None, ["number"])),
        ("'instant', the only kind of @created", "@created", "number"),
        ("a field of the metadata, @created or @updated", "@source", "text"),
        *(("is not a field here", "@nothing", "text"), ("NUL", "a\0b", "text"), ("surrogate", "a\udcff", "text")),
        *(("keys with dots between them", name, "text") for name in ("a..b", "")),
        *(("a str", 7, "text"), ("at most 1,000 bytes", "k" * 10_240, "text"), ("64 levels", "a" + ".b" * 64, "text")),
    ],
)
def test_what_no_index_serves_is_refused(message, name, of):
    with pytest.raises(ValidationError, match=message):
        checked_index(field_named(name, "name"), of)


EQUAL_ROWS, NEW_ROWS = 3_000, 200
# A tree that has grown by a level reads a block more.
MAX_MORE_BLOCKS = 3
FIELDS = [FieldIndex(Field((name,)), of) for name, of in (("kind", "text"), ("year", "number"))]
FIELDS += [FieldIndex(Field(("created",), is_own=True), "instant")]
ADD = """
    INSERT INTO {table} (document_id, chunk_id, chunk_no, child_ids, chunk_type, source_document, chapter_title,
        section_title, subsection_title, summary, context, chunk_text, content_hash, metadata, created_at, updated_at)
    SELECT gen_random_uuid(), 'id', 0, '{{}}', 'text', 'handbook/one.pdf', '', '', '{{}}', '', '', 'text', '',
        '{{"kind": "page", "year": 2026}}', 'epoch', 'epoch' FROM generate_series(1, {rows})
"""


def blocks_of_a_row(connection, names, index):
    """Blocks that a new row reads and writes in a table of `EQUAL_ROWS` equal rows, and of twice as many."""
    connection.execute("CREATE SCHEMA equal")
    table = sql.Identifier("equal", f"{names.collection}_chunk")
    connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING IDENTITY)").format(table, names.chunk))
    connection.execute(TableIndex(index.suffix, table, index.definition).create(names))
    found = []
    for _ in range(2):
        connection.execute(sql.SQL(ADD).format(table=table, rows=EQUAL_ROWS))
        add = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + ADD).format(table=table, rows=NEW_ROWS)
        plan = connection.execute(add).fetchone()[0][0]["Plan"]
        found.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / NEW_ROWS)
    connection.execute("DROP SCHEMA equal CASCADE")
    return found


async def test_a_row_costs_the_same_beside_any_number_of_equal_ones(database_url):
    async with opened(database_url, collection="equal") as retriever:
        await retriever.add_texts(["one"], ids=["one"])
        await retriever.indexes.create()
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
    # No other index is of that kind: a hash index is only over keys of rows, of which each is there once.
    hashes = "SELECT c.relname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = 'hash'"
    kept = execute(database_url, hashes + " AND c.relnamespace = 'semlex'::regnamespace")
    assert kept == [("row_change_problem",)]
