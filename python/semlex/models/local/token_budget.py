"""How many tokens go through a model at once: found on the work itself, once for each kind of model and device.

A bigger pass is not a faster one: on CPUs it falls out of the cache (16,384 tokens took 1.5 to 1.9 times as long per
token as 4,096), on GPUs a small one does not fill the units. So the first calls that hold enough work run their batches
with one candidate after the other and keep the time. Nothing is computed for the measurement alone, and no result
depends on the outcome.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from semlex.models.local import memory

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

logger = logging.getLogger(__name__)

CPU_CANDIDATES = (512, 1_024, 2_048, 4_096)
GPU_CANDIDATES = (*CPU_CANDIDATES[1:], 8_192, 16_384)
CPU_START = 1_024
# A GPU starts with the most that suits the memory it has for this process. Macs with 8, 16 and 32 GiB offer it about
# two thirds; 8, 16 and 32 chunks of 500 tokens are known to be safe for them.
GPU_MOST = ((10 << 30, 4_096), (20 << 30, 8_192))
# The better of two: the first pass of a shape may build or tune its kernels, and other programs run, too.
MEASUREMENTS = 2
# A smaller budget needs less memory and can be interrupted sooner, so the bigger one must be faster by more than this.
WORTH = 0.03


class TokenBudget:
    """Measures candidates and keeps the best.

    Args:
        candidates: Tokens of a pass, ascending.
    """

    def __init__(self, candidates: Sequence[int], start: int) -> None:
        self._candidates = tuple(candidates)
        self._start = start
        self._speeds: dict[int, list[float]] = {candidate: [] for candidate in self._candidates}

    @property
    def portion(self) -> int:
        """Tokens of a measurement: the biggest candidate, so that all see the same amount and the same mixture."""
        return self._candidates[-1]

    @property
    def measured(self) -> bool:
        """Whether all candidates are measured."""
        return all(len(speeds) >= MEASUREMENTS for speeds in self._speeds.values())

    @property
    def best(self) -> int:
        """The smallest candidate that is nearly as fast as the fastest; the start until all are measured."""
        if not self.measured:
            return self._start
        fastest = max(map(max, self._speeds.values()))
        return min(candidate for candidate, speeds in self._speeds.items() if max(speeds) >= (1 - WORTH) * fastest)

    def trial(self, tokens: int) -> int | None:
        """The candidate to run next.

        Args:
            tokens: Tokens that wait; no more than the biggest candidate are no measurement.
        """
        if self.measured or tokens <= self.portion:
            return None
        return min(self._candidates, key=lambda candidate: len(self._speeds[candidate]))

    def record(self, candidate: int, tokens: int, seconds: float) -> None:
        """Keeps a measurement.

        Args:
            tokens: Tokens that were computed, padding apart.
            seconds: How long it took.
        """
        self._speeds[candidate].append(tokens / max(seconds, 1e-9))
        if self.measured:
            shown = ", ".join(f"{size}: {max(speeds):.0f}" for size, speeds in self._speeds.items())
            logger.debug("token budget %d (tokens per second: %s)", self.best, shown)


def token_budget(key: Hashable, device: str) -> TokenBudget:
    """The budget of one kind of model on one device, shared by all models of that kind in this process.

    Args:
        key: What speed depends on: the model's shape, device, precision, form of the forward pass, threads.
    """
    if key not in _budgets:
        if device == "cpu":
            _budgets[key] = TokenBudget(CPU_CANDIDATES, CPU_START)
        else:
            total = memory.total_bytes(device) or 0
            most = next((tokens for below, tokens in GPU_MOST if total < below), GPU_CANDIDATES[-1])
            _budgets[key] = TokenBudget([size for size in GPU_CANDIDATES if size <= most], most)
    return _budgets[key]


_budgets: dict[Hashable, TokenBudget] = {}
