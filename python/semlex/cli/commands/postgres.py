"""Show, start or stop the embedded Postgres of this machine."""

from __future__ import annotations

import typer
from rich.markup import escape

from semlex.cli.context import Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.output import print_lines
from semlex.cli.terminal import output
from semlex.errors import ConfigurationError

postgres_app = typer.Typer(help=__doc__, cls=group_with_default("status"))


@postgres_app.command("status")
@with_context("data_dir")
def status(context: Context) -> None:
    """Show whether the embedded Postgres runs, where, and for how long."""
    from semlex.store.postgres.embedded.server import server_status

    found = server_status(context.settings().server_folder)
    shown = {True: "yes", False: "no"}
    lines = {name.replace("_", " "): shown[one] if isinstance(one, bool) else one for name, one in found.items()}
    context.emit(found, lambda: print_lines(lines, 10))


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
