"""Reports of indexing and syncs, as text or JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_json, print_note
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from semlex.ingest.progress import EnrichmentReport, IndexReport, SyncCounts, SyncPlan, SyncReport
    from semlex.types.followed import TableSync


# Kinds of files, and names of generated ones, that are named; the others are only counted.
SHOWN_KINDS = 6
_SAID = {"ignored": "by .gitignore", "bad_text": "with bad text"}


def skipped_line(skipped: Mapping[str, Mapping[str, int]]) -> str:
    """Return how many files were left out, by reason."""
    from semlex.ingest.loaders.registry import WITH_EXTRA

    formats = skipped.get("format", {})
    by_extra: dict[str, dict[str, int]] = {}
    for suffix, count in formats.items():
        by_extra.setdefault(WITH_EXTRA.get(suffix.removeprefix("."), ""), {})[suffix] = count
    parts = []
    for extra, counts in sorted(by_extra.items(), reverse=True):  # those without an extra come last
        reads = f' (pip install "semlex[{extra}]" reads them)' if extra else ""
        parts.append(_counts(counts) + reads)
    for reason in sorted(skipped.keys() - {"format"}, key=lambda one: (one != "ignored", one)):
        left_out = skipped[reason]
        said = _SAID.get(reason, reason)
        names = f" ({_names(left_out)})" if reason == "generated" else ""
        parts.append(f"{sum(left_out.values()):,} {said}{names}")
    return f"skipped: {', '.join(parts)}"


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{count:,} {suffix}" for suffix, count in ordered[:SHOWN_KINDS]]
    if rest := sum(count for _, count in ordered[SHOWN_KINDS:]):
        shown.append(f"{rest:,} of other kinds")
    return ", ".join(shown)


def _names(counts: Mapping[str, int]) -> str:
    return ", ".join([*sorted(counts)[:SHOWN_KINDS], *(["…"] if len(counts) > SHOWN_KINDS else [])])


SHOWN_NAMES = 20


def print_sync(report: SyncReport, *, as_json: bool) -> None:
    """Print what a sync did; for a dry run, what it would do."""
    if as_json:
        print_json(asdict(report))
        return
    run = report.run
    if report.dry_run:
        for line in _lines(report.plan):
            output.print(line)
        messages.print(f"would be done: {_told(report.plan.counts())}")
    else:
        inform(
            f"{_told(report.done)}, {run.failed:,} failed; {counted(run.chunks, 'chunk')} written, "
            f"{run.embedded:,} embedded, {run.seconds:.1f} s"
        )
    if report.differs:
        planned = _told(report.plan.counts())
        print_note(f"the plan was not followed fully, because a file changed or could not be read; planned: {planned}")
    if report.plan.left_out:
        shown = ", ".join(one_line(name.source_document) for name in report.plan.left_out[:SHOWN_NAMES])
        count = counted(len(report.plan.left_out), "document")
        print_note(
            f"{count} of files that a pattern or an ignore file now excludes were kept: {shown}; "
            "semlex delete PATH removes one"
        )
    if report.plan.kept:
        print_note(f"{counted(len(report.plan.kept), 'document')} without a file: kept (--keep-deleted)")
    print_notes(run)


def _told(counts: SyncCounts) -> str:
    return (
        f"{counts.added:,} added, {counts.changed:,} changed, {counts.moved:,} moved, {counts.deleted:,} deleted, "
        f"{counts.unchanged:,} unchanged"
    )


def _lines(plan: SyncPlan) -> Iterator[str]:
    for what, names in (("add", plan.added), ("change", plan.changed), ("delete", plan.deleted)):
        for name in names:
            yield f"{what:8}{escape(one_line(f'{name.source}: {name.source_document}'))}"
    for move in plan.moved:
        yield f"{'move':8}{escape(one_line(f'{move.source}: {move.old} -> {move.new}'))}"


SHOWN_PROBLEMS = 20


def print_table_sync(report: TableSync, *, as_json: bool) -> None:
    """Print what a sync of a followed table did; for a dry run, what it would do."""
    if as_json:
        print_json(asdict(report))
        return
    name = escape(one_line(report.name))
    unchanged = "" if report.unchanged is None else f", {report.unchanged:,} unchanged"
    rows = (
        f"{name}: {report.added:,} added, {report.changed:,} changed, {report.refreshed:,} with other metadata, "
        f"{report.deleted:,} deleted{unchanged}"
    )
    if report.dry_run:
        messages.print(f"would be done: {rows}")
    else:
        inform(
            f"{rows}, {report.failed:,} failed; {counted(report.chunks, 'chunk')} written, {report.embedded:,} "
            f"embedded, {report.seconds:.1f} s"
        )
    for warning in report.warnings:
        print_note(one_line(warning))
    for problem in report.problems[:SHOWN_PROBLEMS]:
        line = one_line(f"{report.name}/{problem.key}: {problem.message}")
        messages.print(f"[yellow]not stored:[/yellow] {escape(line)}")
    if report.failed > SHOWN_PROBLEMS:
        messages.print(f"… and {report.failed - SHOWN_PROBLEMS} more (semlex follow --list shows them)")


def print_report(report: IndexReport, *, as_json: bool) -> None:
    """Print what an indexing run did."""
    if as_json:
        print_json(asdict(report))
        return
    inform(
        f"{report.added:,} new, {report.changed:,} changed, {report.unchanged:,} unchanged, {report.failed:,} failed; "
        f"{counted(report.chunks, 'chunk')} written, {report.embedded:,} embedded, {report.seconds:.1f} s"
    )
    if not (report.added or report.changed or report.unchanged or report.failed or report.vanished):
        print_note("no file was found there that could be read: see --include and --exclude")
    for source, count in report.vanished.items():
        gone = "is gone; its chunks" if count == 1 else "are gone; their chunks"
        remedy = f"semlex delete --source {shlex.quote(source)} --vanished"
        print_note(f"{counted(count, 'file')} of {one_line(source)} {gone} can be found until deleted: {remedy}")
    print_notes(report)


def print_lines(report: EnrichmentReport) -> None:
    """Print how many chunks a language model has described."""
    usage = report.usage
    if usage.prompt_tokens is not None and usage.completion_tokens is not None:
        told = f"; {usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"
    else:
        told = ""
    chunks = counted(report.chunks, "chunk")
    inform(f"{report.written:,} of {chunks} described by {escape(one_line(report.model))}{told}")
    if lacking := report.failed + report.left:
        not_asked = f", {report.left:,} of them not tried" if report.left else ""
        reason = one_line(report.first_failure or "")
        print_note(
            f"{counted(lacking, 'chunk')} got no description{not_asked}: {reason}; semlex maintain enrich tries again"
        )


def print_notes(report: IndexReport) -> None:
    """Print notes about an indexing run or sync to stderr: repaired files, cut chunks, documents to cut again."""
    if report.skipped:
        inform(escape(one_line(skipped_line(report.skipped))))
    if report.repaired:
        characters = counted(report.repaired_characters, "character")
        print_note(f"{characters} of {counted(report.repaired, 'file')} could not be read, and became U+FFFD")
    if report.cut:
        print_note(
            f"{counted(report.cut, 'chunk')} exceeded the model's limit: only the beginning was embedded; "
            "choose smaller chunks (--chunk-tokens)"
        )
    if report.outdated:
        was = "was" if report.outdated == 1 else "were"
        print_note(
            f"{counted(report.outdated, 'document')} {was} cut by an older version; a preview of cutting them again: "
            "semlex maintain rechunk --dry-run"
        )
    if report.enrichment is not None and report.enrichment.estimate is None:
        print_lines(report.enrichment)
    elif report.lines_kept:
        chunks, keep = counted(report.lines_kept, "chunk"), "keeps" if report.lines_kept == 1 else "keep"
        print_note(
            f"{chunks} {keep} the stored description; new chunks have none: semlex maintain enrich describes them"
        )
    for warning in report.warnings:
        print_note(one_line(warning))
    print_problems(report)


def print_problems(report: IndexReport) -> None:
    """Print to stderr which files could not be read, and which have no text."""
    for title, problems in (("not read", report.problems), ("not found by any search", report.without_text)):
        for problem in problems[:SHOWN_PROBLEMS]:
            line = one_line(f"{problem.source_document}: {problem.message}")
            messages.print(f"[yellow]{title}:[/yellow] {escape(line)}")
        if len(problems) > SHOWN_PROBLEMS:
            messages.print(f"… and {len(problems) - SHOWN_PROBLEMS} more (--json lists all)")
