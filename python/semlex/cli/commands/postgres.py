"""Show, start or stop the embedded Postgres of this machine."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from semlex.cli.context import Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.terminal import output
from semlex.errors import ConfigurationError

postgres_app = typer.Typer(help=__doc__, cls=group_with_default("status"))


@postgres_app.command("status")
@with_context("data_dir")
def status(context: Context) -> None:
    """Show whether the embedded Postgres runs, where, and for how long."""
    from semlex.store.postgres.embedded.server import server_status

    found = server_status(context.settings().server_folder)
    context.emit(found, lambda: _print_status(found))


def _print_status(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if value is not None:
            shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            output.print(escape(f"{name.replace('_', ' '):10} {shown}"))


@postgres_app.command("start")
@with_context("data_dir", "keep_alive")
def start(context: Context) -> None:
    """Start the embedded Postgres for --keep-alive seconds and print its address; connections do not prolong this."""
    from semlex.store.postgres.embedded.server import EmbeddedServer

    settings = context.settings()
    if not settings.keep_alive:
        raise ConfigurationError("the server would stop immediately: give a time, such as --keep-alive 86400")
    with EmbeddedServer(settings.server_folder, keep_alive=settings.keep_alive) as server:
        url = server.url
    context.emit({"url": url}, lambda: output.print(escape(url)))


@postgres_app.command("stop")
@with_context("data_dir")
def stop(context: Context) -> None:
    """Stop the embedded Postgres now; refused while a program uses it."""
    from semlex.store.postgres.embedded.server import stop_unused

    stopped = stop_unused(context.settings().server_folder)
    context.emit(
        {"stopped": stopped}, lambda: output.print("stopped" if stopped else "the embedded Postgres is not running")
    )
