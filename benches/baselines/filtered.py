"""How filtered searches of baselines are timed."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOP, PASSES = 10, 3
SLOW_SECONDS = 0.05


async def timed(
    cells: list[dict[str, Any]], vectors: list[list[float]], search: Callable[[list[float], Any], Awaitable[list[str]]]
) -> dict[str, Any]:
    """Rows in the mean, median seconds, and ids of the hits, by cell; asked once before to warm up."""
    answers = {}
    for cell in cells:
        times: list[float] = []
        hits: list[list[str]] = []
        for number in range(PASSES + 1):
            if times and statistics.median(times) > SLOW_SECONDS:
                break
            for vector, own in zip(vectors, cell["filters"], strict=True):
                started = time.perf_counter()
                found = await search(vector, own)
                if number:
                    times.append(time.perf_counter() - started)
                else:
                    hits.append(found)
        rows = statistics.mean(map(len, hits))
        answers[cell["name"]] = {"rows": rows, "p50": statistics.median(times), "hits": hits}
    return answers
