"""Rerankers behind servers of Cohere's and of TEI's form, against a server on this machine."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError, ModelError, ModelServerError, ValidationError, WorkAbandonedError
from semlex.models import cancellation, http_client
from semlex.reranking.base import Reranker
from semlex.reranking.remote import CohereReranker, TEIReranker, read_scores
from tests.support import model_servers
from tests.support.model_servers import ModelServerDouble, Reply, altered, cut, drip, echo, raw, status
from tests.support.properties import examples

KEY = "key-6f1c2d"
QUERY = "query-9a7b"
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=12)
RETRIED = [status(429, Retry_After="0"), status(500), status(502), status(503), status(504), status(408), cut]


def relevance(text: str) -> float:
    """A score that depends on the text alone, exact in float32."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2]) / 65536


@dataclass(frozen=True)
class Form:
    """A wire format."""

    make: Callable[..., Any]
    sent: str  # field of the request that holds the texts
    given: str  # field of the answer that holds a score

    def rows(self, request: model_servers.Request) -> list[dict[str, Any]]:
        texts = request.body[self.sent]
        rows = [{"index": index, self.given: relevance(text)} for index, text in enumerate(texts)]
        return sorted(rows, key=lambda row: -row[self.given])

    def answer(self, request: model_servers.Request) -> Any:
        rows = self.rows(request)
        return {"id": "1", "results": rows, "meta": {}} if self.given == "relevance_score" else rows

    def of(self, answer: Any) -> list[dict[str, Any]]:
        return answer["results"] if self.given == "relevance_score" else answer

    def changed(self, change: Callable[[list[dict[str, Any]]], None]) -> model_servers.Fault:
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


@pytest.mark.parametrize("refusal", [400, 401, 404, 413, 422])
def test_a_refusal_is_an_error_with_its_status(form, refusal):
    def answer(request):
        return Reply(b"{}", refusal)

    with served(form, answer) as (reranker, _), pytest.raises(ModelServerError, match=str(refusal)) as caught:
        reranker.score(QUERY, ["one", "two"])
    assert caught.value.status == refusal


def test_no_texts_are_no_request(form):
    with served(form) as (reranker, double):
        scores = reranker.score(QUERY, [])
    assert scores.shape == (0,)
    assert scores.dtype == np.float32
    assert double.requests == []


WRONG_ROWS = {
    "short": (lambda rows: rows.pop(), "with 2 scores"),
    "duplicate": (lambda rows: rows.append(dict(rows[0])), "with two scores for row"),
    "beyond": (lambda rows: rows[0].update(index=3), "something other than a list"),
    "negative index": (lambda rows: rows[0].update(index=-1), "something other than a list"),
    "no index": (lambda rows: rows[0].pop("index"), "something other than a list"),
    "index in words": (lambda rows: rows[0].update(index="0"), "something other than a list"),
    "a boolean index": (lambda rows: rows[0].update(index=True), "something other than a list"),
    "not a row": (lambda rows: rows.__setitem__(0, 3), "something other than a list"),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_an_answer_that_is_not_one_score_a_text_is_refused(form, case):
    change, message = WRONG_ROWS[case]
    with (
        served(form, faults=[form.changed(lambda rows: change(rows) and None)]) as (reranker, double),
        pytest.raises(ModelServerError, match=message),
    ):
        reranker.score(QUERY, ["one", "two", "three"])
    assert len(double.requests) == 1


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf"), None, "0.5", True, 10**400, 1e39])
def test_a_score_that_is_no_finite_number_is_refused(form, score):
    fault = form.changed(lambda rows: rows[0].update({form.given: score}))
    with served(form, faults=[fault]) as (reranker, _), pytest.raises(ModelServerError, match=r"finite number"):
        reranker.score(QUERY, ["one", "two", "three"])


@pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b"3", b'{"results": {}}', b'{"results": null}', b'["x"]'])
def test_an_answer_of_another_form_is_refused(form, body):
    with served(form, faults=[raw(body)]) as (reranker, _), pytest.raises(ModelServerError, match="answered 1 texts"):
        reranker.score(QUERY, ["one"])


@pytest.mark.parametrize("score", [-0.01, 1.01, 7.5])
def test_scores_outside_of_0_to_1_are_refused_and_the_parameter_named(score):
    form = FORMS["cohere"]
    fault = form.changed(lambda rows: rows[0].update(relevance_score=score))
    with served(form, faults=[fault]) as (reranker, _), pytest.raises(ModelServerError, match="raw_scores=True"):
        reranker.score(QUERY, ["one"])
    form = FORMS["tei"]
    fault = form.changed(lambda rows: rows[0].update(score=score))
    with served(form, faults=[fault]) as (reranker, _), pytest.raises(ModelServerError, match="expected 0 to"):
        reranker.score(QUERY, ["one"])


@given(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=1, max_size=5))
def test_raw_scores_become_probabilities_one_by_one(logits):
    reranker = CohereReranker("m", api_key=KEY, raw_scores=True)
    rows = [{"index": row, "relevance_score": logit} for row, logit in enumerate(logits)]
    scores = reranker._read({"results": rows}, len(rows))
    twin = [1 / (1 + np.exp(-max(-700.0, logit))) for logit in logits]
    assert scores.dtype == np.float32
    assert np.allclose(scores, twin, rtol=1e-6, atol=1e-37)  # float32 is coarse below
    assert ((scores >= 0) & (scores <= 1)).all()


def test_a_wait_that_the_server_asks_for_is_kept(form, pauses):
    with served(form, faults=[status(429, Retry_After="7")]) as (reranker, _):
        reranker.score(QUERY, ["one"])
    assert pauses == [7]


@pytest.mark.parametrize("fault", [cut, status(500), status(429, Retry_After="0")])
def test_a_fault_that_stays_is_an_error(form, fault):
    with served(form, faults=[fault] * 2, attempts=2) as (reranker, double), pytest.raises(ModelServerError):
        reranker.score(QUERY, ["one"])
    assert len(double.requests) == 2


def test_a_slow_answer_is_an_error(form):
    with (
        served(form, faults=[drip], timeout=0.1, attempts=1) as (reranker, _),  # expires
        pytest.raises(ModelServerError, match="raise timeout"),
    ):
        reranker.score(QUERY, ["one"])


def test_nobody_waits_any_more(form):
    flag = cancellation.Flag()
    flag.set()
    with served(form) as (reranker, double), cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        reranker.score(QUERY, ["one", "two"])
    assert double.requests == []


FAULTS = [echo(400), echo(401), echo(422), echo(500), echo(429), cut, raw(b"["), status(302), status(404)]


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.sampled_from(sorted(FORMS)), st.lists(st.sampled_from(FAULTS), min_size=3, max_size=3), st.booleans())
def test_what_was_sent_is_in_no_message_and_no_log(name, faults, disorder):
    form = FORMS[name]
    if disorder:
        faults = [form.changed(lambda rows: rows[0].update(index=f"{QUERY} {KEY}"))]
    secrets = (KEY, QUERY, "text-4e5f")
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    try:
        with (
            served(form, faults=faults, api_key=KEY, attempts=1) as (reranker, _),
            pytest.raises(ModelServerError) as caught,
        ):
            reranker.score(QUERY, ["text-4e5f"])
    finally:
        logging.getLogger().removeHandler(handler)
    error: BaseException | None = caught.value
    shown = [repr(reranker), reranker.identity, *records]
    while error is not None:
        shown += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    assert not [secret for secret in secrets if any(secret in line for line in shown)]


def test_several_threads(form):
    calls = [[f"text {number} {row}" for row in range(number)] for number in range(12)]
    with served(form, batch_size=3) as (reranker, _), ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda texts: reranker.score(QUERY, texts), calls))
    assert all(np.array_equal(scores, expected(texts)) for scores, texts in zip(answers, calls, strict=True))


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
