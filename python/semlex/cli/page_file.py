"""The file of a report that a command writes as one HTML page."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from semlex.cli.terminal import one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def check_place(path: Path, option: str) -> None:
    """Refuse a path that no file can be written to, before any work."""
    try:
        fits = os.access(path.absolute().parent, os.W_OK | os.X_OK) and not path.is_dir()
    except OSError:
        fits = False
    if not fits:
        raise ConfigurationError(f"{option}: {one_line(str(path))} is not a file that can be written")


def write_page(path: Path, page: str, option: str) -> None:
    """Write the page to a temporary file and move it into place, so that it is complete or absent."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(page, encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ConfigurationError(f"{option}: {one_line(str(path))} cannot be written: {error.strerror}") from None
