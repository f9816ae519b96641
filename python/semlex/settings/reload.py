"""Settings of a program that goes on: read again while it runs; what is wrong leaves the old ones in force."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.settings.load import decisive_files, load_settings, read_settings
from semlex.settings.table import SETTINGS

if TYPE_CHECKING:
    from semlex.settings.values import Settings

Stamp = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class Reload:
    """What became of reading the settings again.

    Attributes:
        settings: Those that hold now: the new ones, or the old ones where there are problems.
        problems: What is wrong with the new ones; empty when they hold.
        changed: Names of the settings whose value is another now.
    """

    settings: Settings
    problems: tuple[str, ...]
    changed: tuple[str, ...]


class WatchedSettings:
    """Settings that can be read again. Safe for several threads.

    A server asks `has_changed` from time to time, or watches `files` in another way, and then calls `reload`.

    Attributes:
        settings: Those that hold.
        files: The files that decide: those that are read, and those that would be if they were there.
    """

    def __init__(self, file: Path | None = None, **arguments: object) -> None:
        # Whoever changes the working directory later does not mean the settings.
        self._folder = Path.cwd()
        self._file = None if file is None else self._folder / file
        self._arguments = arguments
        self._reading = threading.Lock()
        # Stamped before the files are read, so that a change in between is seen the next time.
        self.files = decisive_files(self._file, self._folder)
        self._stamps = self._stamped()
        self.settings = load_settings(self._file, self._folder, **arguments)

    def has_changed(self) -> bool:
        """Whether a file has appeared, gone or been written since the settings were read last."""
        return self._stamped() != self._stamps

    def reload(self) -> Reload:
        """Reads the settings again; where something is wrong the old ones stay, and the problems say what."""
        with self._reading:
            self._stamps = self._stamped()
            read, problems = read_settings(self._file, self._folder, **self._arguments)
            old = self.settings
            if problems:
                return Reload(old, tuple(problems), ())
            self.settings = read
            changed = tuple(one.name for one in SETTINGS if old.value(one) != read.value(one))
            return Reload(read, (), changed)

    def _stamped(self) -> tuple[tuple[Path, Stamp], ...]:
        return tuple((file, file_stamp(file)) for file in self.files)


def file_stamp(file: Path) -> Stamp:
    """What is another one when a file has been written or replaced, or has other rights; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
