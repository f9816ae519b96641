"""What the benchmarks of the keyword leg measure with: the leg by itself, plain BM25, bytes on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
import time
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import psycopg

from semlex import _core
from semlex.store.keyword.engine import LegRequest
from semlex.store.postgres.database import Database
from semlex.store.query.filters import Filter
from semlex.store.query.run import run_legs
from semlex.store.schema.names import Names
from semlex.store.schema.registry import open_collection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo

TOP = 10
MAX_TERMS = 64  # as the engine cuts queries
K1, B = 1.2, 0.75  # the engine's defaults
# Scores are sums of the same numbers in another order.
SAME_SCORE = 1e-9


@dataclass(frozen=True, slots=True)
class Answer:
    """What the leg said.

    Attributes:
        ids: The best chunks' ids, best first.
        seconds: From the beginning of the transaction, which travels with the first statement, to keys and scores.
    """

    ids: list[str]
    seconds: float


class KeywordLeg:
    """The keyword leg of a collection without anything around it: no rows are loaded, nothing is fused.

    Args:
        database: An open database.
        collection: An open collection.
    """

    def __init__(self, database: Database, collection: CollectionInfo) -> None:
        self.database, self.collection = database, collection

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str, name: str) -> AsyncIterator[Self]:
        """The leg of a collection that exists."""
        database = Database(url)
        await database.open()
        try:
            yield cls(database, await open_collection(database, Names("semlex", name), None, create=False))
        finally:
            await database.close()

    async def ask(self, query: str, limit: int = TOP) -> Answer:
        """The best chunks."""

        async def work(snapshot: Snapshot) -> Answer:
            started = time.perf_counter()
            leg = self.collection.keyword.leg(LegRequest(self.collection, query, limit, Filter()))
            assert leg is not None
            result = (await run_legs(snapshot, [leg])).results["keyword"]
            seconds = time.perf_counter() - started
            if result.error is not None:
                raise result.error
            return Answer([chunk_id for _, chunk_id in result.keys], seconds)

        return await self.database.read_snapshot("search", work)


class PlainBm25:
    """BM25 as the books write it, over every chunk, for the words of some queries: the truth about an answer.

    Args:
        texts: The chunks.
        queries: All queries that will be asked.
    """

    def __init__(self, texts: Sequence[str], queries: Sequence[str]) -> None:
        analyzer = _core.Analyzer("english", stop_words=True)
        self._terms = {query: [term for _, term in analyzer.query(query, MAX_TERMS).wanted] for query in queries}
        wanted = {term for terms in self._terms.values() for term in terms}
        self._lengths = np.empty(len(texts))
        # Chunks, and how often each has the term: arrays, because a million chunks have many postings.
        postings = {term: (array("q"), array("q")) for term in wanted}
        for number, text in enumerate(texts):
            terms = analyzer.terms(text)
            self._lengths[number] = len(terms)
            for term, frequency in Counter(term for term in terms if term in wanted).items():
                postings[term][0].append(number)
                postings[term][1].append(frequency)
        self._postings = {
            term: (np.frombuffer(chunks, dtype=np.int64), np.frombuffer(frequencies, dtype=np.int64))
            for term, (chunks, frequencies) in postings.items()
        }

    def scores(self, query: str) -> NDArray[np.float64]:
        """The score of every chunk; 0 where no word occurs."""
        number = len(self._lengths)
        scores = np.zeros(number)
        norms = K1 * (1 - B + B * self._lengths / self._lengths.mean())
        for term in self._terms[query]:
            chunks, frequencies = self._postings[term]
            idf = math.log(1 + (number - len(chunks) + 0.5) / (len(chunks) + 0.5))
            scores[chunks] += idf * frequencies * (K1 + 1) / (frequencies + norms[chunks])
        return scores

    def recall(self, query: str, found: Sequence[int]) -> float:
        """The share of the best chunks that was found; of chunks with equal scores any will do."""
        scores = self.scores(query)
        possible = min(TOP, int(np.count_nonzero(scores)))
        if not possible:
            return 1.0
        least = np.partition(scores, -possible)[-possible]
        return sum(bool(scores[number] >= least * (1 - SAME_SCORE)) for number in set(found)) / possible


class CountedWire:
    """Stands between client and server and counts what the server sends.

    Args:
        url: Of a server on a Unix socket.
    """

    def __init__(self, url: str) -> None:
        self.received = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="semlex-wire-")
        target = psycopg.conninfo.conninfo_to_dict(url)
        socket = f".s.PGSQL.{target.get('port', 5432)}"
        self._theirs, self._ours = Path(str(target["host"])) / socket, Path(self._folder.name) / socket
        self.url = psycopg.conninfo.make_conninfo(url, host=self._folder.name)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._ours)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._connections)
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        server_reader, server_writer = await asyncio.open_unix_connection(self._theirs)
        await asyncio.gather(
            self._forward(reader, server_writer, counts=False), self._forward(server_reader, writer, counts=True)
        )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while block := await reader.read(1 << 16):
                self.received += len(block) * counts
                writer.write(block)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
