"""Forms of the forward pass: rows of token ids in batches, each batch through the model's body.

Every form gives the same states; ``reference`` is the specification that the others are tested against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.models.local.forward.base import Batch, Forward
from semlex.models.local.forward.packed import PackedForward
from semlex.models.local.forward.trimmed import TrimmedForward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from semlex.models.tokenizer import TokenRows

__all__ = ["FORWARDS", "Batch", "Forward", "ReferenceForward"]


class ReferenceForward:
    """Padded batches and torch's own attention.

    Rows are padded on the right and the state of the last real token is gathered by its index. Attention is causal, so
    no real token can see the padding behind it: no mask is needed, and no row of a mask is ever empty (which is where
    some attention kernels return NaN).
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def batches(
        self,
        rows: TokenRows,
        *,
        token_budget: int,
        max_rows: int,
        kept_prefix: NDArray[np.int64] | None = None,
    ) -> Iterator[Batch]:
        """Plans padded batches: rows of like length together, so that little is padded; nothing is kept."""
        del kept_prefix
        plan = _core.plan_batches(rows.lengths, token_budget=token_budget, max_rows=max_rows, padded=True)
        for start, end in zip(plan.boundaries[:-1], plan.boundaries[1:], strict=True):
            chosen = plan.order[start:end]
            yield Batch(chosen, [rows[int(row)] for row in chosen])

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Pads, runs the body, gathers."""
        import torch  # noqa: PLC0415 (loaded already)

        longest = max(row.size for row in batch.tokens)
        ids = np.zeros((len(batch.tokens), longest), dtype=np.int64)  # any id will do as padding: nothing looks at it
        for place_in_batch, row in enumerate(batch.tokens):
            ids[place_in_batch, : row.size] = row
        last = np.array([row.size - 1 for row in batch.tokens])
        with torch.inference_mode():
            hidden = self._model.base_model(
                input_ids=torch.from_numpy(ids).to(self._model.device), use_cache=False
            ).last_hidden_state
            pooled = hidden[torch.arange(len(last), device=hidden.device), torch.from_numpy(last).to(hidden.device)]
            states: NDArray[np.float32] = pooled.float().cpu().numpy()
        return states


FORWARDS: dict[str, type[Forward]] = {
    "trimmed": TrimmedForward,
    "packed": PackedForward,
    "reference": ReferenceForward,
}
