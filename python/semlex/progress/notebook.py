"""An output of a notebook that changes while long work goes on: one row for each stage. No widgets are needed."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from semlex.types.display import Html, bar, joined, one_line, paragraph, table, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.ingest.progress import Progress

# More is more than anyone reads, and each update is a message to the browser.
UPDATE_SECONDS = 0.25


def in_notebook() -> bool:
    """Whether a shell of IPython runs here that is none of a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "TerminalInteractiveShell" not in {kind.__name__ for kind in type(shell).__mro__}


class NotebookProgress:
    """The stages as a table, shown anew now and then.

    Args:
        clock: Seconds, for the tests.
    """

    def __init__(self, show: Callable[[Html, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._begun = clock()
        self._last = self._begun - UPDATE_SECONDS
        self._stages: dict[str, Progress] = {}

    def __call__(self, step: Progress) -> None:
        """Notes a step; shows it when what is shown is old enough, or a stage is done."""
        self._stages[step.stage] = step
        now = self._clock()
        if now - self._last >= UPDATE_SECONDS or step.done == step.total:
            self._last = now
            self._show(self._page(), self._line())

    def end(self, how: str) -> None:
        """Shows where everything stands, and how it ended."""
        ended = f"{how} after {self._clock() - self._begun:.1f} s"
        self._show(joined([self._page(), paragraph(text(ended))]), f"{self._line()}; {ended}")

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
    """A callback that changes an output of the cell that runs; at the end it says how the work ended."""
    ipython: Any = import_module("IPython.display")
    handle = ipython.display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def show(page: Html, line: str) -> None:
        handle.update({"text/html": page, "text/plain": line}, raw=True)

    progress = NotebookProgress(show)
    try:
        yield progress
    except BaseException:
        progress.end("ended by an error or by hand")
        raise
    progress.end("done")
