"""Every refusal of the encoder: where, under which code; and that nothing of the value is in the message."""

import json
import math
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex._core import ERROR_CODES, CopyEncoder, decode_copy, decode_copy_buffers, validate_identifier, validate_rows
from semlex.errors import ValidationError
from tests.support.refused_rows import nested, refusals

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SURROGATE = "ab\ud800"


def int32(*values):
    return np.array(values, dtype=np.int32)


def float32(*values):
    return np.array(values, dtype=np.float32)


BAD_VALUES = [
    ("int2", 2**15, "out_of_range"),
    ("int2", -(2**15) - 1, "out_of_range"),
    ("int4", 2**31, "out_of_range"),
    ("int8", 2**63, "out_of_range"),
    ("int8", -(1 << 10_000), "out_of_range"),
    ("int4", True, "wrong_type"),
    ("int4", 1.0, "wrong_type"),
    ("int4", "1", "wrong_type"),
    ("float4", 1e39, "out_of_range"),
    ("float8", 2**53 + 1, "out_of_range"),
    ("float8", False, "wrong_type"),
    ("float8", "1", "wrong_type"),
    ("float8", Decimal("0.1"), "wrong_type"),
    ("float4", Fraction(1, 3), "wrong_type"),
    ("float8", np.int64(2**53 + 1), "out_of_range"),
    ("bool", 1, "wrong_type"),
    ("text", "a\0", "nul"),
    ("text", SURROGATE, "lone_surrogate"),
    ("text", b"a", "wrong_type"),
    ("bytea", "a", "wrong_type"),
    ("uuid", b"short", "wrong_type"),
    ("uuid", "0" * 32, "wrong_type"),
    ("timestamptz", datetime(2026, 1, 2), "naive_timestamp"),  # noqa: DTZ001
    ("timestamptz", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "out_of_range"),
    ("timestamptz", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))), "out_of_range"),
    ("timestamptz", "2026-01-02", "wrong_type"),
    ("jsonb", {"a": math.nan}, "not_finite"),
    ("jsonb", {"a": -math.inf}, "not_finite"),
    ("jsonb", {"a\0": 1}, "nul"),
    ("jsonb", ["\0"], "nul"),
    ("jsonb", {SURROGATE: 1}, "lone_surrogate"),
    ("jsonb", {"a": SURROGATE}, "lone_surrogate"),
    ("jsonb", {1: 2}, "key_not_string"),
    ("jsonb", {"a": {1, 2}}, "unsupported_type"),
    ("jsonb", NOW, "unsupported_type"),
    ("jsonb", nested(65), "too_deep"),
    ("jsonb", nested(100_000), "too_deep"),
    ("jsonb", "x" * 2**20, "too_long"),
    ("jsonb", 10**4300, "out_of_range"),
    ("jsonb", -(10**4300), "out_of_range"),
    ("vector", [1.0, 2.0], "wrong_type"),
    ("vector", np.ones(3), "wrong_dtype"),
    ("vector", np.ones((1, 3), np.float32), "wrong_shape"),
    ("vector", np.ones(6, np.float32)[::2], "wrong_layout"),
    ("vector", np.ones(0, np.float32), "wrong_dimension"),
    ("halfvec", np.ones(16_001, np.float32), "wrong_dimension"),
    ("bit", "012", "not_binary"),
    ("bit", 5, "wrong_type"),
    ("text[]", "ab", "wrong_type"),
    ("text[]", ["a", None, "\0"], "nul"),
    ("text[]", ["a", SURROGATE], "lone_surrogate"),
    ("int2[]", [1, 40_000], "out_of_range"),
    ("uuid[]", [uuid.UUID(int=1), 1], "wrong_type"),
    ("sparsevec", 3, "wrong_type"),
    ("sparsevec", (int32(1, 1), float32(1, 1)), "not_ascending"),
    ("sparsevec", (int32(2, 1), float32(1, 1)), "not_ascending"),
    ("sparsevec", (int32(-1), float32(1)), "out_of_range"),
    ("sparsevec", (int32(9), float32(1)), "out_of_range"),
    ("sparsevec", (int32(1), float32(0)), "zero_value"),
    ("sparsevec", (int32(1), float32(math.nan)), "not_finite"),
    ("sparsevec", (int32(1, 2), float32(1)), "wrong_dimension"),
    ("sparsevec", (np.array([1]), float32(1)), "wrong_dtype"),
]


def test_bad_values_are_refused_at_their_places_and_again_when_copied():
    for kind, value, code in BAD_VALUES:
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
    assert refusals(decode_copy, b"", ["json"]) == [(-1, "json", "unknown_type")]
    assert refusals(decode_copy_buffers, b"", ["json"]) == [(-1, "json", "unknown_type")]
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
    kinds = {
        "text": secret + "\0", "text[]": [secret + "\ud800"], "jsonb": {secret: {secret}}, "bit": secret, "int2": 123456
    }  # fmt: skip
    columns = [(kind, kind, [value]) for kind, value in kinds.items()] + [("d", "jsonb", [{secret + "\0": secret}])]
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns)
    assert len(caught.value.errors) == len(columns)
    others = validate_rows([("v", "vector", float32([123456.0, math.nan]), None)], None)
    messages = f"{caught.value}{caught.value.errors!r}{others!r}"
    assert secret not in messages
    assert "123456" not in messages
    reached = {code for *_, code in BAD_VALUES + BAD_ARGUMENTS}
    reached |= {
        error[3]
        for fields in (
            [("v", "vector", float32([0], [1e-30]), {"dimension": 1})],
            [("t", "text", ["", None], {"min_chars": 1})],
            [("i", "id", [""], None)],
            [("a", "text", [], None), ("b", "text", [""], None)],
        )
        for error in validate_rows(fields, None)
    }
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
        *(
            (one, TypeError, "buffer: expected")
            for one in (np.zeros(500), np.zeros((5, 100), np.uint8), bytearray(500))
        ),
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
    """The stream of columns."""
    buffer = np.empty(65_536, np.uint8)
    encoder = CopyEncoder(columns)
    place, pieces = 0, []
    while place <= len(columns[0][2]):
        place, size = encoder.encode_into(buffer, place)
        pieces.append(buffer[:size].tobytes())
    return b"".join(pieces)


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
BUFFERED = {
    "text": TEXTS,
    "bytea": st.binary(max_size=8),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
    "text[]": st.lists(st.none() | TEXTS, max_size=3),
    "int4[]": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "vector": st.lists(st.floats(-9, 9, width=16), min_size=3, max_size=3).map(lambda values: float32(*values)),
    "halfvec": st.lists(st.floats(-9, 9, width=16), min_size=3, max_size=3).map(lambda values: float32(*values)),
}


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
    """The stream, or the errors."""
    try:
        return written([("when", "timestamptz", moments)])
    except ValidationError as error:
        return [(one.row, one.code) for one in error.errors]


@given(st.lists(MOMENTS, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=12))
def test_one_time_in_many_rows_is_a_time_in_each(moments, rows):
    same = [moments[row % len(moments)] for row in rows]
    apart = [moment and moment.replace() for moment in same]  # an object each
    assert encoded_times(same) == encoded_times(apart)
