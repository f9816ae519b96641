"""Answers to questions: sentences, each with the passages that it cites. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from semlex.types.display.elements import bold, figure, joined, notes, paragraph, table, text
from semlex.types.display.texts import shortened
from semlex.types.documents import json_value

if TYPE_CHECKING:
    from semlex.types.context import Context

# Below both of them, where both are known, the hits of a search hardly speak of what is asked.
MIN_COVERAGE = 0.25
MIN_SIMILARITY = 0.35
Verdict = Literal["exact", "normalised", "altered", "not found", "unknown source"]
# Verdicts that say: these words stand there.
SHOWN_CITATIONS = 10
VERIFIED: frozenset[Verdict] = frozenset({"exact", "normalised"})


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote, and what became of it when it was looked up in the source that it names.

    Attributes:
        source: Number of the source, as the answer gives it.
        document: That source's document; "" for an unknown source.
        quote: The words that the answer puts into the document's mouth, as it wrote them.
        verdict: ``exact``: they stand there, letter by letter. ``normalised``: they do, but for case, quotation marks,
            blanks, hyphenation, and marks at their ends. ``altered``: one word is another, is missing or was added.
            ``not found``. ``unknown source``: there is no source of this number.
        line: Line of the document on which they begin, from 1, or None.
        page: First page of the source, from 1, or None.
        char_start: Where they begin in the document's text, in characters, or None where that is not known.
        char_end: Where they end.
    """

    source: int
    document: str
    quote: str
    verdict: Verdict
    line: int | None = None
    page: int | None = None
    char_start: int | None = None
    char_end: int | None = None

    @property
    def is_verified(self) -> bool:
        """Whether the words stand in the source."""
        return self.verdict in VERIFIED

    @property
    def place(self) -> str:
        """Document and page where it has pages, else document and line, as ``keys.md:9``; "" for an unknown source."""
        if self.page is not None:
            return f"{self.document}, page {self.page}"
        return self.document if self.line is None else f"{self.document}:{self.line}"


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence of an answer, after its citations were looked up.

    Attributes:
        text: The sentence, without its citations.
        citations: What it cites, in its order.
    """

    text: str
    citations: tuple[Citation, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Whether one of its quotes stands in its source."""
        return any(citation.is_verified for citation in self.citations)

    @property
    def numbered(self) -> str:
        """The sentence with the numbers of the sources that it cites, as ``Rotate it every 90 days. [1][3]``."""
        numbers = dict.fromkeys(citation.source for citation in self.citations)
        return f"{self.text} {''.join(f'[{number}]' for number in numbers)}" if numbers else self.text

    def to_dict(self) -> dict[str, Any]:
        """Everything, and whether it is supported, of JSON's types only."""
        values: dict[str, Any] = json_value(self)
        return values | {"is_supported": self.is_supported}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a model has read and written, as its server counts them; None where it does not say.

    Attributes:
        prompt_tokens: Read.
        completion_tokens: Written.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its evidence.

    Attributes:
        question: What was asked.
        sentences: The answer, sentence by sentence; empty where there is none.
        context: The passages that it was made from, with the hits of the search.
        confidence: 0 to 1: the share of its sentences with a verified citation, times the share of the question's
            words that stand in the passages with a verified citation. (Words as the collection's language has them,
            without stop words; a question that has none counts as 1.) 0 without an answer. It says how well the answer
            is documented, not whether it is true.
        model: Which model wrote it; None for an extractive answer: sentences of the documents as they stand there.
        refused: Why there is no answer, or None.
        usage: What the model's server counted.
        timings: Milliseconds: ``context``, ``first_sentence``, ``total``.
        warnings: What did not go as asked, for example a model's server that failed.
    """

    question: str
    sentences: tuple[AnswerSentence, ...]
    context: Context
    confidence: float = 0.0
    model: str | None = None
    refused: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The answer, or why there is none, and what it cites, a line each; shortened."""
        if self.refused is not None:
            return f"Answer: none; {shortened(self.refused, 200)}"
        cited = [f"  [{one.source}] {shortened(one.place, 60)}  {one.verdict}" for one in self.citations]
        more = [f"  … and {len(cited) - SHOWN_CITATIONS} more"] if len(cited) > SHOWN_CITATIONS else []
        head = f"Answer, confidence {self.confidence:.2f}: {shortened(self.text, 600)}"
        return "\n".join([head, *cited[:SHOWN_CITATIONS], *more])

    def _repr_html_(self) -> str:
        """Question, sentences, and a table of what they cite, which notebooks show."""
        answer = self.text if self.refused is None else self.refused
        rows = [
            [text(f"[{one.source}]"), text(one.place), text(one.quote), text(one.verdict)] for one in self.citations
        ]
        cited = [table(["", "place", "quote", "verdict"], rows)] if rows else []
        confidence = (
            [] if self.refused is not None else [paragraph(joined([text("confidence "), figure(self.confidence)]))]
        )
        return joined(
            [paragraph(bold(self.question)), paragraph(text(answer)), *cited, *confidence, notes(self.warnings)]
        )

    @property
    def text(self) -> str:
        """The sentences, each with the numbers of its sources."""
        return " ".join(sentence.numbered for sentence in self.sentences)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """All citations, in the order of the text."""
        return tuple(citation for sentence in self.sentences for citation in sentence.citations)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The sentences without a verified citation."""
        return tuple(sentence.text for sentence in self.sentences if not sentence.is_supported)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the hits of the search, of JSON's types only."""
        sources = [
            {
                "number": source.number,
                "place": source.place,
                "headings": source.headings,
                "text": source.text,
                "chunk_ids": list(source.chunk_ids),
            }
            for source in self.context.sources
        ]
        values: dict[str, Any] = json_value(
            {
                "question": self.question,
                "text": self.text,
                "confidence": self.confidence,
                "model": self.model,
                "refused": self.refused,
                "route": self.context.results.route,
                "unsupported": self.unsupported,
                "sentences": self.sentences,
                "sources": sources,
                "usage": self.usage,
                "timings": self.timings,
                "warnings": self.warnings,
            }
        )
        return values
