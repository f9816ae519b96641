"""New collections take an ONNX model of this machine, where that is fast enough."""

import shutil

import pytest

from semlex.embedding import onnx
from semlex.errors import ModelError
from semlex.ingest.embed import DocumentVectors
from tests.support import model_cache, onnx_models

NAME = "BAAI/bge-small-en-v1.5"
empty_cache = model_cache.empty_cache


@pytest.fixture
def folder(tmp_path, empty_cache):
    model_cache.put_into_cache(empty_cache, NAME, onnx_models.write_folder)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "fox.md").write_text("# Foxes\n\nThe quick fox keeps rows of the database.\n")
    return folder


def models_of(shell, collection):
    return [entry["model"] for entry in shell.objects("models", "list", "-c", collection)]


def test_a_new_collection_takes_it_and_keeps_it(shell, folder, empty_cache):
    first = shell("index", str(folder), "-c", "a").stderr
    assert f"onnx:{NAME} is on this machine and would embed these files in about 1 s\n" in first
    assert f"hybrid search with {NAME} (model.onnx, ONNX)" in first
    (folder / "dog.md").write_text("A dog.\n")
    again = shell("sync", str(folder), "-c", "a").stderr
    assert "is on this machine" not in again
    assert "the collection's model" in again
    assert models_of(shell, "a") == [f"onnx:{NAME}"]
    [known] = [entry for entry in shell.objects("models", "known") if entry["here"]]
    assert (known["model"], known["licence"], known["size"]) == (f"onnx:{NAME}", "MIT", "133 MB")
    # Without the model the collection is searched by words, and gets no vectors of another.
    shutil.rmtree(empty_cache / "models--BAAI--bge-small-en-v1.5")
    found = shell("search", "fox", "-c", "a")
    assert "Foxes" in found.stdout
    assert f"semlex models pull onnx:{NAME}" in shell("models", "fill", "-c", "a", code=4).stderr
    assert models_of(shell, "a") == [f"onnx:{NAME}"]


def test_try_takes_it_too(shell, folder):
    said = shell("try", str(folder), "which fox?").stderr
    assert f"hybrid search with {NAME} (model.onnx, ONNX)" in said


def test_a_slow_one_is_named_and_not_taken(shell, folder, monkeypatch):
    monkeypatch.setattr(onnx, "MAX_LIGHT_SECONDS", 0)
    said = shell("sync", str(folder), "-c", "a").stderr
    assert f"would embed these files in about 1 s; for better hits: --model onnx:{NAME}\n" in said
    assert models_of(shell, "a") == ["wordllama/l2_supercat_256"]


def test_what_was_chosen_before_stays(shell, folder):
    for number, model in enumerate(("static", "none")):
        assert "is on this machine" not in shell("index", str(folder), "-c", f"c{number}", "--model", model).stderr
    # Neither does a later run change it.
    for number in (0, 1):
        assert "is on this machine" not in shell("index", str(folder), "-c", f"c{number}").stderr
        assert all("onnx" not in name for name in models_of(shell, f"c{number}"))


def test_a_run_that_ended_before_its_first_chunk_goes_on_with_the_same_model(shell, folder, monkeypatch):
    async def stopped(*_, **__):
        raise ModelError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(DocumentVectors, "of", stopped)
        shell("index", str(folder), "-c", "a", code=4)
    assert "the collection's model" in shell("index", str(folder), "-c", "a").stderr
    assert models_of(shell, "a") == [f"onnx:{NAME}"]
