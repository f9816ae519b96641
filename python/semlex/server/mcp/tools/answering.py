"""Tools that answer a question, and that say why a document does not answer one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mcp.types import CallToolResult

from semlex.chat.untrusted import one_line, visible
from semlex.server.mcp.presentation import NOTICE, Quotes, placed, quoted_warnings
from semlex.server.mcp.tools.arguments import Collection, Document, Filters, Mode, Question, TopK
from semlex.server.mcp.tools.calls import told
from semlex.server.mcp.tools.reading import SEARCH_SECONDS, document_name
from semlex.server.mcp.tools.results import AnswerFound, AnswerSource, CitationFound, WhyFound, WhyReason

if TYPE_CHECKING:
    from semlex.server.mcp.access import Reach
    from semlex.types.answers import Answer, ContextSource
    from semlex.types.explanations import Explanation


class AnsweringTools:
    """The tools; each returns structure and text.

    Args:
        reach: What they work on.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def answer_research_question(
        self,
        question: Question,
        collection: Collection = None,
        top_k: TopK = 20,
        filters: Filters = None,
    ) -> Annotated[CallToolResult, AnswerFound]:
        """An answer with citations."""
        opened = await self._reach.collection(collection)
        found = await opened.answer(question, top_k=top_k, filters=filters)
        result = answer_found(opened.names.collection, found)
        result.warnings = [self._reach.said(warning) for warning in result.warnings]
        return told(result, _answer_text(result))

    async def why(
        self,
        document: Document,
        question: Question,
        *,
        collection: Collection = None,
        top_k: TopK = 5,
        filters: Filters = None,
        mode: Mode = None,
    ) -> Annotated[CallToolResult, WhyFound]:
        """Why a document is where it is in an answer, or missing."""
        opened = await self._reach.collection(collection)
        found = await opened.why(document, question, top_k, filters, mode=mode, deadline=SEARCH_SECONDS)
        result = self._why_found(opened.names.collection, found)
        quotes = Quotes()
        reasons = [
            f"{one.text} [{one.code}]" + (f"\n  what helps: {one.remedy}" if one.remedy else "")
            for one in result.reasons
        ]
        title = f"{result.document}: {'found' if result.found else 'not found'}"
        return told(result, f"{quotes.head()}\n\n{quotes.quote(title, chr(10).join([*reasons, *result.figures]))}")

    def _why_found(self, collection: str, found: Explanation) -> WhyFound:
        return WhyFound(
            notice=NOTICE,
            collection=collection,
            document=one_line(found.name or found.document),
            found=found.found,
            rank=found.rank,
            reasons=[
                WhyReason(code=one.code, text=visible(one.text), remedy=self._reach.said(one.remedy))
                for one in found.reasons
            ],
            figures=[self._reach.said(str(one)) for one in (*found.legs, *found.terms, *found.notes)],
        )


def answer_found(collection: str, found: Answer) -> AnswerFound:
    """An answer as tools show it."""
    sources = {source.number: source for source in found.context.sources}
    cited = []
    for one in found.citations:
        source = sources.get(one.source)
        path = None if source is None else _path(source, one.line)
        cited.append(
            CitationFound(
                source=one.source,
                path=path,
                document=one_line(one.document),
                quote=visible(one.quote),
                verdict=one.verdict,
            )
        )
    return AnswerFound(
        notice=NOTICE,
        collection=collection,
        answer=visible(found.text),
        refused=found.refused,
        confidence=found.confidence,
        model=found.model,
        unsupported=[visible(text) for text in found.unsupported],
        citations=cited,
        sources=[
            AnswerSource(
                number=source.number,
                path=_path(source, source.line),
                document=_document(source),
                headings=one_line(source.headings),
                chunk_ids=list(source.chunk_ids),
            )
            for source in found.context.sources
        ],
        warnings=list(found.warnings),
    )


def _path(source: ContextSource, line: int | None) -> str | None:
    """Absolute path and line of a passage, where one of its hits knows the folder."""
    root = next((hit.root for hit in source.hits if hit.root), "")
    return placed(f"{root}/{source.document}", line) if root else None


def _document(source: ContextSource) -> str:
    return one_line(document_name(source.hits[0]) if source.hits else source.document)


def _answer_text(found: AnswerFound) -> str:
    if not found.answer:
        lines = [f"No answer: {found.refused}"]
    else:
        quotes = Quotes()
        how = f"written by {found.model}" if found.model else "sentences of the documents"
        label = f"Answer ({how}; documented to {found.confidence:.0%})"
        lines = [f"{quotes.head()}\n\n{quotes.quote('', found.answer, label=label)}"]
        cited = {one.source for one in found.citations}
        places = [f"[{one.number}] {one.path or one.document}" for one in found.sources if one.number in cited]
        if places:
            lines.append(quotes.quote("", "\n".join(places), label="Sources:"))
    if found.unsupported:
        lines.append(f"{len(found.unsupported)} sentences are not supported by a quote that was found.")
    return "\n\n".join([*lines, *quoted_warnings(found.warnings)])
