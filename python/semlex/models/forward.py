"""Forms of the forward pass: rows of token ids in batches, each batch through the model's body.

Every form gives the same states; ``reference`` is the specification that the others are tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semlex import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from semlex.models.tokenizing import TokenRows


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that go through the model together.

    Attributes:
        rows: Their numbers.
        tokens: What the form needs of them.
    """

    rows: NDArray[np.int64]
    tokens: Any


class Forward(Protocol):
    """One form of the forward pass of one model."""

    def __init__(self, model: Any) -> None: ...

    def batches(self, rows: TokenRows, *, token_budget: int, max_rows: int) -> Iterator[Batch]:
        """Plans batches that cost at most `token_budget` tokens each; one longer row is a batch of its own."""
        ...

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """The normed state of the last token of every row: (rows of the batch, hidden size)."""
        ...


class ReferenceForward:
    """Padded batches and torch's own attention.

    Rows are padded on the right and the state of the last real token is gathered by its index. Attention is causal, so
    no real token can see the padding behind it: no mask is needed, and no row of a mask is ever empty (which is where
    some attention kernels return NaN).

    Args:
        model: A loaded model of transformers.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def batches(self, rows: TokenRows, *, token_budget: int, max_rows: int) -> Iterator[Batch]:
        """Plans padded batches: rows of like length together, so that little is padded."""
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


FORWARDS: dict[str, type[Forward]] = {"reference": ReferenceForward}
