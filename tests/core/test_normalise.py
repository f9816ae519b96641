"""Cut and normalised vectors against the obvious twin."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from semlex import _core

COMPONENTS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=COMPONENTS)


@given(VECTORS, st.data())
def test_rows_are_those_of_the_twin(vectors, data):
    dimensions = data.draw(st.integers(1, vectors.shape[1]))
    expected = []
    for row in vectors[:, :dimensions].astype(float).tolist():
        norm = math.sqrt(math.fsum(component * component for component in row))
        expected.append([component / norm for component in row] if norm else row)
    normalised = _core.normalise_rows(vectors, dimensions)
    assert (normalised.dtype, normalised.shape) == (np.float32, (len(vectors), dimensions))
    assert np.allclose(normalised, np.array(expected).reshape(normalised.shape), rtol=2e-7, atol=1e-44)


@given(VECTORS)
def test_the_layout_does_not_matter(vectors):
    assert np.array_equal(_core.normalise_rows(np.asfortranarray(vectors), 1), _core.normalise_rows(vectors, 1))
    assert np.array_equal(_core.normalise_rows(vectors[::-1], 1), _core.normalise_rows(vectors, 1)[::-1])


def test_rows_without_direction_are_left_for_the_caller_to_name():
    vectors = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [3, 4]], dtype=np.float32)
    normalised = _core.normalise_rows(vectors, 2)
    assert normalised[0].tolist() == [0, 0]
    assert not np.isfinite(normalised[1:3]).all(axis=1).any()
    assert np.allclose(normalised[3], [0.6, 0.8])
    assert _core.normalise_rows(np.empty((0, 5), dtype=np.float32), 3).shape == (0, 3)


@pytest.mark.parametrize(("vectors", "dimensions", "message"), [
    (np.ones((2, 3), dtype=np.float32), 4, "dimensions: must be at most 3, found 4"),
    (np.ones((2, 3), dtype=np.float32), 0, "dimensions: must be at least 1, found 0"),
    (np.ones((2, 0), dtype=np.float32), 1, "dimensions: must be at most 0, found 1"),
    (np.ones(3, dtype=np.float32), 1, r"vectors: must be a NumPy array of float32, shape \(n, d\); found float32"),
    (np.ones((2, 3)), 1, r"vectors: must be a NumPy array of float32, shape \(n, d\); found float64"),
])  # fmt: skip
def test_refusals_name_the_argument(vectors, dimensions, message):
    with pytest.raises(ValueError, match=message):
        _core.normalise_rows(vectors, dimensions)
