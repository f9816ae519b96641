"""``semlex shell``: questions one after another, to a server and a model that stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.commands.search import Mode, TopK  # noqa: TC001 - `with_context` reads the annotations
from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.exit_codes import exit_code
from semlex.cli.options import Boost, Filter, RouteOption, boosts_of, filter_of
from semlex.cli.terminal import inform, messages
from semlex.errors import ConfigurationError, SemlexError

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.cli.interactive.session import Session
    from semlex.settings.table import Settings

HISTORY_FILE = "shell_history"


@with_context("collection", ..., *SERVER, "embedding_model", "device", "calibration", "reranker_model", "chat_model")
def shell(
    context: Context,
    *,
    top_k: TopK = None,
    mode: Mode = None,
    filters: Filter = None,
    boost: Boost = None,
    route: RouteOption = None,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Keep nothing of what is typed, and offer nothing of before.")
    ] = False,
) -> None:
    """Ask one question after another, while server and model stay open: an answer takes milliseconds.

    A line is a question. A line that begins with a colon changes how is searched or looks closer; :help lists what
    there is. Ctrl-C ends a question that takes too long, Ctrl-D the shell. Lines from a pipe are answered one after
    another, without a prompt; the exit code is that of the last error.
    """
    from semlex.cli.interactive.prompt import History, is_interactive
    from semlex.cli.interactive.session import MODES, Session, hits_wanted

    options: dict[str, Any] = {"mode": mode, "filters": filter_of(filters), "boost": boosts_of(boost), "route": route}
    if mode is not None and mode not in MODES:
        raise ConfigurationError(f"--mode takes {', '.join(MODES)}; got {mode!a}")
    settings = context.settings()
    wanted = settings.top_k if top_k is None else hits_wanted(top_k, "--top-k")
    session = Session(context, settings, options, wanted, context.as_json)
    try:
        session.open(settings)
        if is_interactive():
            inform("[dim]a line is a question; :help lists commands; Ctrl-D ends[/dim]")
        with History(None if no_history else _history_file(settings), session.candidates):
            code = _answer_all(session)
    finally:
        session.close()
    if code and not is_interactive():
        raise typer.Exit(code)


def _answer_all(session: Session) -> int:
    """Answers line by line; the exit code of the last error."""
    from semlex.cli.interactive.prompt import is_interactive, lines

    code = 0
    for line in lines(lambda: f"{session.collection}> "):
        try:
            if not session.run(line if isinstance(line, str) else _decoded(line)):
                break
        except SemlexError as error:
            messages.print(f"[red]error:[/red] {escape(str(error))}")
            code = exit_code(error)
        except KeyboardInterrupt:
            if not is_interactive():
                raise
            messages.print("cancelled")
    return code


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError("the line is not text in UTF-8") from None


def _history_file(settings: Settings) -> Path:
    """In the folder of semlex's data on this machine."""
    from semlex.store.postgres.embedded.folder import default_folder

    return (settings.data_dir or default_folder().parent) / HISTORY_FILE
