"""The commands about models and what works here: ``semlex models pull``, ``semlex doctor models`` and ``server``."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from semlex.cli.exit_codes import MODEL
from semlex.cli.options import AsJson, Database, Device, HelpGroup
from semlex.cli.output import print_json
from semlex.cli.terminal import messages, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.diagnostics.doctor import ModelExamination, ModelsExamination

models_app = typer.Typer(help="Models on this machine.", cls=HelpGroup)
doctor_app = typer.Typer(help="What works on this machine, and what does not.", cls=HelpGroup)


@models_app.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="Model of the hub, for example Qwen/Qwen3-Embedding-0.6B.")],
    *,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model from the hub into its local cache.

    Only data files are fetched (safetensors, JSON, text). Files that have arrived whole are not fetched again, so the
    same command resumes a download that was interrupted.
    """
    from semlex.models.files import pull_model  # noqa: PLC0415 - `--help` should not load it

    with _download_bar(shown=not as_json) as (announce, progress):
        pulled = pull_model(name, revision=revision, announce=announce, progress=progress)
    if as_json:
        print_json(
            {
                "model": pulled.folder.name,
                "revision": pulled.folder.revision,
                "path": str(pulled.folder.path),
                "files": pulled.files,
                "bytes": pulled.bytes,
                "fetched_bytes": pulled.fetched_bytes,
            }
        )
        return
    size = f", {decimal(pulled.bytes)} in {pulled.files} files" if pulled.files else " (the hub was not reachable)"
    messages.print(f"[dim]{escape(pulled.folder.name)} at {pulled.folder.revision}{size}[/dim]")
    output.print(escape(str(pulled.folder.path)))


@contextmanager
def _download_bar(*, shown: bool) -> Iterator[tuple[Callable[[int, int, int], None], Callable[[int], None]]]:
    """What is to come in one line, and a bar of the bytes where stderr is a terminal."""
    from rich.progress import (  # noqa: PLC0415 - only pulling draws bars
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
                messages.print(f"[dim]{decimal(size)} in {files} files, {decimal(missing)} to fetch[/dim]")
            bar.update(task, total=missing, visible=missing > 0)

        def progress(arrived: int) -> None:
            bar.update(task, completed=arrived)

        yield announce, progress


@doctor_app.command("models")
def doctor_models(
    *,
    model: Annotated[str | None, typer.Option("--model", help="Embedding model to try: name or folder.")] = None,
    reranker: Annotated[str | None, typer.Option("--reranker", help="Reranker to try: name or folder.")] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Show packages, devices and precision, and try the models that are named.

    Nothing is downloaded. The exit code is 4 when a model that was named does not work.
    """
    from semlex.diagnostics.doctor import examine_models  # noqa: PLC0415 - `--help` should not load it

    examination = examine_models(model, reranker, device=device)
    if as_json:
        print_json(dataclasses.asdict(examination))
    else:
        _print_machine(examination)
        for examined in examination.models:
            _print_model(examined)
    if any(examined.problem is not None for examined in examination.models):
        raise typer.Exit(MODEL)


@doctor_app.command("server")
def doctor_server(
    *,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show versions, which keyword engines of extensions could be used, and what is wrong with the collections."""
    from semlex.diagnostics.doctor import examine_server  # noqa: PLC0415 - as above
    from semlex.settings.load import load_settings  # noqa: PLC0415 - `--help` should not load it
    from semlex.store.postgres.embedded.server import EmbeddedServer  # noqa: PLC0415 - as above

    settings = load_settings(database_url=database)
    if settings.url is not None:
        examination = examine_server(settings.url)
    else:
        with EmbeddedServer(settings.server_folder, keep_alive=settings.keep_alive) as server:
            examination = examine_server(server.url)
    if as_json:
        print_json(dataclasses.asdict(examination))
        return
    _line("server", examination.server)
    _line("postgres", f"{examination.postgres}{' (read only)' if examination.read_only else ''}")
    _line("pgvector", examination.pgvector or "not installed in this database")
    for name, found in examination.keyword_engines.items():
        _line(name, found)
    for problem in examination.problems:
        _line("problem", problem)
    if not examination.problems:
        _line("collections", "nothing wrong was found")


def _print_machine(examination: ModelsExamination) -> None:
    _line("python", examination.python)
    for package, found in examination.packages.items():
        _line(package, found or "not installed")
    for extra, command in examination.install.items():
        _line("to install", f"{command}  ({extra})")
    for device, description in examination.devices.items():
        _line(device, description)
    if examination.device is None:
        _line("runs on", f"nothing: {examination.precision_reason}")
    else:
        _line("runs on", f"{examination.device} in {examination.precision} ({examination.precision_reason})")
    for name, place in examination.defaults.items():
        _line(name, place)


def _print_model(examined: ModelExamination) -> None:
    output.print(f"\n[bold]{examined.role}: {escape(examined.name)}[/bold]")
    for name in ("choice", "path", "revision"):
        if getattr(examined, name) is not None:
            _line(name, getattr(examined, name))
    if examined.tokenizer is not None:
        _line("tokenizer", f"{examined.tokenizer}, encoded by {examined.tokenizer_engine}")
    runtime = examined.runtime
    if runtime is not None:
        _line("runs on", f"{runtime.device} in {runtime.precision} ({runtime.precision_reason})")
        _line("attention", runtime.attention)
        _line("token budget", f"{runtime.token_budget} ({runtime.token_budget_reason})")
        _line("self-test", "passed")
        for failure in runtime.failures:
            _line("given up", str(failure))
    if examined.seconds is not None:
        _line("first answer", f"{examined.seconds:.1f} s")
    if examined.problem is not None:
        _line("problem", examined.problem)


def _line(name: str, value: str) -> None:
    output.print(f"{escape(name):26} {escape(value)}")
