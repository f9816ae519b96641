"""Looks up the words that an answer quotes in the source that it cites."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from semlex.types.answers import Citation, Context, ContextSource, Verdict

# Longer quotes are refused.
MAX_QUOTE = 4000
# A hyphen at the end of a line, with what stands between it and the rest of its word.
_LINE_HYPHEN = re.compile(r"(?<=\w)[-\u2010\u2011][ \t]*\r?\n[ \t]*(?=\w)")
# A row of a table in Markdown, whose bars are between cells.
_TABLE_ROW = re.compile(r"^[ \t]*\|.*", re.MULTILINE)
_EVEN = {
    **dict.fromkeys("\u00ad\u200b\u2060\ufeff`", ""),
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "…": "...",
}
# Marks that a quote may begin or end with although the source goes on otherwise.
_EDGES = " .,;:!?\"'()[]{}"
# Scripts without blanks between words: Thai, Lao, Burmese, Khmer, kana, Han.
_WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_JOINERS = "-'\u2019\u00ad\u2010\u2011_"


class Evidence:
    """The sources of a context, in which quotes are looked up."""

    def __init__(self, context: Context) -> None:
        self._sources = {source.number: _Searched(source) for source in context.sources}

    def citation(self, number: int, quote: str) -> Citation:
        """Look up a quote in the source with this number."""
        searched = self._sources.get(number)
        if searched is None:
            return Citation(number, "", quote, "unknown source")
        source = searched.source
        verdict, place = searched.find(quote)
        if place is None:
            return Citation(number, source.document, quote, verdict, source.line, source.page, place=source.place)
        return replace(source.cite(*place), quote=quote, verdict=verdict)


Span = tuple[int, int]


class _Searched:
    """A source with normalised forms of its text, each computed when it is first needed."""

    def __init__(self, source: ContextSource) -> None:
        self.source = source

    @cached_property
    def _evened(self) -> list[_Evened]:
        """Return forms of the text to compare, with and without the hyphens at line ends and the bars of tables."""
        text = self.source.text
        without_bars = _TABLE_ROW.sub(lambda row: row[0].replace("|", " "), text)
        forms = [_Evened.of(one, hyphen) for one in dict.fromkeys((text, without_bars)) for hyphen in ("", "-")]
        return list({form.text: form for form in forms}.values())

    # Searched letter by letter; then ignoring case, quotation marks, blanks and hyphenation; then with one word
    # changed, missing or added.
    def find(self, quote: str) -> tuple[Verdict, Span | None]:
        """Return the verdict on a quote, and where the source contains it exactly or nearly."""
        quote = quote.strip()
        if len(quote) > MAX_QUOTE or not any(map(str.isalnum, quote)):
            return "not found", None
        place = _whole_words(quote, self.source.text)
        if place is not None:
            return "exact", place
        wanted = [_Evened.of(quote, hyphen).text.strip(_EDGES) for hyphen in ("", "-")]
        for evened in self._evened:
            for words in dict.fromkeys(wanted):
                place = _whole_words(words, evened.text)
                if place is not None:
                    return "normalised", evened.place(*place)
        for evened in self._evened:
            place = _one_word_apart(_words(wanted[0]), _words(evened.text))
            if place is not None:
                return "altered", evened.place(*place)
        return "not found", None


@dataclass(frozen=True, slots=True)
class _Evened:
    """A text normalised for comparison, with the original position of each character."""

    text: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, text: str, hyphen: str) -> _Evened:
        letters: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        hyphens = {found.start(): found.end() for found in _LINE_HYPHEN.finditer(text)}
        place = 0
        while place < len(text):
            letter, end = text[place], place + 1
            if place in hyphens:
                made, end = hyphen, hyphens[place]
            elif letter.isspace():
                made = "" if letters and letters[-1] == " " else " "
            elif letter in _EVEN:
                made = _EVEN[letter]
            else:
                made = letter.lower() if letter.isascii() else unicodedata.normalize("NFD", letter).casefold()
            letters += made
            starts += [place] * len(made)
            ends += [end] * len(made)
            place = end
        return cls("".join(letters), starts, ends)

    def place(self, start: int, end: int) -> Span:
        return self.starts[start], self.ends[end - 1]


# A quote must begin and end at whole words: "you can" is not in "you cannot", nor "version 8" in "version 8.5".
def _whole_words(words: str, text: str) -> Span | None:
    """Return where the words first occur in the text as whole words; None if they do not."""
    start = text.find(words) if words else -1
    while start >= 0:
        end = start + len(words)
        if not _cuts_a_word(text, start) and not _cuts_a_word(text, end):
            return start, end
        start = text.find(words, start + 1)
    return None


def _cuts_a_word(text: str, place: int) -> bool:
    """Return whether a word or a number continues across this position."""
    before, behind = text[max(0, place - 40) : place], text[place : place + 40]
    hyphened = re.match(r"[-\u2010\u2011\u00ad][ \t]*\r?\n[ \t]*", behind)
    if hyphened:  # a word that is parted at the end of a line
        behind = "-" + behind[hyphened.end() :]
    elif found := re.search(r"[-\u2010\u2011\u00ad][ \t]*\r?\n[ \t]*$", before):
        before = before[: found.start()] + "-"
    if before and behind and before[-1] in _JOINERS + ".,":
        return _goes_on(before[:-1], before[-1], behind)
    if before and behind and behind[0] in _JOINERS + ".,":
        return _goes_on(before, behind[0], behind[1:])
    return _goes_on(before, "", behind)


def _goes_on(before: str, joiner: str, behind: str) -> bool:
    if not before or not behind:
        return False
    left, right = before[-1], behind[0]
    if joiner in (".", ","):
        return left.isdigit() and right.isdigit()
    if unicodedata.combining(right):
        return True
    both = (left.isalnum() or unicodedata.combining(left) > 0) and right.isalnum()
    return both and not (_WITHOUT_BLANKS.match(left) or _WITHOUT_BLANKS.match(right))


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int


def _words(text: str) -> list[_Word]:
    found = re.finditer(r"\S+", text)
    bare = ((match, match[0].strip(_EDGES)) for match in found)
    return [
        _Word(word, match.start() + (at := match[0].index(word)), match.start() + at + len(word))
        for match, word in bare
        if any(map(str.isalnum, word))
    ]


def _one_word_apart(quote: Sequence[_Word], source: Sequence[_Word]) -> Span | None:
    """Return where the quote occurs with at most one word changed, missing or added."""
    if len(quote) < 2 or len(quote) > len(source) + 1:  # noqa: PLR2004 (one word is none that is changed)
        return None
    wanted, words = [word.text for word in quote], [word.text for word in source]
    middle = len(wanted) // 2
    for at in _occurrences(wanted[:middle], words):
        length = _nearly(wanted[middle:], words[at + middle : at + len(wanted) + 1])
        if length is not None:
            return source[at].start, source[at + middle + length - 1].end
    rest = wanted[middle:]
    for at in _occurrences(rest, words):
        before = words[max(0, at - middle - 1) : at]
        length = _nearly(wanted[:middle][::-1], before[::-1])
        if length is not None:
            return source[at - length].start, source[at + len(rest) - 1].end
    return None


def _occurrences(wanted: list[str], words: list[str]) -> Iterator[int]:
    first = wanted[0]
    return (at for at, word in enumerate(words) if word == first and words[at : at + len(wanted)] == wanted)


def _nearly(wanted: list[str], words: list[str]) -> int | None:
    """Return how many of the first `words` match `wanted` with at most one changed, missing or added; else None."""
    same = 0
    while same < min(len(wanted), len(words)) and wanted[same] == words[same]:
        same += 1
    if same == len(wanted):
        return same
    rest = wanted[same + 1 :]
    for length in (same + 1, same + 2, same):  # changed; missing in the quote; added to it
        tail = wanted[same:] if length == same + 2 else rest
        begin = same if length == same else same + 1
        if words[begin : begin + len(tail)] == tail:
            return begin + len(tail)
    return None
