"""The moments of semlex's transactions, at which a process of a proof kills or stops itself, or kills something."""

from __future__ import annotations

import signal
import sys
import threading
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

import psycopg

from semlex.store.postgres.database import Database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

# The name of the transaction that a task is in.
DOING = ContextVar("doing", default="")


class Moments:
    """Calls a function at every moment of every transaction.

    A moment has the transaction's name and one of these: ``before``; ``copying``, whenever a block was sent;
    ``worked``, when everything but the commit is done; ``committed``, before the caller hears of it.

    Args:
        reached: Gets the name and the moment.

    Attributes:
        backend: The server's process of the last transaction that has begun.
    """

    def __init__(self, reached: Callable[[str, str], None]) -> None:
        self._reached = reached
        self.backend = 0

    def watch(self) -> None:
        """Wrap functions of semlex and of the driver, without changing them."""
        run, write, send = Database._run, Database.write, psycopg.AsyncCopy.write

        async def running(
            database: Database, doing: str, transaction: Callable[[Any], Awaitable[Any]], **options: Any
        ) -> Any:
            async def begun(connection: Any) -> Any:
                DOING.set(doing)
                self.backend = connection.info.backend_pid
                result = await transaction(connection)
                self._reached(doing, "committed")
                return result

            self._reached(doing, "before")
            return await run(database, doing, begun, **options)

        async def writing(database: Database, doing: str, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
            async def worked(connection: Any) -> Any:
                result = await work(connection)
                self._reached(doing, "worked")
                return result

            return await write(database, doing, worked, **options)

        async def sent(copy: Any, block: Any) -> None:
            await send(copy, block)
            self.backend = copy.connection.info.backend_pid
            self._reached(DOING.get(), "copying")

        database_class: Any = Database
        copy_class: Any = psycopg.AsyncCopy
        database_class._run, database_class.write, copy_class.write = running, writing, sent


def set_limits(limits: Mapping[str, Mapping[str, float]]) -> None:
    """Set module constants to values so small that a little data reaches every moment."""
    for module, constants in limits.items():
        for name, value in constants.items():
            if not hasattr(import_module(module), name):
                raise AttributeError(f"{module} has no {name}")
            setattr(import_module(module), name, value)


def say(what: object) -> None:
    """Write a line."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def stop_here(number: signal.Signals = signal.SIGSTOP) -> None:
    """Stop or kill this process from this thread, which therefore cannot continue."""
    signal.pthread_kill(threading.get_ident(), number)


def stop_at(doing: str, moment: str, times: int = 1) -> None:
    """Stop this process at the n-th occurrence of a moment in transactions whose name begins with a prefix."""
    left = times

    def reached(name: str, now: str) -> None:
        nonlocal left
        if name.startswith(doing) and now == moment:
            left -= 1
            if left == 0:
                stop_here()

    Moments(reached).watch()
