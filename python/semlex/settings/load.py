"""Settings of the command line, and where each comes from.

An argument goes before the environment, that before ``semlex.toml`` of the working directory, that before the user's
own settings file, that before what is built in. A setting that says where texts or data go is taken from a working
directory only when its user has trusted it (see `semlex.settings.files`).
"""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import ConfigurationError
from semlex.models.model_names import leads_to
from semlex.settings import files
from semlex.settings.files import FOLDER_FILE, OWN_FILE_VARIABLE, model_names
from semlex.types.reports.query_log import QueryLogMode, keeps_questions, query_log_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "SEMLEX_"
ARGUMENT, BUILT_IN = "argument", "built in"
# Variables that are no settings: keys, and where the own settings file is.
OTHER_VARIABLES = {
    "SEMLEX_EMBEDDING_API_KEY": "key of an embedding model behind an address",
    "SEMLEX_RERANKER_API_KEY": "key of a reranker behind an address",
    "SEMLEX_CHAT_API_KEY": "key of a language model behind an address",
    "SEMLEX_LLM_MODEL": "language model for the reranker 'auto'",
    OWN_FILE_VARIABLE: "your own settings file",
}
# Of programs that develop semlex.
OTHER_PREFIXES = ("SEMLEX_BENCH_", "SEMLEX_TEST_")
SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line needs to know.

    Attributes:
        database_url: Server to use, with its secrets; none means the embedded Postgres.
        data_dir: Folder for semlex's data on this machine; the embedded Postgres lives in ``postgres`` below it.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        schema_name: Schema that holds semlex's tables; the setting is called ``schema``.
        collection: Collection to work on.
        embedding_model: Name or folder of a model, ``static``, ``none``, or nothing for the best at hand.
        models: Models behind servers or in folders that a collection may name.
        reranker_model: Name or folder of a reranker.
        use_reranking: Whether to rerank.
        chat_model: Name of a language model behind a server, which writes answers.
        enrichment_model: Name of one that writes a line about each chunk; nothing is sent before somebody agrees.
        device: Where local models run: ``mps``, ``cuda`` or ``cpu``.
        dimensions: Length of the vectors.
        tokenizer: Path of the tokenizer of a model behind a server.
        calibration: File of a calibration, in place of the one that the collection has stored.
        vector_storage: ``vector`` or ``halfvec``, of new collections.
        language: Language of new collections.
        keyword: Keyword engine of new collections.
        stop_words: Whether new collections leave out of their keyword index the words that every text has.
        chunk_tokens: Most tokens of a chunk.
        overlap_tokens: Most tokens that neighbouring chunks share.
        min_tokens: Sections with fewer tokens are joined with the next one.
        query_log: What is kept of questions: ``off``, ``hash`` or ``text``.
        origins: Where each setting comes from, by its name.
    """

    database_url: str | None = field(default=None, repr=False)
    data_dir: Path | None = None
    keep_alive: float = 300.0
    schema_name: str = "semlex"
    collection: str = "default_collection"
    embedding_model: str | None = None
    models: tuple[str, ...] = ()
    reranker_model: str | None = None
    use_reranking: bool | Literal["auto"] = "auto"
    chat_model: str | None = None
    enrichment_model: str | None = None
    device: str | None = None
    dimensions: int | None = None
    tokenizer: str | None = None
    calibration: Path | None = None
    vector_storage: Literal["vector", "halfvec"] = "vector"
    language: str = "english"
    keyword: str = "bm25"
    stop_words: bool = True
    chunk_tokens: int = 500
    overlap_tokens: int = 50
    min_tokens: int = 32
    query_log: QueryLogMode = "off"
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str | None:
        """Address of the server with its secrets, or None for the embedded Postgres."""
        return self.database_url

    @property
    def server_folder(self) -> Path | None:
        """Folder of the embedded Postgres: the same that the library takes for the same SEMLEX_DATA_DIR."""
        return None if self.data_dir is None else self.data_dir / "postgres"

    def is_set(self, name: str) -> bool:
        """Whether somebody has set it: an argument, the environment, or a file."""
        return name in self.origins

    @property
    def retriever_options(self) -> dict[str, Any]:
        """What a retriever is made with, by its parameters' names.

        What the command line says about the collection is an argument and refused where the collection is another;
        what the environment and files say is the default of new collections.
        """
        said: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.of_collection and setting.name in self.origins:
                (said if self.origins[setting.name] == ARGUMENT else defaults)[setting.name] = self.value(setting)
        models = ("models", "reranker_model", "use_reranking", "chat_model", "device", "calibration", "query_log")
        return (
            {name: getattr(self, name) for name in models}
            | said
            | {
                "defaults": defaults,
                "db_url": self.url,
                "data_folder": self.server_folder if self.url is None else None,
                "keep_alive": self.keep_alive,
                "schema": self.schema_name,
                "collection": self.collection,
            }
        )

    def value(self, setting: Setting) -> Any:
        """The value of a setting of the table."""
        return getattr(self, setting.attribute)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: As in a file; its variable is ``SEMLEX_`` and the same in capitals.
        read: Turns a text, or a value of a file, into the setting's own; `ValueError` says what it must be.
        what: What it is, in a few words.
        of_collection: Whether it is decided when a collection is made.
        leads_away: Whether a value says where texts or data go, or what is loaded from a path.
        attribute: Its name in `Settings`.
    """

    name: str
    read: Callable[[Any], Any]
    what: str
    of_collection: bool = False
    leads_away: Callable[[Any], bool] = lambda _value: False
    attribute: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.attribute or self.name)

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the first that is set counts."""
        own = f"{PREFIX}{self.name.upper()}"
        return (own, "DATABASE_URL") if self.name == "database_url" else (own,)


def load_settings(**arguments: object) -> Settings:
    """The settings, with the given arguments in front; arguments that are None are left to the other sources.

    Raises:
        ConfigurationError: A name is unknown, a value is refused, a file cannot be read, or a folder is not trusted.
            The message says where the setting stands.
    """
    settings, problems = read_settings(**arguments)
    if problems:
        raise ConfigurationError("; ".join(problems))
    return settings


def read_settings(**arguments: object) -> tuple[Settings, list[str]]:
    """The settings as far as they can be used, and what is wrong with the others."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    seen: set[str] = set()
    sources: tuple[Callable[[], Iterator[_Found]], ...] = (
        lambda: _arguments(arguments),
        _environment,
        _folder_file,
        _own_file,
    )
    for source in sources:
        try:
            for found in source():
                setting = _NAMED.get(found.name)
                if setting is None:
                    problems.append(f"{found.place} is no setting{_nearest(found)}")
                elif found.name not in seen:
                    seen.add(found.name)
                    try:
                        value = setting.read(found.value)
                        _check_trust(setting, value, found)
                        values[setting.attribute], origins[found.name] = value, found.origin
                    except ConfigurationError as error:
                        problems.append(str(error))
                    except ValueError as error:
                        problems.append(f"{found.place} {error}")
        except ConfigurationError as error:  # of a whole file, or of the path to one, which two sources need
            problems += [str(error)] if str(error) not in problems else []
    return Settings(**values, origins=origins), problems


# --- where settings stand ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """A value: the setting's name, who says it, its place in a message, and the working directory's file it is from."""

    name: str
    value: object
    origin: str
    place: str
    file: bytes | None = None


def _arguments(given: dict[str, object]) -> Iterator[_Found]:
    for name, value in given.items():
        if value is not None:
            yield _Found(name, value, ARGUMENT, name)


def _environment() -> Iterator[_Found]:
    known = {variable: setting.name for setting in SETTINGS for variable in setting.variables}
    for variable, name in known.items():
        if os.environ.get(variable):  # an empty one counts as not set
            yield _Found(name, os.environ[variable], variable, variable)
    for variable in sorted(os.environ):
        is_ours = variable.startswith(PREFIX) and not variable.startswith(OTHER_PREFIXES)
        if is_ours and variable not in known and variable not in OTHER_VARIABLES:
            yield _Found(variable, None, variable, variable)


def _folder_file() -> Iterator[_Found]:
    path = Path.cwd() / FOLDER_FILE
    if path.resolve() != files.own_file().resolve():
        content = files.read_bytes(path)
        for name, value in files.parse(path, content).items():
            yield _Found(name, value, str(path), f"{path}: {name}", content)


def _own_file() -> Iterator[_Found]:
    path = files.own_file()
    for name, value in files.read_own_file().items():
        yield _Found(name, value, str(path), f"{path}: {name}")


def _check_trust(setting: Setting, value: object, found: _Found) -> None:
    """Refuses what leads away when it stands in a working directory that is not trusted."""
    if found.file is None or not setting.leads_away(value):
        return
    folder = Path(found.origin).parent.resolve()
    if files.is_trusted(folder, found.file):
        return
    known = str(folder) in files.trusted_folders()
    why = "the file has changed since its folder was trusted" if known else "its folder is not trusted"
    raise ConfigurationError(
        f"{found.place} decides where texts or data go, and {why}; look at the file, and if you agree: "
        f"semlex config trust {shlex.quote(str(folder))}"
    )


def _nearest(found: _Found) -> str:
    """Ends the sentence about a name that is none."""
    if found.name.lower().endswith("api_key"):
        return "; keys come from the environment only: " + ", ".join(v for v in OTHER_VARIABLES if v.endswith("_KEY"))
    prefix, names = "", list(_NAMED)
    if found.origin == found.name:
        variables = [*OTHER_VARIABLES, *(variable for setting in SETTINGS for variable in setting.variables)]
        prefix, names = PREFIX, [variable.removeprefix(PREFIX) for variable in variables]
    near = get_close_matches(found.name.removeprefix(prefix), names, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else "; all settings: semlex config"


# --- readers ----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text, between quotes")  # noqa: TRY004 - one kind of error for all readers
    return value


def _folder(value: Any) -> Path:
    try:
        return (value if isinstance(value, Path) else Path(_text(value))).expanduser()
    except RuntimeError:
        raise ValueError(f"begins with the home of a user that does not exist; got {_shown(str(value))}") from None


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    raise ValueError(f"must be a whole number; got {_shown(value)}")


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if isinstance(value, bool) or not 0 <= seconds < math.inf:
        raise ValueError(f"must be a number of seconds, at least 0; got {_shown(value)}")
    return seconds


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError(f"must be true or false; got {_shown(value)}")
    return known[value.lower()]


def _reranking(value: Any) -> bool | Literal["auto"]:
    if value == "auto":
        return "auto"
    try:
        return _switch(value)
    except ValueError:
        raise ValueError(f"must be true, false or auto; got {_shown(value)}") from None


def _storage(value: Any) -> str:
    if value not in ("vector", "halfvec"):
        raise ValueError(f"must be vector or halfvec; got {_shown(value)}")
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(model_names(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _always(_value: object) -> bool:
    return True


def _elsewhere(name: str) -> bool:
    return leads_to(name) is not None


SETTINGS = (
    Setting("database_url", _text, "server to use; none: the embedded Postgres", leads_away=_always),
    Setting("data_dir", _folder, "folder of the embedded Postgres's data", leads_away=_always),
    Setting("keep_alive", _seconds, "seconds for which the embedded Postgres stays after its last user"),
    Setting("schema", _text, "schema of semlex's tables", attribute="schema_name"),
    Setting("collection", _text, "collection to work on"),
    Setting(
        "embedding_model", _text, "model for vectors, of new collections", of_collection=True, leads_away=_elsewhere
    ),
    Setting("models", _names, "models elsewhere that a collection may name", leads_away=_always),
    Setting("reranker_model", _text, "reranker", leads_away=_elsewhere),
    Setting("use_reranking", _reranking, "whether to rerank"),
    Setting("chat_model", _text, "language model that writes answers", leads_away=_elsewhere),
    Setting("enrichment_model", _text, "language model that writes lines about chunks", leads_away=_elsewhere),
    Setting("device", _text, "where local models run: mps, cuda or cpu"),
    Setting("dimensions", _whole, "length of the vectors, of new collections", of_collection=True),
    Setting(
        "tokenizer",
        _text,
        "tokenizer.json of a model behind a server, of new collections",
        of_collection=True,
        leads_away=_always,
    ),
    Setting("calibration", _folder, "file of a calibration, instead of the stored one", leads_away=_always),
    Setting("vector_storage", _storage, "vector or halfvec, of new collections", of_collection=True),
    Setting("language", _text, "language of new collections", of_collection=True),
    Setting("keyword", _text, "keyword engine of new collections", of_collection=True),
    Setting("stop_words", _switch, "whether new collections leave out stop words", of_collection=True),
    Setting("chunk_tokens", _whole, "most tokens of a chunk, in new collections", of_collection=True),
    Setting("overlap_tokens", _whole, "most tokens that neighbours share, in new collections", of_collection=True),
    Setting("min_tokens", _whole, "smaller sections are joined with the next, in new collections", of_collection=True),
    Setting("query_log", query_log_mode, "what is kept of questions: off, hash or text", leads_away=keeps_questions),
)
_NAMED = {setting.name: setting for setting in SETTINGS}
