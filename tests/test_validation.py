"""Every refusal: what is refused, where, under which code; and that nothing of the value is in the message."""

from __future__ import annotations

import enum
import json
import math
import re
import threading
import uuid
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex._core import (
    ERROR_CODES,
    CopyEncoder,
    decode_copy,
    to_json,
    validate_identifier,
    validate_rows,
)
from semlex.errors import ValidationError

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SURROGATE = "ab\ud800"
F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)


def int32(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def float32(*values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusals(call: Any, *arguments: Any) -> list[tuple[int, str, str]]:
    """(row, field, code) of all errors that the call raises."""
    with pytest.raises(ValidationError) as caught:
        call(*arguments)
    return [(error.row, error.field, error.code) for error in caught.value.errors]


# ---- CopyEncoder: one bad value of every kind ----

BAD_VALUES: list[tuple[str, Any, str]] = [
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


@pytest.mark.parametrize(
    ("kind", "value", "code"), BAD_VALUES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_bad_value_is_refused_at_its_place(kind: str, value: Any, code: str) -> None:
    data: Any = [None, value, None]
    columns = [("good", "text", ["a", "b", "c"]), ("bad", kind, (9, data) if kind == "sparsevec" else data)]
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns, ids=["one", "two", "three"])
    (error,) = caught.value.errors
    assert (error.row, error.id, error.field, error.code) == (1, "two", "bad", code)


BAD_ARGUMENTS: list[tuple[str, Any, str]] = [
    ("vector", np.ones((2, 3)), "wrong_dtype"),
    ("vector", np.ones((2, 3), ">f4"), "wrong_dtype"),
    ("vector", np.ones((2, 3), object), "wrong_dtype"),
    ("vector", np.ones(2, np.float32), "wrong_shape"),
    ("vector", np.float32(1), "wrong_type"),
    ("vector", np.ones((), np.float32), "wrong_shape"),
    ("vector", np.ones((3, 2), np.float32).T, "wrong_layout"),
    ("vector", np.ones((4, 3), np.float32)[::2], "wrong_layout"),
    ("vector", np.frombuffer(b"\0" * 25, np.uint8)[1:].view(np.float32).reshape(2, 3), "wrong_layout"),
    ("int4", np.ones(2, np.int32), "wrong_dtype"),
    ("uuid", np.ones((2, 15), np.uint8), "wrong_shape"),
    ("bool", np.ones(2, np.uint8), "wrong_dtype"),
    ("bit", np.ones((2, 3), np.int64), "wrong_dtype"),
    ("text", np.array(["a", "b"]), "wrong_type"),
    ("text", "ab", "wrong_type"),
    ("sparsevec", [None, None], "wrong_type"),
    ("sparsevec", (0, [None, None]), "wrong_dimension"),
    ("sparsevec", (10**9 + 1, [None, None]), "wrong_dimension"),
    ("sparsevec", ("9", [None, None]), "wrong_type"),
    ("json", ["a", "b"], "unknown_type"),
    ("vector[]", [[], []], "unknown_type"),
]


@pytest.mark.parametrize(("kind", "data", "code"), BAD_ARGUMENTS)
def test_a_bad_argument_is_refused_as_a_whole(kind: str, data: Any, code: str) -> None:
    assert refusals(CopyEncoder, [("bad", kind, data)]) == [(-1, "bad", code)]


def test_an_array_is_described_with_what_was_expected() -> None:
    with pytest.raises(ValidationError, match=re.escape("limit float32 (n, d), found float64 (2, 3)")):
        CopyEncoder([("embedding", "vector", np.ones((2, 3)))])


def test_numbers_in_arrays_are_checked_too() -> None:
    columns = [
        ("small", "int2", np.array([0, 2**15, -(2**15) - 1])),
        ("middle", "int4", np.array([2**31, 0, 0])),
        ("when", "timestamptz", np.array([0, 2**63 - 1, -(2**63)])),
        ("flags", "bit", np.array([[0, 1], [2, 0], [0, 255]], np.uint8)),
        ("truth", "bool", np.array([0, 1, 2], np.uint8).view(np.bool_)),
    ]
    assert refusals(CopyEncoder, columns) == [
        (0, "middle", "out_of_range"),
        (1, "small", "out_of_range"),
        (1, "when", "out_of_range"),
        (1, "flags", "not_binary"),
        (2, "small", "out_of_range"),
        (2, "when", "out_of_range"),
        (2, "flags", "not_binary"),
        (2, "truth", "not_binary"),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("vector", math.nan, "not_finite"),
        ("vector", math.inf, "not_finite"),
        ("halfvec", math.nan, "not_finite"),
        ("halfvec", 65520.0, "out_of_range"),
        ("halfvec", -65520.0, "out_of_range"),
    ],
)
def test_components_are_checked_in_the_pass_that_copies(kind: str, value: float, code: str) -> None:
    vectors = np.ones((5, 40), np.float32)
    encoder = CopyEncoder([("v", kind, vectors)], ids=list("abcde"))
    vectors[3, 17] = value  # after construction, as another thread would
    buffer = np.zeros(10_000, np.uint8)
    with pytest.raises(ValidationError) as caught:
        encoder.encode_into(buffer, 0)
    (error,) = caught.value.errors
    assert (error.row, error.id, error.field, error.code, error.actual) == (3, "d", "v", code, "component 17")


def test_the_largest_halves_are_accepted() -> None:
    encoder = CopyEncoder([("v", "halfvec", float32([65504.0, 65519.99, -65519.99]))])
    buffer = np.zeros(encoder.largest_row, np.uint8)
    _, written = encoder.encode_into(buffer, 0)
    (column,) = decode_copy(buffer[:written].tobytes(), ["halfvec"])
    assert column[0].tolist() == [65504.0, 65504.0, -65504.0]


def test_an_array_reshaped_in_place_is_refused() -> None:
    vectors = np.ones((4, 6), np.float32)
    encoder = CopyEncoder([("v", "vector", vectors)])
    vectors.resize((6, 4), refcheck=False)
    assert refusals(encoder.encode_into, np.zeros(1000, np.uint8), 0) == [(-1, "v", "wrong_shape")]


def test_lengths_must_agree() -> None:
    assert refusals(CopyEncoder, [("a", "text", ["x"]), ("b", "text", ["x", "y"])]) == [(-1, "b", "length_differs")]
    assert refusals(CopyEncoder, [("a", "text", ["x"])], ["1", "2"]) == [(-1, "ids", "length_differs")]
    assert refusals(CopyEncoder, [("a", "text", ["x"])], "1") == [(-1, "ids", "wrong_type")]


def test_all_errors_of_all_rows_come_at_once_and_ids_are_shortened() -> None:
    columns = [
        ("a", "int2", [1, 99_999, None]),
        ("b", "text", ["\0", SURROGATE, 3]),
        ("c", "jsonb", [{1: 2}, None, {}]),
    ]
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns, ids=["i" * 500, SURROGATE, "third"])
    found = [(error.row, error.id, error.field, error.code) for error in caught.value.errors]
    assert found == [
        (0, "i" * 80, "b", "nul"),
        (0, "i" * 80, "c", "key_not_string"),
        (1, None, "a", "out_of_range"),
        (1, None, "b", "lone_surrogate"),
        (2, "third", "b", "wrong_type"),
    ]


# ---- encode_into: order, buffers, threads ----


def test_positions_must_follow_one_another() -> None:
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


def test_buffers_must_be_usable() -> None:
    encoder = CopyEncoder([("v", "vector", np.ones((9, 4), np.float32))])
    with pytest.raises(ValueError, match="needs"):
        encoder.encode_into(np.zeros(20, np.uint8), 0)
    fixed = np.zeros(500, np.uint8)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="buffer"):
        encoder.encode_into(fixed, 0)
    with pytest.raises(ValueError, match="buffer"):
        encoder.encode_into(np.zeros(1000, np.uint8)[::2], 0)
    unusable: list[Any] = [np.zeros(500), np.zeros((5, 100), np.uint8), bytearray(500)]
    for wrong in unusable:
        with pytest.raises(TypeError, match="buffer: expected"):
            encoder.encode_into(wrong, 0)
    shared = np.zeros((40, 16), np.uint8)
    with pytest.raises((ValueError, ValidationError)):
        CopyEncoder([("u", "uuid", shared)]).encode_into(shared.reshape(-1), 0)


def test_a_writer_in_another_thread_breaks_nothing() -> None:
    """While one thread flips a component between 1 and NaN, every block is either refused or free of NaN."""
    vectors = np.ones((64, 256), np.float32)
    buffer = np.zeros(1 << 20, np.uint8)
    stop = threading.Event()

    def flip() -> None:
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


# ---- decode_copy ----


@given(st.binary(max_size=80), st.sampled_from(["text[]", "vector", "sparsevec", "jsonb", "timestamptz", "bit"]))
def test_no_bytes_do_more_than_refuse(data: bytes, kind: str) -> None:
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


def test_an_unknown_type_is_refused() -> None:
    assert refusals(decode_copy, b"", ["json"]) == [(-1, "json", "unknown_type")]


# ---- JSON ----

json_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def json_values(*leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    leaf = st.one_of(st.none(), st.booleans(), st.integers(), json_texts, *leaves)
    return st.recursive(leaf, lambda inner: st.lists(inner) | st.dictionaries(json_texts, inner))


@given(json_values(st.floats(allow_nan=False, allow_infinity=False)))
def test_json_reads_back(value: Any) -> None:
    read = json.loads(to_json(value))
    assert read == value
    assert repr(read) == repr(value)  # 1 is not 1.0, and -0.0 is not 0.0


@given(json_values())
def test_json_is_what_the_standard_library_writes(value: Any) -> None:
    """But for floats, whose exponents have more than one form."""
    assert to_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_subclasses_are_written_as_what_they_are() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    class Huge(enum.IntEnum):
        HIGH = 2**70

    class Name(str):
        __slots__ = ()

    value = OrderedDict([(Name("b"), Level.HIGH), ("a", (np.float64(0.5), True, Huge.HIGH))])
    assert to_json(value) == b'{"b":3,"a":[0.5,true,1180591620717411303424]}'


def test_json_at_its_bounds() -> None:
    assert to_json(nested(64)) == b"[" * 64 + b"]" * 64
    assert len(to_json("x" * (2**20 - 2))) == 2**20
    assert to_json(10**4299) == b"1" + b"0" * 4299
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    assert refusals(to_json, cycle) == [(-1, "value", "too_deep")]
    assert refusals(to_json, np.float32(1)) == [(-1, "value", "unsupported_type")]


# ---- validate_rows, with its slow twin ----


def vector_twin(values: list[float], dimension: int | None) -> list[str]:
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
def test_vectors_are_judged_as_by_the_twin(rows: list[list[float]], dimension: int | None) -> None:
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


def text_twin(text: str, min_chars: int, max_bytes: int) -> list[str]:
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
def test_texts_are_judged_as_by_the_twin(texts: list[str], min_chars: int, max_bytes: int) -> None:
    limits = {"min_chars": min_chars, "max_bytes": max_bytes}
    found = validate_rows([("t", "text", texts, limits)], None)
    expected = [(row, code) for row, text in enumerate(texts) for code in text_twin(text, min_chars, max_bytes)]
    assert [(row, code) for row, _, _, code, _, _ in found] == expected
    for row, _, _, code, _, actual in found:
        if code in {"nul", "lone_surrogate"}:
            assert actual is not None
            place = int(actual.removeprefix("character "))
            assert texts[row][place] == "\0" or "\ud800" <= texts[row][place] <= "\udfff"


def test_all_kinds_at_once_in_row_order() -> None:
    fields = [
        ("id", "id", ["a", "", "i" * 513, "n\0", SURROGATE, None, 7], None),
        ("content", "text", ["ok", "x", None, "ok", "ok", "ok", b""], {"min_chars": 2, "max_bytes": 4}),
        ("metadata", "jsonb", [{}, {"a": math.nan}, None, nested(65), [], {}, {}], {"nullable": True}),
        ("made", "timestamptz", [NOW, NOW, NOW, datetime(2026, 1, 2), NOW, None, 3], None),  # noqa: DTZ001
        ("half", "halfvec", float32([1], [1e-9], [65520], [0], [1], [1], [1]), {"dimension": 1}),
    ]
    found = validate_rows(fields, ["r0", "r1", "r2", "r3", "r4", "r5", "r" * 90])
    assert [(row, ident, field, code) for row, ident, field, code, _, _ in found] == [
        (1, "r1", "id", "blank"),
        (1, "r1", "content", "too_short"),
        (1, "r1", "metadata", "not_finite"),
        (1, "r1", "half", "all_zero"),  # after rounding to float16
        (2, "r2", "id", "too_long"),
        (2, "r2", "content", "missing"),
        (2, "r2", "half", "out_of_range"),
        (3, "r3", "id", "nul"),
        (3, "r3", "metadata", "too_deep"),
        (3, "r3", "made", "naive_timestamp"),
        (3, "r3", "half", "all_zero"),
        (4, "r4", "id", "lone_surrogate"),
        (5, "r5", "id", "missing"),
        (5, "r5", "made", "missing"),
        (6, "r" * 80, "id", "wrong_type"),
        (6, "r" * 80, "content", "wrong_type"),
        (6, "r" * 80, "made", "wrong_type"),
    ]


def test_unequal_lengths_are_one_error_of_the_call() -> None:
    found = validate_rows([("a", "text", ["x", "y"], None), ("b", "text", ["x"], None)], ["1", "2"])
    assert found == [(-1, None, "b", "length_differs", "2", "1")]


def test_ids_at_their_bound() -> None:
    assert validate_rows([("id", "id", ["i" * 512, "é" * 256], None)], None) == []
    assert [error[3:] for error in validate_rows([("id", "id", ["é" * 257], None)], None)] == [
        ("too_long", "512 bytes", "514 bytes")
    ]


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("json", None),
        ("text", {"max_chars": 5}),
        ("text", {"max_bytes": -1}),
        ("jsonb", {"max_depth": 65}),
        ("jsonb", {"max_bytes": 2**30}),
        ("id", {1: 2}),
    ],
)
def test_a_wrong_limit_is_a_programming_error(kind: str, limits: Any) -> None:
    with pytest.raises(ValueError, match="field"):
        validate_rows([("field", kind, ["a"], limits)], None)


@given(st.text(st.sampled_from("ab_09pgZ-é\n "), max_size=60) | st.from_regex(r"\A[a-z_][a-z0-9_]{40,50}\Z"))
def test_identifiers_are_judged_as_by_the_twin(name: str) -> None:
    good = re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) is not None and not name.startswith("pg_")
    assert (validate_identifier(name) == []) == good


def test_identifiers_report_every_rule() -> None:
    codes = [error[3] for error in validate_identifier("pg_É" + "x" * 60)]
    assert codes == ["bad_identifier", "too_long", "reserved_name"]
    assert [error[3] for error in validate_identifier(SURROGATE)] == ["lone_surrogate"]
    not_text: Any = 3
    assert [error[3] for error in validate_identifier(not_text)] == ["wrong_type"]


# ---- codes, and what a message must not hold ----


def test_every_code_is_documented_and_reachable() -> None:
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


def test_no_message_holds_the_value() -> None:
    secret = "sEcReT"  # noqa: S105
    vectors = float32([123456.0, math.nan])
    columns = [
        ("a", "text", [secret + "\0"]),
        ("b", "text[]", [[secret + "\ud800"]]),
        ("c", "jsonb", [{secret: {secret}}]),
        ("d", "jsonb", [{secret + "\0": secret}]),
        ("e", "bit", [secret]),
        ("f", "int2", [123456]),
    ]
    with pytest.raises(ValidationError) as caught:
        CopyEncoder(columns)
    assert len(caught.value.errors) == len(columns)
    messages = (
        str(caught.value) + repr(caught.value.errors) + repr(validate_rows([("v", "vector", vectors, None)], None))
    )
    assert secret not in messages
    assert "123456" not in messages
