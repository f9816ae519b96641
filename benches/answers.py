"""Answers.

The questions of [Structure](#structure), answered without a language model. A question counts if the quoted sentences
hold one of its answers and come from one of its places.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benches.structure import MANUALS, questions_of, share, unpacked
from semlex import SyncRetriever
from semlex._core import split_sentences
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    from benches.measuring import Bench
    from benches.structure import Question

SENTENCES = 3
GAIN_BAR = 0.10


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures, with static embeddings."""
    manuals = MANUALS[:1] if quick else MANUALS
    own: list[bool] = []
    first: list[bool] = []
    beginning: list[bool] = []
    characters: list[tuple[int, int]] = []
    refused: dict[bool, list[bool]] = {True: [], False: []}
    shutil.rmtree(state / "answers", ignore_errors=True)
    with EmbeddedServer(state / "answers") as server:
        for manual in manuals:
            with SyncRetriever(server.url, "static", None, use_reranking=False, collection=manual.name) as retriever:
                retriever.index(unpacked(manual, state))
                for question in questions_of(manual):
                    answer = retriever.answer(question["question"], min_coverage=0)
                    quotes = " ".join(citation.quote for citation in answer.citations)
                    best = answer.context.results[0]
                    places = split_sentences(best.content)
                    sentences = [best.content[start:end] for start, end, kind in places if kind != "heading"]
                    simple = " ".join(sentences[:SENTENCES])
                    own.append(holds_answer(question, answer.citations[0].document, quotes))
                    first.append(holds_answer(question, best.source_document, simple))
                    beginning.append(holds_answer(question, best.source_document, best.content[: len(quotes)]))
                    characters.append((len(quotes), len(simple)))
                for other in MANUALS:
                    for question in questions_of(other):
                        was = retriever.answer(question["question"]).refused is not None
                        refused[other is manual].append(was)
    bench.at_least("answer in the quoted sentences", share(own), unit="of questions", bar=None)
    bench.at_least("in the first hit's first three sentences", share(first), unit="of questions", bar=None)
    bench.at_least("in as many characters of the first hit", share(beginning), unit="of questions", bar=None)
    bench.at_least("more than three first sentences", share(own) - share(first), unit="of questions", bar=GAIN_BAR)
    mean_own, mean_first = (sum(pair[side] for pair in characters) / len(characters) for side in (0, 1))
    bench.at_most("quoted characters, mean", mean_own, unit="characters", bar=None)
    bench.at_most("characters of three first sentences, mean", mean_first, unit="characters", bar=None)
    bench.at_most("refused, asked of its own manual", share(refused[True]), unit="of questions", bar=None)
    bench.at_least("refused, asked of another manual", share(refused[False]), unit="of questions", bar=None)


def holds_answer(question: Question, document: str, text: str) -> bool:
    """Whether a text of a document holds one of the answers, and the document is one of its places."""
    found = " ".join(text.split())
    return document in question["places"] and any(" ".join(answer.split()) in found for answer in question["answers"])
