"""What is made ahead of the caller: the same items in the same order, one at a time, and nothing after the end."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.overlap import ahead
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


@given(st.lists(st.integers(1), max_size=8), st.integers(1, 4))
def test_the_same_items_however_many_stages(items, stages):
    async def run():
        source = Source(items)
        stream = source()
        for _ in range(stages):
            stream = ahead(stream)
        taken = []
        async with aclosing(stream):
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


@given(st.integers(0, 4), st.integers(1, 3))
def test_what_was_made_before_an_error_is_given_on(fails_at, stages):
    async def run():
        source = Source(list(range(1, 6)), fails_at)
        stream = source()
        for _ in range(stages):
            stream = ahead(stream)
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
