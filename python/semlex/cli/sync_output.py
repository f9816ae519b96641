"""What a synchronisation says: the plan, and what was done."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_json, print_note, print_notes
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.ingest.document_states import Documents
    from semlex.ingest.progress import SyncCounts, SyncPlan, SyncReport

SHOWN_NAMES = 20


def print_sync(report: SyncReport, *, as_json: bool) -> None:
    """Prints what was done; of a dry run what would be."""
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
        print_note(f"not all went as planned, for a file could not be read or changed meanwhile; planned: {planned}")
    if report.plan.left_out:
        shown = ", ".join(one_line(name.uri) for name in report.plan.left_out[:SHOWN_NAMES])
        count = counted(len(report.plan.left_out), "document")
        print_note(
            f"{count} of files that are left out now, by a pattern or an ignore file, stay: {shown}; semlex delete "
            "--document PATH removes one"
        )
    if report.plan.kept:
        print_note(f"{counted(len(report.plan.kept), 'document')} without a file: kept, as was asked for")
    print_notes(run)


def print_documents(found: Documents, *, as_json: bool) -> None:
    """Prints documents, then what the last run could not read."""
    if as_json:
        for one in found.documents:
            print_json({"type": "document", **asdict(one)})
        for problem in found.problems:
            print_json({"type": "problem", **problem})
        return
    for one in found.documents:
        written = f"{one.written_at:%Y-%m-%d %H:%M}"
        encoding = f"  {one.encoding}" if one.encoding else ""
        name = escape(one_line(f"{one.source}: {one.uri}"))
        output.print(f"{one.state:8}{counted(one.chunks, 'chunk'):>12}  {written}  {name}{escape(encoding)}")
    if not found.documents:
        messages.print("no documents were read from files: semlex index FOLDER reads some")
    for problem in found.problems:
        name, code = one_line(problem["uri"]), one_line(problem["code"])
        messages.print(f"[yellow]not read by the last run:[/yellow] {escape(name)}: {escape(code)}")


def _told(counts: SyncCounts) -> str:
    return (
        f"{counts.added:,} added, {counts.changed:,} changed, {counts.moved:,} moved, {counts.deleted:,} deleted, "
        f"{counts.unchanged:,} unchanged"
    )


def _lines(plan: SyncPlan) -> Iterator[str]:
    for what, names in (("add", plan.added), ("change", plan.changed), ("delete", plan.deleted)):
        for name in names:
            yield f"{what:8}{escape(one_line(f'{name.source}: {name.uri}'))}"
    for move in plan.moved:
        yield f"{'move':8}{escape(one_line(f'{move.source}: {move.old} -> {move.new}'))}"
