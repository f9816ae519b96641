"""Callers that wait for a connection: in order, as long as connections become free."""

import asyncio

import pytest

from semlex.errors import ConnectionFailedError
from semlex.store.postgres.pool import ConnectionQueue
from tests.support.manual_clock import ManualClock
from tests.support.waiting import turns

SECONDS = 10.0


class Caller:
    """Takes a place, and keeps it until it is let go."""

    def __init__(self, queue, name, order):
        self.leaves = asyncio.Event()
        self.task = asyncio.create_task(self._take(queue, name, order))

    async def _take(self, queue, name, order):
        async with queue.place():
            order.append(name)
            await self.leaves.wait()

    async def end(self):
        self.leaves.set()
        await self.task


async def test_places_are_given_in_order_however_many_wait():
    clock, order = ManualClock(), list[int]()
    queue = ConnectionQueue(2, SECONDS, clock)
    callers = [Caller(queue, number, order) for number in range(40)]
    await turns()
    assert (order, queue.waiting) == ([0, 1], 38)
    for number, caller in enumerate(callers):
        clock.advance(SECONDS * 0.9)  # each waits longer than that, but somebody always goes on
        await caller.end()
        await turns()
        assert order == list(range(min(40, number + 3)))
    assert queue.waiting == 0


async def test_who_waits_while_nobody_goes_on_is_refused():
    clock, order = ManualClock(), list[int]()
    queue = ConnectionQueue(1, SECONDS, clock)
    first, second, third = (Caller(queue, number, order) for number in range(3))
    await clock.eventually_waited(SECONDS)
    clock.advance(SECONDS)
    for late in (second, third):
        with pytest.raises(ConnectionFailedError, match=r"wait for 1 connections.*10 s; raise max_connections="):
            await late.task
    await first.end()
    last = Caller(queue, 3, order)
    await turns()
    assert (order, queue.waiting) == ([0, 3], 0)
    await last.end()


async def test_who_is_cancelled_leaves_the_queue_and_keeps_no_place():
    order = []
    queue = ConnectionQueue(1, SECONDS, ManualClock())
    first, second, third, fourth = (Caller(queue, number, order) for number in range(4))
    await turns()
    second.task.cancel()
    await turns()
    assert queue.waiting == 2
    first.leaves.set()
    await first.task
    third.task.cancel()  # its place has come in the same moment
    await turns()
    assert order == [0, 3]
    await fourth.end()
    async with queue.place():
        assert queue.waiting == 0
