"""Every form of the forward pass against the reference form, on tiny models of the real architecture."""

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Model

from semlex.errors import ModelError
from semlex.models.local import forward as module
from semlex.models.local.forward import (
    FORWARDS,
    PackedForward,
    PaddedInside,
    PerDocument,
    ReferenceForward,
    TrimmedForward,
    VariableLength,
    form_for,
)
from semlex.models.tokenizer import TokenRows
from tests.support import tiny_qwen3
from tests.support.watched_model import difference

VOCABULARY = 700
FORMS = [PerDocument, PaddedInside, VariableLength]
SEED = st.integers(0, 2**32 - 1)
LENGTHS = st.lists(st.integers(1, 40) | st.integers(1, 700), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(7)
    return Qwen3Model._from_config(tiny_qwen3.config(), attn_implementation="sdpa").eval()


@pytest.fixture(scope="module", params=[PackedForward, TrimmedForward], ids=lambda form: form.__name__)
def packing(request):
    """Each form of the forward pass over packed batches."""
    return request.param


def slow_varlen_attn(  # noqa: PLR0917 (torch's order)
    query, key, value, queries, keys, most_queries, most_keys, *, scale, window_size, enable_gqa=None
):
    """`torch.nn.attention.varlen.varlen_attn` as its documentation states it, document by document."""
    assert window_size == (-1, 0)
    assert enable_gqa is (True if module.torch_version() >= (2, 12) else None)  # torch 2.11 does not know it
    assert queries is not keys  # newer torch would take a kernel that plans for every shape
    assert queries.dtype == keys.dtype == torch.int32
    lengths = [np.diff(offsets.numpy()) for offsets in (queries, keys)]
    assert (lengths[0].max(), lengths[1].max()) == (most_queries, most_keys)
    assert (queries[-1], keys[-1]) == (len(query), len(key))
    output = torch.empty_like(query)
    for (a, b), (c, d) in zip(pairwise(queries.tolist()), pairwise(keys.tolist()), strict=True):
        mask = torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - (b - a))
        parts = [part.transpose(0, 1)[None] for part in (query[a:b], key[c:d], value[c:d])]
        attended = scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale, enable_gqa=True)
        output[a:b] = attended[0].transpose(0, 1)
    return output


@pytest.fixture(params=[*((form, (2, 13)) for form in FORMS), (VariableLength, (2, 11))], ids=str)
def form(request, monkeypatch):
    """Each form of attention; torch's own kernel needs a GPU, so its documentation stands in for it."""
    chosen, version = request.param
    varlen = SimpleNamespace(varlen_attn=slow_varlen_attn)  # older torch has no such module
    monkeypatch.setattr(torch.nn.attention, "varlen", varlen, raising=False)
    monkeypatch.setattr(module, "torch_version", lambda: version)
    monkeypatch.setattr(module, "form_for", lambda device, dtype: chosen)
    return chosen


def rows_of(lengths, seed, head=()):
    chance = np.random.default_rng(seed)
    return TokenRows.of(
        [np.concatenate([head, chance.integers(0, VOCABULARY, size)]).astype(np.int64) for size in lengths]
    )


def states(forward, rows, budget=4096, max_rows=128, width=tiny_qwen3.HIDDEN, **options):
    found = np.full((len(rows), width), np.nan, dtype=np.float32)
    for batch in forward.batches(rows, token_budget=budget, max_rows=max_rows, **options):
        found[batch.rows] = forward.run(batch)
    return found


@given(LENGTHS, SEED, st.tuples(st.integers(1, 2000), st.integers(1, 10)))
def test_packed_states_are_the_reference_whatever_the_batches(model, packing, lengths, seed, bounds):
    rows = rows_of(lengths, seed)
    assert difference(states(packing(model), rows, *bounds), states(ReferenceForward(model), rows)) <= 1e-6


@given(LENGTHS, SEED, st.integers(1, 300))
def test_a_shared_prefix_changes_nothing(model, packing, lengths, seed, shared):
    rows = rows_of(lengths, seed, np.random.default_rng(seed + 1).integers(0, VOCABULARY, shared))
    assert difference(states(packing(model), rows, 512), states(ReferenceForward(model), rows)) <= 1e-6


@given(LENGTHS, SEED, st.permutations(range(8)))
def test_a_state_depends_neither_on_neighbours_nor_on_their_order(model, packing, lengths, seed, order):
    rows, forward = rows_of(lengths, seed), packing(model)
    chosen = np.array([row for row in order if row < len(rows)])
    together = states(forward, rows.select(chosen))
    alone = np.concatenate([states(forward, rows.select(np.array([row]))) for row in chosen])
    assert difference(together, alone) <= 1e-6


@pytest.mark.parametrize("shared", [0, 90])
def test_every_form_of_attention_gives_the_reference(model, packing, form, shared):
    # 1,100 tokens need three calls of `PerDocument` behind a prefix.
    rows = rows_of([1, 5, 1100, 17, 300, 2, 1, 513], 3, np.arange(shared))
    forward = packing(model)
    tokens = [batch.tokens for batch in forward.batches(rows, token_budget=1000, max_rows=4)]
    assert {0 if part.prefix is None else part.prefix.ids.size for part in tokens} == {shared}
    assert difference(states(forward, rows, 1000, 4), states(ReferenceForward(model), rows)) <= 1e-6


def test_a_form_that_is_wrong_would_be_seen(model, packing, monkeypatch):
    rows = rows_of([30, 20, 9], 5)
    monkeypatch.setattr(PerDocument, "attend", lambda self, query, key, value, scaling, before: query.transpose(1, 2))
    assert difference(states(packing(model), rows), states(ReferenceForward(model), rows)) > 1e-3


def test_an_explicit_mask_where_the_causal_rule_is_not_trusted(model, packing, monkeypatch):
    (batch,) = packing(model).batches(rows_of([30, 20, 9], 5), token_budget=100, max_rows=9)
    monkeypatch.setattr(module, "torch_version", lambda: (2, 12))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)
    monkeypatch.setattr(module, "_mask", lambda most, keys, device: torch.ones(most, keys).tril(keys - most).bool())
    masked, plain = (PaddedInside(batch.tokens.batch, 0, SimpleNamespace(type=kind)) for kind in ("mps", "cpu"))
    assert (masked._mask is None, plain._mask) == (False, None)
    given = [*(torch.randn(1, heads, 59, 16) for heads in (4, 2, 2)), 0.25, None]
    assert torch.allclose(masked.attend(*given), plain.attend(*given), atol=1e-6)


def test_the_form_of_a_device(monkeypatch):
    for name, dtype, capability, version, expected in (
        ("cpu", torch.bfloat16, (8, 0), (2, 13), PerDocument),
        ("mps", torch.bfloat16, (8, 0), (2, 13), PaddedInside),
        ("cuda", torch.bfloat16, (8, 0), (2, 13), VariableLength),
        ("cuda", torch.float32, (8, 0), (2, 13), PaddedInside),
        ("cuda", torch.float16, (7, 5), (2, 13), PaddedInside),
        ("cuda", torch.bfloat16, (8, 0), (2, 11), VariableLength),
        ("cuda", torch.bfloat16, (8, 0), (2, 10), PaddedInside),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        monkeypatch.setattr(module, "torch_version", lambda found=version: found)
        assert form_for(torch.device(name), dtype) is expected, (name, dtype, capability, version)


def test_kept_prefixes_are_few_and_computed_once_the_oldest_goes_first_and_nothing_changes(model, packing):
    forward, first = packing(model), {}
    for seed, start in enumerate((0, 0, 100, 200, 0, 300, 400, 500)):
        head = np.arange(start, start + 20)
        rows = rows_of([3 + seed], seed, head)
        assert difference(states(forward, rows, kept_prefix=head), states(ReferenceForward(model), rows)) <= 1e-6
        kept = {int(prefix.ids[0]): prefix.layers[0][0] for prefix in forward._kept.values()}
        assert first.setdefault(start, kept[start]) is kept[start]
    assert [*kept] == [0, 300, 400, 500]
    for row in (np.arange(25), np.arange(1, 40), np.arange(7)):  # does not go on from the prefix: read whole
        forward, rows = packing(model), TokenRows.of([row, np.arange(30)])
        found = states(forward, rows, kept_prefix=np.arange(25))
        assert difference(found, states(ReferenceForward(model), rows)) <= 1e-6
        assert not forward._kept


def test_nothing_is_padded_and_a_prefix_is_shared_only_where_that_pays(model, packing):
    def shared(count, size):
        rows = rows_of([3] * count, 2, np.arange(size))
        tokens = [batch.tokens for batch in packing(model).batches(rows, token_budget=4096, max_rows=99)]
        return {0 if part.prefix is None else part.prefix.ids.size for part in tokens}

    assert [shared(1, 600), shared(3, 40), shared(5, 40)] == [{0}, {0}, {40}]
    long = TokenRows.of([np.append(np.zeros(1500, dtype=np.int64), last) for last in (1, 2)])
    (batch,) = packing(model).batches(long, token_budget=8192, max_rows=9)
    assert batch.tokens.prefix.ids.size == module.MAX_SHARED
    lengths = [700, 3, 1, 250, 31]
    batches = packing(model).batches(rows_of(lengths, 1), token_budget=600, max_rows=9)
    assert sum(batch.tokens.batch.ids.size for batch in batches) == sum(lengths)


def test_the_model_is_left_as_it_was_also_by_a_pass_that_fails(model, packing, monkeypatch):
    rows = rows_of([5, 9], 1)
    expected = states(ReferenceForward(model), rows)
    states(packing(model), rows)
    assert model.config._attn_implementation == "sdpa"
    assert np.array_equal(states(ReferenceForward(model), rows), expected)

    def broken(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PerDocument, "attend", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        states(packing(model), rows)
    assert model.config._attn_implementation == "sdpa"


def test_every_form_is_registered_also_from_many_threads(model, packing):
    # Faster first: each falls back to those behind it.
    expected = {"trimmed": TrimmedForward, "packed": PackedForward, "reference": ReferenceForward}
    assert [*FORWARDS.items()] == [*expected.items()]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: module.register(), range(8)))
    rows = rows_of([5, 9], 1)
    assert difference(states(packing(model), rows), states(ReferenceForward(model), rows)) <= 1e-6


def test_sliding_windows_are_refused_and_models_of_another_build_not_trimmed():
    layers = ["full_attention", "sliding_attention"]
    config = tiny_qwen3.config(use_sliding_window=True, sliding_window=8, layer_types=layers)
    sliding = Qwen3Model._from_config(config, attn_implementation="sdpa").eval()
    with pytest.raises(ModelError, match="sliding window; use attn='reference'"):
        PackedForward(sliding)
    for name, value in (("hidden_act", "gelu"), ("model_type", "qwen2"), ("attention_bias", True)):
        config = tiny_qwen3.config(attention_bias=name == "attention_bias")
        other = Qwen3Model._from_config(config, attn_implementation="sdpa").eval()
        setattr(other.config, name, value)
        with pytest.raises(ModelError, match="not built like Qwen3; use attn='packed'"):
            TrimmedForward(other)


# In a process of its own: triton decides when it is imported whether its interpreter runs kernels, without a GPU.
KERNEL = """
from types import SimpleNamespace
import torch
from semlex.models.local import forward as module
from semlex.models.local.head_kernel import norm_and_rotate

for tokens, heads, size in ((1, 1, 2), (5, 8, 16), (3, 16, 128)):
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 0.02)):
        torch.manual_seed(tokens)
        given = torch.randn(tokens, heads, size, dtype=dtype)
        norm = SimpleNamespace(weight=torch.rand(size, dtype=dtype), variance_epsilon=1e-6)
        angles = torch.randn(tokens, 1, size, dtype=dtype)  # the leading half of each row is read
        cos, sin = angles.cos()[..., : size // 2], angles.sin()[..., : size // 2]
        exact = SimpleNamespace(weight=norm.weight.double(), variance_epsilon=1e-6)
        expected = module._turned(given.double(), exact, cos.double(), sin.double())
        found = norm_and_rotate(given, norm, cos, sin)
        assert found.dtype == dtype
        assert (found - expected).abs().max() <= tolerance, (tokens, heads, size, dtype)
print("right")
"""


def test_the_kernel_of_heads_does_what_torch_does():
    pytest.importorskip("triton")
    options = {"env": {**os.environ, "TRITON_INTERPRET": "1"}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", KERNEL], **options, timeout=200, check=False)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("broken", ["no triton", "no compiler"])
def test_where_no_kernel_can_be_built_torch_does_it(model, broken, monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("no compiler")

    kernel = None if broken == "no triton" else SimpleNamespace(norm_and_rotate=fails)
    monkeypatch.setitem(sys.modules, "semlex.models.local.head_kernel", kernel)
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=torch.float32, base_model=model.base_model)
    monkeypatch.setattr(torch, "zeros", lambda *size, dtype, device: torch.empty(*size, dtype=dtype))
    with caplog.at_level(logging.INFO, logger="semlex"):
        assert module._fastest_turn(on_gpu) is module._turned
    assert "torch rotates attention heads, more slowly" in caplog.text
    assert module._fastest_turn(model) is module._turned


def test_the_last_layer_reads_last_tokens_alone(model):
    rows = rows_of([30, 20, 9], 5)
    sizes = [[], []]
    handles = [
        layer.mlp.up_proj.register_forward_hook(lambda _, inputs, __, seen=seen: seen.append(len(inputs[0])))
        for layer, seen in zip(model.layers, sizes, strict=True)
    ]
    states(TrimmedForward(model), rows)
    for handle in handles:
        handle.remove()
    assert sizes == [[59], [3]]


def test_half_precision_stays_as_close_as_its_rounding(packing):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6}
    config = tiny_qwen3.config(**sizes, initializer_range=0.02)
    torch.manual_seed(9)
    half = Qwen3Model._from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16).eval()
    rows = rows_of([1, 9, 40, 90, 300, 17], 4)
    found = [states(form(half), rows, 512, 9, width=256) for form in (packing, ReferenceForward)]
    packed, reference = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in found)
    assert (np.sum(packed * reference, axis=1) >= 0.9998).all()
