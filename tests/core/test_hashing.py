"""Identities of rows: equal to a plain Python of the same rule, a batch equal to its rows one by one."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def twin(label, fields):
    return hashlib.sha256(b"\0".join(part.encode() for part in (label, *fields))).digest()[:16]


@given(TEXT, st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=20))
def test_equal_to_the_plain_python(label, rows):
    columns = [[row[number] for row in rows] for number in range(3)]
    assert _core.hash_rows(label, columns) == [twin(label, list(row)) for row in rows]
    assert [_core.hash_rows(label, [[field] for field in row])[0] for row in rows] == _core.hash_rows(label, columns)


def test_unequal_columns_and_unusable_texts_are_refused():
    with pytest.raises(ValueError, match="expected 2 texts in each, found 1"):
        _core.hash_rows("x", [["a", "b"], ["c"]])
    with pytest.raises(UnicodeEncodeError):
        _core.hash_rows("x", [["\ud800"]])
    assert _core.hash_rows("x", []) == _core.hash_rows("x", [[]]) == []
