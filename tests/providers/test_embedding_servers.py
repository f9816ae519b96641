"""Embedders behind servers: right answers in spite of faults, and answers that cannot be used."""

import base64
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from semlex import PostgreSQLRetriever
from semlex.embedding.base import Embedder
from semlex.embedding.remote import read_vector
from semlex.errors import ModelError, ModelMismatchError, ModelServerError
from tests.support.embedding_servers import DIMENSIONS, LINES, TEXTS, all_expected, expected, gemini, openai
from tests.support.leaks import all_log_lines, shown
from tests.support.model_servers import (
    KEY,
    RETRIED,
    ModelServerDouble,
    Reply,
    altered,
    cut,
    echo,
    gemini_embeddings,
    openai_embeddings,
    status,
)
from tests.support.properties import SAME_SURROUNDINGS, examples

pytestmark = pytest.mark.usefixtures("no_keys", "pauses")


@pytest.fixture
def double():
    with ModelServerDouble(openai_embeddings(DIMENSIONS)) as running:
        yield running


def shuffled(content):
    content["data"].reverse()


# --- right answers, in spite of everything ----------------------------------------------------------------------------

passing = st.one_of(st.sampled_from(RETRIED).map(status), st.sampled_from([cut, altered(shuffled)]))


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(40))
@given(
    rows=TEXTS,
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


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(
    rows=TEXTS,
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
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(rows=st.lists(LINES, min_size=1, max_size=20), most=st.integers(1, 8), code=st.sampled_from([400, 413, 422]))
def test_a_batch_that_is_too_large_is_halved(rows, most, code):
    right = openai_embeddings(DIMENSIONS)

    def answer(request):
        return Reply(b"{}", code) if request.size > most else right(request)

    with ModelServerDouble(answer) as double:
        embedder = openai(double, batch_size=16)
        assert_allclose(embedder.embed_documents(rows), all_expected(rows), atol=1e-6)
        embedder.close()


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
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
    (drop(2), "lacks the vectors of rows 2 of the request"),
    (drop(0), "lacks the vectors of rows 0 of the request"),
    (lambda content: content.update(data=[]), "lacks the vectors of rows 0, 1, 2"),
    (entry(1, index=0), "two vectors for the same text"),
    (entry(1, index=7), "a vector for none of them"),
    (entry(1, index=-1), "a vector for none of them"),
    (entry(1, index="1"), "a vector for none of them"),
    (entry(1, index=None), "a vector for none of them"),
    (entry(1, index=1.0), "a vector for none of them"),
    (entry(1, embedding=None), "row 1 of the request is not numbers"),
    (entry(1, embedding="%%%%"), "row 1 of the request is not numbers"),
    (entry(1, embedding="QUJDREU="), "row 1 of the request is not numbers"),
    (entry(1, embedding=["1.0"] * DIMENSIONS), "row 1 of the request is not numbers"),
    (entry(1, embedding=[[1.0] * DIMENSIONS]), "row 1 of the request is not numbers"),
    (entry(1, embedding=[True] * DIMENSIONS), "row 1 of the request is not numbers"),
    (entry(1, embedding=[None] * DIMENSIONS), "row 1 of the request is not numbers"),
    (entry(1, embedding=[10**400] * DIMENSIONS), "row 1 of the request is not numbers"),
    (lambda content: content.update(data={}), "no list of embeddings"),
    (lambda content: content.update(data=[1, 2, 3]), "no list of embeddings"),
    (lambda content: content["data"], "no list of embeddings"),
    (lambda _: 17, "no list of embeddings"),
]


def test_an_answer_that_cannot_be_used(double):
    for change, message in WRONG:
        double.then(altered(change))
        embedder = openai(double)
        with pytest.raises(ModelServerError, match=message) as caught:
            embedder.embed_documents(["first", "second", "third"])
        embedder.close()
        assert caught.value.status == 200
        assert f"the answer of {embedder.host} for m cannot be used" in str(caught.value)


def test_vectors_that_cannot_be_compared(double):
    for values, error, message in (
        ([float("nan")] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([1e300] * DIMENSIONS, ModelError, "row 1 is not finite"),
        ([0] * DIMENSIONS, ModelError, "row 1 is all zero"),
        ([1.0] * (DIMENSIONS - 1), ModelMismatchError, "dimension 7, and 8 before"),
        ([], ModelMismatchError, "dimension 0, and 8 before"),
    ):
        for sent in (values, encoded(*(float("inf") if value == 1e300 else value for value in values))):
            double.then(altered(entry(1, embedding=sent)))
            embedder = openai(double)
            with pytest.raises(error, match=message):
                embedder.embed_documents(["first", "second", "third"])
            embedder.close()


def test_an_answer_of_gemini_that_cannot_be_used():
    with ModelServerDouble(gemini_embeddings(DIMENSIONS)) as double:
        embedder = gemini(double)
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
@settings(SAME_SURROUNDINGS, max_examples=examples(40))
@given(faults=st.lists(fault, min_size=1, max_size=12), rows=st.lists(quiet_text, min_size=3, max_size=3))
def test_keys_texts_and_vectors_are_never_told(faults, rows):
    with all_log_lines() as logged, ModelServerDouble(openai_embeddings(DIMENSIONS), faults) as double:
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
    assert found.dtype == np.float32
    assert len(found) == len(numbers)
    for one, number in zip(found, numbers, strict=True):
        assert_array_equal(one, np.float32(number) if abs(number) < 3e38 else one)
        assert not abs(number) > 3.5e38 or not np.isfinite(one)


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
