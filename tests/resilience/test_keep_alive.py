"""The embedded server stays for a while: nobody waits for its keeper, and in the end nothing is left."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

import semlex
from semlex.errors import ConfigurationError, EmbeddedServerError
from semlex.proof.children import say
from semlex.store.postgres.embedded import keeper as embedded_keeper
from semlex.store.postgres.embedded.folder import start_lock
from semlex.store.postgres.embedded.process import read_postmaster, running_server
from semlex.store.postgres.embedded.server import EmbeddedServer, server_status, stop_unused
from tests.support.embedded_servers import ask, server_processes
from tests.support.folders import new_open_folder
from tests.support.programs import Program
from tests.support.shell import Started
from tests.support.waiting import LIMIT, until

LONG, SHORT = 600.0, 0.3


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A keeper that is slow to start is none that cannot."""
    monkeypatch.setattr(embedded_keeper, "READY_SECONDS", LIMIT)


@pytest.fixture(scope="module")
def made(make_server_folder):
    with new_open_folder() as base:
        yield make_server_folder(base / "postgres")


@pytest.fixture
def folder(made):
    yield made
    for keeper in keepers(made):
        keeper.kill()
    if running_server(made):
        stop_unused(made)


@pytest.fixture
def kept(folder):
    """Process of a server that has a keeper for a long time."""
    pid = use(folder, LONG)
    assert server_status(folder)["kept"]
    return pid


def keepers(folder):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if embedded_keeper.PROGRAM in command and str(folder) in command and command[0] != "/bin/sh":
                found.append(process)
    return found


def use(folder, keep_alive):
    """Uses the server once; returns its process."""
    with EmbeddedServer(folder, keep_alive=keep_alive) as server:
        assert ask(server.url, "SELECT 1") == 1
        return read_postmaster(folder).pid


def open_files(process):
    found = set()
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(path.readlink())
    return found


def let_look(folder, seconds, times):
    """Makes the keeper look so many times: it reads a message only after its look at the one before."""
    for _ in range(times + 1):
        assert embedded_keeper.tell_keeper(folder, seconds)
        until(lambda: unread(folder) == 0)


def unread(folder):
    """Bytes of messages that the keeper has not read."""
    pipe = embedded_keeper._open_pipe(folder, os.O_WRONLY)
    assert pipe is not None
    try:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    finally:
        os.close(pipe)


def is_gone(folder):
    return read_postmaster(folder) is None and not keepers(folder)  # which asks no server each time


def start(folder, keep_alive, *arguments):
    """The command, whose streams are pipes."""
    own = {"SEMLEX_DATA_DIR": str(folder.parent), "SEMLEX_KEEP_ALIVE": str(keep_alive)}
    return Started(arguments, os.environ | own)


def run(folder, keep_alive, *arguments):
    """Its exit code and what it wrote, read to the end of both streams: until no process has them."""
    with start(folder, keep_alive, *arguments) as command:
        return command.communicate(), command.returncode


def keep_using(folder):
    while True:
        with EmbeddedServer(folder, keep_alive=0.2):
            say("used")
        say("left")


def test_the_server_stays_while_it_is_used_and_stops_after_its_time(folder, kept):
    assert use(folder, LONG) == kept
    assert use(folder, None) == kept  # a program without a time leaves the server to whoever keeps it
    assert server_status(folder)["kept"]
    with EmbeddedServer(folder, keep_alive=SHORT) as server:
        let_look(folder, SHORT, 5)
        assert ask(server.url, "SELECT 1") == 1
        assert read_postmaster(folder).pid == kept
    until(lambda: is_gone(folder))
    assert not (folder / "keeper").exists()
    for nothing in (0, None):
        assert use(folder, nothing) != kept
        assert is_gone(folder)
    use(folder, LONG)
    use(folder, 0)
    assert running_server(folder) is None
    until(lambda: is_gone(folder))


def test_the_keeper_is_detached(folder, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:secret@host/database")
    use(folder, LONG)
    assert server_status(folder)["kept"]
    (keeper,) = keepers(folder)
    assert os.getsid(keeper.pid) != os.getsid(0)
    assert keeper.ppid() != os.getpid()
    assert "secret" not in str(keeper.environ())
    assert keeper.cwd() == "/"
    if sys.platform == "linux":
        # At its looks it has two files more, and a lock.
        until(lambda: open_files(keeper) == {Path("/dev/null"), folder / "log", folder / "keeper"})
        until(lambda: str(keeper.pid) not in Path("/proc/locks").read_text().split())


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import os; os.close(int(__import__('sys').argv[4]))"])
def test_without_a_keeper_the_server_stops_at_once(folder, monkeypatch, program):
    monkeypatch.setattr(embedded_keeper, "PROGRAM", program)
    use(folder, LONG)
    assert running_server(folder) is None


def test_a_program_that_is_not_python_is_not_started(folder, tmp_path, monkeypatch):
    program, started = tmp_path / "uwsgi", tmp_path / "started"
    program.write_text(f"#!/bin/sh\ntouch {started}\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    use(folder, LONG)
    assert running_server(folder) is None
    assert not started.exists()


def test_of_several_keepers_one_stays_and_is_replaced_when_it_is_killed(folder, kept):
    with start_lock(folder, LIMIT):
        for _ in range(3):
            assert embedded_keeper._start_keeper(folder, LONG, time.monotonic())
    until(lambda: len(keepers(folder)) == 1)
    keepers(folder)[0].kill()
    until(lambda: not server_status(folder)["kept"])
    assert use(folder, SHORT) == kept
    until(lambda: is_gone(folder))


def test_of_several_orders_the_youngest_holds(folder, kept):
    """A keeper that was started before, and finds another one when it runs at last, has nothing to say."""
    before = time.monotonic()
    with start_lock(folder, LIMIT):  # nobody stops the server meanwhile
        assert embedded_keeper.tell_keeper(folder, SHORT)
        assert embedded_keeper._start_keeper(folder, LONG, before)
    until(lambda: is_gone(folder))


def test_a_keeper_ends_with_its_folder(folder, kept):
    moved = folder.with_name("moved")
    folder.rename(moved)
    try:
        assert embedded_keeper.tell_keeper(moved, LONG)  # which makes it look
        until(lambda: not keepers(folder))
        assert not folder.exists()
    finally:
        moved.rename(folder)
    use(folder, 0)


def test_a_copy_has_no_keeper(folder, kept, open_folder):
    copy = open_folder / "copy"
    # The server stands still, so that the copy is of one moment. The postmaster first: it makes no more processes then.
    halted = [psutil.Process(kept)]
    halted[0].suspend()
    try:
        for process in server_processes(folder):
            process.suspend()
            halted.append(process)
        subprocess.run(["cp", "-a", folder, copy], check=True)
    finally:
        for process in halted:
            process.resume()
    assert not server_status(copy)["running"]
    use(copy, SHORT)
    until(lambda: is_gone(copy))
    assert read_postmaster(folder).pid == kept
    assert server_status(folder)["kept"]


def test_a_keeper_ends_when_its_programs_change(folder, tmp_path):
    shutil.copytree(Path(semlex.__file__).parent, tmp_path / "semlex", copy_function=os.symlink)
    program = (
        f"from semlex.store.postgres.embedded import keeper, server; keeper.READY_SECONDS = {LIMIT}\n"
        f"with server.EmbeddedServer({str(folder)!r}, keep_alive={LONG}): pass"
    )
    subprocess.run([sys.executable, "-P", "-c", program], env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=True)
    assert server_status(folder)["kept"]
    changed = tmp_path / "semlex" / "store" / "postgres" / "embedded" / "keeper.py"
    (tmp_path / "new").write_text(changed.read_text())
    (tmp_path / "new").replace(changed)
    until(lambda: is_gone(folder))


def test_kills_at_any_moment_leave_nothing(folder):
    for lines in range(1, 6):
        with Program(keep_using, folder) as one, Program(keep_using, folder) as other:
            for client in (one, other):
                client.waits(lambda words, lines=lines: len(words) >= lines)
            for process in [one, other, *keepers(folder)[lines % 2 :]]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
    use(folder, 0.2)
    until(lambda: is_gone(folder))


def test_nobody_waits_for_the_keeper(folder, tmp_path):
    (tmp_path / "page.md").write_text("# Keys\n\nRotate a key every ninety days.\n")
    said, code = run(folder, LONG, "index", "--model", "none", str(tmp_path))
    assert code == 0, said
    pid = read_postmaster(folder).pid
    search = ("search", "--model", "none", "rotate")
    # Its streams are read to their ends, or left after a line.
    for options, is_left in (((), False), ((), True), (("--json",), True)):
        with start(folder, LONG, *search, *options) as command:
            found = command.stdout.readline() if is_left else command.communicate()[0]
            command.stdout.close()
            command.wait()
        assert "page.md" in found
        # It has returned while both are there.
        assert read_postmaster(folder).pid == pid
        assert keepers(folder)
    status = json.loads(run(folder, LONG, "postgres", "status", "--json")[0][0])
    url = status.pop("url")
    running = {"running": True, "process": pid, "postgres": 18, "in_use": False, "kept": True}
    assert status == {"folder": str(folder), **running}
    stopped = [run(folder, LONG, "postgres", "stop", *options)[0][0] for options in ((), ("--json",))]
    assert stopped == ["stopped\n", '{"stopped": false}\n']
    until(lambda: is_gone(folder))
    (_, said), code = run(folder, 0, "collections", "--database", url)
    assert code == 3
    assert "start it: semlex postgres start --keep-alive 86400" in said
    assert run(folder, 0, "postgres", "start")[1] == 2
    assert run(folder, LONG, "postgres", "start")[0][0] == f"{server_status(folder)['url']}\n"
    assert run(folder, LONG, *search, "--keep-alive", "0")[1] == 0
    until(lambda: is_gone(folder))


def test_a_server_in_use_is_not_stopped(folder):
    with EmbeddedServer(folder):
        assert server_status(folder)["in_use"]
        with pytest.raises(EmbeddedServerError, match="is in use"):
            stop_unused(folder)
        (_, said), code = run(folder, 0, "postgres", "stop")
        assert (code, "is in use" in said) == (3, True)
        assert running_server(folder)
    assert server_status(folder)["running"] is False


def test_status_of_a_folder_that_is_not_there(tmp_path):
    assert server_status(tmp_path / "none")["running"] is False
    assert stop_unused(tmp_path / "none") is False
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_is_none(tmp_path):
    for seconds in (-1, float("nan")):
        with pytest.raises(ConfigurationError, match="keep_alive must be a number of seconds, at least 0"):
            EmbeddedServer(tmp_path, keep_alive=seconds)


def test_a_keeper_of_a_stopped_server_does_not_watch_the_next_one(tmp_path):
    """It would look several times a second for as long as that one is used."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "postmaster.pid").write_text("0\n")
    with (tmp_path / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        assert embedded_keeper._Keeper(tmp_path, 0, time.monotonic())._is_over()
        assert not embedded_keeper._Keeper(tmp_path, 1, time.monotonic())._is_over()
