"""The commands about background work: ``semlex submit``, ``semlex jobs``, with ``show``, ``cancel``, ``retry``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import OTHER
from semlex.cli.options import INT, SECONDS, has_command, read_input, seconds, time_with_zone, whole_number
from semlex.cli.terminal import inform, messages, one_line, output
from semlex.errors import ConfigurationError
from semlex.types.reports import DEFAULT_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.retriever.synchronous import SyncJob

jobs_app = typer.Typer(help="Show, cancel and retry jobs, which `semlex worker` does.", invoke_without_command=True)

JobId = Annotated[str, typer.Argument(help="Id of the job.", metavar="ID")]


@with_context("collection", ..., *SERVER, *MODEL, "language", "keyword")
def submit(
    context: Context,
    kind: Annotated[str, typer.Argument(help="index, sync, add, optimize, rechunk or embed.")],
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders, for index and sync.")] = None,
    *,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--arguments", metavar="JSON", help='What else it is done with: \'{"include": ["*.md"]}\'; - for stdin.'
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", parser=whole_number, metavar=INT, help="A higher one goes first.")
    ] = 0,
    unique_key: Annotated[
        str | None,
        typer.Option("--unique-key", help="While a job of this key is queued, that one is meant, and no other stored."),
    ] = None,
    not_before: Annotated[
        str | None, typer.Option("--not-before", metavar="TIME", help="When it may be begun: 2026-12-24T18:00+01:00.")
    ] = None,
    max_attempts: Annotated[
        int,
        typer.Option("--max-attempts", parser=whole_number, metavar=INT, help="After so many it has failed."),
    ] = DEFAULT_ATTEMPTS,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", parser=seconds, metavar=SECONDS, help="With --wait: how long; then exit code 7."),
    ] = None,
) -> None:
    """Leave work on a collection to a worker; prints the job's id.

    Paths are made absolute, and read by the worker, which must have been started with --allow for them.
    """
    from semlex.jobs.kinds import arguments_to_store

    if timeout is not None and not wait:
        raise ConfigurationError("--timeout says how long --wait waits: give --wait, too")
    given, begin = _read_arguments(arguments), time_with_zone("--not-before", not_before)
    if paths:
        if "paths" in given:
            raise ConfigurationError("paths stand twice, as arguments of the command and in --arguments: leave one out")
        given["paths"] = [str(path.expanduser()) for path in paths]
    arguments_to_store(kind, given)  # refused before a collection is made for it
    settings = context.with_only_collection(context.settings())
    with context.opened(settings, create=kind in ("index", "sync", "add")) as retriever:
        job = retriever.submit(
            kind,
            given,
            priority=priority,
            unique_key=unique_key,
            not_before=begin,
            max_attempts=max_attempts,
        )
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
        raise ConfigurationError(f"--arguments is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError('--arguments must be an object, such as \'{"include": ["*.md"]}\'')
    return found


def _print_submitted(job: SyncJob) -> None:
    output.print(job.id)
    if job.has_ended:
        _print_end(job)


@jobs_app.callback()
@with_context(..., "collection", *SERVER)
def jobs(
    context: Context,
    ctx: typer.Context,
    *,
    state: Annotated[
        str | None, typer.Option("--state", help="Only queued, running, done, failed or cancelled ones.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", parser=whole_number, metavar=INT, help="How many at most.")] = 100,
) -> None:
    """Show the jobs that were submitted last, the newest first; of all collections, or of --collection."""
    if has_command(ctx):
        return
    with context.client() as client:
        found = client.jobs(state=state, collection=context.collection, limit=limit)  # type: ignore[arg-type]
    context.emit([job.to_dict() for job in found], lambda: _print_jobs(found))


def _print_jobs(found: Sequence[SyncJob]) -> None:
    for job in found:
        line = f"{job.id}  {_state(job):9}  {one_line(job.kind):8}  {one_line(job.collection):24}"
        output.print(f"{escape(line)}  {escape(_more(job))}".rstrip())
    if not found:
        messages.print("no jobs: semlex submit makes one")


def _state(job: SyncJob) -> str:
    return "ending" if job.cancel_wanted and not job.has_ended else job.state


def _more(job: SyncJob) -> str:
    """What is worth a look: why it failed, how far it has come, what was done."""
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
    """Show all that is known of a job."""
    with context.client() as client:
        job = client.job(job_id)

    def print_all() -> None:
        for name, value in job.to_dict().items():
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
            if value is not None:
                output.print(f"{name:14} {escape(one_line(str(shown)))}")

    context.emit(job.to_dict(), print_all)


@jobs_app.command()
@with_context(*SERVER)
def cancel(context: Context, job_id: JobId) -> None:
    """End a job: a queued one at once, a running one soon, with whole batches only."""
    with context.client() as client:
        job = client.job(job_id).cancel()
    context.emit(job.to_dict(), lambda: inform(f"{job.id} is {_state(job)}"))


@jobs_app.command()
@with_context(*SERVER)
def retry(context: Context, job_id: JobId) -> None:
    """Put a job back into the queue that has failed, or was cancelled."""
    with context.client() as client:
        job = client.job(job_id).retry()
    context.emit(job.to_dict(), lambda: inform(f"{job.id} is {_state(job)}"))


def _print_end(job: SyncJob) -> None:
    if job.error is not None:
        messages.print(f"[red]{escape(job.state)}:[/red] {escape(one_line(job.error.message))}")
    else:
        inform(escape(f"{job.state}: {_result(job) or 'nothing to do'}"))
