"""The embedded Postgres: the first user starts it, all processes of the machine share it, the last user stops it."""

# Who uses the server is counted by kernel file locks: every `EmbeddedServer` holds a shared lock on ``users.lock``,
# which vanishes with its process however that ends. Starting and stopping take ``start.lock``.
#
# TCP is off and no password is set: an account that can enter the socket's folder can enter the database.

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from semlex.errors import ConfigurationError, EmbeddedServerError
from semlex.forks import new_lock, renew_after_fork
from semlex.store.postgres.embedded.folder import (
    DISTRIBUTION,
    POLL_SECONDS,
    Account,
    database_major,
    find_installations,
    is_in_use,
    make_folder,
    resolved_folder,
    run_as,
    server_account,
    start_lock,
)
from semlex.store.postgres.embedded.keeper import has_keeper, keep_server, tell_keeper
from semlex.store.postgres.embedded.process import (
    PORT,
    Postmaster,
    clear_remains,
    make_socket_folder,
    process_mark,
    running_server,
    stop_server,
)
from semlex.store.postgres.server_info import machine_memory

if TYPE_CHECKING:
    from pathlib import Path


if sys.platform != "win32":
    import fcntl

DATABASE = "semlex"
USER = "postgres"
LOG_BYTES = 16 * 1024 * 1024  # an older log of this size is emptied at the next start
LOG_LINES = 12  # of the server's log that an error quotes
MIB, GIB = 1024**2, 1024**3
LARGE_MEMORY = 4 * GIB
# People work on the machine of an embedded server: it counts on a quarter of the memory, and on 4 GiB at most.
MEMORY_PART, MAX_MEMORY = 4, 4 * GIB
# A vector index that does not fit and tables displace each other in this memory, which doubles the time of a search.
# The system provides it as it is used.
MIN_SHARED_BUFFERS, SHARED_BUFFERS_PART = 128 * MIB, 4
MAX_WORKERS = 8
SMALL_SHARED_MEMORY = GIB  # containers give /dev/shm 64 MB, less than one parallel index build takes


def launch(folder: Path, major: int, timeout: float, start_lock: int) -> None:
    """Make the database if needed, start the server, and wait up to `timeout` seconds until it takes connections."""
    # A program that makes the database inherits the descriptor `start_lock`.
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
    """Return how many bytes of the machine's memory the embedded server is configured for."""
    return min(memory // MEMORY_PART, MAX_MEMORY)


def settings_of(memory: int, cores: int) -> dict[str, str]:
    """Return the settings of a new server, chosen so that `semlex doctor` finds no fault with them."""
    # `memory` is in bytes; 0 means that it is not known.
    ours = server_memory(memory)
    shared = max(ours // SHARED_BUFFERS_PART, MIN_SHARED_BUFFERS)
    return {
        "shared_buffers": f"{shared // MIB}MB",
        "effective_cache_size": f"{max(ours // 4 * 3, shared) // MIB}MB",
        "work_mem": "16MB",
        # An HNSW graph that fits is built far faster.
        "maintenance_work_mem": "256MB" if memory >= LARGE_MEMORY else "128MB",
        "max_parallel_maintenance_workers": str(max(2, min(cores - 1, MAX_WORKERS))),
        "max_wal_size": "2GB",  # on the disk of a user's machine
        # Else the write-ahead log of the largest load stays on that disk, for loads to come.
        "wal_recycle": "off",
        "random_page_cost": "1.1",
        "jit": "off",
        "max_connections": "100",
    }


def failure(folder: Path, message: str, log_start: int | None = None) -> EmbeddedServerError:
    """Return an error that quotes the log from `log_start` on; earlier lines may hold users' statements."""
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
            f"{data} is a database of Postgres {major}, but the installed Postgres programs are of version "
            f"{available}: convert the database with pg_upgrade, dump it with Postgres {major} and restore it, or "
            "choose another folder (SEMLEX_DATA_DIR)"
        )
    raise EmbeddedServerError(
        f"embedded Postgres {major} is missing: the installed package {DISTRIBUTION} has only {available}; install "
        "version 0.6 of the package"
    )


def _create(folder: Path, programs: Path, account: Account | None, start_lock: int) -> None:
    """Make the database in a temporary folder and rename that when complete, so that no incomplete one is opened."""
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
    # In single-user mode, before the move: a data folder always contains the database.
    command = [str(programs / "postgres"), "--single", "-D", "data.new", USER]
    statement = f"CREATE DATABASE {DATABASE}\n"
    result = run_as(account, command, folder=folder, text=statement, keep_open=[start_lock])
    if result.returncode != 0 or "ERROR" in result.stderr:
        raise EmbeddedServerError(f"CREATE DATABASE failed in {folder}:\n{_tail(result.stderr)}")
    unfinished.rename(folder / "data")


def _open_log(folder: Path, account: Account | None) -> int:
    """Make the log file writable for the server, empty it if it is large; return the offset of new lines."""
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


CONNECT_SECONDS = 2  # a server that has been halted takes a connection and never answers
STATUS_SECONDS = 60.0
LAUNCHES = 3  # a server that ended while we attached is started again, up to this many times

_log = logging.getLogger("semlex")
_open: set[EmbeddedServer] = set()


class EmbeddedServer:
    """One user of the embedded server: `start` attaches to the server, starting it if needed; `close` releases it."""

    # Also a context manager. A handle that is still open when its process ends is closed then. `close` may be called
    # while another thread is in `start`, which then ends early. A forked child's copy is not started: the use is its
    # parent's.

    def __init__(
        self,
        folder: Path | None = None,
        *,
        major: int = 18,
        start_timeout: float = 600,
        keep_alive: float | None = None,
    ) -> None:
        if keep_alive is not None and not keep_alive >= 0:
            raise ConfigurationError(f"keep_alive must be a number of seconds, at least 0; got {keep_alive}")
        self.folder = resolved_folder(folder)  # absolute, without links
        self.major = major  # the version that runs, once started
        # Seconds for a start, with recovery after a crash, and for the start or stop of another process
        self._timeout = start_timeout
        # Seconds for which the server stays after its last user, if that is this one; 0 stops it then. None leaves it
        # to a keeper, if another user has started one.
        self._keep_alive = keep_alive
        self._users: int | None = None
        self._url = ""
        self._lock = new_lock()
        self._abandoned = False
        self._launched = False
        renew_after_fork(self)

    @property
    def url(self) -> str:
        """The address for libpq."""
        if self._users is None:
            raise EmbeddedServerError("the embedded server is not started: call start() first")
        return self._url

    def start(self) -> str:
        """Make sure that the server runs, and count this object among its users; a second call does nothing."""
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "the embedded server does not run on Windows: start a Postgres with pgvector and set DATABASE_URL"
            )
        with self._lock:
            if self._users is not None:
                return self._url
            try:
                make_folder(self.folder)
                with start_lock(self.folder, self._timeout, lambda: self._abandoned) as lock:
                    users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
                    try:
                        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
                        self._ensure_running(lock)
                    except BaseException:
                        os.close(users)
                        if self._launched and not is_in_use(self.folder):
                            with contextlib.suppress(EmbeddedServerError):  # the first error is the one to report
                                stop_server(self.folder, self._timeout)
                        raise
            except OSError as error:
                raise EmbeddedServerError(
                    f"the embedded server in {self.folder} cannot be started: {error.strerror} ({error.filename}); "
                    "choose another folder (--data-dir, SEMLEX_DATA_DIR), or name a server (DATABASE_URL)"
                ) from error
            self._users = users
            _open.add(self)
            return self._url

    def close(self) -> None:
        """Release the server; when unused it stops, at once or after its keep-alive time. Idempotent."""
        self._abandoned = True
        with self._lock:
            self._abandoned = False
            if self._users is None:
                return
            users, self._users = self._users, None
            _open.discard(self)
            try:
                with contextlib.suppress(FileNotFoundError), start_lock(self.folder, self._timeout):
                    # Unlocked by name: a forked child may hold a copy of the descriptor.
                    fcntl.flock(users, fcntl.LOCK_UN)
                    if not is_in_use(self.folder) and not self._is_kept():
                        _stop(self.folder, self._timeout)
            finally:
                fcntl.flock(users, fcntl.LOCK_UN)
                os.close(users)

    def _is_kept(self) -> bool:
        if self._keep_alive is None:
            return has_keeper(self.folder)
        running = self._keep_alive > 0 and running_server(self.folder) is not None
        return running and keep_server(self.folder, self._keep_alive)

    def _after_fork(self) -> None:
        # Closing the child's copy of the descriptor leaves the lock to its parent alone.
        users, self._users = self._users, None
        if users is not None:
            os.close(users)
        _open.discard(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure_running(self, lock: int) -> None:
        deadline = time.monotonic() + self._timeout
        launches = 0
        self._launched = False
        while not self._abandoned:
            server = running_server(self.folder)
            if server is None:
                if launches == LAUNCHES:
                    raise failure(self.folder, "the server stopped right after its start")
                self._launched = True
                launch(self.folder, self.major, self._timeout, lock)
                launches += 1
                continue
            self._url = _url_of(server)
            if self._is_ready():
                self.major = database_major(self.folder)
                return
            if time.monotonic() > deadline:
                raise failure(self.folder, f"the server does not accept connections after {self._timeout:g} s")
            time.sleep(POLL_SECONDS)
        raise EmbeddedServerError(
            f"the start of the server in {self.folder} was cancelled, because close() was called meanwhile"
        )

    def _is_ready(self, *, again: bool = False) -> bool:
        """Return whether the server takes connections and confirms that it serves this folder."""
        import psycopg  # noqa: PLC0415 - the folder and its locks need no driver
        from psycopg.pq import PGconn, Ping  # noqa: PLC0415 - as above

        url = f"{self._url}&connect_timeout={CONNECT_SECONDS}"
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                # As bytes: a folder's name need not be UTF-8.
                mark, data = connection.execute(
                    "SELECT pg_catalog.current_setting('cluster_name'),"
                    " pg_catalog.textsend(pg_catalog.current_setting('data_directory'))"
                ).fetchone() or ("", b"")
        except psycopg.OperationalError as error:
            if PGconn.ping(url.encode()) != Ping.OK:
                return False
            if not again:  # it may have recovered between the two questions
                return self._is_ready(again=True)
            raise failure(self.folder, f"the server refuses connections: {error}") from None
        ours = mark == process_mark(self.folder)
        with contextlib.suppress(OSError):
            ours = ours or (self.folder / "data").samefile(os.fsdecode(data))
        if not ours:
            raise failure(
                self.folder,
                "the server that answers at this folder's socket serves another folder, "
                f"{os.fsdecode(data)}: stop that server first",
            )
        return True


def server_status(folder: Path | None) -> dict[str, Any]:
    """Return the state of a folder's server, without starting anything."""
    place = resolved_folder(folder)
    status: dict[str, Any] = {"folder": str(place), "running": False}
    status |= dict.fromkeys(("process", "postgres", "url", "in_use", "kept"))
    if not (place / "start.lock").exists():
        return status
    with start_lock(place, STATUS_SECONDS):
        server = running_server(place)
        if server is not None:
            status |= {"running": True, "process": server.pid, "postgres": database_major(place)}
            status |= {"url": _url_of(server), "in_use": is_in_use(place), "kept": has_keeper(place)}
    return status


def stop_unused(folder: Path | None) -> bool:
    """Stop a folder's server now if it has no user, instead of after its keep-alive time."""
    place = resolved_folder(folder)
    if not (place / "start.lock").exists():
        return False
    with start_lock(place, STATUS_SECONDS):
        if running_server(place) is None:
            return False
        if is_in_use(place):
            raise EmbeddedServerError(
                f"the server of {place} is in use: end the processes that use it (lsof {place / 'users.lock'}); when "
                "the last of them ends, the server stops"
            )
        _stop(place, STATUS_SECONDS)
    return True


def _stop(folder: Path, timeout: float) -> None:
    stop_server(folder, timeout)
    tell_keeper(folder, 0)  # there is nothing to keep any more


def _url_of(server: Postmaster) -> str:
    host = quote(os.fsencode(server.socket_folder), safe="")
    return f"postgresql://{USER}@/{DATABASE}?host={host}&port={PORT}"


@atexit.register
def _close_all() -> None:
    for server in list(_open):
        try:
            server.close()
        except Exception as error:  # noqa: BLE001 - at the end of the process there is nobody left to raise to
            _log.warning("%s", error)
