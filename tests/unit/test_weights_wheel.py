import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from semlex.embedding.onnx import OnnxEmbedder, find_light_model
from semlex.embedding.registry import choose_embedder
from semlex.errors import ModelNotFoundError
from tests.support import model_cache, onnx_models

ROOT = Path(__file__).resolve().parents[2]
empty_cache = model_cache.empty_cache


def built(name, out):
    command = [sys.executable, str(ROOT / "weights" / "build_wheel.py"), name, str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_wheel_of_weights_is_built_and_found(tmp_path, monkeypatch, empty_cache):
    with pytest.raises(
        ModelNotFoundError,
        match=r"semlex-weights is not installed: build it with \./x weights FOLDER.*semlex models known",
    ):
        choose_embedder("onnx:semlex-weights")
    folder = onnx_models.write_folder(tmp_path / "model", file="model_int8.onnx", int8=True, prompts={"query": "q "})
    onnx_models.write_graph(folder / "model.onnx")
    name = f"{folder}#model_int8.onnx"
    assert "no file LICENSE" in built(name, tmp_path / "dist").stderr
    (folder / "LICENSE").write_text("MIT\n")
    done = built(name, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(done.stdout.strip()) as wheel:
        assert wheel.testzip() is None
        wheel.extractall(tmp_path / "site")
    assert not (tmp_path / "site" / "semlex_weights" / "model.onnx").exists()
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    assert find_light_model() == "onnx:semlex-weights"
    found = choose_embedder("onnx:semlex-weights").model
    assert found.identity.model == "onnx:semlex-weights"
    assert found.identity.revision.startswith("1.0.0+")
    assert np.array_equal(found.embed_query("fox"), OnnxEmbedder(name).embed_query("fox"))
    assert "semlex_weights" not in sys.modules  # it is read, not imported
