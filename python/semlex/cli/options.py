"""Options that several commands have, and how their arguments are read."""

from __future__ import annotations

import math
import sys
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.filters.tree import FilterTree


VERBOSITY = ("--verbose", "-v", "--quiet", "-q")
INT, SECONDS, NUMBER = "INT", "SECONDS", "NUMBER"


class HelpGroup(TyperGroup):
    """A group of commands that shows its help when it gets no arguments.

    The paragraphs of its commands' help are as wide as the terminal, not as the source.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for command in self.commands.values():
            command.help = command.help and folded(command.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments the help is shown."""
        return super().parse_args(ctx, args or ["--help"])


class WorkingGroup(HelpGroup):
    """A group that does something by itself, without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Arguments as they are."""
        return super(HelpGroup, self).parse_args(ctx, args)


class MainGroup(HelpGroup):
    """The commands of semlex; ``--verbose`` and ``--quiet`` may precede or follow a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves ``--verbose`` and ``--quiet``, in either form, to the front."""
        return super().parse_args(ctx, verbosity_first(args))


def verbosity_first(arguments: Sequence[str]) -> list[str]:
    """Arguments with ``--verbose`` and ``--quiet`` in front, but what follows ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved = [argument for argument in arguments[:end] if argument in VERBOSITY]
    return [*moved, *(argument for argument in arguments[:end] if argument not in VERBOSITY), *arguments[end:]]


def folded(text: str) -> str:
    """A text whose paragraphs are one line each; what begins with a backspace keeps its lines."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)


def whole_number(text: str | int) -> int:
    """The value of an option.

    Raises:
        typer.BadParameter: It is no whole number.
    """
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number; got {text!r}") from None


def whole_number_between(minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """A parser for an option with bounds.

    Args:
        minimum: The smallest value.
        maximum: The largest one, or None.
    """
    bounds = f"at least {minimum:,}" if maximum is None else f"between {minimum:,} and {maximum:,}"

    def read(text: str | int) -> int:
        value = whole_number(text)
        if value < minimum or (maximum is not None and value > maximum):
            raise typer.BadParameter(f"must be {bounds}; got {value:,}")
        return value

    return read


def number(text: str | float) -> float:
    """The value of an option.

    Raises:
        typer.BadParameter: It is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number; got {text!r}") from None


def seconds(text: str | float) -> float:
    """The value of an option.

    Raises:
        typer.BadParameter: It is no number of seconds, 0 or more.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"must be a number of seconds, at least 0; got {text!r}")
    return value


class QuestionCommand(TyperCommand):
    """A command that takes a question: its words need no quotes, and it may begin with ``-``.

    An argument that begins with one ``-`` and holds a space is the question's, and so is all that follows ``--``.
    Everything else that begins with ``-`` is an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves the words of the question behind ``--``."""
        return super().parse_args(ctx, question_last(args, self._options_with_values()))

    def _options_with_values(self) -> set[str]:
        options = [option for option in self.params if isinstance(option, TyperOption) and not option.is_flag]
        return {name for option in options for name in option.opts}


def question_last(arguments: Sequence[str], options_with_values: set[str]) -> list[str]:
    """Arguments with the parts of a question that look like options moved behind ``--``.

    Args:
        arguments: As typed.
        options_with_values: Options whose next argument is their value.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    moved: list[str] = []
    for before, argument in zip(["", *arguments], arguments[:end], strict=False):
        single = argument.startswith("-") and not argument.startswith("--")
        is_text = single and any(letter.isspace() for letter in argument) and before not in options_with_values
        (moved if is_text else kept).append(argument)
    rest = [*moved, *arguments[end + 1 :]]
    return [*kept, "--", *rest] if rest else kept


def boosts_of(texts: Sequence[str] | None) -> list[tuple[FilterTree, float]] | None:
    """The values of ``--boost``, each a factor and a filter: ``0.5 @source == "releases"``.

    Raises:
        ConfigurationError: One does not begin with a number.
        ValidationError: What is wrong with the filter of one, and in which column.
    """
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
    """The values of ``--filter`` as one filter: all of them must hold.

    Raises:
        ValidationError: What is wrong with one of them, and in which column.
    """
    from semlex.filters.text import tree_of_text
    from semlex.filters.tree import joined

    trees = [tree_of_text(text, "--filter") for text in texts or ()]
    return joined("and", trees, "--filter") if trees else None


def read_lines(path: Path) -> list[str]:
    """The lines of a file (``-``: of standard input) that are not blank.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def existing_paths(paths: list[Path]) -> list[Path]:
    """Absolute paths; refuses what is not there before anything is opened or made."""
    from semlex.ingest.files.discovery import checked_paths

    return [path.resolve() for path in checked_paths(path.expanduser() for path in paths)]


Database = Annotated[
    str | None, typer.Option("--database", help="libpq URL of the server; default: DATABASE_URL, else embedded.")
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
        "--sections", metavar="SHARE", help="A section comes whole where so many of its chunks are hits; 0: never."
    ),
]
NearDuplicates = Annotated[
    float | None,
    typer.Option(
        "--near-duplicates",
        metavar="SHARE",
        help="A hit is left out where so much of it stands in a better one; 0: never.",
    ),
]
CollectionName = Annotated[str | None, typer.Option("--collection", "-c", help="Collection to work on.")]
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
