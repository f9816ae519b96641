"""What a language model is given to answer from: numbered passages of documents. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semlex.types.results import SearchResult, SearchResults


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

    @property
    def place(self) -> str:
        """Document and page where it has pages, else document and line, as ``keys.md:9``."""
        return place_of(self.document, self.line, self.page)


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
