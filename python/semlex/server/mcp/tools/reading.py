"""Tools that find and read documents."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from mcp.types import CallToolResult
from pydantic import Field

from semlex.chat.untrusted import one_line, visible
from semlex.errors import ConfigurationError
from semlex.server.mcp.presentation import (
    MAX_RESULT,
    NOTICE,
    Budget,
    Quotes,
    place,
    quoted_warnings,
    shown_metadata,
    titles,
)
from semlex.server.mcp.tools.arguments import Collection, Document, Filters, Mode, Question, Start, TopK
from semlex.server.mcp.tools.calls import told
from semlex.server.mcp.tools.results import (
    ChunkText,
    DocumentText,
    HeadingFound,
    Hit,
    OutlineFound,
    Passage,
    SearchFound,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.retriever.collection import Collection as OpenedCollection
    from semlex.server.mcp.access import Reach
    from semlex.types.documents import Outline, StoredChunk
    from semlex.types.results import SearchResult

# After so many seconds what has answered is the answer.
SEARCH_SECONDS = 30.0
MAX_HEADINGS = 500
MAX_IDS = 200


class ReadingTools:
    """The tools; each returns structure and text.

    Args:
        reach: What they work on.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def search(
        self,
        query: Question,
        collection: Collection = None,
        top_k: TopK = 5,
        filters: Filters = None,
        mode: Mode = None,
    ) -> Annotated[CallToolResult, SearchFound]:
        """Hits, best first."""
        searched = await self._reach.collection(collection)
        found = await searched.search(query, top_k, filters, mode=mode, deadline=SEARCH_SECONDS)
        name, budget = searched.names.collection, Budget()
        hits = shown_hits(name, found, budget)
        result = SearchFound(
            notice=NOTICE,
            collection=name,
            mode=found.mode,
            hits=hits,
            best_similarity=found.best_similarity,
            coverage=found.coverage,
            warnings=[self._reach.said(warning) for warning in found.warnings],
        )
        if len(hits) < len(found):
            result.warnings.append(f"{len(found) - len(hits)} more hits have no room in one result: give a lower top_k")
        return told(result, _search_text(result))

    async def get_chunk(
        self,
        chunk_id: Annotated[str, Field(min_length=1, max_length=512, description="As search shows it.")],
        collection: Collection = None,
        start: Start = 0,
    ) -> Annotated[CallToolResult, ChunkText]:
        """One chunk with all of its text."""
        opened = await self._reach.collection(collection)
        chunk = await self.chunk(opened, chunk_id)
        name = opened.names.collection
        passage, after = shown_passage(name, chunk, start=start)
        result = ChunkText(notice=NOTICE, collection=name, chunk=passage, start=start, next_start=after)
        quotes = Quotes()
        more = "" if after is None else f"\nIt goes on: get_chunk with start={after}."
        text = f"{quotes.head()}\n\n{quotes.quote(_source(passage), passage.text, is_cut=passage.cut)}{more}"
        return told(result, text)

    async def chunk(self, opened: OpenedCollection, chunk_id: str) -> StoredChunk:
        """A chunk by its id.

        Raises:
            ConfigurationError: There is none.
        """
        found = await opened.get([chunk_id])
        if not found:
            raise ConfigurationError(
                f"there is no chunk {chunk_id!a} in {opened.names.collection!r}: take chunk_id from a search; chunks "
                "of a file that was changed have other ids"
            )
        return found[0]

    async def get_document(
        self, document: Document, collection: Collection = None, start: Start = 0
    ) -> Annotated[CallToolResult, DocumentText]:
        """The text of a document."""
        opened = await self._reach.collection(collection)
        result = await self.read_document(opened, document, start)
        quotes = Quotes()
        more = "" if result.next_start is None else f"\nIt goes on: get_document with start={result.next_start}."
        size, source = f"{result.characters:,} characters", result.path or result.document
        text = f"{quotes.head()}\n\n{quotes.quote(source, result.text, label=size, is_cut=bool(more))}{more}"
        return told(result, text)

    async def read_document(self, opened: OpenedCollection, document: str, start: int) -> DocumentText:
        """A document, or as much of it as a result holds.

        Raises:
            ConfigurationError: There is none, or the name means several.
        """
        found = await opened.get_document(document)
        whole, name, budget = visible(found.text), opened.names.collection, Budget()
        named, uri = one_line(found.name), document_uri(name, found.name)
        path = place(found.chunks[0]) if found.chunks else None
        ids = [chunk.id for chunk in found.chunks[:MAX_IDS]]
        ids = list(takewhile(Budget(MAX_RESULT // 4).take, ids))
        budget.take(named, uri, path, *ids)
        text, is_cut = budget.cut(whole[start:], MAX_RESULT)
        return DocumentText(
            notice=NOTICE,
            collection=name,
            document=named,
            uri=uri,
            path=path,
            text=text,
            start=start,
            next_start=start + len(text) if is_cut else None,
            characters=len(whole),
            chunk_ids=ids,
            notes=[self._reach.said(note) for note in found.notes],
        )

    async def outline(
        self, document: Document, collection: Collection = None
    ) -> Annotated[CallToolResult, OutlineFound]:
        """The headings of a document."""
        opened = await self._reach.collection(collection)
        found = await opened.outline(document)
        result = await self._outlined(opened, found)
        quotes = Quotes()
        lines = [
            f"{'  ' * (one.level - 1)}{one.title}" + (f"  (line {one.line})" if one.line else "")
            for one in result.headings
        ]
        quoted = quotes.quote(f"Headings of {result.path or result.document}", "\n".join(lines), is_cut=result.cut)
        return told(result, f"{quotes.head()}\n\n{quoted}")

    async def _outlined(self, opened: OpenedCollection, found: Outline) -> OutlineFound:
        first = next((one.chunk_ids[0] for one in found.headings if one.chunk_ids), None)
        chunks = [] if first is None else await opened.get([first])
        path = place(chunks[0]) if chunks else None
        budget = Budget()
        headings = [
            HeadingFound(
                level=one.level, title=one_line(one.title), line=one.line, chunk_ids=list(one.chunk_ids[:MAX_IDS])
            )
            for one in found.headings[:MAX_HEADINGS]
        ]
        headings = list(takewhile(lambda one: budget.take(one.title, *one.chunk_ids), headings))
        return OutlineFound(
            notice=NOTICE,
            collection=opened.names.collection,
            document=one_line(found.name),
            path=None if path is None else path.rpartition(":")[0],
            headings=headings,
            cut=len(headings) < len(found.headings),
            notes=[self._reach.said(note) for note in found.notes],
        )


def chunk_uri(collection: str, chunk_id: str) -> str:
    """The resource of a chunk."""
    return f"chunk://{collection}/{quote(chunk_id, safe='')}"


def document_uri(collection: str, document: str) -> str:
    """The resource of a document."""
    return f"document://{collection}/{quote(document, safe='/')}"


def document_name(chunk: StoredChunk) -> str:
    """The name of a chunk's document, as tools take it."""
    if not chunk.source_document:
        return chunk.id
    return f"{chunk.source}: {chunk.source_document}" if chunk.source else chunk.source_document


def shown_passage(collection: str, chunk: StoredChunk, *, start: int = 0) -> tuple[Passage, int | None]:
    """A chunk as tools show it by itself, and where its text goes on.

    Args:
        collection: Its collection.
        chunk: The chunk.
        start: Character to begin at.
    """
    budget, passage = Budget(), Passage(**_named(collection, chunk))
    budget.take(*_names(passage))
    # What describes the whole stands in every part.
    passage.metadata = shown_metadata(chunk.metadata, budget)
    passage.text, passage.cut = budget.cut(visible(chunk.content)[start:], MAX_RESULT)
    return passage, start + len(passage.text) if passage.cut else None


def shown_hits(collection: str, found: Sequence[SearchResult], budget: Budget) -> list[Hit]:
    """Hits as tools show them: as many as there is room for, by name at least, and with texts as long as it lasts.

    Args:
        collection: That was searched.
        found: Best first.
        budget: What the result has room for.
    """
    hits = [
        Hit(
            **_named(collection, hit),
            rank=hit.rank,
            similarity=hit.vector_score,
            keyword_score=hit.keyword_score,
            score=hit.fused_score,
            rerank_score=hit.rerank_score,
            confidence=hit.confidence,
        )
        for hit in found
    ]
    hits = list(takewhile(lambda hit: budget.take(*_names(hit)), hits))
    for hit, chunk in zip(hits, found, strict=False):
        hit.text, hit.cut = budget.cut(chunk.content)
        hit.metadata = shown_metadata(chunk.metadata, budget)
    return hits


def _named(collection: str, chunk: StoredChunk) -> dict[str, Any]:
    """The fields of a chunk by its names alone."""
    return {
        "chunk_id": chunk.id,
        "uri": chunk_uri(collection, chunk.id),
        "path": place(chunk, getattr(chunk, "match_line", None)),
        "document": visible(document_name(chunk)),
        "headings": titles(chunk),
        "page": chunk.page,
        "text": "",
        "cut": False,
        "metadata": {},
    }


def _names(passage: Passage) -> tuple[str | None, ...]:
    return passage.chunk_id, passage.uri, passage.path, passage.document, *passage.headings


def _source(passage: Passage) -> str:
    """Where a passage is from, on one line: words of documents, which belong into the quote."""
    above = [passage.path or one_line(passage.document), " > ".join(passage.headings)]
    return f"{' — '.join(filter(None, above))} (chunk_id {' '.join(passage.chunk_id.split())})"


def _search_text(found: SearchFound) -> str:
    """The hits in lines, each text quoted."""
    if not found.hits:
        lines = [f"Nothing was found in {found.collection!r}."]
    else:
        quotes = Quotes()
        number = f"{len(found.hits)} hit" + ("" if len(found.hits) == 1 else "s")
        lines = [f"{number} in {found.collection!r} ({found.mode}), best first. {quotes.head()}"]
        lines += [quotes.quote(_source(hit), hit.text, label=f"[{hit.rank}]", is_cut=hit.cut) for hit in found.hits]
    return "\n\n".join([*lines, *quoted_warnings(found.warnings)])
