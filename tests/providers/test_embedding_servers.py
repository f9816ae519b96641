from __future__ import annotations

import base64
import logging
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from semlex import PostgreSQLRetriever, _core
from semlex.embedding.base import DEFAULT_INSTRUCTION, Embedder
from semlex.embedding.gemini import GeminiEmbedder
from semlex.embedding.openai import OpenAIEmbedder
from semlex.embedding.remote import read_vector
from semlex.errors import (
    ConfigurationError,
    ModelError,
    ModelMismatchError,
    ModelServerError,
    ValidationError,
    WorkAbandonedError,
)
from semlex.models import cancellation, token_counters
from semlex.models import http_client as http
from semlex.models.token_counters import WordCounter
from tests.support import tokenizers_on_disk
from tests.support.model_servers import (
    ModelServerDouble,
    Reply,
    altered,
    cut,
    echo,
    gemini_embeddings,
    openai_embeddings,
    status,
    vector,
)

KEY = "sk-Secret-0123456789"
DIMENSIONS = 8

texts_of_one_line = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
texts = st.lists(texts_of_one_line, max_size=20)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch):
    """No key of this machine takes part, and nothing waits between attempts."""
    for name in (
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "SEMLEX_EMBEDDING_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "_pause", lambda _: None)


@pytest.fixture
def double():
    with ModelServerDouble(openai_embeddings(DIMENSIONS)) as running:
        yield running


def openai(double, **options):
    return OpenAIEmbedder(options.pop("model", "m"), f"{double.url}/v1", **options)


def gemini(double, **options):
    return GeminiEmbedder(options.pop("model", "gemini-embedding-001"), base_url=double.url, api_key=KEY, **options)


def expected(text, prompt="", dimensions=DIMENSIONS):
    """What one text's vector is: that of the prompted text, cut, of norm 1."""
    values = vector(prompt + text or " ", DIMENSIONS)[:dimensions].astype(np.float64)
    return values / np.linalg.norm(values)


def all_expected(rows, prompt="", dimensions=DIMENSIONS):
    return np.array([expected(text, prompt, dimensions) for text in rows]).reshape(len(rows), dimensions)


def shuffled(content):
    content["data"].reverse()


# --- right answers, in spite of everything ----------------------------------------------------------------------------

passing = st.one_of(
    st.sampled_from([408, 429, 500, 502, 503, 504]).map(status), st.sampled_from([cut, altered(shuffled)])
)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    rows=texts,
    faults=st.lists(passing, max_size=4),
    batch_size=st.integers(1, 7),
    concurrency=st.integers(1, 4),
    dimensions=st.none() | st.integers(1, DIMENSIONS),
    floats_only=st.booleans(),
    prompt=st.sampled_from(["", "passage: "]),
)
def test_a_batch_is_the_map_of_its_texts(  # noqa: PLR0917 (drawn by name)
    rows, faults, batch_size, concurrency, dimensions, floats_only, prompt
):
    with ModelServerDouble(openai_embeddings(DIMENSIONS, floats_only=floats_only), faults) as double:
        embedder = openai(
            double, batch_size=batch_size, concurrency=concurrency, dimensions=dimensions, document_prompt=prompt
        )
        vectors = embedder.embed_documents(rows)
        embedder.close()
        assert vectors.dtype == np.float32
        assert_allclose(vectors, all_expected(rows, prompt, dimensions or DIMENSIONS), atol=1e-6)
        assert all(1 <= request.size <= batch_size for request in double.requests)


@settings(max_examples=20)
@given(
    rows=texts,
    faults=st.lists(st.sampled_from([status(503), cut]), max_size=4),
    batch_size=st.integers(1, 7),
    dimensions=st.none() | st.integers(1, DIMENSIONS),
)
def test_gemini_too(rows, faults, batch_size, dimensions):
    with ModelServerDouble(gemini_embeddings(DIMENSIONS), faults) as double:
        embedder = gemini(double, batch_size=batch_size, dimensions=dimensions)
        vectors = embedder.embed_documents(rows)
        embedder.close()
        assert_allclose(vectors, all_expected(rows, "", dimensions or DIMENSIONS), atol=1e-6)
        assert {request.path for request in double.requests} <= {
            "/v1beta/models/gemini-embedding-001:batchEmbedContents"
        }


@pytest.mark.slow
@settings(max_examples=20)
@given(
    rows=st.lists(texts_of_one_line, min_size=1, max_size=20),
    most=st.integers(1, 8),
    code=st.sampled_from([400, 413, 422]),
)
def test_a_batch_that_is_too_large_is_halved(rows, most, code):
    right = openai_embeddings(DIMENSIONS)

    def answer(request):
        return Reply(b"{}", code) if request.size > most else right(request)

    with ModelServerDouble(answer) as double:
        embedder = openai(double, batch_size=16)
        assert_allclose(embedder.embed_documents(rows), all_expected(rows), atol=1e-6)
        embedder.close()


@settings(max_examples=20)
@given(count=st.integers(1, 40), data=st.data())
def test_a_text_that_is_refused_is_named_by_its_row(count, data):
    row = data.draw(st.integers(0, count - 1))
    right = openai_embeddings(DIMENSIONS)

    def answer(request):
        return Reply(b"{}", 400) if "too long" in request.body["input"] else right(request)

    with ModelServerDouble(answer) as double:
        embedder = openai(double, batch_size=8)
        rows = ["text"] * count
        rows[row] = "too long"
        with pytest.raises(ModelServerError, match=rf"answered 400.*refuses the text of row {row}$") as caught:
            embedder.embed_documents(rows)
        assert caught.value.status == 400
        embedder.close()


def test_a_query(double):
    embedder = openai(double)
    found = embedder.embed_query("red stone")
    assert found.shape == (DIMENSIONS,)
    assert_allclose(found, expected("red stone"), atol=1e-6)
    assert isinstance(embedder, Embedder)
    embedder.close()


def test_several_threads(double):
    embedder = openai(double, batch_size=3)
    rows = [f"text {number}" for number in range(20)]
    found = [None] * 6

    def embed(number):
        found[number] = embedder.embed_documents(rows)

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    embedder.close()
    for vectors in found:
        assert_allclose(vectors, all_expected(rows), atol=1e-6)


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
    with pytest.raises(ConfigurationError, match="send_dimensions needs dimensions"):
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


@pytest.mark.parametrize(
    ("options", "query", "document", "task"),
    [
        ({}, "x", "x", None),
        ({"query_prompt": "query: ", "document_prompt": "passage: "}, "query: x", "passage: x", "query: "),
        ({"instruction": "Find it"}, "Instruct: Find it\nQuery:x", "x", "Find it"),
        ({"model": "qwen3-embedding", "query_prompt": ""}, "x", "x", None),
    ],
)
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


# --- wrong answers ----------------------------------------------------------------------------------------------------


def entry(row, **changes):
    def change(content):
        content["data"][row].update(changes)

    return change


def drop(row):
    def change(content):
        del content["data"][row]

    return change


def encoded(*values):
    return base64.b64encode(np.array(values, dtype="<f4").tobytes()).decode()


WRONG = [
    (drop(2), "lacks rows 2 of the request"),
    (drop(0), "lacks rows 0 of the request"),
    (lambda content: content.update(data=[]), "lacks rows 0, 1, 2"),
    (entry(1, index=0), "a row twice"),
    (entry(1, index=7), "not asked for"),
    (entry(1, index=-1), "not asked for"),
    (entry(1, index="1"), "not asked for"),
    (entry(1, index=None), "not asked for"),
    (entry(1, index=1.0), "not asked for"),
    (entry(1, embedding=None), "row 1 of the request is neither"),
    (entry(1, embedding="%%%%"), "row 1 of the request is neither"),
    (entry(1, embedding="QUJDREU="), "row 1 of the request is neither"),
    (entry(1, embedding=["1.0"] * DIMENSIONS), "row 1 of the request is neither"),
    (entry(1, embedding=[[1.0] * DIMENSIONS]), "row 1 of the request is neither"),
    (entry(1, embedding=[True] * DIMENSIONS), "row 1 of the request is neither"),
    (entry(1, embedding=[None] * DIMENSIONS), "row 1 of the request is neither"),
    (entry(1, embedding=[10**400] * DIMENSIONS), "row 1 of the request is neither"),
    (lambda content: content.update(data={}), "no list of embeddings"),
    (lambda content: content.update(data=[1, 2, 3]), "no list of embeddings"),
    (lambda content: content["data"], "no list of embeddings"),
    (lambda _: 17, "no list of embeddings"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_an_answer_that_cannot_be_used(double, change, message):
    double.then(altered(change))
    embedder = openai(double)
    with pytest.raises(ModelServerError, match=message) as caught:
        embedder.embed_documents(["first", "second", "third"])
    embedder.close()
    assert caught.value.status == 200
    assert f"the answer of {embedder.host} for m cannot be used" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([float("nan")] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([1e300] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([0] * DIMENSIONS, ModelError, "row 1 is all zero"),
        ([1.0] * (DIMENSIONS - 1), ModelMismatchError, "dimension 7, and 8 before"),
        ([], ModelMismatchError, "dimension 0, and 8 before"),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_vectors_that_cannot_be_compared(double, values, error, message, as_text):
    if as_text and 1e300 in values:
        values = [float("inf")] * DIMENSIONS
    double.then(altered(entry(1, embedding=encoded(*values) if as_text else values)))
    embedder = openai(double)
    with pytest.raises(error, match=message):
        embedder.embed_documents(["first", "second", "third"])
    embedder.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["embeddings"].pop() and None,
        lambda content: content["embeddings"].append(content["embeddings"][0]),
        lambda content: content["embeddings"][0].clear(),
        lambda _: {"embeddings": None},
        lambda _: [],
    ],
)
def test_an_answer_of_gemini_that_cannot_be_used(change):
    with ModelServerDouble(gemini_embeddings(DIMENSIONS), [altered(change)]) as double:
        embedder = gemini(double)
        with pytest.raises(ModelServerError, match=r"it holds \d vectors for 2 texts"):
            embedder.embed_documents(["first", "second"])
        embedder.close()


def test_another_dimension_later_is_a_mismatch():
    width = [DIMENSIONS]

    def answer(request):
        return openai_embeddings(width[0])(request)

    with ModelServerDouble(answer) as double:
        for dimensions in (None, 4):
            width[0] = DIMENSIONS
            embedder = openai(double, dimensions=dimensions)
            embedder.embed_query("a")
            width[0] = 6
            with pytest.raises(ModelMismatchError, match="another model"):
                embedder.embed_query("a")
            embedder.close()


def test_fewer_dimensions_than_configured(double):
    embedder = openai(double, dimensions=9)
    with pytest.raises(ModelMismatchError, match="makes vectors of 8 dimensions; 9 were configured"):
        embedder.embed_query("a")
    embedder.close()


quiet_text = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=8)
fault = st.one_of(
    st.sampled_from([400, 401, 403, 404, 413, 422, 429, 500]).map(echo),
    st.sampled_from([change for change, _ in WRONG]).map(altered),
    st.just(cut),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(faults=st.lists(fault, min_size=1, max_size=12), rows=st.lists(quiet_text, min_size=3, max_size=3))
def test_keys_texts_and_vectors_are_never_told(faults, rows):
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    try:
        with ModelServerDouble(openai_embeddings(DIMENSIONS), faults) as double:
            embedder = openai(double, api_key=KEY)
            told.append(repr(embedder))
            try:
                embedder.embed_documents(rows)
            except ModelError as error:
                while error is not None:
                    told += [str(error), repr(error)]
                    error = error.__cause__ or error.__context__
            embedder.close()
    finally:
        logging.getLogger().removeHandler(handler)
    assert not [line for line in told if KEY in line or any(text in line for text in rows)]


@given(values=st.lists(st.one_of(st.floats(), st.integers(-(10**320), 10**320)), max_size=8))
def test_numbers_of_an_answer(values):
    try:
        numbers = [float(value) for value in values]
    except OverflowError:
        assert read_vector(values) is None
        return
    found = read_vector(values)
    assert found.dtype == np.float32
    assert len(found) == len(numbers)
    for one, number in zip(found, numbers, strict=True):
        assert_array_equal(one, np.float32(number) if abs(number) < 3e38 else one)
        assert not abs(number) > 3.5e38 or not np.isfinite(one)


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
    assert openai(double, dimensions=4, batch_size=3, concurrency=1, timeout=5).identity.key == plain.key
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


@pytest.mark.parametrize(
    ("make", "variable"),
    [
        (lambda: OpenAIEmbedder("m"), "OPENAI_API_KEY"),
        (lambda: OpenAIEmbedder("m", "https://openrouter.ai/api/v1"), "OPENROUTER_API_KEY"),
        (GeminiEmbedder, "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_its_variable(make, variable):
    with pytest.raises(ConfigurationError, match=f"needs a key: set the environment variable {variable}$"):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "in one line, and not blank"),
        ({"model": "a\nb"}, "in one line, and not blank"),
        ({"batch_size": 0}, "batch_size must be from 1 to 2048"),
        ({"batch_size": 2049}, "batch_size must be from 1 to 2048"),
        ({"dimensions": 0}, "dimensions must be from 1"),
        ({"dimensions": "8"}, "dimensions must be a whole number"),
        ({"timeout": 0}, "timeout must be"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"instruction": "a", "query_prompt": "b"}, "contradict each other"),
    ],
)
def test_parameters_out_of_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        OpenAIEmbedder(**{"model": "m", "base_url": "http://localhost/v1", **options})


def test_gemini_takes_no_more_than_a_hundred_texts():
    with pytest.raises(ConfigurationError, match="batch_size must be from 1 to 100 for Gemini; found 101"):
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


def test_nothing_is_sent_when_nobody_waits(double):
    embedder = openai(double, dimensions=4, batch_size=1)
    flag = threading.Event()
    flag.set()
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        embedder.embed_documents(["a"] * 9)
    assert double.requests == []


# --- tokens -----------------------------------------------------------------------------------------------------------


@given(rows=texts)
def test_words_are_counted_where_there_is_no_tokenizer(rows):
    embedder = OpenAIEmbedder("m", "http://localhost/v1")
    words = WordCounter()
    assert embedder.counter_name == words.counter_name
    assert_array_equal(embedder.count_tokens(rows), words.count_tokens(rows))
    for text in rows:
        assert_array_equal(embedder.token_offsets(text), _core.word_offsets(text))


@pytest.mark.torch
def test_a_tokenizer_that_is_given(tmp_path):
    from tests.support import tiny_qwen3  # torch comes with it

    tokenizer = tiny_qwen3.write_tokenizer(tmp_path / "tokenizer")
    embedder = OpenAIEmbedder("m", "http://localhost/v1", tokenizer=str(tmp_path / "tokenizer"))
    assert embedder.counter_name.startswith("tokenizer/")
    rows = ["The quick brown fox", "", "数据库"]
    assert embedder.count_tokens(rows).tolist() == [
        len(tokenizer.encode(text, add_special_tokens=False).ids) for text in rows
    ]
    assert embedder.token_offsets(rows[0])[-1].tolist() == [15, 19]  # with its blank


@pytest.mark.torch
def test_the_tokenizer_of_the_model_in_the_local_cache(tmp_path, monkeypatch):
    from tests.support import tiny_qwen3  # torch comes with it

    tiny_qwen3.write_tokenizer(tmp_path)
    asked = []

    def find_cached(name):
        asked.append(name)
        return token_counters.find_model(str(tmp_path))

    monkeypatch.setattr(token_counters, "find_cached", find_cached)
    assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")
    assert OpenAIEmbedder("model:8b", "http://localhost/v1").counter_name == "unicode-words/1"
    assert asked == ["org/model"]
    # Without the package tokenizers the Rust core still reads a file of Qwen's kind; of another kind words are counted.
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tokenizers", None)
        assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")
        file = tmp_path / "tokenizer.json"
        file.write_bytes(tokenizers_on_disk.edited({"normalizer": {"type": "Lowercase"}}, file.read_bytes()))
        assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name == "unicode-words/1"
    assert OpenAIEmbedder("org/model", "http://localhost/v1").counter_name.startswith("tokenizer/")


# --- from index to search ---------------------------------------------------------------------------------------------


async def test_a_collection_finds_its_server_again(double, database_url, tmp_path):
    (tmp_path / "page.md").write_text("# Keys\n\nRotate a key every ninety days.\n\n# Fruit\n\nA banana is yellow.\n")
    name = f"{double.url}/v1#m"
    async with PostgreSQLRetriever(database_url, name) as retriever:
        report = await retriever.index(tmp_path, chunk_tokens=16, overlap_tokens=0)
        assert report.chunks == report.embedded >= 2
    # Opened by the name that the collection remembers, which the list of its user allows.
    async with PostgreSQLRetriever(database_url, models=[name]) as retriever:
        hits = await retriever.search("what colour is a banana?", top_k=2)
        assert hits.mode == "hybrid"
        assert hits.embedding_model == name
        assert all(hit.vector_score is not None for hit in hits)
    with pytest.raises(ModelMismatchError):
        async with PostgreSQLRetriever(database_url, f"{double.url}/v1#other"):
            pass
