"""``semlex serve`` as a user starts, asks and stops it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import threading
from contextlib import contextmanager

import httpx2
import pytest

from tests.support.waiting import LIMIT, held, until, until_waiting, waiting

pytestmark = pytest.mark.slow


@contextmanager
def serving(shell, *options):
    """The process, its address, and the line that shows how to ask it."""
    with shell.start("serve", "--port", "0", *options) as process:
        lines = [process.stderr.readline() for _ in range(2)]
        address = re.search(r'http://[^\s,"]+', lines[0])
        assert address is not None, (lines, process.stderr.read())
        yield process, address[0], lines[1].removeprefix("ask: ").strip()


def test_it_is_started_asked_and_stopped(program):
    program("index", "docs")
    with serving(program) as (process, address, line):
        assert httpx2.get(f"{address}/readyz").json()["status"] == "ready"
        asked = shlex.split(line)
        assert asked[0] == "curl"
        answer = httpx2.post(asked[2], content=asked[-1], headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        assert httpx2.post(f"{address}/v1/documents", json={"documents": [{"content": "x"}]}).status_code == 403
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
        assert "stopping" in said
        assert "Traceback" not in said


def test_a_second_signal_ends_what_is_in_progress(program):
    program("index", "docs", "-c", "handbook")
    ended = []

    def ask(address):
        try:
            httpx2.post(f"{address}/v1/search", json={"query": "key"}, timeout=LIMIT)
        except httpx2.TransportError as error:
            ended.append(error)

    with (
        serving(program, "-c", "handbook") as (process, address, _),
        held(program.environment["DATABASE_URL"], "semlex.handbook_chunk") as holder,
    ):
        asking = threading.Thread(target=ask, args=(address,))
        asking.start()
        until_waiting(holder)
        process.send_signal(signal.SIGTERM)
        said = []
        for line in process.stderr:
            said.append(line)
            if "stopping" in line:
                break
        assert asking.is_alive()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate()
        asking.join(LIMIT)
        assert len(ended) == 1
        until(lambda: waiting(holder) == 0)
        assert process.returncode == -signal.SIGTERM
        assert not re.search("ERROR|Traceback|Exception", "".join([*said, rest]))


def test_every_line_of_a_log_for_programs_is_json(program):
    program("index", "docs")
    with serving(program, "--log-format", "json") as (process, address, _):
        assert httpx2.get(f"{address}/readyz").json()["status"] == "ready"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
        lines = [json.loads(line) for line in said.splitlines()]
        assert {"message", "level", "time"} <= set.intersection(*map(set, lines))
        assert any("stopping" in line["message"] for line in lines)


def test_the_address_that_it_shows_is_one_to_ask(program):
    program("index", "docs")
    file = ("--token-file", "tokens.json")
    secret = program("serve", "token", "add", "ann", *file).stdout.strip()
    with serving(program, "--host", "0.0.0.0", *file) as (_, address, line):  # noqa: S104
        asked = shlex.split(line.replace("TOKEN", secret))
        assert httpx2.get(f"{address}/healthz").status_code == 200
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        assert headers["Authorization"] in asked[4]
        assert httpx2.get(f"{address}/v1/collections").status_code == 401
        assert httpx2.post(asked[2], content=asked[-1], headers=headers).status_code == 200


@pytest.mark.parametrize(("command", "content"), [("serve", None), ("mcp --http", '{"tokens": {}}')])
def test_a_file_without_tokens_is_told_at_the_start(program, command, content):
    program("index", "docs")
    if content is not None:
        (program.folder / "none.json").write_text(content)
    with program.start(*command.split(), "--port", "0", "--token-file", "none.json") as process:
        told, line = process.stderr.readline(), process.stderr.readline()
        assert "the token file none.json " + ("does not exist" if content is None else "has no token") in told
        address = re.search(r"http://[\d.:]+", line)
        assert address is not None, line
        asked = f"{address[0]}/mcp"
        assert httpx2.post(asked, json={}).status_code == 401
        words = shlex.split(told.partition("to make one: semlex ")[2])
        secret = program(*words).stdout.strip()
        assert httpx2.post(asked, json={}, headers={"Authorization": f"Bearer {secret}"}).status_code != 401


def test_what_cannot_be_listened_on_is_told(program):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for options, said in (
            (("--port", port), "choose another port with --port"),
            (("--port", port), "another address with --host"),
            # Nobody is asked about a name that cannot be one.
            (("--host", "no..such.name", "--token-file", "t.json"), "not an address of this machine"),
            (("--host", "0.0.0.0"), "semlex serve token add"),  # noqa: S104
            (("--rights", "root"), "rights must be one of"),
            (("--origin", "pages"), "is not an origin"),
        ):
            found = program("serve", *options, code=2)
            assert said in found.stderr
            assert "Traceback" not in found.stderr


def test_tokens_are_made_listed_and_removed(shell):
    file = ("--token-file", "tokens.json")
    assert shell("serve", "token", "add", "ann", "--rights", "read", *file).stdout.startswith("semlex_")
    assert "ann  read  all collections" in shell("serve", "token", "list", *file).stdout
    shell("serve", "token", "remove", "ann", *file)
    assert json.loads((shell.folder / "tokens.json").read_text()) == {"tokens": {}}
    assert "unknown token" in shell("serve", "token", "remove", "ann", *file, code=2).stderr
    shell("serve", "token", "add", "guest", "--expires", "2999-12-31T00:00Z", *file)
    listed = shell("serve", "token", "list", *file).stdout
    assert "guest  read  all collections  expires 2999-12-31 00:00+0000" in listed
    assert shell.objects("serve", "token", "list", *file)[0]["expires"] == "2999-12-31T00:00:00+00:00"
    refused = shell("serve", "token", "add", "x", "--expires", "soon", *file, code=2).stderr
    assert "--expires must be a time with its zone" in refused
