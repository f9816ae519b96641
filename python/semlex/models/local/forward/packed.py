"""The forward pass over packed batches: transformers' own model code, with the attention of `attention`.

All rows of a batch are one sequence without padding. Tokens that all rows of a call begin with are computed once.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.errors import ModelError
from semlex.models.local.forward.attention import ATTENTION_NAME, Layout, PaddedInside, SharedPrefix, form_for, register
from semlex.models.local.forward.base import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from semlex.models.tokenizer import TokenRows

# A prefix is computed in a separate pass, which must save more than it costs. A small pass reads all weights (as much
# time as some 30 tokens on a CPU); on a GPU it waits for the launch of its kernels.
MIN_SAVED_ON_CPU = 128
MIN_SAVED_ON_GPU = 1_024
# Keys and values of one token take 229 KiB in a model of 0.6 billion weights in float32.
MAX_SHARED = 1_024
# Instructions of queries: some 6 MiB each in that model. Users of one set of weights may have different ones.
MAX_KEPT = 4


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """What one pass reads.

    Attributes:
        batch: The rows, without the prefix.
        prefix: The tokens that all of them begin with, or None.
    """

    batch: _core.TokenBatch
    prefix: SharedPrefix | None


class PackedForward:
    """Packed batches, and attention that sees one document at a time."""

    def __init__(self, model: Any) -> None:
        if set(getattr(model.config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
            raise ModelError("the model has layers with a sliding window; use attn='reference'")
        self._model = model
        self._form = form_for(model.device, model.dtype)
        self._kept: OrderedDict[bytes, SharedPrefix] = OrderedDict()
        register()

    def batches(
        self,
        rows: TokenRows,
        *,
        token_budget: int,
        max_rows: int,
        kept_prefix: NDArray[np.int64] | None = None,
    ) -> Iterator[Batch]:
        """Plans packed batches.

        Args:
            token_budget: Most tokens of a pass.
        """
        prefix = self._known(rows, kept_prefix) or self._common(rows)
        plan = _core.TokenPlan(
            rows.ids,
            rows.offsets,
            token_budget=token_budget,
            max_rows=max_rows,
            padded=self._form is PaddedInside,
            skip=0 if prefix is None else prefix.ids.size,
        )
        for number in range(len(plan)):
            batch = plan.batch(number)
            yield Batch(batch.rows, PackedTokens(batch, prefix))

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """One pass (two when the prefix is still to be computed)."""
        import torch  # noqa: PLC0415 (loaded already)

        tokens: PackedTokens = batch.tokens
        with torch.inference_mode(), self._attention():
            if tokens.prefix is not None and not tokens.prefix.layers:
                tokens.prefix.layers = self._read(tokens.prefix.ids)
            last = self._last_states(tokens.batch, self._layout(tokens.batch, tokens.prefix))
            states: NDArray[np.float32] = last.float().cpu().numpy()
        return states

    def _known(self, rows: TokenRows, ids: NDArray[np.int64] | None) -> SharedPrefix | None:
        """The kept prefix, where all rows begin with these ids and go on."""
        if ids is None or not ids.size:
            return None
        heads = [rows[row][: ids.size + 1] for row in range(len(rows))]
        if not all(head.size > ids.size and np.array_equal(head[:-1], ids) for head in heads):
            return None
        prefix = self._kept.setdefault(ids.tobytes(), SharedPrefix(ids))
        self._kept.move_to_end(ids.tobytes())
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return prefix

    def _common(self, rows: TokenRows) -> SharedPrefix | None:
        """The tokens that all rows begin with, where computing them once saves time."""
        shared = min(_core.common_prefix(rows.ids, rows.offsets), MAX_SHARED)
        least = MIN_SAVED_ON_CPU if self._model.device.type == "cpu" else MIN_SAVED_ON_GPU
        return SharedPrefix(rows.ids[:shared].copy()) if shared * (len(rows) - 1) >= least else None

    def _read(self, ids: NDArray[np.int64]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of a prefix in every layer."""
        batch = _core.TokenPlan(ids, np.array([0, ids.size]), token_budget=ids.size, max_rows=1).batch(0)
        layout = self._layout(batch, None)
        layout.kept = []
        self._last_states(batch, layout)
        return layout.kept

    def _last_states(self, batch: _core.TokenBatch, layout: Layout) -> Tensor:
        """One pass; the normed states of the documents' last tokens: (documents, hidden size)."""
        hidden: Tensor = self._model.base_model(
            input_ids=self._tensor(batch.ids).unsqueeze(0),
            position_ids=self._tensor(batch.positions).unsqueeze(0),
            # A mapping is taken as masks that were made already: none is built.
            attention_mask={"full_attention": None},
            use_cache=False,
            layout=layout,
        ).last_hidden_state
        return hidden[0, self._tensor(batch.offsets[1:] - 1)]

    def _layout(self, batch: _core.TokenBatch, prefix: SharedPrefix | None) -> Layout:
        return Layout(self._form(batch, 0 if prefix is None else prefix.ids.size, self._model.device), prefix)

    def _tensor(self, numbers: NDArray[np.int64]) -> Tensor:
        import torch  # noqa: PLC0415 (loaded already)

        return torch.from_numpy(numbers).to(self._model.device)

    @contextmanager
    def _attention(self) -> Iterator[None]:
        """Our attention for one pass; other forms that share the model find it as they left it."""
        before = self._model.config._attn_implementation  # noqa: SLF001 (has no public reader)
        self._model.set_attn_implementation(ATTENTION_NAME)
        try:
            yield
        finally:
            self._model.set_attn_implementation(before)
