"""Merging segments: what is merged when, and that nothing is lost, doubled or raised from the dead by it."""

import asyncio
import logging
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import BulkIngestConfig, Document
from semlex.errors import DamagedSegmentError, StoreError
from semlex.store import segments as segment_sizes
from semlex.store.keyword.bm25 import merge as merging
from semlex.store.keyword.bm25.merge import MAX_TOMBSTONES, merge_once
from semlex.store.keyword.bm25.segments import NewSegment
from semlex.store.segments import FULL_CHUNKS, PACKED_TIER, SEGMENT_CHUNKS, TIER, choose_merge, choose_packing, tier
from tests.support.databases import execute
from tests.support.keyword_index import bm25, check_index, filled_bm25, many


def unmerged(monkeypatch):
    """Keeps writers from merging until the answer is called."""
    wanted = merging.choose_merge
    monkeypatch.setattr(merging, "choose_merge", lambda _: [])
    return lambda: monkeypatch.setattr(merging, "choose_merge", wanted)


class Store:
    """Segments as numbers: what the policy does to them, and what that costs."""

    def __init__(self, choose=choose_merge, sizes=()):
        self.sizes, self.rewritten = [*sizes], 0
        self._choose = choose
        self._settle()
        assert sum(self.sizes) == sum(sizes)

    def add(self, size):
        self.sizes.append(size)
        self._settle()

    def _settle(self):
        while chosen := self._choose(self.sizes):
            total = sum(self.sizes[place] for place in chosen)
            assert len(chosen) == len(set(chosen)) >= 2
            assert total <= SEGMENT_CHUNKS
            self.rewritten += total
            self.sizes = [size for place, size in enumerate(self.sizes) if place not in chosen] + [total]


@given(sizes=st.lists(st.integers(0, SEGMENT_CHUNKS) | st.integers(0, 5_000), max_size=60))
def test_any_segments_settle_to_few_and_packing_ends_with_nothing_that_fits_together(sizes):
    settled = Store(sizes=sizes).sizes
    in_tiers = Counter(tier(size) for size in settled)
    assert all(in_tiers[power] < TIER for power in range(PACKED_TIER))
    assert sum(size for size in settled if tier(size) <= PACKED_TIER) <= SEGMENT_CHUNKS
    smallest = sorted(Store(choose_packing, sizes).sizes)[:2]
    assert len(smallest) < 2 or sum(smallest) > SEGMENT_CHUNKS


@pytest.mark.slow
def test_single_rows_are_rewritten_once_a_tier():
    store = Store()
    rows = 70_000
    for _ in range(rows):
        store.add(1)
        # Seven of each of the small sizes, and the large ones that wait for a full segment.
        assert len(store.sizes) <= (TIER - 1) * PACKED_TIER + 1 + SEGMENT_CHUNKS // TIER**PACKED_TIER
    assert store.rewritten <= (PACKED_TIER + 1) * rows


@pytest.mark.parametrize("batch", [500, 1_000, 5_000, 10_000])
def test_a_load_in_batches_ends_in_full_segments(batch):
    store = Store()
    for _ in range(1_000_000 // batch):
        store.add(batch)
    full = [size for size in store.sizes if size >= FULL_CHUNKS]
    assert sum(full) >= 1_000_000 - SEGMENT_CHUNKS
    # Once for each tier on the way from a batch to a full segment.
    assert store.rewritten <= (PACKED_TIER - tier(batch) + 1.1) * 1_000_000


@given(seed=st.integers(0, 2**32 - 1))
def test_rows_are_rewritten_a_few_times_whatever_the_batches(seed):
    numbers = random.Random(seed)
    store, rows = Store(), 0
    while rows < 200_000:
        size = int(2 ** numbers.uniform(0, 14))
        store.add(size)
        rows += size
    assert store.rewritten <= (PACKED_TIER + 3) * rows


@pytest.mark.slow
async def test_single_additions_are_merged_as_they_come(database_url):
    async with bm25(database_url) as retriever:
        for number in range(70):
            await retriever.add_documents([Document(f"a cat {number}", id=f"d{number % 40}")])
            assert check_index(database_url)["segments"] <= 2 * (TIER - 1)
        await retriever.delete([f"d{number}" for number in range(10)])
        figures = check_index(database_url)
    assert figures["tombstones"] <= MAX_TOMBSTONES


@pytest.mark.slow
async def test_tombstones_are_put_together_and_done_with(database_url):
    async with filled_bm25(database_url, many(200)) as retriever:
        for number in range(MAX_TOMBSTONES - 1):
            await retriever.delete([f"d{number}"])
        assert check_index(database_url)["tombstones"] == MAX_TOMBSTONES - 1
        await retriever.delete(["d100"])
        figures = check_index(database_url)
        # A sixth of the segment is dead: not yet worth rewriting it.
        assert (figures["segments"], figures["tombstones"], figures["dead"]) == (1, 1, MAX_TOMBSTONES)
        for number in range(101, 101 + MAX_TOMBSTONES):
            await retriever.delete([f"d{number}"])
        figures = check_index(database_url)
        assert (figures["segments"], figures["dead"]) == (1, 1)
        await retriever.delete([f"d{number}" for number in range(200)])
        await retriever.indexes.optimize()
        assert check_index(database_url) == {"segments": 0, "tombstones": 0, "dead": 0, "generation": 1, "building": 0}


@pytest.mark.slow
async def test_optimizing_leaves_few_segments_and_no_tombstone(database_url, monkeypatch):
    merge = unmerged(monkeypatch)
    headers, read = merging.segment_headers, []

    async def counted(connection, names, segments):
        read.extend(segments)
        return await headers(connection, names, segments)

    monkeypatch.setattr(merging, "segment_headers", counted)
    async with bm25(database_url, bulk=BulkIngestConfig(batch_size=20)) as retriever:
        await retriever.add_documents(many(300, languages=(None, "spanish", "german")))
        await retriever.delete([f"d{number}" for number in range(0, 300, 7)])
        await retriever.add_documents(many(50, "a dog"))
        segments = check_index(database_url)["segments"]
        assert segments > 40
        merge()
        seen = []
        merged = await retriever.indexes.optimize(seen.append)
        figures = check_index(database_url)
        assert (figures["segments"], figures["tombstones"]) == (3, 0)
        assert merged >= segments
        assert len(seen) >= 3
        assert sorted(read) == sorted(set(read)), "a header was read twice"
        assert {step.stage for step in seen} == {"merge"}
        assert all(0 < step.done <= (step.total or 0) for step in seen)
        assert await retriever.indexes.optimize() == 0
        assert (await retriever.status()).index_segments == 3


async def test_optimizing_ends_while_others_write(database_url, monkeypatch):
    once, rounds = merging.merge_once, 0
    async with filled_bm25(database_url, many(30)) as retriever:
        await retriever.add_documents(many(10, "a dog"))

        async def with_a_writer(*arguments, **options):
            nonlocal rounds
            rounds += 1
            await retriever.add_documents(many(1, start=100 + rounds))
            return await once(*arguments, **options)

        monkeypatch.setattr(merging, "merge_once", with_a_writer)
        await retriever.indexes.optimize()
        check_index(database_url)
    assert 2 <= rounds <= 10


async def test_segments_are_filled_but_not_beyond(database_url, monkeypatch):
    unmerged(monkeypatch)
    monkeypatch.setattr(segment_sizes, "SEGMENT_CHUNKS", 50)
    async with filled_bm25(database_url, many(190), bulk=BulkIngestConfig(batch_size=20)) as retriever:
        await retriever.delete([f"d{number}" for number in range(10)])
        await retriever.indexes.optimize()
        check_index(database_url)
    [(largest, count)] = execute(database_url, "SELECT max(chunks), count(*) FROM semlex.words_segment")
    assert (largest <= 50, count <= 6) == (True, True)


@pytest.mark.slow
async def test_what_dies_while_a_merge_runs_stays_dead(database_url, monkeypatch):
    """And what is added meanwhile is neither lost nor merged twice."""
    let_go = unmerged(monkeypatch)
    merged, meanwhile = NewSegment.merged, []
    async with bm25(database_url) as retriever, bm25(database_url) as other:
        for start in range(0, 80, 10):
            await retriever.add_documents(many(10, start=start))
        await retriever.delete(["d1"])
        let_go()
        loop = asyncio.get_running_loop()

        async def change():
            await other.delete(["d2", "d77"])
            await other.add_documents(many(2, "a dog", start=79))

        def slow(*arguments):
            if not meanwhile:
                meanwhile.append(asyncio.run_coroutine_threadsafe(change(), loop).result())
            return merged(*arguments)

        monkeypatch.setattr(NewSegment, "merged", slow)
        await merge_once(retriever._handle.opened.database, retriever.info)
        assert len(meanwhile) == 1
        figures = check_index(database_url)
        assert figures["dead"] == 3
        await retriever.indexes.optimize()
        assert check_index(database_url)["dead"] == 0
        assert await retriever.count() == 78


@pytest.mark.slow
@pytest.mark.parametrize("lock", [True, False], ids=["one lock", "no lock"])
async def test_two_who_merge_at_once(database_url, monkeypatch, lock):
    """Under one lock the second leaves it to the first; without any, the server refuses whoever is later."""
    let_go = unmerged(monkeypatch)
    async with bm25(database_url) as retriever:
        for start in range(10):
            await retriever.add_documents(many(7, start=start * 7))
        let_go()
        if not lock:
            monkeypatch.setattr(merging, "merging_lock", lambda _: random.getrandbits(60))
        monkeypatch.setattr("semlex.store.postgres.database.RETRY_ATTEMPTS", 1)
        merged, inner, loop = NewSegment.merged, [], asyncio.get_running_loop()

        def with_another(*arguments):
            if not inner:
                inner.append(None)
                another = merge_once(retriever._handle.opened.database, retriever.info)
                inner.append(asyncio.run_coroutine_threadsafe(another, loop).result(30))
            return merged(*arguments)

        monkeypatch.setattr(NewSegment, "merged", with_another)
        outer = await merge_once(retriever._handle.opened.database, retriever.info)
        assert (outer.done, outer.busy) == (lock, not lock)
        assert (inner[1].done, inner[1].busy) == (not lock, lock)
        check_index(database_url)


async def test_a_merge_that_fails_does_not_fail_the_write(database_url, monkeypatch, caplog):
    async def failing(*_, **__):
        raise StoreError("no room left")

    async with bm25(database_url) as retriever:
        monkeypatch.setattr(merging, "merge_once", failing)
        with caplog.at_level(logging.WARNING, "semlex"):
            for number in range(TIER):
                await retriever.add_documents(many(1, start=number))
        assert "no room left" in caplog.text
        assert await retriever.count() == TIER
    assert check_index(database_url)["segments"] == TIER


@pytest.mark.parametrize("damage", ["segment SET header = header || 'x'", "posting SET data = ''"])
async def test_a_damaged_segment_is_reported_and_repaired(database_url, caplog, damage):
    async with filled_bm25(database_url, many(20)) as retriever:
        execute(database_url, f"UPDATE semlex.words_{damage}")
        for number in range(TIER):
            await retriever.add_documents(many(1, start=100 + number))
        await retriever.delete(["d1"])
        with pytest.raises(DamagedSegmentError, match="semlex maintain reindex"):
            await retriever.indexes.optimize()
        assert ((await retriever.status()).index_problem is not None) == ("header" in damage)
        await retriever.indexes.rebuild_keyword()
        assert check_index(database_url)["generation"] == 2
        assert (await retriever.status()).index_problem is None
        await retriever.indexes.optimize()
    assert not caplog.records


async def test_a_bulk_load_ends_with_full_segments(database_url, monkeypatch):
    monkeypatch.setattr("semlex.store.keyword.bm25.merge.BULK_LOAD_CHUNKS", 50)
    async with filled_bm25(database_url, many(30), bulk=BulkIngestConfig(batch_size=10)) as retriever:
        await retriever.add_documents(many(60, start=30))
    check_index(database_url)
    assert execute(database_url, "SELECT chunks FROM semlex.words_segment") == [(90,)]


async def test_the_room_of_what_was_merged_is_given_back(database_url, monkeypatch):
    monkeypatch.setattr("semlex.store.keyword.bm25.merge.ROOM_ROWS", 1)
    vacuumed = "SELECT sum(vacuum_count) FROM pg_stat_user_tables WHERE relname IN ('words_posting', 'words_segment')"
    async with bm25(database_url) as retriever:
        for start in range(3):
            await retriever.add_documents(many(3, start=3 * start))
        assert await retriever.indexes.optimize() == 3
        execute(database_url, "SELECT pg_stat_force_next_flush()")
        assert execute(database_url, vacuumed) == [(2,)]
    check_index(database_url)
