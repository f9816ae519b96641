"""What a language model is given to answer from: numbered passages of documents. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from semlex.types.display.elements import LINE_END, bold, joined, notes, paragraph, table, text
from semlex.types.display.texts import shortened
from semlex.types.documents import json_value

if TYPE_CHECKING:
    from semlex.types.results import SearchResult, SearchResults

SHOWN_SOURCES = 10


@dataclass(frozen=True, slots=True)
class ContextSource:
    """A passage of one document, with the number by which it is cited.

    Attributes:
        number: From 1, in the order of the context.
        document: Where it is from: the path below its source's folder, or the id of what was added.
        headings: Title and heading path, "" where there is none.
        text: The passage as it stands in its document; of chunks that follow each other without what they share.
        chunk_ids: Ids of the chunks that it is made of, in the order of the document.
        line: Its first line in the document, from 1, or None.
        page: Its first page, from 1, or None.
        char_start: Where it begins in the document's text, in characters, or None.
        char_end: Where it ends, or None.
        hits: The hits that brought it, best first; empty for what stands between others.
        same_as: Places of passages that say nearly the same and were left out for it.
        introduction: What announces the list, the table or the code of which it is a later piece, as it stands before
            that in its document; else "".
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

    def __repr__(self) -> str:
        """Number, place, and the beginning of the passage."""
        return f"ContextSource([{self.number}] {shortened(self.place, 80)}: {shortened(self.text, 80)!r})"

    @property
    def place(self) -> str:
        """Document and page where it has pages, else document and line, as ``keys.md:9``."""
        return place_of(self.document, self.line, self.page)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the hits, of which their ids stand for them, of JSON's types only."""
        values: dict[str, Any] = json_value(replace(self, hits=()))
        return values | {"hits": [hit.id for hit in self.hits], "place": self.place}


def place_of(document: str, line: int | None, page: int | None) -> str:
    """Where something stands, for people: nobody counts the lines of a page.

    Args:
        document: The document.
        line: From 1, or None.
        page: From 1, or None.
    """
    if page is not None:
        return f"{document}, page {page}"
    return document if line is None else f"{document}:{line}"


@dataclass(frozen=True, slots=True)
class Context:
    """Passages for a prompt, and what did not fit.

    Attributes:
        text: All passages with their numbers and places, ready for a prompt. Each stands between two lines with `mark`;
            control characters of documents and marks that turn the direction of writing are not in it.
        sources: The passages.
        tokens: Tokens of `text`, by the counter that the budget was kept with.
        left_out: Hits that did not fit, or were changed while the context was made, best first.
        results: The search.
        warnings: What did not go as asked, the search's own warnings among it.
        mark: A word drawn by lot for this context, so that no document can end its own passage.
        counter: Name of the way in which tokens were counted; ``count`` for a function of the caller's.
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
        """Everything but the hits of the search, of JSON's types only."""
        return {
            "text": self.text,
            "mark": self.mark,
            "tokens": self.tokens,
            "counter": self.counter,
            "sources": [source.to_dict() for source in self.sources],
            "left_out": [{"id": hit.id, "place": hit.place} for hit in self.left_out],
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        """How much there is, and the first passages, a line each."""
        lines = [f"  [{one.number}] {shortened(one.place, 60)}  {shortened(one.text, 60)}" for one in self.sources]
        more = [f"  … and {len(lines) - SHOWN_SOURCES} more"] if len(lines) > SHOWN_SOURCES else []
        head = f"Context: {len(lines)} passages, {self.tokens:,} tokens, {len(self.left_out)} hits left out"
        return "\n".join([head, *lines[:SHOWN_SOURCES], *more])

    def _repr_html_(self) -> str:
        """The passages as a table, which notebooks show."""
        rows = [
            [
                text(f"[{one.number}]"),
                joined([text(one.place), LINE_END, text(one.headings)]) if one.headings else text(one.place),
                text(one.text),
            ]
            for one in self.sources
        ]
        size = bold(f"{self.tokens:,} tokens")
        left = text(f", {len(self.left_out):,} hits left out")
        return joined([paragraph(joined([size, left])), table(["", "place", "passage"], rows), notes(self.warnings)])
