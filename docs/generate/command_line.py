"""The commands: from the tree that the command line is parsed with, and its help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from docs.generate.markdown import slug, table, text
from semlex.cli.app import app
from semlex.cli.manual import EXAMPLES, PANELS
from semlex.cli.options import COMMON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def tree(group: Any, name: str = "") -> dict[str, Any]:
    """Return every command and every group by its words."""
    found = {name: group} if name else {}
    for word, below in getattr(group, "commands", {}).items():
        found |= tree(below, f"{name} {word}".strip())
    return found


MAIN: Any = typer.main.get_command(app)
# An option that at least this many commands have is described once.
SHARED = 10
NOT_SHOWN = {"--help", "--install-completion", "--show-completion"}


def commands() -> str:
    """Return the list of commands, the options that many have, and a section for each command."""
    parts = ["## Commands"]
    for panel, names in PANELS.items():
        rows = [[f"[`semlex {name}`](#{slug(f'semlex {name}')})", _summary(name, one)] for name, one in _listed(names)]
        parts += [f"**{panel}**", table(["command", "what it does"], rows)]
    shared = _shared()
    options = [one for one in MAIN.params if not NOT_SHOWN & set(one.opts)]
    parts += ["## Options of all commands", _options(options)]
    parts += ["## Options of many commands", "The section of each command names those that it has.", _options(shared)]
    for names in PANELS.values():
        for name, one in _listed(names):
            parts += _section(name, one, shared)
    return "\n\n".join(parts)


def _listed(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Return commands of the first level and those below them, by their whole names."""
    return ((name, one) for first in names for name, one in tree(MAIN.commands[first], first).items())


def every_parameter() -> Iterator[Any]:
    """Return the options and arguments of all commands."""
    return (parameter for command in tree(MAIN).values() for parameter in command.params)


def _summary(name: str, command: Any) -> str:
    summary = text(command.help.partition("\n\n")[0])
    default = getattr(command, "default", None)
    return f"{summary} Without a command it runs `semlex {name} {default}`." if default else summary


def _shared() -> list[Any]:
    """Return the options that many commands have with one text."""
    having: dict[tuple[str, str], list[Any]] = {}
    for one in every_parameter():
        if _is_option(one) and one.help:
            having.setdefault(_key(one), []).append(one)
    found = [all_[0] for all_ in having.values() if len(all_) >= SHARED or _is_common(all_[0])]
    return sorted(found, key=_is_common)


def _key(parameter: Any) -> tuple[str, str]:
    return parameter.opts[0], parameter.help or ""


def _is_common(parameter: Any) -> bool:
    return getattr(parameter, "rich_help_panel", None) == COMMON


def _section(name: str, command: Any, shared: list[Any]) -> Iterator[str]:
    """Return the section of a command; a group has its commands below it."""
    yield f"{'###' if ' ' in name else '##'} semlex {name}"
    yield from map(text, re.split(r"\n\n", command.help))
    if default := getattr(command, "default", None):
        yield f"Without a command it runs [`semlex {name} {default}`](#{slug(f'semlex {name} {default}')})."
    if hasattr(command, "commands"):
        return
    parameters = sorted((one for one in command.params if not NOT_SHOWN & set(one.opts)), key=_is_option)
    usage = "".join(f" {_argument(one)}" for one in parameters if not _is_option(one))
    yield f"Usage: `semlex {name}{usage} [OPTIONS]`"
    yield f"```console\n$ {EXAMPLES[name]}\n```"
    keys = [_key(one) for one in shared]
    if own := [one for one in parameters if _key(one) not in keys]:
        yield _options(own)
    if others := [one for one in parameters if _key(one) in keys]:
        named = ", ".join(f"`{max(one.opts, key=len)}`" for one in others)
        yield f"It also has these [options of many commands](#options-of-many-commands): {named}."


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _argument(parameter: Any) -> str:
    many = "…" if parameter.nargs == -1 else ""
    name = f"{(parameter.metavar or parameter.name).upper()}{many}"
    return name if parameter.required else f"[{name}]"


def _options(parameters: list[Any]) -> str:
    return table(["option", ""], ([_names(one), _help(one)] for one in parameters))


def _names(parameter: Any) -> str:
    if not _is_option(parameter):
        return f"`{_argument(parameter).strip('[]')}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    longest = max(names, key=len)
    value = parameter.metavar or longest.strip("-").upper().replace("-", "_")
    return ", ".join(f"`{name}`" if name != longest or parameter.is_flag else f"`{name} {value}`" for name in names)


def _help(parameter: Any) -> str:
    help_text, default = parameter.help or "", parameter.default
    is_shown = parameter.show_default and not getattr(parameter, "is_flag", False) and default not in (None, (), [])
    if is_shown and "default" not in help_text.lower():
        help_text += f" Default: {default}."
    return text(help_text)
