"""Show all settings and where they come from; write settings files, and trust folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.groups import group_with_default
from semlex.cli.options import AsJson
from semlex.cli.output import print_json, print_note
from semlex.cli.terminal import is_verbose, messages, one_line, output
from semlex.errors import ConfigurationError
from semlex.settings import files
from semlex.settings.table import BUILT_IN, OTHER_VARIABLES, SETTINGS, Setting, Settings, shown, write_template

config_app = typer.Typer(help=__doc__, cls=group_with_default("show"))

TrustedFolder = Annotated[Path, typer.Argument(help="Folder; default: the working directory.")]
# Parts of an address that may be secret: between :// and the last @, and after ?.
_SECRETS = ((re.compile(r"://\S*@"), "://***@"), (re.compile(r"\?[^#\s]+"), "?***"))


@config_app.command("show")
def show(*, as_json: AsJson = False) -> None:
    """Show every setting, its value and where it comes from; with -v also every overridden value.

    Options take precedence over the environment (SEMLEX_ and the name in capitals), then come semlex.toml and
    pyproject.toml in the working directory, then your own settings file. Keys are read from the environment only and
    never shown.
    """
    from semlex.settings.sources import read_settings

    settings, problems = read_settings()
    for row in _rows(settings):
        if as_json:
            print_json(row)
            continue
        output.print(escape(one_line(f"{row['name']:24} {_text(row['value']):28} {row['origin']}")))
        for one in row["overridden"]:
            # Of two variables one may have been forgotten; files are meant to be overridden.
            if is_verbose() or (one["origin"] in os.environ and one["differs"]):
                line = f"  not used: {_text(one['value'])} ({one['origin']})"
                output.print(f"[dim]{escape(one_line(line))}[/dim]")
    print_note(*settings.notes)
    if not as_json:
        _print_files(settings)
    if problems:
        raise ConfigurationError("; ".join(problems))


@config_app.command("init")
def init(
    *,
    folder: Annotated[
        bool, typer.Option("--folder", help="Write semlex.toml in the working directory instead of your own file.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a settings file that lists every setting with its default, commented out."""
    path = Path.cwd() / files.FOLDER_FILE if folder else files.own_file()
    write_template(path, replace=force)
    messages.print(f"written: {escape(str(path))}")


@config_app.command("trust")
def trust(folder: TrustedFolder = Path()) -> None:
    """Trust a folder's semlex.toml and pyproject.toml: they may then set where texts and data go.

    After a change, a file must be trusted again.
    """
    for path in files.trust(folder.expanduser()):
        messages.print(f"trusted: {escape(str(path))}")


@config_app.command("untrust")
def untrust(folder: TrustedFolder = Path()) -> None:
    """Stop trusting a folder's settings files."""
    resolved = folder.expanduser().resolve()
    was = files.untrust(resolved)
    messages.print(f"{'no longer trusted' if was else 'was not trusted'}: {escape(str(resolved))}")


def _rows(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield every setting, and the other environment variables that are set, without secrets."""
    for setting in SETTINGS:
        value = settings.value(setting)
        row = {"name": setting.name, "value": _masked(setting.name, value)}
        row |= {"origin": settings.origins.get(setting.name, BUILT_IN), "what": setting.what}
        beside = settings.overridden.get(setting.name, ())
        row["overridden"] = [
            {
                "origin": one.origin,
                "value": _masked(setting.name, one.value),
                "differs": _differs(setting, one.value, value),
            }
            for one in beside
        ]
        yield row
    for name, what in OTHER_VARIABLES.items():
        if os.environ.get(name):
            yield {"name": name, "value": "set", "origin": "environment", "what": what, "overridden": []}


def _differs(setting: Setting, said: Any, value: Any) -> bool:
    """Return whether a value that was overridden differs from the one in use."""
    try:
        return bool(setting.read(said) != value)
    except (ValueError, ConfigurationError):
        return True


def _text(value: Any) -> str:
    if value in (None, "", []):
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_files(settings: Settings) -> None:
    try:
        own = files.own_file()
    except ConfigurationError:  # it is one of the problems, which are shown
        own = None
    for path in settings.files:
        if path == own:
            there = "" if path.exists() else " (does not exist)"
            messages.print(f"[dim]your own settings file: {escape(str(path))}{there}[/dim]")
        elif is_verbose() and path.exists():
            messages.print(f"[dim]read: {escape(str(path))}[/dim]")


def _masked(name: str, value: Any) -> Any:
    """Return a value without its secrets, for people and as JSON."""
    if isinstance(value, dict):
        return shown(value)
    if isinstance(value, (list, tuple)):
        return [_masked(name, one) for one in value]
    if not isinstance(value, (str, Path)):
        return value
    if name == "database_url":
        return _server(str(value))
    text = str(value)
    for secret, mark in _SECRETS:
        text = secret.sub(mark, text)
    return text


def _server(url: str) -> str:
    """Return the address of a server without its password."""
    from semlex.store.postgres.addresses import describe

    try:
        return describe(url)
    except ConfigurationError:
        return "set, but it cannot be used"
