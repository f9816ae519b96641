"""Embedders behind servers: what is sent, right answers in spite of faults, and answers that cannot be used."""

import base64
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from semlex import PostgreSQLRetriever, _core
from semlex.embedding.base import Embedder
from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder, read_vector
from semlex.errors import ConfigurationError, ModelError, ModelMismatchError, ModelServerError, ValidationError
from semlex.models import tokenizer
from semlex.models.files import find_model
from semlex.models.model_names import DEFAULT_INSTRUCTION
from semlex.models.tokenizer import WordCounter
from tests.support import tokenizers_on_disk
from tests.support.embedding_servers import DIMENSIONS, TEXTS, all_expected, gemini, gemini_api, openai, openai_api
from tests.support.leaks import all_log_lines, shown
from tests.support.model_servers import KEY, RETRIED, altered, cut, echo, openai_embeddings, status
from tests.support.properties import SAME_SURROUNDINGS, examples

pytestmark = pytest.mark.usefixtures("no_keys", "pauses")

passing = st.sampled_from([*map(status, RETRIED), cut, altered(lambda content: content["data"].reverse())])
CUT = st.none() | st.integers(1, DIMENSIONS)
OPTIONS = {"batch_size": st.integers(1, 7), "concurrency": st.integers(1, 4), "dimensions": CUT}
OPTIONS |= {"document_prompt": st.sampled_from(["", "passage: "])}


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(40))
@given(TEXTS, st.lists(passing, max_size=4), st.fixed_dictionaries(OPTIONS), st.booleans())
def test_a_batch_is_the_map_of_its_texts(rows, faults, options, floats_only):
    with openai_api(faults, floats_only=floats_only) as double, closing(openai(double, **options)) as embedder:
        vectors = embedder.embed_documents(rows)
        assert vectors.dtype == np.float32
        wanted = all_expected(rows, options["document_prompt"], options["dimensions"] or DIMENSIONS)
        assert_allclose(vectors, wanted, atol=1e-6)
        assert all(1 <= request.size <= options["batch_size"] for request in double.requests)


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(TEXTS, st.lists(st.sampled_from([status(503), cut]), max_size=4), st.integers(1, 7), CUT)
def test_gemini_too(rows, faults, batch_size, length):
    with gemini_api(faults) as double, closing(gemini(double, batch_size=batch_size, dimensions=length)) as embedder:
        assert_allclose(embedder.embed_documents(rows), all_expected(rows, "", length or DIMENSIONS), atol=1e-6)
        path = "/v1beta/models/gemini-embedding-001:batchEmbedContents"
        assert {request.path for request in double.requests} <= {path}


@contextmanager
def refusing(code, is_wrong, **options):
    """An embedder whose server refuses some requests."""
    with openai_api() as double, closing(openai(double, **options)) as embedder:
        right = double.answer
        double.answer = lambda request: status(code)(request, right) if is_wrong(request) else right(request)
        yield embedder, double


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(rows=TEXTS.filter(bool), most=st.integers(1, 8), code=st.sampled_from([400, 413, 422]))
def test_a_batch_that_is_too_large_is_halved(rows, most, code):
    with refusing(code, lambda request: request.size > most, batch_size=16) as (embedder, _):
        assert_allclose(embedder.embed_documents(rows), all_expected(rows), atol=1e-6)


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(count=st.integers(1, 40), data=st.data())
def test_a_text_that_is_refused_is_named_by_its_row(count, data):
    row, rows = data.draw(st.integers(0, count - 1)), ["text"] * count
    rows[row] = "too long"
    with refusing(400, lambda request: "too long" in request.body["input"], batch_size=8) as (embedder, _):
        with pytest.raises(ModelServerError, match=rf"answered 400.*refuses the text of row {row}$") as caught:
            embedder.embed_documents(rows)
        assert caught.value.status == 400


def test_gemini_threads_and_servers_without_base64(embeddings, embedder_at):
    embedder = embedder_at(embeddings, batch_size=3)
    assert isinstance(embedder, Embedder)
    found = embedder.embed_query("red stone")
    assert found.shape == (DIMENSIONS,)
    assert_allclose([found], all_expected(["red stone"]), atol=1e-6)
    rows = [f"text {number}" for number in range(20)]
    with ThreadPoolExecutor(6) as threads:
        for vectors in threads.map(embedder.embed_documents, [rows] * 6):
            assert_allclose(vectors, all_expected(rows), atol=1e-6)
    with gemini_api() as double:
        embedder = embedder_at(double, gemini)
        for change in (
            lambda content: content["embeddings"].pop() and None,
            lambda content: content["embeddings"].append(content["embeddings"][0]),
            lambda content: content["embeddings"][0].clear(),
            lambda _: {"embeddings": None},
            lambda _: [],
        ):
            double.then(altered(change))
            with pytest.raises(ModelServerError, match=r"it has \d vectors for 2 texts"):
                embedder.embed_documents(["first", "second"])
    for code in [400, 413, 422]:
        with refusing(code, lambda request: request.body["encoding_format"] == "base64") as (embedder, double):
            for _ in range(3):
                assert_allclose(embedder.embed_documents(["a", "b"]), all_expected(["a", "b"]), atol=1e-6)
            assert [request.body["encoding_format"] for request in double.requests] == ["base64", *["float"] * 3]


def entry(row, **changes):
    return lambda content: content["data"][row].update(changes)


NO_NUMBERS = (
    *(None, "%%%%", "QUJDREU=", ["1.0"] * DIMENSIONS, [[1.0] * DIMENSIONS], [True] * DIMENSIONS, [None] * DIMENSIONS),
    [10**400] * DIMENSIONS,
)
WRONG = [
    (lambda content: content["data"].pop() and None, "has no vectors for rows 2 of the 3 texts"),
    (lambda content: content["data"].pop(0) and None, "has no vectors for rows 0 of the 3 texts"),
    (lambda content: content.update(data=[]), "has no vectors for rows 0, 1, 2"),
    (entry(1, index=0), "two vectors with the index 0"),
    *((entry(1, index=index), "a vector whose index is not a number from 0 to 2") for index in (7, -1, "1", None, 1.0)),
    *((entry(1, embedding=one), "row 1 of the request is not numbers") for one in NO_NUMBERS),
    *((change, "no list of embeddings") for change in (lambda content: content["data"], lambda _: 17)),
    *((lambda content, data=data: content.update(data=data), "no list of embeddings") for data in ({}, [1, 2, 3])),
]


def test_answers_that_cannot_be_used(embeddings, embedder_at):
    for change, message in WRONG:
        embeddings.then(altered(change))
        embedder = embedder_at(embeddings)
        with pytest.raises(ModelServerError, match=message) as caught:
            embedder.embed_documents(["first", "second", "third"])
        assert caught.value.status == 200
        assert f"the answer of {embedder.host} for m cannot be used" in str(caught.value)
    for values, error, message in (
        ([float("nan")] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([1e300] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([0] * DIMENSIONS, ModelError, "row 1 is all zero"),
        ([1.0] * (DIMENSIONS - 1), ModelMismatchError, "dimension 7 after vectors of dimension 8"),
        ([], ModelMismatchError, "dimension 0 after vectors of dimension 8"),
    ):
        numbers = [float("inf") if value == 1e300 else value for value in values]
        for sent in (values, base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()):
            embeddings.then(altered(entry(1, embedding=sent)))
            with pytest.raises(error, match=message):
                embedder_at(embeddings).embed_documents(["first", "second", "third"])
    for dimensions in (None, 4):
        embeddings.answer = openai_embeddings(DIMENSIONS)
        embedder = embedder_at(embeddings, dimensions=dimensions)
        embedder.embed_query("a")
        embeddings.answer = openai_embeddings(6)
        with pytest.raises(ModelMismatchError, match="another model"):
            embedder.embed_query("a")
    embeddings.answer = openai_embeddings(DIMENSIONS)
    with pytest.raises(ModelMismatchError, match="makes vectors of 8 dimensions; 9 were configured"):
        embedder_at(embeddings, dimensions=9).embed_query("a")
    embedder = embedder_at(embeddings)
    embedder.embed_documents(["a"])
    embeddings.then(status(400))
    with pytest.raises(ModelServerError, match="answered 400"):
        embedder.embed_documents(["b"])
    assert {request.body["encoding_format"] for request in embeddings.requests} == {"base64"}


quiet_text = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=8)
echoes = st.sampled_from([400, 401, 403, 404, 413, 422, 429, 500]).map(echo)
fault = echoes | st.sampled_from([change for change, _ in WRONG]).map(altered) | st.just(cut)


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(40))
@given(faults=st.lists(fault, min_size=1, max_size=12), rows=st.lists(quiet_text, min_size=3, max_size=3))
def test_keys_texts_and_vectors_are_never_told(faults, rows):
    with all_log_lines() as logged, openai_api(faults) as double:
        embedder = openai(double, api_key=KEY)
        told = [repr(embedder)]
        try:
            embedder.embed_documents(rows)
        except ModelError as error:
            told += shown(error)
        embedder.close()
    assert not [line for line in [*told, *logged] if KEY in line or any(text in line for text in rows)]


@SAME_SURROUNDINGS
@given(values=st.lists(st.one_of(st.floats(), st.integers(-(10**320), 10**320)), max_size=8))
def test_numbers_of_an_answer(values):
    try:
        numbers = [float(value) for value in values]
    except OverflowError:
        assert read_vector(values) is None
        return
    found = read_vector(values)
    assert (found.dtype, len(found)) == (np.float32, len(numbers))
    for one, number in zip(found, numbers, strict=True):
        assert_array_equal(one, np.float32(number) if abs(number) < 3e38 else one)
        assert not abs(number) > 3.5e38 or not np.isfinite(one)


async def test_a_collection_finds_its_server_again(embeddings, database_url, tmp_path):
    (tmp_path / "page.md").write_text("# Keys\n\nRotate a key every ninety days.\n\n# Fruit\n\nA banana is yellow.\n")
    name = f"{embeddings.url}/v1#m"
    async with PostgreSQLRetriever(database_url, name) as retriever:
        report = await retriever.index(tmp_path, chunk_tokens=16, overlap_tokens=0)
        assert report.chunks == report.embedded >= 2
    # Opened by the name that the collection remembers, which the list of its user allows.
    async with PostgreSQLRetriever(database_url, models=[name]) as retriever:
        hits = await retriever.search("what colour is a banana?", top_k=2)
        assert (hits.mode, hits.embedding_model) == ("hybrid", name)
        assert all(hit.vector_score is not None for hit in hits)
    with pytest.raises(ModelMismatchError):
        async with PostgreSQLRetriever(database_url, f"{embeddings.url}/v1#other"):
            pass


def test_the_requests(embeddings, embedder_at):
    embedder = embedder_at(embeddings, model="text-embedding-3-small", api_key=KEY)
    embedder.embed_documents(["a", "b"])
    (request,) = embeddings.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
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
    with gemini_api() as double:
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


def test_dimensions_closing_identity_and_bad_texts(embeddings):
    embedder = openai(embeddings, dimensions=5)
    assert (embedder.identity.dimensions, embedder.embed_documents([]).shape) == (5, (0, 5))
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


def test_keys_and_parameters(monkeypatch, embeddings, embedder_at):
    for make, variable in [
        (lambda: OpenAIEmbedder("m"), "OPENAI_API_KEY"),
        (lambda: OpenAIEmbedder("m", "https://openrouter.ai/api/v1"), "OPENROUTER_API_KEY"),
        (GeminiEmbedder, "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"needs a key: set the environment variable {variable}$"):
            make()
    for options, message in [
        ({"model": " "}, "in one line, and not blank"), ({"model": "a\nb"}, "in one line, and not blank"),
        ({"batch_size": 0}, "batch_size must be between 1 and 2,048"),
        ({"batch_size": 2049}, "batch_size must be between 1 and 2,048"),
        ({"dimensions": 0}, "dimensions must be between 1 and "),
        ({"dimensions": "8"}, "dimensions must be an int; got a str"),
        ({"timeout": 0}, "timeout must be"), ({"concurrency": 0}, "concurrency must be"),
        ({"instruction": "a", "query_prompt": "b"}, "contradict each other"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            OpenAIEmbedder(**{"model": "m", "base_url": "http://localhost/v1", **options})
    with pytest.raises(ConfigurationError, match="batch_size must be between 1 and 100; got 101"):
        GeminiEmbedder(api_key=KEY, batch_size=101)
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("OPENROUTER_API_KEY", "other")
    small = OpenAIEmbedder("text-embedding-3-small", dimensions=4)
    assert (small.identity.model, small.host) == ("openai:text-embedding-3-small", "api.openai.com")
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
