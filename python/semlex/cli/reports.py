"""Reports of indexing and syncs as text, and of checkups as text or as an HTML page without scripts."""

from __future__ import annotations

import shlex
from html import escape as html
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_note
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from semlex.ingest.progress import EnrichmentReport, IndexReport, SyncCounts, SyncPlan, SyncReport
    from semlex.types.answers import Usage
    from semlex.types.checkups import AskedHeading, Checkup, CheckupCode, DocumentCheckup, LeftOut, Share
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
    parts = [
        _counts(counts) + (f' (to read them: pip install "semlex[{extra}]")' if extra else "")
        for extra, counts in sorted(by_extra.items(), reverse=True)  # those without an extra come last
    ]
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


def print_sync(report: SyncReport) -> None:
    """Print what a sync did; for a dry run, what it would do."""
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
        shown = ", ".join(name.source_document for name in report.plan.left_out[:SHOWN_NAMES])
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


def print_table_sync(report: TableSync) -> None:
    """Print what a sync of a followed table did; for a dry run, what it would do."""
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
    print_note(*report.warnings)
    lines = [f"{report.name}/{problem.key}: {problem.message}" for problem in report.problems]
    _print_first("not stored", lines, report.failed, "semlex follow --list shows them")


def _print_first(title: str, lines: Sequence[str], number: int, remedy: str) -> None:
    """Print the first lines to stderr, each after the title; if there are more, how many and how to see them."""
    for line in lines[:SHOWN_PROBLEMS]:
        messages.print(f"[yellow]{title}:[/yellow] {escape(one_line(line))}")
    if number > SHOWN_PROBLEMS:
        messages.print(f"… and {number - SHOWN_PROBLEMS} more ({remedy})")


def print_report(report: IndexReport) -> None:
    """Print what an indexing run did."""
    inform(
        f"{report.added:,} new, {report.changed:,} changed, {report.unchanged:,} unchanged, {report.failed:,} failed; "
        f"{counted(report.chunks, 'chunk')} written, {report.embedded:,} embedded, {report.seconds:.1f} s"
    )
    if not (report.added or report.changed or report.unchanged or report.failed or report.vanished):
        print_note("no file that can be read was found in these paths: see --include and --exclude")
    for source, count in report.vanished.items():
        gone = "is gone; its chunks" if count == 1 else "are gone; their chunks"
        remedy = f"semlex delete --source {shlex.quote(source)} --vanished"
        print_note(f"{counted(count, 'file')} of {source} {gone} can be found until deleted: {remedy}")
    print_notes(report)


def usage_words(usage: Usage) -> str:
    """Return how many tokens a language model read and wrote; "" if its server does not report that."""
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        return ""
    return f"{usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"


def print_enrichment(report: EnrichmentReport) -> None:
    """Print how many chunks a language model has described."""
    chunks, used = counted(report.chunks, "chunk"), usage_words(report.usage)
    used = f"; {used}" if used else ""
    inform(f"{report.written:,} of {chunks} described by {escape(one_line(report.model))}{used}")
    if lacking := report.failed + report.left:
        not_asked = f", {report.left:,} of them not tried" if report.left else ""
        print_note(
            f"{counted(lacking, 'chunk')} got no description{not_asked}: {report.first_failure or ''}; semlex maintain "
            "enrich tries again"
        )


def print_notes(report: IndexReport) -> None:
    """Print to stderr what to know about an indexing run or sync: files left out or repaired, cut chunks, problems."""
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
            f"{counted(report.outdated, 'document')} {was} split by an older version; to preview splitting them "
            "again: semlex maintain rechunk --dry-run"
        )
    if report.enrichment is not None and report.enrichment.estimate is None:
        print_enrichment(report.enrichment)
    elif report.lines_kept:
        chunks, keep = counted(report.lines_kept, "chunk"), "keeps" if report.lines_kept == 1 else "keep"
        print_note(
            f"{chunks} {keep} the stored description; new chunks have none: semlex maintain enrich describes them"
        )
    print_note(*report.warnings)
    print_problems(report)


def print_problems(report: IndexReport) -> None:
    """Print to stderr which files could not be read, and which have no text."""
    for title, problems in (("not read", report.problems), ("not found by any search", report.without_text)):
        lines = [f"{problem.source_document}: {problem.message}" for problem in problems]
        _print_first(title, lines, len(lines), "--json lists all")


SHOWN_DOCUMENTS, SHOWN_HEADINGS, SHOWN_DOMINATING = 10, 3, 5
SHOWN_CHARACTERS = 120
REASONS: dict[CheckupCode, str] = {
    "duplicate": "another chunk with almost the same text was found instead",
    "no_shared_word": "without its heading, the section shares no word with the heading",
    "below_top_k": "a candidate, but others rank before it",
    "beyond_vector_depth": "no candidate: too many chunks are nearer or have higher keyword scores",
    "beyond_keyword_depth": "no candidate: too many chunks have higher keyword scores",
}


# Headings of the manuals in the bench `checkup`, with static vectors.
YARDSTICK = (
    "For comparison: in the manuals of three programs, 41 % to 43 % of the headings find their section. Headings share "
    "more words with their text than questions of users do: measure those with semlex eval"
)


def short(text: str) -> str:
    """Return a heading or a name on one line, cut if it is long."""
    line = one_line(text)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %"


def share_words(share: Share) -> str:
    """Return a share in words, with its counts and its interval."""
    low, high = share.interval
    return (
        f"{share.found:,} of {share.asked:,} ({percent(share.share)}; 95 % interval {percent(low)} to {percent(high)})"
    )


def left_out_words(left_out: LeftOut) -> list[str]:
    """Return the numbers of headings that were not searched, each with the reason."""
    return [
        f"{number:,} {why}"
        for number, why in (
            (left_out.repeated, "occur in three or more places"),
            (left_out.wide, "have more than 12 chunks below them"),
            (left_out.wordless, "have no word"),
            (left_out.without_docstring, "definitions without a docstring"),
            (left_out.empty, "have nothing else below them"),
            (left_out.not_drawn, "not in the sample"),
        )
        if number
    ]


def heading_words(one: AskedHeading) -> str:
    """Return the rank of the section that a heading should have found, and the documents that rank higher."""
    place = "no candidate" if one.rank is None else f"at rank {one.rank}"
    names = list(dict.fromkeys(short(name) for name in one.before if name))
    before = f", behind {', '.join(names)}" if names else ""
    return f"{place}{before} [{one.code}]"


def alone_words(told: Checkup) -> str:
    """Return as text the shares of sections that keyword search and vector search would each find alone."""
    return f"keyword search alone {percent(told.alone['keyword'])}, vector search alone {percent(told.alone['vector'])}"


def print_checkup(told: Checkup) -> None:
    """Print the report of a checkup."""
    by = {"hybrid": "words and vectors", "keyword": "words alone", "vector": "vectors alone"}[told.mode]
    output.print(f"[bold]{told.sentence}[/bold]")
    output.print(f"  {share_words(told.result)}, searched by {by}")
    output.print(f"  {YARDSTICK}")
    if told.reasons.get("duplicate"):
        output.print(f"  if a chunk with almost the same text counts as found: {share_words(told.with_duplicates)}")
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    output.print(f"  {depths}")
    if told.alone:
        output.print(f"  {alone_words(told)}")
    output.print(f"  {counted(told.headings, 'heading')} in {counted(told.chunks, 'chunk')}")
    if left_out := "; ".join(left_out_words(told.left_out)):
        output.print(f"  not searched: {left_out}")
    if told.reasons:
        output.print("\nWhy the other headings do not find their section:")
        for code, number in told.reasons.items():
            output.print(f"  {number:,} {REASONS[code]} \\[{code}]")
    _print_documents(told)
    if told.dominating:
        output.print("\nDocuments that outrank the rest:")
        for one in told.dominating[:SHOWN_DOMINATING]:
            share = f"{one.share:.1%} of the hits for other documents' headings, but {one.expected:.1%} of all chunks"
            output.print(f"  {escape(short(one.document))}: {share}")
    print_note(*told.notes)
    embedded = f", {counted(told.embedded, 'chunk')} embedded again" if told.embedded else ""
    messages.print(f"[dim]{told.seconds:.1f} s{embedded}; nothing was written[/dim]")


def _name(document: DocumentCheckup) -> str:
    named = f"{document.source}: {document.document}" if document.source else document.document
    return short(named or "(no name)")


def _print_documents(told: Checkup) -> None:
    never = [one for one in told.documents if one.is_never_found]
    if not never:
        return
    missed = f"{counted(len(never), 'document')} of {len(told.documents):,}"
    output.print(f"\nIn {missed}, no searched heading finds its section:")
    for document in never[:SHOWN_DOCUMENTS]:
        output.print(f"  {escape(_name(document))}")
        for one in document.missed[:SHOWN_HEADINGS]:
            output.print(f"    {escape(f'{short(one.heading)}: {heading_words(one)}')}")
        if len(document.missed) > SHOWN_HEADINGS:
            output.print(f"    and {len(document.missed) - SHOWN_HEADINGS:,} more")
    if len(never) > SHOWN_DOCUMENTS:
        output.print(f"  and {len(never) - SHOWN_DOCUMENTS:,} more; --json and --html list all")


_STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --dim: #5c6370; --line: #d4d7dc; --back: #fff; --mark: #1f6feb }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8eb; --dim: #9aa2ae; --line: #3a3f47; --back: #16181c; --mark: #58a6ff }
}
body { color: var(--text); background: var(--back); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.big { font-size: 3rem; font-weight: 600; line-height: 1.1 } .dim { color: var(--dim) }
table { border-collapse: collapse; width: 100% } caption { text-align: left; color: var(--dim) }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; white-space: nowrap } svg { max-width: 100%; height: auto }
details { border-bottom: 1px solid var(--line); padding: .3rem 0 } summary { cursor: pointer } code { font-size: .9em }
@media print {
  :root { --text: #000; --dim: #444; --line: #bbb; --back: #fff; --mark: #000 }
  body { margin: 0; max-width: none; font-size: 11pt } tr, details { break-inside: avoid }
  details::details-content { content-visibility: visible; block-size: auto }
}
"""
# Every page is shown whole on paper, so that no document's list may be endless.
PAGE_DOCUMENTS, PAGE_HEADINGS = 500, 50
_WIDTH, _HEIGHT = 600.0, 180.0
_EDGE = 30.0


def checkup_page(told: Checkup) -> str:
    """Return the report as an HTML page; texts of documents are escaped and control characters removed."""
    title = f"Checkup of {html(short(told.collection))}"
    never = [one for one in told.documents if one.is_never_found]
    some = [one for one in told.documents if one.missed and not one.is_never_found]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>",
        *_summary(told),
        *_reasons(told),
        *_documents("None of their searched headings finds its section", never),
        *_documents("Only some of their searched headings find their section", some),
        *_dominating(told),
        *_notes(told),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _summary(told: Checkup) -> Iterable[str]:
    number, rest = told.sentence.split(" % ", 1)
    yield f'<p><span class="big">{number} %</span><br>{rest}: {html(share_words(told.result))}</p>'
    yield f"<p>{html(YARDSTICK)}</p>"
    yield _interval(told.result)
    if told.reasons.get("duplicate"):
        yield f"<p>If a chunk with almost the same text counts as found: {html(share_words(told.with_duplicates))}.</p>"
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    model = f" (model {html(short(told.model))})" if told.model else ""
    parts = [depths, alone_words(told)] if told.alone else [depths]
    yield f"<p>{'; '.join(parts)}. Searched by: {html(told.mode)}{model}.</p>"
    left_out = "; ".join(left_out_words(told.left_out))
    more = f" Not searched: {html(left_out)}." if left_out else ""
    yield f'<p class="dim">{counted(told.headings, "heading")} in {counted(told.chunks, "chunk")}.{more}</p>'


def _interval(share: Share) -> str:
    """Return an SVG line from 0 to 1 with the share and its interval."""
    low, high, at = (_EDGE + (_WIDTH - 2 * _EDGE) * value for value in (*share.interval, share.share))
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} 40" width="{_WIDTH:.0f}" role="img" aria-label="{html(share_words(share))}">'
        f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="14" y2="14" stroke="var(--line)" stroke-width="2"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="14" y2="14" stroke="var(--mark)" stroke-width="6"/>'
        f'<circle cx="{at:.1f}" cy="14" r="7" fill="var(--mark)"/>'
        f"{_label(_EDGE, 36, '0')}{_label(_WIDTH - _EDGE, 36, '1', 'end')}</svg>"
    )


def _reasons(told: Checkup) -> Iterable[str]:
    if told.reasons:
        yield "<h2>Why the other headings do not find their section</h2>"
        yield '<table><tr><th class="number">headings</th><th>why</th></tr>'
        for code, number in told.reasons.items():
            why = f"{html(REASONS[code])} <code>{code}</code>"
            yield f'<tr><td class="number">{number:,}</td><td>{why}</td></tr>'
        yield "</table>"


def _documents(title: str, documents: Sequence[DocumentCheckup]) -> Iterable[str]:
    if not documents:
        return
    yield f"<h2>{title}: {counted(len(documents), 'document')}</h2>"
    for document in documents[:PAGE_DOCUMENTS]:
        missed = document.missed
        counts = f"{len(missed):,} of {counted(len(document.headings), 'heading')} missed"
        yield f"<details open><summary>{html(_name(document))} <span class=dim>{counts}</span></summary><ul>"
        for one in missed[:PAGE_HEADINGS]:
            yield f"<li>{html(short(one.heading))} <span class=dim>{html(heading_words(one))}</span></li>"
        if len(missed) > PAGE_HEADINGS:
            yield f"<li>and {len(missed) - PAGE_HEADINGS:,} more</li>"
        yield "</ul></details>"
    if len(documents) > PAGE_DOCUMENTS:
        yield f"<p>and {len(documents) - PAGE_DOCUMENTS:,} more</p>"


def _dominating(told: Checkup) -> Iterable[str]:
    if told.dominating:
        yield "<h2>Documents that outrank the rest</h2>\n<table><tr><th>document</th>"
        yield '<th class="number">hits for headings of other documents</th>'
        yield '<th class="number">share of these hits</th><th class="number">share of all chunks</th></tr>'
        for one in told.dominating:
            cells = (f"{one.hits:,}", f"{one.share:.1%}", f"{one.expected:.1%}")
            figures = "".join(f'<td class="number">{cell}</td>' for cell in cells)
            yield f"<tr><td>{html(short(one.document))}</td>{figures}</tr>"
        yield "</table>"


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" text-anchor="{anchor}" fill="var(--dim)">{text}</text>'


def _notes(told: Checkup) -> Iterable[str]:
    for note in told.notes:
        yield f"<p>Note: {html(short(note))}</p>"
    yield f'<p class="dim">{told.seconds:.1f} s; seed {told.seed}; {told.embedded:,} chunks embedded again.</p>'
