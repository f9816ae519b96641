"""Check whether the embedded server runs, from its pid file, its socket and the process table together."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semlex.errors import EmbeddedServerError, MissingExtraError
from semlex.store.postgres.embedded.folder import OWN_SERVER, Account

PORT = 5432  # only a part of the socket's name: TCP is off
SOCKET_NAME = f".s.PGSQL.{PORT}"
# sun_path holds 104 bytes on macOS and 108 on Linux, with a NUL at its end (unix(4), unix(7)).
MAX_SOCKET_BYTES = 100
# How long backends may outlive a killed postmaster; they look for it whenever they wait.
ORPHAN_SECONDS = 5.0
KILLED_SECONDS = 60.0  # how long they may take to end when they are killed
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What a running or dead server wrote into ``postmaster.pid``."""

    pid: int
    socket_folder: Path


def read_postmaster(folder: Path) -> Postmaster | None:
    """Read ``postmaster.pid`` (lines: pid, data folder, start, port, socket folder, ...); None without such a file."""
    try:
        lines = (folder / "data" / "postmaster.pid").read_bytes().split(b"\n")
        return Postmaster(int(lines[0]), Path(os.fsdecode(lines[4])))
    except FileNotFoundError:
        return None
    except (IndexError, ValueError):
        return Postmaster(0, folder / "socket")  # half written when the machine went down


# What `process_mark` gives.
MARK = re.compile(r"semlex-[0-9a-f]+-[0-9a-f]+")


def process_mark(folder: Path) -> str:
    """Return the name of this folder's server, which the command line of each of the server's processes contains."""
    # Postgres shows its setting ``cluster_name`` in the title of every process. Device and inode are used rather than
    # the path: the path may be long, and the same folder may be reached by another one.
    status = folder.stat()
    return f"semlex-{status.st_dev:x}-{status.st_ino:x}"


def running_server(folder: Path) -> Postmaster | None:
    """Return the folder's server if it runs, else None."""
    # The pid file alone proves nothing: a copy of the folder has it as well, after a reboot its pid may be an unrelated
    # process, and a killed server may remain as a zombie that nobody collects. The process table alone proves nothing
    # either: the server may run in another container. Proof is a socket that takes connections where this folder would
    # put its own (a refusing one may still be starting), or a process that carries this folder's mark.
    postmaster = read_postmaster(folder)
    if postmaster is None:
        return None
    named = postmaster.socket_folder
    inside = folder / "socket"
    if named.name == inside.name and _accepts(inside / SOCKET_NAME):
        return Postmaster(postmaster.pid, inside)
    process = _process(postmaster.pid)
    if process is not None and _is_ours(process, folder):
        moved = named.name == inside.name and not (named / SOCKET_NAME).exists()
        return Postmaster(postmaster.pid, inside if moved else named)
    if named.name.endswith(_folder_hash(folder)) and _accepts(named / SOCKET_NAME):
        # The path was another folder's when its server started, if we see that server and it is not ours.
        return None if process is not None and _is_postgres(process) else postmaster
    return None


def program_of(folder: Path) -> str | None:
    """Return the path of the program that the folder's server runs, or None."""
    postmaster = read_postmaster(folder)
    process = None if postmaster is None else _process(postmaster.pid)
    try:
        return None if process is None or not _is_ours(process, folder) else str(process.exe())
    except _psutil().Error:
        return None


def stop_server(folder: Path, timeout: float) -> None:
    """Stop the folder's server with all its sessions, and wait until it has stopped."""
    server = running_server(folder)
    if server is None:
        return
    process = _process(server.pid)
    if process is None or not _is_ours(process, folder):
        raise EmbeddedServerError(
            f"the server of {folder} runs where this process cannot see it (in another container?): stop it there"
        )
    with contextlib.suppress(_psutil().NoSuchProcess):
        process.send_signal(signal.SIGINT)  # the "fast" shutdown
    deadline = time.monotonic() + timeout
    while _is_ours(process, folder):
        if time.monotonic() > deadline:
            raise EmbeddedServerError(
                f"{folder}: the server, process {server.pid}, did not stop within {timeout:g} s (see {folder / 'log'})"
            )
        time.sleep(POLL_SECONDS)
    if server.socket_folder.parent != folder:
        with contextlib.suppress(OSError):
            server.socket_folder.rmdir()


def clear_remains(folder: Path) -> None:
    """End processes and remove files of a dead server, so that a new one can start; call it while no server runs."""
    # Postgres itself would take any live process of that pid, or its own zombie, for a running server.
    postmaster = read_postmaster(folder)
    if postmaster is None:
        return
    # A backend in a long query outlives its postmaster. Two servers on one data folder would destroy it.
    orphans = _alive_after_waiting([*_psutil().process_iter()], folder, ORPHAN_SECONDS)
    for process in orphans:
        if not _is_backend(process):
            raise EmbeddedServerError(
                f"process {process.pid} is a server of {folder} whose socket cannot be reached from here: stop it first"
            )
    for process in orphans:
        process.kill()
    if orphans := _alive_after_waiting(orphans, folder, KILLED_SECONDS):
        pids = ", ".join(str(process.pid) for process in orphans)
        raise EmbeddedServerError(f"processes {pids} of the last server of {folder} do not end: end them, then retry")
    named = postmaster.socket_folder
    if named.name.endswith(_folder_hash(folder)) and not _accepts(named / SOCKET_NAME):
        _remove_socket(named)
    _remove_socket(folder / "socket")
    (folder / "data" / "postmaster.pid").unlink(missing_ok=True)


def _remove_socket(socket_folder: Path) -> None:
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        (socket_folder / name).unlink(missing_ok=True)


def _alive_after_waiting(processes: list[Any], folder: Path, seconds: float) -> list[Any]:
    deadline = time.monotonic() + seconds
    while (processes := [process for process in processes if _is_ours(process, folder)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(POLL_SECONDS)
    return processes


def make_socket_folder(folder: Path, account: Account | None) -> Path:
    """Make the private folder (mode 0700) that the server puts its socket in."""
    uid = os.geteuid() if account is None else account.uid
    name = f"semlex-{uid}-{_folder_hash(folder)}"
    # The folder lies inside ``folder`` where the path is short and plain enough for a socket, else under
    # XDG_RUNTIME_DIR or the temporary folder, named after the folder and the account.
    candidates = [folder / "socket"]
    if account is None:  # root's own may be closed for the server's account
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
        candidates += [runtime / name] if runtime.is_absolute() and runtime.is_dir() else []
        candidates.append(Path(tempfile.gettempdir()).resolve() / name)
    candidates.append(Path("/tmp").resolve() / name)  # noqa: S108 - owner and mode are checked below
    chosen = next(path for path in candidates if _can_hold_socket(path))
    try:
        chosen.mkdir(mode=0o700)
        if account is not None:
            os.chown(chosen, account.uid, account.gid)
    except FileExistsError:
        found = chosen.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
            raise EmbeddedServerError(
                f"{chosen} is not a folder of mode 0700 that belongs to the server's account, as the server's socket "
                "needs: remove it"
            ) from None
    return chosen


def _folder_hash(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def _can_hold_socket(folder: Path) -> bool:
    # A comma ends a host for libpq, a quote a folder for the server, and the driver decodes addresses as UTF-8.
    plain = re.fullmatch(r"[A-Za-z0-9/._ +@-]+", str(folder))
    return plain is not None and len(str(folder / SOCKET_NAME)) <= MAX_SOCKET_BYTES


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(os.fspath(path))
        except BlockingIOError:  # a full backlog is the backlog of a live server
            return True
        except OSError:
            return False
    return True


def _process(pid: int) -> Any | None:
    psutil = _psutil()
    try:
        return psutil.Process(pid) if pid > 0 else None
    except psutil.Error:
        return None


def _is_postgres(process: Any) -> bool:
    psutil = _psutil()
    try:
        return process.name() in ("postgres", "postmaster") and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_backend(process: Any) -> bool:
    """Return whether the process is a child of a postmaster, judged by its title, or has ended."""
    try:
        return "".join(process.cmdline()[:1]).startswith("postgres:")
    except _psutil().Error:
        return True


def _is_ours(process: Any, folder: Path) -> bool:
    """Return whether the process is a living Postgres of this folder, started by semlex or by hand."""
    psutil = _psutil()
    if not _is_postgres(process):
        return False
    try:
        if re.search(rf"{process_mark(folder)}\b", " ".join(process.cmdline())):
            return True
        # Every process of Postgres stays in its data folder.
        return (folder / "data").samefile(process.cwd())
    except (psutil.Error, OSError):
        return False


def _psutil() -> Any:
    try:
        import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtraError("psutil", "local", "the embedded Postgres", OWN_SERVER) from error
    return psutil
