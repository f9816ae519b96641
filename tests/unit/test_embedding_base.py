"""What every model has: a key that separates embedders, vectors that are checked, and a count of cut texts."""

import math

import numpy as np
import pytest

from semlex.embedding.base import EmbedderIdentity, check_vectors
from semlex.errors import ModelError, ModelMismatchError
from semlex.models.tokenizer import CutTexts


def test_keys_and_vectors():
    base = EmbedderIdentity("org/model", "abc", 64, "task", "last-token", normalised=True)
    variants = [
        EmbedderIdentity("org/other", "abc", 64, "task", "last-token", normalised=True),
        EmbedderIdentity("org/model", "abd", 64, "task", "last-token", normalised=True),
        EmbedderIdentity("org/model", "abc", 32, "task", "last-token", normalised=True),
        EmbedderIdentity("org/model", "abc", 64, "other task", "last-token", normalised=True),
        EmbedderIdentity("org/model", "abc", 64, None, "last-token", normalised=True),
        EmbedderIdentity("org/model", "abc", 64, "task", "mean", normalised=True),
        EmbedderIdentity("org/model", "abc", 64, "task", "last-token", normalised=False),
    ]
    assert len({identity.key for identity in [base, *variants]}) == len(variants) + 1
    # Stored with collections: a change here makes every stored collection another model's.
    assert base.key == "org/model@abc/64/last-token/unit/task:0ebb429fa86d"
    vectors = np.asfortranarray(np.eye(3, dtype=np.float64))
    checked = check_vectors(vectors, rows=3, dimensions=3, model="m")
    assert checked.dtype == np.float32
    assert checked.flags.c_contiguous
    raw = np.array([[2.0, 0.0]], dtype=np.float32)
    assert np.array_equal(check_vectors(raw, rows=1, dimensions=2, model="m", normalised=False), raw)
    for vectors, error, message in [
        ([[1.0, 0.0], [math.nan, 0.0]], ModelError, "vector of row 1 is not finite"),
        ([[math.inf, 0.0], [math.inf, 0.0]], ModelError, r"vector of row 0 \(and 1 more\) is not finite"),
        ([[1.0, 0.0], [0.0, 0.0]], ModelError, "vector of row 1 is all zero"),
        ([[1.0, 0.0], [1.0, 1.0]], ModelError, "vector of row 1 is not of norm 1"),
        ([[1.0, 0.0]], ModelError, r"shape \(1, 2\) for 2 texts"),
        ([1.0, 0.0], ModelError, r"shape \(2,\) for 2 texts"),
        ([[1.0], [1.0]], ModelMismatchError, "dimension 1; expected 2"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            check_vectors(np.array(vectors, dtype=np.float32), rows=2, dimensions=2, model="m")


# --- cut texts --------------------------------------------------------------------------------------------------------
def test_nothing_is_said_while_nothing_is_cut(caplog):
    texts = CutTexts("texts", "org/model")
    texts.add(0, 0, "max_length=128 tokens")
    texts.add(20, 0, "max_length=128 tokens")
    assert (texts.count, caplog.messages) == (0, [])


def test_the_first_is_logged_and_then_every_tenfold(caplog):
    texts = CutTexts("texts", "org/model")
    for _ in range(60):
        texts.add(40, 20, "max_length=128 tokens")
    assert texts.count == 1200
    assert caplog.messages == [
        f"{found} texts for org/model so far did not fit into max_length=128 tokens and were cut"
        for found in ("20 of 40", "200 of 400")
    ]


def test_ten_times_the_first_is_reached_only_by_texts_that_are_cut(caplog):
    texts = CutTexts("texts", "org/model")
    texts.add(1, 1, "x")
    texts.add(8, 8, "x")
    texts.add(1_000, 0, "x")
    assert len(caplog.messages) == 1
    texts.add(1, 1, "x")
    assert caplog.messages[1].startswith("10 of 1010 texts")
