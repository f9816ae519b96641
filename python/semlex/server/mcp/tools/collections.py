"""Tools that tell what there is: collections, their figures and fields, and jobs."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

from mcp.types import CallToolResult
from pydantic import Field

from semlex.chat.untrusted import one_line
from semlex.errors import ConfigurationError
from semlex.server.mcp.presentation import NOTICE, Budget, Quotes, cleaned
from semlex.server.mcp.tools.arguments import Collection
from semlex.server.mcp.tools.calls import told
from semlex.server.mcp.tools.results import (
    MAX_PROBLEMS,
    CollectionFound,
    CollectionsFound,
    CollectionStats,
    FieldFound,
    FieldsFound,
    FileFailed,
    JobFound,
    JobsFound,
)

if TYPE_CHECKING:
    from semlex.server.mcp.access import Reach
    from semlex.types.fields import FieldSummary
    from semlex.types.reports import JobInfo

MAX_COLLECTIONS = 300
MAX_FIELDS = 200
MAX_VALUES = 10
MAX_VALUE = 100
MAX_JOBS = 20
# So many are looked through for those of collections within reach.
LISTED_JOBS = 1_000


class CollectionTools:
    """The tools; each returns structure and text.

    Args:
        reach: What they work on.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def list_collections(self) -> Annotated[CallToolResult, CollectionsFound]:
        """The collections within reach."""
        access = self._reach.access
        counted = [one for one in await self._reach.client.count_collections() if access.sees(one.name)]
        result = CollectionsFound(
            collections=[
                CollectionFound(
                    name=one.name,
                    documents=one.documents,
                    chunks=one.chunks,
                    estimated=one.estimated,
                    embedding_model=one.embedding_model,
                    language=one.language,
                )
                for one in counted[:MAX_COLLECTIONS]
            ],
            complete=len(counted) <= MAX_COLLECTIONS,
            writes=access.may("write"),
            folders=[str(folder) for folder in access.folders],
        )
        lines = [
            f"{one.name}: {_count(one.documents)} documents, {_count(one.chunks)} chunks" for one in result.collections
        ]
        lines += [] if result.complete else [f"... and {len(counted) - MAX_COLLECTIONS:,} more"]
        return told(result, "\n".join(lines) or "There are no collections yet.")

    async def collection_stats(self, collection: Collection = None) -> Annotated[CallToolResult, CollectionStats]:
        """Figures of a collection."""
        opened = await self._reach.collection(collection)
        found = await opened.status()
        run = found.last_run
        result = CollectionStats(
            collection=found.collection,
            documents=found.documents,
            chunks=found.chunks,
            tokens=found.tokens,
            sources=found.sources,
            estimated=found.estimated,
            embedding_model=found.embedding_model,
            embedded=found.embedded,
            keyword=found.keyword,
            language=found.language,
            keyword_segments=found.index_segments,
            keyword_problem=found.index_problem,
            last_run=None if run is None else run.finished_at or run.started_at,
        )
        return told(result, "\n".join(f"{name}: {value}" for name, value in result if value is not None))

    async def list_fields(
        self,
        collection: Collection = None,
        values: Annotated[bool, Field(description="Whether to show the most frequent values, too.")] = False,
    ) -> Annotated[CallToolResult, FieldsFound]:
        """What filters can name."""
        opened = await self._reach.collection(collection)
        found = await opened.fields(values=values)
        budget = Budget()
        fields = [_field(one) for one in found[:MAX_FIELDS]]
        fields = list(takewhile(lambda one: budget.take(one.name, *map(str, one.values)), fields))
        result = FieldsFound(
            notice=NOTICE,
            collection=opened.names.collection,
            fields=fields,
            chunks=found.chunks,
            complete=found.are_all and not found.left_out and len(found) == len(fields),
        )
        lines = [
            f"{one.name}: {', '.join(one.types)}"
            + (f"; for example {', '.join(map(str, one.values))}" if one.values else "")
            for one in result.fields
        ]
        quotes = Quotes()
        quoted = quotes.quote(f"Fields of {result.collection!r}", "\n".join(lines), is_cut=not result.complete)
        return told(result, f"{quotes.head()}\n\n{quoted}")

    async def job_status(
        self,
        job_id: Annotated[
            str | None, Field(description="Of index_folder; left out: the newest jobs.", max_length=100)
        ] = None,
    ) -> Annotated[CallToolResult, JobsFound]:
        """One job, or the newest ones."""
        access = self._reach.access
        if job_id is None:
            listed = await self._reach.client.jobs(limit=LISTED_JOBS)
            jobs = [job for job in listed if access.sees(job.collection)][:MAX_JOBS]
        else:
            job = await self._reach.client.job(job_id)
            if not access.sees(job.collection):
                raise ConfigurationError(f"there is no job {job_id!a}")
            jobs = [job]
        result = JobsFound(jobs=[_job(job) for job in jobs])
        lines = [
            f"{one.id}: {one.kind} of {one.collection!r}: {one.state}" + (f" ({one.progress})" if one.progress else "")
            for one in result.jobs
        ]
        errors = [f"{one.id}: {one.error}" for one in result.jobs if one.error]
        errors += [f"{one.id}: {bad.path}: {bad.code}" for one in result.jobs for bad in one.problems]
        if errors:  # they name files
            quotes = Quotes()
            lines += ["", quotes.head(), "", quotes.quote("", "\n".join(errors), label="Errors:")]
        return told(result, "\n".join(lines) or "There are no jobs.")


def _field(one: FieldSummary) -> FieldFound:
    values = [value[:MAX_VALUE] if isinstance(value, str) else value for value in one.values[:MAX_VALUES]]
    return FieldFound(
        name=one_line(one.name), types=one.types, indexed=list(one.indexed), values=[cleaned(value) for value in values]
    )


def _job(job: JobInfo) -> JobFound:
    progress, done = job.progress, job.result or {}
    of = "" if progress is None or progress.total is None else f" of {progress.total:,}"
    return JobFound(
        id=job.id,
        kind=job.kind,
        collection=job.collection,
        state=job.state,
        attempts=job.attempts,
        progress=None if progress is None else f"{progress.stage}: {progress.done:,}{of} {progress.unit}",
        error=None if job.error is None else f"{job.error.code}: {job.error.message}",
        result=None
        if job.result is None
        else {name: value for name, value in job.result.items() if isinstance(value, int)},
        problems=[
            FileFailed(path=one_line(one["uri"]), code=one["code"]) for one in done.get("problems", [])[:MAX_PROBLEMS]
        ],
        submitted_at=job.submitted_at,
        finished_at=job.finished_at,
    )


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
