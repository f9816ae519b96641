import pytest

from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelNotFoundError
from semlex.models.model_names import ACCOUNTS, DEFAULT_RERANKING_MODEL
from semlex.reranking import cross_encoder
from semlex.reranking.cross_encoder import CrossEncoderReranker
from semlex.reranking.qwen3 import Qwen3Reranker
from semlex.reranking.registry import choose_reranker
from semlex.reranking.remote import CohereReranker, LLMReranker, RemoteReranker, TEIReranker
from semlex.reranking.term_overlap import TermOverlapReranker
from tests.support import model_cache, tiny_cross_encoder
from tests.support.folders import change_json
from tests.support.model_cache import COMMIT, reason_for, with_gpu, without

empty_cache, qwen3_cache = model_cache.empty_cache, model_cache.qwen3_cache
KEY = "key-6f1c2d"
LLM_VARIABLE = "SEMLEX_LLM_MODEL"
KEY_VARIABLE = RemoteReranker.key_variable
VARIABLES = [*(name for account in ACCOUNTS.values() for name in account.variables), KEY_VARIABLE, LLM_VARIABLE]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch, no_network):
    """No key of this machine decides a test, and nothing is sent anywhere."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


class FakeReranker:
    identity = "fake@1"


def test_no_reranker(empty_cache):
    assert DEFAULT_RERANKING_MODEL == "Qwen/Qwen3-Reranker-0.6B"  # as on its card
    for configured, use_reranking, part in (
        (None, False, "no reranking, as configured"),
        (FakeReranker(), False, "no reranking, as configured"),
        ("none", "auto", "no reranking, as configured"),
        (None, "auto", "Qwen/Qwen3-Reranker-0.6B is not in the local cache"),
        ("auto", "auto", "neither COHERE_API_KEY nor SEMLEX_LLM_MODEL is set"),
        ("auto", False, "no reranking, as configured"),
    ):
        assert part in reason_for(choose_reranker(configured, use_reranking), None)


@pytest.mark.parametrize("use_reranking", [True, "auto"])
def test_a_configured_reranker(tmp_path, use_reranking):
    fake = FakeReranker()
    choice = choose_reranker(fake, use_reranking)
    assert choice.model is fake
    assert "fake@1" in reason_for(choice, FakeReranker)
    folder = model_cache.write_reranker(tmp_path / "tiny")
    named = choose_reranker(str(folder), use_reranking)
    assert "as configured" in reason_for(named, Qwen3Reranker)
    assert named.model.identity.startswith(str(folder))
    assert "no model" in reason_for(choose_reranker("term-overlap", use_reranking), TermOverlapReranker)


def test_an_automatic_reranker_needs_cache_torch_and_gpu(qwen3_cache, monkeypatch):
    with_gpu(monkeypatch, present=False)
    assert "slow without a GPU" in choose_reranker().reason
    assert choose_reranker(use_reranking=True).model is not None
    with_gpu(monkeypatch, present=True)
    assert choose_reranker().model.identity == f"Qwen/Qwen3-Reranker-0.6B@{COMMIT}"
    without(monkeypatch, "transformers")
    assert "the package transformers is missing" in reason_for(choose_reranker(), None)


def test_a_reranker_that_was_demanded_must_be_there(empty_cache):
    with pytest.raises(ModelNotFoundError, match="Qwen3-Reranker"):
        choose_reranker(use_reranking=True)
    with pytest.raises(ConfigurationError, match="contradicts"):
        choose_reranker("none", use_reranking=True)
    with pytest.raises(ConfigurationError, match="'auto' found nothing to rerank with"):
        choose_reranker("auto", use_reranking=True)
    with pytest.raises(ConfigurationError, match="use_reranking must be"):
        choose_reranker(use_reranking="sometimes")


@pytest.mark.parametrize(
    ("name", "variable", "kind", "identity"),
    [
        ("cohere", "COHERE_API_KEY", CohereReranker, "rerank-v3.5@api.cohere.com"),
        ("cohere:rerank-v4.0-fast", "CO_API_KEY", CohereReranker, "rerank-v4.0-fast@api.cohere.com"),
        ("jina:jina-reranker-v2", "JINA_API_KEY", CohereReranker, "jina-reranker-v2@api.jina.ai"),
        ("llm:openai:gpt-4.1-mini", "OPENAI_API_KEY", LLMReranker, "gpt-4.1-mini@api.openai.com"),
        ("llm:openrouter:qwen/qwen3:free", "OPENROUTER_API_KEY", LLMReranker, "qwen/qwen3:free@openrouter.ai"),
    ],
)
def test_an_account_by_name_needs_its_key(monkeypatch, name, variable, kind, identity):
    for unset in (None, "", " "):
        if unset is not None:
            monkeypatch.setenv(variable, unset)
        with pytest.raises(ConfigurationError, match=rf"needs a key: set the environment variable .*{variable}"):
            choose_reranker(name)
    monkeypatch.setenv(variable, KEY)
    choice = choose_reranker(name)
    assert choice.model.identity == identity
    host = identity.rpartition("@")[2]
    assert reason_for(choice, kind).endswith(f"queries and candidate texts are sent to {host}")
    assert KEY not in choice.reason + repr(choice)


def test_auto_takes_the_language_model_that_is_named_beside_it(empty_cache, monkeypatch):
    monkeypatch.setenv(LLM_VARIABLE, "http://other.example/v1#m")
    choice = choose_reranker("auto:http://llm.example/v1#m", use_reranking=True)
    assert "because 'auto:…' names it" in reason_for(choice, LLMReranker)
    assert choice.model.identity == "m@llm.example"
    assert choose_reranker("auto", use_reranking=True).model.identity == "m@other.example"
    # An account of Cohere goes before, as without a name.
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    assert isinstance(choose_reranker("auto:http://llm.example/v1#m").model, CohereReranker)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_server_by_its_address(monkeypatch, key):
    if key is not None:
        monkeypatch.setenv(KEY_VARIABLE, key)
    for name, kind, identity in (
        ("http://localhost:8000/v1#BAAI/bge-reranker-v2-m3", CohereReranker, "BAAI/bge-reranker-v2-m3@localhost:8000"),
        ("https://rerank.example/v2#m", CohereReranker, "m@rerank.example"),
        ("tei+http://127.0.0.1:8080", TEIReranker, "tei@127.0.0.1:8080"),
        ("tei+https://tei.example/", TEIReranker, "tei@tei.example"),
        ("llm+http://localhost:11434/v1#qwen3:8b", LLMReranker, "qwen3:8b@localhost:11434"),
        ("llm+https://llm.example/v1#m", LLMReranker, "m@llm.example"),
    ):
        choice = choose_reranker(name)
        assert choice.model.identity == identity
        assert choice.model.host in reason_for(choice, kind)
        assert choice.model._server._headers.get("Authorization") == (None if key is None else f"Bearer {KEY}")
        assert KEY not in choice.reason + repr(choice)


def test_keys_in_the_environment_send_nothing_by_default_and_go_nowhere_else(empty_cache, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, KEY)
    assert choose_reranker().model is None
    with pytest.raises(ModelNotFoundError):
        choose_reranker(use_reranking=True)
    monkeypatch.delenv(KEY_VARIABLE)
    assert "Authorization" not in choose_reranker("http://localhost:8000/v1#m").model._server._headers


def test_names_that_are_incomplete_or_unknown_and_an_address_with_a_password(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, KEY)
    for name in (
        *("http://secret:password@host/v1", "https://host/v1#", "llm+http://host/v1", "llm:openai", "llm:", "jina:"),
        *("llm:secret-provider:m", "tei+http://", "ftp://secret:password@host/v1#m", "tei:secret", "gemini:secret"),
        "http:secret",
    ):
        with pytest.raises(ConfigurationError) as caught:
            choose_reranker(name)
        assert not [hidden for hidden in ("secret", KEY) if hidden in str(caught.value)]
    with pytest.raises(ConfigurationError, match="must not hold a user or password") as caught:
        choose_reranker("http://user:secret@localhost/v1#m")
    assert "secret" not in str(caught.value)


def test_the_kind_of_a_folder_is_told_by_its_config(tmp_path, monkeypatch):
    folder = tiny_cross_encoder.write_cross_encoder(tmp_path / "tiny")
    for name in (str(folder), f"cross-encoder:{folder}"):
        assert reason_for(choose_reranker(name), CrossEncoderReranker) == f"reranking with {folder}, as configured"
    classifier = model_cache.write_reranker(tmp_path / "classifier")
    change_json(classifier / "config.json", architectures=["Qwen3ForSequenceClassification"])
    assert isinstance(choose_reranker(str(classifier)).model, Qwen3Reranker)
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises(ModelError, match="neither a Qwen3-Reranker nor a cross-encoder"):
        choose_reranker(str(tmp_path))
    with pytest.raises(ModelError, match="not a cross-encoder"):
        choose_reranker(f"cross-encoder:{tmp_path}")
    monkeypatch.setattr(cross_encoder, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"sentence-transformers.*semlex\[sentence-transformers\]"):
        choose_reranker(str(folder))


def test_a_cross_encoder_by_its_name_in_the_cache(empty_cache):
    model_cache.put_into_cache(empty_cache, "cross-encoder/tiny", tiny_cross_encoder.write_cross_encoder)
    for name in ("cross-encoder/tiny", "cross-encoder:cross-encoder/tiny"):
        assert choose_reranker(name).model.identity == f"cross-encoder/tiny@{COMMIT}"
    assert choose_reranker("cross-encoder/tiny", revision=COMMIT).model.identity.endswith(COMMIT)
    with pytest.raises(ModelNotFoundError, match="at revision 'v2'"):
        choose_reranker("cross-encoder/tiny", revision="v2")


def test_auto_takes_cohere_then_qwen3_then_the_language_model(qwen3_cache, monkeypatch):
    monkeypatch.setenv(LLM_VARIABLE, "openai:gpt-4.1-mini")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CO_API_KEY", KEY)
    with_gpu(monkeypatch, present=True)
    first = choose_reranker("auto")
    assert first.model.identity == "rerank-v3.5@api.cohere.com"
    assert "because CO_API_KEY is set" in reason_for(first, CohereReranker)
    assert "sent to api.cohere.com" in first.reason
    monkeypatch.delenv("CO_API_KEY")
    second = choose_reranker("auto", use_reranking=True)
    assert "on the GPU, found in the local cache" in reason_for(second, Qwen3Reranker)
    with_gpu(monkeypatch, present=False)
    third = choose_reranker("auto")
    assert third.model.identity == "gpt-4.1-mini@api.openai.com"
    assert "because SEMLEX_LLM_MODEL names it" in reason_for(third, LLMReranker)
    monkeypatch.setenv(LLM_VARIABLE, "http://localhost:11434/v1#qwen3:8b")
    assert choose_reranker("auto").model.identity == "qwen3:8b@localhost:11434"
    monkeypatch.setenv(LLM_VARIABLE, "gpt-4.1-mini")
    with pytest.raises(ConfigurationError, match="llm:openai:MODEL"):
        choose_reranker("auto")
    monkeypatch.delenv(LLM_VARIABLE)
    assert "slow without a GPU" in reason_for(choose_reranker("auto"), None)
