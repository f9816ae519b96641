"""Models that ONNX Runtime runs and that are known to work: what `semlex models list` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semlex.models.onnx_files import ONNX_PREFIX


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the hub.

    Attributes:
        name: Hub id.
        kind: ``embedder`` or ``reranker``.
        megabytes: Of the ONNX file that is fetched, in full precision.
        licence: As its card says.
        languages: Of the texts it was made for.
        texts_per_second: Texts of 250 tokens that one core read in a second; None where it was not measured.
        prompts: In front of queries and documents where the model's own files say none.
    """

    name: str
    kind: Literal["embedder", "reranker"]
    megabytes: int
    licence: str
    languages: str
    texts_per_second: float | None = None
    prompts: tuple[str, str] = ("", "")


KNOWN_MODELS = (
    KnownModel("BAAI/bge-small-en-v1.5", "embedder", 133, "MIT", "English"),
    KnownModel("Snowflake/snowflake-arctic-embed-s", "embedder", 133, "Apache-2.0", "English"),
    KnownModel("Snowflake/snowflake-arctic-embed-m", "embedder", 436, "Apache-2.0", "English"),
    KnownModel(
        "intfloat/multilingual-e5-small", "embedder", 470, "MIT", "94 languages", prompts=("query: ", "passage: ")
    ),
    KnownModel("cross-encoder/ms-marco-MiniLM-L6-v2", "reranker", 91, "Apache-2.0", "English"),
    KnownModel("cross-encoder/ms-marco-MiniLM-L12-v2", "reranker", 133, "Apache-2.0", "English"),
    KnownModel("BAAI/bge-reranker-base", "reranker", 1112, "MIT", "English, Chinese"),
)


def known_prompts(name: str) -> dict[bool, str]:
    """Return what a known model wants in front of queries (True) and documents (False)."""
    found = next((model.prompts for model in KNOWN_MODELS if model.name == name), ("", ""))
    return {True: found[0], False: found[1]}


def default_candidates() -> list[str]:
    """Return the embedders that a new collection may take, the preferred one first."""
    return [f"{ONNX_PREFIX}{model.name}" for model in KNOWN_MODELS if model.kind == "embedder"]
