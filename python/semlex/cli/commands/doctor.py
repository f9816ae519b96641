"""Show what is wrong with models, server and collections, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.exit_codes import DATABASE, MODEL
from semlex.cli.groups import group_with_default
from semlex.cli.manual import with_server
from semlex.cli.terminal import counted, is_verbose, messages, one_line, output
from semlex.types.checkups import SEVERITIES, Diagnosis

if TYPE_CHECKING:
    from semlex.diagnostics.doctor import ModelExamination, ModelsExamination, ServerExamination

doctor_app = typer.Typer(help=__doc__, cls=group_with_default("run"))
STYLES = {"error": "red", "warning": "yellow", "hint": "dim"}


@doctor_app.command("run", hidden=True)
@with_context("collection", *SERVER, "embedding_model", "device", "dimensions", "reranker_model")
def doctor(context: Context) -> None:
    """Show what is wrong with models, server and collections, and what helps.

    Nothing is written or downloaded. Large tables are sampled. The exit code is 0 if there are only hints, 4 if all
    errors and warnings concern models, else 3.
    """
    settings = context.settings()
    collection = settings.collection if settings.is_set("collection") else None
    with context.client(settings, with_models=True) as client, messages.status("") as status:
        diagnosis = client.diagnose(collection, tell=None if context.as_json else status.update)
    context.emit(diagnosis.to_dict(), lambda: _print_diagnosis(diagnosis))
    if not diagnosis.is_well:
        serious = [finding for finding in diagnosis.findings if finding.severity != "hint"]
        raise typer.Exit(MODEL if all(finding.code.startswith("model") for finding in serious) else DATABASE)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    settings = [finding.where.removeprefix("setting ") for finding in diagnosis.findings if finding.code == "setting"]
    for finding in diagnosis.findings:
        if finding.code == "setting":
            continue
        label = f"[{STYLES[finding.severity]}]{finding.severity}[/]"
        output.print(f"{label} {escape(one_line(f'{finding.where} {finding.what}'))}")
        output.print(f"    {escape(one_line(finding.remedy))}" + ("" if finding.command is None else ":"))
        if finding.command is not None:
            output.print(f"        {escape(with_server(one_line(finding.command)))}")
    if settings:
        output.print(f"[dim]hint[/] {counted(len(settings), 'setting')} worth changing: {escape(', '.join(settings))}")
        output.print("    what is recommended, and why:\n        " + escape(with_server("semlex doctor server")))
    for skipped in diagnosis.not_checked:
        output.print(f"not checked: {escape(one_line(f'{skipped.check} of {skipped.where}: {skipped.reason}'))}")
    if is_verbose():
        for looked in diagnosis.looked_at:
            output.print(
                f"[dim]looked at: {escape(one_line(f'{looked.check} of {looked.where}: {looked.what}'))}[/dim]"
            )
    numbers = [(severity, sum(one.severity == severity for one in diagnosis.findings)) for severity in SEVERITIES]
    told = ", ".join(counted(number, severity) for severity, number in numbers if number) or "nothing wrong was found"
    output.print(f"{counted(len(diagnosis.collections), 'collection')} of schema {escape(diagnosis.schema)}: {told}")


@doctor_app.command("models")
@with_context("device")
def doctor_models(
    context: Context,
    *,
    model: Annotated[str | None, typer.Option(help="Embedding model to try: name or folder.")] = None,
    reranker: Annotated[str | None, typer.Option(help="Reranker to try: name or folder.")] = None,
) -> None:
    """Show packages, devices and precision, and try the models that you name.

    Nothing is downloaded. The exit code is 4 if a named model does not work.
    """
    from semlex.diagnostics.doctor import examine_models

    examination = examine_models(model, reranker, device=context.device)
    context.emit(examination, lambda: _print_models(examination))
    if any(examined.problem is not None for examined in examination.models):
        raise typer.Exit(MODEL)


@doctor_app.command("server")
@with_context(*SERVER)
def doctor_server(context: Context) -> None:
    """Show versions, keyword engines, what is wrong with the collections, and settings worth changing."""
    from semlex.diagnostics.doctor import examine_server
    from semlex.store.postgres.embedded.server import EmbeddedServer

    settings = context.settings()
    if settings.database_url is not None:
        examination = examine_server(settings.database_url)
    else:
        with EmbeddedServer(settings.server_folder, keep_alive=settings.keep_alive) as server:
            examination = examine_server(server.url)
    context.emit(examination, lambda: _print_server(examination))


def _print_server(examination: ServerExamination) -> None:
    _line("server", examination.server)
    _line("postgres", f"{examination.postgres}{' (read only)' if examination.read_only else ''}")
    _line("pgvector", examination.pgvector or "not installed in this database")
    for name, found in examination.keyword_engines.items():
        _line(f"{name} (optional)", found)
    for problem in examination.problems:
        _line("problem", problem)
    if not examination.problems:
        _line("collections", "nothing wrong was found")
    for advice in examination.settings:
        if advice.met:
            _line(advice.setting, f"{advice.now}, which is enough")
        else:
            _line(advice.setting, f"{advice.now}; recommended is {advice.advised}: {advice.reason}")
            if advice.statement is not None:
                _line("", advice.statement)


def _print_models(examination: ModelsExamination) -> None:
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
    for name, location in examination.defaults.items():
        _line(name, location)
    for examined in examination.models:
        _print_model(examined)


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
