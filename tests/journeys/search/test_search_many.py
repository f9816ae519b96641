"""Many searches in one call: equal to single ones, in one snapshot, one batch for the model, and as robust."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from semlex import Document, SearchQuery, TermOverlapReranker
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, ValidationError
from semlex.search import request, retrieval
from semlex.search.planner import MAX_ROWS
from semlex.search.request import MAX_QUERIES
from semlex.store.postgres.database import Database
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.properties import examples
from tests.support.retrievers import filled, plain, sync_filled, sync_opened
from tests.support.spies import calls_of

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
DIMENSIONS = 16
VECTORS = "semlex.default_collection_embedding_1"


class BatchEmbedder(HashEmbedder):
    """Embeds many queries at once, and remembers how it was asked; fails when it is told to."""

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


def texts_of(count):
    words = [" ".join(WORDS[(n * step) % len(WORDS)] for step in range(1, 2 + n % 6)) for n in range(count)]
    return [Document(text, {"even": n % 2 == 0}, id=f"d{n:03}") for n, text in enumerate(words)]


@pytest.fixture(scope="module")
def library(new_database):
    """200 documents; tests only read it."""
    with sync_filled(new_database(), texts_of(200), BatchEmbedder(), TermOverlapReranker()) as retriever:
        yield retriever


QUERY = st.lists(st.sampled_from([*WORDS, "-sea", '"hill river"', "zzqx"]), min_size=1, max_size=4).map(" ".join)


@pytest.mark.slow
def test_many_searches_equal_single_ones(library, full):
    @given(
        queries=st.lists(QUERY, max_size=6),
        top_k=st.integers(1, 30),
        mode=st.sampled_from(["vector", "keyword", "hybrid", None]),
        fusion=st.sampled_from(["score", "rrf", "linear"]),
        filters=st.sampled_from([None, {"even": True}, {"odd": 1}]),
        rerank=st.sampled_from([None, False]),
    )
    @settings(max_examples=2_000 if full else examples(30))
    def search(queries, top_k, **options):
        together = library.search_many(queries, top_k, **options)
        assert list(map(plain, together)) == [plain(library.search(query, top_k, **options)) for query in queries]

    search()


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
    with sync_filled(database_url, texts_of(20), embedder) as retriever:
        retriever.search_many(["sea", "hill", "sea", "wind"])
        assert embedder.batches == [3]
        results = retriever.search_many(["sea", "cloud", "hill"])
        assert embedder.batches == [3, 1]
        assert [one.query_cached for one in results] == [True, False, True]
        assert retriever.search_many([]) == []
        assert retriever.search_many(["sea"], mode="keyword")[0].mode == "keyword"
        assert embedder.batches == [3, 1]
        snapshots = calls_of(monkeypatch, Database, "_read")  # the sample of vectors is in memory now
        retriever.search_many(["sea", "-sea hill", '"no phrase"', "sea"])
        assert len(snapshots) == 1
    with sync_opened(database_url, DIMENSIONS) as retriever:  # whose model embeds one query after another
        assert plain(retriever.search_many(["sea", "hill"])[1]) == plain(retriever.search("hill"))


def test_what_fails_leaves_the_words_as_in_a_single_search(database_url):
    embedder = BatchEmbedder()
    with sync_filled(database_url, texts_of(20), embedder, cached_queries=0) as retriever:
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
        execute(database_url, f"ALTER TABLE {VECTORS} RENAME COLUMN embedding TO elsewhere")
        together = retriever.search_many(["sea", "hill river", "zzqx"])
        assert list(map(plain, together)) == [plain(retriever.search(q)) for q in ("sea", "hill river", "zzqx")]
        assert all(one.mode == "keyword" and "vector search" in str(one.warnings) for one in together)
        assert len(together[0]) == 5
    with sync_filled(database_url, texts_of(20), "none", collection="words") as retriever:
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

    with sync_filled(database_url, texts_of(20), BatchEmbedder()) as retriever:
        expected = [plain(retriever.search(query)) for query in ("sea", "hill", "wind")]
        monkeypatch.setattr(retrieval, "load_results", losing)
        assert list(map(plain, retriever.search_many(["sea", "hill", "wind"]))) == expected
    assert len(lost) == 5
    assert len(set(lost)) == 2


async def test_in_a_transaction_of_ones_own(database_url):
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        async with filled(None, texts_of(20), BatchEmbedder(), connection=connection) as retriever:
            together = await retriever.search_many(["sea", "-sea hill"])
            assert [plain(one) for one in together] == [plain(await retriever.search(q)) for q in ("sea", "-sea hill")]
            assert (await retriever.fields.facets(["even"], query="sea")).chunks == 20
            first = await retriever.search("sea", 5, max_results=20)
            assert len(await retriever.search_page(first.next_cursor)) == 5
        await connection.rollback()


def test_bad_queries_are_told_all_at_once_and_too_much_is_refused(library):
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
