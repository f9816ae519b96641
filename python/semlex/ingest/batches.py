"""Work in batches: divide items, make the next batch while the last one is used, and write several at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

T = TypeVar("T")

# With one, the server idles while rows are made and a transaction ends. More than two would wait for this process.
WRITES_AT_ONCE = 2


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of up to `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


class BatchWrites:
    """Writes batches in up to `at_once` concurrent transactions; leaving the block waits for all of them."""

    def __init__(self, at_once: int, tell: Callable[[int], None] | None = None) -> None:
        self._at_once = at_once
        self._tell = tell
        self.rows = self.written = 0
        self._under_way: dict[asyncio.Task[None], AbstractSet[str]] = {}

    async def begin(self, rows: int, ids: AbstractSet[str], write: Coroutine[None, None, int]) -> None:
        """Start to write a batch, once fewer than `at_once` writes run and none of them writes an id of the batch."""
        # So of rows with the same id, the last one given is the one that stays.
        try:
            while len(self._under_way) >= self._at_once or not self._apart(ids):
                await self._next()
        except BaseException:
            write.close()
            raise
        task = asyncio.ensure_future(self._count(rows, write))
        task.add_done_callback(lambda _: write.close())  # if the task was cancelled before it began
        self._under_way[task] = ids

    async def __aenter__(self) -> Self:
        return self

    # After an error in one, the others are still finished. If the block is cancelled, they are rolled back.
    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and not isinstance(error, Exception):
            for task in self._under_way:
                task.cancel()
        ended = await asyncio.gather(*self._under_way, return_exceptions=True)
        if error is None:
            _raise_first(ended)

    async def _count(self, rows: int, write: Coroutine[None, None, int]) -> None:
        written = await write  # others may add theirs meanwhile
        self.written += written
        self.rows += rows
        if self._tell is not None:
            self._tell(self.rows)

    def _apart(self, ids: AbstractSet[str]) -> bool:
        return all(ids.isdisjoint(others) for others in self._under_way.values())

    async def _next(self) -> None:
        done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del self._under_way[task]
        _raise_first(task.exception() for task in done)


def _raise_first(ended: Iterable[BaseException | None]) -> None:
    for error in ended:
        if error is not None:
            raise error


async def ahead(
    items: AsyncGenerator[T, None], work: Callable[[T], Awaitable[None]] | None = None
) -> AsyncGenerator[T, None]:
    """Call `work` on each item, then yield it; the next item is prepared while the caller uses the current one."""

    async def make() -> T | None:
        item = await anext(items, None)
        if item is not None and work is not None:
            await work(item)
        return item

    pending = asyncio.ensure_future(make())
    try:
        while (item := await pending) is not None:
            pending = asyncio.ensure_future(make())
            yield item
    finally:
        # Closing this generator cancels the item in progress and closes `items`.
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        with suppress(RuntimeError):  # a loop that ends closes all generators at once
            await items.aclose()
