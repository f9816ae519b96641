"""What a model wrote as one sentence, made into sentences that are each checked by themselves.

Where one entry of an answer holds several sentences, one true quote would stand for all of them. So they are parted,
and each quote goes to the sentence with which it shares most words; a sentence that gets none is unsupported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from semlex import _core
from semlex.answering.written_answer import WrittenSentence

if TYPE_CHECKING:
    from collections.abc import Iterator

# Numbers in square brackets are citations, and citations come from what was looked up alone.
_NUMBERS = re.compile(r"\s*\[\s*\d+(?:\s*[,;\u2013-]\s*\d+)*\s*\]")
_WORD = re.compile(r"\w+")


def parted(written: WrittenSentence) -> Iterator[WrittenSentence]:
    """The sentences of an entry, without numbers of sources in their text; none where nothing else stands there."""
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
