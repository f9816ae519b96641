"""Kill, crash and overload semlex on a server, then check that nothing stored is lost or wrong."""

from __future__ import annotations

import logging
import math
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import Context, with_context
from semlex.cli.exit_codes import INTERRUPTED, OTHER, STOPPED
from semlex.cli.options import NUMBER, integer, reader
from semlex.cli.output import check_place, write_page
from semlex.cli.terminal import counted, inform, is_quiet, messages, one_line, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.proof.report import ProofReport

MINUTES = 5.0
NEWS_SECONDS = 15.0  # between two lines of progress where no line can be replaced
positive = reader(float, "a number above 0", lambda value: 0 < value < math.inf)


@with_context("database_url")
def prove(
    context: Context,
    *,
    minutes: Annotated[
        float | None, typer.Option(parser=positive, metavar=NUMBER, help="How long it runs. Default: 5.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(parser=positive, metavar=NUMBER, help="How long it runs, in hours.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Scenarios or groups of them, separated by commas, such as kill,crash."),
    ] = None,
    seed: Annotated[int, integer("Seed of the random choices of the scenarios.", between=(0,))] = 1,
    schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="Schema that is made and removed. Default: semlex_proof.")
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as an HTML page as well.")] = None,
) -> None:
    """Kill, crash and overload semlex on a server, then check that nothing stored is lost or wrong.

    With --database, it works on your server, in its own schema, which must not exist and is removed afterwards; else
    on a new embedded server. Your collections are not touched, but the server is busy meanwhile. Scenarios that crash
    servers or fill disks run only on servers that semlex starts itself.

    The exit code is 1 if anything was lost, doubled or wrong, or a call hung.
    """
    from semlex.proof import children
    from semlex.proof.report import html_page
    from semlex.proof.run import NEEDS_OWN, Proof, chosen
    from semlex.proof.scenarios import SCHEMA, Site

    if minutes is not None and hours is not None:
        raise ConfigurationError("--minutes and --hours exclude each other: give one of them")
    if page is not None:
        check_place(page, "--page")
    seconds = 3600 * hours if hours is not None else 60 * (minutes or MINUTES)
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise ConfigurationError("--only names no scenario: give names separated by commas, such as kill,crash")
    kinds = chosen(names)
    settings = context.settings()
    if settings.database_url is not None and all(kind.own_server for kind in kinds):
        raise ConfigurationError(f"--only: {kinds[0].name} {NEEDS_OWN}")
    children.preload()
    with (
        quiet_log(),
        ending_at_sigterm() as received,
        Site(settings.database_url, SCHEMA if schema is None else schema) as site,
    ):
        with messages.status("") as status:
            news = News(seconds, status if messages.is_terminal else None)
            report = Proof(site, kinds, seed=seed, seconds=seconds, tell=news.tell).run()
        # Before the schema is dropped, which fails if the server is gone.
        found = report.to_dict()
        context.emit(found, lambda: _print(found))
        if page is not None:
            write_page(page, html_page(found), "--page")
    if page is not None and not context.as_json:
        inform(f"[dim]written: {escape(one_line(str(page)))}[/dim]")
    if report.interrupted:
        raise typer.Exit(STOPPED + received[0] if received else INTERRUPTED)
    if not report.passed:
        raise typer.Exit(OTHER)


@contextmanager
def quiet_log() -> Iterator[None]:
    """Keep the warnings that scenarios provoke off the terminal; the report lists the faults."""
    logger = logging.getLogger("semlex")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def ending_at_sigterm() -> Iterator[list[int]]:
    """Let SIGTERM end the proof as Ctrl-C does, and yield the received signals."""
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    except KeyboardInterrupt:
        if received:
            raise typer.Exit(STOPPED + received[0]) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


class News:
    """Shows progress on stderr: on a terminal one line that is replaced, else a line from time to time."""

    def __init__(self, seconds: float, status: Any) -> None:
        self._seconds, self._status, self._told = seconds, status, time.monotonic()
        self._said_end = False

    def tell(self, report: ProofReport, passed: float) -> None:
        """Show how far the proof is."""
        if report.interrupted:
            if not self._said_end:
                self._said_end = True
                inform("interrupted: waiting for the tries that have begun; Ctrl-C again ends them")
            return
        left = max(0, round(self._seconds - passed))
        faults = f"[red]{counted(report.faults, 'fault')}[/red]" if report.faults else "no fault"
        line = f"{counted(report.tries, 'try', 'tries')}, {counted(report.kills, 'kill')}, {faults}; "
        line += f"{left // 60}:{left % 60:02} left"
        if self._status is not None:
            if not is_quiet():
                self._status.update(line)
        elif time.monotonic() - self._told > NEWS_SECONDS:
            self._told = time.monotonic()
            inform(line)


def _print(report: dict[str, Any]) -> None:
    from semlex.proof.report import verdict

    heads = ("tries", "kills", "lost", "doubled", "wrong", "hung")
    width = max(len(name) for name in (*report["not_run"], *(one["name"] for one in report["scenarios"]))) + 2
    output.print(f"[bold]{'scenario':{width}}{''.join(f'{head:>9}' for head in heads)}[/bold]")
    for one in report["scenarios"]:
        numbers = "".join(f"{one[head]:9,}" for head in heads)
        is_bad = any(one[head] for head in heads[2:])
        output.print(f"[red]{one['name']:{width}}{numbers}[/red]" if is_bad else f"{one['name']:{width}}{numbers}")
    for one in report["scenarios"]:
        for fault in one["faults"]:
            output.print(escape(f"{one['name']}: {fault['kind']} in try {fault['try']}: {fault['what']}"))
    for name, why in report["not_run"].items():
        output.print(f"[dim]{name:{width}}not run: it {escape(why)}[/dim]")
    names = ("postgres", "pgvector", "fsync", "semlex", "python", "cores")
    facts = ", ".join(f"{name} {report['versions'].get(name, '?')}" for name in names)
    output.print(f"{escape(report['server'])}: {escape(facts)}")
    output.print(f"vectors: {report['vectors']}")
    color = "green" if report["passed"] else "red"
    counts = f"{counted(report['tries'], 'try', 'tries')} and {counted(report['kills'], 'kill')}"
    output.print(
        f"[{color}]{verdict(report)}[/{color}]: {counts} in {report['seconds'] / 60:.1f} minutes "
        f"({report['kills_per_minute']:g} kills a minute), seed {report['seed']}"
    )
