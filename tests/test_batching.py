"""Batch plans against a slow twin, and what every plan keeps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core

LENGTHS = st.lists(st.integers(0, 50) | st.integers(0, 10_000), max_size=60)
BUDGET = st.integers(1, 20_000)
ROWS = st.integers(1, 70)


def plan(lengths, budget, rows, padded):
    return _core.plan_batches(np.array(lengths, dtype=np.int64), token_budget=budget, max_rows=rows, padded=padded)


def batches(found):
    cuts = found.boundaries.tolist()
    return [found.order[start:end].tolist() for start, end in pairwise(cuts)]


def cost(lengths, batch, padded):
    chosen = [lengths[row] for row in batch]
    return max(chosen) * len(chosen) if padded else sum(chosen)


def slow_batches(lengths, budget, rows, padded):
    found = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if found and len(found[-1]) < rows and cost(lengths, [*found[-1], row], padded) <= budget:
            found[-1].append(row)
        else:
            found.append([row])
    return found


@given(LENGTHS, BUDGET, ROWS, st.booleans())
def test_a_plan_is_its_twin(lengths, budget, rows, padded):
    assert batches(plan(lengths, budget, rows, padded)) == slow_batches(lengths, budget, rows, padded)


@given(LENGTHS, BUDGET, ROWS, st.booleans())
def test_every_row_once_within_the_bounds(lengths, budget, rows, padded):
    found = batches(plan(lengths, budget, rows, padded))
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    for batch in found:
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or cost(lengths, batch, padded) <= budget


@given(LENGTHS, BUDGET, ROWS, st.booleans())
def test_the_order_is_restored(lengths, budget, rows, padded):
    found = plan(lengths, budget, rows, padded)
    values = np.arange(len(lengths)) * 7
    results = [values[np.array(batch)] for batch in batches(found)]
    restored = np.concatenate(results)[found.inverse] if results else np.array([])
    assert restored.tolist() == values.tolist()


@given(LENGTHS, BUDGET, ROWS, st.booleans())
def test_the_cost_is_what_it_says(lengths, budget, rows, padded):
    found = plan(lengths, budget, rows, padded)
    assert found.real_tokens == sum(lengths)
    assert found.computed_tokens == sum(cost(lengths, batch, padded) for batch in batches(found))
    assert padded or found.computed_tokens == found.real_tokens


@given(st.integers(1, 60), st.integers(1, 100), BUDGET, ROWS)
def test_equal_rows_keep_their_order_and_waste_nothing(count, length, budget, rows):
    found = plan([length] * count, budget, rows, padded=True)
    assert found.order.tolist() == list(range(count))
    assert found.computed_tokens == found.real_tokens


def test_nothing_to_plan():
    found = plan([], 1, 1, padded=True)
    assert (found.order.tolist(), found.boundaries.tolist(), found.inverse.tolist()) == ([], [0], [])
    assert (found.real_tokens, found.computed_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([3, -1], {}, "lengths: row 1 must be at least 0, found -1"),
        ([2**62, 2**62], {}, "lengths: their sum passes"),
        ([1], {"token_budget": 0}, "token_budget: must be at least 1, found 0"),
        ([1], {"max_rows": 0}, "max_rows: must be at least 1, found 0"),
    ],
)
def test_refusals_name_the_argument(lengths, options, message):
    options = {"token_budget": 10, "max_rows": 10, "padded": True} | options
    with pytest.raises(ValueError, match=message):
        _core.plan_batches(np.array(lengths, dtype=np.int64), **options)


@pytest.mark.parametrize("lengths", [np.array([1.0]), np.array([1], dtype=np.int32), np.array([[1]])])
def test_other_arrays_are_refused(lengths):
    with pytest.raises(ValueError, match=r"lengths: must be a NumPy array of int64, shape \(n,\); found"):
        _core.plan_batches(lengths, token_budget=1, max_rows=1, padded=True)
