"""Calls of a loop in a thread, awaited in another loop."""

import asyncio
import threading

import pytest

from semlex.errors import ConfigurationError, WorkAbandonedError
from semlex.retriever.synchronous import LoopRunner, LoopThread


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
    runner = LoopRunner(opened)
    runner.initialize()
    yield runner
    runner.close()


async def test_results_and_errors_arrive(runner, opened):
    found = await asyncio.gather(*(runner.awaited(opened.double, number) for number in range(20)))
    assert found == [(2 * number, "semlex-loop") for number in range(20)]
    with pytest.raises(KeyError, match="gone"):
        await runner.awaited(opened.fail)


async def test_the_caller_s_loop_goes_on(runner, opened):
    waiting = asyncio.create_task(runner.awaited(opened.hang))
    assert await asyncio.to_thread(opened.began.wait, 60)
    assert await runner.awaited(opened.double, 4) == (8, "semlex-loop")
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(opened.ended.wait, 60)  # the call was stopped with its caller


async def test_a_call_ends_when_another_thread_closes(runner, opened):
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
