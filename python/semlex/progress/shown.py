"""What a caller asks for as ``progress=``: a function, or to be shown how far the work is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from semlex.ingest.progress import Progress
from semlex.progress.notebook import in_notebook, notebook_progress
from semlex.validation import check_parameters, wrong_type

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

Tell = Callable[[Progress], None]
ProgressOption = Tell | Literal["bar"] | None


def check_progress(progress: ProgressOption) -> None:
    """Refuses what is neither a function, nor ``bar``, nor None."""
    fits = progress is None or callable(progress) or (isinstance(progress, str) and progress == "bar")
    check_parameters([] if fits else wrong_type("progress", "function or 'bar'", progress))


def shown(progress: ProgressOption) -> AbstractContextManager[Tell | None]:
    """The callback of the work inside the block: the caller's own, or one that shows bars.

    ``bar`` is bars on stderr where that is a terminal, an output that changes in a notebook, and nothing elsewhere.
    """
    check_progress(progress)
    return _shown(progress)


@contextmanager
def _shown(progress: ProgressOption) -> Iterator[Tell | None]:
    if progress is None or not isinstance(progress, str):
        yield progress
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - most programs show none

        from semlex.progress.bars import terminal_bars  # noqa: PLC0415

        with terminal_bars(Console(stderr=True, highlight=False)) as tell:
            yield tell
    elif in_notebook():
        with notebook_progress() as tell:
            yield tell
    else:
        yield None
