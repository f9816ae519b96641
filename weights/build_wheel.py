"""Packs the model of a folder into the wheel `semlex-weights`: `python build_wheel.py FOLDER[#FILE.onnx] OUT`.

It is also the build backend of this project, in an environment that has semlex[onnx] (``--no-build-isolation``); the
folder is then that of ``SEMLEX_WEIGHTS``.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from semlex.embedding.onnx import OnnxEmbedder
from semlex.models.model_names import companions, split_name

PACKAGE = "semlex_weights"


def build(name: str, out: Path) -> Path:
    """Write the wheel; the model is tried first."""
    folder = Path(split_name(name)[0]).expanduser().resolve()
    embedder = OnnxEmbedder(name)
    embedder.embed_query("Is this a whole model?")
    embedder.close()
    if not (folder / "LICENSE").is_file():
        raise SystemExit(f"error: {folder} has no file LICENSE; put the model's licence there, it goes into the wheel")
    weights = [embedder.file, *companions(embedder.file)]
    settings = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.json"))]
    entries = {f"{PACKAGE}/__init__.py": b'"""The files of an embedding model; semlex reads them."""\n'}
    entries |= {
        f"{PACKAGE}/{file}": (folder / file).read_bytes()
        for file in (*settings, *weights, "LICENSE")
        if (folder / file).is_file()
    }
    project = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{PACKAGE}-{project['version']}"
    entries |= _metadata(project, stem, (folder / "LICENSE").read_bytes())
    record = "".join(f"{file},sha256={_digest(content)},{len(content)}\n" for file, content in entries.items())
    entries[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for file, content in entries.items():
            # The same folder gives the same wheel.
            packed.writestr(zipfile.ZipInfo(file, (2026, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return wheel


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:  # noqa: ARG001 (the backend's interface)
    """Build as a backend does."""
    if "SEMLEX_WEIGHTS" not in os.environ:
        raise SystemExit("error: name the model's folder in SEMLEX_WEIGHTS, or run ./x weights FOLDER")
    return build(os.environ["SEMLEX_WEIGHTS"], Path(wheel_directory)).name


def _metadata(project: dict[str, str], stem: str, licence: bytes) -> dict[str, bytes]:
    lines = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "Requires-Python": project["requires-python"],
        "License-File": "LICENSE",
    }
    wheel = {"Wheel-Version": "1.0", "Generator": "semlex", "Root-Is-Purelib": "true", "Tag": "py3-none-any"}
    written = {
        f"{stem}.dist-info/{file}": "".join(f"{key}: {value}\n" for key, value in fields.items()).encode()
        for file, fields in (("METADATA", lines), ("WHEEL", wheel))
    }
    return {**written, f"{stem}.dist-info/licenses/LICENSE": licence}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004
        raise SystemExit("usage: build_wheel.py FOLDER[#FILE.onnx] OUT")
    print(build(sys.argv[1], Path(sys.argv[2])))  # noqa: T201
