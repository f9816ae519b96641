"""The folder of an embedded server: any path, a version that stays, and no folder of others is touched."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from semlex.cli.commands import shell
from semlex.errors import ConfigurationError, EmbeddedServerError
from semlex.settings.files import own_file
from semlex.settings.table import Settings
from semlex.store.postgres.embedded import folder as embedded_folder
from semlex.store.postgres.embedded import process as embedded_process
from semlex.store.postgres.embedded.server import EmbeddedServer, default_folder
from tests.support.embedded_servers import ask, postmaster_pid, server_processes

pytestmark = pytest.mark.slow


def all_modes(*paths):
    return {parent: parent.stat().st_mode for path in paths for parent in path.parents}


def test_an_existing_database_keeps_its_version(folder):
    with EmbeddedServer(folder, major=16) as old:
        assert old.major == 16
    with EmbeddedServer(folder, major=18) as server:
        assert server.major == 16
        assert ask(server.url, "SHOW server_version_num").startswith("16")


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("with space", True),
        ("$HOME `id` \"two\" 'one' \\ , %s ü.#?&" + " long" * 20, False),
        (os.fsdecode(b"no text \xff"), False),
    ],
    ids=ascii,
)
def test_any_path(open_folder, name, inside):
    folder = open_folder / name / "server"
    with EmbeddedServer(folder) as server:
        assert ask(server.url, "SELECT 1") == 1
        socket_folder = Path(ask(server.url, "SHOW unix_socket_directories").strip('"'))
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        assert (socket_folder == folder / "socket") == inside
    assert server_processes(folder) == []
    assert socket_folder.exists() == inside


@pytest.mark.parametrize("name", ["two\nlines", "nul\0"])
def test_control_characters_in_the_path_are_refused(open_folder, name):
    with pytest.raises(EmbeddedServerError, match="control characters"):
        EmbeddedServer(open_folder / name).start()
    assert list(open_folder.iterdir()) == []


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


def test_a_closed_parent_is_named_and_stays_closed(open_folder):
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


def test_programs_in_a_closed_environment(folder, tmp_path, monkeypatch):
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
    state = folder.with_name("state")
    monkeypatch.setattr(embedded_folder, "ROOT_STATE", state)
    others = (folder, closed / package.name / "x", package / "x", Path(sys.executable))
    before = all_modes(*others)
    for _ in range(2):
        with EmbeddedServer(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            program = psutil.Process(postmaster_pid(folder)).exe()
            assert (state in Path(program).parents) == (os.geteuid() == 0)
            assert all_modes(*others) == before
    assert not list(folder.parent.glob("state/.bin-*"))


def test_a_folder_that_is_not_ours_is_refused_untouched(folder):
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "thesis.md").write_text("mine")
    with pytest.raises(EmbeddedServerError, match="not empty"):
        EmbeddedServer(folder).start()
    with pytest.raises(EmbeddedServerError, match="is not a folder"):
        EmbeddedServer(folder / "thesis.md").start()
    assert [path.name for path in folder.iterdir()] == ["thesis.md"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


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


@pytest.mark.usefixtures("made")
def test_a_damaged_version_is_reported(folder):
    for content in ("eighteen\n", "", "\x00"):
        (folder / "data" / "PG_VERSION").write_text(content)
        with pytest.raises(EmbeddedServerError, match="PG_VERSION contains no version"):
            EmbeddedServer(folder).start()


@pytest.mark.parametrize(
    "files",
    [
        {"start.lock": "", "thesis.md": "mine"},
        {"start.lock": "pid 7", "data/PG_VERSION": "18"},
        {"start.lock": "", "data/thesis.md": "mine"},
    ],
)
def test_a_foreign_folder_with_a_lock_is_refused_untouched(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    folder.chmod(0o711)
    before = sorted(folder.rglob("*"))
    with pytest.raises(EmbeddedServerError, match="not a folder of the embedded server"):
        EmbeddedServer(folder).start()
    assert sorted(folder.rglob("*")) == before
    assert {name: (folder / name).read_text() for name in files} == files


def test_the_default_folder(monkeypatch):
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


def test_a_user_without_a_home_names_a_folder(monkeypatch):
    def unknown(_):  # as in a container whose user the system does not know
        raise KeyError

    monkeypatch.setattr(embedded_folder, "is_root", lambda: False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SEMLEX_CONFIG", "SEMLEX_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no home folder"):
        default_folder()
    assert own_file() == Path("/.config/semlex/config.toml")
    assert shell._history_file(Settings()) is None
