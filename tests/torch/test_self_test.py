"""What the self-test sees, and where a model runs when it does not pass."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen3Model

from semlex.errors import ModelError
from semlex.models.local import shared_weights, transformer
from semlex.models.local.device import Placement
from semlex.models.local.forward import FORWARDS, ReferenceForward
from semlex.models.local.shared_weights import find_defect, load_weights
from tests.support import tiny_qwen3
from tests.support.properties import SAME_SURROUNDINGS
from tests.support.spies import calls_of
from tests.support.watched_model import ROWS, opened

pytestmark = pytest.mark.usefixtures("nothing_remembered")
CPU = Placement("cpu", "float32")
ATTENTION = torch.nn.functional.scaled_dot_product_attention


class Raising(ReferenceForward):
    def run(self, batch):
        raise NotImplementedError("no kernel")


class NotFinite(ReferenceForward):
    def run(self, batch):
        states = super().run(batch)
        states[-1, 3] = np.nan
        return states


def changed(change):
    """A form whose states of a batch are changed."""

    class Changed(ReferenceForward):
        def run(self, batch):
            return change(super().run(batch), batch)

    return Changed


Neighbourly = changed(lambda states, _: states + 0.01 * states.mean(axis=0) if len(states) > 1 else states)
Lonely = changed(lambda states, _: states + 1 if len(states) == 1 else states)
Slanted = changed(lambda states, _: np.roll(states, 1, axis=1))
# Wrong for all rows but whole ones: as if it saw what was cut off.
Peeking = changed(lambda states, batch: states + np.array([[row.size < 8] for row in batch.tokens], dtype=np.float32))


class Forgetful(ReferenceForward):
    """Does not see the first token."""

    def run(self, batch):
        for row in batch.tokens:
            if row.size > 1:
                row[0] = 0
        return super().run(batch)


def let_leak(monkeypatch, size, *precisions):
    """Applies the rule of causality to groups of queries, as torch's attention on MPS did."""

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):  # noqa: PLR0917
        if is_causal and query.dtype in precisions:
            places = torch.arange(query.shape[-2])
            attn_mask = places[None, :] <= (places[:, None] // size) * size + size - 1
            is_causal = False
        return ATTENTION(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)


@pytest.fixture(scope="module")
def model(folder):
    return load_weights(folder, "none", CPU)


@pytest.fixture
def with_forms(monkeypatch):
    def use(**forms):
        for module in (shared_weights, transformer):
            monkeypatch.setattr(module, "FORWARDS", forms)

    return use


@settings(SAME_SURROUNDINGS, max_examples=10)
@given(st.integers(0, 1000))
def test_every_form_passes_with_any_weights(seed):
    torch.manual_seed(seed)
    model = Qwen3Model(tiny_qwen3.config()).eval()
    for form in FORWARDS.values():
        defect, forward = find_defect(model, form, "float32")
        assert defect is None
        assert isinstance(forward, form)


@pytest.mark.parametrize("batches", [shared_weights.CPU_BATCHES, shared_weights.GPU_BATCHES])
def test_the_rows_of_either_kind_of_device_pass(monkeypatch, model, batches):
    monkeypatch.setattr(shared_weights, "CPU_BATCHES", batches)
    longest = max(length for batch in batches for _, length in batch)
    assert batches[-1][-1][1] == longest
    assert batches[0][1][1] < longest
    for form in FORWARDS.values():
        assert find_defect(model, form, "float32")[0] is None


def test_a_wrong_form_is_seen_and_not_kept(model):
    for form, defect in (
        (Raising, "raised NotImplementedError"),
        (NotFinite, "gave values that are not finite"),
        (Neighbourly, "made the state of a row depend on its batch"),
        (Forgetful, "gave different states from the model"),
        (Slanted, "gave different states from the model"),
        (Lonely, "gave different states from the model for a single row"),
        (Peeking, "let later tokens leak into earlier ones"),
    ):
        assert find_defect(model, form, "float32") == (defect, None)


@pytest.mark.parametrize("group", range(1, 9))  # one is causal
@pytest.mark.parametrize("batches", [shared_weights.CPU_BATCHES, shared_weights.GPU_BATCHES])
def test_later_tokens_that_leak_within_groups_are_seen(monkeypatch, model, batches, group):
    monkeypatch.setattr(shared_weights, "CPU_BATCHES", batches)
    let_leak(monkeypatch, group, torch.float32)
    defect = None if group == 1 else "let later tokens leak into earlier ones"
    assert find_defect(model, ReferenceForward, "float32")[0] == defect


def test_what_rounding_changes_passes_and_more_does_not(model):
    first = np.arange(tiny_qwen3.HIDDEN) == 0
    for by, exact, half in ((1e-6, True, True), (1e-4, False, True), (0.1, False, False)):
        shifted = changed(lambda states, _, by=by: states + by * first * np.linalg.norm(states, axis=1, keepdims=True))
        assert (find_defect(model, shifted, "float32")[0] is None) is exact
        assert (find_defect(model, shifted, "bfloat16")[0] is None) is half


def test_the_fastest_form_that_passes_runs_and_one_line_says_why(folder, with_forms, caplog):
    with_forms(fused=Raising, packed=Neighbourly, reference=ReferenceForward)
    chosen = opened(folder, "fused")
    assert chosen.report is None
    states = chosen.last_hidden(ROWS)
    chosen.last_hidden(ROWS)
    (record,) = caplog.records
    assert "fused attention on cpu in float32 raised NotImplementedError; packed attention on" in record.getMessage()
    assert "the model now runs in float32 with reference attention on cpu" in record.getMessage()
    report = chosen.report
    assert (report.device, report.precision, report.attention) == ("cpu", "float32", "reference")
    assert [attempt.attention for attempt in report.failures] == ["fused", "packed"]
    plain = opened(folder, "reference")
    assert np.abs(states - plain.last_hidden(ROWS)).max() == 0
    assert plain.report.failures == ()


def test_forms_to_fall_back_to(with_forms):
    with_forms(fused=Raising, packed=Raising, reference=ReferenceForward)
    assert shared_weights.forms_from("fused") == ["fused", "packed", "reference"]
    assert shared_weights.forms_from("reference") == ["reference"]
    with_forms(reference=ReferenceForward, fused=Raising)
    assert shared_weights.forms_from("fused") == ["fused", "reference"]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_that_leaks_is_left_for_float32(folder, monkeypatch, caplog, precision):
    let_leak(monkeypatch, 4, torch.bfloat16, torch.float16)
    half = opened(folder, "reference", precision=precision)
    half.last_hidden(ROWS)
    [attempt] = half.report.failures
    assert (attempt.precision, attempt.failure) == (precision, "let later tokens leak into earlier ones")
    assert (half.report.precision, len(caplog.records)) == ("float32", 1)


def test_a_device_that_fails_is_left_for_the_cpu(folder, monkeypatch, with_forms):
    with_forms(packed=ReferenceForward, reference=ReferenceForward)
    loaded, tested = [], []

    def load(folder, head, placement):
        loaded.append(placement)
        return load_weights(folder, head, CPU)

    def find(model, form, precision):
        tested.append((loaded[-1].device, precision))
        return ("failed", None) if loaded[-1].device == "mps" else find_defect(model, form, precision)

    monkeypatch.setattr(shared_weights, "load_weights", load)
    monkeypatch.setattr(shared_weights, "find_defect", find)
    running = shared_weights.open_model(folder, "none", Placement("mps", "bfloat16"), "packed")
    assert running.shared.placement == CPU
    assert [(each.device, each.precision, each.attention) for each in running.failures] == [
        ("mps", precision, form) for precision in ("bfloat16", "float32") for form in ("packed", "reference")
    ]
    assert loaded == [Placement("mps", "bfloat16"), Placement("mps", "float32"), CPU]
    assert tested[-1] == ("cpu", "float32")


def test_a_model_that_fails_everywhere_is_refused(folder, with_forms):
    with_forms(packed=Slanted, reference=Raising)
    broken = opened(folder, "packed", precision="bfloat16")
    for _ in range(2):
        with pytest.raises(ModelError, match="fails the self-test in every configuration") as caught:
            broken.last_hidden(ROWS)
    for part in ("packed attention on cpu in bfloat16 gave different", "reference attention on cpu in float32 raised"):
        assert part in str(caught.value)
    assert broken.report is None


def test_outcomes_are_remembered_in_this_process_and_failures_without_loading_again(folder, monkeypatch):
    tests = calls_of(monkeypatch, shared_weights, "find_defect")
    for _ in range(2):
        first, second = opened(folder, "reference"), opened(folder, "reference")
        for each in (first, second):
            each.last_hidden(ROWS)
        first.close()
        second.close()
    assert [test["precision"] for test in tests] == ["float32"]
    loads = calls_of(monkeypatch, shared_weights, "load_weights")
    let_leak(monkeypatch, 4, torch.bfloat16)
    for _ in range(2):
        half = opened(folder, "reference", precision="bfloat16")
        half.last_hidden(ROWS)
        half.close()
    assert [load["placement"].precision for load in loads] == ["bfloat16", "float32", "float32"]


def test_memory_that_is_used_up_says_nothing_about_a_form(folder, monkeypatch, with_forms):
    class Exhausted(ReferenceForward):
        full = True

        def run(self, batch):
            if type(self).full:
                raise MemoryError
            return super().run(batch)

    with_forms(packed=Exhausted, reference=ReferenceForward)
    chosen = opened(folder, "packed")
    with pytest.raises(ModelError, match="memory of cpu is too small for a single row"):
        chosen.last_hidden(ROWS)
    Exhausted.full = False
    chosen.last_hidden(ROWS)
    assert chosen.report.attention == "packed"
