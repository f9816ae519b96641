"""The transformer of the Qwen3 embedder and reranker: token ids in, last-token hidden states out."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError, ModelError
from semlex.forks import drop, new_rlock, renew_after_fork
from semlex.models import cancellation
from semlex.models.local import memory
from semlex.models.local.device import check_names, choose_placement
from semlex.models.local.forward import FORWARDS
from semlex.models.local.shared_weights import Attempt, Running, exhausted, open_model
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from semlex.models.files import ModelFolder
    from semlex.models.tokenizer import TokenRows


CPU_CANDIDATES = (512, 1_024, 2_048, 4_096)
GPU_CANDIDATES = (*CPU_CANDIDATES[1:], 8_192, 16_384)
# Rows of a pass. Only the tokens of a pass matter for its time and memory, so this merely bounds passes of tiny rows.
MAX_ROWS = 1_024
CPU_START = 1_024
# A GPU starts with the most that suits the memory it has for this process. Macs with 8, 16 and 32 GiB offer it about
# two thirds; 8, 16 and 32 chunks of 500 tokens are known to be safe for them.
GPU_MOST = ((10 << 30, 4_096), (20 << 30, 8_192))
# The better of two: the first pass of a shape may build or tune its kernels, and other programs run, too.
MEASUREMENTS = 2
# A smaller budget needs less memory and can be interrupted sooner, so the bigger one must be faster by more than this.
WORTH = 0.03


# The best size of a pass depends on the device: on CPUs a large pass does not fit into the cache (16,384 tokens took
# 1.5 to 1.9 times as long per token as 4,096), on GPUs a small one does not fill the units. So the first large calls
# run their batches with one candidate size after the other and record the time. Nothing is computed only for measuring,
# and no result depends on it.
class TokenBudget:
    """Measures the speed of passes of several sizes (candidates: tokens, ascending) and chooses the best size."""

    def __init__(self, candidates: Sequence[int], start: int) -> None:
        self._candidates = tuple(candidates)
        self._start = start
        self._speeds: dict[int, list[float]] = {candidate: [] for candidate in self._candidates}

    @property
    def portion(self) -> int:
        """Return how many tokens one measurement runs: the largest candidate, so that all run the same mix of rows."""
        return self._candidates[-1]

    @property
    def measured(self) -> bool:
        """Return whether all candidates have been timed."""
        return all(len(speeds) >= MEASUREMENTS for speeds in self._speeds.values())

    @property
    def best(self) -> int:
        """Return the smallest candidate that is nearly as fast as the fastest; the start value if any is unmeasured."""
        if not self.measured:
            return self._start
        fastest = max(map(max, self._speeds.values()))
        return min(candidate for candidate, speeds in self._speeds.items() if max(speeds) >= (1 - WORTH) * fastest)

    def trial(self, tokens: int) -> int | None:
        """Return the candidate to measure next; None if all are measured or too few tokens are waiting."""
        if self.measured or tokens <= self.portion:
            return None
        return min(self._candidates, key=lambda candidate: len(self._speeds[candidate]))

    def record(self, candidate: int, tokens: int, seconds: float) -> None:
        """Record a measurement: tokens (without padding) and seconds."""
        self._speeds[candidate].append(tokens / max(seconds, 1e-9))
        if self.measured:
            shown = ", ".join(f"{size}: {max(speeds):.0f}" for size, speeds in self._speeds.items())
            logger.debug("token budget %d (tokens per second: %s)", self.best, shown)


def token_budget(key: Hashable, device: str) -> TokenBudget:
    """Return the token budget of one kind of model on one device; all such models in this process share it."""
    # `key` contains everything that speed depends on: the model's shape, device, precision, form of the forward pass,
    # threads.
    if key not in _budgets:
        if device == "cpu":
            _budgets[key] = TokenBudget(CPU_CANDIDATES, CPU_START)
        else:
            total = memory.total_bytes(device) or 0
            most = next((tokens for below, tokens in GPU_MOST if total < below), GPU_CANDIDATES[-1])
            _budgets[key] = TokenBudget([size for size in GPU_CANDIDATES if size <= most], most)
    return _budgets[key]


_budgets: dict[Hashable, TokenBudget] = {}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a batch; `token_budget` None means the measured one."""

    max_rows: int
    token_budget: int | None


def measured_budget(running: Running) -> TokenBudget:
    """Return the token budget that is measured for a model in its configuration."""
    import torch  # noqa: PLC0415 (loaded already)

    shared = running.shared
    config = shared.model().config
    shape = (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads)
    place = (shared.placement.device, shared.placement.precision, running.attention)
    threads = torch.get_num_threads() if shared.placement.device == "cpu" else 0
    return token_budget((shape, place, threads), shared.placement.device)


def effective_budget(running: Running, limits: Limits) -> int:
    """Return the tokens of the next pass: configured or measured, and never more than memory has allowed so far."""
    budget = measured_budget(running).best if limits.token_budget is None else limits.token_budget
    cap = running.shared.token_cap
    return budget if cap is None else min(budget, cap)


class _Passes:
    """Computes the last-token states of rows into `states`, in smaller passes if memory runs out."""

    # If memory runs out, the missing rows are planned again with half the tokens; the model keeps that limit, and it is
    # logged once.

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
        self._ran_out = False
        self._short: int | None = None  # most tokens that found room just now, when fewer than wanted

    def fill(self, missing: NDArray[np.int64]) -> None:
        """Compute the rows with these numbers."""
        while missing.size:
            trial = self._trial(missing)
            done = self._run(missing if trial is None else self._portion(missing), trial)
            missing = missing[~np.isin(missing, done)]
        if self._ran_out:
            shared = self._running.shared
            logger.warning(
                "%s: memory of %s ran out; batches have at most %d tokens from now on",
                shared.folder.name,
                self._device,
                shared.token_cap,
            )

    def _trial(self, missing: NDArray[np.int64]) -> int | None:
        """Return the pass size (in tokens) to measure next, or None."""
        if self._limits.token_budget is not None:
            return None
        trial = measured_budget(self._running).trial(int(self._lengths[missing].sum()))
        bounds = [bound for bound in (self._short, self._running.shared.token_cap) if bound is not None]
        return None if trial is None or any(trial > bound for bound in bounds) else trial

    def _portion(self, missing: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows of all lengths, so that every measurement has the same kind of work."""
        shuffled = np.random.default_rng(0).permutation(missing)
        tokens = np.cumsum(self._lengths[shuffled])
        count = int(np.searchsorted(tokens, measured_budget(self._running).portion, side="right"))
        return shuffled[: max(1, count)]

    def _run(self, part: NDArray[np.int64], trial: int | None) -> NDArray[np.int64]:
        """Run rows until all are done or memory runs out; return the numbers of the rows that are done."""
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
                    self._ran_out = True
                    break
                seconds += time.perf_counter() - started
            done.append(numbers)
        else:
            if trial is not None:
                measured_budget(self._running).record(trial, int(self._lengths[part].sum()), seconds)
        return np.concatenate(done)


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """How a model runs, in a configuration that passed the self-test."""

    device: str
    precision: str
    precision_reason: str
    attention: str
    token_budget: int
    token_budget_reason: str  # ``configured``, ``measured``, ``start value``, or ``memory ran out``
    failures: tuple[Attempt, ...]  # settings that were given up before, in order


class Transformer:
    """A causal transformer that is loaded at first use and tested before its first text."""

    # Transformers of the same folder, head, device and precision share one set of weights, which is freed with the last
    # of them. If memory runs out, all of them use smaller passes.

    def __init__(
        self,
        folder: ModelFolder,
        *,
        head: str,
        device: str | None,
        precision: str | None,
        batch_size: int,
        # Includes padding; None means the measured one.
        token_budget: int | None,
        attention: str,
    ) -> None:
        check_names(device, precision)
        if attention not in FORWARDS:
            raise ConfigurationError(f"attn must be one of {', '.join(FORWARDS)}; got {attention!r}")
        if token_budget is not None:
            check_range("token_budget", token_budget, 128, 1 << 20)
        self.folder = folder
        self._head = head
        self._attention = attention
        self._requested = (device, precision)
        self._limits = Limits(batch_size, token_budget)
        self._running: Running | None = None
        self._failures: tuple[Attempt, ...] = ()
        self._closed = False
        self._lock = new_rlock()
        renew_after_fork(self)

    @property
    def report(self) -> RuntimeReport | None:
        """Return how the model runs, or None while it is not loaded."""
        with self._lock:
            if self._running is None:
                return None
            shared = self._running.shared
            budget = effective_budget(self._running, self._limits)
            if budget == shared.token_cap:
                why = "memory ran out"
            elif self._limits.token_budget is not None:
                why = "configured"
            else:
                why = "measured" if measured_budget(self._running).measured else "start value"
            return RuntimeReport(
                device=shared.placement.device,
                precision=shared.placement.precision,
                precision_reason=shared.placement.reason,
                attention=self._running.attention,
                token_budget=budget,
                token_budget_reason=why,
                failures=self._failures + self._running.failures,
            )

    def last_hidden(self, rows: TokenRows, *, kept_prefix: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the state of every row's last token after the final norm: (rows, hidden size)."""
        # Rows that overflow in half precision are computed again in float32, which this transformer then keeps using.
        running = self._open()
        states = np.empty((len(rows), running.shared.model().config.hidden_size), dtype=np.float32)
        if not len(rows):
            return states
        _Passes(states, rows, running, self._limits, kept_prefix).fill(np.arange(len(rows)))
        overflowed = np.flatnonzero(~np.isfinite(states).all(axis=1))
        if overflowed.size and running.shared.placement.precision != "float32":
            self._leave(running, overflowed.size, len(rows))
            del running  # the weights go before the wider ones come
            _Passes(states, rows, self._open(), self._limits, kept_prefix).fill(overflowed)
        return states

    def head_rows(self, ids: tuple[int, int]) -> NDArray[np.float32]:
        """Return the two rows of the output layer that a yes/no decision needs."""
        shared = self._open().shared
        with shared.lock:
            model = shared.model()
            if self._head == "classifier":
                label = model.score.weight.detach().float().cpu().numpy()
                if label.shape[0] != 1:
                    raise ModelError(f"{self.folder.name} is a classifier with {label.shape[0]} labels; expected 1")
                return np.concatenate([np.zeros_like(label), label])
            weight = model.get_output_embeddings().weight.detach()
            if max(ids) >= weight.shape[0]:
                raise ModelError(
                    f"{self.folder.name}: its tokenizer has token {max(ids)}, but its output layer has "
                    f"{weight.shape[0]} tokens; the files do not match: download the model again"
                )
            rows: NDArray[np.float32] = weight[list(ids)].float().cpu().numpy()
            return rows

    def close(self) -> None:
        """Release the weights; a second call does nothing. A call that is running in another thread can finish."""
        with self._lock:
            self._closed = True
            self._running = None

    def _open(self) -> Running:
        with self._lock:
            if self._closed:
                raise ModelError(f"the model {self.folder.name} was closed; make a new one")
            if self._running is None:
                self._running = open_model(self.folder, self._head, choose_placement(*self._requested), self._attention)
            return self._running

    def _leave(self, running: Running, overflowed: int, rows: int) -> None:
        with self._lock:
            if self._running is not running:
                return
            device, precision = running.shared.placement.device, running.shared.placement.precision
            logger.warning(
                "%s: %d of %d rows overflowed in %s; the model now runs in float32",
                self.folder.name,
                overflowed,
                rows,
                precision,
            )
            failed = Attempt(device, precision, running.attention, f"overflowed in {precision}")
            self._failures += (*running.failures, failed)
            # Read again rather than widened: the weights themselves may have overflowed.
            self._requested = (device, "float32")
            self._running = None

    def _after_fork(self) -> None:
        drop(self._running)
        self._running = None


def check_config(folder: ModelFolder, max_length: int) -> int:
    """Return the hidden size of a Qwen3 model that can read texts of `max_length` tokens, or refuse the folder."""
    config = folder.read_json("config.json")
    hidden, positions = config.get("hidden_size"), config.get("max_position_embeddings", max_length)
    if config.get("model_type") != "qwen3" or not isinstance(hidden, int) or not isinstance(positions, int):
        raise ModelError(f"{folder.name} is not a Qwen3 model (config.json: model_type); choose another model")
    if max_length > positions:
        check_range(f"max_length for {folder.name}", max_length, 128, positions)
    return hidden
