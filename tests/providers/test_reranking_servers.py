"""Rerankers behind servers of Cohere's and of TEI's form, against a server on this machine."""

import hashlib
import json
import random
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError, ModelError, ModelServerError, ValidationError
from semlex.models import http_client
from semlex.reranking.base import Reranker
from semlex.reranking.remote import CohereReranker, TEIReranker, read_scores
from tests.support.leaks import all_log_lines, shown
from tests.support.model_servers import ModelServerDouble, Reply, altered, cut, echo, raw, status
from tests.support.properties import examples

KEY = "key-6f1c2d"
QUERY = "query-9a7b"
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=12)
RETRIED = [status(429, Retry_After="0"), status(500), status(502), status(503), status(504), status(408), cut]


def relevance(text):
    """A score that depends on the text alone, exact in float32."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2]) / 65536


@dataclass(frozen=True)
class Form:
    """A wire format."""

    make: Callable[..., Any]
    sent: str  # field of the request that holds the texts
    given: str  # field of the answer that holds a score

    def rows(self, request):
        texts = request.body[self.sent]
        rows = [{"index": index, self.given: relevance(text)} for index, text in enumerate(texts)]
        return sorted(rows, key=lambda row: -row[self.given])

    def answer(self, request):
        rows = self.rows(request)
        return {"id": "1", "results": rows, "meta": {}} if self.given == "relevance_score" else rows

    def of(self, answer):
        return answer["results"] if self.given == "relevance_score" else answer

    def changed(self, change):
        """A fault: the right rows after a change in place."""
        return altered(lambda answer: change(self.of(answer)))


FORMS = {
    "cohere": Form(
        lambda url, **options: CohereReranker("rerank-v3.5", url, **options), "documents", "relevance_score"
    ),
    "tei": Form(TEIReranker, "texts", "score"),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture(autouse=True, scope="module")
def short_waits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)
        patch.delenv("SEMLEX_RERANKER_API_KEY", raising=False)
        yield


@contextmanager
def served(form, answer=None, faults=(), path="", **options):
    """A reranker and its server, both closed at the end."""
    with ModelServerDouble(answer or form.answer, faults) as double:
        reranker = form.make(double.url + path, **options)
        try:
            yield reranker, double
        finally:
            reranker.close()


def expected(texts):
    return np.array([relevance(text) for text in texts], dtype=np.float32)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(
    st.sampled_from(sorted(FORMS)),
    TEXTS,
    st.integers(1, 5),
    st.lists(st.sampled_from(RETRIED), max_size=3),
    st.integers(0, 99),
)
def test_a_score_is_the_texts_own_whatever_order_batches_and_faults(name, texts, batch_size, faults, seed):
    form = FORMS[name]
    shuffle = random.Random(seed).shuffle

    def in_any_order(request):
        content = form.answer(request)
        shuffle(form.of(content))
        return content

    with served(form, in_any_order, faults, batch_size=batch_size) as (reranker, _):
        scores = reranker.score(QUERY, texts)
    assert scores.dtype == np.float32
    assert np.array_equal(scores, expected(texts))


def test_the_wire_format_of_cohere():
    with served(FORMS["cohere"], path="/v2", api_key=KEY) as (reranker, double):
        reranker.score(QUERY, ["one", "two"])
    (request,) = double.requests
    assert request.path == "/v2/rerank"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "rerank-v3.5", "query": QUERY, "documents": ["one", "two"], "top_n": 2}


def test_the_wire_format_of_tei():
    with served(FORMS["tei"], api_key=KEY) as (reranker, double):
        reranker.score(QUERY, ["one", "two"])
    (request,) = double.requests
    assert request.path == "/rerank"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"query": QUERY, "texts": ["one", "two"], "raw_scores": False, "truncate": True}


@pytest.mark.parametrize(("given", "sent"), [(None, "Bearer from-environment"), (KEY, f"Bearer {KEY}")])
def test_a_key_that_is_given_comes_before_the_environments(form, monkeypatch, given, sent):
    monkeypatch.setenv("SEMLEX_RERANKER_API_KEY", " from-environment\n")
    with served(form, api_key=given) as (reranker, double):
        reranker.score(QUERY, ["one"])
    assert double.requests[0].headers["authorization"] == sent


def test_a_missing_key_is_named(form, monkeypatch):
    with (
        served(form, faults=[status(401)]) as (reranker, _),
        pytest.raises(ModelServerError, match="set the environment variable SEMLEX_RERANKER_API_KEY"),
    ):
        reranker.score(QUERY, ["one"])
    monkeypatch.delenv("COHERE_API_KEY", raising=False)
    monkeypatch.delenv("CO_API_KEY", raising=False)
    for address in ("https://api.cohere.com/v2", "https://api.cohere.com/v2/"):
        with pytest.raises(ConfigurationError, match="COHERE_API_KEY or CO_API_KEY"):
            CohereReranker("rerank-v3.5", address)


@pytest.mark.parametrize(("name", "most"), [("cohere", 1000), ("tei", 32)])
def test_more_texts_than_the_servers_bound_are_several_requests(name, most):
    texts = [f"text {number}" for number in range(most + 1)]
    with served(FORMS[name]) as (reranker, double):
        scores = reranker.score(QUERY, texts)
    assert sorted(request.size for request in double.requests) == [1, most]
    assert np.array_equal(scores, expected(texts))


@pytest.mark.parametrize("refusal", [413, 422])
def test_a_batch_that_is_too_large_for_the_server_is_halved(form, refusal):
    def answer(request):
        return Reply(b"{}", refusal) if request.size > 3 else form.answer(request)

    texts = [f"text {number}" for number in range(20)]
    with served(form, answer, batch_size=16) as (reranker, double):
        scores = reranker.score(QUERY, texts)
    assert np.array_equal(scores, expected(texts))
    assert sorted({request.size for request in double.requests}) == [2, 4, 8, 16]


def test_a_refusal_is_an_error_with_its_status(form):
    with served(form) as (reranker, double):
        for refusal in (400, 401, 404, 413, 422):
            double.answer = lambda _, refusal=refusal: Reply(b"{}", refusal)
            with pytest.raises(ModelServerError, match=str(refusal)) as caught:
                reranker.score(QUERY, ["one", "two"])
            assert caught.value.status == refusal


def test_no_texts_are_no_request(form):
    with served(form) as (reranker, double):
        scores = reranker.score(QUERY, [])
    assert scores.shape == (0,)
    assert scores.dtype == np.float32
    assert double.requests == []


WRONG_ROWS = (
    (lambda rows: rows.pop(), "with 2 scores"),
    (lambda rows: rows.append(dict(rows[0])), "with two scores for row"),
    (lambda rows: rows[0].update(index=3), "something other than a list"),
    (lambda rows: rows[0].update(index=-1), "something other than a list"),
    (lambda rows: rows[0].pop("index"), "something other than a list"),
    (lambda rows: rows[0].update(index="0"), "something other than a list"),
    (lambda rows: rows[0].update(index=True), "something other than a list"),
    (lambda rows: rows.__setitem__(0, 3), "something other than a list"),
)


NO_NUMBERS = (float("nan"), float("inf"), -float("inf"), None, "0.5", True, 10**400, 1e39)
OTHER_FORMS = (b"[]", b"{}", b"null", b"3", b'{"results": {}}', b'{"results": null}', b'["x"]')


def test_an_answer_that_is_not_one_finite_score_a_text_is_refused(form):
    def scored(score):
        return form.changed(lambda rows: rows[0].update({form.given: score}))

    outside = "raw_scores=True" if form is FORMS["cohere"] else "expected 0 to"
    wrong = [(form.changed(lambda rows, change=change: change(rows) and None), told) for change, told in WRONG_ROWS]
    wrong += [(scored(score), "finite number") for score in NO_NUMBERS]
    wrong += [(scored(score), outside) for score in (-0.01, 1.01, 7.5)]
    wrong += [(raw(body), "answered 3 texts") for body in OTHER_FORMS]
    with served(form) as (reranker, double):
        for number, (fault, message) in enumerate(wrong, start=1):
            double.then(fault)
            with pytest.raises(ModelServerError, match=message):
                reranker.score(QUERY, ["one", "two", "three"])
            assert len(double.requests) == number


@given(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=1, max_size=5))
def test_raw_scores_become_probabilities_one_by_one(logits):
    reranker = CohereReranker("m", api_key=KEY, raw_scores=True)
    rows = [{"index": row, "relevance_score": logit} for row, logit in enumerate(logits)]
    scores = reranker._read({"results": rows}, len(rows))
    twin = [1 / (1 + np.exp(-max(-700.0, logit))) for logit in logits]
    assert scores.dtype == np.float32
    assert np.allclose(scores, twin, rtol=1e-6, atol=1e-37)  # float32 is coarse below
    assert ((scores >= 0) & (scores <= 1)).all()


FAULTS = [echo(400), echo(401), echo(422), echo(500), echo(429), cut, raw(b"["), status(302), status(404)]


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.sampled_from(sorted(FORMS)), st.lists(st.sampled_from(FAULTS), min_size=3, max_size=3), st.booleans())
def test_what_was_sent_is_in_no_message_and_no_log(name, faults, disorder):
    form = FORMS[name]
    if disorder:
        faults = [form.changed(lambda rows: rows[0].update(index=f"{QUERY} {KEY}"))]
    secrets = (KEY, QUERY, "text-4e5f")
    with (
        all_log_lines() as told,
        served(form, faults=faults, api_key=KEY, attempts=1) as (reranker, _),
        pytest.raises(ModelServerError) as caught,
    ):
        reranker.score(QUERY, ["text-4e5f"])
    told += [repr(reranker), reranker.identity, *shown(caught.value)]
    assert not [secret for secret in secrets if any(secret in line for line in told)]


def test_identity_and_close(form):
    with served(form, api_key=KEY) as (reranker, double):
        assert isinstance(reranker, Reranker)
        assert reranker.host == double.url.removeprefix("http://")
        assert reranker.identity == f"{'tei' if form.make is TEIReranker else 'rerank-v3.5'}@{reranker.host}"
        reranker.score(QUERY, ["one"])
        reranker.close()
        reranker.close()
        with pytest.raises(ModelError, match="was closed"):
            reranker.score(QUERY, ["one"])


def test_texts_that_cannot_be_sent(form):
    with served(form) as (reranker, double):
        with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
            reranker.score(QUERY, ["fine", "\udfff"])
        with pytest.raises(ValidationError, match="must be a"):
            reranker.score(None, ["fine"])
        with pytest.raises(ValidationError, match="must be a"):
            reranker.score(QUERY, "one text")
    assert double.requests == []


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 1001}, {"timeout": 0}, {"attempts": 0}])
def test_out_of_range_parameters(form, options):
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))} must be"):
        form.make("http://127.0.0.1:9", **options)


@pytest.mark.parametrize("model", ["", " ", "two\nlines", "\x1b[31m"])
def test_a_models_name_is_one_line(model):
    with pytest.raises(ConfigurationError, match="in one line, and not blank"):
        CohereReranker(model)


@given(st.permutations(range(5)), st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5))
def test_scores_are_read_by_their_index(order, values):
    rows = json.loads(json.dumps([{"i": place, "s": values[place]} for place in order]))
    scores = read_scores(rows, count=5, position="i", score="s", source="a server", most=1.0, remedy="none")
    assert scores.tolist() == values
