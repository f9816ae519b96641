"""Ends work that nobody waits for any more.

A blocking call cannot be stopped from outside. A caller that gives up sets a flag; the work looks at it between its
steps (batches of a model), or waits for it beside an answer (requests to a server). The flag travels in a context
variable, so that no signature on the way has to know of it.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from semlex.errors import WorkAbandonedError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flag:
    """Says that nobody waits any more; an inner flag is set with the outer one."""

    def __init__(self, outer: Flag | None = None) -> None:
        self.future: Future[None] = Future()
        if outer is not None:
            outer.future.add_done_callback(lambda _: self.set())

    def set(self) -> None:
        """Set it; a second call does nothing."""
        with suppress(InvalidStateError):
            self.future.set_result(None)

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self.future.done()


_flag: ContextVar[Flag | None] = ContextVar("semlex_abandoned", default=None)


@contextmanager
def abandoned_by(flag: Flag) -> Iterator[None]:
    """End work inside the block when the flag is set."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


def inner_flag() -> Flag:
    """Return a flag that is also set with the current one."""
    return Flag(_flag.get())


def check() -> None:
    """Raise an error if nobody waits any more."""
    flag = _flag.get()
    if flag is not None and flag.is_set():
        raise WorkAbandonedError("nobody waits for this result any more")


def wait_for(future: Future[Any]) -> None:
    """Wait until a future is done; raise an error if nobody waits for it any more."""
    flag = _flag.get()
    wait([future] if flag is None else [future, flag.future], return_when=FIRST_COMPLETED)
    check()
