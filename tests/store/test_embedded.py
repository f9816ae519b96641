"""The embedded server: nobody is left behind, nothing is lost, no folder of others is touched."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from semlex.errors import EmbeddedServerError, MissingExtraError
from semlex.store.postgres.embedded import binaries, launch
from semlex.store.postgres.embedded import folder as embedded_folder
from semlex.store.postgres.embedded import process as embedded_process
from semlex.store.postgres.embedded.server import EmbeddedServer, default_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

CLIENT = """
import os, sys, time
from pathlib import Path
import psycopg
from semlex.store.postgres.embedded.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
url = server.start()
with psycopg.connect(url) as connection:
    statement = "SELECT system_identifier, pg_postmaster_start_time() FROM pg_control_system()"
    print(*connection.execute(statement).fetchone())
sys.stdout.flush()
"""
WAIT = "time.sleep(600)"


def server_processes(folder: Path) -> list[psutil.Process]:
    """The living Postgres processes of a folder, found by another way than the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE:
                found += [process] if process.cwd() == str(folder / "data") else []
        except psutil.Error:
            continue
    return found


def postmaster_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


def all_modes(*paths: Path) -> dict[Path, int]:
    return {parent: parent.stat().st_mode for path in paths for parent in path.parents}


@contextmanager
def client(folder: Path, script: str = WAIT) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT + script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def folder(open_folder: Path) -> Iterator[Path]:
    """Where a server may be made; whatever runs there ends with the test."""
    folder = open_folder / "server"
    yield folder
    for process in server_processes(folder):
        process.kill()


@pytest.fixture
def made(folder: Path, make_server_folder: Callable[[Path], Path]) -> None:
    """The folder has its database already."""
    make_server_folder(folder)


def test_start_and_stop(folder: Path, postgres_major: int) -> None:
    server = EmbeddedServer(folder, major=postgres_major)
    with pytest.raises(EmbeddedServerError, match="not started"):
        _ = server.url
    url = server.start()
    assert server.start() == url == server.url
    assert server.major == postgres_major
    assert ask(url, "SHOW server_version_num").startswith(str(postgres_major))
    assert ask(url, "SELECT current_database()") == "semlex"
    assert ask(url, "SHOW listen_addresses") == ""
    assert ask(url, "SHOW fsync") == "on"
    assert ask(url, "SHOW server_encoding") == "UTF8"
    assert ask(url, "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == 1
    for name in ("data", "socket"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o700
    assert psutil.Process(postmaster_pid(folder)).net_connections("inet") == []
    server.close()
    server.close()
    assert server_processes(folder) == []
    assert server.start() == url  # and again
    server.close()
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_the_last_user_stops_the_server(folder: Path) -> None:
    first, second = EmbeddedServer(folder), EmbeddedServer(folder)
    first.start()
    pid = postmaster_pid(folder)
    with client(folder) as other:
        other.stdout.readline()
        second.start()
        assert postmaster_pid(folder) == pid
        first.close()
        assert ask(second.url, "SELECT 1") == 1
        second.close()
        assert postmaster_pid(folder) == pid
    with EmbeddedServer(folder) as third:
        assert ask(third.url, "SELECT 1") == 1
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_client_is_not_counted(folder: Path, number: signal.Signals) -> None:
    with client(folder) as killed:
        killed.stdout.readline()
        killed.send_signal(number)
        killed.wait()
    assert server_processes(folder) != []
    with client(folder, "") as normal:
        assert normal.wait() == 0
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_a_forked_child_does_not_stop_its_parents_server(folder: Path) -> None:
    script = """
if os.fork() == 0:
    server.close()
    sys.exit()  # runs the exit functions of the child
assert os.wait()[1] == 0
assert psycopg.connect(url).execute("SELECT 1").fetchone() == (1,)
if os.fork() == 0:
    os.close(1)
    time.sleep(600)  # outlives its parent, which lets the server go all the same
"""
    with client(folder, script) as forking:
        children = []
        forking.stdout.readline()
        while forking.poll() is None:
            children = psutil.Process(forking.pid).children() or children
            time.sleep(0.01)
    for child in children:
        child.kill()
    assert forking.returncode == 0
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_a_killed_server_recovers(folder: Path) -> None:
    server = EmbeddedServer(folder)
    with psycopg.connect(server.start(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    killed = postmaster_pid(folder)
    os.kill(killed, signal.SIGKILL)
    with EmbeddedServer(folder) as second:
        assert ask(second.url, "SELECT sum(n) FROM kept") == 500500
        assert postmaster_pid(folder) != killed
        server.close()
        assert ask(second.url, "SELECT 1") == 1
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_orphans_of_a_killed_server_end_before_the_next_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_process, "ORPHAN_SECONDS", 0.5)
    server = EmbeddedServer(folder)
    connection = psycopg.connect(server.start(), autocommit=True)
    # A loop that never waits never learns that its postmaster is gone.
    connection.pgconn.send_query(b"DO 'BEGIN LOOP END LOOP; END'")
    orphan = psutil.Process(connection.info.backend_pid)
    os.kill(postmaster_pid(folder), signal.SIGKILL)
    time.sleep(0.3)
    assert orphan in server_processes(folder)
    with EmbeddedServer(folder) as second:
        assert orphan not in server_processes(folder)
        assert ask(second.url, "SELECT 1") == 1
        server.close()
    connection.close()


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("remains", ["whole", "half"])
def test_a_stale_pid_file_naming_a_live_process(folder: Path, remains: str) -> None:
    with EmbeddedServer(folder):
        lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
    unrelated = subprocess.Popen([sys.executable, "-c", WAIT.replace("time", "__import__('time')")])
    try:
        lines[0] = str(unrelated.pid)
        kept = lines if remains == "whole" else lines[:1]
        (folder / "data" / "postmaster.pid").write_text("\n".join(kept) + "\n")
        (folder / "socket" / ".s.PGSQL.5432.lock").write_text("\n".join(lines) + "\n")
        with EmbeddedServer(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            assert postmaster_pid(folder) != unrelated.pid
        assert unrelated.poll() is None
    finally:
        unrelated.kill()
        unrelated.wait()
    assert server_processes(folder) == []


def test_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    script = "sys.stdin.readline()"
    with client(folder, script) as one, client(folder, script) as two, client(folder, script) as three:
        answers = {process.stdout.readline() for process in (one, two, three)}
        for process in (one, two, three):
            process.communicate("\n")
            assert process.returncode == 0
    assert len(answers) == 1
    assert answers != {""}
    assert server_processes(folder) == []


def test_an_interrupted_initdb_is_repaired(folder: Path) -> None:
    with client(folder) as killed:
        while not (folder / "data.new" / "PG_VERSION").exists() and not (folder / "data").exists():
            time.sleep(0.001)
        killed.kill()
        killed.wait()
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT current_database()") == "semlex"
    assert not (folder / "data.new").exists()


def test_half_a_database_is_never_opened(folder: Path) -> None:
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "start.lock").touch()
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    folder.chmod(0o711)
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
    assert not (folder / "data.new").exists()


def test_an_existing_database_keeps_its_version(folder: Path) -> None:
    with EmbeddedServer(folder, major=16) as old:
        assert old.major == 16
    with EmbeddedServer(folder, major=18) as server:
        assert server.major == 16
        assert ask(server.url, "SHOW server_version_num").startswith("16")


@pytest.mark.usefixtures("made")
def test_a_version_that_is_not_there(folder: Path) -> None:
    with EmbeddedServer(folder):
        pass
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match=r"Postgres 17.*16, 18.*pg_upgrade"):
        EmbeddedServer(folder).start()
    with pytest.raises(EmbeddedServerError, match=r"no embedded Postgres 9.*16, 18"):
        EmbeddedServer(folder.with_name("other"), major=9).start()


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("with space", True),
        ("long " * 30, False),
        ("$HOME `id` \"two\" 'one' \\ , %s ü.#?&", False),
        (os.fsdecode(b"no text \xff"), False),
    ],
    ids=ascii,
)
def test_any_path(open_folder: Path, name: str, inside: bool) -> None:
    folder = open_folder / name / "server"
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
        socket_folder = Path(ask(server.url, "SHOW unix_socket_directories").strip('"'))
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        assert (socket_folder == folder / "socket") == inside
    assert server_processes(folder) == []
    assert socket_folder.exists() == inside


@pytest.mark.parametrize("name", ["two\nlines", "nul\0"])
def test_control_characters_in_the_path_are_refused(open_folder: Path, name: str) -> None:
    with pytest.raises(EmbeddedServerError, match="control characters"):
        EmbeddedServer(open_folder / name).start()
    assert list(open_folder.iterdir()) == []


def test_a_socket_folder_of_someone_else_is_refused(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder / ("long" * 30)
    with EmbeddedServer(folder) as server:
        socket_folder = Path(ask(server.url, "SHOW unix_socket_directories").strip('"'))
    socket_folder.mkdir(mode=0o755)
    try:
        with pytest.raises(EmbeddedServerError, match="is not a folder of mode 0700"):
            EmbeddedServer(folder).start()
    finally:
        socket_folder.rmdir()


def test_modes_of_other_folders_stay(folder: Path) -> None:
    package = importlib.util.find_spec(binaries.PACKAGE)
    before = all_modes(folder, Path(package.origin), Path(sys.executable))
    with EmbeddedServer(folder):
        assert all_modes(folder, Path(package.origin), Path(sys.executable)) == before


def test_a_closed_parent_is_named_and_stays_closed(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir()
    mode = 0o700 if os.geteuid() == 0 else 0  # root's server runs as another account
    closed.chmod(mode)
    try:
        with pytest.raises(EmbeddedServerError, match=f"{closed}"):
            EmbeddedServer(closed / "a" / "server").start()
        assert stat.S_IMODE(closed.stat().st_mode) == mode
    finally:
        closed.chmod(0o700)
    assert list(closed.iterdir()) == []


def test_programs_in_a_closed_environment(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment under a closed home: root's server runs from a copy, everyone else's from where it is."""
    package = Path(importlib.util.find_spec(binaries.PACKAGE).origin).parent
    closed = tmp_path / "environment"
    closed.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        if package.with_name(name).exists():
            (closed / name).symlink_to(package.with_name(name))
    monkeypatch.setattr(sys, "path", [str(closed), *sys.path])
    importlib.invalidate_caches()
    state = folder.with_name("state")
    monkeypatch.setattr(binaries, "ROOT_STATE", state)
    before = all_modes(closed / package.name / "x", package / "x")
    for _ in range(2):
        with EmbeddedServer(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            program = psutil.Process(postmaster_pid(folder)).exe()
            assert (state in Path(program).parents) == (os.geteuid() == 0)
    assert all_modes(closed / package.name / "x", package / "x") == before
    assert not list(folder.parent.glob("state/.bin-*"))


def test_a_folder_that_is_not_ours_is_refused_untouched(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "thesis.md").write_text("mine")
    with pytest.raises(EmbeddedServerError, match="not empty"):
        EmbeddedServer(folder).start()
    with pytest.raises(EmbeddedServerError, match="is not a folder"):
        EmbeddedServer(folder / "thesis.md").start()
    assert [path.name for path in folder.iterdir()] == ["thesis.md"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_copy_of_a_running_folder_is_a_server_of_its_own(
    open_folder: Path, make_server_folder: Callable[[Path], Path]
) -> None:
    original, copy = make_server_folder(open_folder / "original"), open_folder / "copy"
    with EmbeddedServer(original) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE texts AS SELECT 'in the original' AS content")
            connection.execute("CHECKPOINT")
        pid = postmaster_pid(original)
        subprocess.run(["cp", "-a", original, copy], check=True)
        assert embedded_process.running_server(copy) is None
        with EmbeddedServer(copy) as second:
            assert second.url != server.url
            assert postmaster_pid(copy) != pid
            with psycopg.connect(second.url) as connection:
                connection.execute("INSERT INTO texts VALUES ('meant for the copy')")
        assert server_processes(copy) == []
        assert postmaster_pid(original) == pid
        assert ask(server.url, "SELECT string_agg(content, ',') FROM texts") == "in the original"
    assert server_processes(original) == []


def test_a_copy_in_the_place_of_a_running_folder_is_a_server_of_its_own(
    open_folder: Path, make_server_folder: Callable[[Path], Path]
) -> None:
    """The socket lies elsewhere, under a name that follows from the path: of the two, its server is the moved one's."""
    original, moved = make_server_folder(open_folder / ("long" * 30)), open_folder / "moved"
    server = EmbeddedServer(original)
    server.start()
    pid = postmaster_pid(original)
    original.rename(moved)
    subprocess.run(["cp", "-a", moved, original], check=True)
    try:
        assert embedded_process.running_server(original) is None
        assert embedded_process.running_server(moved).pid == pid
        with pytest.raises(EmbeddedServerError, match="did not start"):  # the place of its socket is taken
            EmbeddedServer(original).start()
        assert ask(server.url, "SELECT 1") == 1
    finally:
        server.close()  # nobody uses `original`, where nothing runs
        with EmbeddedServer(moved):
            assert postmaster_pid(moved) == pid
    assert server_processes(moved) == []


def test_a_socket_that_answers_for_another_folder_is_not_used(open_folder: Path) -> None:
    other, folder = open_folder / "other", open_folder / "server"
    with EmbeddedServer(folder):
        lines = (folder / "data" / "postmaster.pid").read_text()
    with EmbeddedServer(other):
        (folder / "socket").rmdir()
        (folder / "socket").symlink_to(other / "socket")
        (folder / "data" / "postmaster.pid").write_text(lines)
        with pytest.raises(EmbeddedServerError, match=f"serves another folder, {other}/data"):
            EmbeddedServer(folder).start()
        assert ask(EmbeddedServer(other).start(), "SELECT 1") == 1


@pytest.mark.usefixtures("made")
def test_a_halted_server_is_not_waited_for_longer_than_allowed(folder: Path) -> None:
    with EmbeddedServer(folder) as server:
        postmaster = psutil.Process(postmaster_pid(folder))
        postmaster.suspend()
        try:
            with (
                ThreadPoolExecutor() as threads,
                pytest.raises(EmbeddedServerError, match=r"no connections after 0.5 s"),
            ):
                threads.submit(EmbeddedServer(folder, start_timeout=0.5).start).result(30)
        finally:
            postmaster.resume()
        assert ask(server.url, "SELECT 1") == 1


@pytest.mark.usefixtures("made")
def test_a_server_that_refuses_says_why(folder: Path) -> None:
    with EmbeddedServer(folder) as server:
        with psycopg.connect(server.url, dbname="postgres", autocommit=True) as connection:
            connection.execute("ALTER DATABASE semlex RENAME TO renamed")
        with pytest.raises(EmbeddedServerError, match=r'refuses connections: .*"semlex" does not exist'):
            EmbeddedServer(folder).start()


@pytest.mark.usefixtures("made")
def test_closing_ends_a_start_that_waits(folder: Path) -> None:
    with EmbeddedServer(folder):
        pass
    waiting = EmbeddedServer(folder)
    with (folder / "start.lock").open("r+") as held, ThreadPoolExecutor() as threads:
        fcntl.flock(held, fcntl.LOCK_EX)
        started = threads.submit(waiting.start)
        time.sleep(0.2)
        waiting.close()
        with pytest.raises(EmbeddedServerError, match="another process"):
            started.result(30)
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("content", ["eighteen\n", "", "\x00"])
def test_a_damaged_version_is_told(folder: Path, content: str) -> None:
    with EmbeddedServer(folder):
        pass
    (folder / "data" / "PG_VERSION").write_text(content)
    with pytest.raises(EmbeddedServerError, match="PG_VERSION holds no version"):
        EmbeddedServer(folder).start()


@pytest.mark.parametrize(
    "files",
    [
        {"start.lock": "", "thesis.md": "mine"},
        {"start.lock": "pid 7", "data/PG_VERSION": "18"},
        {"start.lock": "", "data/thesis.md": "mine"},
    ],
)
def test_a_foreign_folder_with_a_lock_is_refused_untouched(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    folder.chmod(0o711)
    before = sorted(folder.rglob("*"))
    with pytest.raises(EmbeddedServerError, match="not a folder of the embedded server"):
        EmbeddedServer(folder).start()
    assert sorted(folder.rglob("*")) == before
    assert {name: (folder / name).read_text() for name in files} == files


@pytest.mark.usefixtures("made")
def test_a_start_that_fails_quotes_the_log_of_this_start_only(folder: Path) -> None:
    with EmbeddedServer(folder) as server, pytest.raises(psycopg.Error):
        ask(server.url, "SELECT 'confidential'::int")
    assert "confidential" in (folder / "log").read_text()
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write("\nno_such_setting = 1\n")
    with pytest.raises(EmbeddedServerError, match="no_such_setting") as caught:
        EmbeddedServer(folder).start()
    assert "confidential" not in str(caught.value)
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_waiting_for_another_starter_ends(folder: Path) -> None:
    with EmbeddedServer(folder):
        pass
    with (folder / "start.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match=r"another process .* for 0.1 s"):
            EmbeddedServer(folder, start_timeout=0.1).start()


@pytest.mark.usefixtures("made")
def test_a_large_log_is_emptied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOG_BYTES", 100_000)
    with EmbeddedServer(folder):
        pass
    with (folder / "log").open("a") as log:
        log.write("x" * 100_000)
    with EmbeddedServer(folder):
        assert (folder / "log").stat().st_size < 100_000


@pytest.mark.usefixtures("made")
def test_a_deleted_folder_does_not_hinder_closing(folder: Path) -> None:
    server = EmbeddedServer(folder)
    server.start()
    pid = psutil.Process(postmaster_pid(folder))
    pid.kill()
    folder.rename(folder.with_name("moved"))
    server.close()


def test_the_wheel_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"semlex\[local\]"):
        EmbeddedServer(folder).start()


def test_windows_is_told_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError, match="DATABASE_URL"):
        EmbeddedServer(folder).start()


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEMLEX_DATA_DIR", raising=False)
    monkeypatch.setattr(embedded_folder, "is_root", lambda: True)
    assert default_folder() == Path("/var/lib/semlex/postgres")
    monkeypatch.setattr(embedded_folder, "is_root", lambda: False)
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert Path("/somewhere") in default_folder().parents
    monkeypatch.setenv("SEMLEX_DATA_DIR", "here")
    assert default_folder() == Path.cwd() / "here" / "postgres"
    monkeypatch.setenv("SEMLEX_DATA_DIR", "~/data")  # nobody expands it in a unit file or an image
    assert default_folder() == Path("/somewhere/data/postgres")
