"""The report of a checkup, printed or as an HTML page: one file without scripts, for light and dark, printable."""

from __future__ import annotations

from html import escape as html
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_note
from semlex.cli.terminal import counted, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.types.checkups import AskedHeading, Checkup, CheckupCode, DocumentCheckup, LeftOut, Share


SHOWN_DOCUMENTS, SHOWN_HEADINGS, SHOWN_DOMINATING = 10, 3, 5
SHOWN_CHARACTERS = 120
REASONS: dict[CheckupCode, str] = {
    "duplicate": "another chunk with the same text was found instead",
    "no_shared_word": "without the heading the section shares no word with it",
    "below_top_k": "a candidate, but others rank before it",
    "beyond_vector_depth": "no candidate: too many chunks are nearer or have better words",
    "beyond_keyword_depth": "no candidate: too many chunks have better words",
}


# Headings of the manuals in the bench `checkup`, with static vectors.
YARDSTICK = (
    "For comparison: headings of manuals of three programs find 41 % to 43 %. Headings share words with their text; "
    "questions of users share fewer: measure those with semlex eval"
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
    """Return where a heading that misses its section found it, and which documents come before."""
    place = "no candidate" if one.rank is None else f"at place {one.rank}"
    names = list(dict.fromkeys(short(name) for name in one.before if name))
    before = f", behind {', '.join(names)}" if names else ""
    return f"{place}{before} [{one.code}]"


def alone_words(told: Checkup) -> str:
    """Return the shares that keyword search and vector search find alone."""
    return f"keyword search alone {percent(told.alone['keyword'])}, vector search alone {percent(told.alone['vector'])}"


def print_checkup(told: Checkup) -> None:
    """Print the report."""
    by = {"hybrid": "words and vectors", "keyword": "words alone", "vector": "vectors alone"}[told.mode]
    output.print(f"[bold]{told.sentence}[/bold]")
    output.print(f"  {share_words(told.result)}, searched by {by}")
    output.print(f"  {YARDSTICK}")
    if told.reasons.get("duplicate"):
        output.print(f"  with the same text elsewhere counted: {share_words(told.with_duplicates)}")
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    output.print(f"  {depths}")
    if told.alone:
        output.print(f"  {alone_words(told)}")
    output.print(f"  {counted(told.headings, 'heading')} in {counted(told.chunks, 'chunk')}")
    if left_out := "; ".join(left_out_words(told.left_out)):
        output.print(f"  not asked: {left_out}")
    if told.reasons:
        output.print("\nWhy the others do not:")
        for code, number in told.reasons.items():
            output.print(f"  {number:,} {REASONS[code]} \\[{code}]")
    _print_documents(told)
    if told.dominating:
        output.print("\nDocuments that outrank the rest:")
        for one in told.dominating[:SHOWN_DOMINATING]:
            share = f"{one.share:.1%} of the hits of others' headings, {one.expected:.1%} of the chunks"
            output.print(f"  {escape(short(one.document))}: {share}")
    for note in told.notes:
        print_note(note)
    embedded = f", {counted(told.embedded, 'chunk')} embedded again" if told.embedded else ""
    messages.print(f"[dim]{told.seconds:.1f} s{embedded}; nothing was written[/dim]")


def _print_documents(told: Checkup) -> None:
    never = [one for one in told.documents if one.is_never_found]
    if not never:
        return
    found = f"{counted(len(never), 'document')} of {len(told.documents):,}"
    output.print(f"\n{found} found by none of the headings that were searched:")
    for document in never[:SHOWN_DOCUMENTS]:
        name = f"{document.source}: {document.document}" if document.source else document.document or "(no name)"
        output.print(f"  {escape(short(name))}")
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
        *_documents("Found by none of the headings that were searched", never),
        *_documents("Found by some of their headings", some),
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
        yield f"<p>With the same text elsewhere counted: {html(share_words(told.with_duplicates))}.</p>"
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    model = f" (model {html(short(told.model))})" if told.model else ""
    parts = [depths, alone_words(told)] if told.alone else [depths]
    yield f"<p>{'; '.join(parts)}. Searched by: {html(told.mode)}{model}.</p>"
    left_out = "; ".join(left_out_words(told.left_out))
    more = f" Not asked: {html(left_out)}." if left_out else ""
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
        yield '<h2>Why the others do not</h2>\n<table><tr><th class="number">headings</th><th>why</th></tr>'
        for code, number in told.reasons.items():
            why = f"{html(REASONS[code])} <code>{code}</code>"
            yield f'<tr><td class="number">{number:,}</td><td>{why}</td></tr>'
        yield "</table>"


def _documents(title: str, documents: Sequence[DocumentCheckup]) -> Iterable[str]:
    if not documents:
        return
    yield f"<h2>{title}: {counted(len(documents), 'document')}</h2>"
    for document in documents[:PAGE_DOCUMENTS]:
        name = f"{document.source}: {document.document}" if document.source else document.document or "(no name)"
        missed = document.missed
        counts = f"{len(missed):,} of {counted(len(document.headings), 'heading')} missed"
        yield f"<details open><summary>{html(short(name))} <span class=dim>{counts}</span></summary><ul>"
        for one in missed[:PAGE_HEADINGS]:
            yield f"<li>{html(short(one.heading))} <span class=dim>{html(heading_words(one))}</span></li>"
        if len(missed) > PAGE_HEADINGS:
            yield f"<li>and {len(missed) - PAGE_HEADINGS:,} more</li>"
        yield "</ul></details>"
    if len(documents) > PAGE_DOCUMENTS:
        yield f"<p>and {len(documents) - PAGE_DOCUMENTS:,} more</p>"


def _dominating(told: Checkup) -> Iterable[str]:
    if told.dominating:
        yield '<h2>Documents that outrank the rest</h2>\n<table><tr><th>document</th><th class="number">hits</th>'
        yield '<th class="number">of all such hits</th><th class="number">of the chunks</th></tr>'
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
