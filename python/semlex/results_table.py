"""Results as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semlex.types import SearchResult, SearchResults

COLUMNS = ("vector_score", "keyword_score", "fused_score", "rerank_score")
# Text as it is written, with its lines.
EXCERPT_STYLE = "text-align: left; white-space: pre-wrap"


def results_table(results: SearchResults) -> str:
    """A table with a row per hit, best first: rank, place, scores and excerpt; all text is escaped.

    Columns of scores that no hit has are left out. Warnings stand below.
    """
    scores = [name for name in COLUMNS if any(getattr(hit, name) is not None for hit in results)]
    titles = ["", "place", *(name.removesuffix("_score") for name in scores), "excerpt"]
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(_row(hit, scores) for hit in results)
    notes = "".join(f"<p>note: {escape(warning)}</p>" for warning in results.warnings)
    if not results:
        return f"<p>nothing found</p>{notes}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _row(hit: SearchResult, scores: list[str]) -> str:
    place = escape(hit.place or hit.id)
    heading = "".join(f"<br>{escape(' > '.join(hit.heading_path))}" for _ in hit.heading_path[:1])
    figures = "".join(f"<td>{_figure(getattr(hit, name))}</td>" for name in scores)
    excerpt = f'<td style="{EXCERPT_STYLE}">{escape(hit.excerpt or hit.content)}</td>'
    return f"<tr><td>{hit.rank}</td><td>{place}{heading}</td>{figures}{excerpt}</tr>"


def _figure(score: float | None) -> str:
    return "" if score is None else f"{round(score, 3) + 0.0:.3f}"
