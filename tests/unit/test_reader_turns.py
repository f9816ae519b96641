"""Readers whose answers arrive together: they go on in order, one in a round of the event loop."""

import asyncio
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from semlex.store.postgres.snapshot import Turns
from tests.support.waiting import Rounds


async def steps_of(count, steps, cancelled=()):
    """Let readers take steps, all at once; return the round and the reader of each step."""
    turns, rounds, taken = Turns(), Rounds(), list[tuple[int, int]]()

    async def read(reader):
        for _ in range(steps):
            await turns.take()
            taken.append((rounds.number, reader))

    with ExitStack() as readers:
        for _ in range(count):
            readers.enter_context(turns.reader())
        tasks = [asyncio.create_task(read(reader)) for reader in range(count)]
        await asyncio.sleep(0)
        for reader in cancelled:
            tasks[reader].cancel()
        await asyncio.wait(tasks)
    return taken


@given(count=st.integers(2, 12), steps=st.integers(1, 4))
def test_each_step_has_a_round_of_its_own_and_readers_keep_their_order(count, steps):
    taken = asyncio.run(steps_of(count, steps))
    rounds = [number for number, _ in taken]
    assert len(rounds) == len(set(rounds)) == count * steps
    assert rounds[-1] - rounds[0] <= count * steps  # of the rounds in between, one is idle
    # In the order in which they ask: the first one asks again before the others have begun.
    everybody = list(range(count))
    assert [reader for _, reader in taken] == [0, *everybody * (steps - 1), *everybody[1:]]


@given(count=st.integers(2, 12), cancelled=st.sets(st.integers(0, 11)))
def test_a_cancelled_reader_keeps_nobody_waiting(count, cancelled):
    cancelled = {reader for reader in cancelled if reader < count}
    taken = asyncio.run(steps_of(count, 2, cancelled))
    finished = [reader for reader in range(count) if [one for _, one in taken].count(reader) == 2]
    assert set(range(count)) - cancelled <= set(finished)


def test_a_single_reader_never_waits():
    taken = asyncio.run(steps_of(1, 5))
    assert len({number for number, _ in taken}) == 1


def test_turns_hold_in_a_later_event_loop():
    turns = Turns()

    async def read(*, stops):
        with turns.reader(), turns.reader():
            await turns.take()
            if stops:  # so that the turn is never passed on
                asyncio.get_running_loop().stop()
            else:
                await turns.take()

    loop = asyncio.new_event_loop()
    task = loop.create_task(read(stops=True))
    loop.run_forever()
    loop.close()
    assert task.done()
    asyncio.run(asyncio.wait_for(read(stops=False), 60))
