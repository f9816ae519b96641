"""Names of models that ONNX Runtime runs, and which of a folder's files is taken.

onnx:PATH, onnx:HUB_ID           a folder, or a model in the cache of the hub
onnx:PATH_OR_ID#onnx/FILE.onnx   the same, with the file named
onnx:semlex-weights              the model in the wheel of this name, if it is installed
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ONNX_PREFIX = "onnx:"
WEIGHTS_WHEEL = "semlex-weights"
# The first that is there is taken: full precision, then published int8 files, from those that run on every CPU to
# those that need certain units.
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
    """Return folder or hub id, and the file that the name demands."""
    found = _NAME_AND_FILE.fullmatch(name.removeprefix(ONNX_PREFIX))
    return (name.removeprefix(ONNX_PREFIX), None) if found is None else (found[1], found[2])


def choose_file(names: Iterable[str], wanted: str | None = None) -> str | None:
    """Choose among the files of a model; None if the wanted one, or every known one, is missing.

    A single file with an unknown name is taken.
    """
    found = [name for name in names if name.endswith(".onnx")]
    if wanted is not None:
        return wanted if wanted in found else None
    preferred = next((name for name in PREFERRED_FILES if name in found), None)
    return found[0] if preferred is None and len(found) == 1 else preferred


def companions(file: str) -> list[str]:
    """Return the names of files that large models keep their weights in, beside the file itself."""
    return [f"{file}_data", f"{file}.data"]
