"""Write a file so that readers see its old content or its new content, never a part."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a new file that replaces `path` at the end of the block; after an exception, `path` is unchanged.

    A file that is replaced keeps its owner, group and rights; only its owner can read a new file.
    """
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            yield file
            _keep_owner(number, path)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keep_owner(number: int, path: Path) -> None:
    if sys.platform == "win32":  # Python has no `os.fchmod` there before 3.13
        return
    # If root adds a token, the server must still be able to read the file; it would go on with the old tokens.
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    new = os.fstat(number)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(number, old.st_uid, old.st_gid)
    os.fchmod(number, stat.S_IMODE(old.st_mode))
