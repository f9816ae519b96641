"""Progress of long work on stderr: bars on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from semlex.cli.terminal import is_quiet, messages, tell_interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.ingest.progress import Progress


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """The progress callback of long work; None when nothing is shown."""
    if not shown or is_quiet():
        yield None
    elif messages.is_terminal:
        from semlex.progress import terminal_bars

        with terminal_bars(messages) as step:
            yield step
    else:
        from semlex.progress import ProgressLines

        yield ProgressLines(lambda line: messages.print(line, markup=False))


@contextmanager
def resumable() -> Iterator[None]:
    """Says after Ctrl-C what has become of the work, and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        tell_interruption(
            "interrupted: whole batches are stored, the rest is as before; the same command goes on from there"
        )
        raise
