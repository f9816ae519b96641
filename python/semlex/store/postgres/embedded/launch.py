"""Makes the embedded server's database and starts its server. Everything here needs the start lock."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from typing import TYPE_CHECKING

from semlex.errors import EmbeddedServerError
from semlex.store.postgres.embedded.binaries import find_installations, run_as, server_account
from semlex.store.postgres.embedded.folder import database_major
from semlex.store.postgres.embedded.process import PORT, clear_remains, make_socket_folder, process_mark, running_server
from semlex.store.postgres.machine import machine_memory

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.store.postgres.embedded.binaries import Account

DATABASE = "semlex"
USER = "postgres"
LOG_BYTES = 16 * 1024 * 1024  # an older log of this size is emptied at the next start
LOG_LINES = 12  # of the server's log that an error quotes
MIB, GIB = 1024**2, 1024**3
LARGE_MEMORY = 4 * GIB
# People work on the machine of an embedded server: it counts on a quarter of the memory, and on 4 GiB at most.
MEMORY_PART, MAX_MEMORY = 4, 4 * GIB
# A vector index that does not fit takes tables out of this memory and they it, which doubles what a search takes. It is
# taken from the system as it is used.
MIN_SHARED_BUFFERS, SHARED_BUFFERS_PART = 128 * MIB, 4
MAX_WORKERS = 8
SMALL_SHARED_MEMORY = GIB  # containers give /dev/shm 64 MB, less than one parallel index build takes


def launch(folder: Path, major: int, timeout: float, start_lock: int) -> None:
    """Starts the server, after making its database if there is none.

    Args:
        timeout: Seconds to wait for it to take connections.
        start_lock: Descriptor of the start lock, which a program that makes the database inherits.
    """
    account = server_account(folder / "data")
    programs = _programs(folder, major, account)
    if not (folder / "data").exists():
        _create(folder, programs, account, start_lock)
    clear_remains(folder)
    socket_folder = make_socket_folder(folder, account)
    log_start = _open_log(folder, account)
    settings = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{socket_folder}"',
        "unix_socket_permissions": "0700",
        "cluster_name": process_mark(folder),
    }
    if not _has_shared_memory():
        settings["dynamic_shared_memory_type"] = "mmap"
    options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
    # Relative paths: pg_ctl hands them to a shell between double quotes, where a "$" would be expanded.
    command = [str(programs / "pg_ctl"), "-D", "data", "-l", "log", "-w", "-t", str(max(1, int(timeout)))]
    result = run_as(account, [*command, "-o", options, "start"], folder=folder)
    # After a failure someone else's server may be there: a killed starter's pg_ctl goes on without it.
    if result.returncode != 0 and running_server(folder) is None:
        raise failure(folder, "the server did not start", log_start)


def server_memory(memory: int) -> int:
    """Bytes that an embedded server counts on, of a machine with so much memory."""
    return min(memory // MEMORY_PART, MAX_MEMORY)


def settings_of(memory: int, cores: int) -> dict[str, str]:
    """The settings of a new server, which `semlex doctor` has nothing to say about.

    Args:
        memory: Bytes of the machine; 0 where that is not known.
    """
    ours = server_memory(memory)
    shared = max(ours // SHARED_BUFFERS_PART, MIN_SHARED_BUFFERS)
    return {
        "shared_buffers": f"{shared // MIB}MB",
        "effective_cache_size": f"{max(ours // 4 * 3, shared) // MIB}MB",
        "work_mem": "16MB",
        # An HNSW graph that fits is built far faster.
        "maintenance_work_mem": "256MB" if memory >= LARGE_MEMORY else "128MB",
        "max_parallel_maintenance_workers": str(max(2, min(cores - 1, MAX_WORKERS))),
        "max_wal_size": "2GB",  # on the disk of somebody's machine
        "random_page_cost": "1.1",
        "jit": "off",
        "max_connections": "100",
    }


def failure(folder: Path, message: str, log_start: int | None = None) -> EmbeddedServerError:
    """An error that names the log, and quotes its end from `log_start` on: earlier lines may hold users' statements."""
    text = ""
    if log_start is not None:
        with contextlib.suppress(OSError), (folder / "log").open("rb") as log:
            log.seek(log_start)
            text = ":\n" + _tail(log.read(LOG_BYTES).decode(errors="replace"))
    return EmbeddedServerError(f"{folder}: {message} (see {folder / 'log'}){text}")


def _programs(folder: Path, major: int, account: Account | None) -> Path:
    found = find_installations(account)
    data = folder / "data"
    if data.exists():
        major = database_major(folder)
    if major in found:
        return found[major]
    available = ", ".join(str(number) for number in sorted(found))
    if data.exists():
        raise EmbeddedServerError(
            f"{data} is a database of Postgres {major}, and this installation has {available}: convert it "
            "with pg_upgrade, dump and restore it with its own version, or choose another folder (SEMLEX_DATA_DIR)"
        )
    raise EmbeddedServerError(f"there is no embedded Postgres {major}: this installation has {available}")


def _create(folder: Path, programs: Path, account: Account | None, start_lock: int) -> None:
    """Makes the database beside its place and moves it there when complete: half of one is never opened."""
    unfinished = folder / "data.new"
    if unfinished.exists():  # its maker was killed, and has ended: it inherits the start lock that we now hold
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    if account is not None:
        os.chown(unfinished, account.uid, account.gid)
    fixed = ["-D", "data.new", f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--no-instructions"]
    for name, value in settings_of(machine_memory(), os.cpu_count() or 1).items():
        fixed += ["-c", f"{name}={value}"]
    if (programs / "pg_createsubscriber").exists():  # 17 and later know Unicode without the system's locales
        fixed += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    for locale in ("C.UTF-8", "C"):  # not every system has the first
        command = [str(programs / "initdb"), *fixed, f"--locale={locale}"]
        result = run_as(account, command, folder=folder, keep_open=[start_lock])
        if result.returncode == 0:
            break
    else:
        raise EmbeddedServerError(f"initdb failed in {folder}:\n{_tail(result.stdout + result.stderr)}")
    # In single-user mode, before the move: whoever finds the data folder finds the database in it.
    command = [str(programs / "postgres"), "--single", "-D", "data.new", USER]
    statement = f"CREATE DATABASE {DATABASE}\n"
    result = run_as(account, command, folder=folder, text=statement, keep_open=[start_lock])
    if result.returncode != 0 or "ERROR" in result.stderr:
        raise EmbeddedServerError(f"CREATE DATABASE failed in {folder}:\n{_tail(result.stderr)}")
    unfinished.rename(folder / "data")


def _open_log(folder: Path, account: Account | None) -> int:
    """Makes the log writable for the server and keeps its size within bounds; returns where new lines begin."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        if account is not None:
            os.fchown(log, account.uid, account.gid)
        if os.fstat(log).st_size > LOG_BYTES:
            os.ftruncate(log, 0)
        return os.fstat(log).st_size
    finally:
        os.close(log)


def _has_shared_memory() -> bool:
    try:
        return shutil.disk_usage("/dev/shm").total >= SMALL_SHARED_MEMORY  # noqa: S108 - only its size is asked for
    except OSError:
        return True  # no Linux: shared memory has no such bound


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LOG_LINES:])
