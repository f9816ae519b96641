"""The page in a browser: ``semlex ui``, and what ``semlex try --open`` does after its answer."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from semlex.cli.commands.serving.serve import server_parts, tell
from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.options import INT, whole_number

# Without one of these, `webbrowser` on Linux finds browsers that take the terminal for themselves.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@with_context("collection", ..., *SERVER, *MODEL, "calibration", "reranker_model", "chat_model")
def ui(
    context: Context,
    *,
    port: Annotated[
        int, typer.Option("--port", parser=whole_number, metavar=INT, help="Port; default: any that is free.")
    ] = 0,
    judgements: Annotated[
        Path | None,
        typer.Option(
            "--judgements",
            help="Folder for what you judge on the page, a folder in it for each collection; the page may write then.",
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page in a browser, from a terminal.")
    ] = True,
) -> None:
    """Serve the page on which searches are seen, explained and judged, and open it in a browser.

    Only this machine can ask, until Ctrl-C. The page asks the same routes as everybody: semlex serve has it, too.
    """
    show_page(context.given(), port=port, judgements=judgements, browser=browser)


def show_page(
    given: dict[str, Any],
    question: str | None = None,
    *,
    port: int = 0,
    judgements: Path | None = None,
    browser: bool = True,
) -> None:
    """Serves the page on loopback until it is stopped."""
    run, options_of = server_parts("semlex ui")
    from semlex.server.observability import log_to_stderr
    from semlex.settings.load import WatchedSettings

    folder = None if judgements is None else judgements.expanduser().absolute()
    options = options_of(port=port, rights="read" if folder is None else "write", judgements=folder, jobs=0)
    place = {name: text for name, text in (("collection", given.get("collection")), ("q", question)) if text}

    def ready(address: str) -> None:
        url = f"{address}/" + (f"#search?{urlencode(place)}" if place else "")
        tell(f"the page: {url}")
        tell("Ctrl-C ends it")
        if browser and can_open():
            # Some browsers are waited for, and the page comes from this thread.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    log_to_stderr("text", quiet=True)
    run(options, WatchedSettings(**given), tell, ready)


def can_open() -> bool:
    """Whether there is somebody to look at a browser: a terminal, and a screen."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in DISPLAYS)
