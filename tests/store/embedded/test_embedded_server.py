"""The embedded server: nobody is left behind, and nothing is lost."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import psycopg
import pytest

from semlex.diagnostics.doctor import examine_server
from semlex.errors import EmbeddedServerError, MissingExtraError
from semlex.store.postgres.embedded import process as embedded_process
from semlex.store.postgres.embedded import server as embedded_server
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.postgres.server_info import machine_memory
from tests.support.embedded_servers import ask, postmaster_pid, server_processes
from tests.support.waiting import LIMIT, until

pytestmark = pytest.mark.slow

CLIENT = """
import os, sys, threading
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
WAIT = "threading.Event().wait()"


@contextmanager
def client(folder, script=WAIT):
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT + script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_start_and_stop(folder, postgres_major):
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
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_client_is_not_counted(folder, number):
    with client(folder) as killed:
        killed.stdout.readline()
        killed.send_signal(number)
        killed.wait()
    assert server_processes(folder) != []
    with client(folder, "") as normal:
        assert normal.wait() == 0
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
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
        assert forking.wait(LIMIT) == 0
    os.kill(child, signal.SIGKILL)
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
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
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
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


@pytest.mark.usefixtures("made")
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
    assert server_processes(folder) == []


def test_processes_that_start_at_once_share_one_server(folder):
    script = "sys.stdin.readline()"
    with client(folder, script) as one, client(folder, script) as two, client(folder, script) as three:
        answers = {process.stdout.readline() for process in (one, two, three)}
        for process in (one, two, three):
            process.communicate("\n")
            assert process.returncode == 0
    assert len(answers) == 1
    assert answers != {""}
    assert server_processes(folder) == []


def test_an_interrupted_initdb_is_repaired(folder):
    with client(folder) as killed:
        until(lambda: (folder / "data.new" / "PG_VERSION").exists() or (folder / "data").exists())
        killed.kill()
        killed.wait()
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT current_database()") == "semlex"
    assert not (folder / "data.new").exists()


def test_half_a_database_is_never_opened(folder):
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "start.lock").touch()
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    folder.chmod(0o711)
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
    assert not (folder / "data.new").exists()


@pytest.mark.usefixtures("made")
def test_a_version_that_is_not_there(folder):
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match=r"Postgres 17.*16, 18.*pg_upgrade"):
        EmbeddedServer(folder).start()
    with pytest.raises(EmbeddedServerError, match=r"embedded Postgres 9 is missing.*16, 18"):
        EmbeddedServer(folder.with_name("other"), major=9).start()


@pytest.mark.usefixtures("made")
def test_a_halted_server_is_not_waited_for_longer_than_allowed(folder):
    with EmbeddedServer(folder) as server:
        postmaster = psutil.Process(postmaster_pid(folder))
        postmaster.suspend()
        try:
            with (
                ThreadPoolExecutor() as threads,
                pytest.raises(EmbeddedServerError, match=r"not accept connections after 0.5 s"),
            ):
                threads.submit(EmbeddedServer(folder, start_timeout=0.5).start).result(LIMIT)  # expires
        finally:
            postmaster.resume()
        assert ask(server.url, "SELECT 1") == 1


@pytest.mark.usefixtures("made")
def test_a_server_that_refuses_says_why(folder):
    with EmbeddedServer(folder) as server:
        with psycopg.connect(server.url, dbname="postgres", autocommit=True) as connection:
            connection.execute("ALTER DATABASE semlex RENAME TO renamed")
        with pytest.raises(EmbeddedServerError, match=r'refuses connections: .*"semlex" does not exist'):
            EmbeddedServer(folder).start()


@pytest.mark.usefixtures("made")
def test_a_server_that_has_recovered_when_it_is_asked_again(folder, monkeypatch):
    connect = psycopg.connect
    refusals = [psycopg.OperationalError("the database system is in recovery mode")]

    def recovering(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return connect(*arguments, **options)

    with EmbeddedServer(folder):
        monkeypatch.setattr(psycopg, "connect", recovering)
        with EmbeddedServer(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
    assert not refusals


@pytest.mark.usefixtures("made")
def test_closing_ends_a_start_that_waits(folder, monkeypatch):
    flock, attempts = fcntl.flock, []

    def noted(*arguments):
        attempts.append(arguments)
        flock(*arguments)

    waiting = EmbeddedServer(folder)
    with (folder / "start.lock").open("r+") as held, ThreadPoolExecutor() as threads:
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", noted)
        started = threads.submit(waiting.start)
        until(lambda: attempts)
        waiting.close()
        with pytest.raises(EmbeddedServerError, match="another process"):
            started.result(LIMIT)
    assert server_processes(folder) == []


@pytest.mark.usefixtures("made")
def test_a_start_that_fails_quotes_the_log_of_this_start_only(folder):
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
def test_waiting_for_another_starter_ends(folder):
    with (folder / "start.lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match=r"another process .* for 0.1 s"):
            EmbeddedServer(folder, start_timeout=0.1).start()  # expires


@pytest.mark.usefixtures("made")
def test_a_large_log_is_emptied(folder, monkeypatch):
    monkeypatch.setattr(embedded_server, "LOG_BYTES", 100_000)
    with (folder / "log").open("a") as log:
        log.write("x" * 100_000)
    with EmbeddedServer(folder):
        assert (folder / "log").stat().st_size < 100_000


@pytest.mark.usefixtures("made")
def test_a_deleted_folder_does_not_hinder_closing(folder):
    server = EmbeddedServer(folder)
    server.start()
    pid = psutil.Process(postmaster_pid(folder))
    pid.kill()
    folder.rename(folder.with_name("moved"))
    server.close()


def test_the_wheel_is_missing(folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"semlex\[local\]'; or name a server .*DATABASE_URL"):
        EmbeddedServer(folder).start()


def test_windows_is_told_what_to_do(folder, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError, match="DATABASE_URL"):
        EmbeddedServer(folder).start()
