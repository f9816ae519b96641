"""Searching: as many rows as asked for, in one order, equal to an in-memory model, and never an error on any text."""

import asyncio
import itertools
import operator
import random
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex import _core
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ModelMismatchError, ValidationError
from semlex.retriever.synchronous import SyncRetriever
from semlex.search import retrieval
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from semlex.types.queries import SearchQuery
from tests.support.databases import execute, set_in_database
from tests.support.properties import examples
from tests.support.retrievers import filled, ids_of, opened, plain, sync_filled, sync_opened

pytestmark = pytest.mark.pg16

DIMENSIONS = 16
CHUNK = "semlex.default_collection_chunk"
WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")


def unit_vectors(count):
    values = np.random.default_rng(0).normal(size=(count, DIMENSIONS))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def numbered(count):
    """Texts by ids that are numbers as well."""
    return {f"d{n:04}": f"text {n}" for n in range(count)}


@pytest.fixture(scope="module")
def library(module_url):
    """400 documents of a few words each, with metadata; tests only read it."""
    chance = random.Random(1)
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(3, 12))) for _ in range(400)]
    documents = [Document(f"{text} n{n}", {"number": n}, id=f"d{n:03}") for n, text in enumerate(texts)]
    with sync_filled(module_url, documents, DIMENSIONS) as retriever:
        yield retriever


@pytest.mark.slow
def test_top_k_rows_come_back(database_url):
    """Under an HNSW index, which the planner must use."""
    vectors = unit_vectors(2000)
    set_in_database(database_url, "enable_seqscan", "off")
    with sync_filled(database_url, numbered(2000), "none", vectors=vectors) as retriever:
        assert "hnsw_1" in retriever.indexes.create()
        for top_k in (1, 40, 41, 100, 334, 1000):
            for mode in ("vector", None):
                results = retriever.search("text", top_k, vector=vectors[5], mode=mode)
                assert len(set(ids_of(results))) == top_k
                assert [result.rank for result in results] == list(range(1, top_k + 1))
            assert len(retriever.search("text", top_k, mode="keyword")) == top_k


@pytest.mark.slow
def test_deleted_rows_do_not_shorten_the_answer(database_url):
    vectors = unit_vectors(1500)
    nearest = [f"d{n:04}" for n in np.argsort(-(vectors @ vectors[0]), kind="stable")]
    with sync_filled(database_url, numbered(1500), "none", vectors=vectors) as retriever:
        retriever.indexes.create()
        # The 1,200 nearest: the index, as long as it is not vacuumed, finds dead rows only.
        retriever.delete(nearest[:1200])
        assert ids_of(retriever.search(vector=vectors[0], top_k=300)) == nearest[1200:]
        assert len(retriever.search(vector=vectors[0], top_k=1000)) == 300


@pytest.mark.slow
@pytest.mark.direct
def test_searches_pass_dead_rows_in_the_index(database_url, monkeypatch):
    monkeypatch.setattr(retrieval, "INDEX_FROM_ROWS", 1)  # a small collection is searched exactly instead
    vectors = unit_vectors(1500)
    gone = [f"d{n:04}" for n in np.argsort(-(vectors @ vectors[0]), kind="stable")[:400]]
    set_in_database(database_url, "enable_seqscan", "off")
    with sync_filled(database_url, numbered(1500), "none", vectors=vectors) as retriever:
        retriever.indexes.create()
        found = [retriever.search("text", vector=vectors[0])]
        retriever.delete(gone)
        found += [retriever.search("text", vector=vectors[0]) for _ in range(2)]
    plan = "vector index, ef_search 120, 36 of halfvec rescored"
    assert [results.legs["vector"].plan for results in found] == [plan, f"{plan}, as {plan} gave 0", plan]
    for results in found[1:]:
        assert results.legs["vector"].candidates == 30
        assert not {*gone} & {*ids_of(results)}


@pytest.mark.slow
@pytest.mark.parametrize("with_index", [True, False])
def test_rows_deleted_behind_our_back_are_replaced(database_url, with_index):
    vectors = unit_vectors(300)
    names = [f"d{n:04}" for n in np.argsort(-(vectors @ vectors[0]), kind="stable")]
    gone, expected = names[:200], names[200:]
    with sync_filled(database_url, numbered(300), "none", vectors=vectors) as retriever:
        if with_index:
            retriever.indexes.create()
        execute(database_url, f"DELETE FROM {CHUNK} WHERE chunk_id = ANY(%s)", [gone])
        assert ids_of(retriever.search(vector=vectors[0], top_k=5)) == expected[:5]
        assert ids_of(retriever.search(vector=vectors[0], top_k=1000)) == expected
        found = ids_of(retriever.search("text", 50, vector=vectors[0]))
        assert len(found) == 50
        assert not set(gone) & set(found)
        assert retriever.status().orphaned_vectors == 200


@pytest.mark.slow
def test_ties_are_ordered_by_key(database_url):
    """Equal rows come in the order of their keys, also where the candidates end, and wherever they lie on disk."""
    vector = np.ones(DIMENSIONS, np.float32)
    texts = dict.fromkeys((f"d{n}" for n in random.sample(range(200), 200)), "the same text")
    with sync_filled(database_url, texts, "none", vectors=np.tile(vector, (200, 1))) as retriever:
        rows = execute(database_url, f"SELECT chunk_id FROM {CHUNK} ORDER BY document_id, chunk_id")
        expected = [chunk_id for (chunk_id,) in rows]
        for mode, top_k in itertools.product(("vector", "keyword", "hybrid"), (5, 60, 200)):
            assert ids_of(retriever.search("same text", top_k, vector=vector, mode=mode)) == expected[:top_k], mode


@pytest.mark.slow
def test_the_legs_and_their_scores(library):
    embedder = HashEmbedder(DIMENSIONS)
    query = "sea and stone"
    everything = library.get([f"d{n:03}" for n in range(400)])
    cosines = embedder.embed_documents([one.content for one in everything]) @ embedder.embed_query(query)
    by_id = dict(zip(ids_of(everything), cosines.tolist(), strict=True))

    vector = library.search(query, 10, mode="vector")
    assert (vector.mode, vector.fusion, list(vector.legs)) == ("vector", None, ["vector"])
    assert (vector.legs["vector"].candidates, vector.embedding_model) == (30, embedder.identity.model)
    best = sorted(by_id.values(), reverse=True)[:10]
    assert [one.vector_score for one in vector] == pytest.approx(best, abs=1e-5)

    keyword = library.search(query, 10, mode="keyword")
    assert (keyword.mode, keyword.fusion, keyword.embedding_model) == ("keyword", None, None)
    for one in keyword:
        assert {"sea", "stone"} & set(one.content.split())
        assert (one.vector_score, one.vector_rank, one.fused_score) == (None, None, None)
    scores = [one.keyword_score for one in keyword]
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
        assert (one.metadata["rerank_score"], one.metadata["number"]) == (None, int(one.id[1:]))
    fused = [one.fused_score for one in hybrid]
    assert fused == sorted(fused, reverse=True)
    assert set(ids_of(keyword)) & set(ids_of(hybrid))


@pytest.mark.slow
@given(vector=st.floats(0, 10), keyword=st.floats(0, 10), rrf_k=st.floats(0, 1000))
@settings(max_examples=examples(25, full=2_500))
def test_weights_and_constant_of_the_fusion(library, vector, keyword, rrf_k):
    weights = {"vector": vector, "keyword": keyword}
    for one in library.search("river wind", 50, fusion="rrf", weights=weights, rrf_k=rrf_k):
        ranks = ((vector, one.vector_rank), (keyword, one.keyword_rank))
        wanted = sum(weight / (rrf_k + rank) for weight, rank in ranks if rank is not None)
        assert one.fused_score == pytest.approx(wanted, rel=1e-9, abs=1e-12)


OPERATORS = ["-", "--", "!", "&", "|", "<->", "<2>", "(", ")", "'", '"', ":*", ":A", "\\", "or", "OR", "and"]
HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80),
    st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=60).map(" ".join),
    st.builds(operator.mul, st.sampled_from(["-", "!", "'", '"', "\\", "a:", "(", "é", "🐘"]), st.integers(1, 900)),
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(text=HOSTILE.filter(lambda text: text.strip() and len(text.strip().encode()) <= 4096))
@example(text="-" * 40)
@example(text="a & | ! b")
@example(text="' \\' or 1=1; DROP TABLE x; --")
@example(text="$$ %s %(query)s {} :x")
@example(text=" ".join(f"-w{n}" for n in range(300)))
@settings(max_examples=examples(100, full=100_000))
def test_no_text_is_an_error(library, text):
    if _core.Analyzer("english").query(text).conditions > 64:  # in quotes or behind a dash
        with pytest.raises(ValidationError, match="64 words in quotes or after a dash"):
            library.search(text, 3)
        return
    results = library.search(text, 3)
    assert len(results) == 3 or re.search(r'["“”„«»]|(^|\s)-', text)  # phrases and exclusions leave texts out
    assert [told for told in results.warnings if not re.search("terms|no word|phrase", told)] == []
    library.search(text, 3, mode="keyword")


def test_stop_words_many_terms_and_excerpts(library):
    results = library.search("the of and to", 5)
    assert (len(results), results.legs["keyword"].candidates) == (5, 0)
    assert library.search("the of and to", 5, mode="keyword") == []
    for count, flagged in ((64, False), (65, True), (500, True)):
        results = library.search(" ".join(f"w{n}" for n in range(count)), 3)
        assert any(f"{count} terms" in warning and "64" in warning for warning in results.warnings) == flagged
    found = library.search("n7 " + " ".join(f"w{n}" for n in range(300)), 1, mode="keyword")
    assert ids_of(found) == ["d007"]
    hit, *others = library.search("sea", 5, mode="keyword")
    hit.page, hit.match_line = 7, 3  # reading the excerpt keeps a place that was set before
    assert all("**sea**" in one.excerpt for one in (hit, *others))
    assert (hit.page, hit.match_line, hit.row, hit.place) == (7, 3, None, "")
    assert library.search(vector=unit_vectors(1)[0], top_k=1)[0].excerpt != ""


@pytest.mark.slow
def test_another_model_is_refused_by_name(database_url):
    with sync_filled(database_url, {"a": "some text"}, DIMENSIONS):
        pass
    with pytest.raises(ModelMismatchError) as caught:
        sync_opened(database_url, DIMENSIONS * 2).initialize()
    assert all(part in str(caught.value) for part in ("semlex.testing/hash", str(DIMENSIONS), str(DIMENSIONS * 2)))
    with sync_opened(database_url, DIMENSIONS) as retriever:  # the same settings again
        found = retriever.search("some text")
        assert (ids_of(found), found.mode) == (["a"], "hybrid")


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
        assert (both.mode, ids_of(one for one in both if one.vector_rank == 1)) == ("hybrid", ["3"])
        with pytest.raises(ModelError, match="vector="):
            retriever.search("text", mode="vector")
        flagged = retriever.search("text", mode="hybrid")
        assert (flagged.mode, flagged.requested_mode) == ("keyword", "hybrid")
        assert "vector search" in flagged.warnings[0]
    with SyncRetriever(database_url) as retriever:  # nothing configured: the collection says that there is no model
        assert ids_of(retriever.search(vector=vectors[4], top_k=1)) == ["4"]


def test_the_first_vectors_are_found_by_a_vector_however_it_is_given(database_url):
    vector = [1.0, 0.0, 0.0]
    with sync_opened(database_url, "none", collection="given") as store, ExitStack() as closing:
        early = [closing.enter_context(sync_opened(database_url, "none", collection="given")) for _ in range(2)]
        assert [one.count() for one in early] == [0, 0]  # opened before the first vectors
        store.add_texts(["a lion"], ids=["lion"], embeddings=[vector])
        assert ids_of(early[0].search(vector=vector)) == ["lion"]
        assert ids_of(early[1].search(SearchQuery(query_embedding=vector))) == ["lion"]


def test_no_keyword_engine(database_url):
    with sync_filled(database_url, {"a": "some text"}, DIMENSIONS, keyword="none") as retriever:
        assert retriever.search("some text").mode == "vector"
        with pytest.raises(ConfigurationError, match="keyword"):
            retriever.search("some text", mode="keyword")


@pytest.mark.slow
def test_concurrent_searches_equal_their_serial_answers(module_url, library, full):
    """On one event loop with few connections, and in threads that share a retriever."""
    queries = [f"{one} {other}" for one in WORDS[:4] for other in WORDS[4:]]
    serial = [plain(library.search(query, 7)) for query in queries]

    async def together():
        async with opened(module_url, DIMENSIONS, max_connections=4) as retriever:
            for _ in range(100 if full else 3):
                found = await asyncio.gather(*(retriever.search(query, 7) for query in queries))
                assert [plain(results) for results in found] == serial

    asyncio.run(together())
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda query: plain(library.search(query, 7)), queries * 3)) == serial * 3


async def test_a_heading_that_is_the_query_counts_twice(database_url):
    """Stop words of a heading are not indexed: "in" and "out" differ all the same."""
    titles = ("How to log a user in", "How to log a user out")
    text = "Call it with the request and the user: log {}."
    documents = [Document(text.format("user " * (3 - n)), {"section_title": t}, id=t) for n, t in enumerate(titles)]
    documents.append(Document("something else"))
    async with filled(database_url, documents, "none") as retriever:
        for title in titles:
            hits = await retriever.search(f"{title.lower()}?", 2, explain=True)
            assert [hit.heading_factor for hit in hits] == [2, None]
            assert hits[0].id == title
            assert hits[0].fused_score == 2 * (hits[0].keyword_score or 0)
            assert "its heading is the query" in str(hits.explanation.hits[0])
        assert {hit.heading_factor for hit in await retriever.search("how to log a user", 2)} == {None}
    async with filled(database_url, documents, 16, collection="vectors") as retriever:
        for fusion in ("score", "rrf", "linear"):
            first, second = await retriever.search(titles[1], 2, fusion=fusion)
            assert (first.id, first.heading_factor, second.heading_factor) == (titles[1], 2, None)


async def test_a_word_typed_with_accents_prefers_them_and_without_finds_all(database_url):
    texts = {"a": "ma mot", "b": "má mot", "c": "mà mot", "d": "khac"}
    async with filled(database_url, texts, "none", language="vietnamese") as retriever:
        accented = await retriever.search("má", 3, explain=True)
        assert accented[0].id == "b"
        assert {hit.id for hit in accented} == {"a", "b", "c"}
        assert accented[0].coverage == accented[1].coverage == 1  # one word, however it is typed
        (word,) = accented.explanation.hits[0].terms
        assert (word.term, word.score) == ("ma", pytest.approx(accented[0].keyword_score))
        without = await retriever.search("ma", 3)
        assert len({hit.keyword_score for hit in without}) == 1  # and a second form adds no length
        assert await retriever.search("mot -má", 3) == []
