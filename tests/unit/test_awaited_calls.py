"""Calls of a loop in a thread, awaited in another loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from semlex.errors import ConfigurationError, WorkAbandonedError
from semlex.retriever.synchronous import LoopRunner, LoopThread


class Opened:
    """What a runner opens; it notes what happens to its calls."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    async def initialize(self) -> None: ...

    async def close(self) -> None: ...

    async def double(self, number: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return 2 * number, threading.current_thread().name

    async def fail(self) -> None:
        raise KeyError("gone")

    async def hang(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def runner(opened: Opened) -> Iterator[LoopRunner]:
    runner = LoopRunner(opened)
    runner.initialize()
    yield runner
    runner.close()


async def test_results_and_errors_arrive(runner: LoopRunner, opened: Opened) -> None:
    found = await asyncio.gather(*(runner.awaited(opened.double, number) for number in range(20)))
    assert found == [(2 * number, "semlex-loop") for number in range(20)]
    with pytest.raises(KeyError, match="gone"):
        await runner.awaited(opened.fail)


async def test_the_caller_s_loop_goes_on(runner: LoopRunner, opened: Opened) -> None:
    waiting = asyncio.create_task(runner.awaited(opened.hang))
    assert await asyncio.to_thread(opened.began.wait, 60)
    assert await runner.awaited(opened.double, 4) == (8, "semlex-loop")
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(opened.ended.wait, 60)  # the call was stopped with its caller


async def test_a_call_ends_when_another_thread_closes(runner: LoopRunner, opened: Opened) -> None:
    waiting = asyncio.create_task(runner.awaited(opened.hang))
    assert await asyncio.to_thread(opened.began.wait, 60)
    await asyncio.to_thread(runner.close)
    with pytest.raises(WorkAbandonedError, match="closed"):
        await waiting
    with pytest.raises(ConfigurationError, match="was closed"):
        await runner.awaited(opened.double, 1)


def test_ctrl_c_while_a_call_is_handed_over_ends_an_iteration(
    runner: LoopRunner, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = LoopThread._submit

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await opened.hang()

    def interrupted(self: LoopThread, method: Any) -> None:
        submit(self, method)
        monkeypatch.undo()
        raise KeyboardInterrupt

    items = runner.iterate(numbers())
    assert next(items) == 1
    monkeypatch.setattr(LoopThread, "_submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert opened.ended.is_set() or not opened.began.is_set()
