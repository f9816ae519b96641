"""The commands about the embedded server: ``semlex postgres status`` and ``semlex postgres stop``."""

from __future__ import annotations

import typer
from rich.markup import escape

from semlex.cli.options import AsJson, DataDir
from semlex.cli.output import print_json
from semlex.cli.terminal import output

postgres_app = typer.Typer(help="The embedded Postgres of this machine.", no_args_is_help=True)


@postgres_app.command("status")
def status(*, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show whether the embedded Postgres runs, where, and for how long; starts nothing."""
    from semlex.settings.load import load_settings
    from semlex.store.postgres.embedded.server import server_status

    found = server_status(load_settings(data_dir=data_dir).server_folder)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        if value is not None:
            shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            output.print(escape(f"{name.replace('_', ' '):10} {shown}"))


@postgres_app.command("stop")
def stop(*, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Stop the embedded Postgres now, instead of after its time; refused while a program uses it."""
    from semlex.settings.load import load_settings
    from semlex.store.postgres.embedded.server import stop_unused

    stopped = stop_unused(load_settings(data_dir=data_dir).server_folder)
    if as_json:
        print_json({"stopped": stopped})
    else:
        output.print("stopped" if stopped else "it does not run")
