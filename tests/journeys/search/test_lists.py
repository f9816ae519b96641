"""Many searches in one call equal single ones; pages together are one list, and their cursors are signed."""

import inspect
import json
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from semlex import Document, F, SearchQuery, SyncRetriever, TermOverlapReranker
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ValidationError
from semlex.search import request, retrieval
from semlex.search.pagination import CHANGED, MAX_CURSOR_CHARACTERS, SIGNATURE_BYTES, VERSION, signed
from semlex.search.planner import MAX_ROWS
from semlex.search.request import MAX_QUERIES
from semlex.store.postgres.database import Database
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.properties import examples
from tests.support.retrievers import filled, pages, plain, sync_filled, sync_opened
from tests.support.spies import calls_of

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
DIMENSIONS = 16


def documents(count):
    """Their ids are no hexadecimal digits, which a cursor has."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(2, 9))) for _ in range(count)]
    return [Document(text, {"even": n % 2 == 0}, id=f"t{n:03}") for n, text in enumerate(texts)]


class BatchEmbedder(HashEmbedder):
    """Embeds many queries at once, records the size of each batch, and fails on demand."""

    def __init__(self):
        super().__init__(DIMENSIONS)
        self.batches = []
        self.error = None
        self.unusable = ""

    def embed_queries(self, texts):
        self.batches.append(len(texts))
        if self.error is not None:
            raise self.error
        vectors = self.embed_documents(texts).copy()
        vectors[[text == self.unusable for text in texts]] = np.nan
        return vectors


@pytest.fixture(scope="module")
def library(module_url):
    """300 documents; tests only read it."""
    with sync_filled(module_url, documents(300), BatchEmbedder(), TermOverlapReranker()) as retriever:
        yield retriever


def ranked(hits):
    return [(hit.rank, hit.id, hit.vector_score, hit.keyword_score, hit.fused_score, hit.rerank_score) for hit in hits]


QUERY = st.lists(st.sampled_from([*WORDS, "-sea", '"hill river"', "zzqx"]), min_size=1, max_size=4).map(" ".join)
MODE, FUSION = st.sampled_from(["vector", "keyword", "hybrid", None]), st.sampled_from(["score", "rrf", "linear"])


@pytest.mark.slow
@given(
    query=QUERY,
    cuts=st.integers(1, 8),
    most=st.integers(1, 400),
    mode=MODE,
    fusion=FUSION,
    filters=st.sampled_from([None, {"even": True}]),
)
@settings(max_examples=examples(30, full=2_000))
def test_pages_together_are_one_list(library, query, cuts, most, **options):
    top_k = -(-most // cuts)
    options |= {"rerank": False, "max_results": most}
    whole = library.search(query, most, **options)
    found = pages(library, query, top_k, **options)
    assert ranked([hit for page in found for hit in page]) == ranked(whole)
    assert all(len(page) == top_k for page in found[:-1])
    assert whole.next_cursor is None
    assert not any(CHANGED in page.warnings for page in found)
    assert len(whole) == most or len(whole) <= 300


def mixed_in_words(reranked, fused, weight):
    """The slow twin of mixing: both scores in standard deviations from their means."""

    def z_scores(scores):
        mean, deviation = np.mean(scores), np.std(scores)
        return [float((score - mean) / deviation) if len(set(scores)) > 1 else 0.0 for score in scores]

    both = zip(z_scores(reranked), z_scores(fused), strict=True)
    return [np.float32(weight * one + (1 - weight) * other) for one, other in both]


@pytest.mark.slow
@given(
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    cuts=st.integers(1, 8),
    most=st.integers(1, 100),
    weight=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=examples(20, full=2_000))
def test_reranked_pages_are_one_list_of_which_the_beginning_is_reranked(library, query, cuts, most, weight):
    reranker, top_k = TermOverlapReranker(), -(-most // cuts)
    # The slow twin: the whole list in the order of the fusion, its beginning reranked.
    options = {"max_results": most, "tuning": {"candidates": 1000}, "rerank_weight": weight}
    fused = library.search(query, 1000, rerank=False, tuning={"candidates": 1000})
    window = fused[: 4 * top_k]
    scores = reranker.score(query, [hit.content for hit in window]).tolist()
    mixed = mixed_in_words(scores, [hit.fused_score or 0.0 for hit in window], weight)
    order = sorted(range(len(window)), key=lambda place: (-mixed[place], -weight * scores[place]))
    expected = [(window[place].id, scores[place]) for place in order]
    expected += [(hit.id, None) for hit in fused[4 * top_k :]]
    found = pages(library, query, top_k, **options)
    assert [(hit.id, hit.rerank_score) for page in found for hit in page] == expected[:most]
    assert [hit.rank for page in found for hit in page] == list(range(1, min(most, len(fused)) + 1))
    assert {page.reranker_model for page in found} == {reranker.identity}


def test_later_pages_ask_no_reranker(library, module_url):
    cursor = library.search("sea stone", 5, max_results=50).next_cursor
    with sync_opened(module_url, DIMENSIONS) as other:  # without a reranker, in another process
        page = other.search_page(cursor)
        assert ranked(page) == ranked(library.search_page(cursor))
        assert "rerank" not in page.timings
        assert CHANGED not in page.warnings


def test_pages_of_a_vector_of_ones_own_and_searches_without_pages(library):
    vector = np.random.default_rng(5).normal(size=DIMENSIONS).astype(np.float32)
    whole = library.search(vector=vector, top_k=40, max_results=40)
    paged = pages(library, vector=vector, top_k=7, max_results=40)
    assert ranked([hit for page in paged for hit in page]) == ranked(whole)
    assert library.search("sea", 5).next_cursor is None
    assert library.search("sea", 5, max_results=5).next_cursor is None
    assert library.search("no such words at all", 5, mode="keyword", max_results=50).next_cursor is None
    page = library.search("sea", 5, max_results=6)
    assert page.to_dict()["next_cursor"] == page.next_cursor
    assert len(library.search_page(page.next_cursor)) == 1


def test_a_write_that_changes_the_list_is_reported(database_url):
    with sync_filled(database_url, documents(100), DIMENSIONS) as retriever:
        first = retriever.search("sea hill", 5, max_results=100)
        second = retriever.search_page(first.next_cursor)
        assert second.warnings == []
        retriever.delete([first[0].id])
        changed = retriever.search_page(second.next_cursor)
        assert CHANGED in changed.warnings
        # From there on the list is what it is now.
        after = retriever.search_page(changed.next_cursor)
        assert after.warnings == []
        whole = retriever.search("sea hill", 100, max_results=100)
        assert ranked([*changed, *after]) == ranked(whole[10:20])
    with sync_opened(database_url, DIMENSIONS, TermOverlapReranker()) as retriever:  # a reranked list
        first = retriever.search("sea hill", 5, max_results=99, tuning={"candidates": 99})
        retriever.delete([first[0].id])
        page = retriever.search_page(first.next_cursor)
        assert CHANGED in page.warnings
        assert "rerank" in page.timings
        assert ranked(page) == ranked(pages(retriever, "sea hill", 5, max_results=99, tuning={"candidates": 99})[1])
        rest = retriever.search_page(page.next_cursor)
        assert "rerank" not in rest.timings
        assert rest.warnings == []


def cursor_of(library, **options):
    return library.search(**({"query": "sea stone", "top_k": 5, "max_results": 50} | options)).next_cursor


def raw(cursor):
    return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def content(cursor):
    return json.loads(raw(cursor)[1 + SIGNATURE_BYTES :])


@pytest.fixture
def key(library, module_url):
    """The key of the library's cursors."""
    del library  # it makes the collection
    [[stored]] = execute(module_url, "SELECT cursor_key FROM semlex.collection")
    return bytes.fromhex(stored)


NOT_PAGED = {"self", "rerank", "deadline", "group_by", "group_size", "min_similarity", "min_rerank", "fallback"}
NOT_PAGED |= {"explain", "route"}


def test_a_cursor_fits_a_url_and_says_nothing_but_the_search(library):
    cursor = cursor_of(library)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert len(cursor) < 1000
    hits = library.search("sea stone", 50, rerank=False)
    held = content(cursor)
    assert not [hit.id for hit in hits if hit.id in json.dumps(held)]
    assert held["query"] == "sea stone"
    options = inspect.signature(SyncRetriever.search).parameters.keys() - NOT_PAGED
    assert options <= held.keys()


def test_a_damaged_cursor_is_refused(library):
    cursor = cursor_of(library)

    @given(place=st.integers(0, len(cursor) - 1), other=st.sampled_from("ABCxyz019-_=+/. é\n"), way=st.integers(0, 3))
    @settings(max_examples=examples(150))
    def damage(place, other, way):
        before, after = cursor[:place], cursor[place:]
        damaged = (before, before + other + after[1:], before + other + after, cursor + other)[way]
        if damaged != cursor:
            with pytest.raises(ValidationError, match="cursor"):
                library.search_page(damaged)

    damage()
    for text in ("", " ", "x" * 2 * MAX_CURSOR_CHARACTERS, "\0", "\udcff", cursor + "=", f" {cursor}"):
        with pytest.raises(ValidationError, match="cursor"):
            library.search_page(text)


def test_a_search_that_was_changed_in_a_cursor_is_refused(library):
    cursor = cursor_of(library, filters={"even": True})
    body = json.dumps(content(cursor) | {"filters": "even == false"}).encode()
    forged = {
        "the same signature": urlsafe_b64encode(raw(cursor)[: 1 + SIGNATURE_BYTES] + body).rstrip(b"=").decode(),
        "no signature": urlsafe_b64encode(VERSION + body).rstrip(b"=").decode(),
        "another key": signed(body, bytes(32)),
    }
    for made_with, text in forged.items():
        with pytest.raises(ValidationError) as caught:
            library.search_page(text)
        assert str(caught.value).startswith("cursor must be the next_cursor of an earlier page"), made_with


def test_a_page_holds_to_the_filters_of_the_caller(library):
    every = cursor_of(library)
    even = cursor_of(library, filters={"even": True})
    both = cursor_of(library, filters=(F("even") == True) & ((F("more") == 1.0) | F("even").in_([True, "b"])))  # noqa: E712
    for cursor, filters in (
        *((even, one) for one in (None, {}, {"even": True}, "even == true")),
        (both, F("even") == True),  # noqa: E712
        (both, {"$or": [{"more": 1.0}, {"even": {"$in": [True, "b"]}}], "even": True}),
    ):
        assert ranked(library.search_page(cursor, filters)) == ranked(library.search_page(cursor))
    wrong = ((even, one) for one in ({"even": False}, {"even": 1}, {"even": True, "more": 1}))
    for cursor, filters in ((every, {"even": True}), (both, {"more": 1.0}), *wrong):
        with pytest.raises(ValidationError, match=r"^filters must be conditions of the search that the cursor"):
            library.search_page(cursor, filters)
    with pytest.raises(ValidationError, match=r"^filters\.\$nor"):
        library.search_page(even, {"$nor": []})


def test_a_cursor_that_was_signed_is_checked_like_arguments(library, key):
    good = content(cursor_of(library))
    wrong = [None, True, -1, 0, 10**30, 1.5, "zebra", [], [1], {}, {"a": 1}, {"$gt": 1}, "AAAA"]
    for name in good:
        for value in wrong:
            with suppress(ValidationError):  # some of these values are as good as what was there
                library.search_page(signed(json.dumps(good | {name: value}).encode(), key))
    for name, value in (("top_k", "zebra"), ("offset", 50), ("scores", "AAA"), ("max_results", 4), ("query", None)):
        with pytest.raises(ValidationError, match=r"^cursor must be the next_cursor of an earlier page"):
            library.search_page(signed(json.dumps(good | {name: value}).encode(), key))
    for body in (b"", b"{", b"[]", b"null", b"1e999", b'{"offset": NaN}', b"[" * 100_000, b"\xff", b"{}"):
        with pytest.raises(ValidationError, match="cursor"):
            library.search_page(signed(body, key))
    with pytest.raises(ValidationError, match="cursor"):
        library.search_page(signed(json.dumps(good | {"more": 1}).encode(), key))


def test_cursors_of_another_version_or_collection_are_refused(library, key, database_url):
    cursor = cursor_of(library)
    with pytest.raises(ValidationError, match="version 1"):
        library.search_page(signed(json.dumps(content(cursor)).encode(), key, b"\x02"))
    with sync_filled(database_url, documents(30), DIMENSIONS) as other:
        with pytest.raises(ValidationError, match="another collection"):
            other.search_page(cursor)
        cursor = other.search("sea", 5, max_results=20).next_cursor
        other.drop_collection()
    with (
        sync_filled(database_url, documents(30), DIMENSIONS) as again,
        pytest.raises(ValidationError, match="another collection"),
    ):
        again.search_page(cursor)


def test_bounds(library):
    for wrong in (4, 0, 1001, 2.5, True, "9"):
        with pytest.raises(ConfigurationError, match="max_results"):
            library.search("sea", 5, max_results=wrong)
    with pytest.raises(ConfigurationError, match="candidates must be between max_results"):
        library.search("sea", 5, max_results=100, tuning={"candidates": 50})
    with pytest.raises(ValidationError, match=r"65,?536 bytes"):
        library.search("sea", 5, {"even": ["x" * 1000] * 60 + ["é" * 3000]}, max_results=50)
    with pytest.raises(ConfigurationError, match="deadline"):
        library.search_page(cursor_of(library), deadline=-1)
    assert len(library.search_page(cursor_of(library), deadline=60)) == 5


@pytest.mark.slow
@given(
    queries=st.lists(QUERY, max_size=6),
    top_k=st.integers(1, 30),
    mode=MODE,
    fusion=FUSION,
    filters=st.sampled_from([None, {"even": True}, {"odd": 1}]),
    rerank=st.sampled_from([None, False]),
)
@settings(max_examples=examples(30, full=2_000))
def test_many_searches_equal_single_ones(library, queries, top_k, **options):
    together = library.search_many(queries, top_k, **options)
    assert list(map(plain, together)) == [plain(library.search(query, top_k, **options)) for query in queries]


def test_queries_with_options_of_their_own(library):
    vector = tuple(np.ones(DIMENSIONS).tolist())
    queries = [SearchQuery("sea", top_k=7), "hill", SearchQuery(query_embedding=vector), SearchQuery("sea", vector)]
    together = library.search_many(iter(queries))
    assert [len(results) for results in together] == [7, 5, 5, 5]
    assert list(map(plain, together)) == [plain(library.search(query)) for query in queries]


def test_a_filter_is_read_once(library, monkeypatch):
    read, parse = [], request.parse_filters
    monkeypatch.setattr(request, "parse_filters", lambda filters, names: read.append(filters) or parse(filters, names))
    options = {"filters": "even == true", "boost": {"even == true": 2.0}}
    both = library.search_many(["sea", "hill river"], **options)
    assert [one for one in read if one is not None] == ["even == true"]
    monkeypatch.undo()
    assert list(map(plain, both)) == [plain(library.search(one, **options)) for one in ("sea", "hill river")]
    assert all(hit.metadata["even"] for one in both for hit in one)


def test_the_model_is_asked_once_and_all_searches_see_one_state(database_url, monkeypatch):
    embedder = BatchEmbedder()
    with sync_filled(database_url, documents(20), embedder) as retriever:
        retriever.search_many(["sea", "hill", "sea", "wind"])
        assert embedder.batches == [3]
        results = retriever.search_many(["sea", "cloud", "hill", "river"])
        assert embedder.batches == [3, 2]
        assert [one.query_cached for one in results] == [True, False, True, False]
        assert [one.query_cached for one in retriever.search_many(["sea", "grass"])] == [True, False]
        assert embedder.batches == [3, 2]  # one query is not a batch
        assert retriever.search_many([]) == []
        assert retriever.search_many(["sea"], mode="keyword")[0].mode == "keyword"
        assert embedder.batches == [3, 2]
        snapshots = calls_of(monkeypatch, Database, "_read")  # the sample of vectors is in memory now
        retriever.search_many(["sea", "-sea hill", '"no phrase"', "sea"])
        assert len(snapshots) == 1
    with sync_opened(database_url, DIMENSIONS) as retriever:  # whose model embeds one query after another
        assert plain(retriever.search_many(["sea", "hill"])[1]) == plain(retriever.search("hill"))


def test_what_fails_leaves_the_words_as_in_a_single_search(database_url):
    embedder = BatchEmbedder()
    with sync_filled(database_url, documents(20), embedder, cached_queries=0) as retriever:
        embedder.error = RuntimeError("zebra")
        for results in retriever.search_many(["sea", "hill"]):
            assert results.mode == "keyword"
            assert "RuntimeError" in str(results.warnings)
            assert "zebra" not in str(results.warnings)
        with pytest.raises(ModelError):
            retriever.search_many(["sea", "hill"], mode="vector")
        embedder.error, embedder.unusable = None, "hill"
        assert [one.mode for one in retriever.search_many(["sea", "hill"])] == ["hybrid", "keyword"]
        embedder.unusable = ""
        execute(database_url, "ALTER TABLE semlex.default_collection_embedding_1 RENAME COLUMN embedding TO gone")
        together = retriever.search_many(["sea", "hill river", "zzqx"])
        assert list(map(plain, together)) == [plain(retriever.search(q)) for q in ("sea", "hill river", "zzqx")]
        assert all(one.mode == "keyword" and "vector search" in str(one.warnings) for one in together)
        assert len(together[0]) == 5
    with sync_filled(database_url, documents(20), "none", collection="words") as retriever:
        assert [one.mode for one in retriever.search_many(["sea", "hill"])] == ["keyword"] * 2
        with pytest.raises(EmbeddingsMissingError):
            retriever.search_many(["sea"], mode="vector")


@pytest.mark.direct
def test_a_lost_connection_is_replaced(database_url, monkeypatch):
    lost, load = [], retrieval.load_results

    async def losing(snapshot, *arguments, **options):
        info = snapshot.connection.info
        lost.append(info.backend_pid)
        if len(lost) == 2:  # in the second search
            url = make_conninfo(database_url, host=info.host, port=info.port)
            execute(url, "SELECT pg_terminate_backend(%s, 5000)", [lost[0]])
        return await load(snapshot, *arguments, **options)

    with sync_filled(database_url, documents(20), BatchEmbedder()) as retriever:
        expected = [plain(retriever.search(query)) for query in ("sea", "hill", "wind")]
        monkeypatch.setattr(retrieval, "load_results", losing)
        assert list(map(plain, retriever.search_many(["sea", "hill", "wind"]))) == expected
    assert len(lost) == 5
    assert len(set(lost)) == 2


async def test_in_a_transaction_of_ones_own(database_url):
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        async with filled(None, documents(20), BatchEmbedder(), connection=connection) as retriever:
            together = await retriever.search_many(["sea", "-sea hill"])
            assert [plain(one) for one in together] == [plain(await retriever.search(q)) for q in ("sea", "-sea hill")]
            assert (await retriever.fields.facets(["even"], query="sea")).chunks == 20
            first = await retriever.search("sea", 5, max_results=20)
            assert len(await retriever.search_page(first.next_cursor)) == 5
        await connection.rollback()


def test_bad_queries_are_reported_together_and_too_many_are_refused(library):
    with pytest.raises(ValidationError) as caught:
        library.search_many(["sea", " ", "x" * 5000, None, 5])
    wrong = [(1, "blank"), (2, "too_long"), (3, "wrong_type"), (4, "wrong_type")]
    assert [(error.row, error.code) for error in caught.value.errors] == wrong
    with pytest.raises(ValidationError) as caught:
        library.search_many(["sea", "hill"], filters={"a": object()})
    assert [error.row for error in caught.value.errors] == [-1]
    for queries in ("sea", b"sea", None, 5, {"sea": 1}, SearchQuery("sea")):
        with pytest.raises(ValidationError, match="queries must be a list of str"):
            library.search_many(queries)
    with pytest.raises(ConfigurationError, match="top_k"):
        library.search_many([SearchQuery("sea")], 7)
    with pytest.raises(ValidationError, match=r"1,?000 queries"):
        library.search_many(f"q{n}" for n in range(10**9))
    for count, top_k in ((MAX_ROWS // 1000 + 1, 1000), (MAX_QUERIES, 13)):
        with pytest.raises(ValidationError, match=r"50,?000 chunks"):
            library.search_many(["sea"] * count, top_k, rerank=False if top_k == 1000 else None)
