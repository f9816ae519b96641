"""One set of weights for all users, turns between them, and work that is given up."""

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from semlex.errors import ModelError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models.files import find_model
from semlex.models.local import memory, shared_weights
from semlex.models.local.device import Placement
from semlex.models.local.shared_weights import load_weights
from semlex.models.tokenizer import TokenRows
from tests.support import tiny_qwen3
from tests.support.spies import calls_of
from tests.support.waiting import LIMIT, until
from tests.support.watched_model import ROWS, look_at, opened, token_rows

pytestmark = pytest.mark.usefixtures("watched")


def weights_of(model):
    return weakref.ref(model._open().shared.model().layers[0].mlp.up_proj.weight)


def test_users_of_one_model_share_its_weights(folder, monkeypatch):
    loads = calls_of(monkeypatch, shared_weights, "load_weights")
    first, second = opened(folder), opened(folder, "reference")
    states = first.last_hidden(ROWS)
    assert np.array_equal(second.last_hidden(ROWS), states)
    assert [load["placement"] for load in loads] == [Placement("cpu", "float32")]
    weights = weights_of(first)
    assert weights() is weights_of(second)()
    first.close()
    assert weights() is not None
    assert np.array_equal(second.last_hidden(ROWS), states)
    second.close()
    assert weights() is None
    again = opened(folder)
    assert np.array_equal(again.last_hidden(ROWS), states)
    for other in (opened(folder, precision="bfloat16"), opened(folder, head="lm")):  # these have weights of their own
        other.last_hidden(ROWS)
    assert [load["placement"].precision for load in loads] == ["float32", "float32", "bfloat16", "float32"]
    again.close()


def test_memory_is_given_back_when_the_last_user_is_collected(folder, monkeypatch):
    gc.collect()  # what other tests have left
    given_back = []
    monkeypatch.setattr(memory, "give_back", given_back.append)
    first, second = opened(folder), opened(folder)
    for each in (first, second):
        each.last_hidden(ROWS)
    weights = weights_of(first)
    assert weights() is not None
    first.close()
    assert not given_back
    del second, each
    gc.collect()
    assert weights() is None
    assert given_back == ["cpu"]


def test_a_search_takes_its_turn_between_the_batches_of_a_load(folder):
    model = opened(folder, batch_size=1)
    expected = model.last_hidden(token_rows([4]))
    found = []
    search = threading.Thread(target=lambda: found.append(model.last_hidden(token_rows([4]))))

    def search_meanwhile(_, number):
        if number == 1:
            search.start()
            until(lambda: model._running.shared.lock._waiting)

    order = look_at(search_meanwhile)
    model.last_hidden(token_rows([9] * 8))
    search.join(LIMIT)
    assert order == [[9], [4], *[[9]] * 7]
    assert np.array_equal(found[0], expected)


def test_a_call_that_runs_while_the_model_is_closed_comes_to_its_end(folder):
    model = opened(folder, batch_size=1)
    expected = model.last_hidden(ROWS)
    weights = weights_of(model)
    closer = threading.Thread(target=model.close)

    def close_meanwhile(_, number):
        if number == 1:
            closer.start()
            closer.join(LIMIT)
            assert not closer.is_alive()  # it waits for no call

    look_at(close_meanwhile)
    assert np.array_equal(model.last_hidden(ROWS), expected)
    assert weights() is None
    with pytest.raises(ModelError, match="was closed"):
        model.last_hidden(ROWS)


def test_threads_that_load_at_once_load_once(folder, monkeypatch):
    loads, inside = [], threading.Event()

    def load(*arguments):
        loads.append(arguments)
        inside.set()
        until(lambda: any(model.lock._waiting for model in [*shared_weights._shared.values()]))
        return load_weights(*arguments)

    monkeypatch.setattr(shared_weights, "load_weights", load)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(opened(folder).last_hidden, ROWS)
        assert inside.wait(LIMIT)
        second = threads.submit(opened(folder).last_hidden, ROWS)
    assert len(loads) == 1
    assert np.array_equal(first.result(), second.result())


def test_a_load_that_fails_leaves_nothing_behind(folder, monkeypatch):
    failures = [ModelError("damaged"), KeyboardInterrupt()]

    def load(*arguments):
        if failures:
            raise failures.pop(0)
        return load_weights(*arguments)

    monkeypatch.setattr(shared_weights, "load_weights", load)
    first, second = opened(folder), opened(folder)
    with pytest.raises(ModelError, match="damaged"):
        first.last_hidden(ROWS)
    assert first.report is None
    with pytest.raises(KeyboardInterrupt):
        second.last_hidden(ROWS)
    assert np.array_equal(first.last_hidden(ROWS), second.last_hidden(ROWS))


def test_one_user_that_overflows_does_not_change_the_others(tmp_path, caplog):
    written = tiny_qwen3.write_embedder(tmp_path / "loud")
    # More than the largest float16; no token of the self-test.
    tiny_qwen3.change_weights(written, lambda weights: weights["embed_tokens.weight"][650].fill_(1e5))
    folder = find_model(str(written))
    loud = TokenRows.of([np.array(ids, dtype=np.int64) for ids in ([1, 2, 650], [3, 4])])
    hit, other, wide = opened(folder, precision="float16"), opened(folder, precision="float16"), opened(folder)
    before = other.last_hidden(ROWS)
    states = hit.last_hidden(loud)
    assert caplog.messages == [f"{folder.name}: 1 of 2 rows overflowed in float16; the model now runs in float32"]
    assert np.abs(states[0] - wide.last_hidden(loud)[0]).max() == 0
    failures = ["watched attention on cpu overflowed in float16"]
    assert (hit.report.precision, [*map(str, hit.report.failures)]) == ("float32", failures)
    assert weights_of(hit)() is weights_of(wide)()
    assert np.array_equal(other.last_hidden(ROWS), before)
    assert (other.report.precision, other.report.failures) == ("float16", ())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_at_once(folder):
    model, rows = opened(folder, "reference"), token_rows([300, 9, 1, 200])
    states = model.last_hidden(rows)
    held, done = threading.Event(), threading.Event()

    def hold():  # as a call of another thread would
        with model._lock, model._running.shared.lock:
            held.set()
            done.wait()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(hold)
        held.wait()
        if not (child := os.fork()):
            try:
                model.last_hidden(rows)
            except ModelError as error:
                os._exit(0 if "spawn" in str(error) else 1)
            finally:
                os._exit(2)
        try:
            _, status = until(lambda: (ended := os.waitpid(child, os.WNOHANG))[0] and ended, "the end of the child")
            assert os.waitstatus_to_exitcode(status) == 0
        finally:
            done.set()
    assert np.array_equal(model.last_hidden(rows), states)


@pytest.mark.parametrize("last", [1, 2, 5])
def test_abandoned_work_ends_after_the_current_batch(folder, last):
    model, rows = opened(folder, batch_size=2, token_budget=128), token_rows([5] * 20)
    expected = model.last_hidden(rows)
    flag = cancellation.Flag()
    batches = look_at(lambda _, number: number == last and flag.set())
    with pytest.raises(WorkAbandonedError), cancellation.abandoned_by(flag):
        model.last_hidden(rows)
    assert len(batches) == last
    assert np.array_equal(model.last_hidden(rows), expected)
