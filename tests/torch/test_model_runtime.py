"""One set of weights for all users, memory that runs out, budgets that are measured, and work that is given up."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError, ModelError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models.files import find_model
from semlex.models.local import batched_forward, memory, shared_weights, transformer
from semlex.models.local import token_budget as budget
from semlex.models.local.device import Placement
from semlex.models.local.forward.reference import ReferenceForward
from semlex.models.local.load import load_weights
from semlex.models.local.token_budget import TokenBudget
from semlex.models.local.transformer import Transformer
from semlex.models.tokenizer import TokenRows
from tests.support import tiny_qwen3
from tests.support.folders import ROOT

PLAIN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
# What torch says on CUDA, MPS and CPUs when memory is used up, and what Python says.
EXHAUSTED = [
    (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB."),
    (RuntimeError, "MPS backend out of memory (MPS allocated: 5.56 GB, max allowed: 6.80 GB)."),
    (RuntimeError, "Invalid buffer size: 12.05 GiB"),
    (RuntimeError, "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: …"),
    (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (MemoryError, ""),
]


class Watched(ReferenceForward):
    """The reference form, with a look at every batch before it runs."""

    look = staticmethod(lambda lengths: None)

    def run(self, batch):
        type(self).look([row.size for row in batch.tokens])
        return super().run(batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return find_model(str(tiny_qwen3.write_embedder(tmp_path_factory.mktemp("runtime") / "tiny")))


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(shared_weights, "_outcomes", {})
    monkeypatch.setattr(shared_weights, "_shared", weakref.WeakValueDictionary())
    monkeypatch.setattr(budget, "_budgets", {})
    for module in (shared_weights, transformer):
        monkeypatch.setattr(module, "FORWARDS", {"watched": Watched, "reference": ReferenceForward})
    monkeypatch.setattr(Watched, "look", staticmethod(lambda lengths: None))


@pytest.fixture
def loads(monkeypatch):
    """The places to which weights were loaded."""
    found = []

    def load(folder, head, placement):
        found.append(placement)
        return load_weights(folder, head, placement)

    monkeypatch.setattr(shared_weights, "load_weights", load)
    return found


@pytest.fixture(scope="module")
def whole(folder):
    """The same model in the reference form, with memory for everything."""
    model = opened(folder, "reference", token_budget=1 << 20)
    model.last_hidden(ROWS)
    yield model
    model.close()


def opened(folder, attention="watched", *, precision="float32", batch_size=64, token_budget=None, head="none"):
    return Transformer(
        folder,
        head=head,
        purpose="test",
        device="cpu",
        precision=precision,
        batch_size=batch_size,
        token_budget=token_budget,
        attention=attention,
    )


def token_rows(lengths):
    return TokenRows.of([(np.arange(n, dtype=np.int64) * 31 + 7 * row) % 600 for row, n in enumerate(lengths)])


ROWS = token_rows([3, 9, 1, 20])


def difference(found, expected):
    """The largest between components of vectors of norm 1."""
    units = [states / np.linalg.norm(states, axis=1, keepdims=True) for states in (found, expected)]
    return np.abs(units[0] - units[1]).max()


def weights_of(model):
    return weakref.ref(model._open().shared.model().layers[0].mlp.up_proj.weight)


# Sharing


def test_users_of_one_model_share_its_weights(folder, loads):
    first, second = opened(folder), opened(folder, "reference")
    states = first.last_hidden(ROWS)
    assert np.array_equal(second.last_hidden(ROWS), states)
    assert loads == [Placement("cpu", "float32")]
    weights = weights_of(first)
    assert weights() is weights_of(second)()
    first.close()
    assert weights() is not None
    assert np.array_equal(second.last_hidden(ROWS), states)
    second.close()
    assert weights() is None
    again = opened(folder)
    assert np.array_equal(again.last_hidden(ROWS), states)
    assert len(loads) == 2
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
    order, found = [], []
    search = threading.Thread(target=lambda: found.append(model.last_hidden(token_rows([4]))))

    def look(lengths):
        order.append(lengths)
        if len(order) == 1:
            search.start()
            while not model._running.shared.lock._waiting:
                time.sleep(0.001)

    Watched.look = look
    model.last_hidden(token_rows([9] * 8))
    search.join(30)
    assert order == [[9], [4], *[[9]] * 7]
    assert np.array_equal(found[0], expected)
    model.close()


def test_a_call_that_runs_while_the_model_is_closed_comes_to_its_end(folder):
    model = opened(folder, batch_size=1)
    expected = model.last_hidden(ROWS)
    weights = weights_of(model)
    closer = threading.Thread(target=model.close)

    def look(lengths):
        if not closer.ident:
            closer.start()
            closer.join(30)

    Watched.look = look
    assert np.array_equal(model.last_hidden(ROWS), expected)
    assert weights() is None
    with pytest.raises(ModelError, match="was closed"):
        model.last_hidden(ROWS)


def test_other_heads_and_precisions_have_weights_of_their_own(folder, loads):
    models = [opened(folder), opened(folder, precision="bfloat16"), opened(folder, head="lm")]
    for model in models:
        model.last_hidden(ROWS)
    assert [place.precision for place in loads] == ["float32", "bfloat16", "float32"]
    for model in models:
        model.close()


def test_threads_that_load_at_once_load_once(folder, monkeypatch):
    loads, inside = [], threading.Event()

    def load(*arguments):
        loads.append(arguments)
        inside.set()
        waiting.wait(5)  # the other thread is at the door by then
        return load_weights(*arguments)

    monkeypatch.setattr(shared_weights, "load_weights", load)
    waiting = threading.Event()
    models = [opened(folder), opened(folder)]
    states = {}

    def work(number):
        if number:
            inside.wait(60)
            waiting.set()
        states[number] = models[number].last_hidden(ROWS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert np.array_equal(states[0], states[1])
    for model in models:
        model.close()


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
    first.close()
    second.close()


def test_one_user_that_overflows_does_not_change_the_others(tmp_path, caplog):
    from safetensors.torch import load_file, save_file

    written = tiny_qwen3.write_embedder(tmp_path / "loud")
    weights = load_file(written / "model.safetensors")
    weights["embed_tokens.weight"][650] = 1e5  # more than the largest float16; no token of the self-test
    save_file(weights, written / "model.safetensors", metadata={"format": "pt"})
    folder = find_model(str(written))
    loud = TokenRows.of([np.array(ids, dtype=np.int64) for ids in ([1, 2, 650], [3, 4])])
    hit, other, wide = opened(folder, precision="float16"), opened(folder, precision="float16"), opened(folder)
    before = other.last_hidden(ROWS)
    with caplog.at_level(logging.WARNING, logger="semlex"):
        states = hit.last_hidden(loud)
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder.name}: 1 of 2 rows overflowed in float16; the model now runs in float32"
    ]
    assert np.abs(states[0] - wide.last_hidden(loud)[0]).max() == 0
    assert hit.report.precision == "float32"
    assert [str(attempt) for attempt in hit.report.failures] == ["watched attention on cpu overflowed in float16"]
    assert weights_of(hit)() is weights_of(wide)()
    assert np.array_equal(other.last_hidden(ROWS), before)
    assert other.report.precision == "float16"
    assert other.report.failures == ()
    for model in (hit, other, wide):
        model.close()


FORK = """
import os, pathlib, sys, threading
sys.path.insert(0, {root!r})
import numpy as np
from tests.torch import test_model_runtime as runtime
from semlex.errors import ModelError
from semlex.models.files import find_model

folder = find_model({folder!r})
model = runtime.opened(folder, "reference")
rows = runtime.token_rows([300, 9, 1, 200])
states = model.last_hidden(rows)
held, done = threading.Event(), threading.Event()
def hold():  # as a call of another thread would
    with model._lock, model._running.shared.lock:
        held.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    try:
        model.last_hidden(rows)
    except ModelError as error:
        os._exit(0 if "spawn" in str(error) else 1)
    os._exit(2)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
done.set()
assert np.array_equal(model.last_hidden(rows), states)
print("child:", code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_refused_at_once(folder):
    program = FORK.format(root=str(ROOT), folder=folder.name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "child: 0\n", done.stderr


# Memory that runs out


@PLAIN
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    st.sets(st.integers(1, 12), max_size=4),
    st.sampled_from(EXHAUSTED),
)
@example([5] * 8, {1}, EXHAUSTED[0])
@example([60, 1, 1, 1], {2}, EXHAUSTED[-1])
def test_a_batch_that_finds_no_room_changes_no_state(folder, whole, lengths, failing, error):
    shared_weights._shared.clear()  # what a failed example still holds
    rows = token_rows(lengths)
    expected = whole.last_hidden(rows)
    count = 0

    def look(batch):
        nonlocal count
        count += 1
        if count in failing and len(batch) > 1:
            raise error[0](error[1])

    model = opened(folder, token_budget=128)
    model._open()  # and its self-test
    Watched.look = look
    try:
        assert difference(model.last_hidden(rows), expected) <= 1e-6
    finally:
        Watched.look = staticmethod(lambda lengths: None)
    model.close()


@PLAIN
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(60, 200))
def test_passes_shrink_until_they_fit_and_stay_so(folder, whole, lengths, room):
    shared_weights._shared.clear()  # what a failed example still holds
    rows = token_rows(lengths)
    expected = whole.last_hidden(rows)
    failures = 0

    def look(batch):
        nonlocal failures
        if max(batch) * len(batch) > room:
            failures += 1
            raise MemoryError

    first, second = opened(folder), opened(folder)
    first._open()
    Watched.look = look
    try:
        assert difference(first.last_hidden(rows), expected) <= 1e-6
        before = failures
        assert difference(second.last_hidden(rows), expected) <= 1e-6
        assert failures == before  # the second user of the weights starts with what fits
        assert first.report.token_budget_reason == ("memory ran out" if failures else "start value")
    finally:
        Watched.look = staticmethod(lambda lengths: None)
    first.close()
    second.close()


def test_one_line_says_that_memory_ran_out(folder, caplog):
    model = opened(folder, token_budget=1024)
    model._open()
    batches = []

    def look(batch):
        batches.append(len(batch))
        if len(batch) > 2:
            raise MemoryError

    Watched.look = look
    with caplog.at_level(logging.WARNING, logger="semlex"):
        for _ in range(2):
            model.last_hidden(token_rows([10] * 8))
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder.name}: memory of cpu ran out; its passes hold at most 20 tokens from now on"
    ]
    assert batches == [8, 4, *[2] * 8]
    assert (model.report.token_budget, model.report.token_budget_reason) == (20, "memory ran out")
    model.close()


def test_one_row_that_finds_no_room_is_an_error_with_a_remedy(folder):
    model = opened(folder)
    expected = model.last_hidden(ROWS)

    def look(batch):
        if 20 in batch:
            raise MemoryError

    Watched.look = look
    with pytest.raises(ModelError, match="does not suffice for a single row; shorten the texts") as caught:
        model.last_hidden(ROWS)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # it would hold the tensors of the pass
    Watched.look = staticmethod(lambda lengths: None)
    assert difference(model.last_hidden(ROWS), expected) <= 1e-6
    model.close()


def test_memory_is_freed_after_the_error_is_forgotten(folder, monkeypatch):
    model = opened(folder)
    model._open()
    handled = []

    def look(batch):
        if not handled:
            raise MemoryError

    Watched.look = look
    monkeypatch.setattr(memory, "give_back", lambda device: handled.append((device, sys.exc_info()[0])))
    model.last_hidden(ROWS)
    assert handled == [("cpu", None)]
    model.close()


def test_other_errors_pass_unchanged(folder):
    model = opened(folder)
    model._open()

    def look(batch):
        raise RuntimeError("shapes do not match")

    Watched.look = look
    with pytest.raises(RuntimeError, match="shapes do not match"):
        model.last_hidden(ROWS)
    model.close()


@pytest.mark.parametrize("error", EXHAUSTED)
def test_memory_errors_are_recognised(error):
    assert memory.is_exhausted(error[0](error[1]))


@pytest.mark.parametrize("error", [(RuntimeError, "shape"), (ValueError, "out of memory"), (OSError, "No space left")])
def test_other_errors_are_not_taken_for_memory_errors(error):
    assert not memory.is_exhausted(error[0](error[1]))


@pytest.mark.parametrize("room", [0, 15, 64, 10_000])
def test_batches_keep_to_the_room_that_is_free(folder, monkeypatch, room):
    model = opened(folder, token_budget=128)
    expected = model.last_hidden(token_rows([10] * 8))
    token_bytes = memory.bytes_per_token(model._open().shared.model().config, "float32")
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(room * token_bytes / memory.SHARE_OF_FREE))
    batches = []
    Watched.look = lambda lengths: batches.append(sum(lengths))
    assert difference(model.last_hidden(token_rows([10] * 8)), expected) <= 1e-6
    assert sum(batches) == 80
    assert max(batches) <= max(room, 10)
    assert model.report.token_budget == 128  # tomorrow there may be room again
    model.close()


def test_cached_blocks_are_returned_before_a_batch_is_cut(monkeypatch):
    free, returned = [100, 1_000], []
    monkeypatch.setattr(memory, "free_bytes", lambda device: free[min(len(returned), 1)])
    monkeypatch.setattr(memory, "give_back", returned.append)
    assert memory.fits("mps", 1, 40)
    assert returned == []
    assert memory.fits("mps", 10, 40)
    assert returned == ["mps"]
    free[1] = 100
    returned.clear()
    assert not memory.fits("mps", 10, 40)
    assert returned == ["mps"]
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    assert memory.fits("cpu", 1 << 40, 40)


def test_free_memory_of_each_device(monkeypatch):
    assert memory.free_bytes("cpu") is None
    assert memory.total_bytes("cpu") is None
    for name, value in {
        "mem_get_info": lambda: (100, 1000),
        "memory_reserved": lambda: 50,
        "memory_allocated": lambda: 20,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert memory.free_bytes("cuda") == 130
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 700)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 800)
    assert memory.free_bytes("mps") == -100
    assert memory.total_bytes("mps") == 700


def test_the_estimate_is_of_the_right_size():
    # Keys, values, queries, MLP and norms of Qwen3-Embedding-0.6B in half precision, by hand: 82 KiB.
    config = tiny_qwen3.config()
    config.hidden_size, config.intermediate_size, config.head_dim = 1024, 3072, 128
    config.num_attention_heads, config.num_key_value_heads = 16, 8
    assert memory.bytes_per_token(config, "bfloat16") == 2 * (8 * 1024 + 4 * 3072 + 2 * 48 * 128)
    assert memory.bytes_per_token(config, "float32") == 2 * memory.bytes_per_token(config, "bfloat16")


# The token budget


@given(st.dictionaries(st.integers(1, 9).map(lambda n: 1 << n), st.floats(1, 1000), min_size=1))
def test_the_smallest_candidate_that_is_nearly_the_fastest(speeds):
    candidates = sorted(speeds)
    found = TokenBudget(candidates, candidates[0])
    tried = []
    while (candidate := found.trial(candidates[-1] + 1)) is not None:
        assert not found.measured
        tried.append(candidate)
        found.record(candidate, 1000, 1000 / speeds[candidate])
    assert tried == candidates * budget.MEASUREMENTS
    assert found.measured
    good = [candidate for candidate in candidates if speeds[candidate] >= (1 - budget.WORTH) * max(speeds.values())]
    assert found.best == good[0]


def test_too_little_work_is_no_measurement():
    found = TokenBudget((16, 32), 16)
    assert found.trial(32) is None
    assert found.trial(33) == 16
    assert found.best == 16
    found.record(16, 10, 0.0)  # a clock that stands still is no division by zero
    assert found.trial(33) == 32


def test_measuring_changes_no_state_and_is_done_once(folder, monkeypatch, caplog):
    rows = token_rows([1 + (7 * n) % 30 for n in range(40)])
    expected = opened(folder, "reference", token_budget=512).last_hidden(rows)
    monkeypatch.setattr(budget, "CPU_CANDIDATES", (32, 64, 96))
    monkeypatch.setattr(budget, "CPU_START", 48)
    first, second = opened(folder), opened(folder)
    first._open()
    assert (first.report.token_budget, first.report.token_budget_reason) == (48, "start value")
    computed = []
    Watched.look = computed.extend
    with caplog.at_level(logging.DEBUG, logger="semlex.models.local.token_budget"):
        assert difference(first.last_hidden(rows), expected) <= 1e-6
        while not batched_forward.measured_budget(first._open()).measured:
            assert difference(first.last_hidden(rows), expected) <= 1e-6
    assert len(caplog.records) == 1
    assert sorted(computed) == sorted(rows.lengths.tolist() * (len(computed) // 40))  # no row is computed twice
    assert (first.report.token_budget in {32, 64, 96}, first.report.token_budget_reason) == (True, "measured")
    assert difference(second.last_hidden(rows), expected) <= 1e-6
    assert second.report.token_budget == first.report.token_budget
    assert len(caplog.records) == 1
    configured = opened(folder, token_budget=128)
    configured._open()
    assert (configured.report.token_budget, configured.report.token_budget_reason) == (128, "configured")
    for model in (first, second, configured):
        model.close()


def test_candidates_that_found_no_room_are_not_measured_again(folder, monkeypatch):
    monkeypatch.setattr(budget, "CPU_CANDIDATES", (32, 64, 128))
    rows = token_rows([8] * 60)
    expected = opened(folder, token_budget=128).last_hidden(rows)
    model = opened(folder)
    model._open()
    sizes = []

    def look(lengths):
        sizes.append(sum(lengths))
        if sum(lengths) > 40:
            raise MemoryError

    Watched.look = look
    for _ in range(3):
        assert difference(model.last_hidden(rows), expected) <= 1e-6
    assert sum(size > 40 for size in sizes) == 1
    model.close()


@pytest.mark.parametrize(("gibibytes", "most"), [(5.3, 4_096), (10.7, 8_192), (21.3, 16_384), (139, 16_384)])
def test_a_gpu_starts_with_what_suits_its_memory(monkeypatch, gibibytes, most):
    monkeypatch.setattr(memory, "total_bytes", lambda device: int(gibibytes * (1 << 30)))
    found = budget.token_budget(("shape", gibibytes), "mps")
    assert found.best == found.portion == most
    assert found is budget.token_budget(("shape", gibibytes), "mps")
    assert budget.token_budget("shape", "cpu").best == budget.CPU_START


# Work that nobody waits for


@pytest.mark.parametrize("last", [1, 2, 5])
def test_work_that_nobody_waits_for_ends_after_the_batch_at_hand(folder, last):
    model = opened(folder, batch_size=2, token_budget=128)
    rows = token_rows([5] * 20)
    expected = model.last_hidden(rows)
    flag, batches = threading.Event(), []

    def look(lengths):
        batches.append(lengths)
        if len(batches) == last:
            flag.set()

    Watched.look = look
    with pytest.raises(WorkAbandonedError), cancellation.abandoned_by(flag):
        model.last_hidden(rows)
    assert len(batches) == last
    assert np.array_equal(model.last_hidden(rows), expected)
    model.close()


def test_a_form_that_is_not_there(folder):
    with pytest.raises(ConfigurationError, match="attn must be one of watched, reference; found 'magic'"):
        opened(folder, "magic")
