"""Elements of HTML for notebooks. Text becomes `Html` here only, escaped: no document can bring an element along."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NewType

from semlex.types.display.texts import marked_parts, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Html = NewType("Html", str)

LEFT = ' style="text-align: left"'
# Text as it is written, with its lines.
AS_WRITTEN = ' style="text-align: left; white-space: pre-wrap"'
# Longer texts are cut: a page of a notebook is for looking.
MAX_CHARACTERS = 1_000
MAX_ROWS = 100
LINE_END = Html("<br>")


def text(value: str) -> Html:
    """A text, escaped, without what turns the direction of writing."""
    shown = value if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]}…"
    return Html(escape(printable(shown)))


def marked(excerpt: str, content: str) -> Html:
    """An excerpt with its matched words marked; the beginning of the content where there is none."""
    pieces = marked_parts(excerpt, content) if excerpt else [(content, False)]
    return joined(Html(f"<mark>{text(piece)}</mark>") if is_marked else text(piece) for piece, is_marked in pieces)


def joined(parts: Iterable[Html]) -> Html:
    """Parts one after another."""
    return Html("".join(parts))


def bold(value: str) -> Html:
    """A text in bold."""
    return Html(f"<b>{text(value)}</b>")


def paragraph(value: Html) -> Html:
    """A paragraph."""
    return Html(f"<p{AS_WRITTEN}>{value}</p>")


def notes(warnings: Iterable[str]) -> Html:
    """What should be known, each in a paragraph."""
    return joined(Html(f"<p>note: {text(warning)}</p>") for warning in warnings)


def lines(value: object) -> Html:
    """A text for people, with its lines."""
    return Html(f'<pre style="text-align: left; white-space: pre-wrap">{escape(printable(str(value)))}</pre>')


def table(titles: Sequence[str], rows: Sequence[Sequence[Html]]) -> Html:
    """A table; of many rows the first, and how many there are."""
    head = joined(Html(f"<th{LEFT}>{text(title)}</th>") for title in titles)
    body = joined(
        Html(f"<tr>{joined(Html(f'<td{AS_WRITTEN}>{cell}</td>') for cell in row)}</tr>") for row in rows[:MAX_ROWS]
    )
    more = f"<p>… and {len(rows) - MAX_ROWS:,} more</p>" if len(rows) > MAX_ROWS else ""
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")


def figure(value: float | None) -> Html:
    """A score with three digits; nothing for None."""
    return Html("" if value is None else f"{round(value, 3) + 0.0:.3f}")


def bar(done: int, total: int | None) -> Html:
    """How far something is, as the browser draws it."""
    bounds = "" if total is None else f' max="{max(total, 1)}" value="{done}"'
    return Html(f"<progress{bounds}></progress>")
