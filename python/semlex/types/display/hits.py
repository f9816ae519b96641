"""Hits for people: a line each, and the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from semlex.types.display.elements import LINE_END, Html, figure, joined, marked, notes, table, text
from semlex.types.display.texts import marked_parts, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A hit is ordered by the first of these that it has.
DECIDING = ("rerank_score", "fused_score", "vector_score", "keyword_score")
TABLE_COLUMNS = ("vector_score", "keyword_score", "fused_score", "rerank_score", "confidence")
SHOWN_HITS = 10
MAX_LINE = 120
PLACE_CHARACTERS, TEXT_CHARACTERS = 48, 60


class ShownHit(Protocol):
    """What is shown of a hit."""

    id: str
    rank: int
    content: str
    excerpt: str
    heading_path: tuple[str, ...]

    @property
    def place(self) -> str:
        """Document and line, or ""."""


def hit_line(hit: ShownHit) -> str:
    """A hit on one line of at most 120 characters: rank, place, what it is ordered by, and the beginning."""
    scores = [(name.removesuffix("_score"), score) for name in DECIDING if (score := getattr(hit, name)) is not None]
    told = "".join(f"  {name} {round(score, 3) + 0.0:.3f}" for name, score in scores[:1])
    plain = "".join(piece for piece, _ in marked_parts(hit.excerpt, hit.content)) or hit.content
    line = f"{hit.rank}. {shortened(hit.place or hit.id, PLACE_CHARACTERS)}{told}  {shortened(plain, TEXT_CHARACTERS)}"
    return shortened(line, MAX_LINE) if len(line) > MAX_LINE else line.rstrip()


def hit_lines(title: str, hits: Sequence[ShownHit]) -> str:
    """A title with the number of hits, the first of them a line each, and how many are left."""
    shown = [f"  {hit_line(hit)}" for hit in hits[:SHOWN_HITS]]
    more = [f"  … and {len(hits) - SHOWN_HITS:,} more"] if len(hits) > SHOWN_HITS else []
    number = "1 hit" if len(hits) == 1 else f"{len(hits):,} hits"
    return "\n".join([f"{title}: {number}", *shown, *more])


def hit_table(hits: Sequence[ShownHit], warnings: Iterable[str] = (), *, collections: Sequence[str] = ()) -> Html:
    """A table with a row per hit, best first: rank, place, scores by their names, and excerpt; warnings below.

    Columns of scores that no hit has are left out.

    Args:
        hits: Best first.
        warnings: Of the search.
        collections: The collection of each hit, where there are several.
    """
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
    return joined([table(titles, rows), notes(warnings)])


def _place(hit: ShownHit) -> Html:
    place = text(hit.place or hit.id)
    return joined([place, LINE_END, text(" > ".join(hit.heading_path))]) if hit.heading_path else place
