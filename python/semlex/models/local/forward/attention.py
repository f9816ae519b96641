"""Attention over packed batches: documents stand one behind the other in one sequence, and each sees only itself.

Three forms give the same states:

- `PerDocument` (CPU): one call for each document. Nothing is padded and the causal kernel applies.
- `PaddedInside` (MPS, and GPUs without the third): one call; documents are padded inside the attention alone.
- `VariableLength` (CUDA in half precision, torch 2.13): torch's own kernel for packed documents.

All of them can put a shared prefix, whose keys and values are known, in front of every document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from semlex._core import TokenBatch

ATTENTION_NAME = "semlex_packed"
# First torch with `varlen_attn` as it is called here, and whose causal attention is right on MPS in every precision.
VARIABLE_LENGTH_FROM = CAUSAL_ON_MPS_FROM = (2, 13)
FLASH_FROM_CAPABILITY = 8  # compute capability sm80
# Queries of a document that attend in one call when a prefix stands in front: bounds the mask.
QUERIES_PER_CALL = 512


@dataclass(slots=True)
class SharedPrefix:
    """Tokens that several rows begin with.

    Attributes:
        ids: (p,) int64.
        layers: Keys and values of every layer, (1, key heads, p, head size) each; empty until they are computed.
    """

    ids: NDArray[np.int64]
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class AttentionForm(Protocol):
    """Attention over the documents of one batch."""

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None: ...

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Attends."""
        ...


class PerDocument:
    """One call of torch's attention for each document.

    Args:
        prefix: Tokens of the shared prefix, 0 for none.
    """

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None:
        self._offsets = batch.offsets.tolist()
        self._prefix = prefix
        # Without a prefix the causal kernel needs no mask; an empty one costs nothing.
        longest = int(np.diff(batch.offsets).max()) if prefix else 0
        self._mask = _mask(min(longest, QUERIES_PER_CALL), prefix + longest, device)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """See `AttentionForm`."""
        import torch  # noqa: PLC0415 (loaded already)
        from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

        output = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
        for start, end in pairwise(self._offsets):
            keys, values = key[:, :, start:end], value[:, :, start:end]
            if before is None:
                attended = scaled_dot_product_attention(
                    query[:, :, start:end], keys, values, is_causal=True, scale=scaling, enable_gqa=True
                )
                output[:, start:end] = attended.transpose(1, 2)
                continue
            keys, values = torch.cat([before[0], keys], dim=2), torch.cat([before[1], values], dim=2)
            for first in range(start, end, QUERIES_PER_CALL):
                last = min(first + QUERIES_PER_CALL, end)
                seen = self._prefix + last - start
                attended = scaled_dot_product_attention(
                    query[:, :, first:last],
                    keys[:, :, :seen],
                    values[:, :, :seen],
                    attn_mask=self._mask[first - last :, -seen:],
                    scale=scaling,
                    enable_gqa=True,
                )
                output[:, first:last] = attended.transpose(1, 2)
        return output


class PaddedInside:
    """One call of torch's attention, with the documents padded on the right.

    Padding stands behind every real token, so the causal rule hides it, and no row of a mask is ever empty (which is
    where some kernels return NaN). Key heads are repeated: with a mask, kernels for grouped heads are slow or wrong on
    some devices.

    Args:
        prefix: Tokens of the shared prefix, 0 for none.
    """

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None:
        import torch  # noqa: PLC0415 (loaded already)

        lengths = np.diff(batch.offsets)
        self._shape = (lengths.size, int(lengths.max()))
        slots = batch.documents * self._shape[1] + batch.positions - prefix
        self._slots = torch.from_numpy(slots).to(device)
        masked = prefix or (device.type == "mps" and torch_version() < CAUSAL_ON_MPS_FROM)
        self._mask = _mask(self._shape[1], prefix + self._shape[1], device) if masked else None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """See `AttentionForm`."""
        import torch  # noqa: PLC0415 (loaded already)
        from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

        keys, values = self._padded(key), self._padded(value)
        if before is not None:
            fronts = [part.expand(self._shape[0], -1, -1, -1) for part in before]
            keys, values = torch.cat([fronts[0], keys], dim=2), torch.cat([fronts[1], values], dim=2)
        groups = query.shape[1] // key.shape[1]
        attended = scaled_dot_product_attention(
            self._padded(query),
            keys.repeat_interleave(groups, dim=1),
            values.repeat_interleave(groups, dim=1),
            attn_mask=self._mask,
            is_causal=self._mask is None,
            scale=scaling,
        )
        return attended.transpose(1, 2).flatten(0, 1)[self._slots].unsqueeze(0)

    def _padded(self, states: Tensor) -> Tensor:
        tokens = states[0].transpose(0, 1)
        padded = tokens.new_zeros(self._shape[0] * self._shape[1], *tokens.shape[1:])
        padded[self._slots] = tokens
        return padded.view(*self._shape, *tokens.shape[1:]).transpose(1, 2)


class VariableLength:
    """torch's flash attention for packed documents (`torch.nn.attention.varlen`).

    Args:
        prefix: Tokens of the shared prefix, 0 for none.
    """

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None:
        import torch  # noqa: PLC0415 (loaded already)

        lengths = np.diff(batch.offsets)
        self._longest = (int(lengths.max()), int(lengths.max()) + prefix)
        self._queries = torch.from_numpy(batch.offsets.astype(np.int32)).to(device)
        # The same tensor where it can be: some kernels take that as the sign of self-attention.
        self._keys = self._queries
        self._gathered: Tensor | None = None
        if prefix:
            self._keys = self._queries + prefix * torch.arange(lengths.size + 1, dtype=torch.int32, device=device)
            front = np.arange(prefix)
            parts = [part for a, b in pairwise(batch.offsets) for part in (front, np.arange(a, b) + prefix)]
            self._gathered = torch.from_numpy(np.concatenate(parts)).to(device)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """See `AttentionForm`."""
        import torch  # noqa: PLC0415 (loaded already)
        from torch.nn.attention import varlen  # noqa: PLC0415

        if before is not None and self._gathered is not None:
            key = torch.cat([before[0], key], dim=2).index_select(2, self._gathered)
            value = torch.cat([before[1], value], dim=2).index_select(2, self._gathered)
        attended: Any = varlen.varlen_attn(
            query[0].transpose(0, 1),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            self._queries,
            self._keys,
            *self._longest,
            scale=scaling,
            window_size=(-1, 0),  # causal, counted from the end of a document: its first token sees the whole prefix
            enable_gqa=True,
        )
        return cast("Tensor", attended).unsqueeze(0)


def form_for(device: Any, dtype: Any) -> type[AttentionForm]:
    """The form that is fastest on a device.

    Args:
        dtype: The model's precision, a torch dtype.
    """
    import torch  # noqa: PLC0415 (loaded already)

    if device.type == "cpu":
        return PerDocument
    half = dtype in (torch.bfloat16, torch.float16)
    if device.type == "cuda" and half and torch_version() >= VARIABLE_LENGTH_FROM:
        capability = torch.cuda.get_device_capability(device)
        if capability[0] >= FLASH_FROM_CAPABILITY:
            return VariableLength
    return PaddedInside


@dataclass(slots=True)
class Layout:
    """What the attention of one pass has to know.

    Attributes:
        form: Attention over the batch's documents.
        prefix: The shared prefix, or None.
        kept: Where the keys and values of every layer are put, or None.
    """

    form: AttentionForm
    prefix: SharedPrefix | None = None
    kept: list[tuple[Tensor, Tensor]] | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attends in one layer; shapes as for `AttentionForm.attend`."""
        if self.kept is not None:
            self.kept.append((key, value))
        return self.form.attend(query, key, value, scaling, None if self.prefix is None else self.prefix.layers[layer])


def register() -> None:
    """Makes the attention known to transformers under `ATTENTION_NAME`; doing so again changes nothing."""
    from transformers import AttentionInterface  # noqa: PLC0415 (seconds, and not in the base install)

    AttentionInterface.register(ATTENTION_NAME, _packed_attention)


def torch_version() -> tuple[int, int]:
    """Major and minor version of torch."""
    import torch  # noqa: PLC0415 (seconds, and not in the base install)

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    layout: Layout,
    **_: object,
) -> tuple[Tensor, None]:
    """The function that transformers calls in every layer; `layout` reaches it through the model's own arguments."""
    del attention_mask
    return layout.attend(module.layer_idx, query, key, value, scaling), None


def _mask(queries: int, keys: int, device: Any) -> Tensor:
    """(queries, keys): true where a token is seen, when the last query stands at the last key.

    Any of its lower right corners is the mask of fewer queries and keys.
    """
    import torch  # noqa: PLC0415 (loaded already)

    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
