"""A Postgres of one's own: started on first use, shared by all processes of the machine, stopped by the last.

Who uses the server is counted by kernel file locks: every `EmbeddedServer` holds a shared lock on ``users.lock``, which
vanishes with its process however that ends. Starting and stopping take ``start.lock``.

::

    <folder>/data         the database (mode 0700)
    <folder>/socket       the server's socket (mode 0700); elsewhere when the path is too long for one
    <folder>/log          what the server says
    <folder>/start.lock   held while someone starts or stops the server
    <folder>/users.lock   held, shared, by everyone who uses it

There is no TCP and no password: who may enter the socket's folder may enter the database.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import platformdirs

from semlex.errors import EmbeddedServerError
from semlex.store.embedded_binaries import (
    ROOT_STATE,
    Account,
    find_installations,
    is_root,
    require_traversable,
    run_as,
    server_account,
)
from semlex.store.embedded_process import (
    PORT,
    clear_remains,
    make_socket_folder,
    process_mark,
    running_server,
)

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

DATABASE = "semlex"
USER = "postgres"
LOG_BYTES = 16 * 1024 * 1024  # an older log of this size is emptied at the next start
LOG_LINES = 12  # of the server's log that an error quotes
LARGE_MEMORY = 4 * 1024**3
SMALL_SHARED_MEMORY = 1024**3  # containers give /dev/shm 64 MB, less than one parallel index build takes
POLL_SECONDS = 0.05
LAUNCHES = 3  # a server that ended while we attached is started again, but not for ever

_log = logging.getLogger("semlex")
_open: set[EmbeddedServer] = set()


def default_folder() -> Path:
    """The folder of the embedded server when none is named.

    Returns:
        ``postgres`` under SEMLEX_DATA_DIR, else under ``/var/lib/semlex`` for root (whose home other accounts cannot
        enter), else under the user's data folder.
    """
    named = os.environ.get("SEMLEX_DATA_DIR")
    if named:
        return Path(named).absolute() / "postgres"
    if sys.platform != "win32" and is_root():
        return ROOT_STATE / "postgres"
    return Path(platformdirs.user_data_dir("semlex", appauthor=False)) / "postgres"


class EmbeddedServer:
    """One use of the embedded server: `start` attaches to it, starting it if need be; `close` lets it go.

    Also a context manager. A handle that is still open when its process ends is closed then. Not for use by two
    threads at once; a forked child makes its own.

    Args:
        folder: Where the server lives; None = `default_folder`. Made if missing, refused if it holds other things.
        major: Postgres version for a new database, 16 or 18. An existing one is opened with its own version.
        start_timeout: Seconds to wait for a start, which includes recovery after a crash, and for the start or stop of
            another process.

    Attributes:
        folder: The absolute path, without links.
        major: The version that runs, once started.
    """

    def __init__(self, folder: Path | None = None, *, major: int = 18, start_timeout: float = 600) -> None:
        self.folder = Path(os.path.realpath(default_folder() if folder is None else folder))
        self.major = major
        self._timeout = start_timeout
        self._users: int | None = None
        self._pid = 0
        self._url = ""

    @property
    def url(self) -> str:
        """The address for libpq.

        Raises:
            EmbeddedServerError: The handle is not started.
        """
        if self._users is None:
            raise EmbeddedServerError("the embedded server is not started: call start() first")
        return self._url

    def start(self) -> str:
        """Makes sure that the server runs and counts this handle among its users. Calling it again does nothing.

        Returns:
            The address of the database ``semlex`` for libpq, on a Unix socket.

        Raises:
            EmbeddedServerError: It cannot be started here; the message says why and what helps.
            MissingExtraError: The wheel with the server's programs is not installed.
        """
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "the embedded server does not run on Windows: start a Postgres with pgvector and set DATABASE_URL"
            )
        if self._users is not None:
            return self._url
        try:
            self._make_folder()
            with self._start_lock() as start_lock:
                users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    self._ensure_running(start_lock)
                except BaseException:
                    os.close(users)
                    raise
        except OSError as error:
            raise EmbeddedServerError(
                f"the embedded server in {self.folder} cannot be started: {error.strerror} ({error.filename})"
            ) from error
        self._users, self._pid = users, os.getpid()
        _open.add(self)
        return self._url

    def close(self) -> None:
        """Lets the server go and stops it when no one else uses it. Calling it again does nothing.

        Raises:
            EmbeddedServerError: It does not stop.
        """
        if self._users is None:
            return
        users, self._users = self._users, None
        _open.discard(self)
        if os.getpid() != self._pid:
            os.close(users)  # a forked child's copy: the use is its parent's
            return
        try:
            with contextlib.suppress(FileNotFoundError), self._start_lock():  # missing = the folder has been deleted
                if _is_last(users):
                    self._stop()
        finally:
            # Unlocked by name, since closing would leave the lock to a forked child's copy of the descriptor.
            fcntl.flock(users, fcntl.LOCK_UN)
            os.close(users)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _make_folder(self) -> None:
        if any(ord(character) < ord(" ") for character in str(self.folder)):
            raise EmbeddedServerError(f"control characters in the folder's name {str(self.folder)!r}: choose another")
        existing = next(path for path in [self.folder, *self.folder.parents] if path.exists())
        if not existing.is_dir():
            raise EmbeddedServerError(f"{existing} is not a folder: choose another (SEMLEX_DATA_DIR)")
        if is_root():
            require_traversable(existing, server_account(self._data))
        missing = [path for path in [self.folder, *self.folder.parents] if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            # New, hence ours. Root's server runs as another account, which must get through to its data.
            path.chmod(0o711 if is_root() else 0o700)
        if self.folder.stat().st_uid != os.geteuid():
            raise EmbeddedServerError(f"{self.folder} belongs to another user: choose another folder (SEMLEX_DATA_DIR)")
        names = {path.name for path in self.folder.iterdir()}
        if names and "start.lock" not in names:  # which is the first file that we make
            raise EmbeddedServerError(
                f"{self.folder} is not empty and not a folder of the embedded server: choose another (SEMLEX_DATA_DIR)"
            )

    @contextlib.contextmanager
    def _start_lock(self) -> Iterator[int]:
        deadline = time.monotonic() + self._timeout
        lock = os.open(self.folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EmbeddedServerError(
                            f"another process has been starting or stopping the server of {self.folder} for "
                            f"{self._timeout:g} s: find and end it (lsof {self.folder / 'start.lock'})"
                        ) from None
                    time.sleep(POLL_SECONDS)
            yield lock
        finally:
            os.close(lock)

    def _ensure_running(self, start_lock: int) -> None:
        from psycopg.pq import PGconn, Ping  # noqa: PLC0415 - importing the driver takes longer than attaching

        deadline = time.monotonic() + self._timeout
        launches = 0
        while True:
            server = running_server(self.folder)
            if server is None:
                if launches == LAUNCHES:
                    raise self._failure("the server ended again right after its start")
                self._launch(start_lock)
                launches += 1
                continue
            host = quote(os.fsencode(server.socket_folder), safe="")
            self._url = f"postgresql://{USER}@/{DATABASE}?host={host}&port={PORT}"
            if PGconn.ping(self._url.encode()) == Ping.OK:
                self.major = int((self._data / "PG_VERSION").read_text())
                return
            if time.monotonic() > deadline:
                raise self._failure(f"the server takes no connections after {self._timeout:g} s")
            time.sleep(POLL_SECONDS)

    def _launch(self, start_lock: int) -> None:
        account = server_account(self._data)
        programs = self._programs(account)
        if not self._data.exists():
            self._create(programs, account, start_lock)
        clear_remains(self.folder)
        socket_folder = make_socket_folder(self.folder, account)
        log_start = self._open_log(account)
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{socket_folder}"',
            "unix_socket_permissions": "0700",
            "cluster_name": process_mark(self.folder),
        }
        if not _has_shared_memory():
            settings["dynamic_shared_memory_type"] = "mmap"
        options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        # Relative paths: pg_ctl hands them to a shell between double quotes, where a "$" would be expanded.
        command = [str(programs / "pg_ctl"), "-D", "data", "-l", "log", "-w", "-t", str(max(1, int(self._timeout)))]
        result = run_as(account, [*command, "-o", options, "start"], folder=self.folder)
        # After a failure someone else's server may be there: a killed starter's pg_ctl goes on without it.
        if result.returncode != 0 and running_server(self.folder) is None:
            raise self._failure("the server did not start", log_start)

    def _programs(self, account: Account | None) -> Path:
        found = find_installations(account)
        major = self.major
        if self._data.exists():
            major = int((self._data / "PG_VERSION").read_text())
        if major in found:
            return found[major]
        available = ", ".join(str(number) for number in sorted(found))
        if self._data.exists():
            raise EmbeddedServerError(
                f"{self._data} is a database of Postgres {major}, and this installation has {available}: convert it "
                "with pg_upgrade, dump and restore it with its own version, or choose another folder (SEMLEX_DATA_DIR)"
            )
        raise EmbeddedServerError(f"there is no embedded Postgres {major}: this installation has {available}")

    def _create(self, programs: Path, account: Account | None, start_lock: int) -> None:
        """Makes the database beside its place and moves it there when complete: half of one is never opened."""
        unfinished = self.folder / "data.new"
        if unfinished.exists():  # its maker was killed, and has ended: it inherits the start lock that we now hold
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        if account is not None:
            os.chown(unfinished, account.uid, account.gid)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        maintenance = "256MB" if memory >= LARGE_MEMORY else "64MB"  # an HNSW graph that fits is built far faster
        fixed = ["-D", "data.new", f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--no-instructions"]
        fixed += ["-c", f"maintenance_work_mem={maintenance}", "-c", "max_connections=100"]
        if (programs / "pg_createsubscriber").exists():  # 17 and later know Unicode without the system's locales
            fixed += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        for locale in ("C.UTF-8", "C"):  # not every system has the first
            command = [str(programs / "initdb"), *fixed, f"--locale={locale}"]
            result = run_as(account, command, folder=self.folder, keep_open=[start_lock])
            if result.returncode == 0:
                break
        else:
            raise EmbeddedServerError(f"initdb failed in {self.folder}:\n{_tail(result.stdout + result.stderr)}")
        # In single-user mode, before the move: whoever finds the data folder finds the database in it.
        command = [str(programs / "postgres"), "--single", "-D", "data.new", USER]
        statement = f"CREATE DATABASE {DATABASE}\n"
        result = run_as(account, command, folder=self.folder, text=statement, keep_open=[start_lock])
        if result.returncode != 0 or "ERROR" in result.stderr:
            raise EmbeddedServerError(f"CREATE DATABASE failed in {self.folder}:\n{_tail(result.stderr)}")
        unfinished.rename(self._data)

    def _stop(self) -> None:
        server = running_server(self.folder)
        if server is None:
            return
        account = server_account(self._data)
        major = int((self._data / "PG_VERSION").read_text())
        command = [str(find_installations(account)[major] / "pg_ctl"), "-D", "data", "-m", "fast", "-w"]
        result = run_as(account, [*command, "-t", str(max(1, int(self._timeout))), "stop"], folder=self.folder)
        if result.returncode != 0 and running_server(self.folder) is not None:
            raise self._failure(f"the server, process {server.pid}, did not stop")
        if server.socket_folder.parent != self.folder:
            with contextlib.suppress(OSError):
                server.socket_folder.rmdir()

    def _open_log(self, account: Account | None) -> int:
        """Makes the log writable for the server and keeps its size within bounds; returns where new lines begin."""
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            if account is not None:
                os.fchown(log, account.uid, account.gid)
            if os.fstat(log).st_size > LOG_BYTES:
                os.ftruncate(log, 0)
            return os.fstat(log).st_size
        finally:
            os.close(log)

    def _failure(self, message: str, log_start: int | None = None) -> EmbeddedServerError:
        # Only what this start wrote: earlier lines may hold the statements of users.
        text = ""
        if log_start is not None:
            with contextlib.suppress(OSError), (self.folder / "log").open("rb") as log:
                log.seek(log_start)
                text = ":\n" + _tail(log.read(LOG_BYTES).decode(errors="replace"))
        return EmbeddedServerError(f"{self.folder}: {message} (see {self.folder / 'log'}){text}")


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_shared_memory() -> bool:
    try:
        return shutil.disk_usage("/dev/shm").total >= SMALL_SHARED_MEMORY  # noqa: S108 - only its size is asked for
    except OSError:
        return True  # no Linux: shared memory has no such bound


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LOG_LINES:])


@atexit.register
def _close_all() -> None:
    for server in list(_open):
        try:
            server.close()
        except Exception as error:  # noqa: BLE001 - at the end of the process there is nobody left to raise to
            _log.warning("%s", error)
