"""How a model comes to this machine: the cache, the hub, and what is said when it is in neither."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import _tree_cache, constants
from transformers import Qwen3Model

from semlex.errors import ConfigurationError, ModelError, ModelNotFoundError
from semlex.models import files as weights
from semlex.models.files import ModelFolder, find_cached, find_model, pull_model
from semlex.models.local import memory
from semlex.models.local.device import Placement
from semlex.models.local.shared_weights import load_weights
from tests.support import onnx_models, tiny_qwen3
from tests.support.fake_hub import COMMIT, FakeHub
from tests.support.folders import change_json, folder_with
from tests.support.shell import run_here

NAME = "semlex/tiny"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model as the hub holds it: weights in two files, and files that are nobody's business here."""
    folder = tiny_qwen3.write_embedder(tmp_path_factory.mktemp("hub") / "files")
    first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    (folder / "model.safetensors").rename(folder / first)
    index = {"model.safetensors.index.json": json.dumps({"weight_map": {"a": first, "b": second}})}
    others = {"modeling_evil.py": "raise SystemExit\n", "pytorch_model.bin": b"pickle", "README.md": "# Tiny\n"}
    return folder_with(folder, {second: b"\0" * 70_000} | index | others)


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with closing(FakeHub(NAME, files)) as served:
        for constant in ("HUGGINGFACE_CO_URL_TEMPLATE", "ENDPOINT"):  # the second is read for both
            address = getattr(constants, constant).replace(constants.ENDPOINT, served.url)
            monkeypatch.setattr(constants, constant, address)
        yield served


@pytest.fixture
def wanted(files):
    """The names and sizes of the files that are fetched."""
    return {file.name: file.stat().st_size for file in files.iterdir() if file.suffix in {".json", ".safetensors"}}


def test_a_model_is_fetched_without_anything_that_is_executed(hub, wanted):
    assert find_cached(NAME) is None
    announced, arrived, size = [], [], sum(wanted.values())
    pulled = pull_model(NAME, announce=lambda *figures: announced.append(figures), progress=arrived.append)
    assert announced == [(pulled.files, pulled.bytes, pulled.fetched_bytes)] == [(len(wanted), size, size)]
    assert arrived[-1] == max(arrived) == size
    assert pulled.folder == ModelFolder(NAME, COMMIT, pulled.folder.path)
    assert {file.name for file in pulled.folder.path.iterdir()} == {*hub.fetched} == {*wanted}
    # What was fetched by our own patterns is whole, although the commit has more files.
    assert find_cached(NAME) == find_cached(NAME, COMMIT) == pulled.folder
    hub.asked.clear()
    assert find_model(NAME, allow_download=True) == pulled.folder
    assert hub.asked == []


def test_a_model_that_may_be_downloaded_is_fetched_alike(hub, wanted):
    found = find_model(NAME, allow_download=True)
    assert (found.name, found.revision, found, {*hub.fetched}) == (NAME, COMMIT, find_cached(NAME), {*wanted})


def test_files_that_arrived_are_not_fetched_again(hub):
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
    assert (pull_model(NAME).fetched_bytes, hub.fetched) == (70_000, [late])
    hub.fetched.clear()
    assert (pull_model(NAME, revision=COMMIT).fetched_bytes, hub.fetched) == (0, [])


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


def test_a_folder_an_unknown_revision_no_data_files_and_a_full_disk_cannot_be_pulled(hub, tmp_path, monkeypatch):
    for name in ("./model", "/model", "~/model", "a/b/c"):
        with pytest.raises(ConfigurationError, match="is a folder on this machine"):
            pull_model(name)
    with pytest.raises(ModelNotFoundError, match=r"at revision 'v/9' cannot be fetched from the hub: it answered 404"):
        pull_model(NAME, revision="v/9")
    assert hub.asked == [f"HEAD /api/models/{NAME}/revision/v/9"]
    hub.folder = folder_with(tmp_path / "empty", {"README.md": "x"})
    with pytest.raises(ModelNotFoundError, match="has no files of the kinds"):
        pull_model(NAME)

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


def test_a_hub_that_has_nothing_for_us_refuses_connections_or_never_answers(hub, monkeypatch):
    account = "Check the name, and that your account may read the model"
    for status, remedy in ((404, account), (401, account), (503, "try again later")):
        hub.status = status
        assert f"hub: it answered {status} for this model" in refused()
        message = refused_pull()
        assert f"error: model '{UNKNOWN}' cannot be fetched from the hub: it answered {status}" in message
        assert remedy in message
    with socket.socket() as closed:  # it has a port and does not listen: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert "hub: not reachable" in refused()
        message = refused_pull()
    assert "cannot be fetched from the hub: not reachable" in message
    assert "Check the network" in message
    monkeypatch.setattr(weights, "PROBE_SECONDS", 0.2)  # expires
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        message = refused()
    places = ("local folder", "local cache of the hub", "hub: no answer within 0.2 s")
    for part in (*places, "Remedies:", "path of a folder", "models pull"):
        assert part in message
    assert (message.count("; or "), message.count("; or, ")) == (1, 1)


def test_a_private_model_is_asked_for_with_the_users_token_which_no_redirect_gets(hub, files, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")
    hub.status = 401
    with pytest.raises(ModelNotFoundError, match="answered 401") as caught:
        pull_model(NAME)
    assert hub.headers[0]["Authorization"] == "Bearer hf_secret"
    assert "hf_secret" not in str(caught.value)
    hub.headers.clear()
    with closing(FakeHub(NAME, files)) as other:
        hub.answer = lambda _method, path: (307, {"Location": f"{other.url}{path}"}, b"")
        assert weights._hub_obstacle(NAME, None) is None
    assert hub.headers[0]["Authorization"] == "Bearer hf_secret"
    assert [headers.get("Authorization") for headers in other.headers] == [None]


def test_pull_from_the_command_line(hub, tmp_path, wanted):
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
    expected = {"model": NAME, "revision": COMMIT, "path": str(folder), "fetched_bytes": 0}
    assert json.loads(again.stdout).items() >= (expected | {"bytes": sum(wanted.values())}).items()


def test_of_a_name_with_onnx_in_front_one_onnx_file_is_pulled(hub, tmp_path):
    names = ("onnx/model_quantized.onnx", "onnx/model_O4.onnx", "onnx/model.onnx_data", "model.safetensors")
    folder = onnx_models.write_folder(tmp_path / "encoder", file="onnx/model.onnx")
    hub.folder = folder_with(folder, {name: name for name in names})
    pulled = pull_model(f"onnx:{NAME}")
    fetched = {path.relative_to(pulled.folder.path).as_posix() for path in pulled.folder.path.rglob("*.*")}
    assert {name for name in fetched if not name.endswith(".json")} == {"onnx/model.onnx", "onnx/model.onnx_data"}
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


def test_a_model_that_does_not_fit_is_refused_with_a_remedy(folder, monkeypatch):
    def full(*_):
        raise RuntimeError("MPS backend out of memory (MPS allocated: 5.56 GB)")

    monkeypatch.setattr(Qwen3Model, "to", full)
    given_back = []
    monkeypatch.setattr(memory, "give_back", given_back.append)
    with pytest.raises(ModelError, match=r"in float32 does not fit into the memory of cpu; .*smaller model") as caught:
        load_weights(folder, "none", Placement("cpu", "float32"))
    assert caught.value.__context__ is None  # it would hold the weights
    assert given_back == ["cpu"]


def test_nothing_is_executed_that_comes_with_a_model(tmp_path):
    folder = tiny_qwen3.write_embedder(tmp_path / "evil")
    change_json(folder / "config.json", auto_map={"AutoModel": "modeling_evil.Evil"})
    (folder / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    load_weights(find_model(str(folder)), "none", Placement("cpu", "float32"))
    assert not (tmp_path / "ran").exists()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_weights(find_model(str(folder)), "none", Placement("cpu", "float32"))
