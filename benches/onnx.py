"""Small models without torch.

An embedding model as an ONNX file, by path: `./x bench onnx --model-folder FOLDER[#FILE]`. Texts have 250 of its
tokens. Times are CPU seconds of one thread, the best of several runs. "Beyond base" counts the files of `semlex[onnx]`
that semlex alone does not need. A folder that also holds safetensors is compared with sentence-transformers. The bar of
12 texts is one of int8 files.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benches.kept_runs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.measuring import Bench
    from semlex.embedding.onnx import OnnxEmbedder

TOKENS, TEXTS, RUNS = 250, 24, 3
QUERY = "how do I run a fixture once for a whole module?"
FIGURES = {
    "import of the runtime": ("s", 0.3),
    "installed beyond base": ("MB", 250.0),
    "one query": ("CPU ms", 10.0),
    "texts of 250 tokens": ("texts/CPU s", 12.0),
}


def run(bench: Bench, *, quick: bool, state: Path, model_folder: str | None = None) -> None:  # noqa: ARG001 (nothing is kept)
    """Takes the figures."""
    if model_folder is None:
        for name, (unit, bar) in FIGURES.items():
            bench.unmeasured(name, unit, bar, "no --model-folder was given")
        return
    if not hasattr(os, "sched_setaffinity"):
        measure(bench, model_folder, quick=quick)
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # one thread
    try:
        measure(bench, model_folder, quick=quick)
    finally:
        os.sched_setaffinity(0, cores)  # for the benches behind this one


def measure(bench: Bench, model_folder: str, *, quick: bool) -> None:
    """Takes the figures of a folder."""
    from semlex.embedding.onnx import OnnxEmbedder

    bench.at_most("import of the runtime", importing(), unit="s", bar=0.3)
    bench.at_most("installed beyond base", beyond_base() / 1e6, unit="MB", bar=250.0)
    embedder = OnnxEmbedder(model_folder)
    texts = texts_of(embedder, 4 if quick else TEXTS)
    embedder.embed_query(QUERY)
    seconds = best(lambda: embedder.embed_query(QUERY), 3 * RUNS)
    bench.at_most("one query", 1000 * seconds, unit="CPU ms", bar=10.0)
    seconds = best(lambda: embedder.embed_documents(texts), RUNS)
    is_int8 = embedder.is_quantised
    bench.at_least("texts of 250 tokens", len(texts) / seconds, unit="texts/CPU s", bar=12.0 if is_int8 else None)
    if any(Path(model_folder.partition("#")[0]).rglob("*.safetensors")):
        cosine = reference_cosine(embedder, model_folder.partition("#")[0], texts)
        bench.at_least("least cosine to the reference", cosine, unit="", bar=None if is_int8 else 0.99)
    embedder.close()


def best(work: Callable[[], object], runs: int) -> float:
    """The least CPU seconds."""
    found = []
    for _ in range(runs):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def importing() -> float:
    """Wall seconds of the import, beside those of numpy, which semlex needs anyway."""
    program = (
        "import numpy, time; s = time.perf_counter(); import onnxruntime, tokenizers; print(time.perf_counter() - s)"
    )
    return min(float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(RUNS))


def beyond_base() -> int:
    """Bytes of the packages that the extra brings, with what they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = needed(names(project["optional-dependencies"]["onnx"]))
    return sum(size(name) for name in extra - needed(names(project["dependencies"])))


def names(requirements: list[str]) -> list[str]:
    """The packages that requirements ask for here."""
    from packaging.requirements import Requirement

    found = map(Requirement, requirements)
    return [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def needed(packages: list[str]) -> set[str]:
    """The same packages with all that those need."""
    found: set[str] = set()
    waiting = list(packages)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            waiting += names(importlib.metadata.requires(name) or [])
    return found


def size(package: str) -> int:
    """Bytes of a package's files."""
    files = importlib.metadata.files(package) or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def texts_of(embedder: OnnxEmbedder, count: int) -> list[str]:
    """Pieces of this project's pages with as many tokens each."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    offsets = embedder.token_offsets(pages[:200_000])
    starts = range(0, len(offsets) - TOKENS, TOKENS)
    found = [pages[offsets[start][0] : offsets[start + TOKENS - 1][1]] for start in starts][:count]
    assert len(found) == count
    return found


def reference_cosine(embedder: OnnxEmbedder, folder: str, texts: list[str]) -> float:
    """The least cosine to vectors of sentence-transformers."""
    from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder

    reference = SentenceTransformersEmbedder(folder, "cpu")
    cosines = np.sum(embedder.embed_documents(texts) * reference.embed_documents(texts), axis=1)
    reference.close()
    return float(cosines.min())
