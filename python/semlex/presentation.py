"""What the command line prints: results and reports for people, or one JSON object a line."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.progress import IndexReport
    from semlex.progress import Progress as Step
    from semlex.types import SearchResult, SearchResults

# Results go to stdout, everything else to stderr, so that a pipe carries results only.
output = Console(highlight=False, soft_wrap=True)
messages = Console(stderr=True, highlight=False, soft_wrap=True)

SHOWN_PROBLEMS = 20


def print_json(value: dict[str, Any]) -> None:
    """One object, one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_plain) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value)


def result_object(result: SearchResult) -> dict[str, Any]:
    """A hit as a JSON object."""
    names = [field.name for field in dataclasses.fields(result)]
    return {name: getattr(result, name) for name in names if name not in ("child_ids", "created_at", "updated_at")}


def summary_object(results: SearchResults) -> dict[str, Any]:
    """How the hits were found, as a JSON object."""
    return {
        "hits": len(results),
        "mode": results.mode,
        "requested_mode": results.requested_mode,
        "embedding_model": results.embedding_model,
        "reranker_model": results.reranker_model,
        "fusion": results.fusion,
        "leg_hits": results.leg_hits,
        "query_cached": results.query_cached,
        "timings": {name: round(milliseconds, 3) for name, milliseconds in results.timings.items()},
        "warnings": results.warnings,
    }


def print_results(results: SearchResults, *, as_json: bool) -> None:
    """Prints hits, best first, and how they were found."""
    if as_json:
        for result in results:
            print_json({"type": "hit", **result_object(result)})
        print_json({"type": "summary", **summary_object(results)})
        return
    for result in results:
        place = escape(result.source or result.id)
        if result.line is not None:
            place += f":{result.line}"
        heading = escape(" > ".join(result.heading_path))
        output.print(f"[bold]{result.rank}. {place}[/bold]" + (f"  [cyan]{heading}[/cyan]" if heading else ""))
        output.print(f"   {_scores(result)}", style="dim")
        output.print(f"   {_marked(result.excerpt)}")
    if not results:
        output.print("nothing found")
    for warning in results.warnings:
        messages.print(f"[yellow]note:[/yellow] {escape(warning)}")
    model = f" · {results.embedding_model}" if results.embedding_model else ""
    fusion = f" · fused by {results.fusion}" if results.fusion else ""
    rerank = f" · reranked by {results.reranker_model}" if results.reranker_model else ""
    timings = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in results.timings.items())
    messages.print(f"[dim]{results.mode} search{escape(model)}{fusion}{escape(rerank)} · {timings}[/dim]")


def _scores(result: SearchResult) -> str:
    parts = []
    for name, rank, score, digits in (
        ("vector", result.vector_rank, result.vector_score, 3),
        ("keyword", result.keyword_rank, result.keyword_score, 4),
    ):
        if score is not None:
            parts.append(name + (f" #{rank}" if rank is not None else "") + f" ({score:.{digits}f})")
    if result.fused_score is not None:
        by_vector, by_words = result.vector_contribution, result.keyword_contribution
        sum_of = f" = {by_vector:.3f} vector + {by_words:.3f} keyword" if by_vector is not None else ""
        parts.append(f"fused {result.fused_score:.5f}{sum_of}")
    if result.rerank_score is not None:
        parts.append(f"rerank {result.rerank_score:.3f}")
    return " · ".join(parts)


def _marked(excerpt: str) -> str:
    text = escape(re.sub(r"\s+", " ", excerpt).strip())
    return re.sub(r"\*\*(.+?)\*\*", r"[bold yellow]\1[/bold yellow]", text) if output.is_terminal else text


def print_report(report: IndexReport, *, as_json: bool) -> None:
    """Prints what an indexing run did."""
    if as_json:
        print_json(dataclasses.asdict(report))
        return
    messages.print(
        f"{report.added} new, {report.changed} changed, {report.unchanged} unchanged, {report.failed} failed; "
        f"{report.chunks} chunks written, {report.embedded} embedded, {report.seconds:.1f} s"
    )
    if report.cut:
        messages.print(
            f"[yellow]note:[/yellow] of {report.cut} chunks the model read only the beginning; fewer tokens a chunk "
            "(--chunk-tokens) would keep what it leaves out"
        )
    for problem in report.problems[:SHOWN_PROBLEMS]:
        messages.print(f"[yellow]not read:[/yellow] {escape(problem.uri)}: {escape(problem.message)}")
    if len(report.problems) > SHOWN_PROBLEMS:
        messages.print(f"… and {len(report.problems) - SHOWN_PROBLEMS} more (--json lists all)")


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Step], None] | None]:
    """A progress bar on stderr; nothing when it is no terminal or `shown` is False."""
    if not shown or not messages.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(progress: Step) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(f"{progress.stage} ({progress.unit})", total=progress.total)
            bar.update(tasks[progress.stage], completed=progress.done, total=progress.total)

        yield step
