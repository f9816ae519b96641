"""Names of models that ONNX Runtime runs, which of a folder's files is taken, and models that are known to work.

onnx:PATH, onnx:HUB_ID           a folder, or a model in the cache of the hub
onnx:PATH_OR_ID#onnx/FILE.onnx   the same, with the file named
onnx:semlex-weights              the model in the wheel of this name, if it is installed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

ONNX_PREFIX = "onnx:"
WEIGHTS_WHEEL = "semlex-weights"
# The first that is there is taken: full precision, then published int8 files, from those that run on every CPU to
# those that need certain units.
# Full precision comes first: int8 vectors differ between processors, and keep a cosine of .99 only.
PREFERRED_FILES = tuple(
    f"{folder}{name}.onnx"
    for name in (
        *("model", "model_quantized", "model_int8", "model_uint8", "model_quint8_avx2"),
        *("model_qint8_avx512", "model_qint8_avx512_vnni", "model_qint8_arm64"),
    )
    for folder in ("", "onnx/")
)
_NAME_AND_FILE = re.compile(r"(.+)#([^#]+\.onnx)")


def split_name(name: str) -> tuple[str, str | None]:
    """Split a name into the folder or hub id, and the file that it names or None."""
    found = _NAME_AND_FILE.fullmatch(name.removeprefix(ONNX_PREFIX))
    return (name.removeprefix(ONNX_PREFIX), None) if found is None else (found[1], found[2])


def choose_file(names: Iterable[str], wanted: str | None = None) -> str | None:
    """Choose among the files of a model; None if the wanted one, or every known one, is missing."""
    found = [name for name in names if name.endswith(".onnx")]
    if wanted is not None:
        return wanted if wanted in found else None
    preferred = next((name for name in PREFERRED_FILES if name in found), None)
    # A single file with an unknown name is used.
    return found[0] if preferred is None and len(found) == 1 else preferred


def companions(file: str) -> list[str]:
    """Return the names of the files in which a large model keeps its weights beside the ONNX file."""
    return [f"{file}_data", f"{file}.data"]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the hub."""

    name: str  # hub id
    kind: Literal["embedder", "reranker"]
    megabytes: int  # of the ONNX file that is downloaded, in full precision
    licence: str  # as the model card states
    languages: str  # of the texts that it was made for
    # Texts of 250 tokens that a core reads in a second, measured with a model of this shape in full precision on a core
    # with AVX512; published int8 files are about twice as fast.
    texts_per_second: float
    prompts: tuple[str, str] = ("", "")  # texts put before queries and documents if the model's own files give none.


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
    """Return the texts that a known model needs before queries (True) and documents (False)."""
    found = next((model.prompts for model in KNOWN_MODELS if model.name == name), ("", ""))
    return {True: found[0], False: found[1]}
