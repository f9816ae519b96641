"""``semlex checkup``: how well a collection can be searched, by its own headings."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape

from semlex.cli.checkup_output import print_checkup
from semlex.cli.checkup_page import checkup_page
from semlex.cli.commands.search import Mode
from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import INT, whole_number_between
from semlex.cli.terminal import inform, messages, one_line
from semlex.errors import ConfigurationError
from semlex.types.checkups import MAX_SAMPLE, MAX_SEED

if TYPE_CHECKING:
    from semlex.types.results import SearchMode

# What takes longer is announced.
ANNOUNCED_SECONDS = 5.0
MINUTE = 60.0

Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        parser=whole_number_between(1, MAX_SAMPLE),
        metavar=INT,
        help="Most headings that are asked; default: 200, or 2,000 with a static model or by words alone.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        parser=whole_number_between(0, MAX_SEED),
        metavar=INT,
        help="Of the sample: the same one asks the same headings.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page, too; a file is replaced.")
]


@with_context("collection", ..., *SERVER, "embedding_model", "device")
def checkup(
    context: Context,
    *,
    sample: Sample = None,
    seed: Seed = 0,
    mode: Mode = None,
    html: Html = None,
) -> None:
    """Say how well a collection can be searched, without judged questions: its own headings are asked.

    Each heading should find the section below it, out of which it is taken first, in memory; nothing is written.
    """
    if html is not None:
        _check_place(html)
    with context.opened() as retriever, context.progress() as progress:
        told = retriever.checkup(
            sample,
            seed=seed,
            mode=cast("SearchMode | None", mode),
            progress=progress,
            estimated=None if context.as_json else _announce,
        )
    if html is not None:
        _write(html, checkup_page(told))
    context.emit(told.to_dict(), lambda: print_checkup(told))
    if html is not None and not context.as_json:
        inform(f"[dim]written: {escape(one_line(str(html)))}[/dim]")


def _announce(seconds: float) -> None:
    if seconds >= ANNOUNCED_SECONDS:
        shown = f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} minutes"
        messages.print(f"[dim]this takes about {shown}; --sample N asks fewer headings[/dim]")


def _check_place(path: Path) -> None:
    """Refuses a path that no file can have, before anything is asked."""
    try:
        fits = path.absolute().parent.is_dir() and not path.is_dir()
    except OSError:
        fits = False
    if not fits:
        raise ConfigurationError(f"--html: {one_line(str(path))} is no file that could be written")


def _write(path: Path, page: str) -> None:
    """Writes the page beside its place and moves it there: a file is there whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(page, encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ConfigurationError(f"--html: {one_line(str(path))} cannot be written: {error.strerror}") from None
