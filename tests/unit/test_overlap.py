"""Items that are made ahead of the caller, and batches that are written side by side."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.overlap import BatchWrites, ahead
from tests.support.waiting import eventually, turns


class Source:
    """Items that are made one after the other, and who is at work."""

    def __init__(self, items, fails_at=None):
        self.items, self.fails_at = items, fails_at
        self.made = []
        self.is_closed = False

    async def __call__(self):
        try:
            for number, item in enumerate(self.items):
                await asyncio.sleep(0)
                if number == self.fails_at:
                    raise RuntimeError
                self.made.append(item)
                yield item
        finally:
            self.is_closed = True

    def through(self, stages):
        return self() if not stages else ahead(self.through(stages - 1))


@given(st.lists(st.integers(1), max_size=8), st.integers(1, 4))
def test_the_same_items_however_many_stages(items, stages):
    async def run():
        source, taken = Source(items), []
        async with aclosing(source.through(stages)) as stream:
            async for item in stream:
                taken.append(item)
                await turns(20)
                # One is with the caller; every stage holds one more.
                assert len(source.made) <= len(taken) + stages
        assert source.is_closed
        return taken

    assert asyncio.run(run()) == items


async def test_the_next_one_is_made_meanwhile():
    source = Source([1, 2, 3])
    stream = ahead(source())
    assert await anext(stream) == 1
    await eventually(lambda: source.made == [1, 2])
    await turns()  # and no further one
    assert source.made == [1, 2]
    await stream.aclose()
    assert source.is_closed
    assert source.made == [1, 2]
    store = Store()
    async with BatchWrites(2) as writes:
        for number, one in enumerate("abc"):
            await writes.begin(1, {one}, store.write(number, (frozenset(one), 3)))
    assert store.most == 2


@given(st.integers(0, 4), st.integers(1, 3))
def test_what_was_made_before_an_error_is_given_on(fails_at, stages):
    async def run():
        source = Source(list(range(1, 6)), fails_at)
        stream = source.through(stages)
        assert [await anext(stream) for _ in range(fails_at)] == list(range(1, 1 + fails_at))
        with pytest.raises(RuntimeError):
            await anext(stream)
        assert source.is_closed

    asyncio.run(run())


async def test_a_caller_that_is_cancelled_leaves_nobody_at_work():
    source = Source(list(range(1, 1000)))

    async def work():
        async with aclosing(ahead(ahead(source()))) as stream:
            async for _ in stream:
                await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(work())
    await eventually(lambda: source.made == [1, 2, 3])  # one with the caller, one in each stage
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.is_closed
    assert asyncio.all_tasks() == before


# --- batches ----------------------------------------------------------------------------------------------------------

Batch = tuple[frozenset[str], int]  # ids, and how many turns of the loop its write takes
BATCHES = st.lists(st.tuples(st.frozensets(st.sampled_from("abcdef"), min_size=1), st.integers(0, 5)), max_size=8)


@dataclass
class Store:
    """Who writes, and the last batch of each id."""

    at_work: dict[int, frozenset[str]] = field(default_factory=dict)
    most: int = 0
    last: dict[str, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)

    async def write(self, number, batch, *, fails=False):
        ids, count = batch
        assert all(ids.isdisjoint(others) for others in self.at_work.values())
        self.at_work[number] = ids
        self.most = max(self.most, len(self.at_work))
        try:
            await turns(count)
            if fails:
                raise RuntimeError
        except asyncio.CancelledError:
            self.cancelled.add(number)
            raise
        finally:
            del self.at_work[number]
        self.last |= dict.fromkeys(ids, number)
        return len(ids)


@given(BATCHES, st.integers(1, 3))
def test_the_last_batch_of_an_id_counts(batches, at_once):
    store, told = Store(), [0]
    writes = BatchWrites(at_once, told.append)

    async def run():
        async with writes:
            for number, batch in enumerate(batches):
                await writes.begin(10, batch[0], store.write(number, batch))

    asyncio.run(run())
    assert store.last == {one: number for number, (ids, _) in enumerate(batches) for one in ids}
    assert store.most <= at_once
    assert (writes.rows, writes.written) == (10 * len(batches), sum(len(ids) for ids, _ in batches))
    assert told == [10 * done for done in range(len(batches) + 1)]


@given(BATCHES.filter(len), st.integers(1, 3), st.data())
def test_an_error_is_raised_and_what_was_beside_it_is_finished(batches, at_once, data):
    store, wrong = Store(), data.draw(st.integers(0, len(batches) - 1))
    begun = []
    writes = BatchWrites(at_once)

    async def run():
        async with writes:
            for number, batch in enumerate(batches):
                await writes.begin(number, batch[0], store.write(number, batch, fails=number == wrong))
                begun.append(number)

    with pytest.raises(RuntimeError):
        asyncio.run(run())
    assert not store.at_work
    assert not store.cancelled
    assert writes.rows == sum(number for number in begun if number != wrong)


@pytest.mark.parametrize("stops", [KeyboardInterrupt, asyncio.CancelledError])
async def test_what_is_under_way_is_given_up_with_the_block(stops):
    store = Store()
    with pytest.raises(stops):  # noqa: PT012
        async with BatchWrites(2) as writes:
            for number, one in enumerate("ab"):
                await writes.begin(1, {one}, store.write(number, (frozenset(one), 9)))
            await asyncio.sleep(0)
            raise stops
    assert store.cancelled == {0, 1}
    assert not store.at_work
