"""The keyword engines on extensions, on a server that has them: plain BM25 is their specification."""

import math
import random
from collections import Counter
from functools import partial

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from benches.bm25_server import bm25_server
from semlex import Document
from semlex.diagnostics.doctor import examine_server
from semlex.errors import ConfigurationError, StoreError, UnsupportedServerError
from semlex.proof.check import plain_bm25
from semlex.store.keyword import pg_textsearch
from semlex.store.keyword.engine import LegRequest
from semlex.store.keyword.extensions import Extension
from semlex.store.keyword.pg_search import STEMMERS
from semlex.store.query import chunk_keys
from semlex.store.query.filters import Filter, parse_filters
from semlex.store.query.leg import Statement
from semlex.store.query.run import ask, run_legs
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.properties import examples
from tests.support.retrievers import opened, sync_filled, sync_opened

pytestmark = pytest.mark.extensions

ENGINES = ("pg_textsearch", "pg_search")
# Words that no stemmer changes and no list of stop words holds; a few are in most texts, most in few.
WORDS = [f"w{number}x" for number in range(60)]
WEIGHTS = [1 / (1 + number) for number in range(60)]
some_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def server(request):
    with bm25_server(request.config.getoption("--bm25-server")) as url:
        yield url


def new_database(server, name, *statements):
    execute(server, f"CREATE DATABASE {name}")
    url = make_conninfo(server, dbname=name)
    for statement in ("CREATE EXTENSION vector", *statements):
        execute(url, statement)
    return url


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    return str(request.param)


@pytest.fixture(scope="module")
def url(server, engine):
    """A database with the extension of the engine, in a schema that nobody has on a path where that is possible."""
    apart = " SCHEMA apart" if engine == "pg_textsearch" else ""
    return new_database(server, f"of_{engine}", "CREATE SCHEMA apart", f"CREATE EXTENSION {engine}{apart}")


searching, filled = partial(sync_opened, model="none"), partial(sync_filled, model="none")


@pytest.fixture(scope="module")
def texts():
    """Fewer than 40 words each: up to there the extensions keep lengths exactly."""
    generator = random.Random(7)
    return {f"d{n:04}": " ".join(generator.choices(WORDS, WEIGHTS, k=generator.randint(1, 39))) for n in range(600)}


@pytest.fixture(scope="module")
def library(url, engine, texts):
    documents = [Document(text, {"n": int(name[1:]) % 50}, id=name) for name, text in texts.items()]
    with filled(url, documents, keyword=engine, collection="library") as retriever:
        yield retriever


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8, unique=True),
    st.integers(1, 40),
    st.none() | st.integers(0, 50),
)
def test_answers_are_those_of_plain_bm25(library, texts, words, top_k, remainder):
    filters = None if remainder is None else {"n": remainder}
    hits = library.search(" ".join(words), top_k=top_k, filters=filters)
    scores = plain_bm25({name: ("english", text) for name, text in texts.items()}, " ".join(words))
    passing = {name for name in scores if remainder is None or int(name[1:]) % 50 == remainder}
    expected = sorted((scores[name] for name in passing), reverse=True)[:top_k]
    assert [hit.keyword_score for hit in hits] == pytest.approx(expected, rel=1e-5)
    assert [hit.keyword_score for hit in hits] == pytest.approx([scores[hit.id] for hit in hits], rel=1e-5)
    assert {hit.id for hit in hits} <= passing
    assert hits.warnings == []


def document_order(names):
    keys = dict(zip(names, chunk_keys.chunk_keys(names), strict=True))
    return sorted(names, key=lambda name: (keys[name], name.encode()))


def add_out_of_order(retriever, documents):
    """One call stores its rows in the order of their keys, which is the order of ties, too; so these are many calls."""
    last_first = sorted(documents, key=lambda document: chunk_keys.chunk_keys([document.id or ""]), reverse=True)
    step = math.ceil(len(documents) / 10)
    for start in range(0, len(documents), step):
        retriever.add_documents(last_first[start : start + step])


def test_ties_go_by_key(url, engine):
    names = [*(f"same-{n}" for n in range(150)), "n" * 512]
    with searching(url, keyword=engine, collection="ties") as retriever:
        add_out_of_order(retriever, [Document("alpha beta", {"n": n % 3}, id=name) for n, name in enumerate(names)])
        # Later, so that the index holds them in another part; better than the rest, and worse.
        retriever.add_documents([Document("alpha alpha", id="better"), Document("alpha " + "gamma " * 20, id="worse")])
        order = document_order(names)
        for top_k in (1, 2, 7, 40, 151, 152, 153, 200):
            assert [hit.id for hit in retriever.search("alpha", top_k=top_k)] == ["better", *order, "worse"][:top_k]
        kept = [name for name in order if names.index(name) % 3 == 1]
        assert [hit.id for hit in retriever.search("alpha", top_k=30, filters={"n": 1})] == kept[:30]


@pytest.fixture(scope="module")
def uneven(url, engine):
    """2,475 equal texts, and 25 that are worse and that a filter keeps."""
    with searching(url, keyword=engine, collection="uneven") as retriever:
        texts = ["sea hill" if n % 100 == 0 else "sea sea sea hill" for n in range(2500)]
        documents = [Document(text, {"kept": n % 100 == 0}, id=f"{n}") for n, text in enumerate(texts)]
        add_out_of_order(retriever, documents)
        yield retriever


WORST = [f"{n}" for n in range(0, 2500, 100)]


def test_a_filter_that_keeps_only_the_worst_and_more_equals_than_are_looked_for_at_first(uneven):
    kept = document_order(WORST)
    assert [hit.id for hit in uneven.search("sea", top_k=20, filters={"kept": True})] == kept[:20]
    assert [hit.id for hit in uneven.search("sea", top_k=30, filters={"kept": True})] == kept
    assert uneven.search("sea", filters={"kept": "never"}) == []
    equal = document_order([f"{n}" for n in range(2500) if n % 100])
    assert [hit.id for hit in uneven.search("sea", top_k=20)] == equal[:20]


@pytest.mark.parametrize("engine", ["pg_textsearch"], indirect=True)
@pytest.mark.parametrize("narrow", [25, 24])
def test_collections_larger_than_the_extension_looks_at(uneven, monkeypatch, narrow):
    best = pg_textsearch.PgTextsearchLeg._best

    def only_three(query, depth):
        statement = best(query, depth)
        return Statement(statement.text, statement.parameters | {"limit": 3})

    monkeypatch.setattr(pg_textsearch, "MAX_DEPTH", 2499)
    monkeypatch.setattr(pg_textsearch, "NARROW_FILTER_ROWS", narrow)
    monkeypatch.setattr(pg_textsearch.PgTextsearchLeg, "_best", only_three)
    hits = uneven.search("sea", top_k=30, filters={"kept": True})
    if narrow == len(WORST):
        assert [hit.id for hit in hits] == document_order(WORST)
        assert hits.warnings == []
    else:
        assert len(hits) == 3
        assert hits.warnings == ["keyword search filtered only its best 2,499 chunks: hits may be missing"]


@settings(max_examples=examples(15))
@given(writes=st.lists(st.tuples(st.integers(0, 12), st.none() | some_words), max_size=12))
def test_what_is_written_is_found_at_once(writes, busy):
    held = {}
    for number, words in writes:
        name = f"doc{number}"
        if words is None:
            busy.delete([name])
            held.pop(name, None)
        else:
            busy.add_documents([Document(" ".join(words), id=name)])
            held[name] = words
    for word, _ in Counter(word for words in held.values() for word in words).most_common(3):
        found = {hit.id for hit in busy.search(word, top_k=30)}
        assert found == {name for name, words in held.items() if word in words}
    busy.delete([f"doc{number}" for number in range(13)])
    assert busy.search(" ".join(WORDS)) == []


@pytest.fixture(scope="module")
def busy(url, engine):
    with searching(url, keyword=engine, collection="busy") as retriever:
        yield retriever


async def test_an_uncommitted_text_is_found_by_its_own_transaction(url, engine):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        async with opened(None, "none", connection=connection, keyword=engine, collection="uncommitted") as retriever:
            await retriever.add_documents([Document("a lonely cat", id="cat")])
            assert [hit.id for hit in await retriever.search("cat")] == ["cat"]
        await connection.rollback()


HOSTILE = (
    *("'", '"', "\\", "--", ";", "%s %(query)s $1 {0}", "()[]{}^~*?:", "w0x AND", "NOT w0x", "words:w0x", "!w0x"),
    *("semlex.library_keyword_text:w0x", '{"match": 1}', "{w0x,w1x}", "\u0001\u200b\ufeff", "😀 é ß İ", "the of and"),
)


@settings(max_examples=examples(60))
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_no_text_is_an_error(library, query):
    if query.strip():
        assert library.search(query).warnings == []


def test_operators_mean_nothing_any_of_the_words_is_enough_and_many_are_cut(library, texts, engine):
    assert library.status().keyword == engine
    with_w0x = {name for name, text in texts.items() if "w0x" in text.split()}
    with_others = {name for name, text in texts.items() if {"w40x", "w50x"} & {*text.split()}}
    for query in HOSTILE:
        hits = library.search(query, top_k=1000)
        assert hits.warnings == [], query
        assert {hit.id for hit in hits} >= (with_w0x if query in {"w0x AND", "NOT w0x", "!w0x"} else set()), query
    assert {hit.id for hit in library.search("w40x w50x nowhere", top_k=1000)} == with_others
    hits = library.search(" ".join(f"v{n}x" for n in range(64)) + " w0x")
    assert hits == []
    assert hits.warnings == ["the query has 65 terms; the first 64 were searched"]


def test_words_are_stemmed_in_the_collections_language(url, engine):
    stored = {"gatos": "Los gatos corrían por la calle.", "otro": "Otro."}
    with filled(url, stored, keyword=engine, collection="spanish", language="spanish") as retriever:
        (hit,) = retriever.search("gato")
        assert hit.id == "gatos"
        assert "**gatos**" in hit.excerpt
        assert retriever.search("los") == []


def test_every_language_of_pg_search_is_known_to_the_server(server):
    url = new_database(server, "languages", "CREATE EXTENSION pg_search")
    for language in ("simple", *STEMMERS):
        with filled(
            url, {"only": "Zanzibar"}, keyword="pg_search", collection=language, language=language
        ) as retriever:
            assert [hit.id for hit in retriever.search("zanzibar")] == ["only"], language


def test_languages_that_are_not_known(url, engine):
    error, message = (ConfigurationError, "choose simple") if engine == "pg_search" else (StoreError, "klingon")
    for language, refusal in (("english'; --", (ConfigurationError, "language")), ("klingon", (error, message))):
        with pytest.raises(refusal[0], match=refusal[1]):
            searching(url, keyword=engine, collection="klingon", language=language).initialize()


async def keyword_answer(retriever, query, limit, keys, condition=None):
    async def work(snapshot):
        collection = retriever.info
        leg = collection.keyword.leg(LegRequest(collection, query, limit, condition or Filter()))
        assert leg is not None
        result = (await run_legs(snapshot, [leg])).results["keyword"]
        assert result.scorer is not None
        return result, (await ask(snapshot, {"keyword": result.scorer.missing_scores(keys)}))["keyword"]

    return await retriever._handle.opened.database.read_snapshot("test", work)


async def test_scores_of_other_chunks_are_those_of_the_leg(url, engine, library, texts):
    query = "w3x w7x w20x"
    async with opened(url, "none", collection="library") as retriever:
        every, none = await keyword_answer(retriever, query, 1000, [])
        assert none.shape == (0,)
        keys = chunk_keys.keys_of(list(texts))
        some = parse_filters({"n": 3}, retriever.names)
        narrow, scores = await keyword_answer(retriever, query, 1, [*keys, (keys[0][0], "gone")], some)
        assert len(narrow.keys) == 1
        found = dict(zip(every.keys, every.scores, strict=True))
        assert scores[:-1] == pytest.approx([found.get(key, 0.0) for key in keys], rel=1e-6)
        assert np.isnan(scores[-1])


def test_hybrid(url, engine):
    stones = {word: f"stone {word}" for word in ("sea", "hill", "river")}
    with filled(url, stones, keyword=engine, collection="hybrid", model=16) as retriever:
        hits = retriever.search("stone hill", top_k=3)
        assert (hits.mode, hits.warnings, hits[0].id) == ("hybrid", [], "hill")
        assert all(hit.vector_rank and hit.keyword_rank for hit in hits)


def test_each_leg_scores_what_only_the_other_found(url, engine):
    stones = {word: f"stone {word}" for word in ("sea", "hill", "river", "wind")}
    with filled(url, stones, keyword=engine, collection="completed", model=16) as retriever:
        vector = HashEmbedder(16).embed_query("stone sea")
        cosines = {hit.id: hit.vector_score for hit in retriever.search(vector=vector)}
        ranks = {hit.id: hit.keyword_score for hit in retriever.search("hill", mode="keyword")}
        for leg in ("vector", "keyword"):
            (hit,) = retriever.search("hill", 1, vector=vector, tuning={"candidates": 1}, weights={leg: 1.0})
            assert (hit.vector_rank is None, hit.keyword_rank is None) == (leg == "keyword", leg == "vector")
            assert hit.vector_score == pytest.approx(cosines[hit.id])
            assert hit.keyword_score == pytest.approx(ranks.get(hit.id, 0.0))


def test_without_the_extension_the_error_has_the_remedy(server, engine):
    url = new_database(server, f"without_{engine}")
    with pytest.raises(UnsupportedServerError, match=f"CREATE EXTENSION {engine};"):
        searching(url, keyword=engine, collection="words").initialize()
    assert examine_server(url).keyword_engines[engine].endswith(f"CREATE EXTENSION {engine};")
    # What stands in the way of one engine stands in the way of no other.
    with searching(url, keyword="tsvector", collection="words") as retriever:
        assert retriever.add_documents([Document("a cat", id="cat")]) == ["cat"]


def test_an_extension_that_went_away_leaves_the_vector_leg(server, engine):
    url = new_database(server, f"leaving_{engine}", f"CREATE EXTENSION {engine}")
    with searching(url, keyword=engine, collection="words", model=HashEmbedder(16)) as retriever:
        retriever.add_documents([Document("a cat", id="cat")])
    execute(url, f"DROP EXTENSION {engine} CASCADE")
    with searching(url, keyword=engine, collection="words", model=HashEmbedder(16)) as retriever:
        hits = retriever.search("cat")
        assert [hit.id for hit in hits] == ["cat"]
        assert any(f"CREATE EXTENSION {engine};" in warning for warning in hits.warnings)
        with pytest.raises(UnsupportedServerError, match=f"CREATE EXTENSION {engine};"):
            retriever.search("cat", mode="keyword")


def test_the_doctor_finds_the_extension(url, engine):
    found = examine_server(url)
    schema = {"pg_textsearch": "apart", "pg_search": "paradedb"}[engine]
    assert found.keyword_engines[engine].endswith(f"in schema {schema}")
    assert (found.postgres, found.pgvector, found.read_only) == (17, "0.8.2", False)


def test_a_server_that_did_not_load_the_library(request):
    with bm25_server(request.config.getoption("--bm25-server"), shared_preload_libraries="") as server:
        engines = examine_server(server).keyword_engines
        assert "add pg_textsearch to shared_preload_libraries" in engines["pg_textsearch"]
        assert "shared_preload_libraries" not in engines["pg_search"]


@pytest.mark.parametrize(
    ("extension", "remedy"),
    [
        (Extension("pg_search"), "install its package on the server; run: CREATE EXTENSION pg_search;"),
        (Extension("pg_search", "0.25.3", "0.20.9", "paradedb"), "ALTER EXTENSION pg_search UPDATE;"),
        (Extension("pg_textsearch", "1.4.0", "1.4.0", "public", loaded=False), "and restart the server"),
        (Extension("pg_textsearch", "1.4.0", None, None, loaded=False), "restart the server; run: CREATE EXTENSION"),
        (Extension("pg_textsearch", "1.5.0-dev", "1.5.0-dev", "public"), None),
    ],
)
def test_what_an_extension_lacks(extension, remedy):
    problem = extension.problem
    assert problem is None if remedy is None else problem is not None and remedy in problem
