"""A lock that is given to whoever waits longest."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.models.local.fair_lock import FairLock
from tests.support.waiting import LIMIT, until


def test_a_thread_that_comes_back_at_once_lets_the_waiting_one_in_first():
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


@given(st.integers(2, 5), st.integers(1, 30))
def test_one_at_a_time_in_the_order_of_arrival(threads, rounds):
    turns, inside, most, total = FairLock(), [0], [0], [0]

    def work():
        for _ in range(rounds):
            with turns, turns:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                total[0] += 1
                inside[0] -= 1

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LIMIT)
    assert (most[0], total[0], turns._owner, list(turns._waiting)) == (1, threads * rounds, None, [])


def test_an_error_inside_lets_the_next_one_in():
    turns = FairLock()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns:
            divmod(1, 0)
    assert turns._owner is None


def test_giving_up_before_and_after_the_gate_opens():
    turns = FairLock()
    first, second = threading.Lock(), threading.Lock()
    for gate in (first, second):
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
