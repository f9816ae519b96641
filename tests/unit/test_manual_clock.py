"""The clock that tests advance does what the machine's clock does, when it is told to."""

import asyncio
import threading

import pytest

from semlex.clock import Clock
from tests.support.manual_clock import ManualClock
from tests.support.waiting import turns


async def test_timeouts_and_calls_come_at_their_times():
    clock = ManualClock()
    begun = clock.monotonic()
    sleeping = [asyncio.ensure_future(clock.sleep(seconds)) for seconds in (0, 5, 10)]
    await turns()
    assert clock.waits == [5, 10]
    clock.advance(4.5)
    await turns()
    assert [task.done() for task in sleeping] == [True, False, False]
    clock.advance(0.5)
    await turns()
    assert [task.done() for task in sleeping] == [True, True, False]
    sleeping[2].cancel()
    await asyncio.wait({sleeping[2]})
    assert (clock.waits, clock.monotonic() - begun) == ([], 5)
    clock, called = ManualClock(), []
    for seconds in (3, 1, 2, 0):
        clock.call_later(seconds, called.append, seconds)
    clock.call_later(1, called.append, "cancelled").cancel()
    clock.advance(5)
    await turns()
    assert called == [0, 1, 2, 3]


async def test_a_timeout_ends_its_block_and_no_other():
    clock = ManualClock()

    async def limited(seconds):
        with pytest.raises(TimeoutError):
            async with clock.timeout(seconds) as limit:
                await asyncio.Event().wait()
        return limit.expired()

    short, long, endless = tasks = [asyncio.ensure_future(limited(seconds)) for seconds in (1, 2, None)]
    await turns()
    clock.advance(1)
    assert await short
    clock.advance(0.5)
    await turns()
    assert not long.done()
    clock.advance(1_000_000)
    assert await long
    assert not endless.done()
    endless.cancel()
    await asyncio.wait(tasks)
    async with clock.timeout(1) as unused:
        pass
    clock.advance(2)
    await turns()
    assert not unused.expired()


@pytest.mark.parametrize("clock", [Clock(), ManualClock()], ids=["machine", "manual"])
async def test_tasks_are_waited_for_and_not_cancelled(clock):
    ends, never = asyncio.ensure_future(turns()), asyncio.ensure_future(asyncio.Event().wait())
    await clock.wait_for_tasks({ends}, 600)
    assert ends.done()
    await clock.wait_for_tasks({ends, never}, 600, asyncio.FIRST_COMPLETED)
    await clock.wait_for_tasks({never}, 0)
    assert not never.done()
    never.cancel()


@pytest.mark.parametrize("clock", [Clock(), ManualClock()], ids=["machine", "manual"])
def test_threads_wait_for_events_and_conditions(clock):
    event, condition = threading.Event(), threading.Condition()
    assert not clock.wait(event, 0)
    with condition:
        assert not clock.wait(condition, 0)
    event.set()
    assert clock.wait(event, 600)


def test_the_wait_of_a_thread_ends_when_its_time_has_passed():
    clock, found = ManualClock(), []
    thread = threading.Thread(target=lambda: found.append(clock.wait(threading.Event(), 600)))
    thread.start()
    clock.until_waited(600)
    clock.advance(600)
    thread.join()
    assert (found, clock.waits) == ([False], [])
    with clock.passing(1):
        assert not clock.wait(threading.Event(), 20)
