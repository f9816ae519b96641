"""Words of the documents beside a question: given by the caller, or written by a language model."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from semlex import SearchQuery
from semlex.answering.questions import MAX_SECONDS, MAX_TERMS, read_terms
from semlex.chat import Completion
from semlex.errors import ConfigurationError, ModelError, ValidationError
from semlex.search.request import Request
from semlex.store.schema.names import Names
from semlex.testing import HashEmbedder
from semlex.types.queries import MAX_TERMS_BYTES, words_of_terms
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, ids_of, plain, sync_filled, sync_opened

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
def library(new_database):
    """Three documents; tests only read them."""
    with sync_filled(new_database(), TEXTS, 32) as retriever:
        yield retriever


def test_terms_are_searched_with_the_question_by_both_searches(library):
    assert library.search(QUESTION)[0].id == "colours"
    for mode in ("hybrid", "vector", "keyword"):
        assert library.search(QUESTION, terms=TERMS, mode=mode)[0].id == "codes", mode
    found = library.search(QUESTION, terms=TERMS, explain=True)
    assert "status" in [term.term for term in found.explanation.hits[0].terms]
    assert "terms searched, too: exit status of the runner\n" in str(found.explanation)
    assert library.context(QUESTION, terms=TERMS).sources[0].hits[0].id == "codes"
    assert library.answer(QUESTION, terms=TERMS).context.sources[0].hits[0].id == "codes"
    assert library.why("codes", QUESTION, terms=TERMS).rank == 1
    first = library.search(QUESTION, 1, terms=TERMS, max_results=3)
    assert library.search_page(first.next_cursor)[0].id == found[1].id
    # The vector is the mean direction.
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


def test_terms_belong_to_their_question_which_alone_excludes_and_demands(library):
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
    with pytest.raises(ConfigurationError, match="together with a question"):
        library.search(vector=np.ones(32), terms=TERMS)
    with pytest.raises(ConfigurationError, match="brings its own terms"):
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


def test_terms_are_kept_for_the_last_questions_of_one_model(database_url):
    model = Writer({"terms": ["exit status"]})
    with made(database_url, model, cached_queries=2) as retriever:
        for asked in ("first", "second", "first", "third", "first", "second"):
            retriever.search(asked, rewrite=True)
        questions = [json.loads(user["content"])["question"] for _, user in model.sent]
        assert questions == ["first", "second", "third", "second"]
        model.identity = "another@test"
        assert retriever.search("second", rewrite=True, explain=True).explanation.terms_by == "another@test"
        model.identity = "writer@test"  # whose terms were forgotten
        retriever.search("second", rewrite=True)
        assert len(model.sent) == 6
    with made(database_url, model, cached_queries=0) as retriever:
        for _ in range(2):
            retriever.search("second", rewrite=True)
    assert len(model.sent) == 8


NO_TERMS = (
    *("I cannot help with that.", "[]", {"terms": []}, {"terms": "exit"}, {"terms": [5, None]}, "{" * 5000),
    {"terms": ["As a language model I am not able to write such terms, sorry."]},
    *({"terms": ["выход", "код"]}, {"terms": ["\u202e\u200b", "\ud800", "a\nb"]}),
    *(ModelError("the model's server is away"), RuntimeError(QUESTION)),
)


def test_the_plain_question_answers_if_the_model_writes_no_terms(database_url):
    model = Writer("")
    with made(database_url, model) as retriever:
        retriever.describe("Manual of a test runner")
        usual = ids_of(retriever.search(QUESTION))
        for said in NO_TERMS:
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
    terms = read_terms(f"```json\n{json.dumps({'terms': said})}\n```", QUESTION, "a manual")
    assert terms[:4] == ("exit status", "codes", "x", "a phrase")
    assert len(terms) == MAX_TERMS
    assert read_terms('{"terms": ["выход"]}', "где код", "a manual") == ("выход",)
    assert read_terms('{"terms": ["exit"]}', "где код", "") == ("exit",)


@pytest.mark.parametrize(("deadline", "seconds"), [(None, MAX_SECONDS), (4.0, 2.0)])
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
