"""Reads what a language model writes, sentence by sentence while it arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.chat.base import parsed
from semlex.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator


_MARKS = re.compile(r'["\\{}\[\]]')
# What models put around an answer although nobody asked for it: a fence, and what they thought before.
_FENCE = re.compile(r"\s*(```\w*)?\s*")
_THOUGHT, _END_OF_THOUGHT = "<think>", "</think>"
# Depth of a sentence's object: inside of the whole and of its list.
_SENTENCE_DEPTH = 2
MAX_SENTENCES = 200


@dataclass(frozen=True, slots=True)
class WrittenSentence:
    """A sentence as the model wrote it, with (source number, quote) for each citation."""

    text: str
    quotes: tuple[tuple[int, str], ...]


class UnusableAnswerError(ModelError):
    """The model's answer does not have the required form."""


# The form is that of `semlex.answering.prompts`. JSON is read exactly whatever a quote holds; a sentence is complete
# when its object is closed.
class WrittenAnswer:
    """An answer that arrives in pieces."""

    def __init__(self) -> None:
        self._text = ""  # from the beginning of the object on
        self._read = 0  # characters of it that were looked at
        self._begins = 0  # where the open sentence begins
        self._depth = 0
        self._has_begun = self._is_string = self._is_closed = False
        self.sentences = 0

    def add(self, piece: str) -> list[WrittenSentence]:
        """Add a piece; return the sentences that it completes."""
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
        if self.sentences > MAX_SENTENCES:
            raise UnusableAnswerError(
                f"the model's answer has more than {MAX_SENTENCES} sentences; choose another model"
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


# Numbers in square brackets are citations, and citations come from what was looked up alone.
_NUMBERS = re.compile(r"\s*\[\s*\d+(?:\s*[,;\u2013-]\s*\d+)*\s*\]")
_WORD = re.compile(r"\w+")


# One true quote must not stand for all sentences of an entry.
def parted(written: WrittenSentence) -> Iterator[WrittenSentence]:
    """Yield the sentences of an entry, without source numbers; each quote goes to the most similar sentence."""
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
