"""``semlex enrich``, and the question that comes before anything of it is sent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.options import INT, Yes, whole_number
from semlex.cli.output import print_lines
from semlex.cli.progress_bar import resumable
from semlex.cli.terminal import counted, inform, messages, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.progress import IndexReport
    from semlex.settings.table import Settings
    from semlex.types.reports import EnrichmentReport

Report = TypeVar("Report")


@with_context("collection", ..., *SERVER, *MODEL, "enrichment_model")
def enrich(
    context: Context,
    *,
    source: Annotated[str | None, typer.Option("--source", help="Only the chunks of this source.")] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", parser=whole_number, metavar=INT, help="Requests at the same time, 1 to 64.")
    ] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; send nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Let a language model write a line about each chunk that has none, to find it by.

    The model is sent the titles and the text of each chunk. A run that was ended is continued by the same command.
    """
    from semlex.ingest.enrichment.options import Enrichment, checked_enrichment

    settings = context.settings()
    if checked_enrichment(settings.enrichment_model) is None or settings.enrichment_model is None:
        raise ConfigurationError("say which language model writes the lines: --enrich MODEL, as for --chat-model")
    name = settings.enrichment_model
    if not dry_run:
        refuse_unasked(name, yes=yes)
    with resumable(), context.opened(settings, with_choice=True) as retriever:
        if dry_run or not yes:
            report = retriever.enrich(name, source=source, dry_run=True)
            if not (dry_run and context.as_json):
                _print_estimate(report)
            if dry_run or not _agreed(report):
                context.emit(report, lambda: None)
                return
        with context.progress() as progress:
            report = retriever.enrich(Enrichment(name, concurrency=concurrency), source=source, progress=progress)
    context.emit(report, lambda: print_lines(report))
    if lacks_lines(report):
        raise typer.Exit(SOME_FILES)


def lacks_lines(report: EnrichmentReport | None) -> bool:
    """Whether chunks got no line that they were to get."""
    return report is not None and bool(report.failed or report.left)


def refuse_unasked(model: str, *, yes: bool) -> None:
    """Refuses to ask where nobody answers, or about a model that is none."""
    from semlex.chat.openai import choose_chat_model

    choose_chat_model(model)
    if not yes and not _can_ask():
        raise ConfigurationError(
            "texts are sent to a language model, which costs, and nobody can be asked here: look with semlex enrich "
            "--dry-run, and agree with --yes"
        )


def filled(
    settings: Settings,
    fill: Callable[[Enrichment | None], Report],
    run_of: Callable[[Report], IndexReport],
    *,
    yes: bool,
) -> Report:
    """Fills a collection; where lines are wanted, says what they cost, asks, and goes on.

    Args:
        fill: Fills the collection, with or without lines; a second time it finds all as it is.
    """
    from semlex.ingest.enrichment.options import Enrichment, checked_enrichment

    name = settings.enrichment_model
    if name is None or checked_enrichment(name) is None:
        return fill(None)
    refuse_unasked(name, yes=yes)
    if yes:
        return fill(Enrichment(name))
    report = fill(Enrichment(name, dry_run=True))
    lines = run_of(report).enrichment
    if lines is not None:
        _print_estimate(lines)
        if _agreed(lines):
            run_of(report).enrichment = run_of(fill(Enrichment(name))).enrichment
    return report


def _print_estimate(report: EnrichmentReport) -> None:
    estimate = report.estimate
    if estimate is not None:
        chunks = counted(estimate.chunks, "chunk")
        messages.print(
            f"lines about {chunks}, by {escape(one_line(report.model))}: about {estimate.tokens_in:,} tokens are sent, "
            f"at most {estimate.tokens_out:,} come back, by this collection's count"
        )


def _agreed(report: EnrichmentReport) -> bool:
    if report.chunks == 0:
        inform("every chunk has its line")
        return False
    return typer.confirm("Send them?", err=True)


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
