"""The commands about whole collections: ``semlex collections``, ``status``, ``drop`` and ``migrate``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.context import load_settings, opened
from semlex.cli.figures import print_collections, print_status
from semlex.cli.options import (
    AsJson,
    CollectionName,
    Database,
    DataDir,
    KeepAlive,
)
from semlex.cli.output import print_json
from semlex.cli.terminal import inform, messages, one_line


def collections(
    *,
    header: Annotated[bool, typer.Option("--header/--no-header", help="Begin with the columns' titles.")] = True,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """List the collections with their documents, chunks, model and language."""
    from semlex.diagnostics.collections import list_counted

    settings = load_settings(database_url=database, data_dir=data_dir, keep_alive=keep_alive)
    found = list_counted(settings.url, settings.schema_name, settings.server_folder, settings.keep_alive)
    if not as_json:
        print_collections(found, header=header)
        return
    for entry in found:
        print_json(entry)


def status(
    *,
    collection: CollectionName = None,
    exact: Annotated[bool, typer.Option("--exact", help="Count large tables, too, instead of estimating.")] = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Show a collection's figures: counts, model, server, the last run."""
    settings = load_settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        figures = retriever.status(exact=exact)
    if as_json:
        print_json(figures)
        return
    print_status(figures)


def drop(
    collection: Annotated[str, typer.Argument(help="Collection to drop.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Drop a collection with everything in it."""
    settings = load_settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    if not yes:
        typer.confirm(f"Drop {collection} with everything in it?", abort=True, err=True)
    from semlex.diagnostics.collections import drop_one

    drop_one(settings.url, settings.schema_name, collection, settings.server_folder, settings.keep_alive)
    if as_json:
        print_json({"collection": collection, "dropped": True})


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
    from semlex.diagnostics.collections import migrate_all

    settings = load_settings(database_url=database, data_dir=data_dir, keep_alive=keep_alive)
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
