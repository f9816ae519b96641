"""Searching: as many rows as asked for, in one order, equal to an in-memory model, and never an error on any text."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ModelMismatchError, ValidationError
from semlex.retriever.synchronous import SyncRetriever
from semlex.search import retrieval
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.properties import examples
from tests.support.retrievers import opened, sync_opened

pytestmark = pytest.mark.pg16

DIMENSIONS = 16
CHUNK = "semlex.default_collection_chunk"
WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")


def ids_of(results):
    return [result.id for result in results]


def unit_vectors(count, seed=0):
    values = np.random.default_rng(seed).normal(size=(count, DIMENSIONS))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def library_url(new_database):
    return new_database()


@pytest.fixture(scope="module")
def library(library_url):
    """400 documents of a few words each, with metadata; tests only read it."""
    chance = random.Random(1)
    documents = [
        Document(
            " ".join(chance.choices(WORDS, k=chance.randrange(3, 12))) + f" n{number}",
            {"number": number, "even": number % 2 == 0, "tags": chance.sample(WORDS, 2), "rare": number % 200 == 7},
            id=f"d{number:03}",
        )
        for number in range(400)
    ]
    with sync_opened(library_url, DIMENSIONS) as retriever:
        retriever.add_documents(documents)
        yield retriever


def without_scans(url):
    """Make the planner of a database use indexes; return the URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET enable_seqscan = off").format(sql.Identifier(connection.info.dbname))
        )
    return url


@pytest.fixture(scope="module")
def indexed(new_database):
    """2,000 vectors under an HNSW index of the least quality, which the planner must use."""
    url = new_database()
    vectors = unit_vectors(2000)
    documents = [Document(f"text {n}", {"rare": n % 200 == 7, "n": n}, id=f"d{n:04}") for n in range(2000)]
    with sync_opened(without_scans(url), "none") as retriever:
        retriever.add_documents(documents, vectors)
        assert "hnsw_1" in retriever.indexes.create()
        yield url, retriever, vectors


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 40, 41, 100, 334, 1000])
def test_top_k_rows_come_back(indexed, top_k):
    _, retriever, vectors = indexed
    for mode in ("vector", None):
        results = retriever.search("text", top_k, vector=vectors[5], mode=mode)
        assert len(set(ids_of(results))) == top_k
        assert [result.rank for result in results] == list(range(1, top_k + 1))
    assert len(retriever.search("text", top_k, mode="keyword")) == top_k


def test_a_filter_that_keeps_few_rows_is_exact(indexed):
    _, retriever, vectors = indexed
    kept = [n for n in range(2000) if n % 200 == 7]
    for seed in range(5):
        query = unit_vectors(1, seed + 100)[0]
        wanted = sorted(kept, key=lambda n: -float(vectors[n] @ query))
        results = retriever.search(vector=query, top_k=20, filters={"rare": True})
        assert ids_of(results) == [f"d{n:04}" for n in wanted]


@pytest.mark.slow
def test_deleted_rows_do_not_shorten_the_answer(database_url):
    vectors = unit_vectors(1500)
    query = vectors[0]
    nearest = np.argsort(-(vectors @ query), kind="stable")
    with sync_opened(database_url, "none") as retriever:
        retriever.add_documents([Document(f"text {n}", id=f"d{n:04}") for n in range(1500)], vectors)
        retriever.indexes.create()
        # The 1,200 nearest: the index, as long as it is not vacuumed, finds dead rows only.
        retriever.delete([f"d{n:04}" for n in nearest[:1200]])
        assert ids_of(retriever.search(vector=query, top_k=300)) == [f"d{n:04}" for n in nearest[1200:]]
        assert len(retriever.search(vector=query, top_k=1000)) == 300


@pytest.mark.slow
@pytest.mark.direct
def test_searches_pass_dead_rows_in_the_index(database_url, monkeypatch):
    monkeypatch.setattr(retrieval, "INDEX_FROM_ROWS", 1)  # a small collection is searched exactly instead
    vectors, url = unit_vectors(1500), without_scans(database_url)
    nearest = np.argsort(-(vectors @ vectors[0]), kind="stable")
    with sync_opened(url, "none") as retriever:
        retriever.add_documents([Document(f"text {n}", id=f"d{n:04}") for n in range(1500)], vectors)
        retriever.indexes.create()
        found = [retriever.search("text", vector=vectors[0])]
        gone = {f"d{n:04}" for n in nearest[:400]}
        retriever.delete(sorted(gone))
        found += [retriever.search("text", vector=vectors[0]) for _ in range(2)]
    plan = "vector index, ef_search 120, 36 of halfvec rescored"
    assert [results.legs["vector"].plan for results in found] == [plan, f"{plan}, as {plan} gave 0", plan]
    for results in found[1:]:
        assert results.legs["vector"].candidates == 30
        assert gone.isdisjoint(ids_of(results))


@pytest.mark.slow
@pytest.mark.parametrize("with_index", [True, False])
def test_rows_deleted_behind_our_back_are_replaced(database_url, with_index):
    vectors = unit_vectors(300)
    query = vectors[0]
    nearest = np.argsort(-(vectors @ query), kind="stable")
    gone = [f"d{n:03}" for n in nearest[:200]]
    with sync_opened(database_url, "none") as retriever:
        retriever.add_documents([Document(f"text {n}", id=f"d{n:03}") for n in range(300)], vectors)
        if with_index:
            retriever.indexes.create()
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"DELETE FROM {CHUNK} WHERE chunk_id = ANY(%s)", [gone])  # noqa: S608
        expected = [f"d{n:03}" for n in nearest[200:]]
        assert ids_of(retriever.search(vector=query, top_k=5)) == expected[:5]
        assert ids_of(retriever.search(vector=query, top_k=1000)) == expected
        results = retriever.search("text", 50, vector=query)
        assert len(results) == 50
        assert not set(gone) & set(ids_of(results))
        assert retriever.status().orphaned_vectors == 200


@pytest.mark.slow
def test_ties_are_ordered_by_key(database_url):
    """Equal rows come in the order of their keys, also where the candidates end, and wherever they lie on disk."""
    vector = np.ones(DIMENSIONS, np.float32)
    with sync_opened(database_url, "none") as retriever:
        documents = [Document("the same text", id=f"d{n}") for n in random.sample(range(200), 200)]
        retriever.add_documents(documents, np.tile(vector, (200, 1)))
        with psycopg.connect(database_url) as connection:
            rows = connection.execute(f"SELECT chunk_id FROM {CHUNK} ORDER BY document_id, chunk_id").fetchall()  # noqa: S608
        expected = [chunk_id for (chunk_id,) in rows]
        modes = ("vector", "keyword", "hybrid")
        for mode, top_k in itertools.product(modes, (5, 60, 200)):
            assert ids_of(retriever.search("same text", top_k, vector=vector, mode=mode)) == expected[:top_k], mode


@pytest.mark.slow
def test_the_legs_and_their_scores(library):
    embedder = HashEmbedder(DIMENSIONS)
    query = "sea and stone"
    everything = library.get([f"d{n:03}" for n in range(400)])
    cosines = embedder.embed_documents([one.content for one in everything]) @ embedder.embed_query(query)
    by_id = dict(zip((one.id for one in everything), cosines.tolist(), strict=True))

    vector = library.search(query, 10, mode="vector")
    assert (vector.mode, vector.fusion, list(vector.legs)) == ("vector", None, ["vector"])
    assert vector.legs["vector"].candidates == 30
    assert vector.embedding_model == embedder.identity.model
    best = sorted(by_id.values(), reverse=True)[:10]
    assert [one.vector_score for one in vector] == pytest.approx(best, abs=1e-5)

    keyword = library.search(query, 10, mode="keyword")
    assert (keyword.mode, keyword.fusion, keyword.embedding_model) == ("keyword", None, None)
    for one in keyword:
        assert {"sea", "stone"} & set(one.content.split())
        assert one.keyword_score is not None
        assert (one.vector_score, one.vector_rank, one.fused_score) == (None, None, None)
    scores = [one.keyword_score or 0.0 for one in keyword]
    assert scores == sorted(scores, reverse=True)

    hybrid = library.search(query, 100, fusion="rrf")
    assert (hybrid.mode, hybrid.requested_mode, hybrid.fusion) == ("hybrid", "hybrid", "rrf")
    for one in hybrid:
        assert (one.vector_contribution, one.keyword_contribution) == (None, None)
        ranks = [rank for rank in (one.vector_rank, one.keyword_rank) if rank is not None]
        assert one.fused_score == pytest.approx(sum(1 / (60 + rank) for rank in ranks), rel=1e-12)
        if one.vector_score is not None:
            assert one.vector_score == pytest.approx(by_id[one.id], abs=1e-5)
        assert one.metadata["similarity"] == one.vector_score == one.similarity_score
        assert one.metadata["rerank_score"] is None
        assert one.metadata["number"] == int(one.id[1:])
    fused = [one.fused_score for one in hybrid]
    assert fused == sorted(fused, reverse=True)
    assert {one.id for one in keyword} & {one.id for one in hybrid}


@pytest.mark.slow
def test_weights_and_constant_of_the_fusion(library, full):
    @given(weights=st.tuples(st.floats(0, 10), st.floats(0, 10)), rrf_k=st.floats(0, 1000))
    @settings(max_examples=2_500 if full else examples(25))
    def search(weights, rrf_k):
        named = dict(zip(("vector", "keyword"), weights, strict=True))
        for one in library.search("river wind", 50, fusion="rrf", weights=named, rrf_k=rrf_k):
            wanted = sum(
                weight / (rrf_k + rank)
                for weight, rank in zip(weights, (one.vector_rank, one.keyword_rank), strict=True)
                if rank is not None
            )
            assert one.fused_score == pytest.approx(wanted, rel=1e-9, abs=1e-12)

    search()


HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80),
    st.lists(
        st.sampled_from(
            ["-", "--", "!", "&", "|", "<->", "<2>", "(", ")", "'", '"', ":*", ":A", "\\", "or", "OR", "and"]
        ),
        min_size=1,
        max_size=60,
    ).map(" ".join),
    st.builds(
        lambda part, times: part * times,
        st.sampled_from(["-", "!", "'", '"', "\\", "a:", "(", "é", "🐘"]),
        st.integers(1, 900),
    ),
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_text_is_an_error(library, full):
    @given(HOSTILE.filter(lambda text: text.strip() and len(text.strip().encode()) <= 4096))
    @example("-" * 40)
    @example("a & | ! b")
    @example("' \\' or 1=1; DROP TABLE x; --")
    @example("$$ %s %(query)s {} :x")
    @example(" ".join(f"-w{n}" for n in range(300)))
    @settings(max_examples=100_000 if full else examples(100))
    def search(text):
        if _core.Analyzer("english").query(text).conditions > 64:  # in quotes or behind a dash
            with pytest.raises(ValidationError, match="64 words in quotes or behind a dash"):
                library.search(text, 3)
            return
        results = library.search(text, 3)
        assert len(results) == 3 or re.search(r'["“”„«»]|(^|\s)-', text)  # phrases and exclusions leave texts out
        assert [told for told in results.warnings if not re.search("terms|no word|phrase", told)] == []
        library.search(text, 3, mode="keyword")

    search()


def test_stop_words_only(library):
    results = library.search("the of and to", 5)
    assert (len(results), results.legs["keyword"].candidates) == (5, 0)
    assert library.search("the of and to", 5, mode="keyword") == []


def test_more_terms_than_are_searched(library):
    for count, flagged in ((64, False), (65, True), (500, True)):
        results = library.search(" ".join(f"w{n}" for n in range(count)), 3)
        assert any(f"{count} terms" in warning and "64" in warning for warning in results.warnings) == flagged
    found = library.search("n7 " + " ".join(f"w{n}" for n in range(300)), 1, mode="keyword")
    assert ids_of(found) == ["d007"]


def test_an_excerpt_marks_the_words(library):
    for one in library.search("sea", 5, mode="keyword"):
        assert "**sea**" in one.excerpt
    assert library.search(vector=unit_vectors(1)[0], top_k=1)[0].excerpt != ""


@pytest.mark.slow
def test_another_model_is_refused_by_name(database_url):
    with sync_opened(database_url, DIMENSIONS) as retriever:
        retriever.add_documents([Document("some text", id="a")])
    with pytest.raises(ModelMismatchError) as caught:
        sync_opened(database_url, DIMENSIONS * 2).initialize()
    for part in ("semlex.testing/hash", str(DIMENSIONS), str(DIMENSIONS * 2)):
        assert part in str(caught.value)
    with sync_opened(database_url, DIMENSIONS) as retriever:  # the same settings again
        assert ids_of(retriever.search("some text")) == ["a"]
        assert retriever.search("some text").mode == "hybrid"


@pytest.mark.slow
def test_vectors_of_ones_own_without_a_model(database_url):
    vectors = unit_vectors(20)
    with sync_opened(database_url, "none") as retriever:
        with pytest.raises(EmbeddingsMissingError, match="holds no vectors"):
            retriever.search("text", mode="vector")
        retriever.add_documents([Document(f"text {n}", id=str(n)) for n in range(20)], vectors)
        assert retriever.search("text").mode == "keyword"
        assert ids_of(retriever.search(vector=vectors[3], top_k=1)) == ["3"]
        both = retriever.search("text", vector=vectors[3])
        assert both.mode == "hybrid"
        assert [one.id for one in both if one.vector_rank == 1] == ["3"]
        with pytest.raises(ModelError, match="vector="):
            retriever.search("text", mode="vector")
        flagged = retriever.search("text", mode="hybrid")
        assert (flagged.mode, flagged.requested_mode) == ("keyword", "hybrid")
        assert "vector search" in flagged.warnings[0]
    with SyncRetriever(database_url) as retriever:  # nothing configured: the collection says that there is no model
        assert ids_of(retriever.search(vector=vectors[4], top_k=1)) == ["4"]


def test_no_keyword_engine(database_url):
    with sync_opened(database_url, DIMENSIONS, keyword="none") as retriever:
        retriever.add_documents([Document("some text", id="a")])
        assert retriever.search("some text").mode == "vector"
        with pytest.raises(ConfigurationError, match="keyword"):
            retriever.search("some text", mode="keyword")


QUERIES = [f"{one} {other}" for one in WORDS[:4] for other in WORDS[4:]]


def plain(results):
    return [(one.id, one.vector_score, one.keyword_score, one.fused_score, one.excerpt) for one in results]


@pytest.mark.slow
async def test_concurrent_searches_equal_their_serial_answers(library_url, library, full):
    async with opened(library_url, DIMENSIONS, max_connections=4) as retriever:
        serial = [plain(await retriever.search(query, 7)) for query in QUERIES]
        for _ in range(100 if full else 3):
            together = await asyncio.gather(*(retriever.search(query, 7) for query in QUERIES))
            assert [plain(results) for results in together] == serial


@pytest.mark.slow
def test_one_retriever_in_many_threads(library):
    serial = [plain(library.search(query, 7)) for query in QUERIES]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda query: plain(library.search(query, 7)), QUERIES * 3)) == serial * 3


async def test_a_heading_that_is_the_query_counts_twice(database_url):
    """Stop words of a heading are not indexed: "in" and "out" differ all the same."""
    titles = ("How to log a user in", "How to log a user out")
    text = "Call it with the request and the user: log {}."
    async with opened(database_url, "none") as retriever:
        documents = [Document(text.format("user " * (3 - n)), {"section_title": t}, id=t) for n, t in enumerate(titles)]
        await retriever.add_documents([*documents, Document("something else")])
        for title in titles:
            hits = await retriever.search(f"{title.lower()}?", 2, explain=True)
            assert [hit.heading_factor for hit in hits] == [2, None]
            assert hits[0].id == title
            assert hits[0].fused_score == 2 * (hits[0].keyword_score or 0)
            assert hits.explanation is not None
            assert "its heading is the query" in str(hits.explanation.hits[0])
        assert {hit.heading_factor for hit in await retriever.search("how to log a user", 2)} == {None}
    async with opened(database_url, 16, collection="vectors") as retriever:
        await retriever.add_documents([*documents, Document("something else")])
        for fusion in ("score", "rrf", "linear"):
            first, second = await retriever.search(titles[1], 2, fusion=fusion)
            assert (first.id, first.heading_factor, second.heading_factor) == (titles[1], 2, None)


async def test_a_word_typed_with_accents_prefers_them_and_without_finds_all(database_url):
    async with opened(database_url, "none", language="vietnamese") as retriever:
        texts = {"a": "ma mot", "b": "má mot", "c": "mà mot", "d": "khac"}
        await retriever.add_documents([Document(text, id=name) for name, text in texts.items()])
        accented = await retriever.search("má", 3, explain=True)
        assert accented[0].id == "b"
        assert {hit.id for hit in accented} == {"a", "b", "c"}
        assert accented[0].coverage == accented[1].coverage == 1  # one word, however it is typed
        assert accented.explanation is not None
        (word,) = accented.explanation.hits[0].terms
        assert (word.term, word.score) == ("ma", pytest.approx(accented[0].keyword_score))
        plain = await retriever.search("ma", 3)
        assert len({hit.keyword_score for hit in plain}) == 1  # and a second form adds no length
        excluded = await retriever.search("mot -má", 3)
        assert excluded == []


async def test_a_place_that_is_set_before_the_excerpt_is_read_stays(database_url):
    async with opened(database_url) as store:
        await store.add_documents([Document("a lion sleeps", id="l")])
        (hit,) = await store.search("lion", top_k=1)
        hit.page, hit.match_line = 7, 3
        assert (hit.excerpt, hit.page, hit.match_line, hit.row, hit.place) == ("a **lion** sleeps", 7, 3, None, "")
