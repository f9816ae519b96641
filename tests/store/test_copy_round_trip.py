"""Binary COPY through a real server: our bytes are the server's own bytes, and our values come back."""

from __future__ import annotations

import math
import random
import string
import uuid
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex._core import CopyEncoder, decode_copy, validate_rows
from tests.support.properties import examples

SCALARS = ("int2", "int4", "int8", "float4", "float8", "bool", "text", "uuid", "timestamptz")
BITS = 11
SPARSE_DIMENSIONS = 500
FIRST = datetime(1, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MICROSECOND = 3_652_059 * 86_400 * 10**6 - 1  # of the years 1 to 9999, counted from the first
LETTERS = string.printable.replace("\0", "") + "äßéÿ€漢字कख🙂\u200f\x01\x7f\x85\ufeff\uffff"


def encode(columns, space=0):
    """The whole stream, written through one buffer that is reused."""
    encoder = CopyEncoder(columns)
    buffer = np.full(encoder.largest_row + space, 0xAA, dtype=np.uint8)
    position, blocks = 0, []
    while position <= encoder.rows:
        position, written = encoder.encode_into(buffer, position)
        blocks.append(buffer[:written].tobytes())
    return b"".join(blocks)


def create_table(connection, columns):
    names = {"bit": f"bit({BITS})"}
    fields = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(names.get(kind, kind))) for name, kind, _ in columns
    ]
    fields.append(sql.SQL("{} int8 GENERATED ALWAYS AS IDENTITY").format(sql.Identifier("ordinal")))
    connection.execute("DROP TABLE IF EXISTS rows")
    connection.execute(sql.SQL("CREATE TEMP TABLE rows ({})").format(sql.SQL(", ").join(fields)))


def copy_in(connection, columns, stream):
    cursor = connection.cursor()
    fields = sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in columns)
    with cursor.copy(sql.SQL("COPY rows ({}) FROM STDIN (FORMAT binary)").format(fields)) as copy:
        copy.write(stream)
    return cursor.rowcount


def copy_out(connection, names):
    fields = sql.SQL(", ").join(map(sql.Identifier, names))
    # Ordered: a heap may hold rows in another order than they came, a small one in the free end of an earlier page.
    statement = sql.SQL("COPY (SELECT {} FROM rows ORDER BY ordinal) TO STDOUT (FORMAT binary)").format(fields)
    with connection.cursor().copy(statement) as copy:
        return b"".join(copy)


def same(sent, received, kind):  # noqa: PLR0911 (one line a type)
    """Equality of one value, as far as the type keeps it."""
    if sent is None or received is None:
        return sent is received
    if isinstance(sent, list) and kind.endswith("[]"):
        pairs = zip(sent, received, strict=True)
        return all(same(left, right, kind[:-2]) for left, right in pairs)
    if kind in {"vector", "halfvec"}:
        return bool(np.array_equal(sent.view(np.uint32), received.view(np.uint32)))
    if kind == "sparsevec":
        pairs = zip((SPARSE_DIMENSIONS, *sent), received, strict=True)
        return all(np.array_equal(left, right) for left, right in pairs)
    if kind == "jsonb":
        return same_json(sent, received)
    if isinstance(sent, float) and math.isnan(sent):
        return isinstance(received, float) and math.isnan(received)
    return type(sent) is type(received) and sent == received


def same_json(sent, received):
    """Whether a value came back, and every number in it as what it was: whole or not."""
    if isinstance(sent, dict):
        return sent.keys() == received.keys() and all(same_json(sent[key], received[key]) for key in sent)
    if isinstance(sent, list):
        return len(sent) == len(received) and all(map(same_json, sent, received))
    return type(sent) is type(received) and sent == received


def through_the_server(connection, columns, rows, space):
    create_table(connection, columns)
    assert copy_in(connection, columns, encode(columns, space)) == rows
    plain = [column for column in columns if column[1] != "jsonb"]  # the server rewrites jsonb
    assert copy_out(connection, [name for name, _, _ in plain]) == encode(plain)
    received = decode_copy(copy_out(connection, [name for name, _, _ in columns]), [kind for _, kind, _ in columns])
    for (name, kind, sent), values in zip(columns, received, strict=True):
        data = sent[1] if kind == "sparsevec" else sent
        wrong = [row for row in range(rows) if not same(data[row], values[row], kind)]
        assert len(values) == rows, name
        assert not wrong, f"{name}: row {wrong[0]}"


# ---- values, by one seeded generator: hypothesis chooses the seed and the shape, so that tables can be large ----


def random_text(source):
    return "".join(source.choices(LETTERS, k=source.randrange(12)))


def random_float(source):
    return source.choice((0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, source.uniform(-1e6, 1e6)))


def random_instant(source):
    return FIRST + timedelta(microseconds=source.randint(0, LAST_MICROSECOND))


def random_components(source, dimension):
    return np.array([source.gauss(0, 1) for _ in range(dimension)], dtype=np.float32)


def random_half(source, dimension):
    return random_components(source, dimension).astype(np.float16).astype(np.float32)


def random_sparse(source):
    indices = np.array(sorted(source.sample(range(SPARSE_DIMENSIONS), source.randrange(6))), dtype=np.int32)
    return indices, (np.abs(random_components(source, len(indices))) + np.float32(0.5)).astype(np.float32)


def random_json(source, depth=3):
    match source.randrange(8 if depth else 6):
        case 0:
            return source.choice((None, True, False))
        case 1:
            return source.choice((0, -(2**63), 2**64 - 1, 2**64, -(10**40), source.randrange(1000)))
        case 2:
            return source.choice((0.5, 1.0, -1e-7, 1e16, 1e22, -1e23, 1e300, 5e-324, source.random()))
        case 3 | 4 | 5:
            return random_text(source)
        case 6:
            return [random_json(source, depth - 1) for _ in range(source.randrange(4))]
        case _:
            return {random_text(source): random_json(source, depth - 1) for _ in range(source.randrange(4))}


MAKERS = {
    "int2": lambda source: source.choice((-(2**15), 2**15 - 1, source.randint(-9, 9))),
    "int4": lambda source: source.choice((-(2**31), 2**31 - 1, source.randint(-9, 9))),
    "int8": lambda source: source.choice((-(2**63), 2**63 - 1, source.randint(-9, 9))),
    "float4": lambda source: float(np.float32(random_float(source))),
    "float8": random_float,
    "bool": lambda source: source.random() < 0.5,
    "text": random_text,
    "uuid": lambda source: uuid.UUID(int=source.getrandbits(128)),
    "timestamptz": random_instant,
    "bytea": lambda source: source.randbytes(source.randrange(20)),
    "jsonb": lambda source: random_json(source) if source.random() < 0.9 else {},
    "vector": lambda source: random_components(source, source.randrange(1, 8)),
    "halfvec": lambda source: random_half(source, source.randrange(1, 8)),
    "bit": lambda source: "".join(source.choices("01", k=BITS)),
    "sparsevec": random_sparse,
}


def random_column(source, kind, rows):
    nulls = source.choice((0.0, 0.1, 1.0))

    def value():
        if source.random() < nulls:
            return None
        if kind.endswith("[]"):
            make = MAKERS[kind[:-2]]
            return [None if source.random() < nulls / 2 else make(source) for _ in range(source.randrange(4))]
        made = MAKERS[kind](source)
        return {"value": None} if made is None else made  # None in the list would be NULL

    values = [value() for _ in range(rows)]
    return (SPARSE_DIMENSIONS, values) if kind == "sparsevec" else values


KINDS = (*MAKERS, *(f"{kind}[]" for kind in SCALARS))


@pytest.fixture
def connection(database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.slow
def test_lists_of_every_type(connection, full):
    """Rows of all types and all arrays, with NULLs in none, some or all of a column."""

    @settings(max_examples=5_000 if full else examples(20), deadline=None)
    @given(seed=st.integers(0, 2**32), space=st.sampled_from((0, 1, 1_000, 2**18)))
    def check(seed, space):
        source = random.Random(seed)
        rows = 1_500 if full else 250
        columns = [(f"f{place}", kind, random_column(source, kind, rows)) for place, kind in enumerate(KINDS)]
        through_the_server(connection, columns, rows, space)

    check()


def integers(generator, bits, rows):
    return generator.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), rows, dtype=np.int64)


@pytest.mark.slow
def test_arrays_of_every_type(connection, full):
    """The same through NumPy: a bulk load as it really is."""

    @settings(max_examples=2_500 if full else examples(10), deadline=None)
    @given(seed=st.integers(0, 2**32), dimension=st.integers(1, 70), space=st.sampled_from((0, 5_000, 2**18)))
    def check(seed, dimension, space):
        generator, rows = np.random.default_rng(seed), 4_000 if full else 1_000
        vectors = generator.standard_normal((rows, dimension), dtype=np.float32)
        micros = generator.integers(0, LAST_MICROSECOND, rows, dtype=np.int64) - (EPOCH - FIRST) // timedelta(
            microseconds=1
        )
        identifiers = generator.integers(0, 256, (rows, 16), dtype=np.uint8)
        bits = generator.integers(0, 2, (rows, BITS), dtype=np.uint8)
        columns = [
            ("a", "int2", integers(generator, 16, rows)),
            ("b", "int4", integers(generator, 32, rows)),
            ("c", "int8", integers(generator, 64, rows)),
            ("d", "float4", generator.standard_normal(rows, dtype=np.float32)),
            ("e", "float8", generator.standard_normal(rows)),
            ("f", "bool", generator.integers(0, 2, rows).astype(np.bool_)),
            ("g", "uuid", identifiers),
            ("h", "timestamptz", micros),
            ("i", "vector", vectors),
            ("j", "halfvec", vectors.astype(np.float16).astype(np.float32)),
            ("k", "bit", bits),
            ("l", "bit", bits.astype(np.bool_)),
        ]
        stream = encode(columns, space)
        create_table(connection, columns)
        assert copy_in(connection, columns, stream) == rows
        assert copy_out(connection, [name for name, _, _ in columns]) == stream
        received = dict(zip("abcdefghijkl", decode_copy(stream, [kind for _, kind, _ in columns]), strict=True))
        for name, _, sent in columns[:6]:
            assert received[name] == sent.tolist()
        assert received["g"] == [uuid.UUID(bytes=row.tobytes()) for row in identifiers]
        assert [(value - EPOCH) // timedelta(microseconds=1) for value in received["h"]] == micros.tolist()
        sent_by_name = {name: sent for name, _, sent in columns}
        for name in "ij":
            assert np.array_equal(np.stack(received[name]), sent_by_name[name])
        assert received["k"] == received["l"] == ["".join(map(str, row)) for row in bits.tolist()]

    check()


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
            st.none()
            | st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
            st.none() | st.binary(),
            st.none() | st.datetimes(timezones=st.timezones(), allow_imaginary=False),
            st.none() | st.floats(),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=20,
    ),
    space=st.integers(0, 200),
)
def test_chosen_values_without_a_server(rows, space):
    kinds = ("text", "text[]", "bytea", "timestamptz", "float8", "int8")
    earliest, latest = FIRST + timedelta(days=2), datetime(9999, 12, 29, tzinfo=UTC)
    kept = [row for row in rows if row[3] is None or earliest <= row[3].replace(tzinfo=UTC) <= latest]
    columns = [(kind, kind, [row[place] for row in kept]) for place, kind in enumerate(kinds)]
    received = decode_copy(encode(columns, space), kinds)
    for (name, kind, sent), values in zip(columns, received, strict=True):
        for left, right in zip(sent, values, strict=True):
            if kind == "timestamptz" and left is not None:
                # Two aware datetimes of one zone compare by their clocks and ignore the fold.
                assert right == left.astimezone(UTC), name
            else:
                assert same(left, right, kind), name


def test_halfvec_rounds_as_the_server_does(connection):
    generator = np.random.default_rng(7)
    exact = generator.integers(0, 0x7BFF, 60_000).astype(np.uint16)
    below, above = exact.view(np.float16).astype(np.float64), (exact + 1).view(np.float16).astype(np.float64)
    ties = ((below + above) / 2).astype(np.float32)
    anywhere = generator.standard_normal(60_000).astype(np.float32)
    values = np.concatenate([ties, np.nextafter(ties, np.float32(0)), -ties, anywhere]).reshape(-1, 40)
    columns = [("single", "vector", values), ("half", "halfvec", values)]
    create_table(connection, columns)
    copy_in(connection, columns, encode(columns))
    counts = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE halfvec_send(single::halfvec) <> halfvec_send(half)) FROM rows"
    ).fetchone()
    assert counts == (len(values), 0)


def test_what_is_accepted_has_a_cosine(connection):
    """A vector that passes validation never makes the server answer NaN, however small or large its components."""
    generator = np.random.default_rng(11)
    scale = 10.0 ** generator.uniform(-44, 38, (20_000, 1))
    vectors = (generator.standard_normal((20_000, 5)) * scale).astype(np.float32)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    refused = {row for row, *_ in validate_rows([("v", "vector", vectors, None)], None)}
    columns = [
        ("v", "vector", vectors),
        ("accepted", "bool", np.array([row not in refused for row in range(len(vectors))])),
    ]
    create_table(connection, columns)
    copy_in(connection, columns, encode(columns))
    counts = connection.execute(
        "SELECT accepted, count(*), count(*) FILTER (WHERE v <=> v = 'NaN') FROM rows GROUP BY accepted ORDER BY 1"
    ).fetchall()
    assert [row[0] for row in counts] == [False, True]
    (_, _, refused_nan), (_, accepted, accepted_nan) = counts
    assert accepted > 5_000
    assert accepted_nan == 0
    assert refused_nan > 5_000


def test_no_rows_and_no_columns(connection):
    columns = [("v", "vector", np.empty((0, 3), np.float32)), ("t", "text", [])]
    create_table(connection, columns)
    assert copy_in(connection, columns, encode(columns)) == 0
    assert encode([]) == encode(columns) == copy_out(connection, ["v", "t"])
    assert decode_copy(encode([]), []) == []
