"""Batch plans against a slow twin, and what every plan keeps."""

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


@pytest.mark.parametrize(("lengths", "options", "message"), [
    ([3, -1], {}, "lengths: row 1 must be at least 0, found -1"),
    ([2**62, 2**62], {}, "lengths: their sum exceeds"),
    ([1], {"token_budget": 0}, "token_budget: must be at least 1, found 0"),
    ([1], {"max_rows": 0}, "max_rows: must be at least 1, found 0"),
])  # fmt: skip
def test_refusals_name_the_argument(lengths, options, message):
    options = {"token_budget": 10, "max_rows": 10, "padded": True} | options
    with pytest.raises(ValueError, match=message):
        _core.plan_batches(np.array(lengths, dtype=np.int64), **options)


@pytest.mark.parametrize("lengths", [np.array([1.0]), np.array([1], dtype=np.int32), np.array([[1]])])
def test_other_arrays_are_refused(lengths):
    with pytest.raises(ValueError, match=r"lengths: must be a NumPy array of int64, shape \(n,\); found"):
        _core.plan_batches(lengths, token_budget=1, max_rows=1, padded=True)


ROWS_OF_IDS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), max_size=20)


def joined(rows):
    offsets = np.cumsum([0, *map(len, rows)])
    return np.array([token for row in rows for token in row], dtype=np.int64), offsets


def slow_packed(rows, chosen, skip):
    """One batch, token by token."""
    batch = {"rows": chosen, "ids": [], "positions": [], "documents": [], "offsets": [0]}
    for document, row in enumerate(chosen):
        for position, token in enumerate(rows[row]):
            if position >= skip:
                batch["ids"].append(token)
                batch["positions"].append(position)
                batch["documents"].append(document)
        batch["offsets"].append(len(batch["ids"]))
    return batch


@given(ROWS_OF_IDS, BUDGET, ROWS, st.booleans(), st.integers(0, 4))
def test_packed_batches_are_their_twin(rows, budget, most, padded, skip):
    rows = [[0] * skip + row for row in rows]
    ids, offsets = joined(rows)
    found = _core.TokenPlan(ids, offsets, token_budget=budget, max_rows=most, padded=padded, skip=skip)
    expected = slow_batches([len(row) - skip for row in rows], budget, most, padded)
    assert len(found) == len(expected)
    for number, chosen in enumerate(expected):
        batch = found.batch(number)
        assert {name: getattr(batch, name).tolist() for name in slow_packed([], [], 0)} == slow_packed(
            rows, chosen, skip
        )
    assert found.real_tokens == sum(len(row) - skip for row in rows)


@given(ROWS_OF_IDS)
def test_the_common_prefix_leaves_something_of_every_row(rows):
    shared = 0
    while len(rows) > 1 and all(len(row) > shared + 1 and row[shared] == rows[0][shared] for row in rows):
        shared += 1
    assert _core.common_prefix(*joined(rows)) == shared


@pytest.mark.parametrize(("ids", "offsets", "skip", "message"), [
    ([1], [], 0, "offsets: must begin with 0, but there are no offsets"),
    ([1], [1, 1], 0, "offsets: must begin with 0, found 1"),
    ([1, 2], [0, 1], 0, "offsets: must end with the number of ids, 2; found 1"),
    ([1], [0], 0, "offsets: must end with the number of ids, 1; found 0"),
    ([1, 2], [0, 2, 1, 2], 0, "offsets: row 1 ends before it begins"),
    ([1, 2], [0, -5, 2], 0, "offsets: row 0 ends before it begins"),
    ([1, 2], [0, 2, 2], 0, "offsets: row 1 must have more than 0 tokens, found 0"),
    ([1, 2, 3], [0, 2, 3], 1, "offsets: row 1 must have more than 1 tokens, found 1"),
    ([1, -2], [0, 2], 0, "ids: the id at position 1 is negative"),
    ([1], [0, 1], -1, "skip: must be at least 0, found -1"),
])  # fmt: skip
def test_token_rows_that_make_no_sense_are_named(ids, offsets, skip, message):
    with pytest.raises(ValueError, match=message):
        _core.TokenPlan(
            np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64), token_budget=9, max_rows=9, skip=skip
        )
    if skip == 0 and "tokens" not in message and "ids: the id" not in message:
        with pytest.raises(ValueError, match=message):
            _core.common_prefix(np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64))


@pytest.mark.parametrize("number", [-1, 1, 2**62])
def test_there_is_no_such_batch(number):
    found = _core.TokenPlan(np.array([1]), np.array([0, 1]), token_budget=1, max_rows=1)
    assert (repr(found), repr(found.batch(0))) == ("TokenPlan(1 batches, 1 tokens)", "TokenBatch(1 rows, 1 tokens)")
    with pytest.raises(IndexError, match=f"number: must be at least 0 and below 1, found {number}"):
        found.batch(number)
