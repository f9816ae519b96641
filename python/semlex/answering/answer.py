"""Answer a question from a context: refuse it, let a language model write, or take sentences of the passages."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.answering.citations import Evidence
from semlex.answering.context import SCHEMA, messages_for
from semlex.chat import ChatModel, Completion, parsed
from semlex.errors import ModelError, WorkAbandonedError, failure_reason
from semlex.types.answers import Answer, AnswerSentence, Context, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence

    from semlex.models.executor import ModelExecutor
    from semlex.types.results import SearchResults

MAX_SENTENCES = 3
# Characters of all of them; a single one is taken whatever its length.
MAX_CHARACTERS = 600
# A neighbour below this share of the best score adds nothing.
LEAST_SHARE = 0.2

# (passage, start, end, kind, score, own) of `_core.rank_sentences`
Ranked = tuple[int, int, int, str, float, float]


def extracted(question: str, context: Context, analyzer: _core.Analyzer) -> list[AnswerSentence]:
    """Return the run of up to three consecutive sentences in one passage that answers best; each cites its place."""
    # Three sentences from three places were measured to be no better, and read worse. A sentence that follows the
    # question's words counts as well: answers are often there.
    passages = [(source.text, source.headings) for source in context.sources]
    ranked = _core.rank_sentences(analyzer, question, passages)
    found = []
    for passage, start, end, kind, *_ in _best_run(ranked):
        source = context.sources[passage]
        quote = source.text[start:end]
        text = quote if kind == "code" else " ".join(quote.split())
        found.append(AnswerSentence(text, (source.cite(start, end),)))
    return found


def _best_run(ranked: Sequence[Ranked]) -> Sequence[Ranked]:
    least = LEAST_SHARE * max((score for *_, score, _ in ranked), default=0.0)
    runs = [
        (worth, run)
        for first in range(len(ranked))
        for worth, run in _runs(ranked[first : first + MAX_SENTENCES], least)
    ]
    return max(runs, key=lambda one: one[0], default=(0.0, ()))[1]


def _runs(ranked: Sequence[Ranked], least: float) -> Iterator[tuple[float, Sequence[Ranked]]]:
    """Yield (score, run) for each run of sentences from the first one on, within its passage and without headings."""
    passage, start, *_ = ranked[0]
    worths = accumulate(score - least for *_, score, _ in ranked)
    for count, (worth, (of, _, end, kind, *_)) in enumerate(zip(worths, ranked, strict=True), start=1):
        if of != passage or kind == "heading" or (count > 1 and end - start > MAX_CHARACTERS):
            return
        yield worth, ranked[:count]


MAX_TERMS = 64  # words of a question that count
_TOKEN_BITS = 32


@dataclass(frozen=True, slots=True)
class Answering:
    """How an answer is made: model, limits, analyzer, clock."""

    analyzer: _core.Analyzer
    executor: ModelExecutor
    model: ChatModel | None = None  # None: the answer is taken from the passages
    min_coverage: float | None = None  # see `thin_support`
    min_similarity: float | None = None
    started: float = field(default_factory=time.perf_counter)  # by ``time.perf_counter``


NO_ANSWER = "no answer in these documents"


def thin_support(results: SearchResults, min_coverage: float | None, min_similarity: float | None) -> str | None:
    """Return why the hits do not support an answer, or None if they do."""
    # With minimums, the hits do not support an answer if every known figure is below its minimum; without, if the
    # search judges that the collection probably holds none.
    if not results:
        return f"{NO_ANSWER}: nothing was found"
    figures = (
        ("coverage", results.coverage, min_coverage),
        ("best similarity", results.best_similarity, min_similarity),
    )
    told = ", ".join(f"{name} {value:.2f}" for name, value, _ in figures if value is not None)
    if min_coverage is None and min_similarity is None:
        return f"{NO_ANSWER}: the hits barely match the question ({told})" if results.support == "unlikely" else None
    known = [(value, least) for _, value, least in figures if value is not None and least is not None]
    if not known or any(value >= least for value, least in known):
        return None
    return f"{NO_ANSWER}: the hits are below the minimum ({told})"


async def answer_events(
    question: str, context: Context, answering: Answering
) -> AsyncGenerator[AnswerSentence | Answer, None]:
    """Yield the sentences of an answer, each with its citations checked, then the `Answer`."""
    # If the language model fails before its first sentence, sentences of the passages are given instead; if it fails
    # later, its sentences so far remain. Both add a warning.
    timings = {"context": _milliseconds(answering.started)}
    sentences: list[AnswerSentence] = []
    warnings = list(context.warnings)
    usage, wrote = Usage(), None
    refused = thin_support(context.results, answering.min_coverage, answering.min_similarity)
    if refused is None and not context.sources:
        refused = "no passage fits into the context; raise tokens"
    if refused is None and answering.model is not None:
        wrote = answering.model.identity
        writing = _written(answering.model, question, context)
        try:
            while (event := await answering.executor.query(next, writing, None, model=answering.model)) is not None:
                if isinstance(event, AnswerSentence):
                    timings.setdefault("first_sentence", _milliseconds(answering.started))
                    sentences.append(event)
                    yield event
                else:
                    usage = event.usage
            if not sentences:
                refused = "the language model finds no answer in the passages"
        except WorkAbandonedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a model raises, the hits stand
            kept = "the answer may be incomplete" if sentences else "the answer is taken from the passages instead"
            warnings.append(f"the language model failed; {kept}: {failure_reason(error)}")
    if refused is None and not sentences:
        wrote = None
        for sentence in extracted(question, context, answering.analyzer):
            timings.setdefault("first_sentence", _milliseconds(answering.started))
            sentences.append(sentence)
            yield sentence
    timings["total"] = _milliseconds(answering.started)
    yield Answer(
        question,
        tuple(sentences),
        context,
        None if wrote is None or not sentences else documented(question, sentences, context, answering.analyzer),
        wrote,
        refused,
        usage,
        timings,
        tuple(warnings),
    )


def documented(question: str, sentences: list[AnswerSentence], context: Context, analyzer: _core.Analyzer) -> float:
    """Return the share of supported sentences, times the share of the question's words that cited passages contain."""
    supported = sum(sentence.is_supported for sentence in sentences) / len(sentences)
    cited = {one.source for sentence in sentences for one in sentence.citations if one.is_verified}
    passages = (f"{source.headings}\n{source.text}" for source in context.sources if source.number in cited)
    known = {term for passage in passages for term in analyzer.terms(passage)}
    # A word of the question may have several terms; one of them is enough.
    words: dict[int, bool] = {}
    for slot, term in analyzer.query(question, MAX_TERMS).wanted:
        words[slot >> _TOKEN_BITS] = words.get(slot >> _TOKEN_BITS, False) or term in known
    return supported * (sum(words.values()) / len(words) if words else 1.0)


def _written(model: ChatModel, question: str, context: Context) -> Generator[AnswerSentence | Completion]:
    """Yield a model's answer sentence by sentence, with its citations checked; blocking."""
    evidence = Evidence(context)
    reader = WrittenAnswer()
    last: Completion | None = None
    pieces = model.stream(messages_for(question, context), SCHEMA)
    try:
        for piece in pieces:
            if isinstance(piece, Completion):
                last = piece
                break
            for made in chain.from_iterable(map(parted, reader.add(piece))):
                yield AnswerSentence(made.text, tuple(evidence.citation(*quote) for quote in made.quotes))
    finally:
        close: Callable[[], None] | None = getattr(pieces, "close", None)
        if close is not None:
            close()
    if last is not None and last.is_cut:
        raise UnusableAnswerError("the model's server ended the answer at its limit of tokens; raise that limit there")
    reader.finish()
    yield last or Completion("")


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000


_MARKS = re.compile(r'["\\{}\[\]]')
# What models put around an answer although nobody asked for it: a fence, and what they thought before.
_FENCE = re.compile(r"\s*(```\w*)?\s*")
_THOUGHT, _END_OF_THOUGHT = "<think>", "</think>"
# Depth of a sentence's object: inside of the whole and of its list.
_SENTENCE_DEPTH = 2
MAX_WRITTEN_SENTENCES = 200


@dataclass(frozen=True, slots=True)
class WrittenSentence:
    """A sentence as the model wrote it, with (source number, quote) for each citation."""

    text: str
    quotes: tuple[tuple[int, str], ...]


class UnusableAnswerError(ModelError):
    """The model's answer does not have the required form."""


# The form is that of `semlex.answering.context`. JSON is read exactly whatever a quote holds; a sentence is complete
# when its object is closed.
class WrittenAnswer:
    """Reads the JSON of an answer that arrives in pieces, and returns each sentence when it is complete."""

    def __init__(self) -> None:
        self._text = ""  # from the beginning of the object on
        self._read = 0  # characters of it that were looked at
        self._begins = 0  # where the open sentence begins
        self._depth = 0
        self._has_begun = self._is_string = self._is_closed = False
        self.sentences = 0

    def add(self, piece: str) -> list[WrittenSentence]:
        """Add the next piece of the answer; return the sentences that are complete with it."""
        self._text += piece
        if not self._has_begun and not self._begin():
            return []
        made: list[WrittenSentence] = []
        while not self._is_closed and (mark := _MARKS.search(self._text, self._read)):
            place = mark.start()
            if mark[0] == "\\":
                if place + 1 == len(self._text):
                    self._read = place
                    return made  # what is escaped comes with the next piece
                self._read = place + 2
                continue
            self._read = mark.end()
            if mark[0] == '"':
                self._is_string = not self._is_string
            elif not self._is_string:
                made += self._bracket(mark[0], place)
        if not self._is_closed and not mark:
            self._read = len(self._text)
        return made

    def finish(self) -> None:
        """Check the whole answer after the last piece."""
        if not self._is_closed:
            raise UnusableAnswerError("the model's answer is not a complete JSON object; choose another model")
        whole = parsed(self._text[: self._read])
        listed = whole.get("sentences") if isinstance(whole, dict) else None
        if not isinstance(listed, list) or len(listed) != self.sentences:
            raise _other_form()

    def _begin(self) -> bool:
        """Return whether the JSON object has begun; drop the text before it."""
        text = self._text.lstrip()
        if _THOUGHT.startswith(text[: len(_THOUGHT)]):
            _, end, text = text.partition(_END_OF_THOUGHT)
            if not end:
                return False
        around = _FENCE.match(text)
        text = text[around.end() :] if around else text
        if not text or text.startswith("`"):
            return False
        if not text.startswith("{"):
            raise _other_form()
        self._text, self._has_begun = text, True
        return True

    def _bracket(self, mark: str, place: int) -> list[WrittenSentence]:
        if mark in "{[":
            if self._depth == _SENTENCE_DEPTH:
                self._begins = place
            self._depth += 1
            return []
        self._depth -= 1
        self._is_closed = self._depth == 0
        if self._depth != _SENTENCE_DEPTH:
            return []
        self.sentences += 1
        if self.sentences > MAX_WRITTEN_SENTENCES:
            raise UnusableAnswerError(
                f"the model's answer has more than {MAX_WRITTEN_SENTENCES} sentences; choose another model"
            )
        return [_sentence(parsed(self._text[self._begins : place + 1]))]


def _sentence(value: Any) -> WrittenSentence:
    try:
        text, citations = value["text"], value["citations"]
        quotes = tuple((citation["source"], citation["quote"]) for citation in citations)
    except (LookupError, TypeError):
        raise _other_form() from None  # the cause would hold the answer
    fits = isinstance(text, str) and text.strip()
    if not fits or not all(type(source) is int and isinstance(quote, str) for source, quote in quotes):
        raise _other_form()
    return WrittenSentence(" ".join(text.split()), quotes)


def _other_form() -> UnusableAnswerError:
    return UnusableAnswerError("the model's answer does not have the required form; choose another model")


# Numbers in square brackets are citations, and only checked quotes become citations.
_NUMBERS = re.compile(r"\s*\[\s*\d+(?:\s*[,;\u2013-]\s*\d+)*\s*\]")
_WORD = re.compile(r"\w+")


# One true quote must not stand for all sentences of an entry.
def parted(written: WrittenSentence) -> Iterator[WrittenSentence]:
    """Yield each sentence of an entry with the quotes most similar to it, and without numbers such as [1]."""
    text = _NUMBERS.sub("", written.text).strip()
    if not any(map(str.isalnum, text)):
        return
    pieces = [text[start:end].strip() for start, end, _ in _core.split_sentences(text)]
    if len(pieces) < 2:  # noqa: PLR2004 - one is not parted
        yield WrittenSentence(text, written.quotes)
        return
    words = [_words(piece) for piece in pieces]
    quotes: list[list[tuple[int, str]]] = [[] for _ in pieces]
    for source, quote in written.quotes:
        own = _words(quote)
        best = max(range(len(pieces)), key=lambda number: len(own & words[number]))
        quotes[best].append((source, quote))
    for piece, found in zip(pieces, quotes, strict=True):
        yield WrittenSentence(piece, tuple(found))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
