"""The sources of settings, read in order of precedence, with the value and origin of each setting.

An argument takes precedence over the environment, then ``semlex.toml`` and ``pyproject.toml`` of the working directory,
the user's own settings file, and the defaults. A working directory must be trusted to set where texts or data go (see
`semlex.settings.files`). A user's file may be JSON that other programs use; then only its ``rag`` section is read:

    {"rag": {"embeddingModel": "text-embedding-3-small", "topK": 5, "hybridSearchWeight": 0.7, …}}

Some keys of a ``rag`` section together make one setting: `rag_section` combines them, and notes which have no effect.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from semlex.errors import ConfigurationError
from semlex.models.model_names import scheme_of
from semlex.settings import files
from semlex.settings.files import FOLDER_FILE, PROJECT_FILE, is_trusted, trust_file, was_trusted
from semlex.settings.table import (
    ARGUMENT,
    FOREIGN_PREFIX,
    JSON_KEYS,
    JSON_SUFFIX,
    NAMED,
    OTHER_PREFIXES,
    OTHER_VARIABLES,
    PREFIX,
    SECTIONS,
    SETTINGS,
    Overridden,
    Setting,
    Settings,
    model_names,
    one_of,
    switch,
    text,
)


def load_settings(file: Path | None = None, folder: Path | None = None, /, **arguments: object) -> Settings:
    """Return the settings; `arguments` take precedence over other sources, unless they are None."""
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
    seen: dict[str, int] = {}  # setting -> number of the first source that sets it
    working = Path.cwd() if folder is None else folder
    for number, source in enumerate(_sources(file, working, arguments, notes)):
        try:
            for found in source():
                if isinstance(found, str):
                    problems.append(found)
                elif found.name in seen:
                    overridden[found.name] = (*overridden.get(found.name, ()), Overridden(found.origin, found.value))
                else:
                    seen[found.name] = number
                    _take(NAMED[found.name], found, values, origins, problems)
        except ConfigurationError as error:  # a file cannot be read; two sources may report the same one
            problems += [str(error)] if str(error) not in problems else []
    if "database_url" in origins and "data_dir" in origins and seen["data_dir"] < seen["database_url"]:
        # A folder from a source of higher precedence means the embedded Postgres in this folder.
        lost = Overridden(origins.pop("database_url"), values.pop("database_url"))
        overridden["database_url"] = (lost, *overridden.get("database_url", ()))
    server = libpq_server()
    if server is not None and not seen.keys() & {"database_url", "data_dir"}:
        origins["database_url"], values["database_url"] = server
    notes += [f"{variable} is not read; did you mean {near}?" for variable, near in similar_variables()]
    read = Settings(
        **values, origins=origins, overridden=overridden, notes=tuple(notes), files=decisive_files(file, working)
    )
    return read, problems


def named_models() -> list[str]:
    """Return the models that the user named in ``SEMLEX_MODELS`` and in the user's own settings file."""
    found = [one.value for one in from_own_file([]) if isinstance(one, Found) and one.name == "models"]
    values = [os.environ.get(NAMED["models"].variables[0], ""), *found]
    return [name for value in values for name in model_names(value)]


def _sources(
    file: Path | None, folder: Path, arguments: dict[str, object], notes: list[str]
) -> tuple[Callable[[], Iterator[Found | str]], ...]:
    first = (lambda: from_arguments(arguments), from_environment)
    if file is not None:
        return (*first, lambda: from_named_file(file, _content(file), notes))
    return (*first, lambda: from_folder_file(folder), lambda: from_project_file(folder), lambda: from_own_file(notes))


def _content(file: Path) -> bytes:
    if not file.exists():
        raise ConfigurationError(f"the settings file {file} does not exist; name one that exists")
    return files.read_bytes(file)


def decisive_files(file: Path | None, folder: Path) -> tuple[Path, ...]:
    """Return the files from which settings are read if they exist, in order of precedence."""
    if file is not None:
        return (file,)
    found = (folder / FOLDER_FILE, folder / PROJECT_FILE)
    try:
        return (*found, files.own_file(), trust_file())
    except ConfigurationError:  # `read_settings` reports it
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
    """The settings in force after a reload, the problems of refused ones, and the names of settings that changed."""

    settings: Settings
    problems: tuple[str, ...]
    changed: tuple[str, ...]


class WatchedSettings:
    """Settings of a running program; `has_changed` tells when to call `reload`. Safe for several threads.

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


SECRET = re.compile(r"(api_?key|passwo?r?d|passwd|secret|token)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A value of a setting from one source."""

    name: str  # of the setting
    value: object  # as the source has it, unread
    origin: str  # ``argument``, a variable, or a file
    place: str  # in a message, without the line
    key: tuple[bytes, str, str] | None = None  # of a TOML file: its bytes, the table, and the key in it
    # a file of the working directory, and the bytes whose digest the user must trust
    folder_file: tuple[Path, bytes] | None = None

    @property
    def told_place(self) -> str:
        """Return the place with its line, if known; finding the line takes time, so call it only for messages."""
        line = None if self.key is None else files.line_of(*self.key)
        return self.place if line is None else self.place.replace(f"{self.origin}:", f"{self.origin}:{line}:", 1)


# Each source yields the settings that it sets, and messages about what it cannot set.
def from_arguments(given: dict[str, object]) -> Iterator[Found | str]:
    """Yield the settings of a call or a command line; arguments that are None are left out."""
    for name, value in given.items():
        if name not in NAMED and value is not None:
            yield f"{name} is not a setting{_nearest(name, list(NAMED))}"
        elif value is not None:
            yield Found(name, value, ARGUMENT, name)


def from_environment() -> Iterator[Found | str]:
    """Yield the settings of environment variables by precedence, then messages on unknown variables of semlex."""
    known: dict[str, str] = {}
    for setting in SETTINGS:
        for variable in setting.variables:
            known[variable] = setting.name
            if value := os.environ.get(variable):  # an empty one counts as not set
                is_foreign = setting.name == "embedding_model" and not variable.startswith(PREFIX)
                yield Found(setting.name, embedding_model(value) if is_foreign else value, variable, variable)
    for variable in sorted(os.environ):
        is_ours = variable.startswith(PREFIX) and not variable.startswith(OTHER_PREFIXES)
        if is_ours and variable not in known and variable not in OTHER_VARIABLES:
            names = [one.removeprefix(PREFIX) for one in (*OTHER_VARIABLES, *known) if one.startswith(PREFIX)]
            yield f"{variable} is not a setting{_nearest(variable.removeprefix(PREFIX), names, PREFIX)}"


def from_folder_file(folder: Path) -> Iterator[Found | str]:
    """Yield the settings of a working directory's ``semlex.toml``."""
    path = folder / FOLDER_FILE
    if path.resolve() != files.own_file().resolve():
        content = files.read_bytes(path)
        yield from _table(path, files.parse(path, content), content, "", (path, content))


def from_project_file(folder: Path) -> Iterator[Found | str]:
    """Yield the settings of the table ``[tool.semlex]`` of a working directory's ``pyproject.toml``."""
    path = folder / PROJECT_FILE
    table = files.project_table(path)
    if table is not None:
        yield from _table(path, table, files.read_bytes(path), "tool.semlex", (path, files.as_bytes(table)))


def from_own_file(notes: list[str]) -> Iterator[Found | str]:
    """Yield the settings of the user's own file."""
    yield from from_named_file(files.own_file(), files.read_own_bytes(), notes)


def from_named_file(path: Path, content: bytes, notes: list[str]) -> Iterator[Found | str]:
    """Yield the settings of a file that the user has named: TOML, or JSON with a ``rag`` section."""
    if path.suffix.lower() == JSON_SUFFIX:
        yield from _json(path, files.parse_json(path, content), notes)
    else:
        yield from _table(path, files.parse(path, content), content, "", None)


def _table(
    path: Path, table: dict[str, Any], content: bytes, above: str, folder_file: tuple[Path, bytes] | None
) -> Iterator[Found | str]:
    """Yield the settings of a TOML file, from its top level and its sections."""
    stands: dict[str, str] = {}

    def found(section: str, key: str, value: object) -> Found | str:
        shown = f"[{section}] {key}" if section else key
        within = ".".join(filter(None, (above, section)))
        setting = SECTIONS[section].get(key) if section else NAMED.get(key)
        name = "" if setting is None else setting.name
        made = Found(name, value, str(path), f"{path}: {shown}", (content, within, key), folder_file)
        if not name and not section and key in SECTIONS:
            return f"{made.told_place} is a section: write [{key}], and below it NAME = VALUE"
        if not name:
            return f"{made.told_place} is not a setting{_elsewhere(section, key)}"
        if (other := stands.setdefault(name, shown)) != shown:
            return f"{made.told_place} and {other} are the same setting; remove one of them"
        return made

    for key, value in table.items():
        if key in SECTIONS and isinstance(value, dict):
            for name, inner in value.items():
                yield found(key, name, inner)
        else:
            yield found("", key, value)


def _json(path: Path, table: Any, notes: list[str]) -> Iterator[Found | str]:
    """Yield the settings of a JSON file: its ``rag`` section; other sections belong to other programs."""
    section = table.get(RAG_SECTION) if isinstance(table, dict) else None
    if not isinstance(section, dict):
        if table:
            yield f'{path}: the section "{RAG_SECTION}" is missing; settings belong in {{"{RAG_SECTION}": {{…}}}}'
        return
    stands: dict[str, str] = {}
    about: list[str] = []
    try:
        for key, name, value in rag_section(section, about):
            place = f"{path}: {RAG_SECTION}.{key}"
            if name is None:
                known, prefix = (QA_KEYS, "qa.") if key.startswith("qa.") else (RAG_KEYS, "")
                yield f"{place} is not a setting{_nearest(key.removeprefix(prefix), list(known), prefix)}"
            elif (other := stands.setdefault(name, key)) != key:
                yield f"{place} and {RAG_SECTION}.{other} are the same setting; remove one of them"
            else:
                yield Found(name, value, str(path), place)
    except ValueError as error:
        yield f"{path}: {RAG_SECTION}.{error}"
    notes += [f"{path}: {RAG_SECTION}.{note}" for note in about]


def _elsewhere(section: str, key: str) -> str:
    for known, names in SECTIONS.items():
        if key in names:
            return (
                f" of this section; it belongs in [{known}]"
                if section
                else f" outside a section; write [{known}], and below it {key} = …"
            )
    return _nearest(key, list(SECTIONS[section]) if section else [*NAMED, *SECTIONS])


def _nearest(name: str, names: list[str], prefix: str = "") -> str:
    if SECRET.search(name) and not get_close_matches(name, names, 1, cutoff=0.85):
        if re.search(r"passw", name, re.IGNORECASE):
            return "; a password belongs in the database's address, in PGPASSWORD or in a file that PGPASSFILE names"
        keys = ", ".join(one for one in OTHER_VARIABLES if one.endswith("_KEY"))
        return f"; keys come from the environment only: {keys}"
    near = get_close_matches(name, names, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else "; all settings: semlex config show"


RAG_SECTION = "rag"
# Names that only models of a provider have -> the prefix that semlex uses for the provider.
_PROVIDERS = (
    (re.compile(r"text-embedding-(3-\w+|ada-002)"), "openai:"),
    (re.compile(r"(models/)?(gemini-embedding-[\w.-]+|text-embedding-004)"), "gemini:"),
)
_SWITCHES = ("hybridSearchEnabled", "contextualEnrichmentEnabled", "adaptiveRoutingEnabled")
_TEXTS = ("rerankerProvider", "adaptiveRoutingModel")
RAG_KEYS = (*JSON_KEYS, *_SWITCHES, *_TEXTS, "qa")
QA_KEYS = ("model", "temperature")
# rerankerProvider -> the prefix of rerankerModel.
_RERANKERS = {"cohere": "cohere:", "jina": "jina:", "cross-encoder": "cross-encoder:", "local": ""}
_PROVIDER = one_of("auto", "none", "llm", *_RERANKERS)
# Variables by which libpq finds its server -> the keyword of the same meaning in an address.
SERVER_VARIABLES = {"PGSERVICE": "service", "PGHOST": "host", "PGHOSTADDR": "hostaddr"}


def embedding_model(name: Any) -> Any:
    """Return a model's name in semlex's form; only names of known providers change."""
    for pattern, account in _PROVIDERS:
        if isinstance(name, str) and (found := pattern.fullmatch(name)):
            return account + (found[2] if found.re.groups > 1 else name)
    return name


def chat_model(name: Any) -> Any:
    """Return a language model's name in semlex's form; a bare ``VENDOR/MODEL`` is a model of OpenRouter."""
    is_bare = isinstance(name, str) and "/" in name and not scheme_of(name) and "://" not in name
    return f"openrouter:{name}" if is_bare else name


# The last source of an address, because these variables are set for all programs, not for semlex.
def libpq_server() -> tuple[str, str] | None:
    """Return the server that libpq's own variables name, as variable and address, or None."""
    for variable, keyword in SERVER_VARIABLES.items():
        if value := os.environ.get(variable):
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            return variable, f"{keyword}='{quoted}'"
    return None


def similar_variables() -> Iterator[tuple[str, str]]:
    """Yield variables that look like a setting but are not read, with the probably intended one.

    Other programs use the same prefix, so these are not errors.
    """
    known = {variable for setting in SETTINGS for variable in setting.others if variable.startswith(FOREIGN_PREFIX)}
    bare = {variable.replace("_", ""): variable for variable in known}
    for variable in sorted(os.environ):
        if variable.startswith(FOREIGN_PREFIX) and variable not in known:
            for near in get_close_matches(variable.replace("_", ""), bare, 1, cutoff=0.8):
                yield variable, bare[near]


def rag_section(table: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield the entries of a ``rag`` section: key, name of the setting (None if unknown), value."""
    given = {key: value for key, value in table.items() if value is not None}
    together = {"rerankerModel", "contextualEnrichmentModel", "enrichmentModel", "qa", *_SWITCHES, *_TEXTS}
    for key, value in given.items():
        if key not in together:
            setting = JSON_KEYS.get(key)
            is_model = setting is not None and setting.name == "embedding_model"
            is_chat = setting is not None and setting.name == "chat_model"
            read = embedding_model(value) if is_model else chat_model(value) if is_chat else value
            yield key, None if setting is None else setting.name, read
    if not _switched(given, "hybridSearchEnabled", default=True):
        yield "hybridSearchEnabled", "mode", "vector"
    yield from _reranker(given, notes)
    is_enriched = _switched(given, "contextualEnrichmentEnabled", default=True)
    for key in ("contextualEnrichmentModel", "enrichmentModel"):
        if key in given and is_enriched:
            yield key, "enrichment_model", chat_model(given[key])
        elif key in given:
            notes.append(f"{key} has no effect: contextualEnrichmentEnabled is false")
    yield from _answers(given, notes)


def _reranker(given: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str, Any]]:
    model = _checked(given, "rerankerModel", text)
    provider = _checked(given, "rerankerProvider", _PROVIDER)
    if provider is None:
        if model is not None:
            yield "rerankerModel", "reranker_model", model
    elif provider == "none":
        yield "rerankerProvider", "reranker_model", "none"
        if model is not None:
            notes.append("rerankerModel has no effect: rerankerProvider is none")
    elif provider == "auto":
        yield "rerankerProvider", "reranker_model", "auto" if model is None else f"auto:{chat_model(model)}"
    elif provider == "llm":
        if model is None:
            raise ValueError("rerankerProvider is llm, so rerankerModel must name a language model")
        named = str(chat_model(model))
        yield "rerankerModel", "reranker_model", f"llm{'+' if '://' in named else ':'}{named}"
    elif model is None and provider != "cohere":
        raise ValueError(f"rerankerProvider is {provider}, so rerankerModel must name its model")
    else:
        front = _RERANKERS[provider]
        yield "rerankerModel", "reranker_model", "cohere" if model is None else f"{front}{model}"


def _answers(given: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str | None, Any]]:
    qa = given.get("qa", {})
    if not isinstance(qa, dict):
        raise ValueError("qa must be an object")  # noqa: TRY004 - one kind of error for all readers
    for key, value in qa.items():
        if key == "model" and value is not None:
            yield "qa.model", "chat_model", chat_model(value)
        elif key == "temperature":
            if value not in (None, 0):
                notes.append("qa.temperature has no effect: language models are asked with temperature 0")
        elif key != "model":
            yield f"qa.{key}", None, value
    model = given.get("adaptiveRoutingModel")
    if _switched(given, "adaptiveRoutingEnabled", default=False):
        yield "adaptiveRoutingEnabled", "route", "rules" if model is None else "chat"
        answers = qa.get("model", given.get("chatModel"))
        if model is not None and chat_model(model) != chat_model(answers):
            raise ValueError("adaptiveRoutingModel must equal qa.model: one language model is used for both")
    elif model is not None:
        notes.append("adaptiveRoutingModel has no effect: adaptiveRoutingEnabled is not true")


def _switched(given: dict[str, Any], key: str, *, default: bool) -> bool:
    found = _checked(given, key, switch)
    return default if found is None else bool(found)


def _checked(given: dict[str, Any], key: str, read: Any) -> Any:
    if key not in given:
        return None
    try:
        return read(given[key])
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None
