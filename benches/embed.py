"""Embedding documents.

A model in the shape of Qwen3-Embedding-0.6B with random weights, against sentence-transformers in batches of 32 and
against the code of the model card. Each is run once after a warm-up. Chunks have 250 tokens in the mean and at most
512. `--quick` and `SEMLEX_BENCH_LAYERS` run fewer than the 28 layers. `--device cuda` measures a GPU, with more chunks
and without bars.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from benches import qwen3_shape
from benches.measuring import Bench, in_turn

if TYPE_CHECKING:
    from pathlib import Path

# (sentence-transformers, card): in float32 matrix multiplication leaves less to win.
BARS = {"float32": (1.6, 2.3), "bfloat16": (2.0, 3.0)}
MIN_COSINE = {"float32": 1 - 1e-6, "bfloat16": 0.9995}
QUICK_CHUNKS, CHUNKS, GPU_CHUNKS = 64, 256, 4_096


def run(bench: Bench, *, quick: bool, state: Path, device: str | None = None) -> None:
    """Takes the figures."""
    from benches.baselines import qwen3_cards
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder

    folder = qwen3_shape.write_model(state, "embedder", quick=quick)
    device = device or "cpu"
    print(qwen3_shape.describe(quick=quick, device=device))
    precision = qwen3_shape.precision(device)
    texts = qwen3_shape.chunks(QUICK_CHUNKS if quick else CHUNKS if device == "cpu" else GPU_CHUNKS)
    ours = Qwen3EmbeddingEncoder(str(folder), **qwen3_shape.options(quick=quick, device=device))
    card = qwen3_cards.EmbeddingCard(folder, precision, device)
    peer = qwen3_cards.sentence_transformer(folder, precision, device)
    contenders = {
        "ours": ours.embed_documents,
        "sentence-transformers": lambda texts: peer.encode(texts, batch_size=32, show_progress_bar=False),
        "card": card.embed,
    }
    for contender in contenders.values():
        contender(["warm", "up"] if device == "cpu" else texts)
    results, times = in_turn({name: lambda c=contender: c(texts) for name, contender in contenders.items()}, runs=1)
    for name in ("sentence-transformers", "card"):
        assert np.sum(results["ours"] * results[name], axis=1).min() >= MIN_COSINE[precision], name
    tokens = int(ours.count_tokens(texts).sum()) + len(texts)
    bars = BARS[precision] if device == "cpu" else (None, None)
    for name, bar in zip(("sentence-transformers", "card"), bars, strict=True):
        bench.speed(f"against {name}", times["ours"], times[name], amount=tokens, unit="tokens/s", bar=bar)

    # With fewer layers than the model's, the share is still that of the whole model.
    layers = qwen3_shape.LAYERS / qwen3_shape.layers(quick=quick)
    started = time.perf_counter()
    ours.count_tokens(texts)
    making = time.perf_counter() - started
    share, bar = 100 * making / (min(times["ours"]) * layers), 1.0 if device == "cpu" else None
    bench.at_most("time for tokens, none overlapped", share, unit="%", bar=bar)
    ours.close()
