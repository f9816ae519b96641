"""How a command line is read: options before or behind a command, questions without quotes, unknown commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from semlex.cli.manual.commands import Commands, summary_of, without_values
from semlex.cli.manual.suggestions import for_command, sharpen
from semlex.cli.options import HelpGroup
from semlex.cli.terminal import tell_interruption

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What typer raises for arguments that it refuses; it has no public name.
USAGE_ERROR: Any = typer.BadParameter.__base__
VERBOSITY = ("--verbose", "-v", "--quiet", "-q")


class MainGroup(HelpGroup):
    """The commands of semlex; ``--verbose`` and ``--quiet`` may precede or follow a command.

    A command is loaded when it is run: a list of commands takes their summaries.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = Commands()
        without_values(self)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of their panels."""
        del ctx
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What a list of commands shows of one; `resolve_command` gives the command itself."""
        del ctx
        return summary_of(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves ``--verbose`` and ``--quiet``, in either form, to the front, and a command before its options."""
        own = {option for one in self.params for option in one.opts} | set(ctx.help_option_names)
        ctx.obj = command_first(spelled_out(verbosity_first(args), self.commands), self.commands, own)
        return super().parse_args(ctx, ctx.obj)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word; what is none may be a question."""
        word = args[0]
        if word in self.commands:
            return word, self.commands[word], args[1:]
        if word.startswith("-"):
            return super().resolve_command(ctx, args)
        return ctx.fail(for_command(args, self.commands))

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; says that it was interrupted when it was, and what to type where an argument is refused."""
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            sharpen(error, ctx.obj)
            raise
        except KeyboardInterrupt:
            tell_interruption()
            raise


def verbosity_first(arguments: Sequence[str]) -> list[str]:
    """Arguments with ``--verbose`` and ``--quiet`` in front, but what follows ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved = [argument for argument in arguments[:end] if argument in VERBOSITY]
    return [*moved, *(argument for argument in arguments[:end] if argument not in VERBOSITY), *arguments[end:]]


def spelled_out(arguments: list[str], commands: Iterable[str]) -> list[str]:
    """``help``, ``help COMMAND`` and ``version`` as the options that they mean."""
    words = [word for word in arguments if word not in VERBOSITY]
    if words[:1] == ["version"] and "version" not in commands:
        return ["--version"]
    return [*words[1:], "--help"] if words[:1] == ["help"] and "help" not in commands else arguments


def command_first(arguments: list[str], commands: Iterable[str], own: set[str]) -> list[str]:
    """Arguments with the first command in front of options that were typed before it, and are not those of semlex."""
    known = set(commands)
    begin = next((place for place, word in enumerate(arguments) if word not in own), 0)
    place = next((place for place, word in enumerate(arguments) if word in known), begin)
    if place == begin or not arguments[begin].startswith("-") or "--" in arguments[:place]:
        return arguments
    return [*arguments[:begin], arguments[place], *arguments[begin:place], *arguments[place + 1 :]]
