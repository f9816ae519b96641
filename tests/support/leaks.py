"""What errors and logs show, for tests that look for secrets in it."""

import logging
from contextlib import contextmanager


def shown(error):
    found = []
    while error is not None:
        found += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return found


@contextmanager
def all_log_lines():
    """The lines that any logger writes inside the block, of every level."""
    lines = []
    handler, root = logging.Handler(), logging.getLogger()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
