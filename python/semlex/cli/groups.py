"""How the command line is parsed: commands loaded on use, default commands, questions without quotes, suggestions."""

from __future__ import annotations

import inspect
import shlex
from collections import UserDict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from semlex.cli.manual import EXAMPLES, PANELS, PLACES, WITHOUT_SERVER
from semlex.cli.options import COMMON
from semlex.cli.terminal import is_verbose, tell_interruption

# What typer raises for arguments that it refuses; it has no public name.
USAGE_ERROR: Any = typer.BadParameter.__base__
VERBOSITY = ("--verbose", "-v", "--quiet", "-q")


class CommandGroup(TyperGroup):
    """A group of commands; without a command it shows its help, or runs its default command."""

    default: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command first, or the default command if none is named."""
        own = set(ctx.help_option_names)
        args = command_first(args, self.commands, own)
        if not args or args[0] not in {*self.commands, *own}:
            options = [] if self.default is None else self.commands[self.default].params
            takes_arguments = any(isinstance(one, TyperArgument) for one in options)
            if not args and (self.default is None or takes_arguments):
                args = [ctx.help_option_names[0]]
            elif self.default is not None and (not args or args[0].startswith("-") or takes_arguments):
                args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            return ctx.fail(for_command(args, self.commands, ctx.command_path))
        return super().resolve_command(ctx, args)


def group_with_default(command: str) -> type[CommandGroup]:
    """Return the class of a group that runs a command if none is named."""
    return type("GroupWithDefault", (CommandGroup,), {"default": command})


class QuestionCommand(TyperCommand):
    """A command that takes a question: its words need no quotes, and it may begin with ``-``."""

    # An argument that begins with one `-` and contains a space belongs to the question, and so does everything after
    # `--`. Any other argument that begins with `-` is an option.

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the words of the question behind ``--``; ``--open`` without a number means the first hit."""
        options = [option for option in self.params if isinstance(option, TyperOption) and not option.is_flag]
        with_values = {name for option in options for name in option.opts}
        numbered = open_numbered(args) if "--open" in with_values else args
        return super().parse_args(ctx, question_last(numbered, with_values))


def open_numbered(arguments: Sequence[str]) -> list[str]:
    """Return arguments with ``--open`` as ``--open=1`` if no number follows; those after ``--`` do not change."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [
        "--open=1" if word == "--open" and place < end and not following.isdecimal() else word
        for place, (word, following) in enumerate(zip(arguments, [*arguments[1:], ""], strict=False))
    ]


def question_last(arguments: Sequence[str], options_with_values: set[str]) -> list[str]:
    """Return arguments with the parts of a question that look like options moved behind ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    moved: list[str] = []
    for before, argument in zip(["", *arguments], arguments[:end], strict=False):
        single = argument.startswith("-") and not argument.startswith("--")
        is_text = single and any(letter.isspace() for letter in argument) and before not in options_with_values
        (moved if is_text else kept).append(argument)
    rest = [*moved, *arguments[end + 1 :]]
    return [*kept, "--", *rest] if rest else kept


class Commands(UserDict[str, Any]):
    """The commands of semlex by name, in the order of their panels; each is loaded when it is first used."""

    def __getitem__(self, name: str) -> Any:
        return _loaded(name)


@cache  # making one takes longer than most commands parse
def _loaded(name: str) -> Any:
    module, attribute = PLACES[name]
    found = getattr(import_module(f"semlex.cli.commands.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.name = name
    else:
        alone = typer.Typer(add_completion=False)
        takes_question = "question" in inspect.signature(found).parameters
        alone.command(name, cls=QuestionCommand if takes_question else TyperCommand)(found)
        command = typer.main.get_command(alone)
    command.rich_help_panel = _panel_of(name)
    return described(command, name)


def _panel_of(name: str) -> str:
    return next(panel for panel, names in PANELS.items() if name in names)


def summary_of(name: str) -> TyperCommand | None:
    """Return a command's entry in the list of commands: its name, its panel, the first line of its help."""
    # The line is read from the docstring of its function, or of its group's module, without importing the module.
    if name not in PLACES:
        return None
    module, attribute = PLACES[name]
    compiled = _code_of(f"semlex.cli.commands.{module}")
    functions = (one for one in compiled.co_consts if getattr(one, "co_name", None) == attribute)
    text = next(functions, compiled).co_consts[0]
    return TyperCommand(name, help=folded(text).split("\n\n")[0], rich_help_panel=_panel_of(name))


@cache
def _code_of(module: str) -> Any:
    spec = find_spec(module)
    return spec.loader.get_code(module)  # type: ignore[union-attr]


def described(command: Any, name: str) -> Any:
    """Prepare the help of a command and its subcommands: join wrapped lines, shorten common options, add an example."""
    command.help = command.help and folded(command.help)
    _fold_help(command)
    if name in EXAMPLES:
        example = f"\b\nExample:\n    {EXAMPLES[name]}"
        command.epilog = example if command.epilog is None else f"{command.epilog}\n\n{example}"
    for word, below in getattr(command, "commands", {}).items():
        described(below, f"{name} {word}")
    return command


def _convert_what_needs_it(parameter: Any) -> None:
    """Bypass typer's conversion, which loads pydantic, for None, texts, and values that have a parser."""
    convert, kind = parameter.process_value, parameter.type_descriptor
    if "process_value" in vars(parameter):
        return
    takes_many = kind.annotation == list[str]
    read = kind.parameter_info.parser or {str: str, list[str]: list}.get(kind.annotation)

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            found: Any = () if parameter.multiple or parameter.nargs == -1 else None
        elif value and read is not None and isinstance(value, (list, tuple) if takes_many else str):
            found = read(value)
        else:
            return convert(ctx, value)
        return found if parameter.callback is None else parameter.callback(ctx, parameter, found)

    parameter.process_value = process_value


def folded(text: str) -> str:
    """Join the lines of each paragraph of a text; paragraphs that begin with a backspace keep their lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)


def _fold_help(command: Any) -> None:
    """Let a help show a default command's options, and the common options on one line unless ``-v`` is given."""
    params_of, write = command.get_params, command.format_help  # `--help` is made there
    default = getattr(command, "default", None)
    of_default = command.commands[default].params if default else []
    is_help = False

    def get_params(ctx: Any) -> list[Any]:
        parameters = [*(of_default if is_help else ()), *params_of(ctx)]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            _convert_what_needs_it(parameter)
        return parameters

    def format_help(ctx: Any, formatter: Any) -> None:
        nonlocal is_help
        shown = [] if is_verbose() else [*command.params, *of_default]
        common = [one for one in shown if getattr(one, "rich_help_panel", None) == COMMON]
        epilog = command.epilog
        if common:
            names = ", ".join(max(one.opts, key=len) for one in common)
            command.epilog = f"{COMMON}, described by {ctx.command_path} --help -v: {names}\n\n{epilog or ''}"
        is_help = True
        for one in common:
            one.hidden = True
        try:
            write(ctx, formatter)
        finally:
            is_help, command.epilog = False, epilog
            for one in common:
                one.hidden = False

    command.get_params, command.format_help = get_params, format_help


class MainGroup(CommandGroup):
    """The commands of semlex; ``--verbose`` and ``--quiet`` may precede or follow a command."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands: Any = Commands(PLACES)
        _fold_help(self)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of their panels."""
        del ctx
        return list(self.commands)

    # A command is loaded when it runs; the list of commands shows summaries.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command's summary for the list of commands; `resolve_command` returns the command itself."""
        del ctx
        return summary_of(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move ``--verbose`` and ``--quiet``, in either form, to the front, and a command before its options."""
        own = {option for one in self.params for option in one.opts} | set(ctx.help_option_names)
        ctx.obj = command_first(spelled_out(verbosity_first(args), self.commands), self.commands, own)
        return TyperGroup.parse_args(self, ctx, ctx.obj or [ctx.help_option_names[0]])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names."""
        word = args[0]
        if word in self.commands:
            return word, self.commands[word], args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; report an interruption, and suggest what to type instead of a refused argument."""
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            sharpen(error, ctx.obj)
            raise
        except KeyboardInterrupt:
            tell_interruption()
            raise


def verbosity_first(arguments: Sequence[str]) -> list[str]:
    """Move ``--verbose`` and ``--quiet`` to the front of the arguments, except after ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved = [argument for argument in arguments[:end] if argument in VERBOSITY]
    return [*moved, *(argument for argument in arguments[:end] if argument not in VERBOSITY), *arguments[end:]]


def spelled_out(arguments: list[str], commands: Iterable[str]) -> list[str]:
    """Replace ``help``, ``help COMMAND`` and ``version`` by the options that they stand for."""
    words = [word for word in arguments if word not in VERBOSITY]
    if words[:1] == ["version"] and "version" not in commands:
        return ["--version"]
    return [*words[1:], "--help"] if words[:1] == ["help"] and "help" not in commands else arguments


def command_first(arguments: list[str], commands: Iterable[str], own: set[str]) -> list[str]:
    """Move the first command before options that were typed in front of it, except the group's own options."""
    known = set(commands)
    begin = next((place for place, word in enumerate(arguments) if word not in own), 0)
    place = next((place for place, word in enumerate(arguments) if word in known), begin)
    if place == begin or not arguments or not arguments[begin].startswith("-") or "--" in arguments[:place]:
        return arguments
    return [*arguments[:begin], arguments[place], *arguments[begin:place], *arguments[place + 1 :]]


# A line of so many words is not taken for a question if its first word resembles a command.
SHORT = 2
# Commands of semlex -> words that people type for them.
_TYPED = {
    "collections list, documents list": "list ls",
    "search": "find query grep",
    "ask": "answer qa",
    "ask, shell": "chat",
    "shell": "repl",
    "documents show": "cat get show",
    "documents outline": "toc headings",
    "index": "ingest create init start",
    "documents import, index": "load",
    "documents add": "insert add upsert",
    "collections drop": "drop",
    "delete": "remove rm",
    "documents preview": "chunks",
    "sync": "update",
    "sync --watch": "watch",
    "collections dump": "export backup",
    "status": "info stats",
    "status, fields facets": "count",
    "doctor, eval checkup": "check",
    "maintain migrate": "upgrade",
    "maintain optimize": "vacuum",
    "config": "settings",
    "models fill": "embed",
    "models set": "reembed",
    "models list": "embeddings",
    "models pull": "download",
    "postgres status": "server",
}
COMMANDS = {word: meant.split(", ") for meant, words in _TYPED.items() for word in words.split()}
SERVER_OPTIONS = frozenset({"--database", "--data-dir", "--keep-alive", "--collection", "-c"})
_FLAGS = {
    "--top-k": "--limit --num --count --size -n",
    "--filter": "--where",
    "--database": "--url --db --dsn",
    "--collection": "--name --table --index",
    "--json": "--format --output",
    "--fields": "--columns",
    "--yes": "--force -y -f",
    "--deadline": "--timeout",
    "--model": "--embedding-model -m",
    "--reranker": "--rerank",
}
OPTIONS = {word: meant for meant, words in _FLAGS.items() for word in words.split()}


def for_command(typed: Sequence[str], known: Iterable[str], path: str = "semlex") -> str:
    """Return a message for a word that is not a command, with what to type instead."""
    # `path` has the words before it: `semlex`, or those of a group.
    word, names = typed[0], list(known)
    lowered = word.lower().replace("_", "-")
    # It could be a query, but a misspelt command would then send its argument to a model's server.
    told = f"No such command {word!r}."
    if path != "semlex":
        meant: Sequence[str] = get_close_matches(lowered, names, n=1)
        group = path.removeprefix("semlex ")
        return f"{told} {_did_you_mean([f'{group} {name}' for name in meant], typed)}{path} has {', '.join(names)}."
    meant = COMMANDS.get(lowered) or _below(lowered) or ((lowered,) if lowered in names else ())
    is_known = bool(meant)
    meant = meant or get_close_matches(lowered, names, n=1)
    told = f"{told} {_did_you_mean(meant, typed)}".rstrip()
    if meant and (is_known or len(typed) == SHORT):
        return told
    asked = shlex.join(typed) if len(typed) > 1 else f'"{word}"'
    return f"{told} To ask a question: semlex search {asked}"


def _below(word: str) -> list[str]:
    """Return the subcommands that have this name, each after its group, such as ``documents list`` for ``list``."""
    return [name for name in EXAMPLES if " " in name and name.rsplit(" ", 1)[1] == word != "run"]


def _did_you_mean(meant: Sequence[str], typed: Sequence[str]) -> str:
    if not meant:
        return ""
    rest = f" {shlex.join(typed[1:])}" if typed[1:] and len(meant) == 1 else ""
    return f"Did you mean: {' or '.join(f'semlex {name}{rest}' for name in meant)}? "


def sharpen(error: Any, typed: Sequence[str]) -> None:
    """Add a suggestion or an example to an error about arguments."""
    if error.ctx is None:
        return
    name = error.ctx.command_path.removeprefix("semlex").strip()
    if hasattr(error, "possibilities"):
        options = {option for one in error.ctx.command.params for option in (*one.opts, *one.secondary_opts)}
        uses_none = name.startswith(WITHOUT_SERVER) and "--database" not in options
        if error.option_name in SERVER_OPTIONS and uses_none:
            error.message += f": semlex {name} uses no database"
        else:
            meant = _options(error.option_name, typed, options) or error.possibilities or ()
            error.message += f". Did you mean {' or '.join(meant)}?" if meant else ""
        error.possibilities = None
    elif name in EXAMPLES and (_is_missing(error) or error.message.startswith("Got unexpected extra argument")):
        error.message = f"{error.message}{'. ' if error.message else ''}Example: {EXAMPLES[name]}"


def _is_missing(error: Any) -> bool:
    return getattr(error, "param_type", ...) is not ...  # only errors of missing arguments say of which type


def _options(option: str, typed: Sequence[str], options: set[str]) -> list[str]:
    """Return the options that a word probably means; empty if none is similar."""
    # An option with one dash is read letter by letter, so that `option` may be its first letter only.
    words = [word.partition("=")[0] for word in typed if word.startswith(option)]
    for word in dict.fromkeys([option, *words]):
        for meant in (OPTIONS.get(word, ""), "--" + word.lstrip("-").lower().replace("_", "-")):
            if meant in options:
                return [meant]
    return get_close_matches(option, options, n=1, cutoff=0.7)
