"""Remembers which settings files of working directories the user has trusted.

Anybody who can write into a shared folder can write its ``semlex.toml`` and ``pyproject.toml``. Settings of addresses,
servers and paths in these files are used only if the user has trusted the folder, and only until the file changes.
``trusted.json`` beside the user's own settings file maps a place (the folder, or the path of ``pyproject.toml``) to a
SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from semlex.errors import ConfigurationError
from semlex.settings import files
from semlex.settings.files import FOLDER_FILE, PROJECT_FILE


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user has trusted the present content of a working directory's settings file."""
    return trusted_files().get(_place(file)) == _digest(content)


def was_trusted(file: Path) -> bool:
    """Return whether the user has trusted this file, with its present or an earlier content."""
    return _place(file) in trusted_files()


def trusted_files() -> dict[str, str]:
    """Return place -> SHA-256 of the trusted content."""
    path = trust_file()
    content = files.read_bytes(path)
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigurationError(f"{path} was not written by semlex; delete it, and trust the folders again")
    return found


def trust(folder: Path) -> list[Path]:
    """Trust the settings files of a folder as they are now."""
    own = folder.resolve() / FOLDER_FILE
    found: dict[Path, bytes] = {}
    if own.is_file():
        found[own] = files.read_bytes(own)
        files.parse(own, found[own])
    project = folder.resolve() / PROJECT_FILE
    if (table := files.project_table(project)) is not None:
        found[project] = files.as_bytes(table)
    if not found:
        raise ConfigurationError(
            f"neither {own} nor a {PROJECT_FILE} with a table [tool.semlex] exists; name the folder that holds one"
        )
    _write(trusted_files() | {_place(file): _digest(content) for file, content in found.items()})
    return list(found)


def untrust(folder: Path) -> bool:
    """Stop trusting the files of a folder; return whether one was trusted."""
    found = trusted_files()
    places = {_place(folder.resolve() / name) for name in (FOLDER_FILE, PROJECT_FILE)} & found.keys()
    if places:
        _write({place: digest for place, digest in found.items() if place not in places})
    return bool(places)


def trust_file() -> Path:
    """Return the path of the list of trusted files."""
    return files.own_file().with_name("trusted.json")


def _place(file: Path) -> str:
    return str(file.parent.resolve() if file.name == FOLDER_FILE else file.parent.resolve() / file.name)


def _write(places: dict[str, str]) -> None:
    path = trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file of its own, moved into place: nobody reads half of a list. It is readable by its owner alone.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(places, file, indent=2, sort_keys=True)
        Path(name).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}; {files.OWN_FILE_VARIABLE} names another place for your "
            "settings"
        ) from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
