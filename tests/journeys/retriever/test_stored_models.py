"""A name that only the database holds sends nothing anywhere and loads nothing from a path; words answer meanwhile."""

import json
import re
import shlex
from functools import partial

import pytest

from semlex.errors import ConfigurationError, MissingKeyError, ModelError, ModelMismatchError, ModelNotAllowedError
from semlex.models.model_names import host_of, key_for, leads_to
from semlex.retriever import model_selection
from semlex.retriever.model_selection import STORED
from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder
from tests.support import model_cache, onnx_models
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.model_servers import ModelServerDouble, openai_embeddings
from tests.support.retrievers import sync_filled

empty_cache = model_cache.empty_cache
KEY = "sk-Secret-0123456789"
QUERY = "a private question about lions"
TEXTS = {"a": "lions sleep in the shade", "b": "zebras run", "c": "a secret about lions"}


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    """The user's own settings file, which is empty; a key of every kind in the environment."""
    path = folder_with(tmp_path / "own", {"config.toml": ""}) / "config.toml"
    monkeypatch.setenv("SEMLEX_CONFIG", str(path))
    for name in ("SEMLEX_EMBEDDING_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    for name in ("SEMLEX_MODELS", "SEMLEX_EMBEDDING_MODEL", "OLLAMA_HOST", "COHERE_API_KEY", "CO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def double():
    with ModelServerDouble(openai_embeddings(8)) as server:
        yield server


def rename(url, model):
    """What somebody who may write one row of the registry can do."""
    values = [model, f"{model}@server/8/server/unit"]
    execute(url, "UPDATE semlex.embedding_version SET model = %s, identity_key = %s", values)


@pytest.fixture
def collection(database_url):
    """A database whose collection was made with a model that tests rename."""
    with sync_filled(database_url, TEXTS):
        return database_url


def answers_by_words(url, name, **options):
    """Opens a collection, sees that words answer and that nothing is written without vectors; returns the warning."""
    with SyncRetriever(url, **options) as retriever:
        assert retriever.embedder is None
        before = retriever.count()
        results = retriever.search(QUERY)
        assert {hit.id for hit in results} == {"a", "c"}
        assert results.mode == "keyword"
        [warning] = results.warnings
        assert "answered by words alone" in warning
        assert retriever.search(QUERY, mode="keyword").warnings == []
        index, vectors = partial(retriever.index, __file__), partial(retriever.search, QUERY, mode="vector")
        for call in (partial(retriever.add_texts, ["new"]), retriever.embeddings.fill, index, vectors):
            with pytest.raises(ModelError, match=re.escape(name)):
                call()
        assert retriever.count() == before
        retriever.delete(["b"])  # needs no model
    return warning


def warning_of(url, name, **options):
    """Rename the collection's model and return the warning of a search."""
    rename(url, name)
    with SyncRetriever(url, **options) as retriever:
        [warning] = retriever.search(QUERY).warnings
    assert KEY not in warning
    return warning


@pytest.mark.slow
def test_names_that_lead_away_are_not_followed(collection, double, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(model_selection, "choose_embedder", lambda *_args, **_options: pytest.fail("it was opened"))
        for name in (
            *("openai:text-embedding-3-small", "openrouter:a/b", "gemini:x", "ollama:x", "unknown:x", "http:x", "/"),
            *("llm:openai:x", "tei+http://127.0.0.1:1", "../../etc", "~/x", "a/../b", "sentence-transformers:/"),
            "cohere",
        ):
            assert f"models=[{name!r}]" in warning_of(collection, name)
        answers_by_words(collection, name)
    # An address that only the database holds receives no query, text or key, even beside a default model.
    name, named = f"{double.url}/v1#m", {"embedding_model": "http://127.0.0.1:1/v1#m"}
    assert "answered by words alone" in warning_of(collection, name, defaults=named)
    answers_by_words(collection, name)
    assert double.requests == []
    # A folder whose path looks like an id of the hub is not opened.
    onnx_models.write_folder(tmp_path / "some" / "model")
    monkeypatch.chdir(tmp_path)
    rename(collection, "some/model")
    assert "in a folder" in answers_by_words(collection, "some/model")
    # A listed model is not used without its key.
    monkeypatch.delenv("OPENAI_API_KEY")
    rename(collection, "openai:some-model")
    assert "OPENAI_API_KEY" in answers_by_words(collection, "openai:some-model", models=["openai:some-model"])
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        SyncRetriever(collection, "openai:some-model").initialize()
    # The warning escapes control characters of a name.
    assert "\x1b" not in warning_of(collection, "http://x\x1b[2J/v1#m")
    with SyncRetriever(collection) as retriever, pytest.raises(ModelNotAllowedError):
        retriever.add_texts(["new"])


@pytest.mark.slow
def test_every_remedy_that_the_warning_names_works(database_url, double, own_settings, monkeypatch):
    name = f"{double.url}/v1#m"
    with sync_filled(database_url, TEXTS, name):
        pass
    warning = answers_by_words(database_url, name)
    for remedy, arguments, variables, settings in (
        (f"--model {shlex.quote(name)}", {"embedding_model": name}, {}, ""),
        (f"models=[{name!r}]", {"models": [name]}, {}, ""),
        (f"SEMLEX_MODELS={shlex.quote(name)}", {}, {"SEMLEX_MODELS": name}, ""),
        (f"{own_settings} with: models = [{json.dumps(name)}]", {}, {}, f"models = [{json.dumps(name)}]\n"),
    ):
        assert remedy in warning
        double.requests.clear()
        own_settings.write_text(settings, encoding="utf-8")
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            with SyncRetriever(database_url, **arguments) as retriever:
                results = retriever.search(QUERY)
                assert (results.mode, results.warnings) == ("hybrid", []), remedy
                retriever.add_texts(["more"])
        # The user has named the address, so the key that stands beside it goes there.
        assert {request.headers["authorization"] for request in double.requests} == {f"Bearer {KEY}"}


def test_the_key_goes_to_none_of_two_hosts_that_the_database_could_choose_from(database_url, double):
    name, other = f"{double.url}/v1#m", "https://models.example/v1#m"
    with sync_filled(database_url, TEXTS, name):
        pass
    for options in ({"models": [name, other]}, {"models": [name], "defaults": {"embedding_model": other}}):
        double.requests.clear()
        with SyncRetriever(database_url, **options) as retriever:
            assert retriever.search(QUERY).mode == "hybrid"
        assert ["authorization" in request.headers for request in double.requests] == [False, False]


def test_a_key_of_the_environment_belongs_to_the_address_beside_it(double, monkeypatch):
    variable = "SEMLEX_EMBEDDING_API_KEY"
    assert key_for(variable, "https://b.example/v1") == (KEY, variable)
    monkeypatch.setenv("SEMLEX_EMBEDDING_MODEL", "https://a.example/v1#m")
    assert key_for(variable, "https://A.example:443/v2") == (KEY, variable)
    for at in ("https://b.example/v1", "http://a.example/v1", "https://a.example:444", "https://a.example.b.example"):
        key, told = key_for(variable, at)
        assert key is None
        assert "a.example:443" in told
        assert KEY not in told


@pytest.mark.usefixtures("empty_cache")
def test_a_model_of_the_hub_is_used_from_the_cache_or_fetched_by_its_user(collection):
    rename(collection, "org/model")
    assert "semlex models pull org/model" in answers_by_words(collection, "org/model")
    with SyncRetriever(collection, "none") as retriever:
        retriever.add_texts(["a lion without a vector"])
        results = retriever.search("lion")
        assert results.warnings == []
        assert len(results) == 3
    # A model that the user names is used, or the call fails.
    with pytest.raises(ModelError), SyncRetriever(collection, "org/model", collection="new"):
        pass
    with SyncRetriever(collection, "none", collection="new") as retriever:
        assert {one.name: one.embedding_model for one in retriever.collections()}["new"] is None


@pytest.mark.slow
def test_without_the_package_of_its_model_a_collection_answers_by_words(database_url, monkeypatch):
    with sync_filled(database_url, TEXTS, "static"):
        pass
    with SyncRetriever(database_url) as retriever:
        assert retriever.embedding_choice == f"hybrid search with static embeddings, {STORED}"
    model_cache.without(monkeypatch, "wordllama")
    warning = answers_by_words(database_url, "wordllama")
    for remedy in ("pip install 'semlex[local]'", "--mode keyword", "--model none"):
        assert remedy in warning
    with SyncRetriever(database_url, "none") as retriever:
        assert retriever.search(QUERY).warnings == []


def test_the_reranker_is_chosen_by_the_first_search_that_reranks(database_url, tmp_path):
    (tmp_path / "page.md").write_text("lions\n", encoding="utf-8")
    with SyncRetriever(database_url, HashEmbedder(8), "cohere") as retriever:  # its key is not set
        retriever.index(tmp_path / "page.md")
        retriever.status()
        retriever.indexes.optimize()
        assert retriever.search("lions", rerank=False)
        with pytest.raises(ConfigurationError, match="COHERE_API_KEY or CO_API_KEY"):
            retriever.search("lions")
    with SyncRetriever(database_url, HashEmbedder(8), "term-overlap") as retriever:
        assert retriever.reranker is None
        assert retriever.search("lions").reranker_model == "term-overlap/1"
        assert "term-overlap" in retriever.health_check().reranker_model
        retriever.drop_collection()


def test_what_a_name_leads_to():
    for place, names in {
        None: ("static", "Qwen/Qwen3-Embedding-0.6B", "gpt2", "sentence-transformers:a/b", "none"),
        "server": ("ollama:x", "https://x/v1#m", "tei+http://x", "llm:openai:x", "auto", "cohere"),
        "folder": ("/x", "./x", "~/x", "..", "a/b/c", "C:\\x", "a/..", "cross-encoder:/x", ""),
    }.items():
        assert {name: leads_to(name) for name in names} == dict.fromkeys(names, place)
    hosts = {"tei+http://Box/v1": "box:80", "https://[::1]:9/v1#m": "::1:9", "ollama:x": None, "http://x:port": None}
    assert {name: host_of(name) for name in hosts} == hosts
    for name, value in (("embedding_model", 3), ("dimensions", "8"), ("dimensions", True)):
        with pytest.raises(ConfigurationError, match=f"defaults: {name} must be"):
            SyncRetriever("postgresql://x", defaults={name: value})


@pytest.mark.slow
def test_a_default_model_is_for_new_collections(database_url, double):
    name = f"{double.url}/v1#m"
    defaults = {"embedding_model": name, "dimensions": 8}
    with SyncRetriever(database_url, defaults=defaults, collection="new") as retriever:
        retriever.add_texts(TEXTS.values())
        assert retriever.status().embedding_model == name
        assert retriever.unused_defaults == {}
    with SyncRetriever(database_url, defaults=defaults | {"dimensions": 4}, collection="new") as retriever:
        assert retriever.search(QUERY).mode == "hybrid"  # the user names the address: no list is needed
        assert retriever.unused_defaults == {"dimensions": (4, 8)}
    with sync_filled(database_url, TEXTS, "static", collection="static"):
        pass
    sent = len(double.requests)
    with SyncRetriever(database_url, defaults=defaults, collection="static") as retriever:
        retriever.add_texts(["more"])
        assert retriever.search(QUERY).mode == "hybrid"
        stored = retriever.info.embedding
        unused = {"embedding_model": (name, stored.model), "dimensions": (8, stored.dimensions)}
        assert retriever.unused_defaults == unused
    for default, mode in (("static", "hybrid"), ("none", "keyword")):
        with SyncRetriever(database_url, defaults={"embedding_model": default}, collection="static") as retriever:
            assert (retriever.search(QUERY).mode, retriever.unused_defaults) == (mode, {})
    assert len(double.requests) == sent
    with pytest.raises(ModelMismatchError):
        SyncRetriever(database_url, name, collection="static").initialize()


def test_a_default_onnx_model_is_not_taken_for_another_file_of_it(database_url, empty_cache):
    def write(folder):
        onnx_models.write_graph(folder / "onnx" / "model_int8.onnx", int8=True)
        return onnx_models.write_folder(folder)

    model_cache.put_into_cache(empty_cache, "org/tiny", write)
    named = "onnx:org/tiny#onnx/model_int8.onnx"
    with SyncRetriever(database_url, named, collection="c") as retriever:
        retriever.add_texts(["the quick fox", "a dog"])
    for default, unused in ((named, {}), ("onnx:org/tiny", {"embedding_model": ("onnx:org/tiny", named)})):
        with SyncRetriever(database_url, defaults={"embedding_model": default}, collection="c") as retriever:
            assert retriever.search(QUERY).mode == "hybrid"
            assert retriever.unused_defaults == unused
    with pytest.raises(ModelMismatchError):
        SyncRetriever(database_url, "onnx:org/tiny", collection="c").initialize()
