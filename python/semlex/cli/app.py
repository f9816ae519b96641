"""The entry point of the command line."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.exit_codes import EXIT_CODES, OTHER, exit_code
from semlex.cli.groups import MainGroup
from semlex.cli.terminal import messages, output, set_verbosity
from semlex.errors import ConfigurationError, SemlexError

# Errors of a standard output that cannot be written to, such as a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="semlex",
    help="Hybrid search on the Postgres you already have: vectors and words, every score explained.\n\n"
    "The server is DATABASE_URL (or --database), else PGSERVICE or PGHOST, else an embedded Postgres on this machine. "
    "Defaults can come from the environment or a file: `semlex config` shows all settings.",
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
            "--verbose",
            "-v",
            help="Report more: scores of hits, all options in --help, settings that a collection ignores.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results, notes and errors, no progress.")
    ] = False,
) -> None:
    """The options before a command."""
    del version
    if verbose and quiet:
        raise ConfigurationError("--verbose and --quiet exclude each other: give one of them")
    set_verbosity(verbose=verbose, quiet=quiet)


def main() -> None:
    """Run the command line; an error becomes one line and its exit code."""
    try:
        raise SystemExit(app(prog_name="semlex", standalone_mode=False) or 0)
    except SemlexError as error:
        _print_error(str(error))
        raise SystemExit(exit_code(error)) from None
    except typer.TyperException as error:
        _print_error(error.format_message())
        if (context := getattr(error, "ctx", None)) is not None:
            messages.print(f"[dim]all options: {context.command_path} --help[/dim]")
        raise SystemExit(error.exit_code) from None
    except typer.Abort:
        messages.print("aborted: nothing was done")
        raise SystemExit(OTHER) from None
    except OSError as error:
        # The error of a file that a command opened has a file name; only that of the output has none.
        if error.filename is not None or error.errno not in FULL:
            raise
        # Python writes the rest of its buffer when it ends: to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _print_error(f"the output cannot be written: {error.strerror or error.errno}")
        raise SystemExit(OTHER) from None


def _print_error(text: str) -> None:
    messages.print(f"[red]error:[/red] {escape(text)}")
