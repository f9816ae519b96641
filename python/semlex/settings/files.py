"""The files that settings come from: the user's own, and ``semlex.toml`` of the working directory.

Whoever writes into a folder that others clone or share writes its ``semlex.toml``, too. What such a file says about
addresses, servers and paths counts only when the user has trusted the folder, and only as long as the file stays as it
was then. What is trusted stands in ``trusted.json`` beside the user's own settings file: folder -> SHA-256 of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from semlex.errors import ConfigurationError

FOLDER_FILE = "semlex.toml"
OWN_FILE = "config.toml"
OWN_FILE_VARIABLE = "SEMLEX_CONFIG"
MODELS = "models"
MODELS_VARIABLE = "SEMLEX_MODELS"


def own_file() -> Path:
    """The user's own settings file, which need not exist: ``SEMLEX_CONFIG``, else in the user's folder for settings.

    Raises:
        ConfigurationError: Its path is relative: the working directory would choose the file, and the list of trusted
            folders beside it.
    """
    named = os.environ.get(OWN_FILE_VARIABLE)
    if not named:
        return Path(platformdirs.user_config_dir("semlex", appauthor=False)) / OWN_FILE
    path = Path(os.path.expanduser(named))  # noqa: PTH111 - pathlib's raises for a user that does not exist
    if not path.is_absolute():
        raise ConfigurationError(
            f"{OWN_FILE_VARIABLE} must be an absolute path; got {named!r}, which would be another file in every folder"
        )
    return path


def read_own_file() -> dict[str, Any]:
    """What the user's own settings file holds; nothing when it does not exist.

    Raises:
        ConfigurationError: It is named by ``SEMLEX_CONFIG`` and not there, or cannot be read.
    """
    path = own_file()
    if os.environ.get(OWN_FILE_VARIABLE) and not path.exists():
        raise ConfigurationError(
            f"{OWN_FILE_VARIABLE} names {path}, which does not exist; make it, or unset the variable"
        )
    return read_file(path)


def read_file(path: Path) -> dict[str, Any]:
    """What a settings file holds; nothing when it does not exist.

    Raises:
        ConfigurationError: It cannot be read, or is no TOML; the message names file, line and column.
    """
    return parse(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a settings file; none when it does not exist.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; mend its rights, or move it away") from None


def parse(path: Path, content: bytes) -> dict[str, Any]:
    """What the bytes of a settings file say.

    Raises:
        ConfigurationError: They are no TOML; the message names file, line and column, and shows nothing of the content.
    """
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigurationError(f"{path}:{line}:{column}: not UTF-8; save the file as UTF-8") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: lists within lists, too deep to be read; no setting needs them") from None
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = re.search(r"\(at line (\d+), column (\d+)\)", said)
        end = content.decode("utf-8-sig").split("\n")
        where = f"{place[1]}:{place[2]}" if place else f"{len(end)}:{len(end[-1]) + 1}"
        # What the parser says in front of a colon is the kind of the error; behind it may stand a part of the file.
        kind = re.sub(r" \(at .*", "", said, flags=re.DOTALL).partition(":")[0]
        raise ConfigurationError(f"{path}:{where}: {kind}; a line is NAME = VALUE, with texts between quotes") from None


def named_models() -> list[str]:
    """Models that the user has named beforehand: those of ``SEMLEX_MODELS`` and of the own settings file.

    Raises:
        ConfigurationError: The own settings file cannot be read, or its list is none.
    """
    return model_names(os.environ.get(MODELS_VARIABLE, "")) + model_names(read_own_file().get(MODELS, []))


def model_names(value: object) -> list[str]:
    """A list of models: names with commas between them, or a list of names.

    Raises:
        ConfigurationError: It is neither.
    """
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigurationError(f'{MODELS} must be a list of names, for example {MODELS} = ["ollama:qwen3-embedding"]')
    return [entry.strip() for entry in entries if entry.strip()]


def is_trusted(folder: Path, content: bytes) -> bool:
    """Whether the user has trusted a folder, and its settings file as it is now.

    Args:
        folder: The folder.
        content: Its settings file.
    """
    return trusted_folders().get(str(folder.resolve())) == _digest(content)


def trusted_folders() -> dict[str, str]:
    """Folder -> SHA-256 of its settings file when it was trusted.

    Raises:
        ConfigurationError: The list cannot be read.
    """
    path = _trust_file()
    content = read_bytes(path)
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigurationError(f"{path} is not what semlex wrote; delete it, and trust the folders again")
    return found


def trust(folder: Path) -> Path:
    """Trusts a folder and its settings file as it is now.

    Returns:
        The file that is trusted.

    Raises:
        ConfigurationError: The folder has no settings file, or the list cannot be written.
    """
    file = folder.resolve() / FOLDER_FILE
    if not file.is_file():
        raise ConfigurationError(f"there is no {file}; name the folder that holds a {FOLDER_FILE}")
    content = read_bytes(file)
    parse(file, content)
    _write_trusted(trusted_folders() | {str(folder.resolve()): _digest(content)})
    return file


def untrust(folder: Path) -> bool:
    """Trusts a folder no longer; returns whether it was trusted.

    Raises:
        ConfigurationError: The list cannot be written.
    """
    found = trusted_folders()
    if found.pop(str(folder.resolve()), None) is None:
        return False
    _write_trusted(found)
    return True


def _trust_file() -> Path:
    return own_file().with_name("trusted.json")


def _write_trusted(folders: dict[str, str]) -> None:
    path = _trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file of its own, moved into place: nobody reads half of a list. It is readable by its owner alone.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(folders, file, indent=2, sort_keys=True)
        Path(name).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}; {OWN_FILE_VARIABLE} names another place for your settings"
        ) from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
