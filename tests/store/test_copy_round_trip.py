"""Binary COPY and whole rows: our bytes are the server's own, values come back, and a COPY out may be cut short."""

import asyncio
import itertools
import math
import random
import string
import sys
import uuid
from contextlib import ExitStack, aclosing
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex import Document, ValidationError
from semlex._core import CopyEncoder, decode_copy, validate_rows
from semlex.store import tables
from tests.support.databases import execute
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import sync_opened

SCALARS = ("int2", "int4", "int8", "float4", "float8", "bool", "text", "uuid", "timestamptz")
BITS = 11
SPARSE_DIMENSIONS = 500
FIRST = datetime(1, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
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
    fields = [f'"{name}" {f"bit({BITS})" if kind == "bit" else kind}' for name, kind, _ in columns]
    connection.execute("DROP TABLE IF EXISTS rows")
    ordinal = "ordinal int8 GENERATED ALWAYS AS IDENTITY"
    connection.execute(f"CREATE TEMP TABLE rows ({', '.join([*fields, ordinal])})")


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


def same(sent, received, kind):
    """Equality of one value, as far as the type keeps it."""
    if sent is None or received is None:
        return sent is received
    if isinstance(sent, list) and kind.endswith("[]"):
        return all(same(left, right, kind[:-2]) for left, right in zip(sent, received, strict=True))
    if kind in {"vector", "halfvec"}:
        return np.array_equal(sent.view(np.uint32), received.view(np.uint32))
    if kind == "sparsevec":
        return all(itertools.starmap(np.array_equal, zip((SPARSE_DIMENSIONS, *sent), received, strict=True)))
    if isinstance(sent, float) and math.isnan(sent):
        return isinstance(received, float) and math.isnan(received)
    return same_json(sent, received)


def same_json(sent, received):
    """Whether a value came back, and every number in it as what it was: whole or not."""
    if isinstance(sent, dict):
        return sent.keys() == received.keys() and all(same_json(sent[key], received[key]) for key in sent)
    if isinstance(sent, list):
        return len(sent) == len(received) and all(map(same_json, sent, received))
    return type(sent) is type(received) and sent == received


# One seeded generator makes the values. Hypothesis chooses the seed and the shape, so that tables can be large.


def random_text(source):
    return "".join(source.choices(LETTERS, k=source.randrange(12)))


def random_float(source):
    return source.choice((0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, source.uniform(-1e6, 1e6)))


def random_components(source, dimension):
    return np.array([source.gauss(0, 1) for _ in range(dimension)], dtype=np.float32)


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
    "timestamptz": lambda source: FIRST + timedelta(microseconds=source.randint(0, LAST_MICROSECOND)),
    "bytea": lambda source: source.randbytes(source.randrange(20)),
    "jsonb": lambda source: random_json(source) if source.random() < 0.9 else {},
    "vector": lambda source: random_components(source, source.randrange(1, 8)),
    "halfvec": lambda source: random_components(source, source.randrange(1, 8)).astype(np.float16).astype(np.float32),
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
        create_table(connection, columns)
        assert copy_in(connection, columns, encode(columns, space)) == rows
        plain = [column for column in columns if column[1] != "jsonb"]  # the server rewrites jsonb
        assert copy_out(connection, [name for name, _, _ in plain]) == encode(plain)
        received = decode_copy(copy_out(connection, [name for name, _, _ in columns]), KINDS)
        for (name, kind, sent), values in zip(columns, received, strict=True):
            data = sent[1] if kind == "sparsevec" else sent
            wrong = [row for row in range(rows) if not same(data[row], values[row], kind)]
            assert len(values) == rows, name
            assert not wrong, f"{name}: row {wrong[0]}"

    check()


@pytest.mark.slow
def test_arrays_of_every_type(connection, full):
    """The same through NumPy: a bulk load as it really is."""

    @settings(max_examples=2_500 if full else examples(10), deadline=None)
    @given(seed=st.integers(0, 2**32), dimension=st.integers(1, 70), space=st.sampled_from((0, 5_000, 2**18)))
    def check(seed, dimension, space):
        generator, rows = np.random.default_rng(seed), 4_000 if full else 1_000

        def integers(bits):
            return generator.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), rows, dtype=np.int64)

        vectors = generator.standard_normal((rows, dimension), dtype=np.float32)
        micros = generator.integers(0, LAST_MICROSECOND, rows, dtype=np.int64) - (EPOCH - FIRST) // MICROSECOND
        identifiers = generator.integers(0, 256, (rows, 16), dtype=np.uint8)
        bits = generator.integers(0, 2, (rows, BITS), dtype=np.uint8)
        columns = [
            *((name, f"int{bits // 8}", integers(bits)) for name, bits in (("a", 16), ("b", 32), ("c", 64))),
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
        assert [(value - EPOCH) // MICROSECOND for value in received["h"]] == micros.tolist()
        for name, _, sent in columns[8:10]:
            assert np.array_equal(np.stack(received[name]), sent)
        assert received["k"] == received["l"] == ["".join(map(str, row)) for row in bits.tolist()]

    check()


stored_texts = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            stored_texts,
            st.none() | st.lists(stored_texts),
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
    for (name, kind, sent), values in zip(columns, decode_copy(encode(columns, space), kinds), strict=True):
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
    different = "count(*) FILTER (WHERE halfvec_send(single::halfvec) <> halfvec_send(half))"
    assert connection.execute(f"SELECT count(*), {different} FROM rows").fetchone() == (len(values), 0)


def test_what_is_accepted_has_a_cosine(connection):
    """A vector that passes validation never makes the server answer NaN, however small or large its components."""
    generator = np.random.default_rng(11)
    scale = 10.0 ** generator.uniform(-44, 38, (20_000, 1))
    vectors = (generator.standard_normal((20_000, 5)) * scale).astype(np.float32)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    refused = {row for row, *_ in validate_rows([("v", "vector", vectors, None)], None)}
    accepted = np.array([row not in refused for row in range(len(vectors))])
    columns = [("v", "vector", vectors), ("accepted", "bool", accepted)]
    create_table(connection, columns)
    copy_in(connection, columns, encode(columns))
    figures = "accepted, count(*), count(*) FILTER (WHERE v <=> v = 'NaN')"
    counts = connection.execute(f"SELECT {figures} FROM rows GROUP BY accepted ORDER BY 1").fetchall()
    (is_refused, _, refused_nan), (is_accepted, accepted, accepted_nan) = counts
    assert (is_refused, is_accepted) == (False, True)
    assert (accepted > 5_000, accepted_nan, refused_nan > 5_000) == (True, 0, True)


def test_no_rows_and_no_columns(connection):
    columns = [("v", "vector", np.empty((0, 3), np.float32)), ("t", "text", [])]
    create_table(connection, columns)
    assert copy_in(connection, columns, encode(columns)) == 0
    assert encode([]) == encode(columns) == copy_out(connection, ["v", "t"])
    assert decode_copy(encode([]), []) == []


NUMBERS = "COPY (SELECT n::int8, repeat('x', {}) FROM generate_series(1, {}) AS n) TO STDOUT (FORMAT binary)"
DIVISION = "COPY (SELECT 1 / (9000 - n)::int8, repeat('x', 2000) FROM generate_series(1, 10000) AS n) TO STDOUT BINARY"
SLOW = "COPY (SELECT n::int8, repeat('x', 3000) || pg_sleep({}) FROM generate_series(1, 1000000) AS n) TO STDOUT BINARY"
TYPES = ["int8", "text"]


async def read(connection, statement):
    """The numbers of every part."""
    async with aclosing(tables.copy_parts(connection, statement, TYPES)) as parts:
        return [part.decoded()[0] async for part in parts]


@pytest.mark.slow
@settings(OWN_ROWS, deadline=None, max_examples=examples(20))
@given(count=st.integers(0, 300), width=st.sampled_from([0, 10, 20_000]), size=st.sampled_from([1, 500, 100_000]))
async def test_every_row_once_and_in_order(database_url, monkeypatch, count, width, size):
    monkeypatch.setattr(tables, "PART_BYTES", size)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        parts = await read(connection, sql.SQL(NUMBERS).format(width, count))
        assert [number for part in parts for number in part] == list(range(1, count + 1))
        assert size > 1 or len(parts) >= count
        assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


@pytest.mark.parametrize("seconds", [0.01, 0])
async def test_a_cancelled_or_failed_read_leaves_a_usable_connection(database_url, monkeypatch, seconds):
    monkeypatch.setattr(tables, "PART_BYTES", 20_000)  # several rows: the server is waited for in the thread
    begun = asyncio.Event()

    async def reading(connection):
        async with aclosing(tables.copy_parts(connection, sql.SQL(SLOW).format(seconds), TYPES)) as parts:
            async for _ in parts:
                begun.set()

    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        task = asyncio.create_task(reading(connection))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await connection.rollback()
        assert await read(connection, sql.SQL(NUMBERS).format(1, 2)) == [[1, 2]]
        with pytest.raises(psycopg.errors.DivisionByZero):
            await read(connection, sql.SQL(DIVISION).format())
        await connection.rollback()
        assert await read(connection, sql.SQL(NUMBERS).format(1, 2)) == [[1, 2]]


@pytest.mark.slow
async def test_a_server_that_is_gone(database_url):
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        statement = sql.SQL(NUMBERS).format(3000, 10_000_000)
        async with aclosing(tables.copy_parts(connection, statement, TYPES)) as parts:
            await anext(parts)
            execute(database_url, "SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                async for _ in parts:
                    pass


ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Etc/GMT+12")


@pytest.fixture(scope="module")
def stores(new_database):
    """A store, and a reader of it in each zone; the examples of a property share them."""
    url = new_database()
    urls = [make_conninfo(url, options=f"-c TimeZone={zone}") for zone in ZONES]
    with sync_opened(url, "none", keyword="none") as store, ExitStack() as opened:
        assert store.status().collection == "default_collection"
        yield store, [opened.enter_context(sync_opened(url, "none")) for url in urls]


json_numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())
json_values = st.recursive(
    st.one_of(json_numbers, st.none(), st.booleans(), st.sampled_from(["", "1e23", "ä"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)


@pytest.mark.slow
@given(st.lists(json_values, min_size=1))
@example([1e15, 1e16, -1e16, 1e22, 1e23, 1e300, sys.float_info.max, -sys.float_info.max, math.nextafter(1e16, 0)])
@example([0.0, -0.0, 1.0, 1, 10**23, 2**53 + 1.0, 5e-324, sys.float_info.min, 1e-7, 0.1])
def test_numbers_in_metadata_keep_value_and_type(stores, given_values):
    ids = [f"v{number}" for number in range(len(given_values))]
    rows = [Document("text", {"value": value}, id=chunk_id) for chunk_id, value in zip(ids, given_values, strict=True)]
    stores[0].add_documents(rows)
    found = [chunk.metadata["value"] for chunk in stores[0].get(ids)]
    wrong = [(sent, back) for sent, back in zip(given_values, found, strict=True) if not same_json(sent, back)]
    assert len(found) == len(ids)
    assert not wrong


offsets = st.integers(-(24 * 60 - 1), 24 * 60 - 1).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FIRST_EAST = datetime(2, 1, 1, tzinfo=timezone(timedelta(hours=23, minutes=59)))
# The first time stays when a document is stored again: each example has one of its own.
numbers_of_rows = itertools.count()
ends = st.sampled_from([datetime.min, datetime.max, datetime.min + timedelta(hours=5)])  # noqa: DTZ901 - a zone is given below
instants = st.builds(
    lambda moment, zone: moment.replace(tzinfo=zone), st.one_of(st.datetimes(), ends), st.one_of(st.just(UTC), offsets)
)


@pytest.mark.slow
@given(instants, instants)
@example(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC))
@example(FIRST_EAST, FIRST_EAST.replace(year=9999))
def test_every_time_that_is_taken_is_read_in_every_zone(stores, created, updated):
    store, readers = stores
    row = Document("text", id=f"t{next(numbers_of_rows)}", created_at=created, updated_at=updated)
    try:
        created.astimezone(UTC), updated.astimezone(UTC)
    except OverflowError:
        with pytest.raises(ValidationError, match="_at must be between years 0001 and 9999"):
            store.add_documents([row])
        return
    store.add_documents([row])
    for reader in readers:
        (found,) = reader.get([row.id])
        assert (found.created_at, found.updated_at) == (created, updated)
        assert found.created_at.tzinfo is UTC
