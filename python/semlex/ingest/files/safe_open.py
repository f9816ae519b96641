"""Opens folders and files below a root, and nowhere else.

Between the moment a name is seen and the moment it is opened anyone may put a link in its place. So every step is
opened relative to the one before it, and none follows a link; a path is never handed to the system as a whole.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# An open descriptor, or a checked path on systems that cannot open relative to one (Windows).
Folder: TypeAlias = int | str

BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.listdir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a FIFO would wait for a writer. On regular files it changes nothing.
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def open_folder(root: Path, parts: Sequence[str]) -> Iterator[Folder]:
    """Opens a folder below a root.

    Args:
        root: An absolute path without links.
        parts: The names from the root down to the folder.

    Yields:
        What `names` and `status` take.

    Raises:
        OSError: It is gone, closed, no folder, or a link has been put in its place.
    """
    if not BY_DESCRIPTOR:
        yield _checked_path(root, parts)
        return
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for part in parts:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def names(folder: Folder) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor


def status(folder: Folder, name: str) -> os.stat_result:
    """What stands under a name, a link not followed.

    Raises:
        OSError: It is gone.
    """
    if isinstance(folder, int):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return os.lstat(os.path.join(folder, name))  # noqa: PTH118 - as the other branch


def open_file(root: Path, parts: Sequence[str]) -> int:
    """Opens a regular file below a root for reading.

    Args:
        root: An absolute path without links.
        parts: The names from the root down to the file.

    Returns:
        A descriptor that the caller closes.

    Raises:
        NotRegularError: It is a folder, FIFO, socket or device; nothing was read.
        OSError: It is gone, closed, or a link has been put in its place.
    """
    with open_folder(root, parts[:-1]) as folder:
        if isinstance(folder, int):
            file = os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
        else:
            file = os.open(_checked_path(root, parts), _FILE_FLAGS)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotRegularError


class NotRegularError(OSError):
    """A folder, FIFO, socket or device stands where a file was expected."""


def _checked_path(root: Path, parts: Sequence[str]) -> str:
    path = os.path.join(root, *parts)  # noqa: PTH118 - compared as text
    if os.path.realpath(path) != path:
        raise NotRegularError
    return path
