"""Embedders behind servers: what is sent, what is refused before, how a model is named, and how tokens are counted."""

import sys

import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from semlex import _core
from semlex.embedding.base import DEFAULT_INSTRUCTION
from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder
from semlex.errors import ConfigurationError, ModelError, ModelServerError, ValidationError
from semlex.models import tokenizer
from semlex.models.files import find_model
from semlex.models.tokenizer import WordCounter
from tests.support import tokenizers_on_disk
from tests.support.embedding_servers import DIMENSIONS, TEXTS, all_expected, gemini, openai
from tests.support.model_servers import KEY, ModelServerDouble, Reply, gemini_embeddings, openai_embeddings, status
from tests.support.properties import SAME_SURROUNDINGS

pytestmark = pytest.mark.usefixtures("no_keys", "pauses")


@pytest.fixture
def double():
    with ModelServerDouble(openai_embeddings(DIMENSIONS)) as running:
        yield running


# --- what is sent -----------------------------------------------------------------------------------------------------
def test_the_request_of_openai(double):
    embedder = openai(double, model="text-embedding-3-small", api_key=KEY)
    embedder.embed_documents(["a", "b"])
    embedder.close()
    (request,) = double.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "text-embedding-3-small", "input": ["a", "b"], "encoding_format": "base64"}


def test_dimensions_are_sent_only_where_it_is_said(double):
    for send in (False, True):
        embedder = openai(double, dimensions=3, send_dimensions=send)
        assert_allclose(embedder.embed_documents(["a"]), all_expected(["a"], dimensions=3), atol=1e-6)
        embedder.close()
    assert [request.body.get("dimensions") for request in double.requests] == [None, 3]
    with pytest.raises(ConfigurationError, match="send_dimensions=True needs dimensions="):
        openai(double, send_dimensions=True)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-Embedding-0.6B", "qwen3-embedding:8b", "QWEN3-EMBEDDING"])
def test_qwen3_gets_its_prompt_wherever_it_runs(double, model):
    embedder = openai(double, model=model)
    embedder.embed_query("red stone")
    embedder.embed_documents(["red stone"])
    embedder.close()
    prompt = f"Instruct: {DEFAULT_INSTRUCTION}\nQuery:"
    assert [request.body["input"] for request in double.requests] == [[f"{prompt}red stone"], ["red stone"]]
    assert embedder.identity.instruction == DEFAULT_INSTRUCTION


@pytest.mark.parametrize(("options", "query", "document", "task"), [
    ({}, "x", "x", None),
    ({"query_prompt": "query: ", "document_prompt": "passage: "}, "query: x", "passage: x", "query: "),
    ({"instruction": "Find it"}, "Instruct: Find it\nQuery:x", "x", "Find it"),
    ({"model": "qwen3-embedding", "query_prompt": ""}, "x", "x", None),
])  # fmt: skip
def test_prompts(double, options, query, document, task):
    embedder = openai(double, **options)
    embedder.embed_query("x")
    embedder.embed_documents(["x"])
    embedder.close()
    assert [request.body["input"] for request in double.requests] == [[query], [document]]
    assert embedder.identity.instruction == task


def test_an_empty_text_is_sent_as_a_space(double):
    embedder = openai(double)
    assert_array_equal(embedder.embed_documents(["", " "])[0], embedder.embed_query(""))
    embedder.close()
    assert [request.body["input"] for request in double.requests] == [[" ", " "], [" "]]


def test_the_request_of_gemini():
    with ModelServerDouble(gemini_embeddings(DIMENSIONS)) as double:
        embedder = gemini(double, dimensions=4)
        embedder.embed_query("q")
        embedder.embed_documents(["d"])
        embedder.close()
    for request, (text, kind) in zip(
        double.requests, [("q", "RETRIEVAL_QUERY"), ("d", "RETRIEVAL_DOCUMENT")], strict=True
    ):
        assert request.path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
        assert request.headers["x-goog-api-key"] == KEY
        assert request.body == {
            "requests": [
                {
                    "model": "models/gemini-embedding-001",
                    "content": {"parts": [{"text": text}]},
                    "taskType": kind,
                    "outputDimensionality": 4,
                }
            ]
        }


def test_later_models_of_gemini_read_the_task_in_the_text():
    with ModelServerDouble(gemini_embeddings(DIMENSIONS)) as double:
        embedder = gemini(double, model="gemini-embedding-2")
        embedder.embed_query("q")
        embedder.embed_documents(["d"])
        embedder.close()
    sent = [request.body["requests"][0] for request in double.requests]
    assert [entry["content"]["parts"][0]["text"] for entry in sent] == [
        "task: search result | query: q",
        "title: none | text: d",
    ]
    assert not any("taskType" in entry for entry in sent)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_server_without_base64_is_asked_for_numbers_once(code):
    right = openai_embeddings(DIMENSIONS)

    def answer(request):
        return Reply(b"{}", code) if request.body["encoding_format"] == "base64" else right(request)

    with ModelServerDouble(answer) as double:
        embedder = openai(double)
        for _ in range(3):
            assert_allclose(embedder.embed_documents(["a", "b"]), all_expected(["a", "b"]), atol=1e-6)
        embedder.close()
        assert [request.body["encoding_format"] for request in double.requests] == ["base64", *["float"] * 3]


def test_a_server_that_knows_base64_is_not_asked_for_numbers(double):
    embedder = openai(double)
    embedder.embed_documents(["a"])
    double.then(status(400))
    with pytest.raises(ModelServerError, match="answered 400"):
        embedder.embed_documents(["b"])
    embedder.close()
    assert {request.body["encoding_format"] for request in double.requests} == {"base64"}


# --- the object itself ------------------------------------------------------------------------------------------------
def test_the_dimension_is_asked_for_once(double):
    embedder = openai(double)
    assert double.requests == []
    assert embedder.dimensions == DIMENSIONS
    assert embedder.identity.dimensions == DIMENSIONS
    assert len(double.requests) == 1
    assert embedder.embed_documents([]).shape == (0, DIMENSIONS)
    embedder.embed_documents(["a"])
    assert len(double.requests) == 2
    embedder.close()


def test_a_configured_dimension_is_not_asked_for(double):
    embedder = openai(double, dimensions=5)
    assert embedder.identity.dimensions == 5
    assert embedder.embed_documents([]).shape == (0, 5)
    assert double.requests == []


def test_identity(double):
    plain = openai(double, dimensions=4, api_key=KEY).identity
    assert plain.model == f"{double.url}/v1#m"
    assert (plain.revision, plain.pooling, plain.normalised) == ("server", "server", True)
    assert KEY not in plain.key
    keys = {
        openai(double, dimensions=4, **options).identity.key
        for options in (
            {},
            {"model": "n"},
            {"query_prompt": "q"},
            {"document_prompt": "d"},
            {"document_prompt": "e"},
            {"instruction": "i"},
        )
    }
    assert len(keys) == 6
    assert openai(double, dimensions=4, batch_size=3, concurrency=1, timeout=90).identity.key == plain.key
    assert openai(double, dimensions=4, name="ollama:m").identity.model == "ollama:m"


def test_accounts(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("OPENROUTER_API_KEY", "other")
    small = OpenAIEmbedder("text-embedding-3-small", dimensions=4)
    assert small.identity.model == "openai:text-embedding-3-small"
    assert small.host == "api.openai.com"
    router = OpenAIEmbedder("qwen/qwen3-embedding-8b", "https://openrouter.ai/api/v1/", dimensions=4)
    assert router.identity.model == "openrouter:qwen/qwen3-embedding-8b"
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert GeminiEmbedder(dimensions=768).identity.model == "gemini:gemini-embedding-001"


def test_a_key_goes_to_its_own_account_only(double, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    embedder = openai(double)
    embedder.embed_query("a")
    embedder.close()
    assert KEY not in str(double.requests[0].headers)
    monkeypatch.setenv("SEMLEX_EMBEDDING_API_KEY", "own")
    embedder = openai(double)
    embedder.embed_query("a")
    embedder.close()
    assert double.requests[1].headers["authorization"] == "Bearer own"


@pytest.mark.parametrize(("make", "variable"), [
    (lambda: OpenAIEmbedder("m"), "OPENAI_API_KEY"),
    (lambda: OpenAIEmbedder("m", "https://openrouter.ai/api/v1"), "OPENROUTER_API_KEY"),
    (GeminiEmbedder, "GEMINI_API_KEY or GOOGLE_API_KEY"),
])  # fmt: skip
def test_a_missing_key_is_named_by_its_variable(make, variable):
    with pytest.raises(ConfigurationError, match=f"needs a key: set the environment variable {variable}$"):
        make()


@pytest.mark.parametrize(("options", "message"), [
    ({"model": " "}, "in one line, and not blank"),
    ({"model": "a\nb"}, "in one line, and not blank"),
    ({"batch_size": 0}, "batch_size must be between 1 and 2,048"),
    ({"batch_size": 2049}, "batch_size must be between 1 and 2,048"),
    ({"dimensions": 0}, "dimensions must be between 1 and "),
    ({"dimensions": "8"}, "dimensions must be an int; got a str"),
    ({"timeout": 0}, "timeout must be"),
    ({"concurrency": 0}, "concurrency must be"),
    ({"instruction": "a", "query_prompt": "b"}, "contradict each other"),
])  # fmt: skip
def test_parameters_out_of_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        OpenAIEmbedder(**{"model": "m", "base_url": "http://localhost/v1", **options})


def test_gemini_takes_no_more_than_a_hundred_texts():
    with pytest.raises(ConfigurationError, match="batch_size must be between 1 and 100; got 101"):
        GeminiEmbedder(api_key=KEY, batch_size=101)


@pytest.mark.parametrize("rows", ["text", [1], ["a", "\ud800"], [None]])
def test_bad_texts_are_refused_before_anything_is_sent(double, rows):
    embedder = openai(double)
    with pytest.raises(ValidationError):
        embedder.embed_documents(rows)
    with pytest.raises(ValidationError):
        embedder.count_tokens(rows)
    assert double.requests == []


def test_closing(double):
    embedder = openai(double)
    embedder.embed_query("a")
    embedder.close()
    embedder.close()
    with pytest.raises(ModelError, match="was closed"):
        embedder.embed_query("a")


# --- tokens -----------------------------------------------------------------------------------------------------------
@SAME_SURROUNDINGS
@given(rows=TEXTS)
def test_words_are_counted_where_there_is_no_tokenizer(rows):
    embedder = OpenAIEmbedder("m", "http://localhost/v1")
    assert embedder.counter_name == "2*unicode-words/1"
    assert_array_equal(embedder.count_tokens(rows), 2 * WordCounter().count_tokens(rows))
    for text in rows:
        assert embedder.token_offsets(text).tolist() == [
            word for word in _core.word_offsets(text).tolist() for _ in range(2)
        ]


def test_the_tokenizer_of_the_model_in_the_local_cache(tmp_path, monkeypatch):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(tokenizers_on_disk.content())
    asked = []

    def find_cached(name):
        asked.append(name)
        return find_model(str(tmp_path))

    monkeypatch.setattr(tokenizer, "find_cached", find_cached)
    assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")
    assert OpenAIEmbedder("model:8b", "http://localhost/v1").counter_name == "2*unicode-words/1"
    assert asked == ["org/model"]
    # Without the package tokenizers the Rust core still reads a file of Qwen's kind; of another kind words are counted.
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tokenizers", None)
        assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")
        file.write_bytes(tokenizers_on_disk.edited({"normalizer": {"type": "Lowercase"}}, file.read_bytes()))
        assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name == "2*unicode-words/1"
    assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")
