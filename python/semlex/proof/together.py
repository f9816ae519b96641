"""Writers and searchers run at once: hits must equal plain computations, and the texts written last must be stored."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import StoreError
from semlex.proof.check import TOLERANCE, check_hits, check_stored, expect
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import WordDirections, documents, draw_text
from semlex.proof.traffic import begun
from semlex.store.proving import connected, connection_of, in_snapshot, stored_chunks, texts_and_vectors
from semlex.store.write.copy import BulkIngestConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection

WRITERS, SEARCHERS = 8, 4
WRITES = 6  # of each writer in a round
OWN, SHARED = 20, 20  # ids of each writer, and of all
TOP_K = 10
# Few rows go as arrays, the others by COPY.
BULK = BulkIngestConfig(small_batch_rows=8)


class Together(Scenario):
    """Rounds of writers, a merger, a rebuilder and searchers on one collection.

    In the end, an id that one writer owns must have the text that it wrote last. An id that all writers use must have
    the last text of one of them.
    """

    name = "together"
    what = (
        f"{WRITERS} writers, {SEARCHERS} searchers, a merger and a rebuilder together; every answer is compared with "
        "BM25 and an exact scan in the same snapshot, and the final texts with the last writes"
    )

    def begin(self) -> None:
        self._shared: dict[str, dict[int, str | None]] = defaultdict(dict)

    def attempt(self) -> Tries:
        self._searches = 0
        asyncio.run(self._round())
        self.site.sabotage(self.names)
        self._check()
        return Tries(self._searches + 1)

    async def _round(self) -> None:
        async with self.site.async_client(self.site.application(self.name)) as client:
            collection = client.collection(self.names.collection, bulk=BULK)
            await begun(collection, self.texts)
            self._writing = WRITERS
            tasks = [self._write(collection, number) for number in range(WRITERS)]
            tasks += [self._meanwhile(collection.indexes.optimize), self._meanwhile(partial(self._rebuild, collection))]
            tasks += [self._search(client) for _ in range(SEARCHERS)]
            await asyncio.gather(*tasks)

    async def _write(self, collection: Collection, number: int) -> None:
        try:
            for _ in range(WRITES):
                rows = self._drawn(number)
                if self.chance.random() < 0.2:
                    await collection.delete(list(rows))
                    rows = dict.fromkeys(rows)
                else:
                    await collection.add_documents(documents({one: text or "" for one, text in rows.items()}))
                self._note(number, rows)
        finally:
            self._writing -= 1

    def _drawn(self, number: int) -> dict[str, str | None]:
        ids = [f"w{number}-{one}" for one in range(OWN)] + [f"s{one}" for one in range(SHARED)]
        chosen = self.chance.sample(ids, self.chance.choice((1, 2, 5, 20)))
        return {one: draw_text(self.chance) for one in chosen}

    def _note(self, number: int, rows: dict[str, str | None]) -> None:
        for one, text in rows.items():
            if one.startswith("s"):
                self._shared[one][number] = text
            elif text is None:
                self.texts.pop(one, None)
            else:
                self.texts[one] = text

    async def _meanwhile(self, work: Callable[[], Awaitable[object]]) -> None:
        while self._writing:
            await work()
            await asyncio.sleep(0)

    async def _rebuild(self, collection: Collection) -> None:
        with suppress(StoreError):  # another rebuild began
            await collection.indexes.rebuild_keyword()

    async def _search(self, client: Client) -> None:
        model = WordDirections()
        async with connection_of(self.site.url) as connection:
            collection = client.collection(self.names.collection).using(connection)
            while self._writing:
                query = draw_text(self.chance, 4)
                async with in_snapshot(connection):
                    words = await collection.search(query, 1000, mode="keyword")
                    near = await collection.search(query, TOP_K, mode="vector")
                    stored = await texts_and_vectors(connection, self.names)
                texts = {one: text for one, (text, _) in stored.items()}
                await asyncio.to_thread(check_hits, words, texts, query)
                cosines = [np.dot(vector, model.embed_query(query)) for _, vector in stored.values() if vector]
                best = sorted(cosines, reverse=True)[:TOP_K]
                found = [hit.vector_score or 0.0 for hit in near]
                is_same = len(found) == len(best) and np.allclose(found, best, atol=TOLERANCE)
                expect(is_same, "wrong", f"{query!r} does not find the nearest {TOP_K} of {len(stored)} texts")
                self._searches += 1

    def _check(self) -> None:
        with connected(self.site.url) as connection:
            found = {chunk.id: chunk.text for chunk in stored_chunks(connection, self.names)}
        state = dict(self.texts)
        for one, last in self._shared.items():
            text = found.get(one)
            expect(text in last.values(), "wrong", f"{one} has a text that no writer wrote last")
            if text is not None:
                state[one] = text
        check_stored(self.site.url, self.names, [state], WordDirections())
        # From here on there is one last write.
        self._shared = defaultdict(dict, {one: {-1: found.get(one)} for one in self._shared})
