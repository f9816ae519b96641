import subprocess
import sys

import pytest
from huggingface_hub import constants

from semlex.embedding import static
from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
from semlex.embedding.registry import choose_embedder
from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder
from semlex.embedding.static import StaticEmbedder
from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelMismatchError, ModelNotFoundError
from semlex.models.files import find_cached, find_model
from semlex.models.model_names import DEFAULT_EMBEDDING_MODEL
from semlex.reranking.registry import choose_reranker
from semlex.testing import HashEmbedder
from tests.support import model_cache
from tests.support.model_cache import COMMIT, reason_for, with_gpu, without

empty_cache, qwen3_cache = model_cache.empty_cache, model_cache.qwen3_cache


def test_a_configured_embedder_is_used_as_it_is(tmp_path):
    fake = HashEmbedder()
    choice = choose_embedder(fake)
    assert choice.model is fake
    assert "semlex.testing/hash" in reason_for(choice, HashEmbedder)
    assert reason_for(choose_embedder("none"), None) == "keyword search only, as configured"
    static_reason = "hybrid search with static embeddings, as configured"
    assert reason_for(choose_embedder("static"), StaticEmbedder) == static_reason
    folder = model_cache.write_embedder(tmp_path / "tiny")
    choice = choose_embedder(str(folder), dimensions=32)
    assert choice.model.dimensions == 32
    assert str(folder) in reason_for(choice, Qwen3EmbeddingEncoder)


def test_a_static_model_is_told_by_its_files(tmp_path):
    for file, content in (
        ("config.json", '{"model_type": "model2vec"}'),
        ("modules.json", '[{"type": "sentence_transformers.models.StaticEmbedding"}]'),
    ):
        (tmp_path / file).write_text(content)
        assert isinstance(choose_embedder(str(tmp_path)).model, StaticEmbedder)
        (tmp_path / file).unlink()


def test_a_configured_model_is_never_replaced(tmp_path, empty_cache, monkeypatch):
    with pytest.raises(ModelNotFoundError) as caught:
        choose_embedder("Qwen/Qwen3-Embedding-0.6B")
    message = str(caught.value)
    for part in ("local folder", "local cache", "hub not asked", "Remedies", "allow_download=True", "'static'"):
        assert part in message
    kinds = "neither a Qwen3-Embedding nor a model2vec nor a sentence-transformers model"
    for config, message in (('{"model_type": "bert"}', kinds), ("[", "is not a JSON object")):
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(ModelError, match=message):
            choose_embedder(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    without(monkeypatch, "torch")
    with pytest.raises(MissingExtraError, match=r"torch.*semlex\[torch\]"):
        choose_embedder(str(tmp_path))


@pytest.fixture
def accounts(monkeypatch, no_network):
    """Keys of every account, and no server that could be asked."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-Secret-0123456789")
    for name in ("GOOGLE_API_KEY", "SEMLEX_EMBEDDING_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_a_model_behind_a_server(accounts):
    for configured, kind, host in (
        ("openai:text-embedding-3-small", OpenAIEmbedder, "api.openai.com"),
        ("openrouter:qwen/qwen3-embedding-8b", OpenAIEmbedder, "openrouter.ai"),
        ("gemini:gemini-embedding-001", GeminiEmbedder, "generativelanguage.googleapis.com"),
        ("ollama:qwen3-embedding:0.6b", OpenAIEmbedder, "localhost:11434"),
        ("http://127.0.0.1:8000/v1#Qwen/Qwen3-Embedding-0.6B", OpenAIEmbedder, "127.0.0.1:8000"),
        ("https://models.example/v1#a#b", OpenAIEmbedder, "models.example"),
    ):
        choice = choose_embedder(configured, dimensions=256)
        # The identity's name is what a collection remembers: it must lead to the same vectors again.
        assert (choice.model.host, choice.model.identity.model) == (host, configured)
        assert choose_embedder(configured, dimensions=256).model.identity == choice.model.identity
        for part in (f"texts are sent to {host}", "as configured"):
            assert part in reason_for(choice, kind)
        assert "Secret" not in choice.reason + choice.model.identity.key + repr(choice.model)
        # Its own dimension would have to be asked for, which nobody does while choosing.
        assert choose_embedder(configured).model.host == host


def test_ollama_where_its_variable_says_and_is_wrong(accounts, monkeypatch):
    for value, host in (
        ("", "localhost:11434"),
        ("10.1.2.3", "10.1.2.3:11434"),
        ("0.0.0.0", "127.0.0.1:11434"),  # noqa: S104 (a setting)
        ("0.0.0.0:8080", "127.0.0.1:8080"),
        (":8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("[::]", "127.0.0.1:11434"),
        (' "box:1234" ', "box:1234"),
        ("http://box", "box"),
        ("https://box/ollama/", "box"),
    ):
        monkeypatch.setenv("OLLAMA_HOST", value)
        assert choose_embedder("ollama:m").model.host == host, value
    for value in ("box:x", "http://me:hunter2@box", "ftp://box", "[::1"):
        monkeypatch.setenv("OLLAMA_HOST", value)
        with pytest.raises(ConfigurationError) as caught:
            choose_embedder("ollama:m")
        assert "hunter2" not in str(caught.value)


def test_names_that_lead_nowhere_and_servers_whose_key_is_missing(accounts, monkeypatch):
    for name in (
        *("http://localhost:8080", "http://localhost:8080/v1#", "ftp://localhost/v1#m", "postgres://me:hunter2@h/d"),
        *("cohere:embed-v4", "openai:", "ollama:", "gemini:", "sentence-transformers:", "http://me:hunter2@h/v1#m"),
        *("https://#m", "http:x"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            choose_embedder(name)
        assert "hunter2" not in str(caught.value)
    for account in ("openai", "openrouter", "gemini"):
        variable = f"{account.upper()}_API_KEY"
        message = f"{account}:m needs a key: set the environment variable {variable}"
        with monkeypatch.context() as patch:
            patch.setenv(variable, " ")
            with pytest.raises(ConfigurationError, match=message):
                choose_embedder(f"{account}:m")


def test_a_path_with_a_colon_is_no_provider(tmp_path, monkeypatch):
    for name in (r"C:\models\tiny", "C:/models/tiny", str(tmp_path / "a:b")):
        with pytest.raises(ModelNotFoundError):
            choose_embedder(name)
    model_cache.write_embedder(tmp_path / "org:tiny")
    monkeypatch.chdir(tmp_path)
    assert isinstance(choose_embedder("org:tiny").model, Qwen3EmbeddingEncoder)


def test_servers_are_never_the_default_and_have_no_revision(accounts, empty_cache):
    with pytest.raises(ConfigurationError, match="revision='v2' is for models of the hub"):
        choose_embedder("openai:m", revision="v2")
    assert isinstance(choose_embedder().model, StaticEmbedder)


def test_qwen3_is_chosen_where_it_is_cached_and_there_are_torch_and_a_gpu(qwen3_cache, monkeypatch):
    with_gpu(monkeypatch, present=True)
    choice = choose_embedder()
    assert "on the GPU, found in the local cache" in reason_for(choice, Qwen3EmbeddingEncoder)
    assert (choice.model.identity.model, choice.model.identity.revision) == ("Qwen/Qwen3-Embedding-0.6B", COMMIT)
    assert isinstance(choose_embedder(device="cpu").model, StaticEmbedder)
    named = choose_embedder("Qwen/Qwen3-Embedding-0.6B")
    assert "as configured" in reason_for(named, Qwen3EmbeddingEncoder)
    with_gpu(monkeypatch, present=False)
    assert "cached, but slow without a GPU" in reason_for(choose_embedder(), StaticEmbedder)
    without(monkeypatch, "torch")
    assert "the package torch is missing" in reason_for(choose_embedder(), StaticEmbedder)


@pytest.mark.parametrize("configured", [None, "static", HashEmbedder(256)])
def test_a_configured_dimension_is_a_check(empty_cache, configured):
    assert choose_embedder(configured, dimensions=256).model.dimensions == 256
    with pytest.raises(ModelMismatchError, match=r"dimensions=1024 was configured, but .* makes vectors of 256"):
        choose_embedder(configured, dimensions=1024)


def test_static_where_nothing_is_cached_and_words_alone_where_it_is_not_installed_either(empty_cache, monkeypatch):
    assert DEFAULT_EMBEDDING_MODEL == "Qwen/Qwen3-Embedding-0.6B"  # as on its card
    assert "not in the local cache" in reason_for(choose_embedder(), StaticEmbedder)
    monkeypatch.setattr(static, "version", lambda _: "9.9")
    assert "found 9.9" in reason_for(choose_embedder(), None)
    without(monkeypatch, "wordllama")
    reason = reason_for(choose_embedder(), None)
    for part in ("keyword search only", "wordllama", "semlex models fill --model NAME"):
        assert part in reason


def test_incomplete_or_unknown_models_are_not_found_in_the_cache(qwen3_cache, monkeypatch):
    assert find_model(DEFAULT_EMBEDDING_MODEL, revision=COMMIT).revision == COMMIT
    with pytest.raises(ModelNotFoundError, match="at revision 'v2' is not on this machine"):
        find_model(DEFAULT_EMBEDDING_MODEL, revision="v2")
    assert find_cached("not a name") is None
    with monkeypatch.context() as patch:
        without(patch, "huggingface_hub")
        assert find_cached(DEFAULT_EMBEDDING_MODEL) is None
    assert find_cached(DEFAULT_EMBEDDING_MODEL) is not None
    for file in qwen3_cache.rglob("*.safetensors"):
        file.unlink()
    assert find_cached(DEFAULT_EMBEDDING_MODEL) is None


def test_the_hub_is_not_asked_for_a_path_or_without_leave(tmp_path, empty_cache, no_network, monkeypatch):
    for name in (str(tmp_path / "no"), "./no", "~/no-such-folder", "a/b/c"):
        with pytest.raises(ModelNotFoundError) as caught:
            find_model(name, allow_download=True)
        assert "hub:" not in str(caught.value)
    with pytest.raises(ModelNotFoundError, match="hub not asked"):
        find_model("semlex/no-such-model")
    choose_embedder()
    choose_reranker()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE is set"):
        find_model("semlex/no-such-model", allow_download=True)


def test_heavy_packages_are_not_imported_without_need(empty_cache):
    program = f"""
import os, sys
os.environ["HF_HUB_CACHE"] = {str(empty_cache)!r}
import semlex, semlex.embedding, semlex.reranking, semlex.testing
import semlex.models.local.device, semlex.models.files
from semlex.embedding.registry import choose_embedder
from semlex.reranking.registry import choose_reranker
heavy = {{"torch", "transformers", "model2vec", "tokenizers", "huggingface_hub", "safetensors", "httpx2"}}
print(sorted(heavy & set(sys.modules)))
choice = choose_embedder()
choose_reranker()
assert choice.model.embed_query("red stone").shape == (256,)
print(sorted({{"torch", "transformers", "wordllama"}} & set(sys.modules)))
"""
    command = [sys.executable, "-W", "error", "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n[]\n"
