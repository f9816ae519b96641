"""Embedding a query.

semlex keeps the keys and values of the instruction; the code of the model card computes them for every query.
`--device cuda` measures a GPU, without a bar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benches import qwen3_shape
from benches.measuring import Bench, paired

if TYPE_CHECKING:
    from pathlib import Path

QUERY = "how do I add an index to a model field without downtime"
BAR = 1.25


def run(bench: Bench, *, quick: bool, state: Path, device: str | None = None) -> None:
    """Takes the figure."""
    from benches.baselines.qwen3_cards import EmbeddingCard
    from benches.embed import MIN_COSINE
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
    from semlex.models.model_names import DEFAULT_INSTRUCTION

    folder = qwen3_shape.write_model(state, "embedder", quick=quick)
    device = device or "cpu"
    print(qwen3_shape.describe(quick=quick, device=device))
    precision = qwen3_shape.precision(device)
    ours = Qwen3EmbeddingEncoder(str(folder), **qwen3_shape.options(quick=quick, device=device))
    card = EmbeddingCard(folder, precision, device)
    prompt = f"Instruct: {DEFAULT_INSTRUCTION}\nQuery:{QUERY}"
    assert np.dot(ours.embed_query(QUERY), card.embed([prompt])[0]) >= MIN_COSINE[precision]
    fast, slow = paired(lambda: ours.embed_query(QUERY), lambda: card.embed([prompt]), 20 if quick else 10)
    bench.speed("against card", fast, slow, amount=1, unit="queries/s", bar=BAR if device == "cpu" else None)
    ours.close()
