"""How a model comes to this machine: the cache, the hub, and what is said when it is in neither."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from semlex.errors import ConfigurationError, ModelError, ModelNotFoundError
from semlex.models import files as weights
from semlex.models.files import ModelFolder, find_cached, find_model, pull_model
from semlex.models.local import memory
from semlex.models.local.device import Placement
from semlex.models.local.shared_weights import load_weights
from tests.support import onnx_models, tiny_qwen3
from tests.support.fake_hub import COMMIT, FakeHub
from tests.support.shell import run_here

NAME = "semlex/tiny"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model as the hub holds it: weights in two files, and files that are nobody's business here."""
    folder = tmp_path_factory.mktemp("hub") / "files"
    tiny_qwen3.write_embedder(folder)
    whole = folder / "model.safetensors"
    whole.rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"\0" * 70_000)
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "modeling_evil.py").write_text("raise SystemExit\n")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "README.md").write_text("# Tiny\n")
    return folder


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    served = FakeHub(NAME, files)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for constant in ("HUGGINGFACE_CO_URL_TEMPLATE", "ENDPOINT"):  # the second is read for both
        address = getattr(constants, constant).replace(constants.ENDPOINT, served.url)
        monkeypatch.setattr(constants, constant, address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield served
    served.close()


def wanted(files):
    return {file for file in files.iterdir() if file.suffix in (".json", ".safetensors", ".txt")}


def test_a_model_is_fetched_without_anything_that_is_executed(hub, files):
    assert find_cached(NAME) is None
    announced, arrived = [], []
    pulled = pull_model(NAME, announce=lambda *figures: announced.append(figures), progress=arrived.append)
    size = sum(file.stat().st_size for file in wanted(files))
    assert announced == [(len(wanted(files)), size, size)]
    assert (pulled.files, pulled.bytes, pulled.fetched_bytes) == (len(wanted(files)), size, size)
    assert arrived[-1] == max(arrived) == size
    assert pulled.folder == ModelFolder(NAME, COMMIT, pulled.folder.path)
    assert {file.name for file in pulled.folder.path.iterdir()} == {file.name for file in wanted(files)}
    assert set(hub.fetched) == {file.name for file in wanted(files)}
    # What was fetched by our own patterns is whole, although the commit has more files.
    assert find_cached(NAME) == find_cached(NAME, COMMIT) == pulled.folder
    hub.asked.clear()
    assert find_model(NAME, allow_download=True) == pulled.folder
    assert hub.asked == []


def test_a_model_that_may_be_downloaded_is_fetched_alike(hub, files):
    found = find_model(NAME, allow_download=True)
    assert (found.name, found.revision, found) == (NAME, COMMIT, find_cached(NAME))
    assert set(hub.fetched) == {file.name for file in wanted(files)}


def test_files_that_arrived_are_not_fetched_again(hub, files):
    late = "model-00002-of-00002.safetensors"
    hub.broken = {late}
    with pytest.raises(ModelNotFoundError, match=r"could not be downloaded .*run the same command again to resume"):
        pull_model(NAME)
    assert find_cached(NAME) is None
    missing = f"local cache of the hub (incomplete: 1 of 2 files of weights are missing, the first is {late})"
    with pytest.raises(ModelNotFoundError, match=re.escape(missing)):
        find_model(NAME)
    hub.broken = set()
    hub.fetched.clear()
    pulled = pull_model(NAME)
    assert hub.fetched == [late]
    assert pulled.fetched_bytes == 70_000
    hub.fetched.clear()
    assert pull_model(NAME, revision=COMMIT).fetched_bytes == 0
    assert hub.fetched == []


def test_a_model_in_the_cache_needs_no_hub(hub, monkeypatch):
    pulled = pull_model(NAME)
    hub.status = 503
    again = pull_model(NAME)
    assert (again.folder, again.files, again.fetched_bytes) == (pulled.folder, 0, 0)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert pull_model(NAME).folder == pulled.folder


@pytest.mark.parametrize(
    ("lost", "remark"),
    [
        ("config.json", "config.json is missing"),
        ("model-00001*", "1 of 2 files of weights are missing, the first is model-00001-of-00002.safetensors"),
        ("model.safetensors.index.json", None),
        ("model*", "its weights are missing"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_an_incomplete_download_is_named(hub, lost, remark, listed):
    folder = pull_model(NAME).folder.path
    if not listed:  # a client that keeps no list of a commit's files
        shutil.rmtree(folder.parent.parent / "trees", ignore_errors=True)
        from huggingface_hub import _tree_cache

        _tree_cache._IN_MEMORY_TREE_CACHE.clear()
    for file in folder.glob(lost):
        file.unlink()
    if remark is None and not listed:
        assert find_cached(NAME) is not None  # the weights may well be in one file
        return
    assert find_cached(NAME) is None
    with pytest.raises(ModelNotFoundError, match=re.escape(f"(incomplete: {remark or 'files are missing'})")):
        find_model(NAME)


@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"weight_map": 1}', '{"weight_map": {"a": "/etc/a"}}'])
def test_an_index_that_cannot_be_read(hub, content):
    folder = pull_model(NAME).folder.path
    (folder / "model.safetensors.index.json").resolve().write_text(content)
    with pytest.raises(ModelNotFoundError, match=r"model\.safetensors\.index\.json cannot be read"):
        find_model(NAME)


def test_a_folder_a_revision_that_is_not_there_and_a_model_without_data_files_cannot_be_pulled(hub, tmp_path):
    for name in ("./model", "/model", "~/model", "a/b/c"):
        with pytest.raises(ConfigurationError, match="is a folder on this machine"):
            pull_model(name)
    with pytest.raises(ModelNotFoundError, match=r"at revision 'v/9' cannot be fetched from the hub: it answered 404"):
        pull_model(NAME, revision="v/9")
    assert hub.asked == [f"HEAD /api/models/{NAME}/revision/v/9"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("x")
    hub.folder = tmp_path / "empty"
    with pytest.raises(ModelNotFoundError, match="has no files of the kinds"):
        pull_model(NAME)


def test_a_full_disk_is_named(hub, monkeypatch):
    import huggingface_hub

    def fetch(*_, **options):
        if options.get("local_files_only"):
            raise huggingface_hub.errors.LocalEntryNotFoundError("no")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ModelNotFoundError, match="the disk of the cache is full"):
        pull_model(NAME)


UNKNOWN = "semlex/no-such-model"


def refused():
    """What is said of a model that is neither on this machine nor at the hub."""
    with pytest.raises(ModelNotFoundError) as caught:
        find_model(UNKNOWN, allow_download=True)
    return str(caught.value)


def refused_pull():
    done = run_here(("models", "pull", UNKNOWN))
    assert (done.returncode, done.stdout) == (4, "")
    assert "models pull" not in done.stderr  # it was just done
    return done.stderr


def test_a_hub_that_never_answers_is_not_waited_for(hub, monkeypatch):
    monkeypatch.setattr(weights, "PROBE_SECONDS", 0.2)  # expires
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        message = refused()
    for part in ("local folder", "local cache of the hub", "hub: no answer within 0.2 s", "Remedies:"):
        assert part in message
    assert "path of a folder" in message
    assert "models pull" in message
    assert message.count("; or ") == 1
    assert message.count("; or, ") == 1


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (404, "Check the name, and that your account may read the model"),
        (401, "Check the name, and that your account may read the model"),
        (503, "try again later"),
    ],
)
def test_a_hub_that_has_nothing_for_us(hub, status, remedy):
    hub.status = status
    assert f"hub: it answered {status} for this model" in refused()
    message = refused_pull()
    assert f"error: model '{UNKNOWN}' cannot be fetched from the hub: it answered {status}" in message
    assert remedy in message


def test_a_hub_that_refuses_connections(hub, monkeypatch):
    with socket.socket() as closed:  # it has a port and does not listen: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert "hub: not reachable" in refused()
        message = refused_pull()
    assert "cannot be fetched from the hub: not reachable" in message
    assert "Check the network" in message


def test_a_private_model_is_asked_for_with_the_users_token_which_no_redirect_gets(hub, files, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")
    hub.status = 401
    with pytest.raises(ModelNotFoundError, match="answered 401") as caught:
        pull_model(NAME)
    assert hub.headers[0]["Authorization"] == "Bearer hf_secret"
    assert "hf_secret" not in str(caught.value)
    hub.headers.clear()
    other = FakeHub(NAME, files)
    try:
        hub.answer = lambda _method, path: (307, {"Location": f"{other.url}{path}"}, b"")
        assert weights._hub_obstacle(NAME, None) is None
    finally:
        other.close()
    assert hub.headers[0]["Authorization"] == "Bearer hf_secret"
    assert [headers.get("Authorization") for headers in other.headers] == [None]


def test_pull_from_the_command_line(hub, tmp_path, files):
    # A process of its own: the hub's client reads its settings when it is imported. Proxies and accounts of the one who
    # runs the tests have no part in it.
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and "HF_" not in name}
    own = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": constants.HF_HUB_CACHE, "HF_TOKEN_PATH": str(tmp_path / "none")}
    command = [sys.executable, "-m", "semlex", "models", "pull", NAME]
    done = subprocess.run(command, env=kept | own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert (folder / "config.json").is_file()
    assert "to fetch" in done.stderr
    assert "%|" not in done.stderr  # no bars where there is no terminal
    again = run_here(("models", "pull", NAME, "--json"))
    assert again.stderr == ""
    size = sum(file.stat().st_size for file in wanted(files))
    expected = {"model": NAME, "revision": COMMIT, "path": str(folder), "fetched_bytes": 0, "bytes": size}
    figures = json.loads(again.stdout)
    assert {name: figures[name] for name in expected} == expected


def test_of_a_name_with_onnx_in_front_one_onnx_file_is_pulled(hub, tmp_path):
    folder = tmp_path / "encoder"
    onnx_models.write_folder(folder, file="onnx/model.onnx")
    for name in ("onnx/model_quantized.onnx", "onnx/model_O4.onnx", "onnx/model.onnx_data", "model.safetensors"):
        (folder / name).write_text(name)
    hub.folder = folder
    pulled = pull_model(f"onnx:{NAME}")
    fetched = {path.relative_to(pulled.folder.path).as_posix() for path in pulled.folder.path.rglob("*.*")}
    weights = {name for name in fetched if not name.endswith(".json")}
    assert weights == {"onnx/model.onnx", "onnx/model.onnx_data"}
    assert "1_Pooling/config.json" in fetched
    assert (pulled.folder.name, pulled.files) == (NAME, len(fetched))
    assert pull_model(f"onnx:{NAME}").fetched_bytes == 0
    assert find_model(NAME, weights="onnx") == find_cached(NAME, COMMIT, "onnx") == pulled.folder
    assert find_cached(NAME) is None
    with pytest.raises(ModelNotFoundError, match=r"incomplete: it has only ONNX weights: use onnx:NAME"):
        find_model(NAME)
    # The name of a file takes precedence over the rule.
    assert pull_model(f"onnx:{NAME}#onnx/model_O4.onnx").fetched_bytes == len("onnx/model_O4.onnx")
    with pytest.raises(ModelNotFoundError, match=r"no ONNX file q4\.onnx on the hub; it has: onnx/model\.onnx, "):
        pull_model(f"onnx:{NAME}#q4.onnx")


# From the folder to the device


def test_a_model_that_does_not_fit_is_refused_with_a_remedy(files, monkeypatch):
    from transformers import Qwen3Model

    def full(*_):
        raise RuntimeError("MPS backend out of memory (MPS allocated: 5.56 GB)")

    whole = tiny_qwen3.write_embedder(files.parent / "whole")
    monkeypatch.setattr(Qwen3Model, "to", full)
    given_back = []
    monkeypatch.setattr(memory, "give_back", given_back.append)
    with pytest.raises(ModelError, match=r"in float32 does not fit into the memory of cpu; .*smaller model") as caught:
        load_weights(find_model(str(whole)), "none", Placement("cpu", "float32"))
    assert caught.value.__context__ is None  # it would hold the weights
    assert given_back == ["cpu"]


def test_nothing_is_executed_that_comes_with_a_model(tmp_path):
    folder = tiny_qwen3.write_embedder(tmp_path / "evil")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "modeling_evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    load_weights(find_model(str(folder)), "none", Placement("cpu", "float32"))
    assert not (tmp_path / "ran").exists()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_weights(find_model(str(folder)), "none", Placement("cpu", "float32"))
