"""Stops blocking work whose caller no longer waits for the result."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from semlex.errors import WorkAbandonedError


# A blocking call cannot be stopped from outside. A caller that gives up sets a flag; the work checks it between its
# steps (batches of a model), or waits for it and an answer at once (requests to a server).
class Flag:
    """A flag that is set when the caller no longer waits; setting an outer flag sets its inner flags."""

    def __init__(self, outer: Flag | None = None) -> None:
        self.future: Future[None] = Future()
        if outer is not None:
            outer.future.add_done_callback(lambda _: self.set())

    def set(self) -> None:
        """Set the flag; a second call does nothing."""
        with suppress(InvalidStateError):
            self.future.set_result(None)

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self.future.done()


# A context variable, so that functions between need no argument for the flag.
_flag: ContextVar[Flag | None] = ContextVar("semlex_abandoned", default=None)


@contextmanager
def abandoned_by(flag: Flag) -> Iterator[None]:
    """Provide a flag to the work inside the block; the work ends when the flag is set."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


def inner_flag() -> Flag:
    """Return a new flag that is set when the flag of the running work is set."""
    return Flag(_flag.get())


def check() -> None:
    """Raise `WorkAbandonedError` if the caller no longer waits."""
    flag = _flag.get()
    if flag is not None and flag.is_set():
        raise WorkAbandonedError("the caller no longer waits for this result")


def wait_for(future: Future[Any]) -> None:
    """Wait until a future is done; raise `WorkAbandonedError` if the caller no longer waits."""
    flag = _flag.get()
    wait([future] if flag is None else [future, flag.future], return_when=FIRST_COMPLETED)
    check()
