"""Retrievers as settings say: which one, and how its searches begin."""

import asyncio
import json
import os

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semlex
from semlex import JSONKBRetriever, PostgreSQLRetriever, SearchDefaults, SearchQuery, SyncJSONKBRetriever, SyncRetriever
from semlex.errors import ConfigurationError, ReadOnlyError, SemlexError
from semlex.options.search import FusionMethod
from semlex.settings.table import NAMED, Settings
from semlex.types.queries import RouteBy
from semlex.types.results import SearchMode
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.settings_forms import world
from tests.support.shell import run_here

TEXTS = [f"note {number} about {'lions' if number % 2 else 'bears'} and keys" for number in range(40)]


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory):
    entries = [{"id": f"k{number}", "text": f"whales, entry {number}"} for number in range(9)]
    return folder_with(tmp_path_factory.mktemp("knowledge"), {"sea.json": json.dumps(entries)})


@pytest.fixture
def filled(database_url):
    with SyncRetriever(database_url, "static", collection="notes", use_reranking=False) as retriever:
        retriever.add_texts(TEXTS)
    return database_url


@pytest.fixture(autouse=True)
def settled():
    with world() as folder:
        yield folder


def sync(**settings):
    made = semlex.from_settings_sync(**settings)
    assert isinstance(made, SyncRetriever)
    return made


@pytest.mark.slow
def test_the_eight_variables(filled, monkeypatch):
    rag = {"DB_URL": filled, "EMBEDDING_MODEL": "static", "EMBEDDING_DIMS": "256", "CHUNK_SIZE": "100", "TOP_K": "7"}
    rag |= {"CHUNK_OVERLAP": "10", "SIMILARITY_THRESHOLD": "-0.9", "HYBRID_WEIGHT": "0", "ENABLED": "true"}
    for name, value in rag.items():
        monkeypatch.setenv(f"RAG_{name}", value)
    with sync(collection="notes") as retriever:
        hits = retriever.search("lions")
        assert len(hits) == 7
        # With weight 0 the order is that of the words.
        words = retriever.search("lions", mode="keyword")
        assert [hit.keyword_score for hit in hits] == [hit.keyword_score for hit in words]
        assert words.warnings == ["the default min_similarity=-0.9 is ignored: mode 'keyword' computes no cosines"]
        assert len(retriever.search("lions", 3)) == 3
        assert len(retriever.search(SearchQuery("lions", top_k=2))) == 2
        assert [len(found) for found in retriever.search_many(["lions", SearchQuery("bears", top_k=30)])] == [7, 30]
        assert len(retriever.search("lions", max_results=9)) == 7
    monkeypatch.setenv("RAG_HYBRID_WEIGHT", "1")
    with sync(collection="notes") as retriever:
        found, vectors = retriever.search("lions"), retriever.search("lions", mode="vector")
        assert [hit.id for hit in found] == [hit.id for hit in vectors]
    monkeypatch.setenv("RAG_SIMILARITY_THRESHOLD", "0.999")
    with sync(collection="notes") as retriever:
        none = retriever.search("lions")
        assert none == []
        assert "no candidate reaches min_similarity=0.999" in none.warnings[0]
        assert len(retriever.search("lions", min_similarity=-1)) == 7
        # What a model answers from keeps the threshold, too.
        assert retriever.context("lions").sources == ()


@pytest.mark.slow
async def test_what_is_found_nowhere_is_looked_for_in_the_files(filled, knowledge):
    common = {"database_url": filled, "collection": "notes", "top_k": 4, "min_similarity": 0.999}

    def look():
        with sync(**common, fallback_folder=str(knowledge)) as retriever:
            found = retriever.search("whales")
            assert [hit.source_document for hit in found] == ["sea.json"] * 4
            assert found.fallback == f"json:{knowledge.name}"
            assert retriever.search("whales", fallback=False) == []
            assert retriever.context("whales").sources == ()
        with sync(**common) as retriever:
            assert retriever.search("whales") == []

    await asyncio.to_thread(look)
    # A collection in the caller's transaction has the same search defaults.
    retriever = PostgreSQLRetriever(filled, "none", collection="notes", search_defaults=SearchDefaults(top_k=3))
    async with retriever, await psycopg.AsyncConnection.connect(filled) as connection:
        assert len(await retriever.using(connection).search("lions")) == 3


async def test_without_the_database_the_files_answer(knowledge, monkeypatch):
    monkeypatch.setenv("RAG_ENABLED", "false")
    with pytest.raises(ConfigurationError, match=r"RAG_ENABLED says that no database is used.*SEMLEX_FALLBACK_FOLDER"):
        semlex.from_settings()
    monkeypatch.setenv("SEMLEX_FALLBACK_FOLDER", str(knowledge))
    monkeypatch.setenv("RAG_TOP_K", "2")
    made = semlex.from_settings()
    assert isinstance(made, JSONKBRetriever)
    async with made as retriever:
        assert len(await retriever.search("whales")) == 2
        assert len(await retriever.search("whales", 6)) == 6

    def look():
        made = semlex.from_settings_sync()
        assert isinstance(made, SyncJSONKBRetriever)
        with made as retriever:
            assert len(retriever.search("whales")) == 2
            assert retriever.problems == []
            with pytest.raises(ReadOnlyError):
                retriever.add_documents([])
        with pytest.raises(ConfigurationError, match="was closed"):
            made.search("whales")

    await asyncio.to_thread(look)


def test_a_file_that_is_named_is_the_only_one(settled, knowledge):
    (settled / "semlex.toml").write_text("top_k = 9\n", encoding="utf-8")
    for name, content in {
        "settings.json": json.dumps({"rag": {"topK": 2, "useDatabase": False, "fallbackFolder": str(knowledge)}}),
        "other.toml": f"[search]\ntop_k = 2\nuse_database = false\nfallback_folder = {json.dumps(str(knowledge))}\n",
    }.items():
        (settled / name).write_text(content, encoding="utf-8")
        with semlex.from_settings_sync(name) as retriever:
            assert len(retriever.search("whales")) == 2
        for setting, value in (("topk", 3), ("file", "x"), ("folder", "x"), ("pool", 3)):
            with pytest.raises(ConfigurationError, match=f"{setting} is not a setting"):
                semlex.from_settings(name, **{setting: value})
    for path in (3, "no-such.toml"):
        with pytest.raises(SemlexError, match=r"path|the settings file"):
            semlex.from_settings(path)


@pytest.mark.slow
def test_a_server_that_libpqs_variables_name(filled, monkeypatch, tmp_path):
    parts = conninfo_to_dict(filled)
    file = tmp_path / "services.conf"
    file.write_text("[books]\n" + "".join(f"{name}={value}\n" for name, value in parts.items()), encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    variables = {f"PG{'DATABASE' if name == 'dbname' else name.upper()}": str(part) for name, part in parts.items()}
    for environment, arguments, told in (
        ({"PGSERVICE": "books"}, {}, ("service=books", "PGSERVICE")),
        ({}, {"database_url": "service=books"}, (None, "built in")),
        (variables, {}, (f"host={parts['host']}", "PGHOST")),
    ):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with sync(**arguments, collection="notes", embedding_model="none") as retriever:
                assert retriever.count() == len(TEXTS)
            shown = json.loads(run_here(("config", "show", "--json"), os.environ).stdout.splitlines()[0])
        assert (shown["value"], shown["origin"]) == told


def test_settings_know_the_words_of_searches():
    for name, words in (("mode", SearchMode), ("fusion", FusionMethod), ("route", RouteBy)):
        for word in words.__args__:
            assert NAMED[name].read(word) == word
    given = {name: value for name, value in Settings().search_options.items() if value is not None}
    assert given == {"top_k": 5, "fusion": "score", "rrf_k": 60.0, "rewrite": False}
    for name, wrong in (
        *(("top_k", 0), ("top_k", "5"), ("mode", "both"), ("fusion", "max"), ("hybrid_weight", 1.5), ("rrf_k", -1)),
        *(("oversampling", 0.5), ("min_similarity", 2), ("route", "magic")),
    ):
        with pytest.raises(SemlexError, match=name):
            PostgreSQLRetriever("postgresql://", search_defaults=SearchDefaults(**{name: wrong}))


@pytest.mark.slow
def test_the_weight_is_the_share_of_the_vectors(database_url):
    with sync_opened(database_url) as retriever:
        retriever.add_texts(TEXTS)
    for fusion in ("score", "rrf", "linear"):
        defaults = SearchDefaults(hybrid_weight=0.25, fusion=fusion, oversampling=2, top_k=6)
        options = {"fusion": fusion, "weights": {"vector": 0.25, "keyword": 0.75}, "tuning": {"candidates": 12}}
        with sync_opened(database_url, search_defaults=defaults) as retriever:
            found, given = retriever.search("lions and keys"), retriever.search("lions and keys", 6, **options)
        assert [(hit.id, hit.fused_score) for hit in found] == [(hit.id, hit.fused_score) for hit in given]
