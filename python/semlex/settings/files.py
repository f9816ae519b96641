"""The settings files: their paths and bytes, TOML and JSON, the line of a key, and the list of trusted files.

Anybody who can write into a shared folder can write its ``semlex.toml`` and ``pyproject.toml``. Settings of addresses,
servers and paths in these files are used only if the user has trusted the folder, and only until the file changes.
``trusted.json`` beside the user's own settings file maps a place (the folder, or the path of ``pyproject.toml``) to a
SHA-256.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from semlex.errors import ConfigurationError
from semlex.whole_file import whole_file

FOLDER_FILE = "semlex.toml"
PROJECT_FILE = "pyproject.toml"
OWN_FILE = "config.toml"
OWN_FILE_VARIABLE = "SEMLEX_CONFIG"


def own_file() -> Path:
    """Return the path of the user's own settings file: ``SEMLEX_CONFIG``, else in the user's configuration folder."""
    named = os.environ.get(OWN_FILE_VARIABLE)
    if not named:
        return _own_folder() / OWN_FILE
    path = Path(os.path.expanduser(named))  # noqa: PTH111 - pathlib's raises for a user that does not exist
    if not path.is_absolute():
        raise ConfigurationError(
            f"{OWN_FILE_VARIABLE} must be an absolute path; got {named!r}, which would be another file in every folder"
        )
    return path


def _own_folder() -> Path:
    with contextlib.suppress(RuntimeError):
        folder = Path(platformdirs.user_config_dir("semlex", appauthor=False))
        if folder.is_absolute():
            return folder
    # A user without an entry in the system's list of users, as in some containers, has no home folder.
    return Path("/.config/semlex").absolute()


def read_own_bytes() -> bytes:
    """Return the bytes of the user's own settings file; b"" if the default one does not exist."""
    path = own_file()
    if os.environ.get(OWN_FILE_VARIABLE) and not path.exists():
        raise ConfigurationError(
            f"{OWN_FILE_VARIABLE} names {path}, which does not exist; make it, or unset the variable"
        )
    return read_bytes(path)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a settings file; b"" if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "a path cannot have such characters"
        raise ConfigurationError(f"{path} cannot be read: {reason}; correct its permissions, or move it away") from None


def parse(path: Path, content: bytes) -> dict[str, Any]:
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(_decoded(path, content))
    except RecursionError:
        raise ConfigurationError(f"{path}: lists are nested too deeply; no setting needs nested lists") from None
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = re.search(r"\(at line (\d+), column (\d+)\)", said)
        end = content.decode("utf-8-sig").split("\n")
        where = f"{place[1]}:{place[2]}" if place else f"{len(end)}:{len(end[-1]) + 1}"
        # Only what precedes a colon in the parser's message is shown: text of the file may follow the colon.
        kind = re.sub(r" \(at .*", "", said, flags=re.DOTALL).partition(":")[0]
        raise ConfigurationError(f"{path}:{where}: {kind}; a line is NAME = VALUE, with texts between quotes") from None


def parse_json(path: Path, content: bytes) -> Any:
    """Return the content of a JSON file; {} if the file is empty."""
    try:
        return json.loads(_decoded(path, content), object_pairs_hook=_object) if content.strip() else {}
    except RecursionError:
        raise ConfigurationError(f"{path}: lists are nested too deeply; no setting needs nested lists") from None
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}:{error.lineno}:{error.colno}: {error.msg}; it must be JSON") from None
    except _TwiceError as error:
        raise ConfigurationError(f"{path}: {error} occurs twice in one object; remove one of the two") from None


class _TwiceError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found


def project_table(path: Path) -> dict[str, Any] | None:
    """Return the table ``[tool.semlex]`` of a ``pyproject.toml``, or None."""
    content = read_bytes(path)
    if b"semlex" not in content:
        return None  # without a table of semlex, errors in the file are not reported
    tool = parse(path, content).get("tool")
    table = tool.get("semlex") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigurationError(f"{path}: tool.semlex must be a table: write [tool.semlex], and below it NAME = VALUE")
    return table


def as_bytes(table: dict[str, Any]) -> bytes:
    """Return a table of a file as bytes, which change exactly when the table does."""
    return json.dumps(table, sort_keys=True, default=repr).encode("utf-8", "surrogatepass")


def line_of(content: bytes, section: str, key: str) -> int | None:
    """Return the line on which a key of a TOML file is set; None if that is not certain.

    The TOML parser reports no line numbers. A line that looks like the key is taken if the lines before it are valid
    TOML without the key.
    """
    lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    sets = re.compile(rf"""(^|[\s.{{,"'\[]){re.escape(key)}["']?\s*[=.\]]""")
    where = [name for name in (*section.split("."), key) if name]
    for number, line in enumerate(lines, 1):
        if sets.search(line) and _has(lines[: number - 1], where) is False and _has(lines[:number], where) is not False:
            return number
    return None


def _has(lines: list[str], where: list[str]) -> bool | None:
    """Return whether lines of TOML set a key; None if they are incomplete."""
    try:
        table: Any = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    for name in where:
        if not isinstance(table, dict) or name not in table:
            return False
        table = table[name]
    return True


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigurationError(f"{path}:{line}:{column}: not UTF-8; save the file as UTF-8") from None


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user has trusted the present content of a working directory's settings file."""
    return trusted_files().get(_place(file)) == _digest(content)


def was_trusted(file: Path) -> bool:
    """Return whether the user has trusted this file, with its present or an earlier content."""
    return _place(file) in trusted_files()


def trusted_files() -> dict[str, str]:
    """Return the list of trusted files: place -> SHA-256 of the trusted content."""
    path = trust_file()
    content = read_bytes(path)
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigurationError(f"{path} was not written by semlex; delete it, and trust the folders again")
    return found


def trust(folder: Path) -> list[Path]:
    """Trust the settings files of a folder as they are now; return their paths."""
    own = folder.resolve() / FOLDER_FILE
    found: dict[Path, bytes] = {}
    if own.is_file():
        found[own] = read_bytes(own)
        parse(own, found[own])
    project = folder.resolve() / PROJECT_FILE
    if (table := project_table(project)) is not None:
        found[project] = as_bytes(table)
    if not found:
        raise ConfigurationError(
            f"neither {own} nor a {PROJECT_FILE} with a table [tool.semlex] exists; name the folder that holds one"
        )
    _write_trusted(trusted_files() | {_place(file): _digest(content) for file, content in found.items()})
    return list(found)


def untrust(folder: Path) -> bool:
    """Stop trusting the settings files of a folder; return whether any of them was trusted."""
    found = trusted_files()
    places = {_place(folder.resolve() / name) for name in (FOLDER_FILE, PROJECT_FILE)} & found.keys()
    if places:
        _write_trusted({place: digest for place, digest in found.items() if place not in places})
    return bool(places)


def trust_file() -> Path:
    """Return the path of the list of trusted files."""
    return own_file().with_name("trusted.json")


def _place(file: Path) -> str:
    return str(file.parent.resolve() if file.name == FOLDER_FILE else file.parent.resolve() / file.name)


def _write_trusted(places: dict[str, str]) -> None:
    path = trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with whole_file(path) as file:
            json.dump(places, file, indent=2, sort_keys=True)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}; let {OWN_FILE_VARIABLE} name a settings file elsewhere"
        ) from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
