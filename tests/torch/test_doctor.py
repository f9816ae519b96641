"""What the doctor finds: packages, devices, whether a named model works, and what a server can do."""

import dataclasses
import json

import pytest
from huggingface_hub import constants

from semlex.diagnostics import doctor
from semlex.errors import ConfigurationError, UnsupportedServerError
from semlex.models.local import shared_weights
from semlex.models.local.forward import ReferenceForward
from semlex.retriever.synchronous import SyncRetriever
from tests.support import model_cache, onnx_models, tiny_qwen3
from tests.support.shell import run_here


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return str(model_cache.write_embedder(tmp_path_factory.mktemp("doctor") / "embedder"))


@pytest.fixture(autouse=True)
def nothing_cached(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_this_machine():
    found = doctor.examine_models()
    assert (found.models, found.install) == ((), {})
    assert all(found.packages.values())
    assert found.device in found.devices
    assert found.precision in {"float32", "bfloat16", "float16"}
    assert found.precision_reason
    assert set(found.defaults) == {"Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Reranker-0.6B"}
    assert all("semlex models pull Qwen/" in place for place in found.defaults.values())
    json.dumps(dataclasses.asdict(found))


def test_an_onnx_model_and_a_static_one(tmp_path):
    folder = onnx_models.write_folder(tmp_path / "encoder")
    [found] = doctor.examine_models(f"onnx:{folder}").models
    assert (found.problem, found.path, found.max_tokens) == (None, str(folder), onnx_models.MAX_TOKENS - 2)
    assert found.identity.model == f"onnx:{folder}"
    assert found.tokenizer.startswith("tokenizer/")
    (found,) = doctor.examine_models("static").models
    assert (found.problem, found.runtime, found.path) == (None, None, None)
    assert "static" in found.choice


def test_models_that_work(embedder, tmp_path):
    reranker = str(model_cache.write_reranker(tmp_path / "reranker"))
    found = doctor.examine_models(embedder, reranker, device="cpu")
    given = [("embedding", embedder, embedder, None), ("reranking", reranker, reranker, None)]
    assert [(each.role, each.name, each.path, each.problem) for each in found.models] == given
    for each in found.models:
        assert each.revision.startswith("sha256:")
        assert each.tokenizer.startswith("tokenizer/")
        assert each.tokenizer_engine
        assert each.seconds > 0
        assert (each.runtime.device, each.runtime.precision, each.runtime.failures) == ("cpu", found.precision, ())
        assert "as configured" in each.choice
    json.dumps(dataclasses.asdict(found))


def test_a_fallback_is_shown(embedder, monkeypatch):
    class Raising(ReferenceForward):
        def run(self, batch):
            raise NotImplementedError

    monkeypatch.setattr(shared_weights, "_outcomes", {})
    monkeypatch.setattr(shared_weights, "forms_from", lambda attention: ["broken", attention])
    monkeypatch.setattr(shared_weights, "FORWARDS", shared_weights.FORWARDS | {"broken": Raising})
    (examined,) = doctor.examine_models(embedder, device="cpu").models
    failure = f"broken attention on cpu in {examined.runtime.precision} raised NotImplementedError"
    assert (examined.problem, [*map(str, examined.runtime.failures)]) == (None, [failure])


def test_models_that_do_not_work(tmp_path, embedder, monkeypatch):
    broken = model_cache.write_embedder(tmp_path / "broken")
    tiny_qwen3.write_tokenizer(broken, end_token="<|im_end|>")  # noqa: S106
    first, second = doctor.examine_models(str(broken), "semlex/no-such-reranker").models
    assert "expected only <|endoftext|> (476) after it" in first.problem
    assert (first.path, first.seconds) == (str(broken), None)
    assert "not on this machine; tried:" in second.problem
    with pytest.raises(ConfigurationError, match="device must be one of"):
        doctor.examine_models(device="tpu")

    def fail(*_, **__):
        raise ZeroDivisionError("text of a document")

    monkeypatch.setattr(doctor, "choose_embedder", fail)
    (other,) = doctor.examine_models(embedder).models
    assert other.problem == "raised ZeroDivisionError, which is a defect of semlex: report it"


def test_without_torch_or_with_one_that_does_not_work(monkeypatch, embedder):
    def fail(*_):
        raise OSError("libcudart.so: cannot open shared object file")

    with monkeypatch.context() as patch:
        patch.setattr(doctor, "choose_placement", fail)
        found = doctor.examine_models()
    assert "torch is installed but does not work here (OSError)" in found.precision_reason
    assert found.devices == {}
    model_cache.without(monkeypatch, "torch", "transformers", "tokenizers")
    found = doctor.examine_models(embedder)
    absent = (None, None, {}, "torch is not installed")
    assert (found.device, found.precision, found.devices, found.precision_reason) == absent
    assert (found.packages["torch"], found.install) == (None, {"torch": "pip install 'semlex[torch]'"})
    assert "semlex[torch]" in found.models[0].problem
    assert found.models[0].path == embedder


def run(*arguments, code=0):
    done = run_here(("doctor", "models", *arguments))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_command(embedder):
    done = run("--model", embedder, "--reranker", "semlex/no-such-reranker", "--device", "cpu", code=4)
    for part in ("torch  ", "runs on", f"embedding: {embedder}", "first answer", "reranking: semlex/", "problem"):
        assert part in done.stdout
    [line] = run("--json", "--model", embedder, "--device", "cpu").stdout.splitlines()
    found = json.loads(line)
    assert (found["models"][0]["problem"], bool(found["packages"]["torch"])) == (None, True)
    assert "device must be" in run("--device", "tpu", code=2).stderr


def test_a_server(database_url):
    found = doctor.examine_server(database_url)
    assert (bool(found.pgvector), found.read_only) == (True, False)
    assert set(found.keyword_engines) == {"pg_textsearch", "pg_search"}
    for name, remedy in found.keyword_engines.items():
        assert remedy.endswith(f"run: CREATE EXTENSION {name};")
        with pytest.raises(UnsupportedServerError, match=f"run: CREATE EXTENSION {name};"):
            SyncRetriever(database_url, "none", keyword=name).initialize()
    done = run_here(("doctor", "server", "--database", database_url, "--json"))
    assert json.loads(done.stdout) == dataclasses.asdict(found)
