"""Batch plans and normalised vectors against slow twins."""

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from semlex import _core

LENGTHS = st.lists(st.integers(0, 50) | st.integers(0, 10_000), max_size=60)
BUDGET = st.integers(1, 20_000)
ROWS = st.integers(1, 70)


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


@example([], 1, 1, True)
@given(LENGTHS, BUDGET, ROWS, st.booleans())
def test_a_plan_is_its_twin(lengths, budget, rows, padded):
    given_rows = np.array(lengths, dtype=np.int64)
    found = _core.plan_batches(given_rows, token_budget=budget, max_rows=rows, padded=padded)
    expected = slow_batches(lengths, budget, rows, padded)
    assert found.order.tolist() == [row for batch in expected for row in batch]
    assert found.boundaries.tolist() == [*accumulate(map(len, expected), initial=0)]
    assert found.order[found.inverse].tolist() == list(range(len(lengths)))
    assert found.real_tokens == sum(lengths)
    assert found.computed_tokens == sum(cost(lengths, batch, padded) for batch in expected)


OTHER_ARRAY = r"lengths: must be a NumPy array of int64, shape \(n,\); found"


def test_refusals_name_the_argument():
    for lengths, options, message in [
        (np.array([3, -1]), {}, "lengths: row 1 must be at least 0, found -1"),
        (np.array([2**62, 2**62]), {}, "lengths: their sum exceeds"),
        (np.array([1]), {"token_budget": 0}, "token_budget: must be at least 1, found 0"),
        (np.array([1]), {"max_rows": 0}, "max_rows: must be at least 1, found 0"),
        *((other, {}, OTHER_ARRAY) for other in (np.array([1.0]), np.array([1], dtype=np.int32), np.array([[1]]))),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            _core.plan_batches(lengths, **{"token_budget": 10, "max_rows": 10, "padded": True} | options)
    for ids, offsets, skip, message in [
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
    ]:  # fmt: skip
        rows = np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64)
        with pytest.raises(ValueError, match=message):
            _core.TokenPlan(*rows, token_budget=9, max_rows=9, skip=skip)
        if skip == 0 and "tokens" not in message and "ids: the id" not in message:
            with pytest.raises(ValueError, match=message):
                _core.common_prefix(*rows)
    for vectors, dimensions, message in [
        (np.ones((2, 3), dtype=np.float32), 4, "dimensions: must be at most 3, found 4"),
        (np.ones((2, 3), dtype=np.float32), 0, "dimensions: must be at least 1, found 0"),
        (np.ones((2, 0), dtype=np.float32), 1, "dimensions: must be at most 0, found 1"),
        (np.ones(3, dtype=np.float32), 1, r"vectors: must be a NumPy array of float32, shape \(n, d\); found float32"),
        (np.ones((2, 3)), 1, r"vectors: must be a NumPy array of float32, shape \(n, d\); found float64"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            _core.normalise_rows(vectors, dimensions)
    vectors = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [3, 4]], dtype=np.float32)
    normalised = _core.normalise_rows(vectors, 2)
    assert normalised[0].tolist() == [0, 0]
    assert not np.isfinite(normalised[1:3]).all(axis=1).any()
    assert np.allclose(normalised[3], [0.6, 0.8])
    assert _core.normalise_rows(np.empty((0, 5), dtype=np.float32), 3).shape == (0, 3)
    found = _core.TokenPlan(np.array([1]), np.array([0, 1]), token_budget=1, max_rows=1)
    assert (repr(found), repr(found.batch(0))) == ("TokenPlan(1 batches, 1 tokens)", "TokenBatch(1 rows, 1 tokens)")
    for number in (-1, 1, 2**62):
        with pytest.raises(IndexError, match=f"number: must be at least 0 and below 1, found {number}"):
            found.batch(number)


ROWS_OF_IDS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), max_size=20)


def joined(rows):
    offsets = np.cumsum([0, *map(len, rows)])
    return np.array([token for row in rows for token in row], dtype=np.int64), offsets


def slow_packed(rows, chosen, skip):
    """One batch, token by token."""
    batch = {"rows": chosen, "ids": [], "positions": [], "documents": [], "offsets": [0]}
    for document, row in enumerate(chosen):
        batch["ids"] += rows[row][skip:]
        batch["positions"] += range(skip, len(rows[row]))
        batch["documents"] += [document] * (len(rows[row]) - skip)
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
        batch, wanted = found.batch(number), slow_packed(rows, chosen, skip)
        assert {name: getattr(batch, name).tolist() for name in wanted} == wanted
    assert found.real_tokens == sum(len(row) - skip for row in rows)


@given(ROWS_OF_IDS)
def test_the_common_prefix_leaves_something_of_every_row(rows):
    shared = 0
    while len(rows) > 1 and all(len(row) > shared + 1 and row[shared] == rows[0][shared] for row in rows):
        shared += 1
    assert _core.common_prefix(*joined(rows)) == shared


COMPONENTS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=COMPONENTS)


@given(VECTORS, st.data())
def test_rows_are_those_of_the_twin_whatever_their_layout(vectors, data):
    dimensions = data.draw(st.integers(1, vectors.shape[1]))
    expected = []
    for row in vectors[:, :dimensions].astype(float).tolist():
        norm = math.sqrt(math.fsum(component * component for component in row))
        expected.append([component / norm for component in row] if norm else row)
    normalised = _core.normalise_rows(vectors, dimensions)
    assert (normalised.dtype, normalised.shape) == (np.float32, (len(vectors), dimensions))
    assert np.allclose(normalised, np.array(expected).reshape(normalised.shape), rtol=2e-7, atol=1e-44)
    assert np.array_equal(_core.normalise_rows(np.asfortranarray(vectors), dimensions), normalised)
    assert np.array_equal(_core.normalise_rows(vectors[::-1], dimensions), normalised[::-1])
