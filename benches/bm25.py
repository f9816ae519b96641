"""Keyword search.

BM25 over 100,000 chunks of documentation, against Postgres' full-text search (OR and `ts_rank_cd`) in the same server:
60 short queries (2 to 3 words), 60 questions (7 to 13) and 60 long ones (25 to 40), ten results each. The time is that
of the whole transaction, up to keys and scores. Cold: no posting list is in memory. New: others of its kind were
asked. "Read" is what the server sends.

After a foreign commit: as under [Hybrid search](#hybrid-search), without vectors.

semlex asks all queries before and after `ts_rank_cd`. pg_textsearch has its own server and is asked once, before
semlex. `--million` adds a million chunks and takes half an hour.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import sql

from benches import keyword_load
from benches.after_commit import AFTER, Searches, Writer
from benches.bm25_server import bm25_server
from benches.corpus import KINDS, Corpus, corpus_of
from benches.keyword_leg import TOP, CountedWire, KeywordLeg, PlainBm25
from benches.servers import temporary_server, vacuum
from semlex import BulkIngestConfig, Document, PostgreSQLRetriever
from semlex.options.collection import Bm25Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from benches.measuring import Bench
    from semlex.store.keyword.bm25.index import Bm25Index

CHUNKS, QUICK_CHUNKS, MILLION = 100_000, 10_000, 1_000_000
ENGINE, BASELINE, EXTENSION = "bm25", "tsvector_cd", "pg_textsearch"
EXTENSION_NAME = f"question, vs {EXTENSION}"
LOADED_AT_ONCE = 50_000
PASSES = 5
# It makes known which segments there are.
FIRST_QUERY = "configuration of a new server"
TABLES = ("segment", "posting", "tombstone")
# Texts that another process writes, and how much longer a search right after it takes at most.
WRITTEN, COMMIT_BAR = 2_000, 1.5


@dataclass(frozen=True, slots=True)
class Bars:
    """Milliseconds at most, by kind of query; times faster at least; bytes a posting at most."""

    ratio: float
    cold_p50: dict[str, float]
    cold_p95: dict[str, float]
    warm_p50: dict[str, float] = field(default_factory=dict)
    disk: float | None = None


FULL_BARS = Bars(200, {"question": 1.5, "long": 3.0}, {"question": 3.0})
QUICK_BARS = Bars(15, {"question": 1.5, "long": 2.0}, {"question": 3.0})
MILLION_BARS = Bars(0, {"question": 10.0}, {"question": 20.0}, {"question": 4.0}, disk=2.0)


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured("question, vs ts_rank_cd", "queries/s", FULL_BARS.ratio, "run ./x bench --prepare")
        return
    print(corpus.describe())
    queries = {kind: corpus.queries(kind) for kind in KINDS}
    with temporary_server() as url, asyncio.Runner() as runner:
        texts = corpus.chunks(QUICK_CHUNKS if quick else CHUNKS)
        measure = Measurement(bench, url, texts, queries, QUICK_BARS if quick else FULL_BARS)
        runner.run(measure.load(ENGINE))
        runner.run(measure.load(BASELINE))
        runner.run(measure.legs(PASSES))
        runner.run(measure.against_baseline(["question"] if quick else list(KINDS)))
        runner.run(measure.whole_searches())
        runner.run(measure.bytes_read())
        measure.disk("after the load")
        runner.run(optimize(url))
        vacuum(url, "VACUUM (FULL, ANALYZE)")
        measure.disk("after merging, without holes")
        if quick:
            bench.unmeasured(EXTENSION_NAME, "queries/s", None, "not with --quick")
        else:
            against_extension(measure, runner, state.parent / "bm25-server")
        keyword_load.run(bench, url, texts, quick=quick)
    a_million(bench, corpus, queries)


def collection_of(keyword: str) -> str:
    """The collection with that engine; names of engines alone may be reserved."""
    return f"with_{keyword}"


def retriever(url: str, keyword: str, **options: Any) -> PostgreSQLRetriever:
    """A retriever on the collection of that engine, without models."""
    return PostgreSQLRetriever(url, "none", "none", collection=collection_of(keyword), keyword=keyword, **options)


def opened(url: str, keyword: str) -> AbstractAsyncContextManager[KeywordLeg]:
    """The leg of the collection of that engine."""
    return KeywordLeg.opened(url, collection_of(keyword))


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile, in milliseconds."""
    median, late = np.percentile(seconds, [50, 95])
    return float(median) * 1000, float(late) * 1000


class Measurement:
    """The figures of one size.

    Args:
        bench: Where they go.
        url: The server.
        texts: The chunks; a chunk's id is its number.
        queries: By kind.
        bars: What must be met.
        prefix: Of the figures' names.
    """

    def __init__(
        self, bench: Bench, url: str, texts: Sequence[str], queries: dict[str, list[str]], bars: Bars, prefix: str = ""
    ) -> None:
        self.bench, self.url, self.texts, self.queries = bench, url, texts, queries
        self.bars, self.prefix = bars, prefix

    @cached_property
    def truth(self) -> PlainBm25:
        """What the answers should be."""
        return PlainBm25(self.texts, [query for own in self.queries.values() for query in own])

    async def load(self, keyword: str) -> float:
        """Loads all chunks, without vectors, with the indexes that so many make necessary; seconds."""
        started = time.perf_counter()
        with keyword_load.timed_merging() as merging:
            await self._load(keyword)
        seconds = time.perf_counter() - started
        print(f"  {self.prefix}{keyword}: loaded {len(self.texts) / seconds:,.0f} chunks/s", flush=True)
        if keyword == ENGINE:
            share = 100 * sum(merging) / seconds
            self.bench.at_most(f"{self.prefix}load of texts, time merging", share, unit="%", bar=None)
        vacuum(self.url)
        return seconds

    async def _load(self, keyword: str) -> None:
        async with retriever(self.url, keyword, bulk=BulkIngestConfig(build_indexes=False)) as target:
            for start in range(0, len(self.texts), LOADED_AT_ONCE):
                part = enumerate(self.texts[start : start + LOADED_AT_ONCE], start)
                await target.add_documents([Document(text, id=str(number)) for number, text in part])
            await target.indexes.create()

    async def legs(self, passes: int) -> None:
        """Cold and warm times of each kind, with the share of the true answer that was found."""
        for temperature, options in (("cold", Bm25Options(cache_bytes=0)), ("warm", Bm25Options())):
            async with opened(self.url, ENGINE) as leg:
                index_of(leg).configure(options)
                first = (await leg.ask(FIRST_QUERY)).seconds * 1000
                if temperature == "cold":
                    self.bench.at_most(f"{self.prefix}a process's first query", first, unit="ms", bar=None)
                for kind, queries in self.queries.items():
                    # When warm, the first pass brings the lists.
                    found = {query: (await leg.ask(query)).ids for query in queries}
                    seconds = [(await leg.ask(query)).seconds for _ in range(passes) for query in queries]
                    recall = statistics.mean(
                        self.truth.recall(query, list(map(int, found[query]))) for query in queries
                    )
                    self._state(kind, temperature, seconds, recall)

    def _state(self, kind: str, temperature: str, seconds: list[float], recall: float) -> None:
        p50, p95 = percentiles(seconds)
        bars = self.bars
        p50_bars = bars.cold_p50 if temperature == "cold" else bars.warm_p50
        p95_bars = bars.cold_p95 if temperature == "cold" else {}
        name = f"{self.prefix}{kind}, {temperature}"
        self.bench.at_most(f"{name}, p50", p50, unit="ms", bar=p50_bars.get(kind))
        self.bench.at_most(f"{name}, p95", p95, unit="ms", bar=p95_bars.get(kind))
        self.bench.at_least(f"{name}, recall@{TOP}", recall, unit="", bar=1.0)

    async def against_baseline(self, kinds: Sequence[str]) -> None:
        """Our leg and OR with ts_rank_cd: as a retriever is after some questions, and with no cache."""
        for options, temperature in ((Bm25Options(), ""), (Bm25Options(cache_bytes=0), "cold, ")):
            await self._against_baseline(kinds if not temperature else ["question"], options, temperature)

    async def _against_baseline(self, kinds: Sequence[str], options: Bm25Options, temperature: str) -> None:
        async with opened(self.url, ENGINE) as ours, opened(self.url, BASELINE) as theirs:
            index_of(ours).configure(options)
            for query in [FIRST_QUERY, *(query for kind in kinds for query in self.queries[kind])]:
                await ours.ask(query)
            for kind in kinds:
                queries = self.queries[kind]
                # Ours before and after theirs, so that a slow minute of the machine meets both; not query by query,
                # because theirs leaves nothing of ours in the processor's caches.
                first, baseline, last = [
                    [(await leg.ask(query)).seconds for query in queries] for leg in (ours, theirs, ours)
                ]
                both = [statistics.mean(pair) for pair in zip(first, last, strict=True)]
                bar = self.bars.ratio if kind == "question" and not temperature else None
                self.bench.speed(
                    f"{kind}, {temperature}vs ts_rank_cd", both, baseline, amount=1, unit="queries/s", bar=bar
                )

    async def whole_searches(self) -> None:
        """The search as it is called: with 30 candidates, rows and excerpts loaded."""
        async with retriever(self.url, ENGINE, create=False) as searching:
            for kind, queries in self.queries.items():
                seconds = []
                for timed in (False, True):
                    for query in queries:
                        started = time.perf_counter()
                        await searching.search(query, top_k=TOP, mode="keyword")
                        seconds += [time.perf_counter() - started] * timed
                self._tell(f"{kind}, whole search, warm", seconds)

    def _tell(self, name: str, seconds: list[float]) -> None:
        for percentile, value in zip(("p50", "p95"), percentiles(seconds), strict=True):
            self.bench.at_most(f"{self.prefix}{name}, {percentile}", value, unit="ms", bar=None)

    async def bytes_read(self) -> None:
        """What a query makes the server send, its framing included.

        Cold: no list is in memory. New: the query was never asked, others of its kind were. Warm: it was asked before.
        """
        cold, warm = Bm25Options(cache_bytes=0), Bm25Options()
        for temperature, options, repeats in (("cold", cold, 1), ("new", warm, 1), ("warm", warm, 2)):
            for kind, queries in self.queries.items():
                async with CountedWire(self.url) as wire, opened(wire.url, ENGINE) as leg:
                    index_of(leg).configure(options)
                    await leg.ask(FIRST_QUERY)
                    received = []
                    for query in queries * repeats:
                        before = wire.received
                        await leg.ask(query)
                        received.append(wire.received - before)
                # By the second half there were others.
                later = received[len(received) // 2 :]
                name = f"{self.prefix}{kind}, {temperature}, read"
                self.bench.at_most(name, statistics.median(later) / 1000, unit="kB", bar=None)

    async def among_commits(self) -> None:
        """Searches right after another process has committed."""
        asked = [(query, None) for query in self.queries["question"]]
        with Writer(self.url, collection_of(ENGINE), self.texts[-WRITTEN:], 0) as writer:
            async with retriever(self.url, ENGINE, create=False) as searching:
                searches = await Searches.measured(searching, writer, asked, "keyword", 0)
            searches.report(self.bench, f"{self.prefix}keyword", COMMIT_BAR)

    def disk(self, when: str, bar: float | None = None) -> None:
        """Bytes of the index's tables, their indexes included, for each posting."""
        sizes = (
            sql.SQL("pg_total_relation_size({}::regclass)").format(
                sql.Literal(f"semlex.{collection_of(ENGINE)}_{table}")
            )
            for table in TABLES
        )
        statement = sql.SQL("SELECT {}, sum(postings)::bigint, count(*) FROM semlex.{}").format(
            sql.SQL(" + ").join(sizes), sql.Identifier(f"{collection_of(ENGINE)}_segment")
        )
        with psycopg.connect(self.url) as connection:
            ((total, number, segments),) = connection.execute(statement).fetchall()
        print(f"  {self.prefix}{when}: {segments} segments, {number:,} postings, {total / 1e6:,.1f} MB")
        self.bench.at_most(f"{self.prefix}disk {when}", total / number, unit="bytes/posting", bar=bar)


def index_of(leg: KeywordLeg) -> Bm25Index:
    """The keyword index of an open collection."""
    index = leg.collection.keyword.index
    assert index is not None
    return index


def against_extension(measure: Measurement, runner: asyncio.Runner, programs: Path) -> None:
    """The same chunks and queries in the extension pg_textsearch, where its server is at hand."""
    if not (programs / "made").exists():
        measure.bench.unmeasured(EXTENSION_NAME, "queries/s", None, "its server is brought by ./x test")
        return
    queries = measure.queries["question"]

    async def seconds(url: str, keyword: str) -> list[float]:
        async with opened(url, keyword) as leg:
            for query in queries:
                await leg.ask(query)
            return [(await leg.ask(query)).seconds for query in queries]

    with bm25_server(programs) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_textsearch")
        other = Measurement(measure.bench, url, measure.texts, {}, measure.bars)
        runner.run(other.load(EXTENSION))
        theirs, ours = runner.run(seconds(url, EXTENSION)), runner.run(seconds(measure.url, ENGINE))
    measure.bench.speed(EXTENSION_NAME, ours, theirs, amount=1, unit="queries/s", bar=None)


def a_million(bench: Bench, corpus: Corpus, queries: dict[str, list[str]]) -> None:
    """The same leg over a million chunks."""
    bars, prefix = MILLION_BARS, "1M: "
    if not bench.million:
        reason = "takes half an hour: ./x bench bm25 --million"
        for kind in bars.cold_p50:
            bench.unmeasured(f"{prefix}{kind}, cold, p50", "ms", bars.cold_p50[kind], reason)
            bench.unmeasured(f"{prefix}{kind}, cold, p95", "ms", bars.cold_p95[kind], reason)
            bench.unmeasured(f"{prefix}{kind}, warm, p50", "ms", bars.warm_p50[kind], reason)
        bench.unmeasured(f"{prefix}keyword, {AFTER}, against warm", "times", COMMIT_BAR, reason)
        bench.unmeasured(f"{prefix}disk after merging", "bytes/posting", bars.disk, reason)
        return
    with temporary_server() as url, asyncio.Runner() as runner:
        measure = Measurement(bench, url, corpus.chunks(MILLION), queries, bars, prefix)
        seconds = runner.run(measure.load(ENGINE))
        bench.at_most(f"{prefix}load", seconds, unit="s", bar=None)
        measure.disk("after the load")
        started = time.perf_counter()
        runner.run(optimize(url))
        bench.at_most(f"{prefix}merging", time.perf_counter() - started, unit="s", bar=None)
        vacuum(url, "VACUUM (ANALYZE)")
        runner.run(measure.legs(PASSES))
        runner.run(measure.bytes_read())
        runner.run(measure.among_commits())
        measure.disk("after merging", bars.disk)
        # The room of rows that were merged is used again, but not given back by itself.
        vacuum(url, "VACUUM (FULL, ANALYZE)")
        measure.disk("after merging, without holes")


async def optimize(url: str) -> None:
    """Merges to the fewest segments."""
    async with retriever(url, ENGINE, create=False) as writing:
        await writing.indexes.optimize()
