"""Values of Python and NumPy as JSON: what is stored for them, and that their order stays."""

import datetime as dt
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from semlex.json_values import id_text, json_scalar, json_tree

EAST = timezone(timedelta(hours=2))
NUMBER = UUID("12345678-1234-5678-1234-567812345678")


class NoTime(datetime):
    """Like NaT of pandas: equal to nothing, not even itself."""

    def __eq__(self, other):
        return False

    def __ne__(self, other):
        return True

    __hash__ = None


def test_what_is_stored():
    for value, stored in [
        (datetime(2026, 1, 31, 1, 30, tzinfo=EAST), "2026-01-30T23:30:00+00:00"),
        (datetime(2026, 1, 31, 1, 30, 0, 5), "2026-01-31T01:30:00.000005"),  # noqa: DTZ001
        (NoTime(2026, 1, 31), None),
        (date(2026, 1, 31), "2026-01-31"),
        (np.datetime64("2026-01-31T01:30:00.123456789"), "2026-01-31T01:30:00.123456"),
        (np.datetime64("2026-01"), "2026-01-01"),
        (np.datetime64("NaT"), None),
        (NUMBER, str(NUMBER)),
        (Decimal("19.90"), 19.9),
        (Decimal("1E+3"), 1000),
        (np.int64(2**60), 2**60),
        (np.uint8(255), 255),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
    ]:  # fmt: skip
        found = json_scalar(value)
        assert (type(found), found) == (type(stored), stored)
        assert json_tree({"a": [value, (value, {"b": value})]}) == {"a": [stored, [stored, {"b": stored}]]}
    for value in [
        *("text", 5, 0.5, True, None, b"bytes", dt.time(1), timedelta(1), np.timedelta64(1, "s"), np.complex64(1)),
        *(np.datetime64(2**62, "D"), datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    ]:  # fmt: skip
        assert json_scalar(value) is value
    assert all(math.isnan(json_scalar(Decimal(text))) for text in ("NaN", "sNaN", "Infinity"))
    assert [id_text(one) for one in (5, -1, np.int32(7), NUMBER, "x")] == ["5", "-1", "7", str(NUMBER), "x"]
    for other in (True, 1.0, None, 10**5000, np.bool_(True)):
        assert id_text(other) is other


FIRST, LAST = datetime.min + timedelta(1), datetime.max - timedelta(1)  # noqa: DTZ901


@given(st.lists(st.datetimes(FIRST, LAST, timezones=st.sampled_from([UTC, EAST]))))
def test_texts_of_times_have_the_order_of_time(times):
    assert list(map(json_scalar, sorted(times))) == sorted(map(json_scalar, times))
