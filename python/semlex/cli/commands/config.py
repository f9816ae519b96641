"""The commands about settings: ``semlex config``, ``semlex config trust`` and ``untrust``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.options import AsJson
from semlex.cli.output import print_json
from semlex.cli.terminal import messages, output
from semlex.errors import ConfigurationError
from semlex.settings import files

config_app = typer.Typer(help="All settings and where they come from; the folders whose semlex.toml you trust.")

TrustedFolder = Annotated[Path, typer.Argument(help="Folder; without one, the working directory.")]


@config_app.callback(invoke_without_command=True)
def show(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Show every setting and where it comes from.

    An argument goes before the environment (SEMLEX_ and the name in capitals), that before semlex.toml in the working
    directory, that before your own settings file. Keys come from the environment only and are not shown.
    """
    if context.invoked_subcommand is not None:
        return
    from semlex.settings.load import BUILT_IN, OTHER_VARIABLES, SETTINGS, read_settings

    settings, problems = read_settings()
    rows: list[tuple[str, Any, str, str]] = []
    for setting in SETTINGS:
        value = settings.value(setting)
        if setting.name == "database_url" and value is not None:
            value = _server(value)
        rows.append((setting.name, value, settings.origins.get(setting.name, BUILT_IN), setting.what))
    rows += [(name, "set", "environment", what) for name, what in OTHER_VARIABLES.items() if os.environ.get(name)]
    for name, value, origin, what in rows:
        if as_json:
            shown = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
            print_json({"name": name, "value": shown, "origin": origin, "what": what})
        else:
            shown = ", ".join(value) if isinstance(value, tuple) else value
            output.print(escape(f"{name:24} {'-' if shown in (None, '') else shown!s:28} {origin}"))
    if not as_json:
        path = files.own_file()
        messages.print(
            f"[dim]your own settings file: {escape(str(path))}{'' if path.exists() else ' (not there)'}[/dim]"
        )
    if problems:
        raise ConfigurationError("; ".join(problems))


@config_app.command("trust")
def trust(folder: TrustedFolder = Path()) -> None:
    """Trust a folder's semlex.toml as it is now: it may then say where texts and data go.

    When the file changes, it has to be trusted again.
    """
    path = files.trust(folder.expanduser())
    messages.print(f"trusted: {escape(str(path))}")


@config_app.command("untrust")
def untrust(folder: TrustedFolder = Path()) -> None:
    """Trust a folder's semlex.toml no longer."""
    resolved = folder.expanduser().resolve()
    was = files.untrust(resolved)
    messages.print(f"{'no longer trusted' if was else 'was not trusted'}: {escape(str(resolved))}")


def _server(url: str) -> str:
    """Where a server is, without a password."""
    from semlex.store.postgres.addresses import describe

    try:
        return describe(url)
    except ConfigurationError:
        return "set, but it cannot be used"
