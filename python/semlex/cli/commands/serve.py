"""Serve search, documents and jobs over HTTP."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, READER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Allowed, AsJson, OptionsOf, Role, duration, integer, time_with_zone, without_none
from semlex.cli.output import print_json
from semlex.cli.terminal import inform, leave_interruption_untold, messages, one_line, output
from semlex.errors import MissingExtraError

if TYPE_CHECKING:
    from semlex.server.tokens import TokenFile


serve_app = typer.Typer(help=__doc__, cls=group_with_default("run"))
token_app = typer.Typer(help="Make, list and remove the tokens of callers.", cls=group_with_default("list"))
serve_app.add_typer(token_app, name="token")

DEFAULT_PORT = 8321
File = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File of the tokens; default: tokens.json beside your own settings, if it exists."
    ),
]
Judgements = Annotated[
    Path | None, typer.Option(help="Folder in which the page stores judgements; each collection has a subfolder.")
]
Rights = Annotated[str, typer.Option("--rights", metavar="RIGHTS", help="read, write or admin.")]
TokenName = Annotated[str, typer.Argument(help="Name of the token.", metavar="NAME")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The options of the server that `ServeOptions` has under the same names."""

    host: Annotated[str, typer.Option(help="Address to listen on; addresses other than loopback need tokens.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, integer("Port; 0: any free one.")] = DEFAULT_PORT
    rights: Annotated[
        str, typer.Option(metavar="RIGHTS", help="Rights of all callers if no tokens exist: read, write or admin.")
    ] = "read"
    allow: Allowed = None
    hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Another host name of this server; repeatable.")
    ] = None
    origins: Annotated[
        list[str] | None,
        typer.Option("--origin", help="Origin whose pages may call the server; repeatable; default: the server's own."),
    ] = None
    body_bytes: Annotated[int, integer("Maximum bytes of a request body.")] = 1024 * 1024
    documents_bytes: Annotated[int, integer("Maximum bytes of a request that adds documents.")] = 1024 * 1024
    seconds: Annotated[float, duration("Maximum seconds per request.", "--timeout")] = 30.0
    rate: Annotated[
        int | None,
        integer("Maximum requests per caller and minute; 0: no limit. Default: 60 with tokens, else no limit."),
    ] = None
    concurrency: Annotated[
        int, integer("Maximum number of requests in progress; others wait for 1 s, then get 503.")
    ] = 16
    database_connections: Annotated[int, integer("Maximum number of connections to the database.", "--connections")] = 8
    role: Role = None
    processes: Annotated[int, integer("Number of processes that share the address; every limit is per process.")] = 1
    jobs: Annotated[int, integer("Number of jobs that the server runs at a time; 0: workers run them.")] = 0
    stateless: Annotated[
        bool,
        typer.Option(
            "--stateless", help="Serve assistants without sessions, for several processes behind one address."
        ),
    ] = False
    judgements: Judgements = None


@serve_app.command("run", hidden=True)
@with_context(..., "collection", *READER, *MODEL, "calibration", "reranker_model", "chat_model")
def serve(
    context: Context,
    *,
    served: Annotated[Served, OptionsOf(Served)],
    token_file: File = None,
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="Format of the log lines on stderr: text or json.")
    ] = "text",
    listening: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve search, documents and jobs over HTTP until stopped.

    Without tokens, only this machine can call the server, and every user on it has --rights. Changed settings are used
    without a restart. Ctrl-C or SIGTERM lets requests in progress finish; a second one ends the server immediately.
    """
    run, options_of = server_parts("semlex serve")
    from semlex.server.observability import log_to_stderr
    from semlex.settings.sources import WatchedSettings

    file = _tokens(token_file).path
    given = without_none(asdict(served)) | {"allow": tuple(path.expanduser() for path in served.allow or ())}
    options = options_of(
        **given | _judgements(served.judgements), token_file=file if token_file is not None or file.exists() else None
    )
    log_to_stderr(log_format)
    if log_format != "text":
        leave_interruption_untold()  # every line is of its form
    say = tell if log_format == "text" else logging.getLogger("semlex.server").info
    source = WatchedSettings(**context.given())
    if listening is not None:
        from semlex.server.processes import report_ready

        shared = socket.socket(fileno=listening)
        run(options, source, lambda _line: None, lambda _address: report_ready(), shared)
    elif served.processes > 1:
        from semlex.server.processes import serve_together

        code = serve_together(options, say, sys.argv[1:])
        if code < 0:  # what a single process does with its signal, when it has stopped
            signal.signal(-code, signal.default_int_handler if -code == signal.SIGINT else signal.SIG_DFL)
            signal.raise_signal(-code)
        raise typer.Exit(code)
    else:
        run(options, source, say)


def _judgements(folder: Path | None) -> dict[str, Path]:
    return {} if folder is None else {"judgements": folder.expanduser().absolute()}


def server_parts(command: str) -> tuple[Any, Any]:
    """Return the function that runs the server, and the class of its options."""
    try:
        from semlex.server.app import serve as run
        from semlex.server.options import ServeOptions
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "server", command) from None
    return run, ServeOptions


def tell(line: str) -> None:
    """Print a line about the server."""
    inform(escape(one_line(line)))


def _tokens(file: Path | None) -> TokenFile:
    from semlex.settings.files import own_file

    server_parts("semlex serve")
    from semlex.server.tokens import TokenFile

    return TokenFile(own_file().with_name("tokens.json") if file is None else file.expanduser())


@token_app.command("add")
def add_token(
    name: TokenName,
    *,
    rights: Rights = "read",
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", help="Collection that the token can access; repeatable; default: all."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the token expires, such as 2027-01-31T18:00Z; default: never."),
    ] = None,
    token_file: File = None,
) -> None:
    """Make a token and print it; it is shown only once, because the file stores only a hash of it."""
    tokens = _tokens(token_file)
    ends = time_with_zone("--expires", expires)
    secret = tokens.add(name, rights, tuple(collection or ()), ends)  # type: ignore[arg-type]  # it is checked there
    output.print(secret)
    messages.print(f"[dim]{escape(one_line(f'{name} is in {tokens.path}; the token is shown only once')):s}[/dim]")


@token_app.command("remove")
def remove_token(name: TokenName, *, token_file: File = None) -> None:
    """Remove a token; a running server refuses it from the next request on."""
    _tokens(token_file).remove(name)
    inform(f"removed {escape(one_line(name))}")


@token_app.command("list")
def list_tokens(*, token_file: File = None, as_json: AsJson = False) -> None:
    """List the tokens with their rights, collections and expiry."""
    found = _tokens(token_file).read()
    for token in found:
        collections = token.caller.collections
        if as_json:
            listed = None if collections is None else sorted(collections)
            expires = None if token.expires is None else token.expires.isoformat()
            row = {"name": token.caller.name, "rights": token.caller.rights, "collections": listed, "expires": expires}
            print_json(row)
            continue
        seen = "all collections" if collections is None else ", ".join(sorted(collections))
        ends = ""
        if token.expires is not None:
            ends = f"  {'expired' if token.has_expired else 'expires'} {token.expires:%Y-%m-%d %H:%M%z}"
        output.print(f"{escape(one_line(token.caller.name))}  {token.caller.rights}  {escape(one_line(seen))}{ends}")
    if not found and not as_json:
        inform("no tokens")


# Without one of these variables, `webbrowser` on Linux opens browsers that run inside the terminal.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@with_context("collection", ..., *READER, *MODEL, "calibration", "reranker_model", "chat_model")
def ui(
    context: Context,
    *,
    port: Annotated[int, integer("Port; default: any free one.")] = 0,
    judgements: Judgements = None,
    rights: Annotated[
        str | None,
        typer.Option(metavar="RIGHTS", help="read, write or admin; default: read, or write with --judgements."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, if this is a terminal.")
    ] = True,
) -> None:
    """Open a page in the browser that shows, explains and judges searches.

    Only this machine can use it, until Ctrl-C. semlex serve has the same page.
    """
    show_page(context.given(), port=port, judgements=judgements, rights=rights, browser=browser)


def show_page(
    given: dict[str, Any],
    question: str | None = None,
    *,
    port: int = 0,
    judgements: Path | None = None,
    rights: str | None = None,
    browser: bool = True,
) -> None:
    """Serve the web page on loopback until stopped."""
    run, options_of = server_parts("semlex ui")
    from semlex.server.observability import log_to_stderr
    from semlex.settings.sources import WatchedSettings

    rights = rights or ("read" if judgements is None else "write")
    options = options_of(port=port, rights=rights, **_judgements(judgements))
    place = {name: text for name, text in (("collection", given.get("collection")), ("q", question)) if text}

    def ready(address: str) -> None:
        url = f"{address}/" + (f"#search?{urlencode(place)}" if place else "")
        tell(f"the page: {url}")
        tell("Ctrl-C ends it")
        if browser and can_open():
            # The call may wait until the browser ends, but this thread must serve the page.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    log_to_stderr("text", quiet=True)
    run(options, WatchedSettings(**given), tell, ready)


def can_open() -> bool:
    """Return whether a browser can be opened: there is a terminal and a display."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in DISPLAYS)
