"""The command line: parse, call, print."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.exit_codes import EXIT_CODES, OTHER, exit_code
from semlex.cli.manual.groups import MainGroup
from semlex.cli.terminal import messages, output, set_quiet, set_verbose
from semlex.errors import ConfigurationError, SemlexError

# Errors of a standard output that takes nothing any more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="semlex",
    help="Hybrid search on the Postgres you already have: vectors and words, fused, every score explained.\n\n"
    "The server is DATABASE_URL (or --database), else that of PGSERVICE or PGHOST; without any, an embedded Postgres "
    "runs on this machine. What stays the same from run to run can come from the environment or a file: "
    "`semlex config` shows all settings.",
    epilog=EXIT_CODES,
    cls=MainGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    except OSError as error:
        # What commands open themselves has a name; files of semlex's own tell their errors.
        if error.filename is not None or error.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes what is left at its end
        messages.print(f"[red]error:[/red] the output cannot be written: {escape(error.strerror or str(error.errno))}")
        raise SystemExit(OTHER) from None
