"""`validate_rows` and `validate_identifier` against slow, obvious twins."""

import enum
import json
import math
import re
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex._core import to_json, validate_identifier, validate_rows
from tests.support.refused_rows import nested, refusals

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SURROGATE = "ab\ud800"
F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)


def float32(*values):
    return np.array(values, dtype=np.float32)


def vector_twin(values, dimension):
    codes = []
    if len(values) != (len(values) if dimension is None else dimension) or not 1 <= len(values) <= 16_000:
        codes.append("wrong_dimension")
    squares = math.fsum(value * value for value in values if math.isfinite(value))
    if not all(map(math.isfinite, values)):
        codes.append("not_finite")
    elif values and not any(values):
        codes.append("all_zero")
    elif values and not F32_MIN <= squares <= F32_MAX:
        codes.append("norm_out_of_range")
    return codes


@given(
    st.lists(st.lists(st.floats(width=32) | st.sampled_from([0.0, 1e-30, 3e38, 1e-19, 1e19]), max_size=12), max_size=5),
    st.none() | st.integers(0, 12),
)
def test_vectors_are_judged_as_by_the_twin(rows, dimension):
    arrays = [np.array(row, dtype=np.float32) for row in rows]
    limits = None if dimension is None else {"dimension": dimension}
    found = validate_rows([("v", "vector", arrays, limits)], None)
    expected = [
        (row, code) for row, array in enumerate(arrays) for code in vector_twin(array.astype(float).tolist(), dimension)
    ]
    assert [(row, code) for row, _, _, code, _, _ in found] == expected
    same = [array for array in arrays if len(array) == len(arrays[0])]
    if same and len(same[0]):
        dense = validate_rows([("v", "vector", np.stack(same), limits)], None)
        assert dense == validate_rows([("v", "vector", same, limits)], None)


def text_twin(text, min_chars, max_bytes):
    checks = {
        "nul": "\0" in text,
        "too_short": len(text) < min_chars,
        "too_long": len(text.encode("utf-8", "surrogatepass")) > max_bytes,
    }
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return ["lone_surrogate"]
    return [code for code, broken in checks.items() if broken]


@given(
    st.lists(st.text(st.characters() | st.sampled_from("\0\ud800é漢🙂"), max_size=12)),
    st.integers(0, 9),
    st.integers(0, 20),
)
def test_texts_are_judged_as_by_the_twin(texts, min_chars, max_bytes):
    limits = {"min_chars": min_chars, "max_bytes": max_bytes}
    found = validate_rows([("t", "text", texts, limits)], None)
    expected = [(row, code) for row, text in enumerate(texts) for code in text_twin(text, min_chars, max_bytes)]
    assert [(row, code) for row, _, _, code, _, _ in found] == expected
    for row, _, _, code, _, actual in found:
        if code in {"nul", "lone_surrogate"}:
            assert actual is not None
            place = int(actual.removeprefix("character "))
            assert texts[row][place] == "\0" or "\ud800" <= texts[row][place] <= "\udfff"


def test_kinds_limits_and_json_at_its_bounds():
    found = validate_rows([("a", "text", ["x", "y"], None), ("b", "text", ["x"], None)], ["1", "2"])
    assert found == [(-1, None, "b", "length_differs", "2", "1")]  # one error of the call
    assert validate_rows([("id", "id", ["i" * 512, "é" * 256], None)], None) == []
    [error] = validate_rows([("id", "id", ["é" * 257], None)], None)
    assert error[3:] == ("too_long", "512 bytes", "514 bytes")
    for name, codes in (
        ("pg_É" + "x" * 60, ["bad_identifier", "too_long", "reserved_name"]),
        (SURROGATE, ["lone_surrogate"]),
        (3, ["wrong_type"]),
    ):
        assert [error[3] for error in validate_identifier(name)] == codes
    for kind, limits in [
        ("json", None),
        ("text", {"max_chars": 5}), ("text", {"max_bytes": -1}),
        ("jsonb", {"max_depth": 65}), ("jsonb", {"max_bytes": 2**30}),
        ("id", {1: 2}),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="field"):
            validate_rows([("field", kind, ["a"], limits)], None)
    fields = [
        ("id", "id", ["a", "", "i" * 513, "n\0", SURROGATE, None, 7], None),
        ("content", "text", ["ok", "x", None, "ok", "ok", "ok", b""], {"min_chars": 2, "max_bytes": 4}),
        ("metadata", "jsonb", [{}, {"a": math.nan}, None, nested(65), [], {}, {}], {"nullable": True}),
        ("made", "timestamptz", [NOW, NOW, NOW, datetime(2026, 1, 2), NOW, None, 3], None),  # noqa: DTZ001
        ("half", "halfvec", float32([1], [1e-9], [65520], [0], [1], [1], [1]), {"dimension": 1}),
    ]
    found = validate_rows(fields, ["r0", "r1", "r2", "r3", "r4", "r5", "r" * 90])
    expected = {
        1: {"id": "blank", "content": "too_short", "metadata": "not_finite", "half": "all_zero"},  # as float16
        2: {"id": "too_long", "content": "missing", "half": "out_of_range"},
        3: {"id": "nul", "metadata": "too_deep", "made": "naive_timestamp", "half": "all_zero"},
        4: {"id": "lone_surrogate"},
        5: {"id": "missing", "made": "missing"},
        6: {"id": "wrong_type", "content": "wrong_type", "made": "wrong_type"},
    }
    assert [one[:4] for one in found] == [
        (row, "r" * 80 if row == 6 else f"r{row}", *error)
        for row, errors in expected.items()
        for error in errors.items()
    ]

    class Level(enum.IntEnum):
        HIGH = 3

    class Huge(enum.IntEnum):
        HIGH = 2**70

    class Name(str):
        __slots__ = ()

    value = OrderedDict([(Name("b"), Level.HIGH), ("a", (np.float64(0.5), True, Huge.HIGH))])
    assert to_json(value) == b'{"b":3,"a":[0.5,true,1180591620717411303424]}'
    assert to_json(nested(64)) == b"[" * 64 + b"]" * 64
    assert len(to_json("x" * (2**20 - 2))) == 2**20
    assert to_json(10**4299) == b"1" + b"0" * 4299
    cycle = {}
    cycle["self"] = cycle
    assert refusals(to_json, cycle) == [(-1, "value", "too_deep")]
    assert refusals(to_json, np.float32(1)) == [(-1, "value", "unsupported_type")]


@given(st.text(st.sampled_from("ab_09pgZ-é\n "), max_size=60) | st.from_regex(r"\A[a-z_][a-z0-9_]{40,50}\Z"))
def test_identifiers_are_judged_as_by_the_twin(name):
    good = re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) is not None and not name.startswith("pg_")
    assert (validate_identifier(name) == []) == good


# --- JSON for jsonb ---------------------------------------------------------------------------------------------------

json_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def json_values(*leaves):
    leaf = st.one_of(st.none(), st.booleans(), st.integers(), json_texts, *leaves)
    return st.recursive(leaf, lambda inner: st.lists(inner) | st.dictionaries(json_texts, inner))


@given(json_values(st.floats(allow_nan=False, allow_infinity=False)))
def test_json_reads_back(value):
    assert repr(json.loads(to_json(value))) == repr(value)  # 1 is not 1.0, and -0.0 is not 0.0


@given(st.floats(-1e16, 1e16, exclude_min=True, exclude_max=True))
@example(2**49 + 0.25)
@example(-(2**49) - 0.75)
@example(2**46 + 0.125)
@example(513 * 2**-20)
@example(2.0**-24)
@example(9007199254740991.0)
@example(5e-324)
@example(sys.float_info.min)
def test_a_float_has_the_digits_that_python_shows(number):
    """Of two decimals that are equally near the even one, too: a filter may name it."""
    assert Decimal(to_json(number).decode()) == Decimal(repr(number))


@given(json_values())
def test_json_is_what_the_standard_library_writes(value):
    """But for floats, whose exponents have more than one form."""
    assert to_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
