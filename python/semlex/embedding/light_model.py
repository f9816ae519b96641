"""An ONNX model that is on this machine, in place of static embeddings: which one, and how long it would take."""

from __future__ import annotations

import time
from importlib.util import find_spec

from semlex.embedding.onnx import OnnxEmbedder
from semlex.models.files import find_cached
from semlex.models.known_models import KNOWN_MODELS
from semlex.models.onnx_files import ONNX_PREFIX, WEIGHTS_WHEEL

# A new collection takes it if embedding is estimated to take no longer.
MAX_SECONDS = 30.0
# English text has about so many bytes a token; marked up files have more, so that estimates are rather too long.
BYTES_PER_TOKEN = 4
_PROBE = "a text of about as many tokens as a chunk usually has " * 23


def find_light_model() -> str | None:
    """Return the name of the first known model in the wheel of weights or in the cache of the hub."""
    if find_spec("onnxruntime") is None or find_spec("tokenizers") is None:
        return None
    known = [WEIGHTS_WHEEL, *(model.name for model in KNOWN_MODELS if model.kind == "embedder")]
    found = next((name for name in known if find_cached(name, weights="onnx") is not None), None)
    return None if found is None else f"{ONNX_PREFIX}{found}"


def estimate_seconds(name: str, size: int) -> float:
    """Return how long it takes to embed files of `size` bytes, measured with one text."""
    embedder = OnnxEmbedder(name.removeprefix(ONNX_PREFIX))
    try:
        tokens = int(embedder.count_tokens([_PROBE])[0])
        embedder.embed_query("")  # loads the file
        started = time.perf_counter()
        embedder.embed_documents([_PROBE])
        return (time.perf_counter() - started) * size / (tokens * BYTES_PER_TOKEN)
    finally:
        embedder.close()
