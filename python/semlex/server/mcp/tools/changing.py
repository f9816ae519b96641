"""Tools that change a collection; they are there only where writing is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import Field

from semlex.chat.untrusted import one_line
from semlex.ingest.files.safe_open import only_below
from semlex.server.mcp.presentation import Quotes
from semlex.server.mcp.tools.arguments import Collection
from semlex.server.mcp.tools.calls import progress_to, told
from semlex.server.mcp.tools.results import MAX_PROBLEMS, FileFailed, IndexFound, WorkDone

if TYPE_CHECKING:
    from semlex.ingest.progress import IndexReport
    from semlex.server.mcp.access import Reach

Patterns = Annotated[
    list[Annotated[str, Field(max_length=1_000)]], Field(max_length=100, description="Glob patterns such as *.md.")
]


class ChangingTools:
    """The tools; each returns structure and text.

    Args:
        reach: What they work on.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def index_folder(
        self,
        folder: Annotated[
            str,
            Field(min_length=1, max_length=4096, description="A folder or file: absolute, or below an allowed folder."),
        ],
        *,
        context: Context[Any, Any],
        collection: Annotated[
            str | None, Field(description="Name of a collection; made where there is none of that name.")
        ] = None,
        include: Annotated[Patterns | None, Field(description="Only files that fit one of them.")] = None,
        exclude: Patterns = [],  # noqa: B006 - copied by pydantic
        recursive: Annotated[bool, Field(description="Whether to enter folders below.")] = True,
        background: Annotated[
            bool, Field(description="Whether a worker does it later: returns a job for job_status.")
        ] = False,
    ) -> Annotated[CallToolResult, IndexFound]:
        """Reads files into a collection."""
        path = self._reach.access.folder(folder)
        opened = await self._reach.collection(collection, create=True)
        options: dict[str, Any] = {"include": include, "exclude": exclude, "recursive": recursive}
        name = opened.names.collection
        if background:
            job = await opened.submit("index", {"paths": [str(path)], **options})
            result = IndexFound(collection=name, folder=str(path), job_id=job.id)
            return told(result, f"Submitted as job {job.id}; a worker does it. job_status tells how far it has come.")
        async with progress_to(context) as progress:
            with only_below(self._reach.access.folders):
                report = await opened.index(path, **options, progress=progress)
        result = _index_found(name, str(path), report)
        result.warnings = [self._reach.said(warning) for warning in result.warnings]
        counts = (
            f"{result.added} documents added, {result.changed} changed, {result.unchanged} unchanged, {result.failed} "
            f"failed; {result.chunks} chunks written to {name!r}."
        )
        lines = [
            *(f"{one.code}: {one.path}: {one.message}" for one in result.problems),
            *(f"Warning: {warning}" for warning in result.warnings),
        ]
        if not lines:
            return told(result, counts)
        quotes = Quotes()  # names of files, and what a loader says of them
        return told(result, f"{counts} {quotes.head()}\n\n{quotes.quote('', chr(10).join(lines))}")

    async def optimize_search(
        self, context: Context[Any, Any], collection: Collection = None
    ) -> Annotated[CallToolResult, WorkDone]:
        """Merges the keyword index."""
        opened = await self._reach.collection(collection)
        async with progress_to(context) as progress:
            merged = await opened.optimize(progress)
        result = WorkDone(
            collection=opened.names.collection, done="segments of the keyword index merged", number=merged
        )
        return told(result, f"{merged} segments of the keyword index of {result.collection!r} were merged.")

    async def reindex_collection(
        self, context: Context[Any, Any], collection: Collection = None
    ) -> Annotated[CallToolResult, WorkDone]:
        """Makes the keyword index anew."""
        opened = await self._reach.collection(collection)
        async with progress_to(context) as progress:
            rebuilt = await opened.reindex_keyword(progress)
        result = WorkDone(
            collection=opened.names.collection, done="chunks read into a new keyword index", number=rebuilt.chunks
        )
        return told(result, f"The keyword index of {result.collection!r} was made anew from {rebuilt.chunks} chunks.")


def _index_found(collection: str, folder: str, report: IndexReport) -> IndexFound:
    return IndexFound(
        collection=collection,
        folder=folder,
        added=report.added,
        changed=report.changed,
        unchanged=report.unchanged,
        failed=report.failed,
        chunks=report.chunks,
        problems=[
            FileFailed(path=one_line(one.uri), code=one.code, message=one_line(one.message))
            for one in [*report.problems, *report.without_text][:MAX_PROBLEMS]
        ],
        warnings=[one_line(warning) for warning in report.warnings],
    )
