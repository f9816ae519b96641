"""Replace objects that a forked child must not share with its parent: locks, event loops, sockets, models.

The child drops these objects and never closes them: closing would speak to servers over the parent's sockets, or take
the wake-up calls away from the parent's event loop. The child makes new ones when it needs them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_dropped: list[object] = []


def new_lock() -> threading.Lock:
    """Return a lock that is free in a forked child, even if the parent held it at the fork."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """Return a reentrant lock that is free in a forked child, even if the parent held it at the fork."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def renew_after_fork(owner: object) -> None:
    """Register an object whose method ``_after_fork`` is called in every forked child while the object lives."""
    _owners.add(owner)


def drop(*inherited: object) -> None:
    """Keep a reference to the parent's objects until the child ends, so that Python does not finalise them."""
    _dropped.append(inherited)


def _after_fork() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # noqa: SLF001 - what the standard library does with its own
    for owner in list(_owners):
        owner._after_fork()  # noqa: SLF001 - private to everyone but this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
