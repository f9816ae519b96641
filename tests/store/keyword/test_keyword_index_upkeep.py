"""Upkeep of the keyword index: segments are merged, and it is rebuilt beside writers; no chunk is lost or doubled."""

import asyncio
import logging
import random
from collections import Counter
from functools import partial

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import BulkIngestConfig, Document
from semlex.errors import ConfigurationError, DamagedSegmentError, StoreError
from semlex.ingest import run as runs
from semlex.store import segments
from semlex.store.keyword.bm25 import merge as merging
from semlex.store.keyword.bm25 import rebuild as rebuilding
from semlex.store.keyword.bm25 import write as writing
from semlex.store.keyword.bm25.merge import MAX_TOMBSTONES, _Merge, merge_once
from semlex.store.keyword.bm25.rebuild import Rebuild
from semlex.store.keyword.bm25.segments import NewSegment
from semlex.store.postgres.database import Database
from semlex.store.schema import locks
from semlex.store.segments import FULL_CHUNKS, PACKED_TIER, SEGMENT_CHUNKS, TIER, choose_merge, choose_packing, tier
from tests.support.databases import execute, set_in_database
from tests.support.keyword_index import bm25, check_index, filled_bm25, index_figures, many
from tests.support.lost_answers import lose_answers
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import sync_filled
from tests.support.shell import Shell
from tests.support.spies import calls_of
from tests.support.waiting import eventually, waiting


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
async def test_single_additions_are_merged_as_they_come(database_url, looking):
    async with bm25(database_url) as retriever:
        for number in range(70):
            await retriever.add_documents([Document(f"a cat {number}", id=f"d{number % 40}")])
            assert check_index(looking)["segments"] <= 2 * (TIER - 1)
        await retriever.delete([f"d{number}" for number in range(10)])
        assert check_index(looking)["tombstones"] <= MAX_TOMBSTONES


@pytest.mark.slow
async def test_tombstones_are_put_together_and_done_with(database_url):
    async with filled_bm25(database_url, many(200)) as retriever:
        for number in range(MAX_TOMBSTONES - 1):
            await retriever.delete([f"d{number}"])
        assert check_index(database_url)["tombstones"] == MAX_TOMBSTONES - 1
        await retriever.delete(["d100"])
        # A sixth of the segment is dead: not yet worth rewriting it.
        assert index_figures(database_url, "segments", "tombstones", "dead") == (1, 1, MAX_TOMBSTONES)
        for number in range(101, 101 + MAX_TOMBSTONES):
            await retriever.delete([f"d{number}"])
        assert index_figures(database_url, "segments", "dead") == (1, 1)
        await retriever.delete([f"d{number}" for number in range(200)])
        await retriever.indexes.optimize()
        assert check_index(database_url) == {"segments": 0, "tombstones": 0, "dead": 0, "generation": 1, "building": 0}


@pytest.mark.slow
async def test_optimizing_leaves_few_segments_and_no_tombstone(database_url, monkeypatch):
    merge = unmerged(monkeypatch)
    reads = calls_of(monkeypatch, merging, "segment_headers")
    async with bm25(database_url, bulk=BulkIngestConfig(batch_size=20)) as retriever:
        await retriever.add_documents(many(300, languages=(None, "spanish", "german")))
        await retriever.delete([f"d{number}" for number in range(0, 300, 7)])
        await retriever.add_documents(many(50, "a dog"))
        segments = check_index(database_url)["segments"]
        assert segments > 40
        merge()
        seen = []
        merged = await retriever.indexes.optimize(seen.append)
        assert index_figures(database_url, "segments", "tombstones") == (3, 0)
        assert merged >= segments
        assert len(seen) >= 3
        read = [segment for call in reads for segment in call["segments"]]
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
    monkeypatch.setattr(segments, "SEGMENT_CHUNKS", 50)
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
        assert check_index(database_url)["dead"] == 3
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


mixed = partial(many, languages=(None, "spanish", "german"))


def generations(url):
    tables = "(SELECT generation FROM semlex.words_segment UNION SELECT generation FROM semlex.words_tombstone)"
    return [number for (number,) in execute(url, f"SELECT generation FROM {tables} AS t ORDER BY 1")]


def between(monkeypatch, work):
    """Has something done before and after every page is read, and before every segment is written."""
    page, write = Rebuild._page, Rebuild._write

    async def reading(self, *arguments):
        await work("before a page")
        rows = await page(self, *arguments)
        await work("behind a page")
        return rows

    async def writing_one(self, *arguments):
        await work("before a segment")
        await write(self, *arguments)

    monkeypatch.setattr(Rebuild, "_page", reading)
    monkeypatch.setattr(Rebuild, "_write", writing_one)


async def test_a_rebuild_takes_the_place_of_the_old_index(database_url):
    async with bm25(database_url) as retriever:
        assert (await retriever.indexes.rebuild_keyword()).chunks == 0
        assert check_index(database_url)["segments"] == 0
        await retriever.add_documents(mixed(200))
        await retriever.delete([f"d{number}" for number in range(50)])
        seen = []
        rebuilt = await retriever.indexes.rebuild_keyword(seen.append)
        assert (rebuilt.generation, rebuilt.chunks, rebuilt.segments) == (3, 150, 3)
        assert (seen[-1].stage, seen[-1].done, seen[-1].total, seen[-1].unit) == ("rebuild", 150, 150, "chunks")
        assert check_index(database_url) == {"segments": 3, "tombstones": 0, "dead": 0, "generation": 3, "building": 0}
        assert generations(database_url) == [3]
        await retriever.add_documents(mixed(10, "a dog"))
        await retriever.indexes.rebuild_keyword()
    assert check_index(database_url)["generation"] == 4
    assert generations(database_url) == [4]


async def test_segments_are_full_and_memory_is_bounded(database_url, monkeypatch):
    async with filled_bm25(database_url, mixed(300)) as retriever:
        monkeypatch.setattr(writing, "SEGMENT_CHUNKS", 40)
        monkeypatch.setattr(rebuilding, "MAX_OPEN_CHUNKS", 80)
        monkeypatch.setattr(rebuilding, "PAGE_ROWS", 16)
        monkeypatch.setattr("semlex.store.keyword.bm25.merge.merge_where_wanted", lambda *_, **__: asyncio.sleep(0))
        await retriever.indexes.rebuild_keyword()
        check_index(database_url)
    sizes = [size for (size,) in execute(database_url, "SELECT chunks FROM semlex.words_segment")]
    assert max(sizes) == 40
    assert len(sizes) <= 300 // 20 + 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_writers_go_on_while_it_is_rebuilt(database_url, monkeypatch, seed):
    numbers = random.Random(seed)
    monkeypatch.setattr(rebuilding, "PAGE_ROWS", 30)
    monkeypatch.setattr(rebuilding, "MAX_OPEN_CHUNKS", 40)
    changes = 0
    async with bm25(database_url) as retriever, bm25(database_url, bulk=BulkIngestConfig(small_batch_rows=5)) as other:
        await retriever.add_documents(mixed(200))

        async def change(_):
            nonlocal changes
            changes += 1
            start, count = numbers.randrange(250), numbers.choice([1, 3, 12])
            kind = numbers.choice(["change", "same", "delete", "skip"])
            if kind == "delete":
                await other.delete([f"d{number}" for number in range(start, start + count)])
            elif kind == "skip":
                await other.add_documents(mixed(count, start=start), on_duplicate="skip")
            else:
                await other.add_documents(mixed(count, f"dog {changes}" if kind == "change" else "a cat", start))
            check_index(database_url)

        between(monkeypatch, change)
        await retriever.indexes.rebuild_keyword()
    assert changes > 20
    assert check_index(database_url)["generation"] == 2


async def test_rows_that_others_wrote_are_caught_up_with(database_url, monkeypatch):
    """Whoever writes with psql tells no index; a rebuild finds what is missing and what is gone."""
    copy = """INSERT INTO semlex.words_chunk SELECT (jsonb_populate_record(c, jsonb_build_object('chunk_id',
        '{}' || c.chunk_id, 'keyword_id', nextval(pg_get_serial_sequence('semlex.words_chunk', 'keyword_id'))))).*
        FROM semlex.words_chunk AS c WHERE chunk_id IN ('d1', 'd2')"""
    done = []

    async def change(moment):
        if moment not in done:
            done.append(moment)
            execute(database_url, copy.format(moment))
            execute(database_url, "DELETE FROM semlex.words_chunk WHERE chunk_id = %s", [f"d{len(done) + 10}"])

    async with filled_bm25(database_url, mixed(100)) as retriever:
        await change("before it begins")
        assert (await retriever.status()).chunks_not_indexed == 2
        between(monkeypatch, change)
        await retriever.indexes.rebuild_keyword()
        check_index(database_url)
        status = await retriever.status()
        assert (status.chunks, status.chunks_not_indexed) == (100 + 8 - 4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before a page", "behind a page", "before a segment", "at the switch", "behind it"])
async def test_a_rebuild_that_was_interrupted_begins_again(database_url, monkeypatch, moment):
    class KilledError(BaseException):
        pass

    remove, removed = Rebuild._remove_others, []

    async def kill(now):
        if now == moment:
            raise KilledError

    async def remove_once(self):
        if removed:
            raise KilledError
        removed.append(1)
        await remove(self)

    async with filled_bm25(database_url, mixed(100)) as retriever:
        with monkeypatch.context() as patched:
            between(patched, kill)
            if moment == "at the switch":
                patched.setattr(rebuilding, "chunk_ids", lambda *_: kill(moment))
            if moment == "behind it":
                patched.setattr(Rebuild, "_remove_others", remove_once)
            with pytest.raises(KilledError):
                await retriever.indexes.rebuild_keyword()
        switched = moment == "behind it"
        assert check_index(database_url)["building"] == (0 if switched else 2)
        assert (await retriever.status()).index_building == (None if switched else 2)
        await retriever.add_documents(mixed(20, "a dog", start=90))
        await retriever.delete(["d1", "d95"])
        check_index(database_url)
        assert (await retriever.indexes.rebuild_keyword()).generation == 3
        assert check_index(database_url)["building"] == 0
    assert generations(database_url) == [3]


@pytest.mark.slow
async def test_what_a_killed_rebuild_leaves_stays_small_and_is_merged(database_url, monkeypatch):
    def in_the_making():
        return execute(database_url, "SELECT count(*) FROM semlex.words_segment WHERE generation = 2")[0][0]

    async def kill(_):
        raise asyncio.CancelledError

    async with filled_bm25(database_url, mixed(3)) as retriever:
        with monkeypatch.context() as patched:
            between(patched, kill)
            with pytest.raises(asyncio.CancelledError):
                await retriever.indexes.rebuild_keyword()
        for number in range(40):
            await retriever.add_documents([Document(f"a dog {number}", id=f"e{number}")])
            # Writers feed it, and merge it as they merge the one that answers.
            assert in_the_making() < 2 * 8
            if number % 4 == 0:
                await retriever.delete([f"e{number}"])
        await retriever.indexes.optimize()
        assert in_the_making() == 1
        check_index(database_url)
        assert (await retriever.indexes.rebuild_keyword()).generation == 3
        assert check_index(database_url)["building"] == 0
    assert generations(database_url) == [3]


async def test_of_two_rebuilds_the_later_one_goes_on(database_url, monkeypatch):
    async with bm25(database_url) as retriever, bm25(database_url) as other:
        await retriever.add_documents(mixed(100))
        later = []

        async def rebuild_too(moment):
            if moment == "before a segment" and not later:
                later.append(None)
                later.append(await other.indexes.rebuild_keyword())

        between(monkeypatch, rebuild_too)
        with pytest.raises(StoreError, match="another rebuild"):
            await retriever.indexes.rebuild_keyword()
        assert later[1].generation == 3
        check_index(database_url)
    assert generations(database_url) == [3]


@pytest.mark.slow
async def test_the_switch_waits_for_a_writer_and_lets_others_through(database_url, monkeypatch, caplog):
    monkeypatch.setattr(locks, "LOCK_TIMEOUT", "100ms")  # expires
    clock = ManualClock()
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        bm25(database_url, clock=clock) as retriever,
        bm25(connection=connection) as joined,
    ):
        await retriever.add_documents(mixed(50))
        async with connection.transaction():
            await joined.add_documents(mixed(5, "a dog"))
            rebuild = asyncio.ensure_future(retriever.indexes.rebuild_keyword())
            for number in range(4):
                await eventually(lambda: clock.waits)  # it has not got the lock, and tries again later
                clock.advance(2)
                await retriever.add_documents(mixed(1, start=100 + number))
            assert not rebuild.done()
        assert f"waits for other transactions (process {connection.info.backend_pid}" in caplog.text
        await clock.passes_until(rebuild.done)
        await rebuild
    assert check_index(database_url)["generation"] == 2


@pytest.mark.slow
async def test_a_commit_whose_answer_is_lost_is_not_done_twice(database_url, monkeypatch):
    async with filled_bm25(database_url, mixed(100)) as retriever:
        lost = lose_answers(monkeypatch)
        await retriever.indexes.rebuild_keyword()
        assert {"begin to rebuild the keyword index", "write a segment", "switch to the rebuilt keyword index"} <= lost
        check_index(database_url)
    assert len(generations(database_url)) == 1


@pytest.mark.parametrize("dies", [False, True])
async def test_a_segment_whose_answer_is_lost_is_not_written_twice(database_url, monkeypatch, dies):
    """A segment is committed, the rebuild does not hear of it, and a merge moves its chunks to another one."""
    async with bm25(database_url) as retriever, bm25(database_url) as other:
        await retriever.add_documents(many(20))

        async def merge():
            await other.add_documents([Document("a dog", id="dog")])
            if dies:
                await other.delete([f"d{number}" for number in range(19)])
            assert await other.indexes.optimize() > 0

        lost = lose_answers(monkeypatch, "write a segment", meanwhile=merge)
        await retriever.indexes.rebuild_keyword()
        assert lost == {"write a segment"}
        assert check_index(database_url)["generation"] == 2
        assert len(await retriever.search("cat", 50, mode="keyword")) == (1 if dies else 20)


async def test_a_merge_that_began_before_the_switch_does_not_end_behind_it(database_url, monkeypatch):
    """A chunk dies after its page was read; a merge removes the tombstone before the chunk's segment is written."""
    removed, switched, merging = asyncio.Event(), asyncio.Event(), []
    merge, remove = _Merge.run, Rebuild._remove_others

    async def merged(self):
        step = await merge(self)
        if step.done and self._generation == 2 and not removed.is_set():
            removed.set()
            await switched.wait()
        return step

    async def remove_others(self):
        if removed.is_set():
            switched.set()
        await remove(self)

    async with bm25(database_url) as retriever, bm25(database_url) as other:
        await retriever.add_documents(mixed(100))

        async def change(moment):
            if moment == "behind a page":
                await other.delete(["d5"])
            if moment == "before a segment" and not merging:
                merging.append(asyncio.ensure_future(other.indexes.optimize()))
                await removed.wait()

        monkeypatch.setattr(_Merge, "run", merged)
        monkeypatch.setattr(Rebuild, "_remove_others", remove_others)
        between(monkeypatch, change)
        await retriever.indexes.rebuild_keyword()
        await merging[0]
        assert check_index(database_url)["generation"] == 2
        assert len(await retriever.search("cat", 100, mode="keyword")) == 99


async def test_the_first_files_and_a_rebuild_take_their_locks_in_one_order(database_url, tmp_path, monkeypatch, caplog):
    """The first files store the chunk settings with them, in the row that a rebuild locks alone."""
    (tmp_path / "page.md").write_text("# Page\n\nA cat.")
    settled, write_chunks = asyncio.Event(), runs.write_chunks

    async def held(*arguments, **options):
        if not settled.is_set():
            settled.set()
            with psycopg.connect(database_url, autocommit=True) as connection:
                await eventually(lambda: waiting(connection))
        return await write_chunks(*arguments, **options)

    async with bm25(database_url) as retriever, bm25(database_url) as other:
        await retriever.add_documents(mixed(3))
        monkeypatch.setattr(runs, "write_chunks", held)
        caplog.set_level(logging.INFO, "semlex")
        indexing = asyncio.ensure_future(other.index(tmp_path))
        await settled.wait()
        await retriever.indexes.rebuild_keyword()
        assert (await indexing).added == 1
    assert "40P01" not in caplog.text
    check_index(database_url)


async def test_only_an_index_of_ours_is_rebuilt(database_url):
    async with bm25(database_url, keyword="tsvector") as retriever:
        with pytest.raises(ConfigurationError, match="tsvector"):
            await retriever.indexes.rebuild_keyword()
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        bm25(connection=connection, collection="others") as retriever,
    ):
        with pytest.raises(ConfigurationError, match="connection="):
            await retriever.indexes.rebuild_keyword()


@pytest.mark.slow
async def test_ids_are_read_page_by_page(database_url, monkeypatch):
    async with filled_bm25(database_url, mixed(100)) as retriever:
        monkeypatch.setattr(segments, "IDS_PAGE", 30)
        found = await retriever._handle.read("read", lambda c, _: segments.chunk_ids(c, retriever.names))
    rows = execute(database_url, "SELECT keyword_id FROM semlex.words_chunk ORDER BY 1")
    assert found.tolist() == [keyword_id for (keyword_id,) in rows]


@pytest.mark.slow
def test_from_the_command_line(database_url, tmp_path):
    with sync_filled(database_url, mixed(60), "none", collection="words", keyword="bm25") as retriever:
        retriever.add_documents(mixed(30, "a dog"))
        assert retriever.status().index_tombstones == 1

    shell = Shell(database_url, tmp_path)

    def run(*arguments):
        (found,) = shell.objects(*arguments, "--collection", "words")
        return found

    assert run("maintain", "optimize") == {"merged": 6}
    assert run("maintain", "reindex") == {"chunks": 60, "segments": 3, "generation": 2}
    status = run("status")
    assert [status[f"index_{name}"] for name in ("generation", "segments", "tombstones")] == [2, 3, 0]
    assert status["index_postings"] > 60
    assert status["index_bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("step", ["optimize", "rebuild_keyword"])
async def test_a_time_limit_of_the_role_is_not_for_long_steps(database_url, monkeypatch, step):
    async with bm25(database_url, bulk=BulkIngestConfig(batch_size=10)) as retriever:
        await retriever.add_documents(mixed(40))
    set_in_database(database_url, "statement_timeout", "10min")
    limits = {}

    def noting(call):
        def noted(self, doing, work, **more):
            async def working(connection):
                result = await work(connection)
                (limits[doing],) = await (await connection.execute("SHOW statement_timeout")).fetchone()
                return result

            return call(self, doing, working, **more)

        return noted

    for name in ("read", "write"):
        monkeypatch.setattr(Database, name, noting(getattr(Database, name)))
    async with bm25(database_url) as retriever:
        limits.clear()
        await getattr(retriever.indexes, step)()
        assert set(limits.values()) == {"0"}
        assert len(await retriever.search("cat", 100)) == 40
    check_index(database_url)
