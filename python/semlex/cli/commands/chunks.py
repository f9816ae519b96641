"""The command that shows what files become: ``semlex chunks``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semlex.cli.context import MODEL, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.options import ChunkTokens, OverlapTokens, existing_paths
from semlex.cli.output import print_json
from semlex.cli.terminal import counted, inform, one_line, output, printable

if TYPE_CHECKING:
    from semlex.ingest.preview import PreviewedFile


@with_context(*MODEL)
def chunks(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Glob pattern of files to read; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Glob pattern to leave out; repeatable.")
    ] = None,
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
) -> None:
    """Show what files become when they are indexed; nothing is written, and no server is asked.

    Tokens are counted by the model that `--model` names, else as Unicode words.
    """
    from semlex.embedding.registry import choose_embedder
    from semlex.ingest.preview import preview_chunks

    found, settings = existing_paths(paths), context.settings(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
    model = settings.embedding_model or "none"
    embedder = choose_embedder(model, device=settings.device, dimensions=settings.dimensions).model
    failed = 0
    for file in preview_chunks(
        *found,
        include=include or None,
        exclude=exclude or (),
        chunk_tokens=settings.chunk_tokens,
        overlap_tokens=settings.overlap_tokens if settings.is_set("overlap_tokens") else None,
        counter=embedder,
    ):
        failed += file.problem is not None
        if context.as_json:
            print_json(asdict(file))
        else:
            _print_file(file)
    if failed:
        raise typer.Exit(SOME_FILES)


def _print_file(file: PreviewedFile) -> None:
    if file.problem is not None:
        inform(f"{one_line(file.uri)}: {file.problem.message}")
        return
    title = f", {one_line(file.title)!r}" if file.title else ""
    output.print(f"{one_line(file.uri)}: {file.format}{title}, {counted(len(file.chunks), 'chunk')}", markup=False)
    for number, chunk in enumerate(file.chunks, start=1):
        page = f", page {chunk.page}" if chunk.page else ""
        output.print(
            f"--- {number}: line {chunk.line}{page}, {counted(chunk.tokens, 'token')}, {chunk.chunk_type}", style="dim"
        )
        for line in chunk.context.splitlines():
            output.print(f"  {one_line(line)}", markup=False, style="dim")
        output.print(printable(chunk.text), markup=False)
