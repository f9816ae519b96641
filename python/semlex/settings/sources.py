"""Where settings stand: arguments, the environment, files; each gives what it says, place by place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from semlex.settings import files, foreign
from semlex.settings.files import FOLDER_FILE, JSON_SUFFIX, PROJECT_FILE
from semlex.settings.table import NAMED, OTHER_PREFIXES, OTHER_VARIABLES, PREFIX, SECTIONS, SETTINGS
from semlex.settings.values import ARGUMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = re.compile(r"(api_?key|passwo?r?d|passwd|secret|token)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A value of a source, or what is wrong in its place.

    Attributes:
        name: The setting's; empty for a problem.
        value: As it stands there.
        origin: Who says it: ``argument``, a variable, a file.
        place: In a message, but for the line.
        key: Of a TOML file: its bytes, the table, and the key in it.
        folder_file: The working directory's file that it is from, and what is trusted of it.
        problem: What is wrong.
    """

    name: str
    value: object
    origin: str
    place: str
    key: tuple[bytes, str, str] | None = None
    folder_file: tuple[Path, bytes] | None = None
    problem: str | None = None

    @property
    def told_place(self) -> str:
        """The place with its line, where that can be told; looking for it takes time, so only in messages."""
        line = None if self.key is None else files.line_of(*self.key)
        return self.place if line is None else self.place.replace(f"{self.origin}:", f"{self.origin}:{line}:", 1)


def arguments(given: dict[str, object]) -> Iterator[Found]:
    """What a call or a command line says; None says nothing."""
    for name, value in given.items():
        if value is not None:
            yield _named(name, value, ARGUMENT, name, f"{name} is no setting{_nearest(name, list(NAMED))}")


def environment() -> Iterator[Found]:
    """Variables of all settings, those that go before others first; then those with our prefix that are none."""
    known: dict[str, str] = {}
    for setting in SETTINGS:
        for variable in setting.variables:
            known[variable] = setting.name
            if value := os.environ.get(variable):  # an empty one counts as not set
                is_foreign = setting.name == "embedding_model" and not variable.startswith(PREFIX)
                yield Found(setting.name, foreign.embedding_model(value) if is_foreign else value, variable, variable)
    for variable in sorted(os.environ):
        is_ours = variable.startswith(PREFIX) and not variable.startswith(OTHER_PREFIXES)
        if is_ours and variable not in known and variable not in OTHER_VARIABLES:
            names = [one.removeprefix(PREFIX) for one in (*OTHER_VARIABLES, *known) if one.startswith(PREFIX)]
            near = _nearest(variable.removeprefix(PREFIX), names, PREFIX)
            yield Found("", None, variable, variable, problem=f"{variable} is no setting{near}")


def folder_file(folder: Path) -> Iterator[Found]:
    """``semlex.toml`` of a working directory."""
    path = folder / FOLDER_FILE
    if path.resolve() != files.own_file().resolve():
        content = files.read_bytes(path)
        yield from _table(path, files.parse(path, content), content, "", (path, content))


def project_file(folder: Path) -> Iterator[Found]:
    """``[tool.semlex]`` of its ``pyproject.toml``."""
    path = folder / PROJECT_FILE
    table = files.project_table(path)
    if table is not None:
        yield from _table(path, table, files.read_bytes(path), "tool.semlex", (path, files.as_bytes(table)))


def own_file(notes: list[str]) -> Iterator[Found]:
    """The user's own settings file."""
    yield from named_file(files.own_file(), files.read_own_bytes(), notes)


def named_file(path: Path, content: bytes, notes: list[str]) -> Iterator[Found]:
    """A settings file that the user has named: TOML, or JSON with a ``rag`` section."""
    if path.suffix.lower() == JSON_SUFFIX:
        yield from _json(path, files.parse_json(path, content), notes)
    else:
        yield from _table(path, files.parse(path, content), content, "", None)


def _table(
    path: Path, table: dict[str, Any], content: bytes, above: str, folder_file: tuple[Path, bytes] | None
) -> Iterator[Found]:
    """The settings of a TOML file, at its top and in its sections."""
    stands: dict[str, str] = {}

    def found(section: str, key: str, value: object) -> Found:
        shown = f"[{section}] {key}" if section else key
        within = ".".join(filter(None, (above, section)))
        made = Found("", value, str(path), f"{path}: {shown}", (content, within, key), folder_file)
        setting = SECTIONS[section].get(key) if section else NAMED.get(key)
        if setting is None and not section and key in SECTIONS:
            problem = f" is a section: write [{key}], and below it NAME = VALUE"
        elif setting is None:
            problem = f" is no setting{_elsewhere(section, key)}"
        elif (other := stands.setdefault(setting.name, shown)) != shown:
            problem = f" says what {other} says already; leave one of both out"
        else:
            return replace(made, name=setting.name)
        return replace(made, value=None, problem=made.told_place + problem)

    for key, value in table.items():
        if key in SECTIONS and isinstance(value, dict):
            for name, inner in value.items():
                yield found(key, name, inner)
        else:
            yield found("", key, value)


def _json(path: Path, table: Any, notes: list[str]) -> Iterator[Found]:
    """The settings of a JSON file: its ``rag`` section; other sections belong to other programs."""
    section = table.get(foreign.SECTION) if isinstance(table, dict) else None
    if not isinstance(section, dict):
        if table:
            problem = (
                f'{path}: there is no section "{foreign.SECTION}"; settings stand in {{"{foreign.SECTION}": {{…}}}}'
            )
            yield Found("", None, str(path), str(path), problem=problem)
        return
    stands: dict[str, str] = {}
    about: list[str] = []
    try:
        for key, name, value in foreign.rag_section(section, about):
            place = f"{path}: {foreign.SECTION}.{key}"
            if name is None:
                known = list(foreign.QA_KEYS if key.startswith("qa.") else foreign.RAG_KEYS)
                near = _nearest(key.removeprefix("qa."), known, "qa." if key.startswith("qa.") else "")
                yield Found("", None, str(path), place, problem=f"{place} is no setting{near}")
            elif (other := stands.setdefault(name, key)) != key:
                said = f"{place} says what {foreign.SECTION}.{other} says already; leave one of both out"
                yield Found("", None, str(path), place, problem=said)
            else:
                yield Found(name, value, str(path), place)
    except ValueError as error:
        yield Found("", None, str(path), str(path), problem=f"{path}: {foreign.SECTION}.{error}")
    notes += [f"{path}: {foreign.SECTION}.{note}" for note in about]


def _named(name: str, value: object, origin: str, place: str, problem: str) -> Found:
    return Found(name, value, origin, place) if name in NAMED else Found("", None, origin, place, problem=problem)


def _elsewhere(section: str, key: str) -> str:
    """Ends the sentence about a name that is none where it stands in a TOML file."""
    known = [one for one, names in SECTIONS.items() if key in names]
    if section and known:
        return f" of this section; it stands in [{known[0]}]"
    if not section and known:
        return f" outside a section; write [{known[0]}], and below it {key} = …"
    names = list(SECTIONS[section]) if section else [*NAMED, *SECTIONS]
    return _nearest(key, names)


def _nearest(name: str, names: list[str], prefix: str = "") -> str:
    """Ends the sentence about a name that is none."""
    if SECRET.search(name) and not get_close_matches(name, names, 1, cutoff=0.85):
        if re.search(r"passw", name, re.IGNORECASE):
            return "; a password stands in the database's address, in PGPASSWORD or in a file that PGPASSFILE names"
        keys = ", ".join(one for one in OTHER_VARIABLES if one.endswith("_KEY"))
        return f"; keys come from the environment only: {keys}"
    near = get_close_matches(name, names, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else "; all settings: semlex config show"
