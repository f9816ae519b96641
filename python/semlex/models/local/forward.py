"""Forms of the forward pass: ``reference`` is the specification, ``packed`` and ``trimmed`` are tested against it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from semlex import _core
from semlex.errors import ModelError
from semlex.models.local.device import torch_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from semlex._core import TokenBatch
    from semlex.models.tokenizer import TokenRows


logger = logging.getLogger(__name__)

ATTENTION_NAME = "semlex_packed"
# First torch with `varlen_attn` as it is called here; where grouped heads need an argument, which 2.11 does not have;
# and whose causal attention is right on MPS in every precision.
VARIABLE_LENGTH_FROM, GROUPED_HEADS_FROM, CAUSAL_ON_MPS_FROM = (2, 11), (2, 12), (2, 13)
FLASH_FROM_CAPABILITY = 8  # compute capability sm80
# Queries of a document that attend in one call when they share a prefix: bounds the mask.
QUERIES_PER_CALL = 512


@dataclass(slots=True)
class SharedPrefix:
    """Tokens that several rows begin with."""

    ids: NDArray[np.int64]  # (p,) int64
    # keys and values, (1, key heads, p, head size) each; empty until they are computed
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)


# Packed documents follow each other in one sequence, and attention sees one at a time, in one of three ways with equal
# results: `PerDocument` (CPU: one call each, nothing padded), `PaddedInside` (MPS, and GPUs that cannot use the third),
# and `VariableLength` (CUDA in half precision, torch 2.11: torch's own kernel). All can put a shared prefix, whose keys
# and values are already computed, before every document.
AttentionForm: TypeAlias = "PerDocument | PaddedInside | VariableLength"


class PerDocument:
    """One call of torch's attention for each document."""

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None:
        self._offsets = batch.offsets.tolist()
        self._prefix = prefix
        # Without a prefix the causal kernel needs no mask; an empty one costs nothing.
        longest = int(np.diff(batch.offsets).max()) if prefix else 0
        self._mask = _mask(min(longest, QUERIES_PER_CALL), prefix + longest, device)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
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
    """One call of torch's attention, with the documents padded on the right."""

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
        import torch  # noqa: PLC0415 (loaded already)
        from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

        keys, values = self._padded(key), self._padded(value)
        if before is not None:
            fronts = [part.expand(self._shape[0], -1, -1, -1) for part in before]
            keys, values = torch.cat([fronts[0], keys], dim=2), torch.cat([fronts[1], values], dim=2)
        groups = query.shape[1] // key.shape[1]
        # The causal rule hides padding behind tokens, and no row of a mask is empty (some kernels return NaN then). Key
        # heads are repeated: with a mask, kernels for grouped heads are slow or wrong on some devices.
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
    """torch's flash attention for packed documents (`torch.nn.attention.varlen`)."""

    def __init__(self, batch: TokenBatch, prefix: int, device: Any) -> None:
        import torch  # noqa: PLC0415 (loaded already)

        lengths = np.diff(batch.offsets)
        self._longest = (int(lengths.max()), int(lengths.max()) + prefix)
        self._queries = torch.from_numpy(batch.offsets.astype(np.int32)).to(device)
        # Never the same tensor: newer torch would then take the kernel of cuDNN, which plans for every new shape (50 to
        # 90 ms on an H200 with cuDNN 9.19; flash attention takes 0.2 ms).
        self._keys = self._queries.clone()
        self._options: dict[str, Any] = {"enable_gqa": True} if torch_version() >= GROUPED_HEADS_FROM else {}
        self._gathered: Tensor | None = None
        if prefix:
            self._keys = self._queries + prefix * torch.arange(lengths.size + 1, dtype=torch.int32, device=device)
            front = np.arange(prefix)
            parts = [part for a, b in pairwise(batch.offsets) for part in (front, np.arange(a, b) + prefix)]
            self._gathered = torch.from_numpy(np.concatenate(parts)).to(device)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, before: tuple[Tensor, Tensor] | None
    ) -> Tensor:
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
            **self._options,
        )
        return cast("Tensor", attended).unsqueeze(0)


def form_for(device: Any, dtype: Any) -> type[AttentionForm]:
    """Return the fastest form of attention for a device and a torch dtype."""
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
    """What the attention of one pass needs; keys and values of every layer are collected in `kept`."""

    form: AttentionForm
    prefix: SharedPrefix | None = None
    kept: list[tuple[Tensor, Tensor]] | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Compute the attention of one layer."""
        if self.kept is not None:
            self.kept.append((key, value))
        return self.form.attend(query, key, value, scaling, None if self.prefix is None else self.prefix.layers[layer])


def register() -> None:
    """Register the attention with transformers as `ATTENTION_NAME`; idempotent."""
    from transformers import AttentionInterface  # noqa: PLC0415 (seconds, and not in the base install)

    AttentionInterface.register(ATTENTION_NAME, _packed_attention)


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
    """Compute the attention of a layer of transformers; `layout` is passed through the model's own arguments."""
    del attention_mask
    return layout.attend(module.layer_idx, query, key, value, scaling), None


def _mask(queries: int, keys: int, device: Any) -> Tensor:
    """Return a causal mask, (queries, keys), true if visible; for fewer queries or keys, use its lower right corner."""
    import torch  # noqa: PLC0415 (loaded already)

    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


@dataclass(frozen=True, slots=True)
class Batch:
    """Row numbers of a batch, and the tokens of its rows in the form that the forward pass needs."""

    rows: NDArray[np.int64]
    tokens: Any


# One form of the forward pass of one model.
Forward: TypeAlias = "PackedForward | ReferenceForward"


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
    """The rows of one pass without their shared prefix, and that prefix."""

    batch: TokenBatch
    prefix: SharedPrefix | None


class PackedForward:
    """A forward pass over packed batches; tokens with which all rows of a call begin are computed once."""

    def __init__(self, model: Any) -> None:
        if set(getattr(model.config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
            raise ModelError("the model has layers with a sliding window; use attn='reference'")
        self._model = model
        self._form = form_for(model.device, model.dtype)
        self._kept: OrderedDict[bytes, SharedPrefix] = OrderedDict()
        register()

    def batches(
        self, rows: TokenRows, *, token_budget: int, max_rows: int, kept_prefix: NDArray[np.int64] | None = None
    ) -> Iterator[Batch]:
        """Plan packed batches of at most `token_budget` tokens; the tokens that all rows begin with are left out."""
        # A longer row is its own batch. `kept_prefix` is a hint that later rows also begin with these tokens; it never
        # changes the states.
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
        """Return the normalised states of the rows' last tokens: (rows of the batch, hidden size)."""
        import torch  # noqa: PLC0415 (loaded already)

        tokens: PackedTokens = batch.tokens
        with torch.inference_mode():
            if tokens.prefix is not None and not tokens.prefix.layers:
                tokens.prefix.layers = self._read(tokens.prefix.ids)
            last = self._last_states(tokens.batch, self._layout(tokens.batch, tokens.prefix))
            states: NDArray[np.float32] = last.float().cpu().numpy()
        return states

    def _known(self, rows: TokenRows, ids: NDArray[np.int64] | None) -> SharedPrefix | None:
        """Return the prefix with these ids, kept for later calls, if all rows begin with them and are longer."""
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
        """Return the tokens that all rows begin with, if computing them once saves time."""
        shared = min(_core.common_prefix(rows.ids, rows.offsets), MAX_SHARED)
        least = MIN_SAVED_ON_CPU if self._model.device.type == "cpu" else MIN_SAVED_ON_GPU
        return SharedPrefix(rows.ids[:shared].copy()) if shared * (len(rows) - 1) >= least else None

    def _read(self, ids: NDArray[np.int64]) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values of a prefix in every layer."""
        batch = _core.TokenPlan(ids, np.array([0, ids.size]), token_budget=ids.size, max_rows=1).batch(0)
        layout = self._layout(batch, None)
        layout.kept = []
        self._last_states(batch, layout)
        return layout.kept

    def _last_states(self, batch: _core.TokenBatch, layout: Layout) -> Tensor:
        """Run one pass; return the normalised states of the documents' last tokens, (documents, hidden size)."""
        with self._attention():
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
        """Make the model use this module's attention for one pass, then restore its own."""
        before = self._model.config._attn_implementation  # noqa: SLF001 (has no public reader)
        self._model.set_attn_implementation(ATTENTION_NAME)
        try:
            yield
        finally:
            self._model.set_attn_implementation(before)


_PARTS = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


class TrimmedForward(PackedForward):
    """A forward pass over packed batches that computes the layers of a Qwen3 model without transformers' code."""

    # It computes what `modeling_qwen3` of transformers computes, with fewer passes over memory.

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        layers, config = model.base_model.layers, model.config
        known = config.model_type == "qwen3" and config.hidden_act == "silu"
        parts = [{name for name, _ in layer.named_parameters()} for layer in layers]
        if not known or any(names != set(_PARTS) for names in parts):
            raise ModelError("the model is not built like Qwen3; use attn='packed'")
        self._turned = _fastest_turn(model)

    def _last_states(self, batch: TokenBatch, layout: Layout) -> Tensor:
        *layers, last_layer = self._model.base_model.layers
        last_tokens = self._tensor(batch.offsets[1:] - 1)
        hidden, angles = self._begin(batch)
        for layer in layers:
            hidden = _feed_forward(layer, _attended(layer, hidden, angles, layout, self._turned))
        # Only a row's last token is read from the last layer, so the other tokens need only keys and values there.
        hidden = _feed_forward(last_layer, _attended(last_layer, hidden, angles, layout, self._turned, last_tokens))
        return _normed(hidden, self._model.base_model.norm)

    def _begin(self, batch: TokenBatch) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return states, (tokens, hidden size), and cosines and sines of their rotations, (tokens, 1, half a head)."""
        base = self._model.base_model
        hidden = base.embed_tokens(self._tensor(batch.ids))
        cos, sin = base.rotary_emb(hidden.unsqueeze(0), self._tensor(batch.positions).unsqueeze(0))
        half = cos.shape[-1] // 2  # the second half repeats the first
        return hidden, (cos[0, :, None, :half], sin[0, :, None, :half])


# A function that takes heads, a norm and angles (cosines and sines), and returns the heads normalised and rotated.
Turn: TypeAlias = "Callable[[Tensor, Any, Tensor, Tensor], Tensor]"


def _fastest_turn(model: Any) -> Turn:
    """Return the function that normalises and rotates heads: the kernel of `head_kernel`, or if it fails, torch's."""
    if model.device.type != "cuda":
        return _turned
    import torch  # noqa: PLC0415 (loaded already)

    attention = model.base_model.layers[0].self_attn
    try:
        from semlex.models.local.head_kernel import norm_and_rotate  # noqa: PLC0415 (needs triton)

        for part, norm in ((attention.q_proj, attention.q_norm), (attention.k_proj, attention.k_norm)):
            heads = torch.zeros(1, part.out_features, dtype=model.dtype, device=model.device)
            angles = heads.new_zeros(1, 1, attention.head_dim // 2)
            norm_and_rotate(_heads(heads, attention), norm, angles, angles)
    except Exception as error:  # noqa: BLE001 (no triton, no C compiler, a shape or a GPU that it cannot compile for)
        logger.info(
            "torch rotates attention heads, more slowly, because semlex's kernel failed (%s)", type(error).__name__
        )
        return _turned
    return norm_and_rotate


def _attended(  # noqa: PLR0917 (a layer, its states, and what all layers share)
    layer: Any, hidden: Tensor, angles: tuple[Tensor, Tensor], layout: Layout, turned: Turn, only: Tensor | None = None
) -> Tensor:
    """Return states after a layer's attention: (tokens, hidden size), or only those of the tokens `only`."""
    attention = layer.self_attn
    normed = _normed(hidden, layer.input_layernorm)
    key = turned(_heads(attention.k_proj(normed), attention), attention.k_norm, *angles)
    value = _heads(attention.v_proj(normed), attention)
    if only is not None:
        normed, hidden = normed[only], hidden[only]
        angles = (angles[0][only], angles[1][only])
    query = turned(_heads(attention.q_proj(normed), attention), attention.q_norm, *angles)
    if only is not None:
        # The attention takes a query of every token; those of the others are zero, and what comes of them is dropped.
        query = query.new_zeros(len(key), *query.shape[1:]).index_copy_(0, only, query)
    query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (query, key, value))
    output = layout.attend(attention.layer_idx, query, key, value, attention.scaling)[0]
    output = output if only is None else output[only]
    return hidden.addmm_(output.flatten(1), attention.o_proj.weight.t())


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    """Return states after a layer's MLP, (tokens, hidden size); overwrites the input."""
    from torch.nn.functional import silu  # noqa: PLC0415 (loaded already)

    mlp = layer.mlp
    normed = _normed(hidden, layer.post_attention_layernorm)
    inner = silu(mlp.gate_proj(normed), inplace=True).mul_(mlp.up_proj(normed))
    return hidden.addmm_(inner, mlp.down_proj.weight.t())


def _heads(states: Tensor, attention: Any) -> Tensor:
    return states.view(len(states), -1, attention.head_dim)


def _normed(states: Tensor, norm: Any) -> Tensor:
    """Apply root mean square normalisation over the last axis."""
    from torch.nn.functional import rms_norm  # noqa: PLC0415 (loaded already)

    return rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _turned(states: Tensor, norm: Any, cos: Tensor, sin: Tensor) -> Tensor:
    """Normalise heads, then apply rotary position embedding; pairs are component i and component i + half."""
    import torch  # noqa: PLC0415 (loaded already)

    states = _normed(states, norm)
    output = torch.empty_like(states)
    first, second = states.chunk(2, dim=-1)
    into_first, into_second = output.chunk(2, dim=-1)
    torch.mul(first, cos, out=into_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=into_second).addcmul_(first, sin)
    return output


__all__ = ["FORWARDS", "Batch", "Forward", "ReferenceForward"]


class ReferenceForward:
    """A forward pass over padded batches with torch's own attention; other forms are compared with it."""

    # Rows are padded on the right; attention is causal, so no token sees the padding, and no mask is needed.

    def __init__(self, model: Any) -> None:
        self._model = model

    def batches(
        self, rows: TokenRows, *, token_budget: int, max_rows: int, kept_prefix: NDArray[np.int64] | None = None
    ) -> Iterator[Batch]:
        """Plan padded batches of at most `token_budget` tokens, of rows of similar length; ignore `kept_prefix`."""
        del kept_prefix
        plan = _core.plan_batches(rows.lengths, token_budget=token_budget, max_rows=max_rows, padded=True)
        for start, end in zip(plan.boundaries[:-1], plan.boundaries[1:], strict=True):
            chosen = plan.order[start:end]
            yield Batch(chosen, [rows[int(row)] for row in chosen])

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Pad the rows, run the model's body, and return the last tokens' states."""
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


FORWARDS: dict[str, type[Forward]] = {"trimmed": TrimmedForward, "packed": PackedForward, "reference": ReferenceForward}
