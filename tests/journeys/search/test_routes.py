"""Searches made by the kind of the question: rules, a language model, and what becomes of its faults."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import JSONKBRetriever, Route, SearchQuery, TermOverlapReranker
from semlex.answering.questions import MAX_REASON, SEARCHES, WORDS, route_by_rules
from semlex.errors import ConfigurationError, ValidationError
from semlex.evaluation import evaluate
from semlex.models import http_client
from semlex.types.queries import DEFAULT_TOP_K
from tests.support.chat_servers import answer_text, chat_server
from tests.support.model_servers import KEY, status
from tests.support.properties import SAME_SURROUNDINGS
from tests.support.retrievers import filled, ids_of, sync_filled, sync_opened

FACTUAL, ANALYTICAL, EXPLORATORY = "who turns the dome?", "why is the dome turned?", "dome"
PAGES = {
    "dome.md": "# Dome\n\n## Who\n\nThe night watch turns the dome.\n\n## Why\n\nThe dome is turned for the comet.\n",
    "watch.md": "# Watch\n\n## When\n\nThe watch begins at nine.\n\n## Dome\n\nThen the dome is opened.\n",
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("SEMLEX_CHAT_API_KEY", KEY)
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)


# Without blanks between words they cannot be counted, and there is no list of words of the languages of the last three.
KINDS = {
    "factual": (
        *("how often is a key rotated?", "who wrote chapter 3", '"ninety days"', "error 4711", "keys?"),
        *("how do I sort a list", "向量搜索", "การค้นหา", "なぜ失敗するのか"),
    ),
    "analytical": (
        *("why does the build fail", "Compare HNSW and IVFFlat.", "WHAT IS THE DIFFERENCE?", "warum ist das so"),
        *("who opens it? and when?", "Was sind die Vorteile?", "¿Por qué falla?", "quelle est la différence"),
        "an overview of why it fails",
    ),
    "exploratory": (
        *("give me an overview of the tools", "vector search", "Schlüssel", "поиск", "háblame de las llaves"),
        *("was gibt es über Schlüssel", "qu'y a-t-il sur les clés"),
    ),
}


def test_rules():
    for kind, questions in KINDS.items():
        for question in questions:
            route = route_by_rules(question)
            assert (route.kind, route.by, route.warning) == (kind, "rules", None), question
            assert str(route) == f"{kind}, by rules: {route.reason}"
    # Every word of the lists leads to its kind.
    for kind, languages in WORDS.items():
        for phrase in "; ".join(languages.values()).split("; "):
            found = route_by_rules(f"somebody said {phrase.upper()} to me yesterday")
            assert found.kind in (kind, "analytical"), phrase
            assert found.kind == kind or any(word in phrase.split() for word in found.reason.split("'")), phrase


@SAME_SURROUNDINGS
@given(st.text(max_size=60))
def test_every_text_has_a_kind_and_always_the_same(text):
    route = route_by_rules(text)
    assert route == route_by_rules(text)
    assert route.kind in SEARCHES
    assert route.reason


@pytest.fixture(scope="module")
def retriever(new_database, tmp_path_factory):
    """Two files of two sections each; tests only read them."""
    folder = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (folder / name).write_text(text, encoding="utf-8")
    with sync_opened(new_database(), 32, TermOverlapReranker(), collection="watch") as retriever:
        retriever.index(folder, chunk_tokens=16, overlap_tokens=0, min_tokens=1)
        yield retriever


def test_a_route_sets_depth_reranker_and_grouping(retriever):
    plain = retriever.search(FACTUAL, 4)
    assert plain.route is None
    routed = retriever.search(FACTUAL, 4, route="rules")
    assert routed.route == Route("factual", "rules", "no rule suggests another kind")
    assert ids_of(routed) == ids_of(plain)
    assert routed.reranker_model == plain.reranker_model is not None
    deep = retriever.search(ANALYTICAL, 4, route="rules", explain=True)
    assert deep.explanation.depth == 100
    assert deep.reranker_model is not None
    listed = retriever.search(EXPLORATORY, 4, route="rules")
    assert listed.reranker_model is None
    assert [len(document.hits) for document in listed.documents] == [1, 1]
    assert listed.to_dict()["route"]["kind"] == "exploratory"
    asked = SearchQuery(EXPLORATORY, top_k=1)
    assert [len(document.hits) for document in retriever.search(asked, route="rules").documents] == [1]


def test_what_is_given_goes_before_the_route(retriever):
    grouped = {"group_by": "document", "group_size": 2}
    given = retriever.search(EXPLORATORY, 4, route="rules", rerank=True, tuning={"candidates": 7}, **grouped)
    assert given.reranker_model is not None
    assert max(len(document.hits) for document in given.documents) == 2
    explained = retriever.search(ANALYTICAL, 2, route="rules", tuning={"candidates": 7}, explain=True).explanation
    assert explained.depth == 7
    with_least = retriever.search(EXPLORATORY, 2, route="rules", min_rerank=0.01)
    assert with_least.reranker_model is not None
    assert retriever.context(EXPLORATORY, route="rules", min_rerank=0.01).results.reranker_model is not None
    # None is the collection's own, as without it.
    usual = retriever.search(ANALYTICAL, None, route="rules")
    assert ids_of(usual) == ids_of(retriever.search(ANALYTICAL, DEFAULT_TOP_K, route="rules"))
    for wrong in ("many", 0, 10**30):
        with pytest.raises((ValidationError, ConfigurationError), match="top_k"):
            retriever.search(ANALYTICAL, wrong, route="rules")
    # Documents are not paged, so a list keeps its chunks.
    page = retriever.search(EXPLORATORY, 2, route="rules", max_results=4)
    assert (page.documents, len(page)) == ([], 2)
    assert len(retriever.search_page(page.next_cursor)) == 2


def test_contexts_answers_and_fallbacks_have_it_too(retriever, tmp_path):
    context = retriever.context(EXPLORATORY, route="rules")
    assert context.results.route.kind == "exploratory"
    names = [hit.source_document for source in context.sources for hit in source.hits]
    assert sorted(names) == ["dome.md", "watch.md"]
    whole = retriever.context(EXPLORATORY, route="rules", per_document=2)
    assert sum(len(source.hits) for source in whole.sources) > 2
    answer = retriever.answer(FACTUAL, route="rules", min_coverage=0)
    assert answer.to_dict()["route"]["kind"] == "factual"
    assert retriever.answer(FACTUAL, min_coverage=0).to_dict()["route"] is None
    with pytest.raises(ConfigurationError, match="a search already made: pass route"):
        retriever.answer(FACTUAL, context=context, route="rules")
    (tmp_path / "one.json").write_text(json.dumps([{"content": "zebras sleep", "metadata": {}}]))
    found = retriever.search("zebras", mode="keyword", route="rules", fallback=JSONKBRetriever(tmp_path))
    assert found.fallback is not None
    assert found.route is not None


def test_what_cannot_be_routed_is_refused(retriever):
    for wrong in ("auto", 1, True, ["rules"]):
        for call in (retriever.search, retriever.context, retriever.answer):
            with pytest.raises(ConfigurationError, match="route must be 'rules', 'chat' or None"):
                call(FACTUAL, route=wrong)
    with pytest.raises(ConfigurationError, match="route needs a question as text"):
        retriever.search(vector=np.ones(32), route="rules")
    with pytest.raises(ConfigurationError, match="needs a language model"):
        retriever.search(FACTUAL, route="chat")
    for question in ("", "  ", "x" * 5000, 7):
        with pytest.raises(ValidationError):
            retriever.search(question, route="rules")


def chosen(url, double):
    texts = {"dome": "The night watch turns the dome."}
    return sync_filled(url, texts, "none", collection="talk", chat_model=f"{double.url}/v1#small")


def test_the_model_decides(database_url):
    said = json.dumps({"kind": "exploratory", "reason": "a \n subject " + "x" * 500})
    forms = iter(["{}", "```json\n{}\n```"])
    with chat_server(lambda _: next(forms).format(said)) as double, chosen(database_url, double) as retriever:
        for _ in range(2):
            found = retriever.search(FACTUAL, route="chat")
            assert (found.route.kind, found.route.by, found.route.warning) == ("exploratory", "chat", None)
            assert found.route.reason.startswith("a subject xxx")
            assert len(found.route.reason) == MAX_REASON
            assert len(found.documents) == 1
            assert found.warnings == []
    for request in double.requests:
        assert request.body["messages"][1] == {"role": "user", "content": json.dumps(FACTUAL)}
    assert len(double.requests) == 2


NO_KINDS = (
    *("", "exploratory", "[]", "{}", '{"kind": "other", "reason": "x"}', '{"kind": ["factual"], "reason": "x"}'),
    *('{"kind": "factual", "reason": 5}', "{" * 5000, answer_text([])),
)


def test_an_answer_that_is_no_kind_and_a_server_that_fails_are_left_to_the_rules(database_url):
    said = iter(NO_KINDS)
    with chat_server(lambda _: next(said)) as double, chosen(database_url, double) as retriever:
        for answer in NO_KINDS:
            found = retriever.search(ANALYTICAL, route="chat")
            assert (found.route.kind, found.route.by) == ("analytical", "rules"), answer
            reason = "its answer was not one of the three kinds of question"
            assert found.warnings == [f"rules chose the route, not the language model: {reason}"], answer
            assert found.warnings == [found.route.warning]
            assert ids_of(found) == ["dome"]
    with chat_server(lambda _: "", [status(401)] * 9) as double, chosen(database_url, double) as retriever:
        context = retriever.context(FACTUAL, route="chat")
    assert context.results.route.by == "rules"
    assert any("rules chose the route" in warning for warning in context.warnings)
    assert KEY not in str(context.warnings)


async def test_routed_and_not_routed_are_compared(database_url):
    queries = {"a": "who turns the dome?", "b": "why is the dome turned?", "c": "dome"}
    texts = {"who": "The night watch turns the dome.", "why": "For the comet it is turned."}
    async with filled(database_url, texts, 32, collection="measured") as retriever:
        judged = {"a": {"who": 1}, "b": {"why": 1}, "c": {"who": 1}}
        report = await evaluate(retriever, queries, judged, fusions=["score"], route="rules")
        assert (await evaluate(retriever, queries, judged, fusions=["score"])).routes == {}
    assert report.routes == {"analytical": 1, "exploratory": 1, "factual": 1}
    assert set(report.systems) == {"vector", "keyword", "score", "routed"}
    routed = report.systems["routed"]
    assert routed.mean("ndcg@10") is not None
    assert routed.mean("recall@100") is None
    assert routed.p is not None
