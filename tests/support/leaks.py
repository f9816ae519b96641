"""What errors and logs show, for tests that look for secrets in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


def shown(error: BaseException | None) -> list[str]:
    """The texts of an error and of all errors behind it."""
    found = []
    while error is not None:
        found += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return found


@contextmanager
def all_log_lines() -> Iterator[list[str]]:
    """The lines that any logger writes inside the block, of every level."""
    lines: list[str] = []
    handler, root = logging.Handler(), logging.getLogger()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
