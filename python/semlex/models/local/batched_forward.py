"""Forward passes over many rows: smaller ones where memory is short, and an end where nobody waits."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.models import cancellation
from semlex.models.local import memory
from semlex.models.local.shared_weights import exhausted
from semlex.models.local.token_budget import token_budget

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.models.local.shared_weights import Running
    from semlex.models.local.token_budget import TokenBudget
    from semlex.models.tokenizer import TokenRows

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch.

    Attributes:
        max_rows: Most rows.
        token_budget: Most tokens as configured, or None: measured.
    """

    max_rows: int
    token_budget: int | None


def measured_budget(running: Running) -> TokenBudget:
    """The budget that suits a model where it runs, when none is configured."""
    import torch  # noqa: PLC0415 (loaded already)

    shared = running.shared
    config = shared.model().config
    shape = (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads)
    place = (shared.placement.device, shared.placement.precision, running.attention)
    threads = torch.get_num_threads() if shared.placement.device == "cpu" else 0
    return token_budget((shape, place, threads), shared.placement.device)


def effective_budget(running: Running, limits: Limits) -> int:
    """Most tokens of the next pass: as configured or measured, and never more than what memory has borne."""
    budget = measured_budget(running).best if limits.token_budget is None else limits.token_budget
    cap = running.shared.token_cap
    return budget if cap is None else min(budget, cap)


def fill(
    states: NDArray[np.float32],
    rows: TokenRows,
    which: NDArray[np.int64],
    running: Running,
    limits: Limits,
    *,
    kept_prefix: NDArray[np.int64] | None = None,
) -> None:
    """Computes the states of rows.

    When memory runs out, the rows that are missing are planned again with half the tokens of the pass that failed. The
    model then keeps to that, and one line says so.
    """
    passes = _Passes(states, rows, running, limits, kept_prefix)
    missing = which
    while missing.size:
        trial = passes.trial(missing)
        done = passes.run(missing if trial is None else passes.portion(missing), trial)
        missing = missing[~np.isin(missing, done)]
    if passes.ran_out:
        logger.warning(
            "%s: memory of %s ran out; its passes hold at most %d tokens from now on",
            running.shared.folder.name,
            running.shared.placement.device,
            running.shared.token_cap,
        )


class _Passes:
    """The passes of one call.

    Attributes:
        ran_out: Whether memory ran out.
    """

    def __init__(
        self,
        states: NDArray[np.float32],
        rows: TokenRows,
        running: Running,
        limits: Limits,
        kept_prefix: NDArray[np.int64] | None,
    ) -> None:
        self._states = states
        self._rows = rows
        self._lengths = rows.lengths
        self._running = running
        self._limits = limits
        self._kept_prefix = kept_prefix
        self._device = running.shared.placement.device
        self._token_bytes = memory.bytes_per_token(running.shared.model().config, running.shared.placement.precision)
        self.ran_out = False
        self._short: int | None = None  # most tokens that found room just now, when fewer than wanted

    def trial(self, missing: NDArray[np.int64]) -> int | None:
        """The budget to measure next, if any."""
        if self._limits.token_budget is not None:
            return None
        trial = measured_budget(self._running).trial(int(self._lengths[missing].sum()))
        bounds = [bound for bound in (self._short, self._running.shared.token_cap) if bound is not None]
        return None if trial is None or any(trial > bound for bound in bounds) else trial

    def portion(self, missing: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of all lengths to measure with: every measurement then sees the same kind of work."""
        shuffled = np.random.default_rng(0).permutation(missing)
        tokens = np.cumsum(self._lengths[shuffled])
        count = int(np.searchsorted(tokens, measured_budget(self._running).portion, side="right"))
        return shuffled[: max(1, count)]

    def run(self, part: NDArray[np.int64], trial: int | None) -> NDArray[np.int64]:
        """Runs rows until they are done or memory is short."""
        shared = self._running.shared
        forward = shared.forward(self._running.attention)
        budget = effective_budget(self._running, self._limits) if trial is None else trial
        if self._short is not None:
            budget = min(budget, self._short)
        budget = max(budget, 1)
        rows = self._rows.select(part)
        done: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        seconds = 0.0
        for batch in forward.batches(
            rows, token_budget=budget, max_rows=self._limits.max_rows, kept_prefix=self._kept_prefix
        ):
            numbers = part[batch.rows]
            tokens = int(self._lengths[numbers].sum())
            with shared.lock:
                cancellation.check()
                started = time.perf_counter()
                if numbers.size > 1 and not memory.fits(self._device, tokens, self._token_bytes):
                    self._short = min(budget, tokens) // 2
                    break
                failed = False
                try:
                    self._states[numbers] = forward.run(batch)
                except Exception as error:
                    if not memory.is_exhausted(error):
                        raise
                    failed = True
                if failed:  # outside of the handler: the error holds on to every tensor of the pass
                    memory.give_back(self._device)
                    if numbers.size == 1:
                        raise exhausted(shared)
                    shared.token_cap = max(1, min(budget, tokens) // 2)
                    self.ran_out = True
                    break
                seconds += time.perf_counter() - started
            done.append(numbers)
        else:
            if trial is not None:
                measured_budget(self._running).record(trial, int(self._lengths[part].sum()), seconds)
        return np.concatenate(done)
