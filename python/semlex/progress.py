"""Show the progress of long work: by the caller's function, bars on a terminal, a table in a notebook, log lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from semlex.ingest.progress import Progress
from semlex.types.display import Html, bar, joined, one_line, paragraph, table, text
from semlex.validation import check_parameters, wrong_type

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 10.0


def rate(per_second: float | None) -> str:
    """Return units per second, for example ``12/s``; "" if unknown."""
    if not per_second:
        return ""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"  # noqa: PLR2004 - two digits say enough


def duration(seconds: float) -> str:
    """Return a duration as text for people, for example ``2 min 5 s``."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class ProgressLines:
    """Writes the progress as lines for logs, at most one every ten seconds.

    Args:
        clock: Returns seconds; replaced by tests.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = clock()
        self._begun: dict[str, tuple[float, int]] = {}

    def __call__(self, step: Progress) -> None:
        """Note a step; write a line if the last line was written long enough ago."""
        now = self._clock()
        since, done_then = self._begun.setdefault(step.stage, (now, step.done))
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        line, done = f"{step.stage}: {_figures(step)}", step.done - done_then
        if done > 0 and step.total is not None and step.done < step.total:
            each = (now - since) / done
            line += f", {rate(1 / each)}, about {duration(each * (step.total - step.done))} left"
        self._write(line)


@contextmanager
def terminal_bars(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that moves progress bars; they are removed at the end."""
    from rich.progress import (  # noqa: PLC0415 - most programs show none
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

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
    with Bars(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(progress: Progress) -> None:
            if progress.stage not in tasks:
                title = f"{one_line(progress.stage)} ({progress.unit})"
                tasks[progress.stage] = bar.add_task(title, total=progress.total, rate="")
            task = tasks[progress.stage]
            bar.update(task, completed=progress.done, total=progress.total, rate=rate(bar.tasks[task].speed))

        yield step


# Each update is a message to the browser.
UPDATE_SECONDS = 0.25


def in_notebook() -> bool:
    """Return whether this code runs in a notebook: in IPython, but not on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "TerminalInteractiveShell" not in {kind.__name__ for kind in type(shell).__mro__}


class NotebookProgress:
    """Shows the progress of each stage in a table in a notebook, redrawn at most four times a second.

    Args:
        clock: Returns seconds; replaced by tests.
    """

    def __init__(self, show: Callable[[Html, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._begun = clock()
        self._last = self._begun - UPDATE_SECONDS
        self._stages: dict[str, Progress] = {}

    def __call__(self, step: Progress) -> None:
        """Note a step; redraw the table if that was last done long enough ago, or if a stage is done."""
        self._stages[step.stage] = step
        now = self._clock()
        if now - self._last >= UPDATE_SECONDS or step.done == step.total:
            self._last = now
            self._show(self._page(), self._line())

    def end(self, how: str) -> None:
        """Show the last numbers, and how the work ended."""
        ended = f"{how} after {self._clock() - self._begun:.1f} s"
        self._show(joined([self._page(), paragraph(text(ended))]), "; ".join(filter(None, (self._line(), ended))))

    def _line(self) -> str:
        return "; ".join(f"{one_line(one.stage)}: {_figures(one)}" for one in self._stages.values())

    def _page(self) -> Html:
        rows = [
            [text(one_line(one.stage)), bar(one.done, one.total), text(_figures(one))] for one in self._stages.values()
        ]
        return table(["stage", "", "done"], rows)


def _figures(one: Progress) -> str:
    return f"{one.done:,} {one.unit}" if one.total is None else f"{one.done:,} of {one.total:,} {one.unit}"


@contextmanager
def notebook_progress() -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that updates an output of the running cell; at the end it shows how the work ended."""
    # An output that is replaced needs no package of widgets on the server and in the browser.
    ipython: Any = import_module("IPython.display")
    handle = ipython.display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def show(page: Html, line: str) -> None:
        handle.update({"text/html": page, "text/plain": line}, raw=True)

    progress = NotebookProgress(show)
    try:
        yield progress
    except BaseException as error:
        progress.end("failed" if isinstance(error, Exception) else "interrupted")
        raise
    progress.end("done")


Tell = Callable[[Progress], None]
ProgressOption = Tell | Literal["bar"] | None


def check_progress(progress: ProgressOption) -> None:
    """Refuse a value that is not a function, ``bar`` or None."""
    fits = progress is None or callable(progress) or (isinstance(progress, str) and progress == "bar")
    check_parameters([] if fits else wrong_type("progress", "function or 'bar'", progress))


def shown(progress: ProgressOption) -> AbstractContextManager[Tell | None]:
    """Return a context manager for the callback: the caller's own function, or one that shows bars.

    ``bar`` shows bars on stderr if that is a terminal, an output that changes in a notebook, and nothing elsewhere.
    """
    check_progress(progress)
    return _shown(progress)


@contextmanager
def _shown(progress: ProgressOption) -> Iterator[Tell | None]:
    if progress is None or not isinstance(progress, str):
        yield progress
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - most programs show none

        with terminal_bars(Console(stderr=True, highlight=False)) as tell:
            yield tell
    elif in_notebook():
        with notebook_progress() as tell:
            yield tell
    else:
        yield None
