"""The commands about the HTTP server: ``semlex serve``, and ``semlex serve token add``, ``remove`` and ``list``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.options import INT, SECONDS, AsJson, WorkingGroup, has_command, seconds, time_with_zone, whole_number
from semlex.cli.output import print_json
from semlex.cli.terminal import inform, leave_interruption_untold, messages, one_line, output
from semlex.errors import MissingExtraError

if TYPE_CHECKING:
    from semlex.server.tokens import TokenFile

serve_app = typer.Typer(
    help="Serve search, documents and jobs over HTTP.", invoke_without_command=True, cls=WorkingGroup
)
token_app = typer.Typer(help="Make, list and remove the tokens with which the server is asked.", no_args_is_help=True)
serve_app.add_typer(token_app, name="token")

DEFAULT_PORT = 8321
File = Annotated[
    Path | None,
    typer.Option("--token-file", help="File of the tokens; default: tokens.json beside your own settings, if any."),
]
Rights = Annotated[str, typer.Option("--rights", metavar="RIGHTS", help="read, write or admin.")]
TokenName = Annotated[str, typer.Argument(help="Name of the token.", metavar="NAME")]


@serve_app.callback()
@with_context(..., "collection", *SERVER, *MODEL, "calibration", "reranker_model", "chat_model")
def serve(
    context: Context,
    ctx: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; off loopback tokens are needed.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option("--port", parser=whole_number, metavar=INT, help="Port; 0: any that is free.")
    ] = DEFAULT_PORT,
    rights: Annotated[
        str, typer.Option("--rights", metavar="RIGHTS", help="Of all callers, without tokens: read, write or admin.")
    ] = "read",
    token_file: File = None,
    allow: Annotated[
        list[Path] | None,
        typer.Option("--allow", help="Folder that jobs may read, with all below it; repeatable; default: none."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Further name under which it is asked; repeatable.")
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option("--origin", help="Origin whose pages may ask; repeatable; default: its own.")
    ] = None,
    body_bytes: Annotated[
        int, typer.Option("--body-bytes", parser=whole_number, metavar=INT, help="Most bytes of a request's body.")
    ] = 1024 * 1024,
    documents_bytes: Annotated[
        int,
        typer.Option(
            "--documents-bytes", parser=whole_number, metavar=INT, help="The same, where documents are added."
        ),
    ] = 1024 * 1024,
    timeout: Annotated[
        float, typer.Option("--timeout", parser=seconds, metavar=SECONDS, help="Time for a request.")
    ] = 30.0,
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate",
            parser=whole_number,
            metavar=INT,
            help="Most requests of a caller in a minute, 0 for any number; default: 60 with tokens, else any.",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            parser=whole_number,
            metavar=INT,
            help="Maximum number of requests in progress; others wait for 1 s, then get 503.",
        ),
    ] = 16,
    connections: Annotated[
        int,
        typer.Option("--connections", parser=whole_number, metavar=INT, help="Most connections to the database."),
    ] = 8,
    role: Annotated[
        str | None, typer.Option("--role", help="Role of the database whose rights everything has; see the docs.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", parser=whole_number, metavar=INT, help="Jobs that it does at a time; 0: a worker does."),
    ] = 0,
    stateless: Annotated[
        bool,
        typer.Option(
            "--stateless", help="Answer assistants without sessions, for several processes behind one address."
        ),
    ] = False,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORMAT", help="Of the lines on the error stream: text or json.")
    ] = "text",
    judgements: Annotated[
        Path | None,
        typer.Option(
            "--judgements", help="Folder for what people judge on the page, a folder in it for each collection."
        ),
    ] = None,
) -> None:
    """Serve search, documents and jobs over HTTP, until it is stopped.

    Without tokens only this machine can ask, and everybody on it has --rights. Changed settings are used without a
    restart. Ctrl-C, or SIGTERM, lets requests in progress end; a second one ends it at once.
    """
    if has_command(ctx):
        return
    run, options_of = server_parts("semlex serve")
    from semlex.server.observability import log_to_stderr
    from semlex.settings.load import WatchedSettings

    file = _tokens(token_file).path
    options = options_of(
        host=host,
        port=port,
        rights=rights,
        token_file=file if token_file is not None or file.exists() else None,
        allow=tuple(path.expanduser() for path in allow or ()),
        hosts=tuple(allow_host or ()),
        origins=tuple(origin or ()),
        body_bytes=body_bytes,
        documents_bytes=documents_bytes,
        seconds=timeout,
        rate=rate,
        concurrency=concurrency,
        database_connections=connections,
        role=role,
        jobs=jobs,
        stateless=stateless,
        judgements=None if judgements is None else judgements.expanduser().absolute(),
    )
    log_to_stderr(log_format)
    if log_format != "text":
        leave_interruption_untold()  # every line is of its form
    run(
        options,
        WatchedSettings(**context.given()),
        tell if log_format == "text" else logging.getLogger("semlex.server").info,
    )


def server_parts(command: str) -> tuple[Any, Any]:
    """What serves, and its options."""
    try:
        from semlex.server.options import ServeOptions
        from semlex.server.run import serve as run
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "fastapi", "server", command) from None
    return run, ServeOptions


def tell(line: str) -> None:
    """Shows a line about the server."""
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
        list[str] | None, typer.Option("--collection", "-c", help="Collection that it sees; repeatable; default: all.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="When it is refused from then on: 2027-01-31T18:00Z; default: never."
        ),
    ] = None,
    token_file: File = None,
) -> None:
    """Make a token, and print it: this once only, for the file holds its hash."""
    tokens = _tokens(token_file)
    ends = time_with_zone("--expires", expires)
    secret = tokens.add(name, rights, tuple(collection or ()), ends)  # type: ignore[arg-type]  # it is checked there
    output.print(secret)
    messages.print(f"[dim]{escape(one_line(f'{name} stands in {tokens.path}; the token is shown this once')):s}[/dim]")


@token_app.command("remove")
def remove_token(name: TokenName, *, token_file: File = None) -> None:
    """Remove a token; a server that runs refuses it within seconds."""
    _tokens(token_file).remove(name)
    inform(f"removed {escape(one_line(name))}")


@token_app.command("list")
def list_tokens(*, token_file: File = None, as_json: AsJson = False) -> None:
    """Show the names of the tokens, with their rights, collections and ends."""
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
        inform("there are no tokens")
