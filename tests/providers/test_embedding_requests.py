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


# --- what is sent -----------------------------------------------------------------------------------------------------
def test_the_request_of_openai(embeddings, embedder_at):
    embedder = embedder_at(embeddings, model="text-embedding-3-small", api_key=KEY)
    embedder.embed_documents(["a", "b"])
    (request,) = embeddings.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "text-embedding-3-small", "input": ["a", "b"], "encoding_format": "base64"}
    # An empty text is sent as a space, and dimensions only where it is asked for.
    assert_array_equal(embedder.embed_documents(["", " "])[0], embedder.embed_query(""))
    for send in (False, True):
        embedder = embedder_at(embeddings, dimensions=3, send_dimensions=send)
        assert_allclose(embedder.embed_documents(["a"]), all_expected(["a"], dimensions=3), atol=1e-6)
    bodies = [request.body for request in embeddings.requests[1:]]
    assert [body["input"] for body in bodies] == [[" ", " "], [" "], ["a"], ["a"]]
    assert [body.get("dimensions") for body in bodies] == [None, None, None, 3]
    with pytest.raises(ConfigurationError, match="send_dimensions=True needs dimensions="):
        openai(embeddings, send_dimensions=True)


@pytest.mark.parametrize(("options", "query", "document", "task"), [
    ({}, "x", "x", None),
    ({"query_prompt": "query: ", "document_prompt": "passage: "}, "query: x", "passage: x", "query: "),
    ({"instruction": "Find it"}, "Instruct: Find it\nQuery:x", "x", "Find it"),
    ({"model": "qwen3-embedding", "query_prompt": ""}, "x", "x", None),
    *(  # Qwen3 gets its prompt wherever it runs.
        ({"model": model}, f"Instruct: {DEFAULT_INSTRUCTION}\nQuery:x", "x", DEFAULT_INSTRUCTION)
        for model in ("Qwen/Qwen3-Embedding-0.6B", "qwen3-embedding:8b", "QWEN3-EMBEDDING")
    ),
])  # fmt: skip
def test_prompts(embeddings, embedder_at, *, options, query, document, task):
    embedder = embedder_at(embeddings, **options)
    embedder.embed_query("x")
    embedder.embed_documents(["x"])
    assert [request.body["input"] for request in embeddings.requests] == [[query], [document]]
    assert embedder.identity.instruction == task


def test_the_requests_of_gemini(embedder_at):
    with ModelServerDouble(gemini_embeddings(DIMENSIONS)) as double:
        for options in ({"dimensions": 4}, {"model": "gemini-embedding-2"}):
            embedder = embedder_at(double, gemini, **options)
            embedder.embed_query("q")
            embedder.embed_documents(["d"])
    model = {"model": "models/gemini-embedding-001", "outputDimensionality": 4}
    for request, (text, kind) in zip(double.requests, [("q", "QUERY"), ("d", "DOCUMENT")], strict=False):
        assert request.path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
        assert request.headers["x-goog-api-key"] == KEY
        content = {"content": {"parts": [{"text": text}]}, "taskType": f"RETRIEVAL_{kind}"}
        assert request.body == {"requests": [model | content]}
    # Later models read the task in the text.
    sent = [request.body["requests"][0] for request in double.requests[2:]]
    texts = [entry["content"]["parts"][0]["text"] for entry in sent]
    assert texts == ["task: search result | query: q", "title: none | text: d"]
    assert not any("taskType" in entry for entry in sent)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_server_without_base64_is_asked_for_numbers_once(code, embedder_at):
    right = openai_embeddings(DIMENSIONS)

    def answer(request):
        return Reply(b"{}", code) if request.body["encoding_format"] == "base64" else right(request)

    with ModelServerDouble(answer) as double:
        embedder = embedder_at(double)
        for _ in range(3):
            assert_allclose(embedder.embed_documents(["a", "b"]), all_expected(["a", "b"]), atol=1e-6)
        assert [request.body["encoding_format"] for request in double.requests] == ["base64", *["float"] * 3]


def test_a_server_that_knows_base64_is_not_asked_for_numbers(embeddings, embedder_at):
    embedder = embedder_at(embeddings)
    embedder.embed_documents(["a"])
    embeddings.then(status(400))
    with pytest.raises(ModelServerError, match="answered 400"):
        embedder.embed_documents(["b"])
    assert {request.body["encoding_format"] for request in embeddings.requests} == {"base64"}


# --- the object itself ------------------------------------------------------------------------------------------------
def test_the_object_itself(embeddings):
    embedder = openai(embeddings, dimensions=5)
    assert embedder.identity.dimensions == 5
    assert embedder.embed_documents([]).shape == (0, 5)
    embedder = openai(embeddings)
    assert embeddings.requests == []
    assert embedder.dimensions == embedder.identity.dimensions == DIMENSIONS
    assert len(embeddings.requests) == 1
    assert embedder.embed_documents([]).shape == (0, DIMENSIONS)
    embedder.embed_documents(["a"])
    assert len(embeddings.requests) == 2
    embedder.close()
    embedder.close()
    with pytest.raises(ModelError, match="was closed"):
        embedder.embed_query("a")

    def identity(**options):
        return openai(embeddings, dimensions=4, **options).identity

    plain = identity(api_key=KEY)
    assert plain.model == f"{embeddings.url}/v1#m"
    assert (plain.revision, plain.pooling, plain.normalised) == ("server", "server", True)
    assert KEY not in plain.key
    prompts = ({"query_prompt": "q"}, {"document_prompt": "d"}, {"document_prompt": "e"}, {"instruction": "i"})
    assert len({identity(**options).key for options in ({}, {"model": "n"}, *prompts)}) == 6
    assert identity(batch_size=3, concurrency=1, timeout=90).key == plain.key
    assert identity(name="ollama:m").model == "ollama:m"
    embeddings.requests.clear()
    embedder = openai(embeddings)
    for rows in ("text", [1], ["a", "\ud800"], [None]):
        for call in (embedder.embed_documents, embedder.count_tokens):
            with pytest.raises(ValidationError):
                call(rows)
    assert embeddings.requests == []


def test_accounts_and_keys(monkeypatch, embeddings, embedder_at):
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("OPENROUTER_API_KEY", "other")
    small = OpenAIEmbedder("text-embedding-3-small", dimensions=4)
    assert small.identity.model == "openai:text-embedding-3-small"
    assert small.host == "api.openai.com"
    router = OpenAIEmbedder("qwen/qwen3-embedding-8b", "https://openrouter.ai/api/v1/", dimensions=4)
    assert router.identity.model == "openrouter:qwen/qwen3-embedding-8b"
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert GeminiEmbedder(dimensions=768).identity.model == "gemini:gemini-embedding-001"
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    embedder_at(embeddings).embed_query("a")
    assert KEY not in str(embeddings.requests[0].headers)
    monkeypatch.setenv("SEMLEX_EMBEDDING_API_KEY", "own")
    embedder_at(embeddings).embed_query("a")
    assert embeddings.requests[1].headers["authorization"] == "Bearer own"


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
    with pytest.raises(ConfigurationError, match="batch_size must be between 1 and 100; got 101"):
        GeminiEmbedder(api_key=KEY, batch_size=101)


# --- tokens -----------------------------------------------------------------------------------------------------------
@SAME_SURROUNDINGS
@given(rows=TEXTS)
def test_words_are_counted_where_there_is_no_tokenizer(rows):
    embedder = OpenAIEmbedder("m", "http://localhost/v1")
    assert embedder.counter_name == "2*unicode-words/1"
    assert_array_equal(embedder.count_tokens(rows), 2 * WordCounter().count_tokens(rows))
    for text in rows:
        twice = [word for word in _core.word_offsets(text).tolist() for _ in range(2)]
        assert embedder.token_offsets(text).tolist() == twice


def test_the_tokenizer_of_the_model_in_the_local_cache(tmp_path, monkeypatch):
    file, asked = tmp_path / "tokenizer.json", []
    file.write_bytes(tokenizers_on_disk.content())
    monkeypatch.setattr(tokenizer, "find_cached", lambda name: asked.append(name) or find_model(str(tmp_path)))

    def counter(model="org/model"):
        return OpenAIEmbedder(model, "http://localhost/v1").counter_name

    assert counter().startswith("tokenizer/")
    assert counter("model:8b") == "2*unicode-words/1"
    assert asked == ["org/model"]
    # Without the package tokenizers the Rust core still reads a file of Qwen's kind; of another kind words are counted.
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tokenizers", None)
        assert counter().startswith("tokenizer/")
        file.write_bytes(tokenizers_on_disk.edited({"normalizer": {"type": "Lowercase"}}, file.read_bytes()))
        assert counter() == "2*unicode-words/1"
    assert counter().startswith("tokenizer/")
