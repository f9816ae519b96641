"""``semlex worker``: does the jobs of a database until it is stopped."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import STOPPED, on_signals
from semlex.cli.options import INT, SECONDS, seconds, whole_number
from semlex.cli.terminal import inform, one_line
from semlex.types.reports import DEFAULT_LEASE_SECONDS

if TYPE_CHECKING:
    from semlex.settings.table import Settings

# Connections of a job: it writes while it reads ahead.
CONNECTIONS_PER_JOB = 4


@with_context(..., *SERVER, *MODEL)
def worker(
    context: Context,
    *,
    concurrency: Annotated[
        int, typer.Option("--concurrency", parser=whole_number, metavar=INT, help="Most jobs at a time.")
    ] = 1,
    allow: Annotated[
        list[Path] | None,
        typer.Option("--allow", help="Folder that jobs may read, with all below it; repeatable; default: none."),
    ] = None,
    allow_model: Annotated[
        list[str] | None,
        typer.Option("--allow-model", help="Model that jobs may change a collection to; repeatable; default: none."),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End when no job is left that may be begun.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End after one job.")] = False,
    lease: Annotated[
        float,
        typer.Option(
            "--lease",
            parser=seconds,
            metavar=SECONDS,
            help="Time after which a job of a silent worker goes on elsewhere.",
        ),
    ] = DEFAULT_LEASE_SECONDS,
    keep_days: Annotated[
        int,
        typer.Option("--keep-days", parser=whole_number, metavar=INT, help="Days for which ended jobs are kept."),
    ] = 7,
) -> None:
    """Do the jobs of all collections, one after another, until it is stopped; start as many as you like.

    Ctrl-C, or SIGTERM, lets running jobs come to the end of their batch, and gives them back; a second one ends it at
    once. Models are those of this command's options and settings, and of the collections.
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
        "tell": lambda line: inform(escape(one_line(line))),
    }
    received = asyncio.run(_work(context.settings(), options))
    if received == signal.SIGINT:
        raise typer.Exit(STOPPED + received)


async def _work(settings: Settings, options: dict[str, Any]) -> int | None:
    """Works until it is done or stopped; returns the signal that has stopped it."""
    import asyncio

    from semlex.retriever.client import Client

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    received: list[int] = []

    def end() -> None:
        inform("stopping: running jobs come to the end of their batch; once more ends it at once")
        task.cancel()

    on_signals(received, end)  # after a second one, what was running goes on elsewhere when its lease is over
    given = settings.retriever_options
    for name in ("collection", "calibration"):  # a client has many; jobs do not search
        del given[name]
    given["max_connections"] = max(8, CONNECTIONS_PER_JOB * options["concurrency"] + 2)
    try:
        async with Client(**given) as client:
            await client.work(**options)
    except asyncio.CancelledError:
        if not received:
            raise
    return received[0] if received else None
