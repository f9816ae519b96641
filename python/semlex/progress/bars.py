"""Bars on a terminal, one for each stage of long work."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semlex.progress.lines import rate
from semlex.types.display import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from semlex.ingest.progress import Progress as Step


@contextmanager
def terminal_bars(console: Console) -> Iterator[Callable[[Step], None]]:
    """A callback that moves bars, which are gone at the end."""
    from rich.progress import (  # noqa: PLC0415 - most programs show none
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(progress: Step) -> None:
            if progress.stage not in tasks:
                title = f"{one_line(progress.stage)} ({progress.unit})"
                tasks[progress.stage] = bar.add_task(title, total=progress.total, rate="")
            task = tasks[progress.stage]
            bar.update(task, completed=progress.done, total=progress.total, rate=rate(bar.tasks[task].speed))

        yield step
