"""A device's memory: detects that it ran out, frees it, estimates what fits, and shrinks batches until they fit."""

from __future__ import annotations

import gc
import logging
import sys
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError
from semlex.models import cancellation

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

# What torch says, in lower case: CUDA and MPS; the CPU's allocator on Linux and on Windows; cuBLAS; and a single
# tensor that is larger than Metal allows.
EXHAUSTED = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "invalid buffer size",
)
# A pass may take this part of what is free: the estimate below knows nothing of a kernel's own working memory.
SHARE_OF_FREE = 0.5


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, so that a smaller batch may succeed."""
    if isinstance(error, MemoryError):
        return True
    message = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in message for part in EXHAUSTED)


def give_back(device: str) -> None:
    """Collect garbage and return torch's cached blocks to the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if device == "cuda" and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if device == "mps" and torch.backends.mps.is_available():
        torch.mps.empty_cache()


def free_bytes(device: str) -> int | None:
    """Return the bytes that a forward pass could use, including torch's free blocks; None on a CPU."""
    import torch  # noqa: PLC0415 (loaded already)

    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free) + cached_bytes(device)
    if device == "mps":
        # Metal goes on beyond the recommended size, and the whole machine then swaps.
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def cached_bytes(device: str) -> int:
    """Return the free bytes that torch has reserved already; unlike `free_bytes`, do not ask the slow driver."""
    import torch  # noqa: PLC0415 (loaded already)

    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated() if device == "cuda" else 0


def total_bytes(device: str) -> int | None:
    """Return the bytes that the device has for this process; None on a CPU."""
    import torch  # noqa: PLC0415 (loaded already)

    if device == "cuda":
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    if device == "mps":
        return int(torch.mps.recommended_max_memory())
    return None


def bytes_per_token(config: Any, precision: str) -> int:
    """Estimate the bytes of one token at the widest point of a layer."""
    heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads
    # Eight vectors of the hidden size, four of the MLP's, and twice the queries, keys, values and attention output.
    numbers = 8 * config.hidden_size + 4 * config.intermediate_size + 2 * heads * config.head_dim
    return int(numbers * (4 if precision == "float32" else 2))


def fits(device: str, tokens: int, token_bytes: int) -> bool:
    """Return whether a batch fits; before returning False, free torch's cached blocks and check again."""
    needed = tokens * token_bytes
    if needed <= SHARE_OF_FREE * cached_bytes(device):
        return True
    free = free_bytes(device)
    if free is None or needed <= SHARE_OF_FREE * free:
        return True
    give_back(device)
    free = free_bytes(device)
    return free is None or needed <= SHARE_OF_FREE * free


def remedy(device: str, precision: str | None = None) -> str:
    """Return advice on how to free memory of a device or need less of it."""
    half = "dtype='bfloat16' or " if precision == "float32" else ""
    smaller = "a smaller model" if device == "cpu" else "device='cpu' or a smaller model"
    return f"close other models and programs, or use {half}{smaller}"


def usual_batch(device: str) -> int:
    """Return the batch size for models of sentence-transformers; a GPU needs larger batches to be busy."""
    return 256 if device == "cuda" else 32


def run_in_batches(
    run: Callable[[NDArray[np.int64]], None], rows: NDArray[np.int64], size: int, *, device: str, model: str
) -> int:
    """Run rows in batches of the given size, smaller ones if memory runs out; return the size that worked."""
    start, wanted = 0, size
    while start < rows.size:
        cancellation.check()
        part = rows[start : start + size]
        try:
            run(part)
        except Exception as error:
            if not is_exhausted(error):
                raise
        else:
            start += part.size
            continue
        give_back(device)  # outside of the handler: the error holds on to every tensor of the pass
        if part.size == 1:
            raise ModelError(
                f"{model}: the memory of {device} is too small for a single text; shorten the texts, {remedy(device)}"
            )
        size = part.size // 2
    if size < wanted:
        logger.warning("%s: memory of %s ran out; batches have at most %d texts from now on", model, device, size)
    return size
