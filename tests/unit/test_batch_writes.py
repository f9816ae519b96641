"""Batches written side by side: never more than allowed, and what has an id of another only after it."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.overlap import BatchWrites
from tests.support.waiting import turns

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


async def test_batches_apart_are_written_at_once():
    store = Store()
    async with BatchWrites(2) as writes:
        for number, one in enumerate("abc"):
            await writes.begin(1, {one}, store.write(number, (frozenset(one), 3)))
    assert store.most == 2
