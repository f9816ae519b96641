"""How values are shown: printable texts, matched words, HTML elements for notebooks, hits as lines and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import NewType, Protocol

# Control characters of both sets but tab and newline, line and paragraph separators, marks that turn the direction of
# writing, and halves of surrogate pairs: documents and file names must not steer a terminal.
UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Between the parts of an excerpt, each of which is a part of a line of the text.
_BETWEEN_PARTS = re.compile(r"( … |\n|\A… | …\Z)")
SHOWN_LINES, SHOWN_WIDTH = 10, 118


def printable(text: str) -> str:
    r"""Return a text with its control characters escaped, for example ``\x1b``."""
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return a name or a title on one line, with its control characters escaped."""
    return printable(re.sub(r"[\n\t]", lambda found: ascii(found[0])[1:-1], text))


def shortened(text: str, most: int) -> str:
    """Return a text on one line of at most `most` characters, with a single space for each run of blanks."""
    begin = " ".join(text[: 4 * most].split())
    line = one_line(begin)
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def first_lines(text: str) -> str:
    """Return the first lines of a text, each shortened, and how many more there are."""
    lines = text.split("\n")
    shown = [shortened(line, SHOWN_WIDTH) for line in lines[:SHOWN_LINES]]
    more = len(lines) - len(shown)
    return "\n".join(shown + ([f"... and {more:,} more lines: print() shows all"] if more else []))


def marked_parts(excerpt: str, content: str) -> list[tuple[str, bool]]:
    """Split an excerpt at its marks into pieces: each a text, and whether it is a matched word.

    The marks are ``**``. The text may contain stars, too: only stars that the excerpt has in addition are marks.
    """
    pieces: list[tuple[str, bool]] = []
    bare, end = content.replace("*", ""), 0
    for number, part in enumerate(_BETWEEN_PARTS.split(excerpt)):
        own = part.replace("*", "")
        start = -1 if number % 2 else bare.find(own, end)  # parts follow each other in the content
        end = end if start < 0 else start + len(own)
        pieces += [(part, False)] if start < 0 else _pieces_of(part, content, start)
    return [piece for piece in pieces if piece[0]]


def _pieces_of(part: str, content: str, start: int) -> list[tuple[str, bool]]:
    # Runs of stars have even indexes, the characters between them odd ones; those are equal in part and content.
    own = re.split(r"([^*])", part)
    there = re.split(r"([^*])", content)[2 * start : 2 * start + len(own)]
    plain = ""
    toggles: list[int] = []
    for stars, letter, others in zip(own[::2], [*own[1::2], ""], there[::2], strict=True):
        marks = max(0, len(stars) - len(others)) // 2
        closes = len(toggles) % 2 == 1
        if marks % 2:
            toggles.append(len(plain) + (0 if closes else len(stars) - 2 * marks))
        plain += stars[2 * marks :] + letter
    # A mark that is never closed marks nothing.
    edges = [0, *toggles[: len(toggles) // 2 * 2], len(plain)]
    return [(plain[begin:end], number % 2 == 1) for number, (begin, end) in enumerate(pairwise(edges))]


Html = NewType("Html", str)

LEFT = ' style="text-align: left"'
# Text as it is written, with its lines.
AS_WRITTEN = ' style="text-align: left; white-space: pre-wrap"'
# Longer texts are cut: a page of a notebook is for looking.
MAX_CHARACTERS = 1_000
MAX_ROWS = 100
LINE_END = Html("<br>")


def text(value: str) -> Html:
    """Return a text escaped for HTML, without characters that change the direction of writing."""
    shown = value if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]}…"
    return Html(escape(printable(shown)))


def marked(excerpt: str, content: str) -> Html:
    """Return an excerpt with its matched words marked, or the beginning of the content if none matches."""
    pieces = marked_parts(excerpt, content) if excerpt else [(content, False)]
    return joined(Html(f"<mark>{text(piece)}</mark>") if is_marked else text(piece) for piece, is_marked in pieces)


def joined(parts: Iterable[Html]) -> Html:
    """Join pieces of HTML."""
    return Html("".join(parts))


def bold(value: str) -> Html:
    """Return a text in bold, as HTML."""
    return Html(f"<b>{text(value)}</b>")


def paragraph(value: Html) -> Html:
    """Return a paragraph of HTML."""
    return Html(f"<p{AS_WRITTEN}>{value}</p>")


def notes(warnings: Iterable[str]) -> Html:
    """Return warnings as HTML, each in a paragraph."""
    return joined(Html(f"<p>note: {text(warning)}</p>") for warning in warnings)


def lines(value: object) -> Html:
    """Return a text as HTML that keeps its lines."""
    return Html(f'<pre style="text-align: left; white-space: pre-wrap">{escape(printable(str(value)))}</pre>')


def table(titles: Sequence[str], rows: Sequence[Sequence[Html]]) -> Html:
    """Return an HTML table of the first rows, with the number of rows that are left out."""
    head = joined(Html(f"<th{LEFT}>{text(title)}</th>") for title in titles)
    body = joined(
        Html(f"<tr>{joined(Html(f'<td{AS_WRITTEN}>{cell}</td>') for cell in row)}</tr>") for row in rows[:MAX_ROWS]
    )
    more = f"<p>… and {len(rows) - MAX_ROWS:,} more</p>" if len(rows) > MAX_ROWS else ""
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")


def figure(value: float | None) -> Html:
    """Return a score with three decimals as HTML; "" for None."""
    return Html("" if value is None else f"{round(value, 3) + 0.0:.3f}")


def bar(done: int, total: int | None) -> Html:
    """Return the HTML of a progress bar."""
    bounds = "" if total is None else f' max="{max(total, 1)}" value="{done}"'
    return Html(f"<progress{bounds}></progress>")


HEADING_SEPARATOR = " > "
# A hit is ordered by the first of these that it has.
DECIDING = ("mixed_score", "fused_score", "vector_score", "keyword_score")
TABLE_COLUMNS = ("vector_score", "keyword_score", "fused_score", "rerank_score", "mixed_score", "confidence")
SHOWN_HITS = 10
MAX_LINE = 120
PLACE_CHARACTERS, TEXT_CHARACTERS = 48, 60


class ShownHit(Protocol):
    """The attributes of a hit that are shown."""

    id: str
    rank: int
    content: str
    excerpt: str
    heading_path: tuple[str, ...]

    @property
    def score(self) -> float | None:
        """Return the score that orders the hits."""

    @property
    def location(self) -> str:
        """Return document and place, or ""."""


def hit_line(hit: ShownHit) -> str:
    """Return a hit on one line of at most 120 characters: rank, place, deciding score, beginning of its text."""
    scores = [(name.removesuffix("_score"), score) for name in DECIDING if (score := getattr(hit, name)) is not None]
    told = "".join(f"  {name} {figure(score)}" for name, score in scores[:1])
    plain = "".join(piece for piece, _ in marked_parts(hit.excerpt, hit.content)) or hit.content
    line = (
        f"{hit.rank}. {shortened(hit.location or hit.id, PLACE_CHARACTERS)}{told}  {shortened(plain, TEXT_CHARACTERS)}"
    )
    return shortened(line, MAX_LINE) if len(line) > MAX_LINE else line.rstrip()


def hit_lines(title: str, hits: Sequence[ShownHit]) -> str:
    """Return a title with the number of hits, a line for each of the first hits, and the number of hits left out."""
    shown = [f"  {hit_line(hit)}" for hit in hits[:SHOWN_HITS]]
    more = [f"  … and {len(hits) - SHOWN_HITS:,} more"] if len(hits) > SHOWN_HITS else []
    number = "1 hit" if len(hits) == 1 else f"{len(hits):,} hits"
    return "\n".join([f"{title}: {number}", *shown, *more])


def hit_table(
    hits: Sequence[ShownHit], warnings: Iterable[str] = (), *, collections: Sequence[str] = (), verdict: str = ""
) -> Html:
    """Return a table with a row per hit: rank, place, the scores that any hit has, and excerpt; warnings below."""
    if not hits:
        return joined([Html("<p>nothing found</p>"), notes(warnings)])
    scores = [name for name in TABLE_COLUMNS if any(getattr(hit, name) is not None for hit in hits)]
    titles = [
        "",
        *(["collection"] if collections else []),
        "place",
        *(name.removesuffix("_score") for name in scores),
        "excerpt",
    ]
    rows = []
    for number, hit in enumerate(hits):
        collection = [text(collections[number])] if collections else []
        figures = [figure(getattr(hit, name)) for name in scores]
        rows.append([text(str(hit.rank)), *collection, _place(hit), *figures, marked(hit.excerpt, hit.content)])
    above = [paragraph(text(verdict))] if verdict else []
    return joined([*above, table(titles, rows), notes(warnings)])


def _place(hit: ShownHit) -> Html:
    place = text(hit.location or hit.id)
    return joined([place, LINE_END, text(HEADING_SEPARATOR.join(hit.heading_path))]) if hit.heading_path else place
