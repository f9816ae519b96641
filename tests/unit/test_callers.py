"""Callers that wait for each other: of a loop in a thread, of a lock, of readers and of connections."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.clock import Clock
from semlex.errors import ConfigurationError, ConnectionFailedError, WorkAbandonedError
from semlex.ingest.batches import BatchWrites, ahead
from semlex.models.local.fair_lock import FairLock
from semlex.retriever.synchronous import LoopRunner, LoopThread
from semlex.store.postgres.pool import ConnectionQueue
from semlex.store.postgres.snapshot import Turns
from tests.support.manual_clock import ManualClock
from tests.support.waiting import LIMIT, Rounds, eventually, turns, until


class Opened:
    """What a runner opens; it notes what happens to its calls."""

    def __init__(self):
        self.began, self.ended = threading.Event(), threading.Event()

    async def initialize(self): ...

    async def close(self): ...

    async def double(self, number):
        await asyncio.sleep(0)
        return 2 * number, threading.current_thread().name

    async def fail(self):
        raise KeyError("gone")

    async def hang(self):
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def opened():
    return Opened()


@pytest.fixture
def runner(opened):
    with closing(LoopRunner(opened)) as runner:
        runner.initialize()
        yield runner


async def test_calls_end_with_their_caller_or_another_thread(runner, opened):
    found = await asyncio.gather(*(runner.awaited(opened.double, number) for number in range(20)))
    assert found == [(2 * number, "semlex-loop") for number in range(20)]
    with pytest.raises(KeyError, match="gone"):
        await runner.awaited(opened.fail)
    waiting = asyncio.create_task(runner.awaited(opened.hang))
    assert await asyncio.to_thread(opened.began.wait, 60)
    assert await runner.awaited(opened.double, 4) == (8, "semlex-loop")
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(opened.ended.wait, 60)  # the call was stopped with its caller
    opened.began.clear()
    waiting = asyncio.create_task(runner.awaited(opened.hang))
    assert await asyncio.to_thread(opened.began.wait, 60)
    await asyncio.to_thread(runner.close)
    with pytest.raises(WorkAbandonedError, match="closed"):
        await waiting
    with pytest.raises(ConfigurationError, match="was closed"):
        await runner.awaited(opened.double, 1)


def test_ctrl_c_while_a_call_is_handed_over_ends_an_iteration(runner, opened, monkeypatch):
    submit = LoopThread._submit

    async def numbers():
        yield 1
        await opened.hang()

    def interrupted(self, method):
        submit(self, method)
        monkeypatch.undo()
        raise KeyboardInterrupt

    items = runner.iterate(numbers())
    assert next(items) == 1
    monkeypatch.setattr(LoopThread, "_submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert opened.ended.is_set() or not opened.began.is_set()


# --- a lock for the thread that waits longest -------------------------------------------------------------------------
def test_a_lock_is_given_in_turn_after_errors_and_by_those_who_give_up():
    turns, order = FairLock(), []

    def search():
        with turns:
            order.append("search")

    other = threading.Thread(target=search)
    with turns:
        order.append("batch 1")
        other.start()
        until(lambda: turns._waiting)
    with turns:
        order.append("batch 2")
    other.join(LIMIT)
    assert order == ["batch 1", "search", "batch 2"]
    turns = FairLock()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns:
            divmod(1, 0)
    assert turns._owner is None
    turns = FairLock()
    first, second = gates = threading.Lock(), threading.Lock()
    for gate in gates:
        gate.acquire()
    with turns:
        turns._waiting.extend([first, second])
        turns._give_up(first)  # still waiting
        assert list(turns._waiting) == [second]
    assert turns._owner == -1  # the second one's gate is open
    turns._give_up(second)
    assert turns._owner is None
    with turns:
        pass


@given(st.integers(2, 5), st.integers(1, 30))
def test_one_at_a_time_in_the_order_of_arrival(threads, rounds):
    turns, inside, most, total = FairLock(), [0], [0], [0]

    def work(_):
        for _ in range(rounds):
            with turns, turns:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                total[0] += 1
                inside[0] -= 1

    with ThreadPoolExecutor(threads) as workers:
        assert len([*workers.map(work, range(threads))]) == threads
    assert (most[0], total[0], turns._owner, list(turns._waiting)) == (1, threads * rounds, None, [])


# --- readers whose answers arrive together go on in order, one in a round of the loop ---------------------------------
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


@given(count=st.integers(2, 12), steps=st.integers(1, 4), cancelled=st.sets(st.integers(0, 11)))
def test_each_step_has_a_round_of_its_own_in_order_and_a_cancelled_reader_keeps_nobody_waiting(count, steps, cancelled):
    taken = asyncio.run(steps_of(count, steps))
    rounds = [number for number, _ in taken]
    assert len(rounds) == len(set(rounds)) == count * steps
    assert rounds[-1] - rounds[0] <= count * steps  # of the rounds in between, one is idle
    # In the order in which they ask: the first one asks again before the others have begun.
    everybody = list(range(count))
    assert [reader for _, reader in taken] == [0, *everybody * (steps - 1), *everybody[1:]]
    taken = [reader for _, reader in asyncio.run(steps_of(count, 2, cancelled & {*everybody}))]
    assert all(taken.count(reader) == 2 for reader in {*everybody} - cancelled)


def test_turns_hold_for_a_single_reader_and_in_a_later_loop():
    taken = asyncio.run(steps_of(1, 5))
    assert len({number for number, _ in taken}) == 1
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


# --- a queue for connections ------------------------------------------------------------------------------------------
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


async def test_places_are_given_in_order_and_kept_by_nobody_else():
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


# --- the clock that tests advance -------------------------------------------------------------------------------------
async def test_tasks_timeouts_and_calls_come_at_their_times():
    for clock in [Clock(), ManualClock()]:
        ends, never = asyncio.ensure_future(turns()), asyncio.ensure_future(asyncio.Event().wait())
        await clock.wait_for_tasks({ends}, 600)
        assert ends.done()
        await clock.wait_for_tasks({ends, never}, 600, asyncio.FIRST_COMPLETED)
        await clock.wait_for_tasks({never}, 0)
        assert not never.done()
        never.cancel()
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


def test_threads_wait_until_their_time_or_their_event():
    for clock in [Clock(), ManualClock()]:
        event, condition = threading.Event(), threading.Condition()
        assert not clock.wait(event, 0)
        with condition:
            assert not clock.wait(condition, 0)
        event.set()
        assert clock.wait(event, 600)
    clock, found = ManualClock(), []
    thread = threading.Thread(target=lambda: found.append(clock.wait(threading.Event(), 600)))
    thread.start()
    clock.until_waited(600)
    clock.advance(600)
    thread.join()
    assert (found, clock.waits) == ([False], [])
    with clock.passing(1):
        assert not clock.wait(threading.Event(), 20)


# --- items ahead of their caller, batches side by side ----------------------------------------------------------------
class Source:
    """Items that are made one after the other, and who is at work."""

    def __init__(self, items, fails_at=None):
        self.items, self.fails_at, self.made, self.is_closed = items, fails_at, [], False

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
    assert (source.is_closed, source.made) == (True, [1, 2])
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
# Ids, and how many turns of the loop their write takes.
BATCHES = st.lists(st.tuples(st.frozensets(st.sampled_from("abcdef"), min_size=1), st.integers(0, 5)), max_size=8)


class Store:
    """Who writes, and the last batch of each id."""

    def __init__(self):
        self.at_work, self.most, self.last, self.cancelled = {}, 0, {}, set()

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
    store, wrong, begun = Store(), data.draw(st.integers(0, len(batches) - 1)), []
    writes = BatchWrites(at_once)

    async def run():
        async with writes:
            for number, batch in enumerate(batches):
                await writes.begin(number, batch[0], store.write(number, batch, fails=number == wrong))
                begun.append(number)

    with pytest.raises(RuntimeError):
        asyncio.run(run())
    assert (store.at_work, store.cancelled) == ({}, set())
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
    assert (store.at_work, store.cancelled) == ({}, {0, 1})
