"""Options that several commands have, and how their arguments are read."""

from __future__ import annotations

import math
import sys
from datetime import datetime
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from semlex.cli.interactive.completion import collection_names
from semlex.cli.terminal import messages
from semlex.errors import ConfigurationError
from semlex.types.queries import MIN_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.filters.tree import FilterTree


INT, SECONDS, NUMBER = "INT", "SECONDS", "NUMBER"


class HelpGroup(TyperGroup):
    """A group of commands that shows its help when it gets no arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments the help is shown."""
        return super().parse_args(ctx, args or ["--help"])


class WorkingGroup(HelpGroup):
    """A group that does something by itself, without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Arguments as they are."""
        return super(HelpGroup, self).parse_args(ctx, args)


def has_command(ctx: typer.Context) -> bool:
    """Whether a group was called with a command of its own, which alone has the options then."""
    if ctx.invoked_subcommand is None:
        return False
    given = [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if (source := ctx.get_parameter_source(parameter.name or "")) is not None and source.name == "COMMANDLINE"
    ]
    if given:
        command = f"{ctx.command_path} {ctx.invoked_subcommand}"
        raise ConfigurationError(f"options of {command} stand behind all its words: {', '.join(given)}")
    return True


def folded(text: str) -> str:
    """A text whose paragraphs are one line each; what begins with a backspace keeps its lines."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)


def whole_number(text: str | int) -> int:
    """The value of an option."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number; got {text!r}") from None


def whole_number_between(minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """A parser for an option with bounds."""
    bounds = f"at least {minimum:,}" if maximum is None else f"between {minimum:,} and {maximum:,}"

    def read(text: str | int) -> int:
        value = whole_number(text)
        if value < minimum or (maximum is not None and value > maximum):
            raise typer.BadParameter(f"must be {bounds}; got {value:,}")
        return value

    return read


def number(text: str | float) -> float:
    """The value of an option."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number; got {text!r}") from None


def number_that(is_allowed: Callable[[float], bool], must: str) -> Callable[[str | float], float]:
    """A parser for an option."""

    def read(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not is_allowed(value):
            raise typer.BadParameter(f"must be {must}; got {text!r}")
        return value

    return read


share = number_that(lambda value: 0 <= value <= 1, "a number between 0 and 1")
share_or_never = number_that(
    lambda value: value == 0 or MIN_SHARE <= value <= 1, f"0, for never, or between {MIN_SHARE:g} and 1"
)
seconds = number_that(lambda value: 0 <= value < math.inf, "a number of seconds, at least 0")


def time_with_zone(option: str, text: str | None) -> datetime | None:
    """The value of an option."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.utcoffset() is None:
        raise ConfigurationError(f"{option} must be a time with its zone, as 2026-12-24T18:00Z; got {text!a}")
    return time


def boosts_of(texts: Sequence[str] | None) -> list[tuple[FilterTree, float]] | None:
    """The values of ``--boost``, each a factor and a filter: ``0.5 @source == "releases"``."""
    from semlex.filters.text import tree_of_text

    boosts = []
    for text in texts or ():
        number, _, filters = text.strip().partition(" ")
        try:
            factor = float(number)
        except ValueError:
            raise ConfigurationError("--boost takes a factor and a filter: '0.5 @source == \"old\"'") from None
        boosts.append((tree_of_text(filters, "the filter of --boost"), factor))
    return boosts or None


def filter_of(texts: Sequence[str] | None) -> FilterTree | None:
    """The values of ``--filter`` as one filter: all of them must hold."""
    from semlex.filters.text import tree_of_text
    from semlex.filters.tree import joined

    trees = [tree_of_text(text, "--filter") for text in texts or ()]
    return joined("and", trees, "--filter") if trees else None


def questions_of(words: Sequence[str], file: Path | None = None) -> list[str]:
    """The question that its words make; of a file those that stand in it, one a line."""
    if file is None and list(words) != ["-"]:
        return [" ".join(words)]
    file = Path("-") if file is None else file
    found = [line.strip() for line in read_lines(file)]
    if not found:
        place = "on standard input" if str(file) == "-" else f"in {file}"
        raise ConfigurationError(f"there is no question {place}: give one a line, or one after the command")
    return found


def agree(question: str, *, yes: bool) -> None:
    """Asks before something is deleted."""
    if yes:
        return
    messages.print(f"{question} [y/N]: ", end="", markup=False)
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer:
        messages.print()
        raise ConfigurationError("nobody answered, so nothing was done: agree with --yes")
    if answer.strip().lower() not in ("y", "yes"):
        raise typer.Abort


def read_lines(path: Path) -> list[str]:
    """The lines of a file (``-``: of standard input) that are not blank, as they are.

    A line ends with a line feed alone: what else Unicode counts as an end may stand within JSON.
    """
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
    """All of standard input; nothing where it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def existing_paths(paths: list[Path]) -> list[Path]:
    """Absolute paths; refuses what is not there before anything is opened or made."""
    from semlex.ingest.files.discovery import checked_paths

    return [path.resolve() for path in checked_paths(path.expanduser() for path in paths)]


Database = Annotated[
    str | None,
    typer.Option(
        "--database", help="libpq URL of the server; default: DATABASE_URL, PGSERVICE, PGHOST, else embedded."
    ),
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder for the data of the embedded Postgres.")]
KeepAlive = Annotated[
    float | None,
    typer.Option(
        "--keep-alive",
        parser=seconds,
        metavar=SECONDS,
        help="Seconds for which the embedded Postgres stays after its last user; default: 300; 0 stops it at once.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="Embedding model: name, folder, server (openai:NAME, …), 'static', or 'none' for keywords only."
    ),
]
Language = Annotated[str | None, typer.Option("--language", help="Language of a new collection's texts.")]
Keyword = Annotated[
    str | None, typer.Option("--keyword", help="Keyword engine of a new collection: bm25 (default), tsvector, none, …")
]
Device = Annotated[str | None, typer.Option("--device", help="mps, cuda or cpu; default: the best of this machine.")]
Dimensions = Annotated[
    int | None,
    typer.Option(
        "--dimensions",
        parser=whole_number,
        metavar=INT,
        help="Length of the vectors: they are cut to it; for static ones a check.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option("--calibration", help="Calibration that gives hits a confidence, instead of the collection's own."),
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="tokenizer.json of a model behind a server, to measure chunks by.")
]
Reranker = Annotated[
    str | None,
    typer.Option("--reranker", help="Name or folder of a reranker, term-overlap, none or auto; see the docs."),
]
Chat = Annotated[
    str | None,
    typer.Option("--chat-model", help="Language model behind a server that writes the answer, or none; see the docs."),
]
RouteOption = Annotated[
    str | None,
    typer.Option(
        "--route", metavar="rules|chat", help="Let the kind of the question set depth, reranker and grouping."
    ),
]
Enrich = Annotated[
    str | None,
    typer.Option(
        "--enrich", help="Language model behind a server that writes a line about each chunk, or none; see the docs."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter", help="A condition such as 'year >= 2020'; repeatable, all must hold; see docs/filters.md."
    ),
]
Boost = Annotated[
    list[str] | None,
    typer.Option("--boost", help="A factor on the score of what passes a filter: '0.5 year < 2000'; repeatable."),
]
Parents = Annotated[
    bool, typer.Option("--parents", help="With each hit the chunk that it names as its parent: the one above it.")
]
Sections = Annotated[
    float | None,
    typer.Option(
        "--sections",
        parser=share_or_never,
        metavar="SHARE",
        help="A section comes whole where so many of its chunks are hits; 0: never.",
    ),
]
NearDuplicates = Annotated[
    float | None,
    typer.Option(
        "--near-duplicates",
        parser=share_or_never,
        metavar="SHARE",
        help="A hit is left out where so much of it stands in a better one; 0: never.",
    ),
]
CollectionName = Annotated[
    str | None,
    typer.Option("--collection", "-c", help="Collection to work on.", autocompletion=collection_names),
]
ChunkTokens = Annotated[
    int | None, typer.Option("--chunk-tokens", parser=whole_number, metavar=INT, help="Maximum tokens of a chunk.")
]
OverlapTokens = Annotated[
    int | None,
    typer.Option("--overlap-tokens", parser=whole_number, metavar=INT, help="Maximum tokens that neighbours share."),
]
MinTokens = Annotated[
    int | None,
    typer.Option(
        "--min-tokens",
        parser=whole_number,
        metavar=INT,
        help="Smaller sections are joined with the next one.",
    ),
]
NewSource = Annotated[str | None, typer.Option("--source", help="Name of the new source; default: its folder's name.")]
Include = Annotated[list[str] | None, typer.Option("--include", help="Glob pattern of files to read; repeatable.")]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", help="Glob pattern to leave out; repeatable.")]
Recursive = Annotated[bool, typer.Option(help="Enter folders below.")]
TextFields = Annotated[
    list[str] | None,
    typer.Option("--text-field", help="Field of tables and JSON Lines that is text; repeatable; default: all texts."),
]
IdField = Annotated[str | None, typer.Option("--id-field", help="Field of tables and JSON Lines that names a record.")]
DetectEncoding = Annotated[
    bool, typer.Option("--detect-encoding", help="Read texts that are not UTF-8 in their most probable encoding.")
]
OnBadText = Annotated[
    Literal["error", "repair", "skip"],
    typer.Option(
        "--on-bad-text",
        parser=str,  # the values are checked where they are used
        metavar="error|repair|skip",
        help="Files with bytes that are no text: report them, put U+FFFD for those, or leave the files out.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, and no progress.")]
Fields = Annotated[
    str | None,
    typer.Option(
        "--fields",
        metavar="KEY,…",
        help="Print only these keys of --json (metadata.year for one inside): with --json as objects, else as "
        "tab-separated values.",
    ),
]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="Begin tables with their titles.", show_default=False)
]
