"""The commands that fill a collection: ``semlex index`` and ``semlex embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semlex.cli.context import collection_names, load_settings, opened
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.options import (
    AsJson,
    ChunkTokens,
    CollectionName,
    Database,
    DataDir,
    Device,
    Dimensions,
    KeepAlive,
    Language,
    Model,
    OverlapTokens,
    existing_paths,
)
from semlex.cli.output import print_json, print_report
from semlex.cli.progress_bar import progress_bar
from semlex.cli.terminal import counted, inform
from semlex.errors import ConfigurationError

Lexical = Annotated[
    str | None, typer.Option("--lexical", help="Keyword engine of a new collection: bm25 (default), tsvector, none, …")
]


def index(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    collection: CollectionName = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Name of the new source; default: its folder's name.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Glob pattern of files to read; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Glob pattern to leave out; repeatable.")
    ] = None,
    recursive: Annotated[bool, typer.Option(help="Enter folders below.")] = True,
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    language: Language = None,
    lexical: Lexical = None,
    as_json: AsJson = False,
) -> None:
    """Read files and folders, cut them, and store their chunks.

    Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be read
    does not stop the run: it is listed at the end and the exit code is 5.
    """
    settings = load_settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
        language=language,
        lexical=lexical,
        chunk_tokens=chunk_tokens,
        overlap_tokens=overlap_tokens,
    )
    from semlex.ingest.files.roots import plan_places

    found = existing_paths(paths)
    try:
        plan_places(found, {}, source)
    except ConfigurationError:  # the folders of a collection that is there may have other names
        if settings.collection not in collection_names(settings):
            raise
    with (
        opened(settings, quiet=as_json, create=True, with_choice=True) as retriever,
        progress_bar(shown=not as_json) as progress,
    ):
        report = retriever.index(
            *found,
            source=source,
            include=include or None,
            exclude=exclude or (),
            recursive=recursive,
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            progress=progress,
        )
    print_report(report, as_json=as_json)
    if report.failed:
        raise typer.Exit(SOME_FILES)


def embed(
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    as_json: AsJson = False,
) -> None:
    """Compute the vectors of chunks that have none, without reading the files again."""
    settings = load_settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
    )
    with opened(settings, quiet=as_json, with_choice=True) as retriever, progress_bar(shown=not as_json) as progress:
        written = retriever.embed_missing(progress=progress)
    if as_json:
        print_json({"embedded": written})
    else:
        inform(f"{counted(written, 'chunk')} embedded")
