"""Ends work that nobody waits for any more.

A blocking call cannot be stopped from outside. Whoever gives up waiting sets a flag, and the work looks at it between
its steps (batches of a model, requests to a server). The flag travels in a context variable, so that no signature on
the way has to know of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from semlex.errors import WorkAbandonedError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

_flag: ContextVar[threading.Event | None] = ContextVar("semlex_abandoned", default=None)


@contextmanager
def abandoned_by(flag: threading.Event) -> Iterator[None]:
    """Lets work inside end when the flag is set."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


def check() -> None:
    """Goes on, or ends the work: called between its steps."""
    flag = _flag.get()
    if flag is not None and flag.is_set():
        raise WorkAbandonedError("nobody waits for this result any more")
