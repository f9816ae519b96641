"""Options that several commands have, and how their arguments are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence


class HelpGroup(TyperGroup):
    """A group of commands that shows its help, and is done, when nothing is asked of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """No arguments are a question for help."""
        return super().parse_args(ctx, args or ["--help"])


class QuestionCommand(TyperCommand):
    """A command that takes a question: its words may stand without quotes, and it may begin with ``-``.

    An argument that begins with one ``-`` and holds a space is the question's, and so is all that follows ``--``.
    Everything else that begins with ``-`` is an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves what belongs to the question behind a ``--``."""
        return super().parse_args(ctx, question_last(args, self._options_with_values()))

    def _options_with_values(self) -> set[str]:
        options = [option for option in self.params if isinstance(option, TyperOption) and not option.is_flag]
        return {name for option in options for name in option.opts}


def question_last(arguments: Sequence[str], options_with_values: set[str]) -> list[str]:
    """Arguments with the parts of a question that look like options behind a ``--``.

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


def filter_mapping(items: Sequence[str] | None) -> dict[str, Any] | None:
    """The values of ``--filter`` as a filter.

    Raises:
        ConfigurationError: One of them is not name=value.
    """
    pairs = [item.partition("=") for item in items or ()]
    if any(not equals for _, equals, _ in pairs):
        raise ConfigurationError("--filter takes name=value")
    from semlex.store.filters import COLUMNS, value_from_text  # noqa: PLC0415 - loads the driver

    return {name: value if name in COLUMNS else value_from_text(value) for name, _, value in pairs} or None


Database = Annotated[
    str | None, typer.Option("--database", help="libpq URL of the server; default: DATABASE_URL, else embedded.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder for the data of the embedded Postgres.")]
KeepAlive = Annotated[
    float | None,
    typer.Option(
        "--keep-alive",
        min=0,
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
Device = Annotated[str | None, typer.Option("--device", help="mps, cuda or cpu; default: the best of this machine.")]
Dimensions = Annotated[
    int | None, typer.Option("--dimensions", help="Length of the vectors: they are cut to it; for static ones a check.")
]
Reranker = Annotated[
    str | None, typer.Option("--reranker", help="Name or folder of a reranker, score, none or auto; see the docs.")
]
CollectionName = Annotated[str | None, typer.Option("--collection", "-c", help="Collection to work on.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, and no progress.")]
