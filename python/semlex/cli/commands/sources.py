"""The commands about sources: ``semlex sources`` and ``semlex sources move``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.context import load_settings, opened
from semlex.cli.options import (
    AsJson,
    CollectionName,
    Database,
    DataDir,
    KeepAlive,
)
from semlex.cli.output import print_json
from semlex.cli.terminal import counted, inform, messages, one_line, output

sources_app = typer.Typer(help="Show and move the folders that documents were read from.", invoke_without_command=True)


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
    settings = load_settings(
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
    settings = load_settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        retriever.move_source(name, root.expanduser())
        moved = next(entry for entry in retriever.sources() if entry["name"] == name)
    if as_json:
        print_json(moved)
    else:
        inform(f"{escape(one_line(name))} is {escape(one_line(moved['root']))} now")
