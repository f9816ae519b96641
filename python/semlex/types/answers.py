"""Contexts and answers: numbered passages for a prompt, and sentences that cite them. This module does no I/O."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from semlex.types.display import LINE_END, bold, figure, joined, notes, paragraph, shortened, table, text
from semlex.types.documents import NOWHERE, Place, StoredPlace, json_object, located, places_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.types.results import SearchResult, SearchResults


SHOWN_SOURCES = 10


class PassagePart(NamedTuple):
    """A chunk of a passage: where it begins in the passage's text, and its place in the document."""

    start: int
    line: int | None
    page: int | None
    place: StoredPlace
    is_slice: bool  # whether the text is the one that was read; another one has no places in it


def places_between(parts: Sequence[PassagePart], text: str, start: int, end: int) -> tuple[Place, Place]:
    """Return where characters `start` to `end` (exclusive) of a passage's text begin and end in the document."""
    return _places_at(parts, text, start)[0], _places_at(parts, text, max(start, end - 1))[1]


def _places_at(parts: Sequence[PassagePart], text: str, at: int) -> tuple[Place, Place]:
    """Return the first and the last place where a character may be; they are equal if the place is known exactly."""
    part = parts[bisect_right(parts, at, key=lambda one: one.start) - 1]
    if part.is_slice:
        found = part.place.at(text[part.start : at], part.line, part.page)
        return found, found
    place, line, page = part.place, part.line, part.page
    return place.behind(0, line, page), place.behind(len(place.breaks), line, page)


@dataclass(frozen=True, slots=True)
class ContextSource:
    """A passage of one document, with the number by which it is cited (from 1, in the order of the context).

    Attributes:
        document: Path below its source's folder, or the id of an added document.
        headings: Title and heading path, or "".
        text: The passage as it is in its document, without repeating text that consecutive chunks share. A tab between
            two chunks becomes a space.
        line, page: Where it begins in the document, from 1, or None.
        place: Its pages, rows or cells, or its first line, as shown to people: ``p. 36-37``, ``row 4``, ``line 9``; or
            "".
        char_start, char_end: Its place in the document's text, in characters, or None.
        hits: The hits in this passage, best first; empty if it only surrounds another passage's hits.
        same_as: Places of passages that were left out because they say nearly the same.
        introduction: If the passage continues a list, a table or code: the sentence that introduces it. Otherwise "".
    """

    number: int
    document: str
    headings: str
    text: str
    chunk_ids: tuple[str, ...]
    line: int | None = None
    page: int | None = None
    char_start: int | None = None
    char_end: int | None = None
    hits: tuple[SearchResult, ...] = ()
    same_as: tuple[str, ...] = ()
    introduction: str = ""
    place: str = ""
    _parts: tuple[PassagePart, ...] = ()

    def cite(self, start: int, end: int) -> Citation:
        """Return the citation of characters `start` to `end` (exclusive) of `text`, with its place in the document."""
        parts = self._parts or (PassagePart(0, self.line, self.page, NOWHERE, is_slice=True),)
        first, last = places_between(parts, self.text, start, end)
        place = places_of(first, last) if self.place else ""
        at = self.char_start
        if at is not None and self.char_end != at + len(self.text):
            at = None  # the passage is not one slice of its document
        begins, ends = (None, None) if at is None else (at + start, at + end)
        quote = self.text[start:end]
        return Citation(self.number, self.document, quote, "exact", first.line, first.page, begins, ends, place)

    def __repr__(self) -> str:
        return f"ContextSource([{self.number}] {shortened(self.location, 80)}: {shortened(self.text, 80)!r})"

    @property
    def location(self) -> str:
        """Return document and place, as ``keys.md:9`` or ``keys.pdf, p. 36``."""
        return located(self.document, self.place)

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes as JSON values; hits are given by their ids."""
        values = json_object(replace(self, hits=(), _parts=()))
        del values["_parts"]
        return values | {"hits": [hit.id for hit in self.hits], "location": self.location}


@dataclass(frozen=True, slots=True)
class Context:
    """Passages for a prompt, and what did not fit.

    Attributes:
        text: All passages with numbers and places, each between two lines with `mark`, a random word that no document
            can know. Control characters, and those that change the direction of writing, are removed.
        tokens: Number of tokens of `text`, counted as `counter` says.
        left_out: Hits that did not fit, or that were changed or deleted while the context was made, best first.
        warnings: What did not go as requested, the search's own warnings included.
        counter: Name of the token counter; ``count`` if the caller gave a function.
    """

    text: str
    sources: tuple[ContextSource, ...]
    tokens: int
    left_out: tuple[SearchResult, ...]
    results: SearchResults
    warnings: tuple[str, ...] = field(default=())
    mark: str = ""
    counter: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes except the hits of the search, as JSON values."""
        return {
            "text": self.text,
            "mark": self.mark,
            "tokens": self.tokens,
            "counter": self.counter,
            "sources": [source.to_dict() for source in self.sources],
            "left_out": [{"id": hit.id, "location": hit.location} for hit in self.left_out],
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        lines = [f"  [{one.number}] {shortened(one.location, 60)}  {shortened(one.text, 60)}" for one in self.sources]
        more = [f"  … and {len(lines) - SHOWN_SOURCES} more"] if len(lines) > SHOWN_SOURCES else []
        head = f"Context: {len(lines)} passages, {self.tokens:,} tokens, {len(self.left_out)} hits left out"
        return "\n".join([head, *lines[:SHOWN_SOURCES], *more])

    def _repr_html_(self) -> str:
        rows = [
            [
                text(f"[{one.number}]"),
                joined([text(one.location), LINE_END, text(one.headings)]) if one.headings else text(one.location),
                text(one.text),
            ]
            for one in self.sources
        ]
        size = bold(f"{self.tokens:,} tokens")
        left = text(f", {len(self.left_out):,} hits left out")
        return joined([paragraph(joined([size, left])), table(["", "place", "passage"], rows), notes(self.warnings)])


Verdict = Literal["exact", "normalised", "altered", "not found", "unknown source"]
SHOWN_CITATIONS = 10
ANSWER_KEYS = (
    *("question", "text", "kind", "documented", "model", "refused", "route", "unsupported", "sentences", "sources"),
    *("usage", "timings", "warnings"),
)
# Verdicts on quotes whose words are in the source.
VERIFIED: frozenset[Verdict] = frozenset({"exact", "normalised"})


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote, and the result of looking it up in the source that it names.

    Attributes:
        source: Number of the source, as the answer gives it.
        document: That source's document; "" for an unknown source.
        quote: The quoted words, as the answer wrote them.
        verdict: ``exact``: the words are in the source, letter by letter. ``normalised``: they differ only in case,
            quotation marks, blanks, hyphenation, bars between table cells, or marks at their ends. ``altered``: one
            word differs, is missing or was added. ``not found``. ``unknown source``: no source has this number.
        line, page: Where the words begin in the document, from 1, or None. If they were not found: where the source
            begins.
        place: Where the words are, as shown to people: ``p. 36``, ``row 4``, ``line 9``. Words on two pages have both:
            ``p. 36-37``. If only the pages of the source are known, these.
        char_start, char_end: Position of the words in the document's text, in characters, or None.
    """

    source: int
    document: str
    quote: str
    verdict: Verdict
    line: int | None = None
    page: int | None = None
    char_start: int | None = None
    char_end: int | None = None
    place: str = ""

    @property
    def is_verified(self) -> bool:
        """Return whether the words are in the source."""
        return self.verdict in VERIFIED

    @property
    def location(self) -> str:
        """Return document and place, as ``keys.md:9``; "" for an unknown source."""
        return located(self.document, self.place)


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence of an answer, and its citations, each checked against its source. `text` is without the citations."""

    text: str
    citations: tuple[Citation, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Return whether at least one quote of the sentence was found in its source."""
        return any(citation.is_verified for citation in self.citations)

    @property
    def numbered(self) -> str:
        """Return the sentence with the numbers of its sources, as ``Rotate it every 90 days. [1][3]``."""
        numbers = dict.fromkeys(citation.source for citation in self.citations)
        return f"{self.text} {''.join(f'[{number}]' for number in numbers)}" if numbers else self.text

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes and ``is_supported``, as JSON values."""
        return json_object(self) | {"is_supported": self.is_supported}


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a model has read and written, as its server reports them; None if the server reports none."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its evidence.

    Attributes:
        sentences: The answer; empty if it was refused.
        context: The passages that it was made from, with the hits of the search.
        documented: For an answer that a model wrote, 0 to 1: the share of its sentences with a verified citation, times
            the share of the question's words (without stop words) that occur in the passages with a verified citation.
            It measures how well the answer is documented, not whether it is true. None if no model wrote it, or if the
            answer was refused.
        model: The model that wrote the answer; None if it consists of sentences of the documents.
        refused: Why the answer was refused, or None.
        timings: Milliseconds: ``context``, ``first_sentence``, ``total``.
        warnings: What did not go as requested, for example a failed model server.
    """

    question: str
    sentences: tuple[AnswerSentence, ...]
    context: Context
    documented: float | None = None
    model: str | None = None
    refused: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.refused is not None:
            return f"Answer: none; {shortened(self.refused, 200)}"
        cited = [f"  [{one.source}] {shortened(one.location, 60)}  {one.verdict}" for one in self.citations]
        more = [f"  … and {len(cited) - SHOWN_CITATIONS} more"] if len(cited) > SHOWN_CITATIONS else []
        how = "Passages" if self.documented is None else f"Answer, documented {self.documented:.2f}"
        head = f"{how}: {shortened(self.text, 600)}"
        return "\n".join([head, *cited[:SHOWN_CITATIONS], *more])

    def _repr_html_(self) -> str:
        answer = self.text if self.refused is None else self.refused
        rows = [
            [text(f"[{one.source}]"), text(one.location), text(one.quote), text(one.verdict)] for one in self.citations
        ]
        cited = [table(["", "place", "quote", "verdict"], rows)] if rows else []
        how = [] if self.refused is not None else [paragraph(text("passages of the documents"))]
        if self.documented is not None:
            how = [paragraph(joined([text("documented "), figure(self.documented)]))]
        return joined([paragraph(bold(self.question)), paragraph(text(answer)), *cited, *how, notes(self.warnings)])

    @property
    def kind(self) -> Literal["written", "passages"]:
        """Return ``written`` if a language model wrote the answer, else ``passages``: sentences of the documents."""
        return "passages" if self.model is None else "written"

    @property
    def text(self) -> str:
        """Return the sentences, each with the numbers of its sources."""
        return " ".join(sentence.numbered for sentence in self.sentences)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return all citations, in the order of the text."""
        return tuple(citation for sentence in self.sentences for citation in sentence.citations)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Return the sentences without a verified citation."""
        return tuple(sentence.text for sentence in self.sentences if not sentence.is_supported)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the hits of the search, as JSON values."""
        shown = ("number", "place", "location", "headings", "text", "chunk_ids")
        sources = [{name: getattr(source, name) for name in shown} for source in self.context.sources]
        derived = {"route": self.context.results.route, "sources": sources}
        return json_object({name: derived[name] if name in derived else getattr(self, name) for name in ANSWER_KEYS})
