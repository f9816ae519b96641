"""``semlex mcp``: collections for an assistant, by the Model Context Protocol."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, OUTPUT, READER, Context, with_context
from semlex.cli.exit_codes import STOPPED, on_signals
from semlex.cli.options import OptionsOf, Role, integer
from semlex.cli.output import print_note
from semlex.cli.terminal import inform, output
from semlex.errors import ConfigurationError, MissingExtraError, SemlexError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from semlex.retriever.client import Client
    from semlex.server.mcp.access import Access
    from semlex.server.tokens import Caller
    from semlex.settings.table import Settings

LAST_PORT = 65_535
# Options whose texts are paths, and those that may name a folder.
PATHS = frozenset({"tokenizer"})
MODELS = frozenset({"embedding_model", "reranker_model"})


@dataclass(frozen=True)
class Place:
    """The options of a server for assistants over HTTP: its address, its tokens and its other host names."""

    host: Annotated[str, typer.Option(help="Address for --http.")] = "127.0.0.1"
    port: Annotated[int, integer("Port for --http; 0: any free one.", between=(0, LAST_PORT))] = 8322
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="For --http: file of the tokens, as for semlex serve; default: tokens.json beside your own settings, "
            "if it exists.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(help="For --http: another host name of this server; repeatable.")
    ] = None


@with_context(..., *READER, *MODEL, "reranker_model", "chat_model")
def mcp(
    context: Context,
    *,
    ctx: typer.Context,
    collections: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", help="Collection that the assistant sees; repeatable; default: all."),
    ] = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let the assistant index and change indexes; default: it only reads.")
    ] = False,
    allow: Annotated[
        list[Path] | None, typer.Option(help="Folder that the assistant may index; repeatable; default: none.")
    ] = None,
    role: Role = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of stdin and stdout.")] = False,
    place: Annotated[Place, OptionsOf(Place)],
    print_config: Annotated[
        str | None,
        typer.Option(
            "--print-config",
            metavar="NAME",
            help="Print the settings of an assistant for these options, and end: claude-desktop, "
            "claude-code, codex, cursor, gemini-cli, vscode, windsurf, zed.",
        ),
    ] = None,
) -> None:
    """Give an assistant your documents: it searches, reads and cites them (Model Context Protocol).

    The assistant starts this command itself; --print-config prints the entry for its settings. It only reads, unless
    you give --allow-writes. Over HTTP, the token of each caller decides what the caller can access.
    """
    if print_config is not None:
        _print_config(print_config, context.settings(), _given(ctx), over_http=http)
        return
    if not http and place != Place():
        raise ConfigurationError(
            "--host, --port, --allow-host and --token-file are for --http: add it, or leave them out"
        )
    try:
        from semlex.server.mcp.access import Access
        from semlex.server.mcp.server import mcp_server  # noqa: F401 - tells whether there is what it needs
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("semlex"):
            raise
        raise MissingExtraError("mcp", "mcp", "semlex mcp") from None
    access = Access.of(collections or (), writes=allow_writes, folders=[folder.expanduser() for folder in allow or ()])
    import asyncio
    import logging

    # The protocol has stdout; what is logged is for people.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("semlex").handlers.clear()  # else its lines come twice
    # The collection that is named once is that of the settings.
    settings = context.settings(**({"collection": collections[0]} if collections and len(collections) == 1 else {}))
    received: list[int] = []
    try:
        if http:
            asyncio.run(_over_http(settings, role, access, place, received))
        else:
            asyncio.run(_over_pipes(settings, role, access, received))
    except (Exception, asyncio.CancelledError):
        # What is cancelled in the midst of a frame may end in another error.
        if not received:
            raise
    if received:
        raise typer.Exit(STOPPED + received[0])


def _client(settings: Settings, role: str | None) -> Client:
    """Return a client with the settings, including their search defaults."""
    from semlex.retriever.client import Client

    return Client(**settings.client_options, role=role, search_defaults=settings.search_options)


async def _over_pipes(settings: Settings, role: str | None, access: Access, received: list[int]) -> None:
    """Serve on standard input and output until the assistant or a signal ends it."""
    # The handshake is answered at once, because assistants do not wait long for it; calls wait until the database is
    # open.
    import asyncio

    from semlex.server.mcp.server import mcp_server, serve_standard_streams
    from semlex.server.open_client import OpenClient

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    on_signals(received, task.cancel)
    client = _client(settings, role)

    async def open_and_look() -> None:
        await client.initialize()
        await _look(client, access, settings)

    opening = asyncio.create_task(open_and_look())

    def end_with(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is not None:
            task.cancel()

    opening.add_done_callback(end_with)
    try:
        await serve_standard_streams(mcp_server(OpenClient(client, settings), access))
    except (Exception, asyncio.CancelledError):
        # What is cancelled in the midst of a frame may end in another error.
        if opening.done() and not received:
            await opening  # its error is what has ended this
        raise
    finally:
        opening.remove_done_callback(end_with)  # what is cancelled may end in an error of the driver
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await client.close()


@asynccontextmanager
async def _looking(client: Client, access: Access, settings: Settings) -> AsyncIterator[None]:
    """Check in the background that the named collections and folders exist: an assistant reports missing ones late."""
    import asyncio

    looking = asyncio.create_task(_look(client, access, settings))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look(client: Client, access: Access, settings: Settings) -> None:
    """Print to stderr what is wrong with collections, database, role and model folders."""
    _look_for_folders(settings)
    try:
        there = {listed.name for listed in await client.collections()}
    except SemlexError as error:
        print_note(str(error))
        return
    for name in sorted((access.collections or frozenset()) - there):
        print_note(
            f"collection {name!a} does not exist yet; 'semlex index FOLDER -c {name}' makes it, "
            "'semlex collections' lists the existing ones"
        )


def _look_for_folders(settings: Settings) -> None:
    from semlex.models.model_names import bare_name, leads_to

    for setting in sorted(MODELS):
        text = str(getattr(settings, setting) or "")
        if leads_to(text) == "folder" and not Path(bare_name(text)).expanduser().is_dir():
            print_note(f"{setting}: folder {bare_name(text)[:200]!a} does not exist; name an existing one, or a model")


async def _over_http(settings: Settings, role: str | None, access: Access, place: Place, received: list[int]) -> None:
    """Serve over HTTP until a signal ends it."""
    from semlex.server.addresses import address_to_ask
    from semlex.server.mcp.http import PATH, listening_socket, mcp_app, web_server
    from semlex.server.open_client import OpenClient

    find = _finder(place.token_file)
    with listening_socket(place.host, place.port, has_tokens=find is not None) as listening:
        async with _client(settings, role) as client, _looking(client, access, settings):
            app = mcp_app(
                OpenClient(client, settings), access, host=place.host, names=place.allow_host or (), find_caller=find
            )
            server = web_server(app)
            on_signals(received, lambda: setattr(server, "should_exit", True))
            to = "" if find is None else ", to callers with a token"
            inform(f"serving assistants at {escape(address_to_ask(listening))}{PATH}{to}; Ctrl-C ends it")
            await server.serve([listening])


def _finder(given: Path | None) -> Callable[[str], Caller | None] | None:
    """Return the function that finds a caller by token; None without a token file."""
    from semlex.server.tokens import TokenFile, WatchedTokens
    from semlex.settings.files import own_file

    file = own_file().with_name("tokens.json") if given is None else given.expanduser()
    return WatchedTokens(TokenFile(file)).caller if given is not None or file.exists() else None


# Command and arguments -> the lines to write or type.
Form: TypeAlias = "Callable[[str, list[str]], str]"
NAME = "semlex"


def _servers(key: str, **more: str) -> Form:
    return lambda command, arguments: json.dumps(
        {key: {NAME: {**more, "command": command, "args": arguments}}}, ensure_ascii=False
    )


def _typed(*words: str) -> Form:
    return lambda command, arguments: shlex.join([*words, command, *arguments])


def _toml(command: str, arguments: list[str]) -> str:
    # Texts of JSON are texts of TOML.
    return f"[mcp_servers.{NAME}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}"


# Name -> (where it goes, its form).
CLIENTS: dict[str, tuple[str, Form]] = {
    "claude-desktop": ("into claude_desktop_config.json (Settings, Developer, Edit Config)", _servers("mcpServers")),
    "claude-code": ("to be typed in a shell", _typed("claude", "mcp", "add", NAME, "--")),
    "codex": ("into ~/.codex/config.toml", _toml),
    "cursor": ("into ~/.cursor/mcp.json, or .cursor/mcp.json of a project", _servers("mcpServers")),
    "gemini-cli": ("into ~/.gemini/settings.json", _servers("mcpServers")),
    "vscode": ("into .vscode/mcp.json of a workspace, or mcp.json of the user", _servers("servers", type="stdio")),
    "windsurf": ("into ~/.codeium/windsurf/mcp_config.json", _servers("mcpServers")),
    "zed": ("into the settings of Zed (zed: open settings file)", _servers("context_servers")),
}


def _print_config(name: str, settings: Settings, given: list[str], *, over_http: bool) -> None:
    from semlex.settings.files import own_file
    from semlex.settings.table import ARGUMENT

    if over_http:
        raise ConfigurationError("--print-config is for assistants that start semlex; over HTTP give them the address")
    if name not in CLIENTS:
        raise ConfigurationError(f"--print-config: unknown assistant {name[:80]!a}; known: {', '.join(CLIENTS)}")
    place, form = CLIENTS[name]
    inform(f"[dim]{escape(place)}:[/dim]")
    output.print(form(os.path.abspath(sys.executable), ["-m", "semlex", "mcp", *given]), markup=False)  # noqa: PTH100
    for setting, origin in settings.origins.items():
        if origin not in (ARGUMENT, str(own_file())):
            inform(
                f"[dim]{escape(setting)} comes from {escape(origin)}, which may be missing when an assistant starts: "
                f"give the setting as an option here, or write it into {escape(str(own_file()))}[/dim]"
            )


def _given(ctx: typer.Context) -> list[str]:
    """Return the options of this command line, paths made absolute: the assistant runs them in another folder."""
    words: list[str] = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if name in ("print_config", *OUTPUT) or source is None or source.name != "COMMANDLINE":
            continue
        value: Any = ctx.params[name]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += [max(parameter.opts, key=len), *([] if one is True else [_elsewhere(name, one)])]
    return words


def _elsewhere(option: str, value: Any) -> str:
    """Return an option's value with paths made absolute, so that it holds in every working directory."""
    from semlex.models.model_names import bare_name, leads_to

    text = str(value)
    if option in MODELS and leads_to(text) == "folder":
        path = bare_name(text)
        return text.removesuffix(path) + os.path.abspath(Path(path).expanduser())  # noqa: PTH100
    return os.path.abspath(Path(text).expanduser()) if isinstance(value, Path) or option in PATHS else text  # noqa: PTH100
