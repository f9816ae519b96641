"""Models that are known to work as ONNX files: what `semlex models known` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the hub.

    Attributes:
        name: Hub id.
        kind: ``embedder`` or ``reranker``.
        megabytes: Of the ONNX file that is fetched, in full precision.
        licence: As its card says.
        languages: Of the texts it was made for.
        texts_per_second: Texts of 250 tokens that a core reads in a second, measured with a model of this shape in full
            precision on a core with AVX512; published int8 files are about twice as fast.
        prompts: In front of queries and documents where the model's own files say none.
    """

    name: str
    kind: Literal["embedder", "reranker"]
    megabytes: int
    licence: str
    languages: str
    texts_per_second: float
    prompts: tuple[str, str] = ("", "")


_RETRIEVAL = ("Represent this sentence for searching relevant passages: ", "")
KNOWN_MODELS = (
    KnownModel("BAAI/bge-small-en-v1.5", "embedder", 133, "MIT", "English", 7.6, _RETRIEVAL),
    KnownModel("Snowflake/snowflake-arctic-embed-s", "embedder", 133, "Apache-2.0", "English", 7.6, _RETRIEVAL),
    KnownModel("Snowflake/snowflake-arctic-embed-m", "embedder", 436, "Apache-2.0", "English", 2.2, _RETRIEVAL),
    KnownModel(
        "intfloat/multilingual-e5-small", "embedder", 470, "MIT", "94 languages", 7.6, prompts=("query: ", "passage: ")
    ),
    KnownModel("cross-encoder/ms-marco-MiniLM-L6-v2", "reranker", 91, "Apache-2.0", "English", 15.2),
    KnownModel("cross-encoder/ms-marco-MiniLM-L12-v2", "reranker", 133, "Apache-2.0", "English", 7.6),
    KnownModel("BAAI/bge-reranker-base", "reranker", 1112, "MIT", "English, Chinese", 2.2),
)


def known_prompts(name: str) -> dict[bool, str]:
    """Return what a known model wants in front of queries (True) and documents (False)."""
    found = next((model.prompts for model in KNOWN_MODELS if model.name == name), ("", ""))
    return {True: found[0], False: found[1]}
