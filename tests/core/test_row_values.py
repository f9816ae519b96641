"""The core validates and encodes row values: a refusal names row, field, code and reason, never the value."""

import enum
import json
import math
import re
import sys
import threading
import uuid
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex._core import (
    ERROR_CODES,
    CopyEncoder,
    decode_copy,
    decode_copy_buffers,
    to_json,
    validate_identifier,
    validate_rows,
)
from semlex.errors import ValidationError

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SURROGATE = "ab\ud800"


def int32(*values):
    return np.array(values, dtype=np.int32)


def float32(*values):
    return np.array(values, dtype=np.float32)


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusals(call, *arguments):
    """(row, field, code) of all errors that the call raises."""
    with pytest.raises(ValidationError) as caught:
        call(*arguments)
    return [(error.row, error.field, error.code) for error in caught.value.errors]


BAD_VALUES = [
    ("int2", "out_of_range", 2**15, -(2**15) - 1), ("int4", "out_of_range", 2**31),
    ("int8", "out_of_range", 2**63, -(1 << 10_000)), ("int4", "wrong_type", True, 1.0, "1"),
    ("float4", "out_of_range", 1e39), ("float8", "out_of_range", 2**53 + 1, np.int64(2**53 + 1)),
    ("float8", "wrong_type", False, "1", Decimal("0.1")), ("float4", "wrong_type", Fraction(1, 3)),
    ("bool", "wrong_type", 1), ("text", "nul", "a\0"), ("text", "lone_surrogate", SURROGATE),
    ("text", "wrong_type", b"a"), ("bytea", "wrong_type", "a"), ("uuid", "wrong_type", b"short", "0" * 32),
    ("timestamptz", "naive_timestamp", datetime(2026, 1, 2)),  # noqa: DTZ001
    ("timestamptz", "out_of_range", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
    ("timestamptz", "out_of_range", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))),
    ("timestamptz", "wrong_type", "2026-01-02"),
    ("jsonb", "not_finite", {"a": math.nan}, {"a": -math.inf}), ("jsonb", "nul", {"a\0": 1}, ["\0"]),
    ("jsonb", "lone_surrogate", {SURROGATE: 1}, {"a": SURROGATE}), ("jsonb", "key_not_string", {1: 2}),
    ("jsonb", "unsupported_type", {"a": {1, 2}}, NOW), ("jsonb", "too_deep", nested(65), nested(100_000)),
    ("jsonb", "too_long", "x" * 2**20), ("jsonb", "out_of_range", 10**4300, -(10**4300)),
    ("vector", "wrong_type", [1.0, 2.0]), ("vector", "wrong_dtype", np.ones(3)),
    ("vector", "wrong_shape", np.ones((1, 3), np.float32)), ("vector", "wrong_layout", np.ones(6, np.float32)[::2]),
    ("vector", "wrong_dimension", np.ones(0, np.float32)), ("halfvec", "wrong_dimension", np.ones(16_001, np.float32)),
    ("bit", "not_binary", "012"), ("bit", "wrong_type", 5), ("text[]", "wrong_type", "ab"),
    ("text[]", "nul", ["a", None, "\0"]), ("text[]", "lone_surrogate", ["a", SURROGATE]),
    ("int2[]", "out_of_range", [1, 40_000]), ("uuid[]", "wrong_type", [uuid.UUID(int=1), 1]),
    ("sparsevec", "wrong_type", 3), ("sparsevec", "wrong_dtype", (np.array([1]), float32(1))),
    ("sparsevec", "not_ascending", (int32(1, 1), float32(1, 1)), (int32(2, 1), float32(1, 1))),
    ("sparsevec", "out_of_range", (int32(-1), float32(1)), (int32(9), float32(1))),
    ("sparsevec", "zero_value", (int32(1), float32(0))), ("sparsevec", "not_finite", (int32(1), float32(math.nan))),
    ("sparsevec", "wrong_dimension", (int32(1, 2), float32(1))),
]  # fmt: skip


def test_bad_values_are_refused_at_their_places_and_again_when_copied():
    for kind, code, value in [(kind, code, value) for kind, code, *values in BAD_VALUES for value in values]:
        data = [None, value, None]
        columns = [("good", "text", ["a", "b", "c"]), ("bad", kind, (9, data) if kind == "sparsevec" else data)]
        with pytest.raises(ValidationError) as caught:
            CopyEncoder(columns, ids=["one", "two", "three"])
        (error,) = caught.value.errors
        assert (error.row, error.id, error.field, error.code) == (1, "two", "bad", code)
    for kind, data, code in BAD_ARGUMENTS:
        assert refusals(CopyEncoder, [("bad", kind, data)]) == [(-1, "bad", code)]
    with pytest.raises(ValidationError, match=re.escape("must be float32 (n, d); got float64 (2, 3)")):
        CopyEncoder([("embedding", "vector", np.ones((2, 3)))])
    for kind, value, code in [
        ("vector", math.nan, "not_finite"), ("vector", math.inf, "not_finite"),
        ("halfvec", math.nan, "not_finite"),
        ("halfvec", 65520.0, "out_of_range"), ("halfvec", -65520.0, "out_of_range"),
    ]:  # fmt: skip
        vectors = np.ones((5, 40), np.float32)
        encoder = CopyEncoder([("v", kind, vectors)], ids=list("abcde"))
        vectors[3, 17] = value  # after construction, as another thread would
        buffer = np.zeros(10_000, np.uint8)
        with pytest.raises(ValidationError) as caught:
            encoder.encode_into(buffer, 0)
        (error,) = caught.value.errors
        assert (error.row, error.id, error.field, error.code, error.actual) == (3, "d", "v", code, "component 17")
    for kind, array, bad, code in [
        ("int2", np.zeros(3, np.int64), 40_000, "out_of_range"),
        ("int4", np.zeros(3, np.int64), 2**40, "out_of_range"),
        ("timestamptz", np.zeros(3, np.int64), 2**63 - 1, "out_of_range"),
        ("bit", np.zeros((3, 9), np.uint8), 2, "not_binary"),
        ("bool", np.zeros(3, np.bool_), 2, "not_binary"),
    ]:  # fmt: skip
        encoder = CopyEncoder([("field", kind, array)])
        array.view(np.uint8 if array.itemsize == 1 else array.dtype)[2] = bad
        assert refusals(encoder.encode_into, np.zeros(1000, np.uint8), 0) == [(2, "field", code)]


BAD_ARGUMENTS = [
    ("vector", np.ones((2, 3)), "wrong_dtype"), ("vector", np.ones((2, 3), ">f4"), "wrong_dtype"),
    ("vector", np.ones((2, 3), object), "wrong_dtype"), ("vector", np.ones(2, np.float32), "wrong_shape"),
    ("vector", np.float32(1), "wrong_type"), ("vector", np.ones((), np.float32), "wrong_shape"),
    ("vector", np.ones((3, 2), np.float32).T, "wrong_layout"),
    ("vector", np.ones((4, 3), np.float32)[::2], "wrong_layout"),
    ("vector", np.frombuffer(b"\0" * 25, np.uint8)[1:].view(np.float32).reshape(2, 3), "wrong_layout"),
    ("int4", np.ones(2, np.int32), "wrong_dtype"),
    ("uuid", np.ones((2, 15), np.uint8), "wrong_shape"),
    ("bool", np.ones(2, np.uint8), "wrong_dtype"),
    ("bit", np.ones((2, 3), np.int64), "wrong_dtype"),
    ("text", np.array(["a", "b"]), "wrong_type"), ("text", "ab", "wrong_type"),
    ("sparsevec", [None, None], "wrong_type"), ("sparsevec", (0, [None, None]), "wrong_dimension"),
    ("sparsevec", (10**9 + 1, [None, None]), "wrong_dimension"), ("sparsevec", ("9", [None, None]), "wrong_type"),
    ("json", ["a", "b"], "unknown_type"),
    ("vector[]", [[], []], "unknown_type"),
]  # fmt: skip


def test_arrays_and_types_are_checked_like_lists():
    columns = [
        ("small", "int2", np.array([0, 2**15, -(2**15) - 1])),
        ("middle", "int4", np.array([2**31, 0, 0])),
        ("when", "timestamptz", np.array([0, 2**63 - 1, -(2**63)])),
        ("flags", "bit", np.array([[0, 1], [2, 0], [0, 255]], np.uint8)),
        ("truth", "bool", np.array([0, 1, 2], np.uint8).view(np.bool_)),
    ]
    assert refusals(CopyEncoder, columns) == [
        (0, "middle", "out_of_range"),
        (1, "small", "out_of_range"), (1, "when", "out_of_range"), (1, "flags", "not_binary"),
        (2, "small", "out_of_range"), (2, "when", "out_of_range"), (2, "flags", "not_binary"),
        (2, "truth", "not_binary"),
    ]  # fmt: skip
    assert refusals(CopyEncoder, [("a", "text", ["x"]), ("b", "text", ["x", "y"])]) == [(-1, "b", "length_differs")]
    assert refusals(CopyEncoder, [("a", "text", ["x"])], ["1", "2"]) == [(-1, "ids", "length_differs")]
    assert refusals(CopyEncoder, [("a", "text", ["x"])], "1") == [(-1, "ids", "wrong_type")]
    columns = [("id", "text", ["a", "b"]), ("size", "int4", [1]), ("when", "timestamptz", [NOW, "now"])]
    found = {(field, code) for _, field, code in refusals(CopyEncoder, columns)}
    assert {("size", "length_differs"), ("when", "wrong_type")} <= found
    for shape in ((6, 4), (2, 6), (4, 3)):
        vectors = np.ones((4, 6), np.float32)
        encoder = CopyEncoder([("v", "vector", vectors)])
        vectors.resize(shape, refcheck=False)
        assert refusals(encoder.encode_into, np.zeros(1000, np.uint8), 0) == [(-1, "v", "wrong_shape")]
    (column,) = decode_copy(written([("v", "halfvec", float32([65504.0, 65519.99, -65519.99]))]), ["halfvec"])
    assert column[0].tolist() == [65504.0, 65504.0, -65504.0]
    values = [np.float32(0.5), np.float64(0.1), np.float16(2), np.int64(3), 4, 0.5]
    assert decode_copy(written([("n", "float8", values)]), ["float8"]) == [[0.5, 0.1, 2.0, 3.0, 4.0, 0.5]]
    for decode in (decode_copy, decode_copy_buffers):
        assert refusals(decode, b"", ["json"]) == [(-1, "json", "unknown_type")]
    with pytest.raises(TypeError, match="sparsevec"):
        decode_copy_buffers(written([("s", "text", [])]), ["sparsevec"])


def test_messages_are_complete_and_hold_no_value():
    columns = [
        ("a", "int2", [1, 99_999, None]), ("b", "text", ["\0", SURROGATE, 3]), ("c", "jsonb", [{1: 2}, None, {}]),
    ]  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns, ids=["i" * 500, SURROGATE, "third"])
    assert [(error.row, error.id, error.field, error.code) for error in caught.value.errors] == [
        (0, "i" * 80, "b", "nul"), (0, "i" * 80, "c", "key_not_string"),
        (1, None, "a", "out_of_range"), (1, None, "b", "lone_surrogate"),
        (2, "third", "b", "wrong_type"),
    ]  # fmt: skip
    secret = "sEcReT"  # noqa: S105
    kinds = {"text": secret + "\0", "text[]": [secret + "\ud800"], "jsonb": {secret: {secret}}, "bit": secret}
    columns = [(kind, kind, [value]) for kind, value in {**kinds, "int2": 123456}.items()]
    columns.append(("d", "jsonb", [{secret + "\0": secret}]))
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns)
    assert len(caught.value.errors) == len(columns)
    others = validate_rows([("v", "vector", float32([123456.0, math.nan]), None)], None)
    messages = f"{caught.value}{caught.value.errors!r}{others!r}"
    assert secret not in messages
    assert "123456" not in messages
    reached = {code for _, code, *_ in BAD_VALUES} | {code for *_, code in BAD_ARGUMENTS}
    for fields in (
        [("v", "vector", float32([0], [1e-30]), {"dimension": 1})], [("t", "text", ["", None], {"min_chars": 1})],
        [("i", "id", [""], None)], [("a", "text", [], None), ("b", "text", [""], None)],
    ):  # fmt: skip
        reached |= {error[3] for error in validate_rows(fields, None)}
    reached |= {error[3] for error in validate_identifier("pg_!")}
    reached |= {code for *_, code in refusals(decode_copy, b"", [])}
    assert reached == set(ERROR_CODES)
    assert all(re.fullmatch(r"[a-z_]+", code) and len(meaning) > 10 for code, meaning in ERROR_CODES.items())


def test_positions_and_buffers():
    encoder = CopyEncoder([("v", "vector", np.ones((9, 4), np.float32))])
    buffer = np.zeros(encoder.largest_row, np.uint8)
    for wrong in (1, -1, 10, 11, -(2**63)):
        with pytest.raises(ValueError, match="position"):
            encoder.encode_into(buffer, wrong)
    position, _ = encoder.encode_into(buffer, 0)
    assert position == 1
    assert encoder.encode_into(buffer, 0)[0] == 1  # starting again is allowed
    while position <= encoder.rows:
        position, _ = encoder.encode_into(buffer, position)
    with pytest.raises(ValueError, match="complete"):
        encoder.encode_into(buffer, position)
    encoder = CopyEncoder([("v", "vector", np.ones((9, 4), np.float32))])
    fixed, shared = np.zeros(500, np.uint8), np.zeros((40, 16), np.uint8)
    fixed.flags.writeable = False
    for wrong, error, message in (
        (np.zeros(20, np.uint8), ValueError, "needs"),
        (fixed, ValueError, "buffer"),
        (np.zeros(1000, np.uint8)[::2], ValueError, "buffer"),
        *((one, TypeError, "buffer: expected") for one in (np.zeros(500), shared, bytearray(500))),
    ):
        with pytest.raises(error, match=message):
            encoder.encode_into(wrong, 0)
    with pytest.raises((ValueError, ValidationError)):
        CopyEncoder([("u", "uuid", shared)]).encode_into(shared.reshape(-1), 0)


def test_a_writer_in_another_thread_breaks_nothing():
    """While one thread flips a component between 1 and NaN, every block is either refused or free of NaN."""
    vectors = np.ones((64, 256), np.float32)
    buffer = np.zeros(1 << 20, np.uint8)
    stop = threading.Event()

    def flip():
        while not stop.is_set():
            vectors[31, 100] = math.nan
            vectors[31, 100] = 1

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        encoder, outcomes = CopyEncoder([("v", "vector", vectors)]), 0
        for _ in range(300):
            try:
                _, written = encoder.encode_into(buffer, 0)
            except ValidationError:
                outcomes += 1
                continue
            decode_copy(buffer[:written].tobytes(), ["vector"])  # refuses NaN
            outcomes += 1
    finally:
        stop.set()
        thread.join()
    assert outcomes == 300


@given(st.binary(max_size=80), st.sampled_from(["text[]", "vector", "sparsevec", "jsonb", "timestamptz", "bit"]))
def test_no_bytes_do_more_than_refuse(data, kind):
    stream = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1" + data
    try:
        decode_copy(stream, [kind])
    except ValidationError as error:
        codes = {found.code for found in error.errors}
    except json.JSONDecodeError:
        codes = {"malformed_copy"} if kind == "jsonb" else {"JSON in another type"}
    else:
        codes = {"malformed_copy"}
    assert codes == {"malformed_copy"}


def written(columns):
    buffer = np.empty(65_536, np.uint8)
    encoder = CopyEncoder(columns)
    place, pieces = 0, []
    while place <= len(columns[0][2]):
        place, size = encoder.encode_into(buffer, place)
        pieces.append(buffer[:size].tobytes())
    return b"".join(pieces)


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
HALVES = st.lists(st.floats(-9, 9, width=16), min_size=3, max_size=3).map(lambda values: float32(*values))
BUFFERED = {
    "text": TEXTS, "bytea": st.binary(max_size=8), "bool": st.booleans(), "uuid": st.uuids(),
    "int2": st.integers(-(2**15), 2**15 - 1), "int8": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(allow_nan=False), "text[]": st.lists(st.none() | TEXTS, max_size=3),
    "int4[]": st.lists(st.none() | st.integers(-9, 9), max_size=3), "vector": HALVES, "halfvec": HALVES,
}  # fmt: skip


def out_of_buffers(kind, column):
    """The values of a column of buffers, one by one."""
    nulls, offsets, values = column
    width = 16 if kind == "uuid" else 1
    count = len(values) // width if offsets is None else len(offsets) - 1
    if offsets is None:
        offsets = np.arange(count + 1) * width
    assert nulls is None or (nulls.shape == (count,) and nulls.any())
    if kind.endswith("[]"):
        values = out_of_buffers(kind.removesuffix("[]"), values)
    found = []
    for row in range(count):
        piece = values[offsets[row] : offsets[row + 1]]
        if nulls is not None and nulls[row]:
            found.append(None)
        elif kind == "text":
            found.append(piece.tobytes().decode())
        elif kind == "bytea":
            found.append(piece.tobytes())
        elif kind == "uuid":
            found.append(uuid.UUID(bytes=piece.tobytes()))
        elif kind in ("vector", "halfvec") or kind.endswith("[]"):
            found.append(list(piece))
        else:
            found.append(piece[0].item())
    return found


@pytest.mark.parametrize("kind", BUFFERED)
@given(st.data())
def test_buffers_hold_what_lists_do(kind, data):
    sent = data.draw(st.lists(st.none() | BUFFERED[kind], max_size=6))
    stream = written([("a", kind, sent)])
    (expected,) = decode_copy(stream, [kind])
    (column,) = decode_copy_buffers(stream, [kind])
    plain = [value if value is None or kind not in ("vector", "halfvec") else list(value) for value in expected]
    assert out_of_buffers(kind, column) == plain


MOMENTS = st.none() | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5)), None]))


def encoded_times(moments):
    try:
        return written([("when", "timestamptz", moments)])
    except ValidationError as error:
        return [(one.row, one.code) for one in error.errors]


@given(st.lists(MOMENTS, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=12))
def test_one_time_in_many_rows_is_a_time_in_each(moments, rows):
    same = [moments[row % len(moments)] for row in rows]
    apart = [moment and moment.replace() for moment in same]  # an object each
    assert encoded_times(same) == encoded_times(apart)


# --- rows and names, judged before they are encoded -------------------------------------------------------------------

F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)


def vector_twin(values, dimension):
    wrong = dimension not in (None, len(values)) or not 1 <= len(values) <= 16_000
    codes = ["wrong_dimension"] if wrong else []
    squares = math.fsum(value * value for value in values if math.isfinite(value))
    if not all(map(math.isfinite, values)):
        codes.append("not_finite")
    elif values and not any(values):
        codes.append("all_zero")
    elif values and not F32_MIN <= squares <= F32_MAX:
        codes.append("norm_out_of_range")
    return codes


COMPONENTS = st.floats(width=32) | st.sampled_from([0.0, 1e-30, 3e38, 1e-19, 1e19])


@given(st.lists(st.lists(COMPONENTS, max_size=12), max_size=5), st.none() | st.integers(0, 12))
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
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return ["lone_surrogate"]
    checks = {"nul": "\0" in text, "too_short": len(text) < min_chars, "too_long": len(text.encode()) > max_bytes}
    return [code for code, broken in checks.items() if broken]


ODD_TEXTS = st.text(st.characters() | st.sampled_from("\0\ud800é漢🙂"), max_size=12)


@given(st.lists(ODD_TEXTS), st.integers(0, 9), st.integers(0, 20))
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
        ("json", None), ("text", {"max_chars": 5}), ("text", {"max_bytes": -1}), ("jsonb", {"max_depth": 65}),
        ("jsonb", {"max_bytes": 2**30}), ("id", {1: 2}),
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
    ids = {row: "r" * 80 if row == 6 else f"r{row}" for row in expected}
    assert [one[:4] for one in found] == [(row, ids[row], *error) for row in ids for error in expected[row].items()]

    level, name = enum.IntEnum("level", {"HIGH": 3, "HUGE": 2**70}), type("name", (str,), {})
    value = OrderedDict([(name("b"), level.HIGH), ("a", (np.float64(0.5), True, level.HUGE))])
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
