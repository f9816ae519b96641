"""Memory that runs out, and token budgets that are measured."""

import itertools
import logging
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex.errors import ModelError
from semlex.models.local import memory
from semlex.models.local import transformer as budget
from semlex.models.local.transformer import TokenBudget
from tests.support import tiny_qwen3
from tests.support.properties import SAME_SURROUNDINGS
from tests.support.spies import answering
from tests.support.watched_model import ROWS, difference, look_at, opened, token_rows

pytestmark = pytest.mark.usefixtures("watched")
PLAIN = settings(SAME_SURROUNDINGS, max_examples=20)
# What torch says on CUDA, MPS and CPUs when memory is used up, and what Python says.
EXHAUSTED = [
    (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB."),
    (RuntimeError, "MPS backend out of memory (MPS allocated: 5.56 GB, max allowed: 6.80 GB)."),
    (RuntimeError, "Invalid buffer size: 12.05 GiB"),
    (RuntimeError, "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: …"),
    (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (MemoryError, ""),
]


@pytest.fixture(scope="module")
def whole(folder):
    """The same model in the reference form, with memory for everything."""
    model = opened(folder, "reference", token_budget=1 << 20)
    model.last_hidden(ROWS)
    yield model
    model.close()


# Memory that runs out


@pytest.fixture
def shared(folder):
    """The weights, which all examples of a property share."""
    model = opened(folder)
    yield model._open().shared
    model.close()


@PLAIN
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    st.sets(st.integers(1, 12), max_size=4),
    st.sampled_from(EXHAUSTED),
)
@example([5] * 8, {1}, EXHAUSTED[0])
@example([60, 1, 1, 1], {2}, EXHAUSTED[-1])
def test_a_batch_that_finds_no_room_changes_no_state(  # noqa: PLR0917 (fixtures, then what is drawn)
    folder, whole, shared, lengths, failing, error
):
    shared.token_cap = None  # as after loading
    rows, model = token_rows(lengths), opened(folder, token_budget=128)
    look_at()
    model._open()  # and its self-test
    look_at(lambda batch, number: number in failing and len(batch) > 1, lambda: error[0](error[1]))
    assert difference(model.last_hidden(rows), whole.last_hidden(rows)) <= 1e-6


@PLAIN
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(60, 200))
def test_passes_shrink_until_they_fit_and_stay_so(folder, whole, shared, lengths, room):
    def is_too_large(batch, number=0):
        return max(batch) * len(batch) > room

    shared.token_cap = None  # as after loading
    rows, first, second = token_rows(lengths), opened(folder), opened(folder)
    expected = whole.last_hidden(rows)
    look_at()
    first._open()
    batches = look_at(is_too_large)
    assert difference(first.last_hidden(rows), expected) <= 1e-6
    assert first.report.token_budget_reason == ("memory ran out" if any(map(is_too_large, batches)) else "start value")
    batches.clear()
    assert difference(second.last_hidden(rows), expected) <= 1e-6
    assert not any(map(is_too_large, batches))  # the second user of the weights starts with what fits


def test_one_line_says_that_memory_ran_out(folder, caplog):
    model = opened(folder, token_budget=1024)
    model._open()
    batches = look_at(lambda batch, _: len(batch) > 2)
    for _ in range(2):
        model.last_hidden(token_rows([10] * 8))
    assert caplog.messages == [f"{folder.name}: memory of cpu ran out; batches have at most 20 tokens from now on"]
    assert [len(batch) for batch in batches] == [8, 4, *[2] * 8]
    assert (model.report.token_budget, model.report.token_budget_reason) == (20, "memory ran out")


def test_one_row_that_finds_no_room_is_an_error_with_a_remedy(folder):
    model = opened(folder)
    expected = model.last_hidden(ROWS)
    look_at(lambda batch, _: 20 in batch)
    with pytest.raises(ModelError, match="is too small for a single row; shorten the texts") as caught:
        model.last_hidden(ROWS)
    assert caught.value.__cause__ is caught.value.__context__ is None  # either would hold the tensors of the pass
    look_at()
    assert difference(model.last_hidden(ROWS), expected) <= 1e-6


def test_memory_is_freed_after_the_error_is_forgotten_and_other_errors_pass_unchanged(folder, monkeypatch):
    model = opened(folder)
    model._open()
    handled = []
    look_at(lambda *_: not handled)
    monkeypatch.setattr(memory, "give_back", lambda device: handled.append((device, sys.exc_info()[0])))
    model.last_hidden(ROWS)
    assert handled == [("cpu", None)]
    look_at(lambda *_: True, lambda: RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        model.last_hidden(ROWS)


def test_memory_errors_are_recognised():
    others = [(RuntimeError, "shape"), (ValueError, "out of memory"), (OSError, "No space left")]
    for kind, message in EXHAUSTED + others:
        assert memory.is_exhausted(kind(message)) is ((kind, message) in EXHAUSTED), message


@pytest.mark.parametrize("room", [0, 15, 64, 10_000])
def test_batches_keep_to_the_room_that_is_free(folder, monkeypatch, room):
    model = opened(folder, token_budget=128)
    expected = model.last_hidden(token_rows([10] * 8))
    token_bytes = memory.bytes_per_token(model._open().shared.model().config, "float32")
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(room * token_bytes / memory.SHARE_OF_FREE))
    batches = look_at()
    assert difference(model.last_hidden(token_rows([10] * 8)), expected) <= 1e-6
    sizes = [sum(lengths) for lengths in batches]
    assert sum(sizes) == 80
    assert max(sizes) <= max(room, 10)
    assert model.report.token_budget == 128  # tomorrow there may be room again


def test_cached_blocks_come_before_the_driver_and_are_returned_before_a_batch_is_cut(monkeypatch):
    answering(monkeypatch, torch.cuda, memory_reserved=300, memory_allocated=200)
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: asked.append(1) or (20, 1000))
    assert (memory.fits("cuda", 5, 10), asked) == (True, [])
    assert (memory.fits("cuda", 6, 10), asked) == (True, [1])  # with what the driver has
    assert not memory.fits("cuda", 7, 10)
    free, returned = [100, 1_000], []
    monkeypatch.setattr(memory, "free_bytes", lambda device: free[min(len(returned), 1)])
    monkeypatch.setattr(memory, "give_back", returned.append)
    assert (memory.fits("mps", 1, 40), returned) == (True, [])
    assert (memory.fits("mps", 10, 40), returned) == (True, ["mps"])
    free[1] = 100
    returned.clear()
    assert (memory.fits("mps", 10, 40), returned) == (False, ["mps"])
    answering(monkeypatch, memory, free_bytes=None)
    assert memory.fits("cpu", 1 << 40, 40)


@PLAIN
@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 20))
def test_every_row_is_run_once_in_batches_that_fit(count, size, room):
    done, sizes = [], []

    def run(rows):
        if rows.size > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        done.extend(rows.tolist())
        sizes.append(rows.size)

    fitting = memory.run_in_batches(run, np.arange(count), size, device="cpu", model="m")
    assert done == list(range(count))
    assert fitting >= max(sizes, default=0)
    assert fitting == size or fitting <= room


def test_batches_of_one_text_that_find_no_room(caplog):
    def run(rows):
        raise MemoryError

    with pytest.raises(ModelError, match="m: the memory of cuda is too small for a single text; shorten") as caught:
        memory.run_in_batches(run, np.arange(9), 4, device="cuda", model="m")
    assert caught.value.__context__ is None  # it would hold the tensors of the pass
    assert "use device='cpu' or a smaller model" in str(caught.value)
    with pytest.raises(ModelError, match="programs, or use a smaller model"):
        memory.run_in_batches(run, np.arange(9), 4, device="cpu", model="m")

    def broken(rows):
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        memory.run_in_batches(broken, np.arange(9), 4, device="cuda", model="m")
    assert (memory.usual_batch("cuda"), memory.usual_batch("cpu"), memory.usual_batch("mps")) == (256, 32, 32)


def test_free_memory_of_each_device_and_the_estimate_for_a_token(monkeypatch):
    assert memory.free_bytes("cpu") is memory.total_bytes("cpu") is None
    answering(monkeypatch, torch.cuda, mem_get_info=(100, 1000), memory_reserved=50, memory_allocated=20)
    assert memory.free_bytes("cuda") == 130
    answering(monkeypatch, torch.mps, recommended_max_memory=700, driver_allocated_memory=800)
    assert (memory.free_bytes("mps"), memory.total_bytes("mps")) == (-100, 700)
    # Keys, values, queries, MLP and norms of Qwen3-Embedding-0.6B in half precision, by hand: 82 KiB.
    heads = {"head_dim": 128, "num_attention_heads": 16, "num_key_value_heads": 8}
    config = tiny_qwen3.config(hidden_size=1024, intermediate_size=3072, **heads)
    assert memory.bytes_per_token(config, "bfloat16") == 2 * (8 * 1024 + 4 * 3072 + 2 * 48 * 128)
    assert memory.bytes_per_token(config, "float32") == 2 * memory.bytes_per_token(config, "bfloat16")


# The token budget


@SAME_SURROUNDINGS
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
    assert (found.trial(32), found.trial(33), found.best) == (None, 16, 16)
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
    batches = look_at()
    with caplog.at_level(logging.DEBUG, logger="semlex.models.local.transformer"):
        assert difference(first.last_hidden(rows), expected) <= 1e-6
        while not budget.measured_budget(first._open()).measured:
            assert difference(first.last_hidden(rows), expected) <= 1e-6
    assert len(caplog.records) == 1
    computed = [*itertools.chain(*batches)]
    assert sorted(computed) == sorted(rows.lengths.tolist() * (len(computed) // 40))  # no row is computed twice
    assert (first.report.token_budget in {32, 64, 96}, first.report.token_budget_reason) == (True, "measured")
    assert difference(second.last_hidden(rows), expected) <= 1e-6
    assert (second.report.token_budget, len(caplog.records)) == (first.report.token_budget, 1)
    configured = opened(folder, token_budget=128)
    configured._open()
    assert (configured.report.token_budget, configured.report.token_budget_reason) == (128, "configured")


def test_candidates_that_found_no_room_are_not_measured_again(folder, monkeypatch):
    monkeypatch.setattr(budget, "CPU_CANDIDATES", (32, 64, 128))
    rows, model = token_rows([8] * 60), opened(folder)
    expected = opened(folder, token_budget=128).last_hidden(rows)
    model._open()
    batches = look_at(lambda lengths, _: sum(lengths) > 40)
    for _ in range(3):
        assert difference(model.last_hidden(rows), expected) <= 1e-6
    assert sum(sum(lengths) > 40 for lengths in batches) == 1


@pytest.mark.parametrize(("gibibytes", "most"), [(5.3, 4_096), (10.7, 8_192), (21.3, 16_384), (139, 16_384)])
def test_a_gpu_starts_with_what_suits_its_memory(monkeypatch, gibibytes, most):
    monkeypatch.setattr(memory, "total_bytes", lambda device: int(gibibytes * (1 << 30)))
    found = budget.token_budget(("shape", gibibytes), "mps")
    assert found.best == found.portion == most
    assert found is budget.token_budget(("shape", gibibytes), "mps")
    assert budget.token_budget("shape", "cpu").best == budget.CPU_START
