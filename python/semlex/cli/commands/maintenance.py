"""The commands that keep a collection in order: ``semlex optimize``, ``reindex``, ``rechunk`` and ``delete``."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from semlex.cli.context import load_settings, opened
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
from semlex.cli.terminal import counted, inform, messages
from semlex.errors import ConfigurationError

Source = Annotated[str | None, typer.Option("--source", help="Only this source.")]


def optimize(
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Merge a collection's keyword index to few, full segments; worth its time after a large load."""
    settings = load_settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever, progress_bar(shown=not as_json) as progress:
        merged = retriever.optimize(progress=progress)
    if as_json:
        print_json({"merged": merged})
    else:
        inform(f"{counted(merged, 'segment')} merged")


def reindex(
    *,
    lexical: Annotated[bool, typer.Option("--lexical", help="The keyword index (engine bm25).")] = False,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild an index from the stored texts, while the collection is searched and written."""
    if not lexical:
        raise ConfigurationError("say which index: --lexical")
    settings = load_settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever, progress_bar(shown=not as_json) as progress:
        rebuilt = retriever.reindex_lexical(progress=progress)
    if as_json:
        print_json({"chunks": rebuilt.chunks, "segments": rebuilt.segments, "generation": rebuilt.generation})
    else:
        inform(f"{counted(rebuilt.chunks, 'chunk')} indexed anew, {counted(rebuilt.segments, 'segment')}")


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
    settings = load_settings(
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
    settings = load_settings(
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
