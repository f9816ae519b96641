"""Progress as a line now and then, for logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.progress import Progress

LINE_SECONDS = 10.0


def rate(per_second: float | None) -> str:
    """Units in a second, for example ``12/s``; "" where that is not known."""
    if not per_second:
        return ""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"  # noqa: PLR2004 - two digits say enough


def duration(seconds: float) -> str:
    """A time for people, for example ``2 min 5 s``."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class ProgressLines:
    """A line now and then, for logs.

    Args:
        clock: Seconds, for the tests.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._last = clock()
        self._begun: dict[str, tuple[float, int]] = {}

    def __call__(self, step: Progress) -> None:
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
            line += f", {rate(1 / each)}, about {duration(each * (step.total - step.done))} left"
        self._write(line)
