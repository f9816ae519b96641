"""The transformer under the Qwen3 embedder and the Qwen3 reranker: token ids in, last-token hidden states out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError, ModelError
from semlex.forks import drop, new_rlock, renew_after_fork
from semlex.models.local import batched_forward
from semlex.models.local.batched_forward import Limits
from semlex.models.local.device import check_names, choose_placement, require_torch
from semlex.models.local.forward.reference import FORWARDS
from semlex.models.local.shared_weights import Attempt, open_model
from semlex.validation import check_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.models.files import ModelFolder
    from semlex.models.local.shared_weights import Running
    from semlex.models.tokenizer import TokenRows

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """How a model runs, and why so. That there is one means that the self-test of this setting was passed.

    The tokens that vectors and scores depend on (the end token, ``yes`` and ``no``) are checked by the embedder and the
    reranker when they open their tokenizers.

    Attributes:
        device: ``mps``, ``cuda`` or ``cpu``.
        precision: ``float32``, ``bfloat16`` or ``float16``.
        precision_reason: Why this precision.
        attention: Form of the forward pass.
        token_budget: Most tokens of the next pass.
        token_budget_reason: ``configured``, ``measured``, ``start value``, or ``memory ran out``.
        failures: Settings that were given up before this one, in order.
    """

    device: str
    precision: str
    precision_reason: str
    attention: str
    token_budget: int
    token_budget_reason: str
    failures: tuple[Attempt, ...]


class Transformer:
    """A causal transformer that is loaded at first use and tested before its first text.

    Transformers of the same folder, head, device and precision share one set of weights; it is released when the last
    of them closes. What one of them does is not seen by the others, with one exception: when memory runs out, all keep
    to smaller passes. A forked child of a process that
    has loaded a model cannot run one.

    Args:
        precision: ``float32``, ``bfloat16``, ``float16`` or None.
        token_budget: Most tokens in a forward pass, padding included; None for one that is measured on the first large
            calls (see `semlex.models.local.token_budget`). One row that is longer makes a separate pass.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        head: str,
        purpose: str,
        device: str | None,
        precision: str | None,
        batch_size: int,
        token_budget: int | None,
        attention: str,
    ) -> None:
        require_torch(purpose)
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
        """How the model runs, or None while it is not loaded."""
        with self._lock:
            if self._running is None:
                return None
            shared = self._running.shared
            budget = batched_forward.effective_budget(self._running, self._limits)
            if budget == shared.token_cap:
                why = "memory ran out"
            elif self._limits.token_budget is not None:
                why = "configured"
            else:
                why = "measured" if batched_forward.measured_budget(self._running).measured else "start value"
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
        """Runs the body (with its final norm) and takes the state of every row's last token.

        Returns:
            (n, hidden size), in the order of the rows. Rows that are not finite in half precision are computed again in
            float32, which this transformer then keeps; others that share its weights go on as they were.
        """
        running = self._open()
        states = np.empty((len(rows), running.shared.model().config.hidden_size), dtype=np.float32)
        if not len(rows):
            return states
        batched_forward.fill(states, rows, np.arange(len(rows)), running, self._limits, kept_prefix=kept_prefix)
        overflowed = np.flatnonzero(~np.isfinite(states).all(axis=1))
        if overflowed.size and running.shared.placement.precision != "float32":
            self._leave(running, overflowed.size, len(rows))
            del running  # the weights go before the wider ones come
            batched_forward.fill(states, rows, overflowed, self._open(), self._limits, kept_prefix=kept_prefix)
        return states

    def head_rows(self, ids: tuple[int, int]) -> NDArray[np.float32]:
        """Reads the two rows of the output layer that a yes/no decision needs."""
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
                    f"{self.folder.name}: its tokenizer knows token {max(ids)}, its output layer ends at "
                    f"{weight.shape[0]}; the two files do not belong together, fetch the model again"
                )
            rows: NDArray[np.float32] = weight[list(ids)].float().cpu().numpy()
            return rows

    def close(self) -> None:
        """Lets the weights go, and with the last of their users the device's memory; a second call does nothing.

        A call that another thread has begun goes on to its end, and holds the weights until then.
        """
        with self._lock:
            self._closed = True
            self._running = None

    def _open(self) -> Running:
        with self._lock:
            if self._closed:
                raise ModelError(f"{self.folder.name} was closed; make a new one")
            if self._running is None:
                self._running = open_model(self.folder, self._head, choose_placement(*self._requested), self._attention)
            return self._running

    def _leave(self, running: Running, overflowed: int, rows: int) -> None:
        """Gives up half precision, unless another thread has done so in the meantime."""
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
    """Checks that a folder holds a Qwen3 model that can read texts of a length.

    Args:
        max_length: Most tokens of a text.
    """
    config = folder.read_json("config.json")
    hidden, positions = config.get("hidden_size"), config.get("max_position_embeddings", max_length)
    if config.get("model_type") != "qwen3" or not isinstance(hidden, int) or not isinstance(positions, int):
        raise ModelError(f"{folder.name} is not a Qwen3 model (config.json: model_type); choose another model")
    if max_length > positions:
        check_range(f"max_length for {folder.name}", max_length, 128, positions)
    return hidden
