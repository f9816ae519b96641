"""The packed forward pass in our own words: the last layer for last tokens alone, and pointwise work in place.

Nothing but a row's last token is read from the last layer, so there its other tokens need keys and values only: no
queries, no projection, no feed-forward network. Everywhere else the steps are those of ``modeling_qwen3`` in
transformers, with fewer passes over memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError
from semlex.models.local.forward.packed import PackedForward

if TYPE_CHECKING:
    from torch import Tensor

    from semlex._core import TokenBatch
    from semlex.models.local.forward.attention import Layout

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
    """Packed batches through the layers of a Qwen3 model, without transformers' code."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        layers, config = model.base_model.layers, model.config
        known = config.model_type == "qwen3" and config.hidden_act == "silu"
        parts = [{name for name, _ in layer.named_parameters()} for layer in layers]
        if not known or any(names != set(_PARTS) for names in parts):
            raise ModelError("the model is not built like Qwen3; use attn='packed'")

    def _last_states(self, batch: TokenBatch, layout: Layout) -> Tensor:
        *layers, last_layer = self._model.base_model.layers
        last_tokens = self._tensor(batch.offsets[1:] - 1)
        hidden, angles = self._begin(batch)
        for layer in layers:
            hidden = _feed_forward(layer, _attended(layer, hidden, angles, layout))
        hidden = _feed_forward(last_layer, _attended(last_layer, hidden, angles, layout, last_tokens))
        return _normed(hidden, self._model.base_model.norm)

    def _begin(self, batch: TokenBatch) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """States of the tokens, (t, hidden size), and their angles, (t, 1, half a head's size) each."""
        base = self._model.base_model
        hidden = base.embed_tokens(self._tensor(batch.ids))
        cos, sin = base.rotary_emb(hidden.unsqueeze(0), self._tensor(batch.positions).unsqueeze(0))
        half = cos.shape[-1] // 2  # the second half repeats the first
        return hidden, (cos[0, :, None, :half], sin[0, :, None, :half])


def _attended(
    layer: Any, hidden: Tensor, angles: tuple[Tensor, Tensor], layout: Layout, only: Tensor | None = None
) -> Tensor:
    """States behind a layer's attention: (t, hidden size), or those of the tokens `only`."""
    attention = layer.self_attn
    normed = _normed(hidden, layer.input_layernorm)
    key = _rotated(_normed(_heads(attention.k_proj(normed), attention), attention.k_norm), *angles)
    value = _heads(attention.v_proj(normed), attention)
    if only is not None:
        normed, hidden = normed[only], hidden[only]
        angles = (angles[0][only], angles[1][only])
    query = _rotated(_normed(_heads(attention.q_proj(normed), attention), attention.q_norm), *angles)
    if only is not None:
        # The attention takes a query of every token; those of the others are zero, and what comes of them is dropped.
        query = query.new_zeros(len(key), *query.shape[1:]).index_copy_(0, only, query)
    query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (query, key, value))
    output = layout.attend(attention.layer_idx, query, key, value, attention.scaling)[0]
    output = output if only is None else output[only]
    return hidden.add_(attention.o_proj(output.flatten(1)))


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    """(t, hidden size), overwritten."""
    from torch.nn.functional import silu  # noqa: PLC0415 (loaded already)

    mlp = layer.mlp
    normed = _normed(hidden, layer.post_attention_layernorm)
    return hidden.add_(mlp.down_proj(silu(mlp.gate_proj(normed), inplace=True).mul_(mlp.up_proj(normed))))


def _heads(states: Tensor, attention: Any) -> Tensor:
    """(t, heads, head size)."""
    return states.view(len(states), -1, attention.head_dim)


def _normed(states: Tensor, norm: Any) -> Tensor:
    """Root mean square norm over the last axis."""
    from torch.nn.functional import rms_norm  # noqa: PLC0415 (loaded already)

    return rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding: pairs are component i and component i + half."""
    import torch  # noqa: PLC0415 (loaded already)

    output = torch.empty_like(states)
    first, second = states.chunk(2, dim=-1)
    into_first, into_second = output.chunk(2, dim=-1)
    torch.mul(first, cos, out=into_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=into_second).addcmul_(first, sin)
    return output
