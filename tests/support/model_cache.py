"""A cache of the hub that belongs to a test, so that no model of this machine decides it."""

from importlib.util import find_spec

import pytest
from huggingface_hub import constants

from semlex.diagnostics import doctor
from semlex.embedding import static
from semlex.models import files
from semlex.models.local import device
from tests.support.fake_hub import COMMIT
from tests.support.folders import change_json

MAX_POSITIONS = 32768  # as many as the models of the hub have: the default max_length must fit


def put_into_cache(cache, name, write):
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    write(folder / "snapshots" / COMMIT)


def write_embedder(folder):
    from tests.support import tiny_qwen3  # torch comes with it

    return _with_all_positions(tiny_qwen3.write_embedder(folder))


def write_reranker(folder):
    from tests.support import tiny_qwen3

    return _with_all_positions(tiny_qwen3.write_reranker(folder))


def _with_all_positions(folder):
    change_json(folder / "config.json", max_position_embeddings=MAX_POSITIONS)
    return folder


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return cache


@pytest.fixture
def qwen3_cache(empty_cache):
    put_into_cache(empty_cache, "Qwen/Qwen3-Embedding-0.6B", write_embedder)
    put_into_cache(empty_cache, "Qwen/Qwen3-Reranker-0.6B", write_reranker)
    return empty_cache


def with_gpu(monkeypatch, *, present):
    monkeypatch.setattr(device, "has_accelerator", lambda: present)


def without(monkeypatch, *packages):
    for module in (doctor, device, static, files):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name in packages else find_spec(name))


def reason_for(choice, kind):
    """The reason of a choice, one line, whose model is of this kind, or None."""
    assert type(choice.model) is (kind or type(None))
    assert choice.reason
    assert "\n" not in choice.reason
    return choice.reason
