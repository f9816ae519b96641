"""Routes of jobs, which a worker runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from semlex.errors import ConfigurationError
from semlex.jobs.kinds import KINDS, AllowedFolders
from semlex.options.declare import Rights
from semlex.retriever.jobs import Job
from semlex.retriever.operations import OPERATIONS
from semlex.server.problems import Problem
from semlex.server.request_context import Current, RequestContext, json_response, route
from semlex.server.routes.bodies import JOB_ID, CollectionQuery, IndexBody, JobBody
from semlex.server.tokens import ORDER
from semlex.types.jobs import JobInfo, JobState

router = APIRouter(tags=["jobs"])
MAX_LISTED = 1_000
# Kind of jobs -> the right that it needs: that of the operation whose work it is.
OF_JOBS: dict[str, Rights] = {kind: OPERATIONS["add documents" if kind == "add" else kind].rights for kind in KINDS}
JobId = Annotated[str, Path(pattern=JOB_ID)]


@route(router, "POST", "/v1/jobs", "submit job", returns=JobInfo, status=202)
async def submit(context: Current, body: JobBody) -> Response:
    """Store a job for a collection."""
    context.need(OF_JOBS[body.kind])
    options = body.given()
    for name in ("kind", "arguments", "create"):
        options.pop(name, None)
    return await _submitted(context, body.collection, body.kind, body.arguments, create=body.create, **options)


@route(router, "POST", "/v1/index", "index", returns=JobInfo, also=("/index",), status=202)
async def index(context: Current, body: IndexBody) -> Response:
    """Store a job that reads files and folders on the server's machine, below its allowed folders."""
    arguments = {name: value for name, value in body.given().items() if name != "create" and value is not None}
    return await _submitted(context, body.collection, "index", arguments, create=body.create)


async def _submitted(
    context: RequestContext, name: str | None, kind: str, arguments: dict[str, Any], *, create: bool, **given: Any
) -> Response:
    if "paths" in arguments:
        await _check_paths(context, arguments["paths"])
    collection = await context.collection(name, create=create)
    job = await collection.jobs.submit(kind, arguments, **given)
    return json_response(job.to_dict(), 202)


async def _check_paths(context: RequestContext, paths: object) -> None:
    if not isinstance(paths, list) or not all(isinstance(path, str) and "\0" not in path for path in paths):
        raise Problem(422, "paths must be a list of paths")
    try:
        folders = await asyncio.to_thread(AllowedFolders, context.state.options.allow)
        await folders.check(paths)
    except ConfigurationError:
        raise Problem(
            403,
            "a path does not exist or is outside the folders that this server may read; start the server with "
            "--allow FOLDER",
        ) from None


@route(router, "GET", "/v1/jobs", "list jobs", returns={"jobs": [JobInfo]})
async def jobs(
    context: Current,
    collection: CollectionQuery = None,
    state: JobState | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 100,
) -> Response:
    """List the newest jobs, newest first."""
    if collection is not None:
        context.check(collection)
    own = context.caller.collections
    names = [collection] if collection is not None or own is None else sorted(own)
    found = [job for name in names for job in await context.client.jobs(state=state, collection=name, limit=limit)]
    found.sort(key=lambda job: job.submitted_at, reverse=True)
    return json_response({"jobs": [job.to_dict() for job in found[:limit]]})


@route(router, "GET", "/v1/jobs/{job_id}", "get job", returns=JobInfo)
async def job(context: Current, job_id: JobId) -> Response:
    """Return a job as it is now."""
    return json_response((await _job(context, job_id)).to_dict())


@route(router, "POST", "/v1/jobs/{job_id}/cancel", "cancel job", returns=JobInfo)
async def cancel(context: Current, job_id: JobId) -> Response:
    """Cancel a job: immediately if it is queued, after its current batch if it is running."""
    return json_response((await (await _changed_job(context, job_id)).cancel()).to_dict())


@route(router, "POST", "/v1/jobs/{job_id}/retry", "retry job", returns=JobInfo)
async def retry(context: Current, job_id: JobId) -> Response:
    """Put a failed or cancelled job back into the queue."""
    return json_response((await (await _changed_job(context, job_id)).retry()).to_dict())


async def _changed_job(context: RequestContext, job_id: str) -> Job:
    """Return a job that the caller may cancel or retry; a job of an unknown kind needs the highest right."""
    found = await _job(context, job_id)
    context.need(OF_JOBS.get(found.kind, ORDER[-1]))
    return found


async def _job(context: RequestContext, job_id: str) -> Job:
    try:
        found = await context.client.job(job_id)
    except ConfigurationError:
        found = None
    # A job of a collection that the caller does not see looks like an unknown one.
    if found is None or not context.caller.sees(found.collection):
        raise Problem(404, "the job does not exist")
    return found
