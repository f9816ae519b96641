"""Options of commands: shared options, flags made from declarations, and how values are read and completed."""

from __future__ import annotations

import inspect
import math
import re
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from semlex.cli.terminal import messages
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from semlex.filters.tree import FilterTree
    from semlex.options.declare import Declared
    from semlex.retriever.synchronous import SyncClient, SyncCollection
    from semlex.settings.table import Settings

INT, SECONDS, NUMBER = "INT", "SECONDS", "NUMBER"
COMMON = "Common options"


def reader(
    kind: Callable[[Any], Any], must: str, is_allowed: Callable[[Any], bool] = lambda _: True
) -> Callable[[Any], Any]:
    """Return a parser that applies `kind`; if `kind` or `is_allowed` fails, the error is "must be MUST; got …"."""

    def read(text: Any) -> Any:
        with suppress(ValueError):
            value = kind(text)
            if is_allowed(value):
                return value
        raise typer.BadParameter(f"must be {must}; got {text!r}")

    return read


whole_number = reader(int, "a whole number")
number = reader(float, "a number")


def whole_number_between(minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """Return a parser for whole numbers with bounds."""
    bounds = f"of at least {minimum:,}" if maximum is None else f"between {minimum:,} and {maximum:,}"
    return reader(
        int, f"a whole number {bounds}", lambda value: minimum <= value and (maximum is None or value <= maximum)
    )


seconds = reader(float, "a number of seconds, at least 0", lambda value: 0 <= value < math.inf)


def integer(text: str, *flags: str, between: tuple[int, ...] = (), **more: Any) -> Any:
    """Declare an option for a whole number; `between` are its bounds, if it has any."""
    parser = whole_number_between(*between) if between else whole_number
    return typer.Option(*flags, parser=parser, metavar=more.pop("metavar", INT), help=text, **more)


def duration(text: str, *flags: str, **more: Any) -> Any:
    """Declare an option that is a number of seconds."""
    return typer.Option(*flags, parser=seconds, metavar=SECONDS, help=text, **more)


def time_with_zone(option: str, text: str | None) -> datetime | None:
    """Read a time with its zone; None remains None."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.utcoffset() is None:
        raise ConfigurationError(f"{option} must be a time with its zone, such as 2026-12-24T18:00Z; got {text!a}")
    return time


def questions_of(words: Sequence[str], file: Path | None = None) -> list[str]:
    """Return the question made of the words, or the questions of a file, one per line."""
    if file is None and list(words) != ["-"]:
        return [" ".join(words)]
    file = Path("-") if file is None else file
    found = [line.strip() for line in read_lines(file)]
    if not found:
        place = "on standard input" if str(file) == "-" else f"in {file}"
        raise ConfigurationError(f"no question {place}: give one per line, or one after the command")
    return found


def without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options whose value is not None."""
    return {name: value for name, value in given.items() if value is not None}


def agree(question: str, *, yes: bool) -> None:
    """Ask before something is deleted, unless --yes is given; end the command if the answer is no."""
    if yes:
        return
    messages.print(f"{question} [y/N]: ", end="", markup=False)
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer:
        messages.print()
        raise ConfigurationError("no answer was given, so nothing was done: confirm with --yes")
    if answer.strip().lower() not in ("y", "yes"):
        raise typer.Abort


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file (``-``: of standard input), unchanged, without blank ones."""
    # Only a line feed ends a line: other line ends of Unicode may occur inside JSON.
    try:
        content = read_input() if str(path) == "-" else path.expanduser().read_bytes()
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        where = "standard input" if str(path) == "-" else str(path)
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{where} is not text in UTF-8, in line {line:,}: save it as UTF-8") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


def read_input() -> bytes:
    """Read all of standard input; nothing if it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def existing_paths(paths: list[Path]) -> list[Path]:
    """Return absolute paths; one that does not exist is refused before anything is opened or made."""
    from semlex.ingest.files.discovery import checked_paths

    return [path.resolve() for path in checked_paths(path.expanduser() for path in paths)]


# After this time, a key press completes nothing: the server has not answered.
LIMIT_SECONDS = 1.5


def collection_names(ctx: Any, incomplete: str) -> list[str]:
    """Return names of collections that begin with the typed text."""
    return _completed(ctx, incomplete, lambda client, _: (one.name for one in client.collections()))


def _of_collection(read: Callable[[SyncCollection], Iterable[str]]) -> Callable[[Any, str], list[str]]:
    """Return a completion function for names in the collection that begin with the typed text."""

    def names(ctx: Any, incomplete: str) -> list[str]:
        return _completed(ctx, incomplete, lambda client, settings: read(_collection(client, settings)))

    return names


source_names = _of_collection(lambda collection: (one.name for one in collection.documents.sources()))
field_names = _of_collection(lambda collection: (one.name for one in collection.fields.list()))
followed_names = _of_collection(lambda collection: (one.table.name for one in collection.tables.followed()))


def _collection(client: SyncClient, settings: Settings) -> SyncCollection:
    """Return the collection that the command line names, else the only one."""
    names = [one.name for one in client.collections()]
    return client.collection(
        names[0] if len(names) == 1 and not settings.is_set("collection") else settings.collection, create=False
    )


def _completed(ctx: Any, incomplete: str, read: Callable[[SyncClient, Settings], Iterable[str]]) -> list[str]:
    """Return completions that `read` gets from the command line's server; none if it does not reply in time."""
    from semlex.retriever import synchronous  # noqa: F401 - imported before the clock runs

    found: list[str] = []

    def look() -> None:
        with suppress(Exception):  # errors would break the prompt; the command itself reports them
            found.extend(_read(ctx, read))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def _read(ctx: Any, read: Callable[[SyncClient, Settings], Iterable[str]]) -> list[str]:
    from semlex.retriever.synchronous import SyncClient
    from semlex.settings.sources import load_settings
    from semlex.store.postgres.embedded.server import server_status

    given = {name: ctx.params.get(name) for name in ("collection", "database_url", "data_dir")}
    settings = load_settings(**given, embedding_model="none")
    # An embedded server is not started for a completion.
    if settings.database_url is None and not server_status(settings.server_folder)["running"]:
        return []
    with SyncClient(**settings.server_options, embedding_model="none", use_reranking=False) as client:
        return list(read(client, settings))


DOCUMENT = typer.Argument(
    metavar="ID|DOC",
    help="Document: a file, or a path as `semlex documents` lists it (the end of a path is enough). Chunk: an id, or a "
    "path with a line (keys.md:9).",
)
Reranker = Annotated[str | None, typer.Option("--reranker", help="Reranker: name, folder, term-overlap, none or auto.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Source = Annotated[str | None, typer.Option("--source", autocompletion=source_names, help="Only this source.")]
Allowed = Annotated[
    list[Path] | None,
    typer.Option(help="Folder that jobs may read, with everything below it; repeatable; default: none."),
]
Role = Annotated[str | None, typer.Option(help="Database role to use for everything.")]
OnDuplicate = Annotated[str, typer.Option(help="For ids that are already stored: update, skip or fail.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, and no progress.")]


def common(text: str, *flags: str, **more: Any) -> Any:
    """Declare a common option; the help names all common options on one line."""
    return typer.Option(*flags, rich_help_panel=COMMON, help=text, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The options that several commands have, by the names of their settings."""

    collection: Annotated[
        str | None,
        typer.Option(
            "--collection",
            "-c",
            autocompletion=collection_names,
            help="Collection; can be left out if there is only one.",
        ),
    ] = None
    database_url: Annotated[
        str | None,
        common("libpq URL of the server; default: DATABASE_URL, PGSERVICE, PGHOST, else embedded.", "--database"),
    ] = None
    data_dir: Annotated[
        Path | None,
        common("Folder for the data of the embedded Postgres.", "--data-dir", parser=Path, metavar="FOLDER"),
    ] = None
    keep_alive: Annotated[
        float | None,
        duration(
            "Seconds until the unused embedded Postgres stops; default: 300; 0: immediately.",
            "--keep-alive",
            rich_help_panel=COMMON,
        ),
    ] = None
    read_from: Annotated[
        str | None,
        common(
            "Server that searches read from: primary, or replica (a standby among the hosts of the URL).",
            "--read-from",
            metavar="[primary|replica]",
        ),
    ] = None
    embedding_model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Embedding model: name, folder, server (openai:NAME, …), 'static', or 'none' for keywords only.",
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option("--device", help="mps, cuda or cpu; default: the fastest of this machine.")
    ] = None
    dimensions: Annotated[
        int | None,
        integer(
            "Shorten vectors to this length; a static model must already have it.",
            "--dimensions",
            rich_help_panel=COMMON,
        ),
    ] = None
    tokenizer: Annotated[
        str | None, common("tokenizer.json of a model on a server; chunks are measured with it.", "--tokenizer")
    ] = None
    calibration: Annotated[
        Path | None,
        common("File of a calibration, which gives hits a confidence; default: the collection's.", "--calibration"),
    ] = None
    language: Annotated[str | None, typer.Option("--language", help="Language of a new collection's texts.")] = None
    keyword: Annotated[
        str | None,
        typer.Option("--keyword", help="Keyword engine of a new collection: bm25 (default), tsvector, none, …"),
    ] = None
    partitions: Annotated[
        int | None,
        integer("Partitions of a new collection's tables, for millions of chunks; 0: plain tables.", "--partitions"),
    ] = None
    reranker_model: Reranker = None
    chat_model: Annotated[
        str | None, typer.Option("--chat-model", help="Language model on a server, to write answers; or none.")
    ] = None
    enrichment_model: Annotated[
        str | None,
        typer.Option("--enrich", help="Language model on a server, to describe each chunk in one line; or none."),
    ] = None
    as_json: AsJson = False
    shown_fields: Annotated[
        str | None,
        common(
            "Print only these keys of --json, such as id,metadata.year: with --json as objects, else as "
            "tab-separated values.",
            "--fields",
            metavar="KEY,…",
        ),
    ] = None
    header: Annotated[bool, common("Print the header of tables.", "--header/--no-header", show_default=False)] = True


# Names of the command line for options that have others in Python.
FLAGS = {"filters": "filter", "group_size": "group", "text_fields": "text_field"}
SHORT = {"top_k": "-k"}
FIRST = ("tokens", "top_k", "mode", "filters")
# No flags unless a command names them: arguments; --reranker none stands for rerank=False, --group for group_by.
WITHOUT_FLAG = frozenset({"query", "queries", "question", "rerank", "group_by"})
REPEATED = ("filter", "boosts", "texts")
# Several names in one flag.
WITH_COMMAS = frozenset({"columns", "key", "live", "metadata"})
# A share of 0 means None here: never.
NEVER = ("sections", "near_duplicates")


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"--{FLAGS.get(name, name).replace('_', '-')}"


@dataclass(frozen=True)
class Flags:
    """Marks a parameter of a command that receives the declared options that were given, by name."""

    declaration: str  # module below `semlex`, and the `TypedDict` in it: "options.search:SearchArguments"
    only: tuple[str, ...] = ()  # all if empty
    without: tuple[str, ...] = ()  # names that the command does not offer

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of the command, one for each flag."""
        offered = sorted(self._offered().values(), key=lambda one: one.name not in FIRST)
        return [_parameter(one, self._known()) for one in offered]

    def flags(self) -> set[str]:
        """Return the flags that the command gets, such as ``--top-k``."""
        return set(map(flag_of, self._offered()))

    def given(self, typed: dict[str, Any]) -> dict[str, Any]:
        """Take the flags' values out of a command's arguments; return the options that were given."""
        options: dict[str, Any] = {}
        tuning: dict[str, Any] = {}
        for name, one in self._offered().items():
            value = typed.pop(name)
            if value is None or value == []:
                continue
            if one.form == "filter":
                value = filter_of(value)
            elif one.form == "boosts":
                value = boosts_of(value)
            elif one.form == "time":
                value = time_with_zone(flag_of(name), value)
            elif name in NEVER:
                value = value or None
            elif name in WITH_COMMAS:
                value = [part.strip() for text in value for part in text.split(",") if part.strip()]
            (tuning if name in self._tuning() else options)[name] = value
        if "group_size" in options:
            options["group_by"] = "document"
        return options | ({"tuning": tuning} if tuning else {})

    def _known(self) -> dict[str, Declared]:
        from importlib import import_module

        from semlex.options.declare import declared

        module, _, name = self.declaration.partition(":")
        return declared(getattr(import_module(f"semlex.{module}"), name))

    def _tuning(self) -> Mapping[str, Declared]:
        known = self._known()
        return known["tuning"].parts if "tuning" in known else {}

    def _offered(self) -> dict[str, Declared]:
        found = {name: one for name, one in self._known().items() if name != "tuning"} | dict(self._tuning())
        return {
            name: one
            for name, one in found.items()
            if one.option.offered
            and name not in self.without
            and (name in self.only if self.only else name not in WITHOUT_FLAG)
        }


def parameters_of(kind: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a command that receives the fields of a dataclass, by name."""
    defaults = kind.__dataclass_fields__
    return {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=defaults[name].default)
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }


@dataclass(frozen=True)
class OptionsOf:
    """Marks a parameter of a command that receives an instance of a dataclass, whose fields are options."""

    kind: Any

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of the command, one for each field."""
        return list(parameters_of(self.kind).values())

    def given(self, typed: dict[str, Any]) -> Any:
        """Take the fields' values out of a command's arguments; return the instance."""
        return self.kind(**{name: typed.pop(name) for name in self.kind.__dataclass_fields__})


def _parameter(one: Declared, known: Mapping[str, Declared]) -> inspect.Parameter:
    kinds = {"integer": int, "number": float, "flag": bool} | dict.fromkeys(REPEATED, list[str])
    kind: Any = kinds.get(one.form, str)
    options: dict[str, Any] = {"help": _text(one, known)}
    if one.form == "integer":
        options |= {"parser": whole_number, "metavar": INT}
    elif one.form == "number":
        in_seconds = one.option.text.startswith("Seconds")
        options |= {"parser": seconds if in_seconds else _number_of(one), "metavar": SECONDS if in_seconds else NUMBER}
    elif one.form == "choice":
        must = f"{', '.join(one.choices[:-1])} or {one.choices[-1]}"
        options |= {"parser": reader(str, must, one.choices.__contains__), "metavar": "|".join(one.choices)}
    elif one.form == "time":
        options |= {"metavar": "TIME"}
    flags = [flag_of(one.name), *([SHORT[one.name]] if one.name in SHORT else [])]
    if one.form == "flag" and one.option.text.endswith("Default: True."):
        flags = [f"{flags[0]}/--no{flags[0][1:]}"]
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind | None, typer.Option(*flags, **options)],
        default=None,
    )


def _number_of(one: Declared) -> Callable[[str | float], float]:
    least, most = one.option.minimum, one.option.maximum
    if least is None or most is None:
        return number
    never = one.name in NEVER
    must = f"0, for never, or between {least:g} and {most:g}" if never else f"a number between {least:g} and {most:g}"
    return reader(float, must, lambda value: (never and value == 0) or least <= value <= most)


def _text(one: Declared, known: Mapping[str, Declared]) -> str:
    """Return the help text of an option: its description with the range, and with flags in place of options' names."""
    option = one.option
    text = f"{known['group_by'].option.text} {option.text}" if one.name == "group_size" else option.text
    text = re.sub(r"\b[a-z]+_[a-z_]+\b", lambda found: flag_of(found[0]) if found[0] in known else found[0], text)
    least = 0 if one.name in NEVER else option.minimum
    if least is not None and option.maximum is not None:
        text += f" Range: {least:,} to {option.maximum:,}."
    if one.name in NEVER:
        text += " 0: never."
    if one.form in REPEATED:
        text += " Repeatable: all must hold." if one.form == "filter" else " Repeatable."
    if one.name in WITH_COMMAS:
        text += " Or names with commas between: title,price."
    if one.form == "boosts":
        text += " Example: '0.5 year < 2000'."
    return text


def filter_of(texts: Sequence[str] | None) -> FilterTree | None:
    """Return the values of ``--filter`` as one filter: all of them must hold."""
    from semlex.filters.text import tree_of_text
    from semlex.filters.tree import joined

    trees = [tree_of_text(text, "--filter") for text in texts or ()]
    return joined("and", trees, "--filter") if trees else None


def boosts_of(texts: Sequence[str]) -> list[tuple[FilterTree, float]]:
    """Return the values of ``--boost``, each a factor and a filter: ``0.5 @source == "releases"``."""
    from semlex.filters.text import tree_of_text

    boosts = []
    for text in texts:
        first, _, filters = text.strip().partition(" ")
        try:
            factor = float(first)
        except ValueError:
            raise ConfigurationError("--boost takes a factor and a filter: '0.5 @source == \"old\"'") from None
        boosts.append((tree_of_text(filters, "the filter of --boost"), factor))
    return boosts


def expanded(parameters: list[inspect.Parameter]) -> tuple[list[inspect.Parameter], Callable[[dict[str, Any]], None]]:
    """Replace parameters marked with `Flags` or `OptionsOf`; also return a function that collects their values."""
    marked: dict[str, Flags | OptionsOf] = {}
    found: list[inspect.Parameter] = []
    for parameter in parameters:
        extras = getattr(parameter.annotation, "__metadata__", ())
        mark = next((one for one in extras if isinstance(one, (Flags, OptionsOf))), None)
        if mark is None:
            found.append(parameter)
        else:
            marked[parameter.name] = mark
            found += mark.parameters()

    def put_together(given: dict[str, Any]) -> None:
        given |= {name: mark.given(given) for name, mark in marked.items()}

    return found, put_together
