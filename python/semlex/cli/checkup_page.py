"""A checkup as a page: one file without scripts, in light and dark, that can be printed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from semlex.cli.checkup_output import (
    REASONS,
    heading_words,
    left_out_words,
    percent,
    share_words,
    short,
    weight_words,
)
from semlex.cli.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.types.checkups import Checkup, DocumentCheckup, Share, WeightCheckup

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
SHOWN_DOCUMENTS, SHOWN_HEADINGS = 500, 50
_WIDTH, _HEIGHT = 600.0, 180.0
_EDGE = 30.0


def checkup_page(told: Checkup) -> str:
    """The page. Everything that comes from documents is escaped, and no control character is left."""
    title = f"Checkup of {escape(short(told.collection))}"
    never = [one for one in told.documents if one.is_never_found]
    some = [one for one in told.documents if one.missed and not one.is_never_found]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>",
        *_summary(told),
        *_reasons(told),
        *_documents("Found by none of the headings that were asked", never),
        *_documents("Found by some of their headings", some),
        *_dominating(told),
        *([] if told.weight is None else _weight(told.weight)),
        *_notes(told),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _summary(told: Checkup) -> Iterable[str]:
    yield f'<p><span class="big">{told.result.share:.2f}</span><br>of the headings find their section in the first '
    yield f"{told.top} hits: {escape(share_words(told.result))}</p>"
    yield _interval(told.result)
    if told.reasons.get("duplicate"):
        yield f"<p>With the same text elsewhere counted: {escape(share_words(told.with_duplicates))}.</p>"
    depths = ", ".join(f"{percent(share)} in the first {depth}" for depth, share in told.ranks.items())
    model = f" (model {escape(short(told.model))})" if told.model else ""
    yield f"<p>{depths}. Searched by: {escape(told.mode)}{model}.</p>"
    left_out = "; ".join(left_out_words(told.left_out))
    more = f" Not asked: {escape(left_out)}." if left_out else ""
    yield f'<p class="dim">{counted(told.headings, "heading")} in {counted(told.chunks, "chunk")}.{more}</p>'


def _interval(share: Share) -> str:
    """The share with its interval on a line from 0 to 1."""
    low, high, at = (_EDGE + (_WIDTH - 2 * _EDGE) * value for value in (*share.interval, share.share))
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} 40" width="{_WIDTH:.0f}" role="img" aria-label="{escape(share_words(share))}">'
        f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="14" y2="14" stroke="var(--line)" stroke-width="2"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="14" y2="14" stroke="var(--mark)" stroke-width="6"/>'
        f'<circle cx="{at:.1f}" cy="14" r="7" fill="var(--mark)"/>'
        f"{_label(_EDGE, 36, '0')}{_label(_WIDTH - _EDGE, 36, '1', 'end')}</svg>"
    )


def _reasons(told: Checkup) -> Iterable[str]:
    if told.reasons:
        yield '<h2>Why the others do not</h2>\n<table><tr><th class="number">headings</th><th>why</th></tr>'
        for code, number in told.reasons.items():
            why = f"{escape(REASONS[code])} <code>{code}</code>"
            yield f'<tr><td class="number">{number:,}</td><td>{why}</td></tr>'
        yield "</table>"


def _documents(title: str, documents: Sequence[DocumentCheckup]) -> Iterable[str]:
    if not documents:
        return
    yield f"<h2>{title}: {counted(len(documents), 'document')}</h2>"
    for document in documents[:SHOWN_DOCUMENTS]:
        name = f"{document.source}: {document.document}" if document.source else document.document or "(no name)"
        missed = document.missed
        counts = f"{len(missed):,} of {counted(len(document.headings), 'heading')} missed"
        yield f"<details open><summary>{escape(short(name))} <span class=dim>{counts}</span></summary><ul>"
        for one in missed[:SHOWN_HEADINGS]:
            yield f"<li>{escape(short(one.heading))} <span class=dim>{escape(heading_words(one))}</span></li>"
        if len(missed) > SHOWN_HEADINGS:
            yield f"<li>and {len(missed) - SHOWN_HEADINGS:,} more</li>"
        yield "</ul></details>"
    if len(documents) > SHOWN_DOCUMENTS:
        yield f"<p>and {len(documents) - SHOWN_DOCUMENTS:,} more</p>"


def _dominating(told: Checkup) -> Iterable[str]:
    if told.dominating:
        yield '<h2>Documents that outrank the rest</h2>\n<table><tr><th>document</th><th class="number">hits</th>'
        yield '<th class="number">of all such hits</th><th class="number">of the chunks</th></tr>'
        for one in told.dominating:
            cells = (f"{one.hits:,}", f"{one.share:.1%}", f"{one.expected:.1%}")
            figures = "".join(f'<td class="number">{cell}</td>' for cell in cells)
            yield f"<tr><td>{escape(short(one.document))}</td>{figures}</tr>"
        yield "</table>"


def _weight(weight: WeightCheckup) -> Iterable[str]:
    """The curve over the weights."""
    yield f"<h2>The weight of the vectors</h2>\n<p>{escape(weight_words(weight))}.</p>"

    def place(at: float, share: float) -> tuple[float, float]:
        return _EDGE + (_WIDTH - 2 * _EDGE) * at, _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * share

    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*pair) for pair in weight.curve.items()))
    x, y = place(weight.default, weight.curve[weight.default])
    top, bottom = _EDGE, _HEIGHT - _EDGE
    yield (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" width="{_WIDTH:.0f}" role="img" '
        'aria-label="share found by the weight of the vectors">'
        f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{bottom}" y2="{bottom}" stroke="var(--line)"/>'
        f'<line x1="{_EDGE}" x2="{_EDGE}" y1="{top}" y2="{bottom}" stroke="var(--line)"/>'
        f'<polyline points="{points}" fill="none" stroke="var(--mark)" stroke-width="2"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="var(--mark)"/>'
        f"{_label(_EDGE, _HEIGHT - 10, 'words alone')}{_label(_WIDTH - _EDGE, _HEIGHT - 10, 'vectors alone', 'end')}"
        f"{_label(4, top + 4, '1')}{_label(4, bottom, '0')}</svg>"
    )


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" text-anchor="{anchor}" fill="var(--dim)">{text}</text>'


def _notes(told: Checkup) -> Iterable[str]:
    for note in told.notes:
        yield f"<p>Note: {escape(short(note))}</p>"
    yield f'<p class="dim">{told.seconds:.1f} s; seed {told.seed}; {told.embedded:,} chunks embedded anew.</p>'
