"""`semlex sources`, `delete`, `rechunk` and `migrate`: what a collection holds, and how it is kept."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import opened
from semlex.cli.options import (
    INT,
    AsJson,
    CollectionName,
    Database,
    DataDir,
    Device,
    Dimensions,
    KeepAlive,
    Model,
    filter_mapping,
    whole_number,
)
from semlex.cli.output import print_json, print_report
from semlex.cli.progress_bar import progress_bar
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from semlex.settings.load import Settings

sources_app = typer.Typer(help="Show and move the folders that documents were read from.", invoke_without_command=True)
Source = Annotated[str | None, typer.Option("--source", help="Only this source.")]


def _settings(**arguments: Any) -> Settings:
    from semlex.settings.load import load_settings  # noqa: PLC0415 - `--help` should not load it

    return load_settings(**arguments)


@sources_app.callback()
def sources(
    context: typer.Context,
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Show the sources of a collection: name, folder, documents, chunks."""
    if context.invoked_subcommand is not None:
        return
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        found = retriever.sources()
    for entry in found:
        if as_json:
            print_json(entry)
        else:
            counts = f"{counted(entry['documents'], 'document')}, {counted(entry['chunks'], 'chunk')}"
            output.print(f"{escape(one_line(entry['name'])):24} {counts:36} {escape(one_line(entry['root']))}")
    if not found and not as_json:
        messages.print("no sources: semlex index FOLDER makes one")


@sources_app.command()
def move(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    root: Annotated[Path, typer.Argument(help="Where its folder is now.")],
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Say where the folder of a source is now; its documents stay what they are."""
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        retriever.move_source(name, root.expanduser())
        moved = next(entry for entry in retriever.sources() if entry["name"] == name)
    if as_json:
        print_json(moved)
    else:
        inform(f"{escape(one_line(name))} is {escape(one_line(moved['root']))} now")


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of chunks.")] = None,
    *,
    document: Annotated[
        str | None, typer.Option("--document", help="A document: its path below the folder of its source.")
    ] = None,
    source: Source = None,
    filters: Annotated[list[str] | None, typer.Option("--filter", help="name=value; repeatable.")] = None,
    vanished: Annotated[bool, typer.Option("--vanished", help="Only documents whose file is gone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Delete chunks with their vectors; what is given must all hold."""
    given: dict[str, Any] = {
        "ids": ids or None,
        "document": document,
        "source": source,
        "filters": filter_mapping(filters),
        "vanished": vanished,
    }
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        report = retriever.delete(**given, dry_run=True)
        found = report.chunks + report.documents
        if not dry_run and (found or source is not None):
            if found and not yes:
                whole = counted(report.documents, "whole document")
                question = f"Delete {counted(report.chunks, 'chunk')} ({whole})?"
                typer.confirm(question, abort=True, err=True)
            report = retriever.delete(**given)
    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        done = "would be deleted" if dry_run else "deleted"
        emptied = counted(report.documents, "document")
        tell = messages.print if dry_run else inform
        tell(f"{counted(report.chunks, 'chunk')} {done}, {emptied} with nothing left")


def rechunk(
    *,
    chunk_tokens: Annotated[
        int | None,
        typer.Option("--chunk-tokens", parser=whole_number, metavar=INT, help="Most tokens of a chunk from now on."),
    ] = None,
    overlap_tokens: Annotated[
        int | None,
        typer.Option(
            "--overlap-tokens",
            parser=whole_number,
            metavar=INT,
            help="Most tokens that neighbours share from now on.",
        ),
    ] = None,
    source: Source = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    as_json: AsJson = False,
) -> None:
    """Cut documents anew from their files: those that an older version cut, or all of them with other settings."""
    settings = _settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
    )
    with opened(settings, quiet=as_json) as retriever, progress_bar(shown=not as_json) as progress:
        report = retriever.rechunk(
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            source=source,
            dry_run=dry_run,
            progress=progress,
        )
    if dry_run and not as_json:
        messages.print(
            f"{counted(report.changed, 'document')} would be cut into {counted(report.chunks, 'chunk')}, "
            f"{report.embedded:,} of them embedded; {counted(report.unchanged, 'document')} would stay"
        )
    else:
        print_report(report, as_json=as_json)


def migrate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be migrated.")] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Print the SQL, for a role that may change tables.")] = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Bring the tables of all collections to the form that this version uses; opening one does that as well."""
    from semlex.diagnostics.collections import migrate_all  # noqa: PLC0415 - loads the driver

    settings = _settings(database_url=database, data_dir=data_dir, keep_alive=keep_alive)
    steps = migrate_all(
        settings.url, settings.schema_name, settings.server_folder, settings.keep_alive, dry_run=dry_run or as_sql
    )
    if as_sql:
        for entry in steps:
            sys.stdout.write(entry.script())
        return
    for entry in steps:
        if as_json:
            print_json({"name": entry.name, "version": entry.version, "wanted": entry.wanted, "done": not dry_run})
        else:
            done = "would be migrated" if dry_run else "migrated"
            messages.print(escape(one_line(f"{entry.name}: version {entry.version} {done} to {entry.wanted}")))
    if not steps and not as_json:
        inform("nothing to migrate")


def register(app: typer.Typer) -> None:
    """Adds these commands to the command line."""
    app.add_typer(sources_app, name="sources")
    for command in (delete, rechunk, migrate):
        app.command()(command)
