"""Where things of the tests lie."""

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CLIENTS = ROOT / "tests" / "support" / "clients"

_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are made by mkdtemp
_NEEDED_BYTES = 4 << 30


def documentation(page):
    """The page of a name, in whichever part of the documentation it is."""
    [found] = (ROOT / "docs").rglob(page)
    return found


def _temporary():
    # On a disk a new database waits for it although the server does not ask for that: 10 times as long.
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return Path("/tmp").resolve()  # noqa: S108
    can_run_programs = not found.f_flag & os.ST_NOEXEC
    is_roomy = found.f_bavail * found.f_frsize >= _NEEDED_BYTES
    return _MEMORY if is_roomy and can_run_programs and os.access(_MEMORY, os.W_OK) else Path("/tmp").resolve()  # noqa: S108


TEMPORARY = _temporary()
"""Where tests make folders: in memory where there is room, else on the disk. A short path, for sockets lie below it."""


@contextmanager
def new_open_folder():
    """A new folder that a server's account can pass through, which cannot enter pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-test-", dir=TEMPORARY))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def change_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def folder_with(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
