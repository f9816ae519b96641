"""Commands that take a question, whose words need no quotes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from collections.abc import Sequence


class QuestionCommand(TyperCommand):
    """A command that takes a question: its words need no quotes, and it may begin with ``-``.

    An argument that begins with one ``-`` and holds a space is the question's, and so is all that follows ``--``.
    Everything else that begins with ``-`` is an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves the words of the question behind ``--``; ``--open N`` alone is that of the first hit."""
        with_values = self._options_with_values()
        numbered = open_numbered(args) if "--open" in with_values else args
        return super().parse_args(ctx, question_last(numbered, with_values))

    def _options_with_values(self) -> set[str]:
        options = [option for option in self.params if isinstance(option, TyperOption) and not option.is_flag]
        return {name for option in options for name in option.opts}


def open_numbered(arguments: Sequence[str]) -> list[str]:
    """Arguments with ``--open`` as ``--open=1`` where no number follows; what follows ``--`` stays."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [
        "--open=1" if word == "--open" and place < end and not following.isdecimal() else word
        for place, (word, following) in enumerate(zip(arguments, [*arguments[1:], ""], strict=False))
    ]


def question_last(arguments: Sequence[str], options_with_values: set[str]) -> list[str]:
    """Arguments with the parts of a question that look like options moved behind ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    moved: list[str] = []
    for before, argument in zip(["", *arguments], arguments[:end], strict=False):
        single = argument.startswith("-") and not argument.startswith("--")
        is_text = single and any(letter.isspace() for letter in argument) and before not in options_with_values
        (moved if is_text else kept).append(argument)
    rest = [*moved, *arguments[end + 1 :]]
    return [*kept, "--", *rest] if rest else kept
