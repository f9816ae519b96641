"""What is stored comes back as what it was: numbers in metadata, and instants in sessions of every zone."""

from __future__ import annotations

import itertools
import math
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from semlex import Document, ValidationError
from tests.support.retrievers import sync_opened

ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Etc/GMT+12")


@pytest.fixture(scope="module")
def database(new_database):
    """The module's own database: the examples of a property share it."""
    return new_database()


@pytest.fixture(scope="module")
def store(database):
    with sync_opened(database, "none", keyword="none") as opened:
        yield opened


@pytest.fixture(scope="module")
def readers(store, database):
    """One reader in each zone."""
    assert store.status().collection == "default_collection"
    with ExitStack() as opened:
        yield [
            opened.enter_context(sync_opened(make_conninfo(database, options=f"-c TimeZone={zone}"), "none"))
            for zone in ZONES
        ]


def same(sent, found):
    """Equal, and every number of the same type."""
    if type(sent) is not type(found):
        return False
    if isinstance(sent, dict):
        return sent.keys() == found.keys() and all(same(sent[key], found[key]) for key in sent)
    if isinstance(sent, list):
        return len(sent) == len(found) and all(map(same, sent, found))
    return bool(sent == found)


numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())
values = st.recursive(
    st.one_of(numbers, st.none(), st.booleans(), st.sampled_from(["", "1e23", "ä"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)


@pytest.mark.slow
@given(st.lists(values, min_size=1))
@example([1e15, 1e16, -1e16, 1e22, 1e23, 1e300, sys.float_info.max, -sys.float_info.max, math.nextafter(1e16, 0)])
@example([0.0, -0.0, 1.0, 1, 10**23, 2**53 + 1.0, 5e-324, sys.float_info.min, 1e-7, 0.1])
def test_numbers_in_metadata_keep_value_and_type(store, given_values):
    ids = [f"v{number}" for number in range(len(given_values))]
    rows = [Document("text", {"value": value}, id=chunk_id) for chunk_id, value in zip(ids, given_values, strict=True)]
    store.add_documents(rows)
    found = [chunk.metadata["value"] for chunk in store.get(ids)]
    wrong = [(sent, back) for sent, back in zip(given_values, found, strict=True) if not same(sent, back)]
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
def test_every_time_that_is_taken_is_read_in_every_zone(store, readers, created, updated):
    row = Document("text", id=f"t{next(numbers_of_rows)}", created_at=created, updated_at=updated)
    if not (is_in_utc(created) and is_in_utc(updated)):
        with pytest.raises(ValidationError, match="_at must be between years 0001 and 9999"):
            store.add_documents([row])
        return
    store.add_documents([row])
    for reader in readers:
        (found,) = reader.get([row.id])
        assert (found.created_at, found.updated_at) == (created, updated)
        assert found.created_at.tzinfo is UTC


def is_in_utc(moment):
    """Whether it has a year from 1 to 9999 in UTC, too."""
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True
