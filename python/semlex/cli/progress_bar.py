"""Progress of long work on stderr: bars on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semlex.cli.terminal import inform, is_quiet, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semlex.ingest.progress import Progress as Step

LINE_SECONDS = 10.0


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Step], None] | None]:
    """The progress callback of long work; None when nothing is shown."""
    if not shown or is_quiet():
        yield None
    elif messages.is_terminal:
        with _bars() as step:
            yield step
    else:
        yield ProgressLines(lambda line: messages.print(line, markup=False))


@contextmanager
def resumable() -> Iterator[None]:
    """Says after Ctrl-C what has become of the work, and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        inform("interrupted: whole batches are stored, the rest is as before; the same command goes on from there")
        raise


@contextmanager
def _bars() -> Iterator[Callable[[Step], None]]:
    from rich.progress import (
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
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(progress: Step) -> None:
            if progress.stage not in tasks:
                title = f"{progress.stage} ({progress.unit})"
                tasks[progress.stage] = bar.add_task(title, total=progress.total, rate="")
            task = tasks[progress.stage]
            bar.update(task, completed=progress.done, total=progress.total, rate=_rate(bar.tasks[task].speed))

        yield step


class ProgressLines:
    """A line now and then, for logs.

    Args:
        write: Takes a line.
        clock: Seconds, for the tests.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = clock()
        self._begun: dict[str, tuple[float, int]] = {}

    def __call__(self, step: Step) -> None:
        """Notes a step; writes when the last line is old enough."""
        now = self._clock()
        since, done_then = self._begun.setdefault(step.stage, (now, step.done))
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        if step.total is None:
            self._write(f"{step.stage}: {step.done:,} {step.unit}")
            return
        line = f"{step.stage}: {step.done:,} of {step.total:,} {step.unit}"
        done = step.done - done_then
        if done > 0 and step.done < step.total:
            each = (now - since) / done
            line += f", {_rate(1 / each)}, about {_duration(each * (step.total - step.done))} left"
        self._write(line)


def _rate(per_second: float | None) -> str:
    if not per_second:
        return ""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"  # noqa: PLR2004 - two digits say enough


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
