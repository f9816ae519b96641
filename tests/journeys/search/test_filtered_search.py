"""Filtered searches: k rows whenever k pass, however they are found, and exact where few pass."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import HnswIndex
from semlex.search import planner, request, retrieval
from semlex.search.planner import SEARCHES_BEFORE_ROWS
from semlex.store.query import vector
from semlex.store.query.passing_rows import WITHOUT_INDEX
from semlex.types.documents import Document
from tests.support.databases import execute
from tests.support.retrievers import ids_of, sync_filled, sync_opened
from tests.support.spies import calls_of

pytestmark = pytest.mark.pg16

DIMENSIONS, ROWS = 8, 3000
# Ids of the chunks that each filter keeps; "far" and "farther" are what is far from the first axis.
PASSING = {"1/2": 2, "1/10": 10, "1/100": 100, "1/1000": 1000}
PLANNING = (
    *({}, {"min_filter_share": 0.0}, {"min_filter_share": 0.0, "ef_search": 1}, {"min_filter_share": 1.0}),
    *({"min_filter_share": 1.0, "max_filter_ids": most} for most in (0, 5)),
)


@pytest.fixture(scope="module")
def vectors():
    values = np.random.default_rng(4).normal(size=(ROWS, DIMENSIONS))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def indexed(module_url, vectors):
    """3,000 vectors under an HNSW index, with filters of several widths; the tests only read it."""
    kept = [{name: n % step for name, step in PASSING.items()} for n in range(ROWS)]
    far = [{"far": bool(row[0] < -0.2), "farther": bool(row[0] < -0.4)} for row in vectors]
    documents = [Document(f"text number {n}", kept[n] | far[n], id=str(n)) for n in range(ROWS)]
    with sync_filled(module_url, documents, "none", vectors=vectors) as retriever:
        retriever.indexes.create()
        yield retriever


@pytest.fixture
def fresh(indexed, module_url):
    """A client of the same collection that has asked nothing yet."""
    del indexed  # it makes the collection
    with sync_opened(module_url, "none") as retriever:
        yield retriever


def explained(patch, how, note):
    """Call `note` with the plan of each vector search, made under the search's settings, before it runs."""
    run = retrieval.run_legs

    async def noted(snapshot, legs, *others):
        [statement] = legs[0].prepare(None).statements
        await snapshot.set_up(legs[0].settings)
        async with snapshot.in_one_go():
            text = statement.text if isinstance(statement.text, bytes) else statement.text.as_bytes()
            cursor = await snapshot.execute(b"EXPLAIN (%s) " % how + text, statement.parameters)
        note(await cursor.fetchall())
        return await run(snapshot, legs, *others)

    patch.setattr(retrieval, "run_legs", noted)


def nearest(vectors, query, passing, k):
    """The exact answer."""
    order = np.lexsort((np.arange(ROWS), -(vectors @ query)))
    return [str(n) for n in order if passing[n]][:k]


def passing(vectors, name, value):
    if name.startswith("far"):
        return vectors[:, 0] < (-0.2 if name == "far" else -0.4)
    return np.arange(ROWS) % PASSING[name] == value


@given(
    number=st.integers(0, ROWS - 1),
    name=st.sampled_from(sorted(PASSING)),
    value=st.integers(0, 1),
    top_k=st.sampled_from((1, 3, 10, 40)),
    mode=st.sampled_from(("vector", "keyword", None)),
    planning=st.sampled_from(PLANNING),
)
def test_k_rows_whenever_k_pass(indexed, vectors, *, number, name, value, top_k, mode, planning):
    vector = None if mode == "keyword" else vectors[number]
    results = indexed.search("text number", top_k, {name: value}, vector=vector, mode=mode, tuning=planning)
    kept = passing(vectors, name, value)
    assert len(results) == min(top_k, int(kept.sum()))
    assert all(kept[int(hit.id)] for hit in results)
    assert len({hit.id for hit in results}) == len(results)
    is_exact = planning.get("min_filter_share") == 1.0 or len(results) < top_k
    is_exact |= "vector" in results.legs and results.legs["vector"].plan.startswith("exact")
    if mode == "vector" and is_exact:
        assert [hit.id for hit in results] == nearest(vectors, vectors[number], kept, top_k)


@pytest.mark.slow
def test_a_filter_that_leaves_out_what_is_near_is_answered_exactly(indexed, vectors):
    """The index would go through all that lies nearer; it is given up, and the answer is exact."""
    query, kept = np.eye(DIMENSIONS, dtype=np.float32)[0], passing(vectors, "far", 1)
    assert 0.15 < kept.mean() < 0.5
    for mode in ("vector", None):
        options = {"vector": query, "mode": mode, "fusion": "rrf", "tuning": {"ef_search": 10}}
        results = indexed.search("text", 10, {"far": True}, **options)
        assert len(results) == 10
        if mode == "vector":
            assert ids_of(results) == nearest(vectors, query, kept, 10)


def test_the_legs_say_how_they_answered(indexed, vectors):
    wide = indexed.search("text", 5, {"1/2": 0}, vector=vectors[0])
    assert str(wide.legs["vector"]).startswith("vector: vector index, ef_search 1")
    assert "the filter keeps about" in str(wide.legs["vector"])
    assert wide.legs["vector"].share == pytest.approx(0.5, abs=0.05)
    assert "checked by the filter" in wide.legs["keyword"].plan
    narrow = indexed.search("text", 5, {"1/1000": 0}, vector=vectors[0])
    assert narrow.legs["vector"].plan == "exact, 3 rows that pass"
    assert [leg.passing for leg in narrow.legs.values()] == [3, 3]
    plain = indexed.search("text", 5, vector=vectors[0])
    assert [leg.share for leg in plain.legs.values()] == [None, None]
    assert plain.to_dict()["legs"]["keyword"]["candidates"] == 30


@pytest.mark.primary
def test_a_wide_filter_that_is_repeated_is_answered_exactly(fresh, vectors, monkeypatch):
    """The index is given up for the rows that pass, once reading them pays; the server goes to their places."""
    shown, plans = [], []
    for number in range(SEARCHES_BEFORE_ROWS + 2):
        if number > SEARCHES_BEFORE_ROWS:
            explained(monkeypatch, b"COSTS OFF", shown.extend)
        hits = fresh.search(None, 10, {"1/10": 1}, vector=vectors[number], mode="vector")
        plans.append(hits.legs["vector"].plan)
        if number == SEARCHES_BEFORE_ROWS:
            assert ids_of(hits) == nearest(vectors, vectors[number], passing(vectors, "1/10", 1), 10)
    assert all(plan.startswith("vector index") for plan in plans[:SEARCHES_BEFORE_ROWS])
    assert plans[SEARCHES_BEFORE_ROWS] == "exact, 300 rows that pass"
    plan = " ".join(line.strip() for (line,) in shown)
    assert " Tid Scan on default_collection_embedding_1 e " in plan
    assert "Seq Scan on default" not in plan


@pytest.mark.primary
def test_of_many_rows_that_pass_few_are_compared_on_the_server(fresh, vectors, monkeypatch):
    """Their vectors are kept, so that the answer is exact whichever few are compared."""
    run, sent = retrieval.run_legs, []

    async def watched(snapshot, legs, *others):
        parameters = [statement.parameters for statement in legs[0].prepare(None).statements]
        sent.extend(len(getattr(one.get("locations"), "data", b"")) // 10 for one in parameters)
        return await run(snapshot, legs, *others)

    monkeypatch.setattr(retrieval, "run_legs", watched)
    for number in range(SEARCHES_BEFORE_ROWS + 20):
        sent.clear()
        hits = fresh.search(None, 10, {"1/2": 1}, vector=vectors[number], mode="vector")
        if hits.legs["vector"].plan.startswith("exact"):
            assert ids_of(hits) == nearest(vectors, vectors[number], passing(vectors, "1/2", 1), 10)
        if sent and 0 < sent[-1] < 100:
            break
    assert 0 < sent[-1] < 100


def rows_of_index(plan):
    if plan["Node Type"] == "Index Scan" and "hnsw" in plan["Index Name"]:
        yield plan["Actual Rows"]
    for inner in plan.get("Plans", ()):
        yield from rows_of_index(inner)


@pytest.mark.parametrize("ef_search", [400, 1000])
def test_a_longer_list_brings_no_more_rows_than_a_filtered_search_needs(indexed, vectors, monkeypatch, ef_search):
    """The server ends the scan when so many rows have passed; what it finds is as good."""
    scanned, found = [], 0
    how = b"ANALYZE, TIMING OFF, FORMAT JSON"
    explained(monkeypatch, how, lambda rows: scanned.extend(rows_of_index(rows[0][0][0]["Plan"])))
    options = {"mode": "vector", "tuning": {"ef_search": ef_search}}
    for number in range(20):
        hits = indexed.search(None, 10, {"1/2": 1}, vector=vectors[number], **options)
        assert hits.legs["vector"].plan == f"vector index, ef_search {ef_search}, 12 of halfvec rescored"
        exact = nearest(vectors, vectors[number], passing(vectors, "1/2", 1), 10)
        found += len(set(ids_of(hits)) & set(exact))
    assert len(scanned) == 20
    assert max(scanned) <= 4 * 12  # twice as many as the filter's share lets expect
    assert found >= 0.99 * 20 * 10


def test_under_a_filter_a_longer_list_of_bits_is_rescored_as_far_as_it_passes(database_url, vectors):
    """Their order is coarse."""
    documents = [Document(f"text {n}", {"1/2": n % 2}, id=str(n)) for n in range(ROWS)]
    with sync_filled(database_url, documents, "none", vectors=vectors) as retriever:
        retriever.indexes.create(HnswIndex(quantization="bit"))
        for tuning, least, most in (({}, 40, 40), ({"ef_search": 10}, 40, 40), ({"ef_search": 600}, 200, 300)):
            hits = retriever.search(None, 10, {"1/2": 1}, vector=vectors[0], mode="vector", tuning=tuning)
            rescored = re.search(r", (\d+) of bit rescored$", hits.legs["vector"].plan)
            assert least <= int(rescored[1]) <= most


def test_a_search_with_a_short_deadline_reads_nothing_for_later_ones(fresh, vectors, monkeypatch):
    monkeypatch.setattr(retrieval, "SECONDS_FOR_ROWS", 1000.0)
    for number in range(SEARCHES_BEFORE_ROWS + 3):
        hits = fresh.search(None, 10, {"1/2": 1}, vector=vectors[number], mode="vector", deadline=600.0)
        assert hits.legs["vector"].plan.startswith("vector index")


def test_after_a_filter_that_leaves_out_what_is_near_its_rows_are_compared_at_once(fresh, vectors, monkeypatch):
    """Now and then the index is tried again: other queries may be near what passes."""
    monkeypatch.setattr(planner, "ROWS_PER_CANDIDATE", 0.1)
    monkeypatch.setattr(planner, "MAX_VECTOR_BYTES", 0)
    query, kept = np.eye(DIMENSIONS, dtype=np.float32)[0], passing(vectors, "farther", 1)
    assert 0.1 < kept.mean() < 0.2
    for number in range(2 * WITHOUT_INDEX + 1):
        hits = fresh.search(None, 10, {"farther": True}, vector=query, mode="vector")
        assert ids_of(hits) == nearest(vectors, query, kept, 10)
        plan = hits.legs["vector"].plan
        assert plan.startswith(f"exact, {kept.sum()} rows that pass")
        assert (", as vector index" in plan) == (number % WITHOUT_INDEX == 0)


def test_fewer_vectors_than_candidates_are_compared_once(database_url, vectors, monkeypatch):
    runs = calls_of(monkeypatch, retrieval, "run_legs")
    texts = {str(n): f"text {n}" for n in range(20)}
    with sync_filled(database_url, texts, "none", vectors=vectors[:20]) as retriever:
        for modes, expected in (("vector", ["vector"]), (None, ["vector", "keyword"])):
            runs.clear()
            results = retriever.search("text", 5, vector=vectors[0], mode=modes)
            assert results.legs["vector"].plan == "exact, all vectors"
            assert results.legs["vector"].candidates == 20
            assert [plan.name for run in runs for plan in run["plans"]] == expected


@pytest.mark.slow
def test_what_is_remembered_of_a_filter_may_be_wrong(database_url, vectors):
    """Chunks are deleted, changed and added, the index is dropped and invalid, while a share is remembered."""
    documents = [Document(f"text {n}", {"kind": "a" if n % 2 else "b"}, id=str(n)) for n in range(ROWS)]
    with sync_filled(database_url, documents, "none", vectors=vectors) as retriever:
        retriever.indexes.create()

        def found(kind, k=10):
            answers = [retriever.search("text", k, {"kind": kind}, vector=vectors[0], mode=m) for m in ("vector", None)]
            assert len({len(answer) for answer in answers}) == 1
            return ids_of(answers[0])

        odd = np.arange(ROWS) % 2 == 1
        assert len(found("a")) == 10
        retriever.delete([str(n) for n in range(ROWS) if odd[n] and n > 21])
        assert found("a", 20) == nearest(vectors, vectors[0], odd & (np.arange(ROWS) <= 21), 20)
        changed = "UPDATE semlex.default_collection_chunk SET metadata = %s::jsonb WHERE chunk_id = '1'"
        execute(database_url, changed, ['{"kind": "c"}'])
        assert "1" not in found("a", 20)
        assert found("c") == ["1"]
        execute(database_url, "DROP INDEX semlex.default_collection_hnsw_1")
        assert len(found("b")) == 10
        assert found("b", 3) == nearest(vectors, vectors[0], ~odd, 3)


@pytest.mark.slow
def test_sixteen_filtered_searches_at_once_equal_their_serial_answers(indexed, vectors):
    def answer(n):
        filters = {sorted(PASSING)[n % 4]: n % 2}
        return [(hit.id, hit.fused_score) for hit in indexed.search("text number", 5, filters, vector=vectors[n])]

    serial = [answer(n) for n in range(48)]
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(answer, range(48))) == serial


def test_of_too_many_rows_that_pass_for_an_exact_answer_the_index_finds_nearly_all(fresh, vectors, monkeypatch):
    """However small their share is: what it takes does not grow with the collection. A given share still decides."""
    for module in (request, vector):
        monkeypatch.setattr(module, "MAX_FILTER_ROWS", 20)
    recalls = []
    for number in range(40):
        kept = passing(vectors, "1/100", number % 2)
        asked = partial(fresh.search, None, 5, {"1/100": number % 2}, vector=vectors[number], mode="vector")
        hits, exact = asked(), asked(tuning={"min_filter_share": 1.0, "max_filter_ids": 0})
        assert hits.legs["vector"].plan == "vector index, ef_search 400, 30 of halfvec rescored"
        assert ids_of(exact) == nearest(vectors, vectors[number], kept, 5)
        assert exact.legs["vector"].plan.startswith("exact")
        assert len(hits) == 5
        assert all(kept[int(hit.id)] for hit in hits)
        recalls.append(len(set(ids_of(hits)) & set(ids_of(exact))) / 5)
    few = fresh.search(None, 5, {"1/1000": 0}, vector=vectors[0], mode="vector")
    assert few.legs["vector"].plan == "exact, vectors by key"
    assert np.mean(recalls) >= 0.98
