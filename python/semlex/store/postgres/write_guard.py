"""What may refuse the writes of a piece of work, from inside their transactions."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from semlex.store.postgres.connection import Connection

T = TypeVar("T")
WriteGuard: TypeAlias = "Callable[[Connection], AbstractAsyncContextManager[None]]"

# Of the current task and those that it starts. Entered when a transaction has begun, left right before its commit;
# what it raises rolls the transaction back.
write_guard: ContextVar[WriteGuard | None] = ContextVar("write_guard", default=None)


async def guarded(connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Does the work of a transaction between the two halves of the guard, if there is one."""
    guard = write_guard.get()
    if guard is None:
        return await work(connection)
    async with guard(connection):
        return await work(connection)
