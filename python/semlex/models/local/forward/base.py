"""What the forms of the forward pass have in common: batches in, states out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from semlex.models.tokenizer import TokenRows


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

    def batches(
        self,
        rows: TokenRows,
        *,
        token_budget: int,
        max_rows: int,
        kept_prefix: NDArray[np.int64] | None = None,
    ) -> Iterator[Batch]:
        """Plans batches that cost at most `token_budget` tokens each; one longer row is a separate batch.

        Token ids in `kept_prefix` are a hint: calls whose rows begin with them follow, and what the model makes of them
        may be kept. It never changes the states.
        """
        ...

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """The normed state of the last token of every row: (rows of the batch, hidden size)."""
        ...
