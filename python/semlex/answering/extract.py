"""An answer without a language model: neighbouring sentences of one passage, as they stand there."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from semlex import _core
from semlex.answering.citations import citation_at
from semlex.types.answers import AnswerSentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semlex.types.answers import Context

MAX_SENTENCES = 3
# Characters of all of them; a single one is taken whatever its length.
MAX_CHARACTERS = 600
# A neighbour below this share of the best score adds nothing.
LEAST_SHARE = 0.2

# (passage, start, end, kind, score, own) of `_core.rank_sentences`
Ranked = tuple[int, int, int, str, float, float]


def extracted(question: str, context: Context, analyzer: _core.Analyzer) -> list[AnswerSentence]:
    """Up to three sentences that follow each other and answer best, each with its own place as its citation."""
    passages = [(source.text, source.headings) for source in context.sources]
    ranked = _core.rank_sentences(analyzer, question, passages)
    found = []
    for passage, start, end, kind, *_ in _best_run(ranked):
        source = context.sources[passage]
        quote = source.text[start:end]
        text = quote if kind == "code" else " ".join(quote.split())
        found.append(AnswerSentence(text, (citation_at(source, quote, "exact", start, end),)))
    return found


def _best_run(ranked: Sequence[Ranked]) -> Sequence[Ranked]:
    """The neighbours whose scores, less the least share of each, are the most together; the first of equals."""
    least = LEAST_SHARE * max((score for *_, score, _ in ranked), default=0.0)
    runs = [
        (worth, run)
        for first in range(len(ranked))
        for worth, run in _runs(ranked[first : first + MAX_SENTENCES], least)
    ]
    return max(runs, key=lambda one: one[0], default=(0.0, ()))[1]


def _runs(ranked: Sequence[Ranked], least: float) -> Iterator[tuple[float, Sequence[Ranked]]]:
    """What the sentence at the beginning begins, with what each run is worth; no run holds a title."""
    passage, start, *_ = ranked[0]
    worths = accumulate(score - least for *_, score, _ in ranked)
    for count, (worth, (of, _, end, kind, *_)) in enumerate(zip(worths, ranked, strict=True), start=1):
        if of != passage or kind == "heading" or (count > 1 and end - start > MAX_CHARACTERS):
            return
        yield worth, ranked[:count]
