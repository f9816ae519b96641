"""JSON for jsonb: what the standard library writes and reads, within bounds."""

import enum
import json
import sys
from collections import OrderedDict
from decimal import Decimal

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from semlex._core import to_json
from tests.support.refused_rows import nested, refusals

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


def test_json_at_its_bounds_and_of_subclasses():
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
