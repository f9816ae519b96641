"""Tests a loaded model before its first text: some devices compute attention wrongly and raise no error.

The specification is one plain pass of the model's body over two rows of equal length, with nothing padded and no state
gathered. In a causal model the state of a position does not change when later tokens are taken away, so every prefix
of those rows, as a separate row, must end in the state that the body has at that position. All prefixes go through the
form of the forward pass in one batch, and one of them by itself. That one comparison sees:

* later tokens that leak into earlier positions (torch before 2.13 applies the causal rule per group of 4 queries on
  MPS): a prefix that ends within a group has no later tokens to see, the body has;
* a form that differs from the body, or in which a row depends on its neighbours;
* values that are not finite, and passes that raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import WorkAbandonedError
from semlex.models.local import memory
from semlex.models.tokenizer import TokenRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.models.local.forward.reference import Forward

# Batches of prefixes: number of the row (0 or 1) and length; the last one is a whole row. Ends within groups of 2, 4
# and 8 are among them. On a CPU three passes over 16, 22 and 6 tokens: a little more than reading the weights thrice.
CPU_BATCHES = (((0, 3), (0, 6), (1, 5), (1, 8)),)
# On GPUs also the edges of the blocks in which attention is computed there, and rows that begin alike for so long that
# a form may compute their beginning once.
GPU_BATCHES = (
    (*((0, length) for length in (2, 3, 5, 6, 7, 9, 14, 17, 30, 63)), *((1, length) for length in (3, 33, 66, 127))),
    tuple((0, length) for length in range(129, 141)),
)
# The commonest tokens of a byte-level vocabulary stand in front; the last ids of one may never have been trained.
COMMON_TOKENS = 20_000
# Components of vectors of norm 1, and cosines: what the order of summation alone changes stays a tenth below either.
FLOAT32_TOLERANCE = 1e-5
HALF_PRECISION_COSINE = 0.999


def find_defect(model: Any, form: type[Forward], precision: str) -> tuple[str | None, Forward | None]:
    """Tests one form of the forward pass of a model.

    Args:
        precision: ``float32``, ``bfloat16`` or ``float16``.
    """
    try:
        batches = CPU_BATCHES if model.device.type == "cpu" else GPU_BATCHES
        wholes = _rows(min(model.config.vocab_size, COMMON_TOKENS), batches[-1][-1][1])
        body = _body_states(model, wholes)
        expected = np.stack([body[row, length - 1] for batch in batches for row, length in batch])
        forward = form(model)
        prefixes = [[wholes[row, :length] for row, length in batch] for batch in batches]
        together = np.concatenate([_run(forward, rows) for rows in prefixes])
        alone = _run(forward, prefixes[0][1:2])
    except Exception as error:  # whatever a form raises, another form may not
        if isinstance(error, WorkAbandonedError) or memory.is_exhausted(error):
            raise
        return f"raised {type(error).__name__}", None
    if not all(np.isfinite(states).all() for states in (body, together, alone)):
        return "gave values that are not finite" if precision == "float32" else f"overflowed in {precision}", None
    exact = precision == "float32" and not _rounds_float32(model)
    agree = _close(together, expected, exact=exact)
    single = _close(alone, expected[1:2], exact=exact).all()
    if agree.all():
        return (None, forward) if single else ("gave other states than the model for a row by itself", None)
    # A whole row has no later tokens to see: where it agrees and a prefix does not, later tokens were seen.
    if agree[-1]:
        return "let later tokens leak into earlier ones", None
    return ("made the state of a row depend on its batch" if single else "gave other states than the model"), None


def _rows(vocabulary: int, length: int) -> NDArray[np.int64]:
    """(2, length) token ids, all over the vocabulary."""
    numbers = np.arange(1, 2 * length + 1, dtype=np.int64) * 7_919  # a prime: no id comes twice in one row
    return (numbers % vocabulary).reshape(2, length)


def _body_states(model: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """(rows, length, hidden size): the body's states of all positions."""
    import torch  # noqa: PLC0415 (loaded already)

    with torch.inference_mode():
        hidden = model.base_model(input_ids=torch.from_numpy(rows).to(model.device), use_cache=False).last_hidden_state
        states: NDArray[np.float32] = hidden.float().cpu().numpy()
    return states


def _run(forward: Forward, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
    """(rows, hidden size): the states that a form gives, in one batch where the form makes one."""
    states: dict[int, NDArray[np.float32]] = {}
    for batch in forward.batches(TokenRows.of(rows), token_budget=1 << 20, max_rows=len(rows)):
        states |= zip(batch.rows.tolist(), forward.run(batch), strict=True)
    return np.stack([states[row] for row in range(len(rows))])


def _close(found: NDArray[np.float32], expected: NDArray[np.float32], *, exact: bool) -> NDArray[np.bool_]:
    """(rows,): whether two lists of vectors point the same way, as far as their precision goes."""
    units = []
    for vectors in (found, expected):
        wide = vectors.astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        units.append(wide / np.where(norms == 0, 1.0, norms))
    agree: NDArray[np.bool_]
    if exact:
        agree = np.abs(units[0] - units[1]).max(axis=1) <= FLOAT32_TOLERANCE
    else:
        agree = np.sum(units[0] * units[1], axis=1) >= HALF_PRECISION_COSINE
    return agree


def _rounds_float32(model: Any) -> bool:
    """Whether this process lets CUDA shorten the factors of float32 products to 10 bits (TF32)."""
    import torch  # noqa: PLC0415 (loaded already)

    return model.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
