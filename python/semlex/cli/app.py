"""The command line: parse, call, print."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.commands.answers import context
from semlex.cli.commands.ask import ask
from semlex.cli.commands.background.jobs import jobs_app, submit
from semlex.cli.commands.background.worker import worker
from semlex.cli.commands.collections import collections, drop, migrate, status
from semlex.cli.commands.config import config_app
from semlex.cli.commands.diagnosis.checkup import checkup
from semlex.cli.commands.doctor import doctor_app
from semlex.cli.commands.evaluate import evaluation_app
from semlex.cli.commands.fields import fields_app
from semlex.cli.commands.index import chunks, embed, index
from semlex.cli.commands.models import models_app
from semlex.cli.commands.postgres import postgres_app
from semlex.cli.commands.search import facets, search, try_folder
from semlex.cli.commands.sources import sources_app
from semlex.cli.commands.sync import documents, sync
from semlex.cli.commands.whole_collection.create_index import create_index
from semlex.cli.commands.whole_collection.embeddings import embeddings, reembed
from semlex.cli.commands.whole_collection.enrich import enrich
from semlex.cli.commands.whole_collection.maintenance import delete, optimize, rechunk, reindex
from semlex.cli.commands.whole_collection.queries import queries
from semlex.cli.commands.whole_collection.transfer import dump, import_rows, restore
from semlex.cli.commands.why import why
from semlex.cli.exit_codes import EXIT_CODES, exit_code
from semlex.cli.options import MainGroup, QuestionCommand
from semlex.cli.terminal import messages, output, set_quiet, set_verbose
from semlex.errors import ConfigurationError, SemlexError

app = typer.Typer(
    name="semlex",
    help="Hybrid search on the Postgres you already have: vectors and words, fused, every score explained.\n\n"
    "The server is DATABASE_URL (or --database); without one, an embedded Postgres runs on this machine. What stays "
    "the same from run to run can come from the environment or a file: `semlex config` shows all settings.",
    epilog=EXIT_CODES,
    cls=MainGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models_app, name="models")
app.add_typer(doctor_app, name="doctor")
app.add_typer(evaluation_app, name="eval")
app.add_typer(config_app, name="config")
app.add_typer(postgres_app, name="postgres")
app.add_typer(sources_app, name="sources")
app.add_typer(fields_app, name="fields")
app.add_typer(jobs_app, name="jobs")
app.command()(delete)
app.command()(rechunk)
app.command()(migrate)
app.command("try", cls=QuestionCommand)(try_folder)
app.command()(index)
app.command()(chunks)
app.command()(sync)
app.command()(documents)
app.command(cls=QuestionCommand)(search)
app.command(cls=QuestionCommand)(why)
app.command(cls=QuestionCommand)(ask)
app.command()(checkup)
app.command()(queries)
app.command()(facets)
app.command(cls=QuestionCommand)(context)
app.command()(embed)
app.command()(enrich)
app.command("import")(import_rows)
app.command()(dump)
app.command()(restore)
app.command()(reembed)
app.command()(embeddings)
app.command()(optimize)
app.command()(create_index)
app.command()(submit)
app.command()(worker)
app.command()(reindex)
app.command()(status)
app.command()(collections)
app.command()(drop)


def _show_version(show: bool) -> None:
    if show:
        from semlex import __version__

        output.print(f"semlex {__version__}")
        raise typer.Exit


@app.callback()
def semlex(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say which settings a collection does not follow; may follow a command, too."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Only results, notes and errors, no progress; may follow a command, too."),
    ] = False,
) -> None:
    """The options before a command."""
    del version
    if verbose and quiet:
        raise ConfigurationError("--verbose and --quiet exclude each other: give one of them")
    set_verbose(verbose)
    set_quiet(quiet)


def main() -> None:
    """Runs the command line; an error of semlex becomes one line and its exit code."""
    try:
        app(prog_name="semlex")
    except SemlexError as error:
        messages.print(f"[red]error:[/red] {escape(str(error))}")
        raise SystemExit(exit_code(error)) from None
