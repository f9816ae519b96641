"""Processes that are made after a retriever was opened: each works with what is its own, or says at once why not."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from semlex import PostgreSQLRetriever, SyncRetriever
from semlex.errors import ConfigurationError, ModelError
from semlex.models.local.device import TorchProcess
from semlex.proof.children import say
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.folders import CLIENTS
from tests.support.model_servers import ModelServerDouble, openai_embeddings
from tests.support.programs import Program
from tests.support.waiting import until

WORKERS = 2
# An inherited connection or lock makes a child wait for ever; a slow machine does not take this long.
PATIENCE = 200


@pytest.fixture
def words(request, tmp_path):
    """What these words are for a client: names of models, and any others."""
    found = request.param.split()
    if "torch" in found:
        from tests.support import tiny_qwen3  # torch comes with it

        folder = tiny_qwen3.write_embedder(tmp_path / "embedder")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))
        found[found.index("torch")] = str(folder)
    with ModelServerDouble(openai_embeddings(8)) as double:
        yield [f"{double.url}/v1#m" if word == "server" else word for word in found]


def run(models, way, **options):
    """What the client's processes found, the parent's last of each model."""
    settings = json.dumps({"models": models, "way": way, "options": options})
    command = [sys.executable, CLIENTS / "forking_client.py", settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    for noise in ("Traceback", "Task was destroyed", "never awaited"):
        assert noise not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refuses(found):
    return found[0].startswith("ModelError: this process was forked") and "spawn" in found[0]


# A spawned child inherits nothing, and models do not differ in more; torch is in tests/torch. The rest is for --full.
REST = [pytest.param(f"{one} torch", marks=pytest.mark.full) for one in ("os", "fork none static", "spawn none server")]


@pytest.mark.parametrize("words", ["os none static server", "fork server", "spawn static", *REST], indirect=True)
def test_children_work_or_say_at_once_why_not(database_url, words):
    way, *models = words
    found = iter(run(models, way, db_url=database_url))
    for model, first, *children, last in zip(models, *[found] * (2 + WORKERS), strict=True):
        assert first == ["parent"]
        if Path(model).is_dir() and way != "spawn":
            assert all(map(refuses, children))
            assert last == ["parent", 2]
        else:
            assert children == [["parent"]] * WORKERS
            assert last == ["parent", 2 + WORKERS]


def test_an_asynchronous_retriever_opens_again_in_a_child(database_url):
    first, *children, last, count = run(["static"], "asynchronous", db_url=database_url)
    assert first == last == ["child 0"]
    assert children == [["child 0"]] * 2
    assert count == [4]


@contextmanager
def preloaded(models, options):
    """The address of gunicorn with the application loaded before its workers are forked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        app, number = json.dumps({"models": models, "options": options}), listener.fileno()
        environment = os.environ | {"PRELOADED_APP": app, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
        command = [sys.executable, "-m", "gunicorn", "--preload", "-w", str(WORKERS), "--timeout", str(PATIENCE)]
        command += ["--bind", f"fd://{number}", "--chdir", str(CLIENTS), "preloaded_app:application"]
        streams = {"pass_fds": [number], "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment, **streams)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
            assert "Traceback" not in said, said
            assert process.returncode == 0, said


def answers(url):
    """What each worker answered, by its process."""
    found = {}

    def ask():
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - our own
            body = json.load(answer)
        assert body["process"] != body["parent"]
        found[body["process"]] = body["found"]
        return len(found) == WORKERS

    until(ask)
    return found


@pytest.mark.parametrize("words", ["static server", pytest.param("none torch", marks=pytest.mark.full)], indirect=True)
def test_gunicorn_with_preload(database_url, words):
    with preloaded(words, {"db_url": database_url}) as url:
        found = answers(url)
    for by_model in found.values():
        for model, ids in zip(words, by_model, strict=True):
            assert refuses(ids) if Path(model).is_dir() else ids == ["parent"]


def test_children_use_the_embedded_server_for_themselves(make_server_folder, open_folder):
    """The last of all processes stops it, whichever that is."""
    folder = make_server_folder(open_folder / "server")
    first, *children, last = run(["none"], "fork", data_folder=str(folder))
    assert [first, *children] == [["parent"]] * (1 + WORKERS)
    assert last == ["parent", 2 + WORKERS]
    assert not (folder / "data" / "postmaster.pid").exists()
    with preloaded(["none"], {"data_folder": str(folder)}) as url:
        assert list(answers(url).values()) == [[["parent"]]] * WORKERS
    assert not (folder / "data" / "postmaster.pid").exists()


def hold_with_a_child(folder):
    EmbeddedServer(folder).start()
    if child := os.fork():
        say(child)
    signal.pause()


def test_a_child_does_not_hold_its_parents_use(make_server_folder, open_folder):
    """Not even while it lives longer, and its parent was killed."""
    folder = make_server_folder(open_folder / "server")
    with Program(hold_with_a_child, folder) as parent:
        assert parent.waits(bool), parent.said
        child = psutil.Process(int(parent.said))
        try:
            parent.kill()
            assert child.is_running()
            with EmbeddedServer(folder):
                pass
            assert not (folder / "data" / "postmaster.pid").exists()
        finally:
            child.kill()


@pytest.mark.parametrize("kind", [SyncRetriever, PostgreSQLRetriever])
def test_a_retriever_is_not_sent_to_another_process(kind):
    with pytest.raises(ConfigurationError, match="make it there, with the same arguments"):
        pickle.dumps(kind("host=nowhere", "none"))


def test_torch_before_and_after_a_fork():
    process = TorchProcess()
    process.after_fork()
    process.use()  # nothing was loaded before that fork
    process.after_fork()
    for call in (process.check, process.use):
        with pytest.raises(ModelError, match="forked from one that had loaded a model with torch"):
            call()
