"""Reranking.

20 passages are scored by a model in the shape of Qwen3-Reranker-0.6B with random weights, against the code of the
model card and the `CrossEncoder` of sentence-transformers, twice in turn. "Memory" is the peak above the weights.
`--device cuda` measures a GPU, without bars and memory.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benches import qwen3_shape
from benches.measuring import Bench, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

CANDIDATES, LENGTHS = 20, (100, 400)
QUERY = "how do I add an index to a model field without downtime"
# By the tokens of a candidate. Without AMX bfloat16 gains what float32 gains.
CARD_BARS = {100: 2.8, 400: 1.8}
AMX_CARD_BARS = {100: 3.5, 400: 2.8}
PEER_BARS = {100: 1.9, 400: 1.5}
MEMORY_BAR = 0.25
MAX_DIFFERENCE = {"float32": 1e-5, "bfloat16": 0.05}


def run(bench: Bench, *, quick: bool, state: Path, device: str | None = None) -> None:
    """Takes the figures."""
    import torch

    folder = qwen3_shape.write_model(state, "reranker", quick=quick)
    device = device or "cpu"
    print(qwen3_shape.describe(quick=quick, device=device))
    precision = qwen3_shape.precision(device)
    amx = precision == "bfloat16" and getattr(torch.cpu, "_is_amx_tile_supported", bool)()
    names = ("ours", "card", "sentence-transformers")
    contenders = {name: contender(name, folder, quick=quick, device=device) for name in names}
    for score in contenders.values():
        score(["warm", "up"])
    for length in LENGTHS:
        texts = qwen3_shape.texts([length] * CANDIDATES)
        for score in contenders.values() if device != "cpu" else ():
            score(texts)  # kernels of these shapes are loaded now
        calls = {name: partial(score, texts) for name, score in contenders.items()}
        results, times = in_turn(calls, runs=1 if quick and length > LENGTHS[0] else 2)
        for name in ("card", "sentence-transformers"):
            found = qwen3_shape.greatest_difference(results["ours"], results[name])
            assert found <= MAX_DIFFERENCE[precision], (name, found)
        amount, unit = CANDIDATES * 60, "texts/min"
        bars = (AMX_CARD_BARS if amx else CARD_BARS)[length], PEER_BARS[length]
        bars = bars if device == "cpu" else (None, None)
        for name, bar in zip(("card", "sentence-transformers"), bars, strict=True):
            bench.speed(
                f"{length} tokens against {name}", times["ours"], times[name], amount=amount, unit=unit, bar=bar
            )
    for length in LENGTHS:
        name = f"memory, {length} tokens, over card"
        if qwen3_shape.layers(quick=quick) < qwen3_shape.LAYERS or device != "cpu":
            bench.unmeasured(name, "x", MEMORY_BAR, "needs a CPU, all layers and the whole vocabulary")
            continue
        ours, card = (peak_memory(kind, folder, length) for kind in ("ours", "card"))
        print(f"  peak above weights at {length} tokens: {ours:,.0f} MiB against {card:,.0f} MiB")
        bench.at_most(name, ours / card, unit="x", bar=MEMORY_BAR)


def contender(
    name: str, folder: Path, *, quick: bool = False, device: str = "cpu"
) -> Callable[[list[str]], np.ndarray]:
    """A function from candidates to scores."""
    from benches.baselines import qwen3_cards
    from semlex.reranking.qwen3 import Qwen3Reranker

    precision = qwen3_shape.precision(device)
    if name == "ours":
        ours = Qwen3Reranker(str(folder), **qwen3_shape.options(quick=quick, device=device))
        return lambda texts: ours.score(QUERY, texts)
    if name == "card":
        card = qwen3_cards.RerankerCard(folder, precision, device)
        return lambda texts: card.score(QUERY, texts)
    peer = qwen3_cards.cross_encoder(folder, precision, device)
    return lambda texts: peer.predict([(QUERY, text) for text in texts], batch_size=32, show_progress_bar=False)


def peak_memory(name: str, folder: Path, length: int) -> float:
    """MiB above what the process holds with its weights loaded, measured in a process of its own."""
    command = [sys.executable, "-m", "benches.rerank", name, str(folder), str(length)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def measure_memory(name: str, folder: Path, length: int) -> None:
    """Prints the figure of `peak_memory`."""
    import psutil

    score = contender(name, folder)
    score(["warm", "up"])
    texts = qwen3_shape.texts([length] * CANDIDATES)
    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    score(texts)
    done.set()
    watcher.join()
    print((peak - before) / (1 << 20))


if __name__ == "__main__":
    measure_memory(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
