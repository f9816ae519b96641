"""Leave work to `semlex worker`: submit, list, show, cancel and retry jobs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, NEW, SERVER, Context, with_context
from semlex.cli.exit_codes import OTHER, STOPPED, on_signals
from semlex.cli.groups import group_with_default
from semlex.cli.options import Allowed, Flags, duration, integer, read_input
from semlex.cli.output import json_text, print_lines
from semlex.cli.terminal import inform, messages, one_line, output
from semlex.errors import ConfigurationError
from semlex.types.followed import DEFAULT_COMPARE_SECONDS
from semlex.types.jobs import DEFAULT_LEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.retriever.synchronous import SyncJob
    from semlex.settings.table import Settings


jobs_app = typer.Typer(help=__doc__, cls=group_with_default("list"))


JobId = Annotated[str, typer.Argument(help="Id of the job.", metavar="ID")]


@jobs_app.command()
@with_context("collection", ..., *SERVER, *MODEL, *NEW)
def submit(
    context: Context,
    kind: Annotated[str, typer.Argument(help="index, sync, add, optimize, rechunk, embed or reembed.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders, for index and sync.")] = None,
    *,
    arguments: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='More arguments of the job: \'{"include": ["*.md"]}\'; - for stdin.'),
    ] = None,
    options: Annotated[dict[str, Any], Flags("options.indexing:JobOptions")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[float | None, duration("With --wait: maximum time; then the exit code is 7.")] = None,
) -> None:
    """Submit work on a collection as a job, and print its id.

    A worker reads the paths; it must have been started with --allow for them.
    """
    from semlex.jobs.kinds import arguments_to_store

    if timeout is not None and not wait:
        raise ConfigurationError("--timeout needs --wait: add it")
    given = _read_arguments(arguments)
    if paths:
        if "paths" in given:
            raise ConfigurationError(
                "paths are given twice, as arguments of the command and in --arguments: leave one out"
            )
        given["paths"] = [str(path.expanduser()) for path in paths]
    arguments_to_store(kind, given)  # refused before a collection is made for it
    settings = context.with_only_collection(context.settings())
    with context.opened(settings, create=kind in ("index", "sync", "add")) as retriever:
        job = retriever.jobs.submit(kind, given, **options)
        if wait:
            job = job.wait(timeout)
    context.emit(job.to_dict(), lambda: _print_submitted(job))
    if job.state in ("failed", "cancelled"):
        raise typer.Exit(OTHER)


def _read_arguments(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(read_input() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"--arguments is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError('--arguments must be an object, such as \'{"include": ["*.md"]}\'')
    return found


def _print_submitted(job: SyncJob) -> None:
    output.print(job.id)
    if job.has_ended:
        _print_end(job)


@jobs_app.command("list")
@with_context(..., "collection", *SERVER)
def jobs(
    context: Context,
    *,
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state: queued, running, done, failed or cancelled.")
    ] = None,
    limit: Annotated[int, integer("Maximum number of jobs.")] = 100,
) -> None:
    """List jobs, the newest first, of all collections or of one."""
    with context.client() as client:
        found = client.jobs(state=state, collection=context.collection, limit=limit)  # type: ignore[arg-type]
    context.emit([job.to_dict() for job in found], lambda: _print_jobs(found))


def _print_jobs(found: Sequence[SyncJob]) -> None:
    for job in found:
        line = f"{job.id}  {_state(job):9}  {one_line(job.kind):8}  {one_line(job.collection):24}"
        output.print(f"{escape(line)}  {escape(_more(job))}".rstrip())
    if not found:
        messages.print("no jobs: semlex jobs submit makes one")


def _state(job: SyncJob) -> str:
    return "ending" if job.cancel_wanted and not job.has_ended else job.state


def _more(job: SyncJob) -> str:
    """Return the most useful detail of a job: why it failed, its progress, or its result."""
    if job.error is not None:
        return f"attempt {job.attempts} of {job.max_attempts}: {one_line(job.error.message)}"
    if job.progress is not None and not job.has_ended:
        total = "" if job.progress.total is None else f" of {job.progress.total:,}"
        return one_line(f"{job.progress.stage}: {job.progress.done:,}{total} {job.progress.unit}")
    return _result(job)


def _result(job: SyncJob) -> str:
    counts = {name: value for name, value in (job.result or {}).items() if isinstance(value, int)}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


@jobs_app.command()
@with_context(*SERVER)
def show(context: Context, job_id: JobId) -> None:
    """Show everything about a job."""
    with context.client() as client:
        found = client.job(job_id).to_dict()
    nested = {name: json_text(one) for name, one in found.items() if isinstance(one, (dict, list))}
    context.emit(found, lambda: print_lines(found | nested, 14))


@jobs_app.command()
@with_context(*SERVER)
def cancel(context: Context, job_id: JobId) -> None:
    """Cancel a job: a queued job immediately, a running job after its current batch."""
    with context.client() as client:
        job = client.job(job_id).cancel()
    context.emit(job.to_dict(), lambda: inform(f"{job.id} is {_state(job)}"))


@jobs_app.command()
@with_context(*SERVER)
def retry(context: Context, job_id: JobId) -> None:
    """Queue a failed or cancelled job again."""
    with context.client() as client:
        job = client.job(job_id).retry()
    context.emit(job.to_dict(), lambda: inform(f"{job.id} is {_state(job)}"))


def _print_end(job: SyncJob) -> None:
    if job.error is not None:
        messages.print(f"[red]{escape(job.state)}:[/red] {escape(one_line(job.error.message))}")
    else:
        inform(escape(f"{job.state}: {_result(job) or 'nothing to do'}"))


# Connections of a job, and of a run over a table: it writes while it reads ahead. Beside jobs, tables are compared and
# their changes are stored.
CONNECTIONS_PER_JOB = 4


@with_context(..., *SERVER, *MODEL)
def worker(
    context: Context,
    *,
    concurrency: Annotated[int, integer("Maximum number of jobs, and of tables, at a time.")] = 1,
    allow: Allowed = None,
    allow_model: Annotated[
        list[str] | None, typer.Option(help="Model that jobs may change a collection to; repeatable; default: none.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End when no job can be started and no table is due.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End after one job.")] = False,
    lease: Annotated[
        float, duration("Time without a sign of life from a worker, after which another worker takes over its job.")
    ] = DEFAULT_LEASE_SECONDS,
    keep_days: Annotated[int, integer("Days to keep ended jobs.")] = 7,
    compare_every: Annotated[
        float, duration("Time between two comparisons of a table that is followed by comparison.")
    ] = DEFAULT_COMPARE_SECONDS,
) -> None:
    """Run jobs and keep followed tables in step, for all collections, until stopped; start as many as you like.

    Ctrl-C or SIGTERM lets running jobs finish their batch and returns them to the queue; a second one ends the worker
    immediately. Jobs use the models that the options, the settings and the collections name.
    """
    import asyncio

    options: dict[str, Any] = {
        "concurrency": concurrency,
        "allow": [path.expanduser() for path in allow or ()],
        "models": allow_model or [],
        "drain": drain,
        "limit": 1 if once else None,
        "lease": lease,
        "keep_days": keep_days,
        "compare_every": compare_every,
        "tell": lambda line: inform(escape(one_line(line))),
    }
    received = asyncio.run(_work(context.settings(), options))
    if received == signal.SIGINT:
        raise typer.Exit(STOPPED + received)


async def _work(settings: Settings, options: dict[str, Any]) -> int | None:
    """Work until all is done or a signal stops it; return that signal, or None."""
    import asyncio

    from semlex.retriever.client import Client

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    received: list[int] = []

    def end() -> None:
        inform("stopping: running jobs finish their batch; a second Ctrl-C stops immediately")
        task.cancel()

    on_signals(received, end)  # after a second one, what was running goes on elsewhere when its lease is over
    connections = 3 * CONNECTIONS_PER_JOB * options["concurrency"] + 2
    try:
        async with Client(**settings.client_options, max_connections=connections) as client:
            if not options["drain"] and options["limit"] is None:
                inform("waiting for jobs and changed rows; Ctrl-C stops")
            await client.work(**options)
    except asyncio.CancelledError:
        if not received:
            raise
    return received[0] if received else None
