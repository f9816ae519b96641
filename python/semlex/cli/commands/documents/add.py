"""``semlex add``: documents that a program prints, one a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.options import read_lines
from semlex.cli.progress_bar import resumable
from semlex.cli.terminal import counted, inform, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from semlex.types.documents import Document

FILES = typer.Argument(metavar="FILE…", help="JSON Lines, one document a line; - is standard input.")


@with_context("collection", ..., *SERVER, *MODEL, "language", "keyword")
def add(
    context: Context,
    files: Annotated[list[Path], FILES],
    *,
    texts: Annotated[bool, typer.Option("--texts", help="Every line is the text of a document, as it is.")] = False,
    on_duplicate: Annotated[
        str, typer.Option("--on-duplicate", help="Of an id that is stored: update, skip or fail.")
    ] = "update",
) -> None:
    """Add documents, each as one chunk: lines of JSON such as {"content": "…", "id": "a", "metadata": {"year": 2024}}.

    Without an id the id follows from the text, so that the same line again adds nothing. Files to be cut into chunks
    are for `semlex index`.
    """
    documents = [document for path in files for document in _documents(path, as_texts=texts)]
    if not documents:
        raise ConfigurationError("there is no document to add: give one a line")
    options: dict[str, Any] = {"on_duplicate": on_duplicate}
    with (
        resumable(),
        context.opened(context.with_only_collection(context.settings()), create=True, with_choice=True) as retriever,
        context.progress() as progress,
    ):
        ids = retriever.add_documents(documents, **options, progress=progress)
    context.emit({"ids": ids}, lambda: inform(f"{counted(len(ids), 'document')} added"))


def _documents(path: Path, *, as_texts: bool) -> list[Document]:
    from semlex.jobs.kinds import documents_from_json
    from semlex.types.documents import Document

    lines = read_lines(path)
    if as_texts:
        return [Document(line) for line in lines]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            place = "standard input" if str(path) == "-" else one_line(str(path))
            raise ConfigurationError(
                f"{place}: line {number} of those that are not blank is no JSON; --texts takes every line as a text"
            ) from None
    return documents_from_json(rows) if rows else []
