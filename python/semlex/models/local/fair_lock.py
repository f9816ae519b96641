"""A lock that goes to the caller who has waited longest."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from semlex.forks import renew_after_fork

if TYPE_CHECKING:
    from types import TracebackType


# Python's locks mostly go back to the thread that released them: a search would then wait for a whole load, although
# the load releases the lock between batches.
class FairLock:
    """A lock, first come first served. Reentrant; a context manager."""

    def __init__(self) -> None:
        self._after_fork()
        renew_after_fork(self)

    def _after_fork(self) -> None:
        self._state = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._state:
            if self._owner is None or self._owner == me:
                self._owner = me
                self._depth += 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        try:
            gate.acquire()  # opened by the leaving owner, who makes us the owner
        except BaseException:  # an interrupt from the keyboard
            self._give_up(gate)
            raise
        self._owner = me

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._state:
            self._depth -= 1
            if not self._depth:
                self._pass_on()

    def _pass_on(self) -> None:
        """Make the longest waiter the owner."""
        self._owner = None
        if self._waiting:
            self._owner = -1  # taken, until the other thread writes its name
            self._depth = 1
            self._waiting.popleft().release()

    def _give_up(self, gate: threading.Lock) -> None:
        with self._state:
            if gate in self._waiting:
                self._waiting.remove(gate)
            else:  # it was opened in the meantime
                self._depth = 0
                self._pass_on()
