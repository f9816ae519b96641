"""The embedded server and its folder: nobody is left behind, nothing is lost, and no folder of others is touched."""

import fcntl
import importlib
import importlib.util
import os
import pwd
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from semlex.cli.commands import shell
from semlex.diagnostics.doctor import examine_server
from semlex.errors import ConfigurationError, EmbeddedServerError, MissingExtraError
from semlex.settings.files import own_file
from semlex.settings.table import Settings
from semlex.store.postgres.embedded import folder as embedded_folder
from semlex.store.postgres.embedded import process as embedded_process
from semlex.store.postgres.embedded import server as embedded_server
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.postgres.server_info import machine_memory
from tests.support.embedded_servers import ask, postmaster_pid, server_processes
from tests.support.shell import Started
from tests.support.waiting import LIMIT, until

pytestmark = pytest.mark.slow

WAIT = "threading.Event().wait()"


def client(folder, script=WAIT):
    return Started([str(folder), script], module="tests.support.clients.server_client")


@pytest.fixture
def new_folder(open_folder):
    """Where a server may be made; nothing may run there when a test has ended."""
    yield open_folder / "server"
    left = server_processes(open_folder / "server")
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture
def folder(new_folder, make_server_folder):
    """The same, with a database."""
    return make_server_folder(new_folder)


def test_start_and_stop(new_folder, postgres_major):
    server = EmbeddedServer(new_folder, major=postgres_major)
    with pytest.raises(EmbeddedServerError, match="not started"):
        _ = server.url
    url = server.start()
    assert server.start() == url == server.url
    assert server.major == postgres_major
    assert ask(url, "SHOW server_version_num").startswith(str(postgres_major))
    assert ask(url, "SELECT current_database()") == "semlex"
    assert [ask(url, f"SHOW {name}") for name in ("listen_addresses", "fsync", "server_encoding")] == ["", "on", "UTF8"]
    shared = ask(url, "SELECT setting::bigint * 8192 FROM pg_settings WHERE name = 'shared_buffers'")
    assert shared == min(max(machine_memory() // 16 >> 20 << 20, 128 << 20), 1 << 30)
    assert [one.setting for one in examine_server(url).settings if not one.met] == []
    assert ask(url, "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == 1
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(6):  # a load ends; its log is not kept for the next one
            connection.execute("SELECT pg_logical_emit_message(true, '', 'a load')")
            connection.execute("SELECT pg_switch_wal()")
        assert connection.execute("SELECT count(*) FROM pg_ls_waldir()").fetchone()[0] > 5
        connection.execute("CHECKPOINT")
        assert connection.execute("SELECT count(*) FROM pg_ls_waldir()").fetchone()[0] <= 2
    assert {stat.S_IMODE((new_folder / name).stat().st_mode) for name in ("data", "socket")} == {0o700}
    assert psutil.Process(postmaster_pid(new_folder)).net_connections("inet") == []
    server.close()
    server.close()
    assert server_processes(new_folder) == []
    assert server.start() == url  # and again
    server.close()


def test_the_last_user_stops_the_server(folder):
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


def test_a_killed_client_is_not_counted(folder):
    for number in (signal.SIGKILL, signal.SIGTERM):
        with client(folder) as killed:
            killed.stdout.readline()
            killed.send_signal(number)
            killed.wait()
        assert server_processes(folder) != []
        with client(folder, "") as normal:
            assert normal.wait() == 0
        assert server_processes(folder) == []


def test_a_forked_child_does_not_stop_its_parents_server(folder):
    script = """
if os.fork() == 0:
    server.close()
    sys.exit()  # runs the exit functions of the child
assert os.wait()[1] == 0
assert psycopg.connect(url).execute("SELECT 1").fetchone() == (1,)
child = os.fork()
if child == 0:
    os.close(1)
    threading.Event().wait()  # outlives its parent, which lets the server go all the same
print(child, flush=True)
"""
    with client(folder, script) as forking:
        forking.stdout.readline()
        child = int(forking.stdout.readline())
        assert forking.wait() == 0
    os.kill(child, signal.SIGKILL)


def test_a_killed_server_recovers(folder):
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


def test_orphans_of_a_killed_server_end_before_the_next_starts(folder, monkeypatch):
    monkeypatch.setattr(embedded_process, "ORPHAN_SECONDS", 0.5)  # expires
    server = EmbeddedServer(folder)
    connection = psycopg.connect(server.start(), autocommit=True)
    # A loop that never waits never learns that its postmaster is gone.
    connection.pgconn.send_query(b"DO 'BEGIN LOOP END LOOP; END'")
    orphan, postmaster = psutil.Process(connection.info.backend_pid), psutil.Process(postmaster_pid(folder))
    looping = "SELECT true FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND starts_with(query, 'DO')"
    with psycopg.connect(server.url, autocommit=True) as other:
        until(lambda: other.execute(looping, [orphan.pid]).fetchone())
    postmaster.kill()
    until(lambda: not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE)
    assert orphan in server_processes(folder)
    with EmbeddedServer(folder) as second:
        assert orphan not in server_processes(folder)
        assert ask(second.url, "SELECT 1") == 1
        server.close()
    connection.close()


@pytest.mark.parametrize("remains", ["whole", "half"])
def test_a_stale_pid_file_naming_a_live_process(folder, remains):
    with EmbeddedServer(folder):
        lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
    unrelated = subprocess.Popen([sys.executable, "-c", f"import threading; {WAIT}"])
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


def test_processes_that_start_at_once_share_one_server(new_folder):
    script = "sys.stdin.readline()"
    with client(new_folder, script) as one, client(new_folder, script) as two, client(new_folder, script) as three:
        answers = {process.stdout.readline() for process in (one, two, three)}
        for process in (one, two, three):
            process.communicate()
            assert process.returncode == 0
    assert len(answers - {""}) == len(answers) == 1


def test_an_interrupted_initdb_is_repaired(new_folder):
    with client(new_folder) as killed:
        until(lambda: (new_folder / "data.new" / "PG_VERSION").exists() or (new_folder / "data").exists())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    with EmbeddedServer(new_folder) as server:
        assert ask(server.url, "SELECT current_database()") == "semlex"
    assert not (new_folder / "data.new").exists()


def test_half_a_database_is_never_opened(new_folder):
    (new_folder / "data.new" / "base").mkdir(parents=True)
    (new_folder / "start.lock").touch()
    (new_folder / "data.new" / "PG_VERSION").write_text("18\n")
    new_folder.chmod(0o711)
    with EmbeddedServer(new_folder) as server:
        assert ask(server.url, "SELECT 1") == 1
    assert not (new_folder / "data.new").exists()


def test_a_version_that_is_not_there_or_damaged_is_reported(folder):
    damaged = dict.fromkeys(("eighteen\n", "", "\x00"), "PG_VERSION contains no version")
    for content, message in {"17\n": r"Postgres 17.*16, 18.*pg_upgrade", **damaged}.items():
        (folder / "data" / "PG_VERSION").write_text(content)
        with pytest.raises(EmbeddedServerError, match=message):
            EmbeddedServer(folder).start()
    with pytest.raises(EmbeddedServerError, match=r"embedded Postgres 9 is missing.*16, 18"):
        EmbeddedServer(folder.with_name("other"), major=9).start()


def test_a_server_that_recovers_refuses_or_halts_when_it_is_asked_again(folder, monkeypatch):
    connect = psycopg.connect
    refusals = [psycopg.OperationalError("the database system is in recovery mode")]

    def recovering(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return connect(*arguments, **options)

    with EmbeddedServer(folder) as server:
        monkeypatch.setattr(psycopg, "connect", recovering)
        with EmbeddedServer(folder) as second:
            assert ask(second.url, "SELECT 1") == 1
        assert not refusals
        with psycopg.connect(server.url, dbname="postgres", autocommit=True) as connection:
            connection.execute("ALTER DATABASE semlex RENAME TO renamed")
            with pytest.raises(EmbeddedServerError, match=r'refuses connections: .*"semlex" does not exist'):
                EmbeddedServer(folder).start()
            connection.execute("ALTER DATABASE renamed RENAME TO semlex")
        # A start waits for the halted server no longer than its time limit.
        postmaster = psutil.Process(postmaster_pid(folder))
        postmaster.suspend()
        late = EmbeddedServer(folder, start_timeout=0.5)  # expires
        refusal = r"not accept connections after 0.5 s"
        try:
            with ThreadPoolExecutor() as threads, pytest.raises(EmbeddedServerError, match=refusal):
                threads.submit(late.start).result(LIMIT)
        finally:
            postmaster.resume()
        assert ask(server.url, "SELECT 1") == 1


def test_a_time_limit_or_closing_ends_the_wait_for_another_starter(folder, monkeypatch):
    flock, attempts = fcntl.flock, []

    def noted(*arguments):
        attempts.append(arguments)
        flock(*arguments)

    waiting = EmbeddedServer(folder)
    with (folder / "start.lock").open("r+") as held, ThreadPoolExecutor() as threads:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match=r"another process .* for 0.1 s"):
            EmbeddedServer(folder, start_timeout=0.1).start()  # expires
        monkeypatch.setattr(fcntl, "flock", noted)
        started = threads.submit(waiting.start)
        until(lambda: attempts)
        waiting.close()
        with pytest.raises(EmbeddedServerError, match="another process"):
            started.result(LIMIT)


def test_a_start_that_fails_quotes_the_log_of_this_start_only_and_a_large_log_is_emptied(folder, monkeypatch):
    with EmbeddedServer(folder) as server, pytest.raises(psycopg.Error):
        ask(server.url, "SELECT 'confidential'::int")
    assert "confidential" in (folder / "log").read_text()
    settings = folder / "data" / "postgresql.conf"
    before = settings.read_text()
    settings.write_text(before + "\nno_such_setting = 1\n")
    with pytest.raises(EmbeddedServerError, match="no_such_setting") as caught:
        EmbeddedServer(folder).start()
    assert "confidential" not in str(caught.value)
    assert server_processes(folder) == []
    settings.write_text(before)
    monkeypatch.setattr(embedded_server, "LOG_BYTES", 100_000)
    with (folder / "log").open("a") as log:
        log.write("x" * 100_000)
    with EmbeddedServer(folder):
        assert (folder / "log").stat().st_size < 100_000


def test_a_deleted_folder_does_not_hinder_closing(folder):
    server = EmbeddedServer(folder)
    server.start()
    psutil.Process(postmaster_pid(folder)).kill()
    folder.rename(folder.with_name("moved"))
    server.close()


def test_a_missing_wheel_and_windows_are_refused_with_the_remedy(new_folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"semlex\[local\]'; or name a server .*DATABASE_URL"):
        EmbeddedServer(new_folder).start()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError, match="DATABASE_URL"):
        EmbeddedServer(new_folder).start()


def all_modes(*paths):
    return {parent: parent.stat().st_mode for path in paths for parent in path.parents}


def test_an_existing_database_keeps_its_version(new_folder):
    with EmbeddedServer(new_folder, major=16) as old:
        assert old.major == 16
    with EmbeddedServer(new_folder, major=18) as server:
        assert server.major == 16
        assert ask(server.url, "SHOW server_version_num").startswith("16")


LONG = "$HOME `id` \"two\" 'one' \\ , %s ü.#?&" + " long" * 20


@pytest.mark.parametrize("name", ["with space", LONG, os.fsdecode(b"no text \xff")], ids=ascii)
def test_any_path(open_folder, name):
    folder, inside = open_folder / name / "server", name == "with space"
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
        socket_folder = Path(ask(server.url, "SHOW unix_socket_directories").strip('"'))
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        assert (socket_folder == folder / "socket") == inside
    assert server_processes(folder) == []
    assert socket_folder.exists() == inside


def test_a_socket_folder_of_someone_else_is_refused(open_folder, make_server_folder):
    folder = make_server_folder(open_folder / ("long" * 30))
    with EmbeddedServer(folder) as server:
        socket_folder = Path(ask(server.url, "SHOW unix_socket_directories").strip('"'))
    socket_folder.mkdir(mode=0o755)
    try:
        with pytest.raises(EmbeddedServerError, match="is not a folder of mode 0700"):
            EmbeddedServer(folder).start()
    finally:
        socket_folder.rmdir()


def test_paths_that_cannot_be_used_are_refused_and_stay(open_folder):
    for name in ("two\nlines", "nul\0"):
        with pytest.raises(EmbeddedServerError, match="control characters"):
            EmbeddedServer(open_folder / name).start()
    assert list(open_folder.iterdir()) == []
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


def test_programs_in_a_closed_environment(new_folder, tmp_path, monkeypatch):
    """An environment under a closed home: root's server runs from a copy, everyone else's from where it is.

    The modes of folders that are not its own stay.
    """
    package = Path(importlib.util.find_spec(embedded_folder.PACKAGE).origin).parent
    closed = tmp_path / "environment"
    closed.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        if package.with_name(name).exists():
            (closed / name).symlink_to(package.with_name(name))
    monkeypatch.setattr(sys, "path", [str(closed), *sys.path])
    importlib.invalidate_caches()
    state = new_folder.with_name("state")
    monkeypatch.setattr(embedded_folder, "ROOT_STATE", state)
    others = (new_folder, closed / package.name / "x", package / "x", Path(sys.executable))
    before = all_modes(*others)
    for _ in range(2):
        with EmbeddedServer(new_folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            program = psutil.Process(postmaster_pid(new_folder)).exe()
            assert (state in Path(program).parents) == (os.geteuid() == 0)
            assert all_modes(*others) == before
    assert not list(new_folder.parent.glob("state/.bin-*"))


def test_a_copy_of_a_running_folder_is_a_server_of_its_own(open_folder, make_server_folder):
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


def test_a_copy_in_the_place_of_a_running_folder_is_a_server_of_its_own(open_folder, make_server_folder):
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


def test_a_socket_that_answers_for_another_folder_is_not_used(open_folder, make_server_folder):
    other, folder = make_server_folder(open_folder / "other"), make_server_folder(open_folder / "server")
    with EmbeddedServer(folder):
        lines = (folder / "data" / "postmaster.pid").read_text()
    with EmbeddedServer(other):
        (folder / "socket").rmdir()
        (folder / "socket").symlink_to(other / "socket")
        (folder / "data" / "postmaster.pid").write_text(lines)
        with pytest.raises(EmbeddedServerError, match=f"serves another folder, {other}/data"):
            EmbeddedServer(folder).start()
        assert ask(EmbeddedServer(other).start(), "SELECT 1") == 1


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.md": "mine"},
        *({"start.lock": "", name: "mine"} for name in ("thesis.md", "data/thesis.md")),
        {"start.lock": "pid 7", "data/PG_VERSION": "18"},
    ],
)
def test_a_folder_that_is_not_ours_is_refused_untouched(new_folder, files):
    message = "not a folder of the embedded server" if "start.lock" in files else "not empty"
    for name, content in files.items():
        (new_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new_folder / name).write_text(content)
    new_folder.chmod(0o755)
    before = sorted(new_folder.rglob("*"))
    with pytest.raises(EmbeddedServerError, match=message):
        EmbeddedServer(new_folder).start()
    with pytest.raises(EmbeddedServerError, match="is not a folder"):
        EmbeddedServer(new_folder / next(iter(files))).start()
    assert sorted(new_folder.rglob("*")) == before
    assert {name: (new_folder / name).read_text() for name in files} == files
    assert stat.S_IMODE(new_folder.stat().st_mode) == 0o755


def test_the_default_folder(monkeypatch):
    monkeypatch.delenv("SEMLEX_DATA_DIR", raising=False)
    monkeypatch.setattr(embedded_folder, "is_root", lambda: True)
    assert embedded_folder.default_folder() == Path("/var/lib/semlex/postgres")
    monkeypatch.setattr(embedded_folder, "is_root", lambda: False)
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert Path("/somewhere") in embedded_folder.default_folder().parents
    monkeypatch.setenv("SEMLEX_DATA_DIR", "here")
    assert embedded_folder.default_folder() == Path.cwd() / "here" / "postgres"
    monkeypatch.setenv("SEMLEX_DATA_DIR", "~/data")  # nobody expands it in a unit file or an image
    assert embedded_folder.default_folder() == Path("/somewhere/data/postgres")
    # A user without a home must name a folder, as in a container whose user the system does not know.
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SEMLEX_CONFIG", "SEMLEX_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no home folder"):
        embedded_folder.default_folder()
    assert own_file() == Path("/.config/semlex/config.toml")
    assert shell._history_file(Settings()) is None
