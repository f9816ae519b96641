"""A question before its search: its route, chosen by rules or a language model, and terms added to it."""

import json
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import JSONKBRetriever, Route, SearchQuery, TermOverlapReranker
from semlex.answering import questions
from semlex.chat import Completion
from semlex.errors import ConfigurationError, ModelError, ValidationError
from semlex.evaluation import evaluate
from semlex.models import http_client
from semlex.search.request import Request
from semlex.store.schema.names import Names
from semlex.testing import HashEmbedder
from semlex.types.queries import DEFAULT_TOP_K, MAX_TERMS_BYTES, words_of_terms
from tests.support.chat_servers import answer_text, chat_server
from tests.support.folders import folder_with
from tests.support.manual_clock import ManualClock
from tests.support.model_servers import KEY, status
from tests.support.properties import SAME_SURROUNDINGS
from tests.support.retrievers import filled, ids_of, plain, sync_filled, sync_opened

FACTUAL, ANALYTICAL, EXPLORATORY = "who turns the dome?", "why is the dome turned?", "dome"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("SEMLEX_CHAT_API_KEY", KEY)
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)


# The last three factual ones have no blanks between words, and no list of words exists for their languages.
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
    for kind, asked in KINDS.items():
        for question in asked:
            route = questions.route_by_rules(question)
            assert (route.kind, route.by, route.warning) == (kind, "rules", None), question
            assert str(route) == f"{kind}, by rules: {route.reason}"
    # Every word of the lists leads to its kind.
    for kind, languages in questions.WORDS.items():
        for phrase in "; ".join(languages.values()).split("; "):
            found = questions.route_by_rules(f"somebody said {phrase.upper()} to me yesterday")
            assert found.kind in (kind, "analytical"), phrase
            assert found.kind == kind or any(word in phrase.split() for word in found.reason.split("'")), phrase


@SAME_SURROUNDINGS
@given(st.text(max_size=60))
def test_every_text_has_a_kind_and_always_the_same(text):
    route = questions.route_by_rules(text)
    assert route == questions.route_by_rules(text)
    assert route.kind in questions.SEARCHES
    assert route.reason


@pytest.fixture(scope="module")
def retriever(module_url, tmp_path_factory):
    """Two files of two sections each; tests only read them."""
    dome = "# Dome\n\n## Who\n\nThe night watch turns the dome.\n\n## Why\n\nThe dome is turned for the comet.\n"
    watch = "# Watch\n\n## When\n\nThe watch begins at nine.\n\n## Dome\n\nThen the dome is opened.\n"
    folder = folder_with(tmp_path_factory.mktemp("pages"), {"dome.md": dome, "watch.md": watch})
    with sync_opened(module_url, 32, TermOverlapReranker(), collection="watch") as retriever:
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


def test_arguments_take_precedence_over_the_route(retriever):
    grouped = {"group_by": "document", "group_size": 2}
    given = retriever.search(EXPLORATORY, 4, route="rules", rerank=True, tuning={"candidates": 7}, **grouped)
    assert given.reranker_model is not None
    assert max(len(document.hits) for document in given.documents) == 2
    explained = retriever.search(ANALYTICAL, 2, route="rules", tuning={"candidates": 7}, explain=True).explanation
    assert explained.depth == 7
    with_least = retriever.search(EXPLORATORY, 2, route="rules", min_rerank=0.01)
    assert with_least.reranker_model is not None
    assert retriever.context(EXPLORATORY, route="rules", min_rerank=0.01).results.reranker_model is not None
    # top_k=None is the default, as without a route.
    usual = retriever.search(ANALYTICAL, None, route="rules")
    assert ids_of(usual) == ids_of(retriever.search(ANALYTICAL, DEFAULT_TOP_K, route="rules"))
    for wrong in ("many", 0, 10**30):
        with pytest.raises((ValidationError, ConfigurationError), match="top_k"):
            retriever.search(ANALYTICAL, wrong, route="rules")
    # Groups cannot be paged: the pages of an exploratory question have chunks.
    page = retriever.search(EXPLORATORY, 2, route="rules", max_results=4)
    assert (page.documents, len(page)) == ([], 2)
    assert len(retriever.search_page(page.next_cursor)) == 2


def test_contexts_answers_and_fallbacks_have_a_route(retriever, tmp_path):
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
            assert len(found.route.reason) == questions.MAX_REASON
            assert len(found.documents) == 1
            assert found.warnings == []
    for request in double.requests:
        assert request.body["messages"][1] == {"role": "user", "content": json.dumps(FACTUAL)}
    assert len(double.requests) == 2


def test_rules_decide_if_the_model_names_no_kind_or_its_server_fails(database_url):
    with chat_server(lambda _: answer) as double, chosen(database_url, double) as retriever:
        for answer in (
            *("", "exploratory", "[]", "{}", '{"kind": "other", "reason": "x"}'),
            *('{"kind": ["factual"], "reason": "x"}', '{"kind": "factual", "reason": 5}', "{" * 5000, answer_text([])),
        ):
            found = retriever.search(ANALYTICAL, route="chat")
            assert (found.route.kind, found.route.by) == ("analytical", "rules"), answer
            reason = "its answer was not one of the three kinds of question"
            assert found.warnings == [f"rules chose the route, because the language model failed: {reason}"], answer
            assert found.warnings == [found.route.warning]
            assert ids_of(found) == ["dome"]
        assert len(double.requests) == 9  # none is asked again
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


QUESTION, TERMS = "why is my build red", "exit status of the runner"
TEXTS = {
    "codes": "# Exit status\n\nThe runner ends with an exit status of 5 if it found nothing.",
    "colours": "Each build is shown red or green, with its log.",
    "other": "Grass grows beside the river.",
}


class Writer:
    """A chat model with set replies that keeps the messages it was sent."""

    calls_at_once = 2
    identity = "writer@test"

    def __init__(self, *said):
        self.said, self.sent = list(said), []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def complete(self, messages, schema=None):
        self.sent.append(messages)
        self.may_answer.wait(60)
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return Completion(said if isinstance(said, str) else json.dumps(said))

    def stream(self, messages, schema=None):
        yield self.complete(messages, schema)

    def close(self):
        self.may_answer.set()


@pytest.fixture(scope="module")
def library(module_url):
    """Three documents; tests only read them."""
    with sync_filled(module_url, TEXTS, 32) as retriever:
        yield retriever


def test_terms_are_searched_with_the_question_by_both_searches(library):
    assert library.search(QUESTION)[0].id == "colours"
    for mode in ("hybrid", "vector", "keyword"):
        assert library.search(QUESTION, terms=TERMS, mode=mode)[0].id == "codes", mode
    found = library.search(QUESTION, terms=TERMS, explain=True)
    assert "status" in [term.term for term in found.explanation.hits[0].terms]
    assert "additional search terms: exit status of the runner\n" in str(found.explanation)
    assert library.context(QUESTION, terms=TERMS).sources[0].hits[0].id == "codes"
    assert library.answer(QUESTION, terms=TERMS).context.sources[0].hits[0].id == "codes"
    assert library.why("codes", QUESTION, terms=TERMS).rank == 1
    first = library.search(QUESTION, 1, terms=TERMS, max_results=3)
    assert library.search_page(first.next_cursor)[0].id == found[1].id
    # The query's vector is the mean direction of the question and the terms.
    embedder = HashEmbedder(32)
    mean = embedder.embed_query(QUESTION) + embedder.embed_query(TERMS)
    mean /= np.linalg.norm(mean)
    terms, own = library.search(QUESTION, terms=TERMS, mode="vector"), library.search(vector=mean, mode="vector")
    assert ids_of(terms) == ids_of(own)
    np.testing.assert_allclose([hit.vector_score for hit in terms], [hit.vector_score for hit in own], atol=1e-6)


def test_without_terms_a_search_is_the_plain_one(library):
    usual = plain(library.search(QUESTION))
    for terms in (None, "", "  ", [], [""], '"" - ?'):
        assert plain(library.search(QUESTION, terms=terms)) == usual, terms
        request = Request.of(QUESTION, names=Names("semlex", "c"), options={"terms": terms})
        assert request.embedded_texts == (QUESTION,), terms


def test_each_query_has_its_own_terms_and_only_the_question_excludes_or_demands(library):
    queries = [SearchQuery(QUESTION, terms=TERMS), SearchQuery(QUESTION), SearchQuery(TERMS, terms=["red", "build"])]
    many = library.search_many([*queries, QUESTION])
    assert list(map(plain, many)) == [plain(library.search(query)) for query in [*queries, QUESTION]]
    assert plain(many[0]) == plain(library.search(QUESTION, terms=TERMS)) != plain(many[1])
    found = library.search("build -log", terms='-runner --exit "grass grows" status?')
    assert {hit.id for hit in found} == {"codes", "other"}
    assert {hit.id for hit in library.search('"red or green"', terms="grass")} == {"colours"}
    assert words_of_terms(["--sw", '"-x"', "utf-8", "“a” ?"]) == "sw x utf-8 a"


@pytest.mark.parametrize("terms", [5, [1], "x" * (MAX_TERMS_BYTES + 1), ["x" * 600, "y" * 600], "a\0", "\ud800"])
def test_wrong_terms_are_refused(library, terms):
    for call in (library.search, library.context, library.answer):
        with pytest.raises((ConfigurationError, ValidationError), match="terms"):
            call(QUESTION, terms=terms)
    with pytest.raises(ValidationError, match="terms"):
        SearchQuery(QUESTION, terms=terms)
    with pytest.raises(ConfigurationError, match="together with a query text"):
        library.search(vector=np.ones(32), terms=TERMS)
    with pytest.raises(ConfigurationError, match="terms cannot be given beside a SearchQuery"):
        library.search(SearchQuery(QUESTION, terms=TERMS), terms="others")


def made(url, model, **options):
    return sync_filled(url, TEXTS, 32, chat_model=model, **options)


def test_a_model_writes_the_terms_once(database_url):
    model = Writer({"terms": ["exit status", "runner"]})
    with made(database_url, model) as retriever:
        retriever.describe("Manual of a test runner")
        assert retriever.search(QUESTION)[0].id == "colours"
        assert model.sent == []
        found = retriever.search(QUESTION, rewrite=True, explain=True)
        assert found[0].id == "codes"
        assert (found.explanation.terms, found.explanation.terms_by) == ("exit status runner", "writer@test")
        given = retriever.search(QUESTION, terms=["exit status", "runner"])
        assert plain(retriever.search(QUESTION, rewrite=True)) == plain(given)
        assert retriever.context(QUESTION, rewrite=True).sources[0].hits[0].id == "codes"
        assert retriever.why("codes", QUESTION, rewrite=True).rank == 1
        [[_, user]] = model.sent
        assert json.loads(user["content"]) == {"question": QUESTION, "collection": "Manual of a test runner"}
        assert retriever.search(QUESTION, rewrite=True, terms="grass river")[0].id == "other"
        first = retriever.search("another question", 1, rewrite=True, max_results=3)
        retriever.search_page(first.next_cursor)
        assert len(model.sent) == 2
        retriever.describe(None)
        retriever.search(QUESTION, rewrite=True)
        assert len(model.sent) == 3
        # A description that changes while the model writes keeps no terms of the old one.
        complete = model.complete

        def describe_meanwhile(*given):
            model.complete = complete
            retriever.describe("Manual of another runner")
            return complete(*given)

        model.complete = describe_meanwhile
        for _ in range(2):
            retriever.search("a new question", rewrite=True)
        assert len(model.sent) == 5


def test_terms_are_kept_for_the_last_questions_of_each_model(database_url):
    model = Writer({"terms": ["exit status"]})
    with made(database_url, model, cached_queries=2) as retriever:
        for asked in ("first", "second", "first", "third", "first", "second"):
            retriever.search(asked, rewrite=True)
        sent = [json.loads(user["content"])["question"] for _, user in model.sent]
        assert sent == ["first", "second", "third", "second"]
        model.identity = "another@test"
        assert retriever.search("second", rewrite=True, explain=True).explanation.terms_by == "another@test"
        model.identity = "writer@test"  # whose terms are kept
        retriever.search("second", rewrite=True)
        assert len(model.sent) == 5
    with made(database_url, model, cached_queries=0) as retriever:
        for _ in range(2):
            retriever.search("second", rewrite=True)
    assert len(model.sent) == 7


def test_the_plain_question_answers_if_the_model_writes_no_terms(database_url):
    model = Writer("")
    with made(database_url, model) as retriever:
        retriever.describe("Manual of a test runner")
        usual = ids_of(retriever.search(QUESTION))
        for said in (
            *("I cannot help with that.", "[]", {"terms": []}, {"terms": "exit"}, {"terms": [5, None]}, "{" * 5000),
            {"terms": ["As a language model I am not able to write such terms, sorry."]},
            *({"terms": ["выход", "код"]}, {"terms": ["\u202e\u200b", "\ud800", "a\nb"]}),
            *(ModelError("the model's server is away"), RuntimeError(QUESTION)),
        ):
            model.said, model.sent = [said], []
            found = retriever.search(QUESTION, rewrite=True)
            assert ids_of(found) == usual, said
            [warning] = found.warnings
            assert warning.startswith("the query was searched as it is, not rewritten: ")
            assert QUESTION not in warning
            retriever.search(QUESTION, rewrite=True)
            assert len(model.sent) == 2, f"a failure was kept: {said}"


def test_what_a_model_writes_is_trimmed():
    said = ["- `exit` **status**", "1. codes", "EXIT STATUS", "-x", '"a phrase"', "выход", *map(str, range(20))]
    terms = questions.read_terms(f"```json\n{json.dumps({'terms': said})}\n```", QUESTION, "a manual")
    assert terms[:4] == ("exit status", "codes", "x", "a phrase")
    assert len(terms) == questions.MAX_TERMS
    assert questions.read_terms('{"terms": ["выход"]}', "где код", "a manual") == ("выход",)
    assert questions.read_terms('{"terms": ["exit"]}', "где код", "") == ("exit",)


@pytest.mark.parametrize(("deadline", "seconds"), [(None, questions.MAX_SECONDS), (4.0, 2.0)])
async def test_the_plain_question_answers_if_the_model_is_late(database_url, deadline, seconds):
    clock, model = ManualClock(), Writer({"terms": ["exit status"]})
    model.may_answer.clear()
    async with filled(database_url, TEXTS, 32, chat_model=model, clock=clock) as retriever:
        usual = await retriever.search(QUESTION)
        found = await clock.expire(seconds, retriever.search(QUESTION, rewrite=True, deadline=deadline))
        assert ids_of(found) == ids_of(usual)
        late = "the query was searched as it is, not rewritten: the language model did not answer in time"
        assert found.warnings == [late]
        model.may_answer.set()


async def test_a_route_that_is_late(database_url):
    model, clock, deadline = Writer(RuntimeError()), ManualClock(), 600.0
    model.may_answer.clear()
    async with filled(database_url, {"d": "why text"}, chat_model=model, clock=clock) as retriever:
        for call in (retriever.search, retriever.context):
            asking = call("why text?", route="chat", deadline=deadline)
            results = await clock.expire(deadline * questions.SHARE, asking)
            results = getattr(results, "results", results)
            assert (results.mode, len(results), results.route.kind) == ("hybrid", 1, "analytical")
            late = "rules chose the route, because the language model failed: it did not answer in time"
            assert results.warnings == [late]
            assert results.timings["total"] <= deadline * questions.SHARE * 1000
        with pytest.raises(ConfigurationError, match="deadline"):
            await retriever.search("why text?", route="chat", deadline=-1)
        model.may_answer.set()


def test_rewriting_is_off_unless_it_is_configured(database_url):
    model = Writer({"terms": ["exit status", "runner"]})
    with made(database_url, model, search_defaults={"rewrite": True}) as retriever:
        assert retriever.search(QUESTION)[0].id == "codes"
        assert retriever.search(QUESTION, rewrite=False)[0].id == "colours"
        assert retriever.search(vector=np.ones(32)).warnings == []
        assert retriever.search_many([QUESTION])[0][0].id == "colours"
        with pytest.raises(ConfigurationError, match="rewrite needs a question as text"):
            retriever.search(vector=np.ones(32), rewrite=True)
    with sync_opened(database_url, 32, search_defaults={"rewrite": True}) as retriever:
        assert "no chat model is configured" in retriever.search(QUESTION).warnings[0]
        with pytest.raises(ConfigurationError, match="rewrite needs a language model"):
            retriever.search(QUESTION, rewrite=True)
