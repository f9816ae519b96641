"""Makes what is needed next while what is there is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(make: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
    """Results of a function in the order of its items, each made in a thread while the one before it is used.

    Close the iterator (`contextlib.closing`) when it may be left early: the thread then ends with the item at hand.
    """
    if len(items) <= 1:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-prefetch") as thread:
        upcoming = thread.submit(make, items[0])
        for item in items[1:]:
            result = upcoming.result()
            upcoming = thread.submit(make, item)
            yield result
        yield upcoming.result()
