"""The commands about whole collections: ``semlex collections``, ``status``, ``drop`` and ``migrate``."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.figures import print_collections, print_status
from semlex.cli.interactive.completion import collection_names
from semlex.cli.options import Yes, agree
from semlex.cli.output import print_json
from semlex.cli.terminal import inform, messages, one_line
from semlex.errors import ConfigurationError, SchemaVersionError

if TYPE_CHECKING:
    from semlex.retriever.synchronous import SyncClient
    from semlex.store.schema.registry import Step


@with_context(*SERVER)
def collections(context: Context) -> None:
    """List the collections with their documents, chunks, model and language."""
    with context.client() as client:
        found = client.count_collections()
    context.emit(found, lambda: print_collections(found, header=context.header))


@with_context("collection", ..., *SERVER)
def status(
    context: Context,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count large tables, too, instead of estimating.")] = False,
) -> None:
    """Show a collection's figures: counts, model, server, the last run."""
    with context.opened() as retriever:
        figures = retriever.status(exact=exact)
    context.emit(figures.to_dict(), lambda: print_status(figures))


@with_context(*SERVER)
def drop(
    context: Context,
    collection: Annotated[str, typer.Argument(help="Collection to drop.", autocompletion=collection_names)],
    *,
    yes: Yes = False,
) -> None:
    """Drop a collection with everything in it."""
    with context.client(context.settings(collection=collection, embedding_model="none")) as client:
        if not yes:
            _require(client, collection)
            agree(f"Drop {collection} with everything in it?", yes=yes)
        client.drop(collection)
    if context.as_json:
        print_json({"collection": collection, "dropped": True})


def _require(client: SyncClient, collection: str) -> None:
    """Refuses a collection that does not exist; those of another version cannot be listed, but dropped."""
    from semlex.store.schema.locks import no_such_collection

    with suppress(SchemaVersionError):
        known = [listed.name for listed in client.collections()]
        if collection not in known:
            raise no_such_collection(collection, known)


@with_context(*SERVER)
def migrate(
    context: Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be migrated.")] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Print the SQL, for a role that may change tables.")] = False,
) -> None:
    """Bring the tables of all collections to the form that this version uses; opening one does that as well."""
    if as_sql and context.as_json:
        raise ConfigurationError("--sql prints SQL: leave --json and --fields out")
    with context.client() as client:
        steps = client.migrate(dry_run=dry_run or as_sql)
    if as_sql:
        for entry in steps:
            sys.stdout.write(entry.script())
        return
    objects = [
        {"name": entry.name, "version": entry.version, "wanted": entry.wanted, "done": not dry_run} for entry in steps
    ]
    context.emit(objects, lambda: _print_steps(steps, "would be migrated" if dry_run else "migrated"))


def _print_steps(steps: list[Step], done: str) -> None:
    for entry in steps:
        messages.print(escape(one_line(f"{entry.name}: version {entry.version} {done} to {entry.wanted}")))
    if not steps:
        inform("nothing to migrate")
