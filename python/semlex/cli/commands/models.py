"""The commands about models and what works here: ``semlex models pull``, ``semlex doctor models`` and ``server``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from semlex.cli.context import Context, with_context
from semlex.cli.options import HelpGroup
from semlex.cli.terminal import counted, messages, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.models.files import PulledModel


models_app = typer.Typer(help="Models on this machine.", cls=HelpGroup)


@models_app.command("pull")
@with_context()
def pull(
    context: Context,
    name: Annotated[str, typer.Argument(help="Model of the hub, for example Qwen/Qwen3-Embedding-0.6B.")],
    *,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")] = None,
) -> None:
    """Fetch a model from the hub into its local cache.

    Only data files are fetched (safetensors, JSON, text). Files that have arrived whole are not fetched again, so the
    same command resumes a download that was interrupted.
    """
    from semlex.models.files import pull_model

    with _download_bar(shown=not context.as_json) as (announce, progress):
        pulled = pull_model(name, revision=revision, announce=announce, progress=progress)
    value = {
        "model": pulled.folder.name,
        "revision": pulled.folder.revision,
        "path": str(pulled.folder.path),
        "files": pulled.files,
        "bytes": pulled.bytes,
        "fetched_bytes": pulled.fetched_bytes,
    }
    context.emit(value, lambda: _print_pulled(pulled))


def _print_pulled(pulled: PulledModel) -> None:
    fetched = f", {decimal(pulled.bytes)} in {counted(pulled.files, 'file')}"
    size = fetched if pulled.files else " (the hub was not reachable)"
    messages.print(f"[dim]{escape(pulled.folder.name)} at {pulled.folder.revision}{size}[/dim]")
    output.print(escape(str(pulled.folder.path)))


@contextmanager
def _download_bar(*, shown: bool) -> Iterator[tuple[Callable[[int, int, int], None], Callable[[int], None]]]:
    """What is to come in one line, and a bar of the bytes where stderr is a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True, disable=not (shown and messages.is_terminal)) as bar:
        task = bar.add_task("fetching", total=None, visible=False)

        def announce(files: int, size: int, missing: int) -> None:
            if shown:
                messages.print(f"[dim]{decimal(size)} in {counted(files, 'file')}, {decimal(missing)} to fetch[/dim]")
            bar.update(task, total=missing, visible=missing > 0)

        def progress(arrived: int) -> None:
            bar.update(task, completed=arrived)

        yield announce, progress
