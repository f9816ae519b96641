"""Checkups.

The share of its own headings that `semlex eval checkup` finds in the first three results, beside that of the questions
of [Structure](#structure). Both use static embeddings. The checkup was not tuned on the questions.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from benches.structure import MANUALS, TOP, outcome_of, questions_of, share, unpacked
from semlex import SyncRetriever
from semlex.diagnostics.checkup import share_of
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    from benches.measuring import Bench

AGREEMENT_BAR = 0.10
# As many headings as there are with a model that takes long.
SAMPLE = 200


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures, with static embeddings."""
    manuals = MANUALS[:1] if quick else MANUALS
    judged: list[float] = []
    headings: list[float] = []
    samples: list[float] = []
    shutil.rmtree(state / "checkup", ignore_errors=True)
    with EmbeddedServer(state / "checkup") as server:
        for manual in manuals:
            with SyncRetriever(server.url, "static", None, use_reranking=False, collection=manual.name) as retriever:
                retriever.index(unpacked(manual, state))
                own = [outcome_of(question, retriever).is_within(TOP) for question in questions_of(manual)]
                began = time.perf_counter()
                told = retriever.checkup()
                seconds = time.perf_counter() - began
                samples.append(retriever.checkup(SAMPLE).result.share)
            judged.append(share(own))
            headings.append(told.result.share)
            low, high = share_of(sum(own), len(own)).interval
            print(
                f"    {manual.name}, questions: {sum(own)} of {len(own)}, interval {low:.2f} to {high:.2f}", flush=True
            )
            low, high = told.result.interval
            print(f"    {manual.name}, headings: interval {low:.2f} to {high:.2f}; {told.left_out}", flush=True)
            print(f"    {manual.name}: {told.reasons}; {told.alone}", flush=True)
            for name, value in (("questions", judged[-1]), ("headings", headings[-1]), (f"{SAMPLE}", samples[-1])):
                bench.at_least(f"{manual.format}, {name}, success@{TOP}", value, unit="", bar=None)
            bench.at_least(f"{manual.format}, headings asked", told.result.asked, unit="headings", bar=None)
            bench.at_most(f"{manual.format}, seconds", seconds, unit="s", bar=None)
    apart = [abs(one - other) for one, other in zip(judged, headings, strict=True)]
    mean = abs(sum(judged) - sum(headings)) / len(judged)
    sampled = abs(sum(judged) - sum(samples)) / len(judged)
    bench.at_most("apart, mean of the manuals", mean, unit="", bar=AGREEMENT_BAR)
    bench.at_most(f"apart with {SAMPLE} headings", sampled, unit="", bar=AGREEMENT_BAR)
    bench.at_most("apart, of one manual, at most", max(apart), unit="", bar=None)
