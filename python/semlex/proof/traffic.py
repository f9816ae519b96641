"""Writers and searchers of one collection in one event loop, and the texts that their acknowledged writes stored."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from semlex.errors import SemlexError
from semlex.proof.check import LIMIT_SECONDS, Fault
from semlex.proof.texts import documents, draw_text

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.retriever.collection import Collection

PAUSE_SECONDS = 0.005
IDS = 40  # of each writer

Write = tuple[dict[str, str], list[str]]


class Traffic:
    """Clients that write their own ids, and clients that search, until they are stopped.

    Attributes:
        texts: Texts by id, as all acknowledged writes left them.
        uncertain: Running or failed write of each writer: it is stored as a whole, or not at all.
        done: Number of calls that have succeeded, by client.
        failed: Errors of calls.
    """

    def __init__(self, collection: Collection, texts: dict[str, str], chance: random.Random) -> None:
        self.collection, self.texts, self.chance = collection, texts, chance
        self.uncertain: dict[int, Write] = {}
        self.done: Counter[str] = Counter()
        self.failed: list[SemlexError] = []
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, writers: int, searchers: int, *, optimizer: bool = False) -> None:
        """Start the clients."""
        works: dict[str, Callable[[], Awaitable[object]]] = {
            **{f"writer {number}": partial(self._write, number) for number in range(writers)},
            **{f"searcher {number}": self._search for number in range(searchers)},
            **({"optimizer": self.collection.indexes.optimize} if optimizer else {}),
        }
        self._tasks = [asyncio.create_task(self._again(name, work), name=name) for name, work in works.items()]

    async def stop(self) -> None:
        """Let every client finish its current call; raise an error that is not one of semlex's own."""
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def progress(self, calls: int = 1) -> None:
        """Wait until every client has succeeded a number of times from now on, or has given up."""
        wanted = {task: self.done[task.get_name()] + calls for task in self._tasks}
        await eventually(
            lambda: all(task.done() or self.done[task.get_name()] >= count for task, count in wanted.items()),
            "a call of every writer and searcher",
        )

    def is_refused(self) -> bool:
        """Return whether a writer has given up, because one of its writes failed."""
        return any(task.done() for task in self._tasks if task.get_name().startswith("writer"))

    def states(self) -> list[dict[str, str]]:
        """Return all states that the collection may be in: each uncertain write is either stored or not."""
        found = []
        for chosen in itertools.product((False, True), repeat=len(self.uncertain)):
            state = dict(self.texts)
            for (added, deleted), is_stored in zip(self.uncertain.values(), chosen, strict=True):
                if is_stored:
                    state = {one: text for one, text in (state | added).items() if one not in deleted}
            found.append(state)
        return found

    async def _again(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        while not self._ended.is_set():
            try:
                await work()
                self.done[name] += 1
            except SemlexError as error:
                self.failed.append(error)
                if name.startswith("writer"):
                    return  # what it wrote is uncertain
            await asyncio.sleep(0)

    async def _write(self, number: int) -> None:
        added, deleted = self._drawn(number)
        self.uncertain[number] = added, deleted
        if added:
            await self.collection.add_documents(documents(added))
        else:
            await self.collection.delete(deleted)
        del self.uncertain[number]
        self.texts |= added
        for one in deleted:
            self.texts.pop(one, None)

    def _drawn(self, number: int) -> Write:
        ids = [f"w{number}-{one}" for one in self.chance.sample(range(IDS), self.chance.choice((1, 2, 8)))]
        if self.chance.random() < 0.2:
            return {}, ids
        return {one: draw_text(self.chance) for one in ids}, []

    async def _search(self) -> None:
        await self.collection.search(draw_text(self.chance, 3), 5)


async def begun(collection: Collection, texts: dict[str, str]) -> None:
    """Make the collection, with a first text that nobody changes."""
    if not texts:
        texts["first"] = "the first text"
        await collection.add_documents(documents(texts))


async def eventually(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition is true; raise a fault if that takes too long."""
    async with in_time(what):
        while not condition():  # noqa: ASYNC110 - most conditions are the server's
            await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def in_time(what: str) -> AsyncIterator[None]:
    """Run the block; raise a fault if it does not end in time."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield
    except TimeoutError:
        raise Fault("hung", f"waited more than {LIMIT_SECONDS:g} s for {what}") from None
