"""Reads settings from their sources in order of precedence, with the value and origin of each.

An argument takes precedence over the environment, then ``semlex.toml`` and ``pyproject.toml`` of the working directory,
the user's own settings file, and the defaults. A working directory must be trusted to set where texts or data go (see
`semlex.settings.trust`).
"""

from __future__ import annotations

import os
import shlex
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.settings import files, sources
from semlex.settings.table import NAMED, SETTINGS, Overridden, Settings, model_names
from semlex.settings.trust import is_trusted, trust_file, was_trusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.settings.sources import Found
    from semlex.settings.table import Setting


def load_settings(file: Path | None = None, folder: Path | None = None, /, **arguments: object) -> Settings:
    """Return the settings, with the given arguments first; None leaves a setting to the other sources."""
    settings, problems = read_settings(file, folder, **arguments)
    if problems:
        raise ConfigurationError("; ".join(problems))
    return settings


def read_settings(
    file: Path | None = None, folder: Path | None = None, /, **arguments: object
) -> tuple[Settings, list[str]]:
    """Return the usable settings, and the problems of the others; see `load_settings`."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    overridden: dict[str, tuple[Overridden, ...]] = {}
    problems: list[str] = []
    notes: list[str] = []
    seen: dict[str, int] = {}  # the number of the source that says it
    working = Path.cwd() if folder is None else folder
    for number, source in enumerate(_sources(file, working, arguments, notes)):
        try:
            for found in source():
                setting = NAMED.get(found.name)
                if setting is None:
                    problems.append(str(found.problem))
                elif found.name in seen:
                    overridden[found.name] = (*overridden.get(found.name, ()), Overridden(found.origin, found.value))
                else:
                    seen[found.name] = number
                    _take(setting, found, values, origins, problems)
        except ConfigurationError as error:  # of a whole file, or of the path to one, which two sources need
            problems += [str(error)] if str(error) not in problems else []
    if "database_url" in origins and "data_dir" in origins and seen["data_dir"] < seen["database_url"]:
        # A folder that a nearer source names means the embedded Postgres in it.
        lost = Overridden(origins.pop("database_url"), values.pop("database_url"))
        overridden["database_url"] = (lost, *overridden.get("database_url", ()))
    server = sources.libpq_server()
    if server is not None and not seen.keys() & {"database_url", "data_dir"}:
        origins["database_url"], values["database_url"] = server
    notes += [f"{variable} is not read; did you mean {near}?" for variable, near in sources.similar_variables()]
    read = Settings(
        **values, origins=origins, overridden=overridden, notes=tuple(notes), files=decisive_files(file, working)
    )
    return read, problems


def named_models() -> list[str]:
    """Return the models that the user named in ``SEMLEX_MODELS`` and in the user's own settings file."""
    said = [found.value for found in sources.own_file([]) if found.name == "models"]
    return model_names(os.environ.get(NAMED["models"].variables[0], "")) + [
        name for value in said for name in model_names(value)
    ]


def _sources(
    file: Path | None, folder: Path, arguments: dict[str, object], notes: list[str]
) -> tuple[Callable[[], Iterator[Found]], ...]:
    first = (lambda: sources.arguments(arguments), sources.environment)
    if file is not None:
        return (*first, lambda: sources.named_file(file, _content(file), notes))
    return (
        *first,
        lambda: sources.folder_file(folder),
        lambda: sources.project_file(folder),
        lambda: sources.own_file(notes),
    )


def _content(file: Path) -> bytes:
    if not file.exists():
        raise ConfigurationError(f"the settings file {file} does not exist; name one that exists")
    return files.read_bytes(file)


def decisive_files(file: Path | None, folder: Path) -> tuple[Path, ...]:
    """Return the files that can set the settings, including those that do not exist."""
    if file is not None:
        return (file,)
    found = (folder / files.FOLDER_FILE, folder / files.PROJECT_FILE)
    try:
        return (*found, files.own_file(), trust_file())
    except ConfigurationError:  # told with the source
        return found


def _take(setting: Setting, found: Found, values: dict[str, Any], origins: dict[str, str], problems: list[str]) -> None:
    try:
        value = setting.read(found.value)
        _check_trust(setting, value, found)
        values[setting.attribute], origins[found.name] = value, found.origin
    except ConfigurationError as error:
        problems.append(str(error))
    except ValueError as error:
        problems.append(f"{found.told_place} {error}")


def _check_trust(setting: Setting, value: object, found: Found) -> None:
    if found.folder_file is None or not setting.leads_away(value):
        return
    file, content = found.folder_file
    if is_trusted(file, content):
        return
    why = "the file has changed since its folder was trusted" if was_trusted(file) else "its folder is not trusted"
    raise ConfigurationError(
        f"{found.told_place} sets where texts or data go, and {why}; check the file, and if you agree: "
        f"semlex config trust {shlex.quote(str(file.parent.resolve()))}"
    )


Stamp = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class Reload:
    """The result of reading the settings again: the settings in force, problems of the new ones, and changed names."""

    settings: Settings
    problems: tuple[str, ...]
    changed: tuple[str, ...]


class WatchedSettings:
    """Settings of a running program, read again by `reload` when `has_changed` says so. Safe for several threads.

    Attributes:
        settings: The settings in force.
        files: The files that can set them, including those that do not exist yet.
    """

    def __init__(self, file: Path | None = None, **arguments: object) -> None:
        # Later changes of the working directory must not change the settings.
        self._folder = Path.cwd()
        self._file = None if file is None else self._folder / file
        self._arguments = arguments
        self._reading = threading.Lock()
        # Stamped before the files are read, so that a change in between is seen the next time.
        self.files = decisive_files(self._file, self._folder)
        self._stamps = self._stamped()
        self.settings = load_settings(self._file, self._folder, **arguments)

    def has_changed(self) -> bool:
        """Return whether a file has appeared, disappeared or been written since the settings were last read."""
        return self._stamped() != self._stamps

    def reload(self) -> Reload:
        """Read the settings again; if the new ones have problems, keep the old ones and return the problems."""
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
    """Return a value that changes when a file is written or replaced or its permissions change; None without a file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
