"""Spans.

What OpenTelemetry spans cost: one that nobody records, and a search with and without a program that records them.
"""

from __future__ import annotations

import statistics
import sys
import timeit
from typing import TYPE_CHECKING
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from benches.measuring import paired
from benches.servers import temporary_server
from semlex import Document, SyncClient
from semlex.telemetry import TOP_K, Work, span
from semlex.testing import HashEmbedder

if TYPE_CHECKING:
    from pathlib import Path

    from benches.measuring import Bench

SPANS, SEARCHES = 20_000, 50
# Microseconds of a span that nobody records.
BAR = 10.0


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    runs = 5 if quick else 15
    with mock.patch.dict(sys.modules):
        del sys.modules["opentelemetry.trace"]
        bench.at_most("a span, OpenTelemetry not loaded", _microseconds(runs), unit="us", bar=BAR)
    bench.at_most("a span, its API without a provider", _microseconds(runs), unit="us", bar=BAR)
    provider = TracerProvider(shutdown_on_exit=False)
    with (
        temporary_server() as url,
        SyncClient(url, embedding_model=HashEmbedder(), use_reranking=False, cached_queries=0) as client,
    ):
        collection = client.collection("bench")
        collection.add_documents([Document(f"word{n} word{n % 7} key", id=str(n)) for n in range(1_000)])

        def searches() -> None:
            for number in range(SEARCHES):
                collection.search(f"word{number} key", 10)

        def recorded() -> None:
            with mock.patch.object(trace, "get_tracer_provider", lambda: provider):  # noqa: PT008 - a mock takes longer
                searches()

        without, recording = paired(searches, recorded, runs)
    longer = statistics.median(slow - fast for fast, slow in zip(without, recording, strict=True)) / SEARCHES
    bench.at_most("a search", statistics.median(without) / SEARCHES * 1000, unit="ms", bar=None)
    bench.at_most("the same, recorded: longer by", longer * 1000, unit="ms", bar=None)


def _microseconds(runs: int) -> float:
    def enter() -> None:
        with span(Work.RETRIEVAL, "bench", {TOP_K: 5}) as told:
            if told.is_recorded:
                raise AssertionError

    return min(timeit.repeat(enter, number=SPANS, repeat=runs)) / SPANS * 1e6
