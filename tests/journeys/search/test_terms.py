"""Words of the documents beside a question: given by the caller, or written by a language model."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from semlex import Document, SearchQuery
from semlex.answering.questions import MAX_SECONDS, MAX_TERMS, read_terms
from semlex.chat import Completion
from semlex.errors import ConfigurationError, ModelError, ValidationError
from semlex.search.request import Request
from semlex.store.schema.names import Names
from semlex.testing import HashEmbedder
from semlex.types.queries import MAX_TERMS_BYTES, words_of_terms
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened, sync_opened

QUESTION, TERMS = "why is my build red", "exit status of the runner"
TEXTS = {
    "codes": "# Exit status\n\nThe runner ends with an exit status of 5 if it found nothing.",
    "colours": "Each build is shown red or green, with its log.",
    "other": "Grass grows beside the river.",
}


class Writer:
    """A chat model with set replies that keeps the messages it was sent."""

    calls_at_once = 2

    def __init__(self, *said):
        self.said, self.sent = list(said), []
        self.may_answer = threading.Event()
        self.may_answer.set()

    identity = "writer@test"

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


def plain(results):
    return {name: value for name, value in results.to_dict().items() if name not in ("timings", "query_cached", "legs")}


@pytest.fixture(scope="module")
def library(new_database):
    """Three documents; tests only read them."""
    with sync_opened(new_database(), 32) as retriever:
        retriever.add_documents([Document(text, id=name) for name, text in TEXTS.items()])
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
    assert library.search_page(first.next_cursor or "")[0].id == library.search(QUESTION, terms=TERMS)[1].id


def test_the_vector_is_the_mean_direction(library):
    embedder = HashEmbedder(32)
    mean = embedder.embed_query(QUESTION) + embedder.embed_query(TERMS)
    mean /= np.linalg.norm(mean)
    terms, own = library.search(QUESTION, terms=TERMS, mode="vector"), library.search(vector=mean, mode="vector")
    assert [hit.id for hit in terms] == [hit.id for hit in own]
    np.testing.assert_allclose([hit.vector_score for hit in terms], [hit.vector_score for hit in own], atol=1e-6)


@pytest.mark.parametrize("terms", [None, "", "  ", [], [""], '"" - ?'])
def test_without_terms_a_search_is_the_plain_one(library, terms):
    assert plain(library.search(QUESTION, terms=terms)) == plain(library.search(QUESTION))
    assert Request.of(QUESTION, names=Names("semlex", "c"), options={"terms": terms}).embedded_texts == (QUESTION,)


def test_many_searches_with_terms_equal_single_ones(library):
    queries = [SearchQuery(QUESTION, terms=TERMS), SearchQuery(QUESTION), SearchQuery(TERMS, terms=["red", "build"])]
    many = library.search_many([*queries, QUESTION])
    assert list(map(plain, many)) == [plain(library.search(query)) for query in [*queries, QUESTION]]
    assert plain(many[0]) == plain(library.search(QUESTION, terms=TERMS)) != plain(many[1])


def test_only_the_question_excludes_and_demands(library):
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


def test_terms_need_a_question(library):
    with pytest.raises(ConfigurationError, match="together with a question"):
        library.search(vector=np.ones(32), terms=TERMS)
    with pytest.raises(ConfigurationError, match="brings its own terms"):
        library.search(SearchQuery(QUESTION, terms=TERMS), terms="others")


def made(url, model, **options):
    retriever = sync_opened(url, 32, chat_model=model, **options)
    retriever.add_documents([Document(text, id=name) for name, text in TEXTS.items()])
    return retriever


def test_a_model_writes_the_terms_once(database_url):
    model = Writer({"terms": ["exit status", "runner"]})
    with made(database_url, model) as retriever:
        retriever.describe("Manual of a test runner")
        assert retriever.search(QUESTION)[0].id == "colours"
        assert model.sent == []
        found = retriever.search(QUESTION, rewrite=True, explain=True)
        assert found[0].id == "codes"
        assert found.explanation is not None
        assert (found.explanation.terms, found.explanation.terms_by) == ("exit status runner", "writer@test")
        assert plain(retriever.search(QUESTION, rewrite=True)) == plain(
            retriever.search(QUESTION, terms=["exit status", "runner"])
        )
        assert retriever.context(QUESTION, rewrite=True).sources[0].hits[0].id == "codes"
        assert retriever.why("codes", QUESTION, rewrite=True).rank == 1
        assert len(model.sent) == 1
        [_, user] = model.sent[0]
        assert json.loads(user["content"]) == {"question": QUESTION, "collection": "Manual of a test runner"}
        assert retriever.search(QUESTION, rewrite=True, terms="grass river")[0].id == "other"
        first = retriever.search("another question", 1, rewrite=True, max_results=3)
        retriever.search_page(first.next_cursor or "")
        assert len(model.sent) == 2
        retriever.describe(None)
        retriever.search(QUESTION, rewrite=True)
        assert len(model.sent) == 3


def test_terms_are_kept_for_the_last_questions_of_one_model(database_url):
    model = Writer({"terms": ["exit status"]})
    with made(database_url, model, cached_queries=2) as retriever:
        for asked in ("first", "second", "first", "third", "first", "second"):
            retriever.search(asked, rewrite=True)
        questions = [json.loads(user["content"])["question"] for _, user in model.sent]
        assert questions == ["first", "second", "third", "second"]
        model.identity = "another@test"
        found = retriever.search("second", rewrite=True, explain=True)
        assert found.explanation is not None
        assert found.explanation.terms_by == "another@test"
        model.identity = "writer@test"  # whose terms were forgotten
        retriever.search("second", rewrite=True)
        assert len(model.sent) == 6
    with made(database_url, model, cached_queries=0) as retriever:
        for _ in range(2):
            retriever.search("second", rewrite=True)
    assert len(model.sent) == 8


def test_a_description_that_changes_meanwhile_does_not_keep_the_terms_of_the_old_one(database_url):
    model = Writer({"terms": ["exit status"]})
    with made(database_url, model) as retriever:
        complete = model.complete

        def describe_meanwhile(*given):
            model.complete = complete
            retriever.describe("Manual of a test runner")
            return complete(*given)

        model.complete = describe_meanwhile
        for _ in range(2):
            retriever.search(QUESTION, rewrite=True)
        assert len(model.sent) == 2


@pytest.mark.parametrize(
    "said",
    ["I cannot help with that.", "[]", {"terms": []}, {"terms": "exit"}, {"terms": [5, None]}, "{" * 5000,
     {"terms": ["As a language model I am not able to write such terms, sorry."]}, {"terms": ["выход", "код"]},
     {"terms": ["\u202e\u200b", "\ud800", "a\nb"]}, ModelError("the model's server is away"), RuntimeError(QUESTION)],
)  # fmt: skip
def test_the_plain_question_answers_if_the_model_writes_no_terms(library_with, said):
    retriever, model = library_with
    model.said[:] = [said]
    found, usual = retriever.search(QUESTION, rewrite=True), retriever.search(QUESTION)
    assert [hit.id for hit in found] == [hit.id for hit in usual]
    [warning] = found.warnings
    assert warning.startswith("the query was searched as it is, not rewritten: ")
    assert QUESTION not in warning
    retriever.search(QUESTION, rewrite=True)
    assert len(model.sent) == 2, "a failure was kept"


@pytest.fixture
def library_with(library_and_model):
    library_and_model[1].sent.clear()
    return library_and_model


@pytest.fixture(scope="module")
def library_and_model(new_database):
    model = Writer("")
    with made(new_database(), model) as retriever:
        retriever.describe("Manual of a test runner")
        yield retriever, model


def test_what_a_model_writes_is_trimmed():
    said = {
        "terms": ["- `exit` **status**", "1. codes", "EXIT STATUS", "-x", '"a phrase"', "выход", *map(str, range(20))]
    }
    terms = read_terms(f"```json\n{json.dumps(said)}\n```", QUESTION, "a manual")
    assert terms[:4] == ("exit status", "codes", "x", "a phrase")
    assert len(terms) == MAX_TERMS
    assert read_terms('{"terms": ["выход"]}', "где код", "a manual") == ("выход",)
    assert read_terms('{"terms": ["exit"]}', "где код", "") == ("exit",)


@pytest.mark.parametrize("deadline", [None, 4.0])
async def test_the_plain_question_answers_if_the_model_is_late(database_url, deadline):
    clock, model = ManualClock(), Writer({"terms": ["exit status"]})
    model.may_answer.clear()
    async with opened(database_url, 32, chat_model=model, clock=clock) as retriever:
        await retriever.add_documents([Document(text, id=name) for name, text in TEXTS.items()])
        usual = await retriever.search(QUESTION)
        found = await clock.expire(
            MAX_SECONDS if deadline is None else deadline / 2,
            retriever.search(QUESTION, rewrite=True, deadline=deadline),
        )
        assert [hit.id for hit in found] == [hit.id for hit in usual]
        assert found.warnings == [
            "the query was searched as it is, not rewritten: the language model did not answer in time"
        ]
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
