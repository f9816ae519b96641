"""Questions answered: by a scripted model that quotes truly and not, by the documents' own sentences, or not at all."""

import json
import random
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from semlex import Document, SyncRetriever
from semlex.chat import Completion
from semlex.errors import ConfigurationError, SemlexError, ValidationError
from semlex.models import http_client
from semlex.types.answers import Answer, AnswerSentence, Usage
from tests.support import retrievers
from tests.support.chat_servers import EVENT_STREAM, answer_text, chat_server, events, streamed
from tests.support.folders import folder_with
from tests.support.line_models import LineModel
from tests.support.model_servers import KEY, Reply, echo, status
from tests.support.quotes import altered_quote, invented_quote, other_spelling, passage, true_quote
from tests.support.retrievers import sync_opened

QUESTION = "how often is a key rotated?"
TRUE = "Rotate a key every ninety days"
PAGE = f"# Keys\n\n## Rotation\n\nKeys are stored in a vault.\n\n{TRUE}, as the policy says.\n\nBananas are yellow.\n"
TWO = [("A key is rotated every ninety days.", [(1, TRUE)]), ("Bananas are blue.", [(1, "Bananas are blue")])]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)
    for name in ("SEMLEX_CHAT_API_KEY", "SEMLEX_CHAT_MODEL"):
        monkeypatch.delenv(name, raising=False)


def opened(database_url, double=None, **options):
    name = None if double is None else f"{double.url}/v1#small-model"
    return sync_opened(database_url, "none", chat_model=name, **options)


@pytest.fixture(scope="module")
def page(module_url, tmp_path_factory):
    """The address of a database that all tests leave as it is."""
    with opened(module_url) as retriever:
        retriever.index(folder_with(tmp_path_factory.mktemp("pages"), {"keys.md": PAGE}))
    return module_url


def test_a_model_answers_and_every_quote_is_looked_up(page):
    with chat_server(lambda _: answer_text(TWO)) as double, opened(page, double) as retriever:
        assert double.requests == []  # nothing is sent before a question is asked
        answer = retriever.answer(QUESTION)
        (request,) = double.requests
        # A stream yields the sentences one by one, then the answer.
        first, second, last = retriever.answer_stream(QUESTION)
    assert [first.is_supported, second.is_supported] == [True, False]
    assert isinstance(last, Answer)
    assert last.sentences == (first, second)
    assert answer.text == "A key is rotated every ninety days. [1] Bananas are blue. [1]"
    true, wrong = answer.citations
    assert (true.verdict, true.document, true.line, true.location) == ("exact", "keys.md", 7, "keys.md:7")
    assert PAGE[true.char_start : true.char_end] == TRUE
    assert wrong.verdict == "altered"
    assert answer.unsupported == ("Bananas are blue.",)
    # Half of the sentences; "key" and "rotated" stand in the passage, "often" does not.
    assert (answer.kind, answer.documented) == ("written", pytest.approx(1 / 2 * 2 / 3))
    assert answer.usage == Usage(11, 7)
    assert answer.model.startswith("small-model@127.0.0.1")
    assert (answer.refused, answer.warnings) == (None, ())
    assert answer.timings.keys() == {"context", "first_sentence", "total"}
    assert json.loads(json.dumps(answer.to_dict()))["sentences"][0]["citations"][0]["verdict"] == "exact"
    assert answer.context.text in request.body["messages"][1]["content"]


async def test_a_sentence_is_there_before_the_model_has_ended(page):
    class Slow:
        identity, asked = "slow", 0

        def stream(self, messages, schema=None):
            whole = answer_text(TWO)
            middle = whole.index("Bananas")
            yield whole[:middle]
            Slow.asked += 1
            yield whole[middle:]
            yield Completion(whole)

        def close(self):
            raise AssertionError("a model that was passed stays open")

    async with retrievers.opened(page, "none", chat_model=Slow()) as retriever:
        stream = retriever.answer_stream(QUESTION)
        first = await anext(stream)
        assert isinstance(first, AnswerSentence)
        assert Slow.asked == 0
        await stream.aclose()
        assert (await retriever.answer(QUESTION)).model == "slow"


@pytest.mark.slow
def test_every_wrong_quote_is_flagged_and_no_true_one(database_url, full):
    draw = random.Random(20261123)
    texts = [passage(draw, 80) for _ in range(40)]
    expected = []  # of each sentence: how it was made, and whether its quote is true

    def say(request):
        """Quotes from the passages of the prompt, of which the script knows whether they are true."""
        assert context.text in request.body["messages"][1]["content"]
        sentences, verdicts = [], []
        for row in range(draw.randint(1, 6)):
            source = draw.choice(context.sources)
            number, text = source.number, source.text
            quote = true_quote(draw, text)
            changes = {"spelled": other_spelling, "altered": altered_quote, "invented": invented_quote}
            made = {"true": quote, **{name: change(draw, quote) for name, change in changes.items()}, "unknown": quote}
            kind = draw.choice([*made])
            is_true = kind in ("true", "spelled") or " ".join(made[kind].split()) in " ".join(text.split())
            sentences.append((f"Sentence {row}.", [(99 if kind == "unknown" else number, made[kind])]))
            verdicts.append((kind, is_true and kind != "unknown"))
        expected.append(verdicts)
        return answer_text(sentences)

    with chat_server(say) as double, opened(database_url, double) as retriever:
        retriever.add_documents([Document(text, id=f"{row}") for row, text in enumerate(texts)])
        context = retriever.context("key vault policy")
        rounds = 1_000 if full else 40
        answers = [retriever.answer("key vault policy", context=context) for _ in range(rounds)]
    seen = set()
    for answer, verdicts in zip(answers, expected, strict=True):
        assert len(answer.sentences) == len(verdicts)
        for sentence, (kind, is_true) in zip(answer.sentences, verdicts, strict=True):
            assert sentence.is_supported == is_true, (kind, sentence)
            seen.add(kind)
    assert seen == {"true", "spelled", "altered", "invented", "unknown"}


LONG = events(answer_text(TWO))


def test_a_server_that_fails_leaves_the_documents_own_sentences(page, caplog, monkeypatch):
    monkeypatch.setenv("SEMLEX_CHAT_API_KEY", KEY)
    for case, faults in {
        "500": [status(500)] * 9,
        "echo": [echo(400)] * 2,
        "prose": [lambda *_: streamed("A key is rotated every ninety days.")],
        "wrong JSON": [lambda *_: streamed('{"answer": "a key"}')],
        "cut before a sentence": [lambda *_: Reply(LONG[:400], headers=EVENT_STREAM)],
    }.items():
        with chat_server(lambda _: "", faults) as double, opened(page, double) as retriever:
            answer = retriever.answer(QUESTION)
        assert answer.model is None, case
        assert TRUE in answer.text
        (warning,) = answer.warnings
        assert warning.startswith("the language model failed; the answer is taken from the passages instead: ")
        shown = [warning, caplog.text, repr(retriever)]
        assert not [secret for secret in (KEY, QUESTION, TRUE) if any(secret in text for text in shown)], case
    # So does a model that raises anything.
    broken = SimpleNamespace(identity="broken", stream=Mock(side_effect=ZeroDivisionError(QUESTION)))
    with sync_opened(page, "none", chat_model=broken) as retriever:
        answer = retriever.answer(QUESTION)
    assert (answer.warnings[0].endswith("ZeroDivisionError"), answer.model) == (True, None)


def test_what_was_written_before_a_failure_stays(page):
    for case, body in {
        "no end": Reply(LONG[: LONG.index(b"Bana") - 2], headers=EVENT_STREAM),
        "cut": Reply(LONG, headers=EVENT_STREAM, manner="cut"),
        "length": streamed(answer_text(TWO)[:-1], finish="length"),
        "wrong JSON": streamed(answer_text(TWO)[:-10] + "]}"),
    }.items():
        with chat_server(lambda _: "", [lambda *_, body=body: body]) as double, opened(page, double) as retriever:
            answer = retriever.answer(QUESTION)
        if case == "cut":  # half of it ended before the first sentence did
            assert (answer.model, "taken from the passages" in answer.warnings[0]) == (None, True)
            continue
        assert answer.sentences[0].text == TWO[0][0], case
        assert answer.warnings[0].startswith("the language model failed; the answer may be incomplete: "), case


def test_numbers_that_a_model_writes_are_none_of_ours_and_each_sentence_is_checked(page):
    """One true quote does not stand for a second sentence, nor a forged number for a citation."""
    written = [("A key is rotated every ninety days [7][1]. Anybody may read keys [2].", [(1, TRUE)])]
    said = iter([written, []])
    with chat_server(lambda _: answer_text(next(said))) as double, opened(page, double) as retriever:
        answer, nothing = (retriever.answer(QUESTION) for _ in range(2))
    assert answer.text == "A key is rotated every ninety days. [1] Anybody may read keys."
    assert answer.unsupported == ("Anybody may read keys.",)
    # A model that finds no answer makes the answer a refusal.
    assert nothing.refused == "the language model finds no answer in the passages"
    assert (nothing.text, nothing.documented, nothing.sentences) == ("", None, ())
    assert nothing.context.results  # what was found is there


def test_thin_support_is_a_refusal_and_nothing_is_sent(page):
    strange = "does the xylophone quintet of Ulan Bator play bananas?"
    with chat_server(lambda _: answer_text(TWO)) as double, opened(page, double) as retriever:
        assert retriever.answer("zebras?").refused == "no answer in these documents: nothing was found"
        thin = retriever.answer(strange)
        assert thin.refused.startswith("no answer in these documents: the hits barely match the question (coverage ")
        assert thin.context.results.support == "unlikely"
        assert double.requests == []
        assert retriever.answer(strange, min_coverage=0).text
        assert retriever.answer(QUESTION, min_coverage=1).refused is not None


def test_without_a_model_sentences_of_the_documents_answer(page):
    with opened(page) as retriever:
        answer = retriever.answer(QUESTION)
        assert answer.sentences == retriever.answer(QUESTION).sentences
        first, second, *_ = answer.citations
        assert (first.verdict, first.location) == ("exact", "keys.md:5")
        assert (second.verdict, second.location) == ("exact", "keys.md:7")
        assert second.quote == "Rotate a key every ninety days, as the policy says."
        assert answer.unsupported == ()
        assert answer.model is None
        context = retriever.context(QUESTION, 200)
        assert retriever.answer(QUESTION, context=context).context is context
        with pytest.raises(ConfigurationError, match="a search already made"):
            retriever.answer(QUESTION, context=context, top_k=3)
        for error, wrong in (
            (ValidationError, [("question", "")]),
            (ConfigurationError, [("tokens", 0), ("context", "text"), ("min_coverage", 2), ("min_similarity", -1)]),
            (ConfigurationError, [("min_coverage", "0")]),
            (SemlexError, [("question", None), ("top_k", 0), ("filters", 3), ("mode", "loud")]),
        ):
            for name, value in wrong:
                with pytest.raises(error):
                    retriever.answer(**{"question": QUESTION, name: value})


def test_without_the_base_model_words_of_any_language_and_vectors_alone(database_url):
    with sync_opened(database_url, language="german", keyword="none") as one:
        one.add_documents([Document("Ein Schlüssel wird alle neunzig Tage gewechselt. Bananen sind gelb.", id="a")])
        answer = one.answer("Wie oft werden Schlüssel gewechselt?", min_similarity=0)
    assert answer.sentences[0].text == "Ein Schlüssel wird alle neunzig Tage gewechselt."


def test_names_of_models(database_url):
    for wrong in (3, object(), SyncRetriever):
        with pytest.raises(ConfigurationError, match="chat_model"):
            SyncRetriever(database_url, "none", chat_model=wrong)
    with opened(database_url) as retriever:
        retriever.add_texts(["a lion in the grass"])
    with SyncRetriever(database_url, "none", chat_model="gpt-5") as retriever:
        assert retriever.search("lion")  # a wrong name stands in the way of answers alone
        with pytest.raises(ConfigurationError, match="openai:MODEL"):
            retriever.answer("lion")


def test_what_announces_a_table_is_above_its_later_pieces(database_url, tmp_path):
    rows = "".join(f"| tariff {row} | {row} euros |\n" for row in range(200))
    head = "# Prices\n\n## Tariffs\n\nAll prices are monthly.\n\n| Tariff | Monthly price |\n|---|---|\n"
    folder_with(tmp_path, {"prices.md": head + rows})
    lines = LineModel()
    with opened(database_url, chunk_tokens=60) as retriever:
        retriever.index(tmp_path, enrichment=lines)
        context = retriever.context("tariff 150", neighbours=0, sections=None, near_duplicates=None, top_k=1)
    (source,) = context.sources
    assert "tariff 150" in source.text
    assert "Monthly price" in source.introduction
    assert "Monthly price" not in source.text
    first = context.text.splitlines()[2]
    assert first.startswith("[1] prices.md:")
    assert "Prices > Tariffs — " in first
    assert "Monthly price" in first
    assert "Zyxwv" not in context.text + source.introduction  # what a model wrote is no part of the document
