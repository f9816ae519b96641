"""Remember which rows pass a filter, and where their vectors are in the table."""

# Comparing the vectors of all rows that pass is exact, and cheap once it is known where they are: evaluating a filter
# and finding each vector by its key takes most of the time. What is remembered holds as long as no transaction has
# ended on the server. Afterwards the filter is evaluated again, and the locations are checked: a row that is visible
# where it was, and older than every transaction that ran when its place was read, is the same row.

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from struct import pack
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

# Rows that are remembered of all filters: 10 MB.
MAX_REMEMBERED = 400_000
MAX_FILTERS = 256
# Reading the rows costs as much as an exact search. If they were lost before so many searches used them, the next
# searches do without: one, then three, seven and so on.
USES_THAT_PAY = 8
MAX_WAIT = 63
# After a search whose filter left out what is near, so many others leave the vector index out before it is tried again.
WITHOUT_INDEX = 8

# The form that array_send() gives an array: 20 bytes of dimensions, then length and value of each element.
_HEADER_BYTES = 20
_ID = np.dtype([("bytes", ">i4"), ("value", ">i8")])
_LOCATION = np.dtype([("bytes", ">i4"), ("block", ">u4"), ("item", ">u2")])
_TID, _TID_BYTES = 27, 6
# Place of the vector of a chunk that has none.
NOWHERE = "(4294967295,0)"
_NOWHERE = 0xFFFFFFFF << 16


@dataclass(frozen=True)
class PassingRows:
    """The rows that pass a filter."""

    ids: NDArray[np.int64]  # keyword ids, ascending
    places: NDArray[np.int64]  # where their vectors are: shape (n,), block and item
    file: str  # of the table of vectors
    horizon: str  # transactions before this one had ended when the places were read
    state: str | None  # of the database in which they pass; None if it has no name
    # Whether they were read in another state. Then they pass in one snapshot, which has to check the places.
    must_check: bool

    @classmethod
    def read(cls, state: str | None, file: str, horizon: str, ids: bytes | None, places: bytes | None) -> Self:
        """Return the rows of two arrays of the same order."""
        numbers = _values(ids, _ID)["value"].astype(np.int64)
        found, order = _values(places, _LOCATION)[: len(numbers)], numbers.argsort()
        at = (found["block"].astype(np.int64) << 16) | found["item"]
        return cls(numbers[order], at[order], file, horizon, state, must_check=state is None)

    @cached_property
    def locations(self) -> bytes:
        """The places in their order, as a tid[] in binary form; empty without any."""
        places = np.sort(self.places[self.places != _NOWHERE])
        found = np.empty(len(places), _LOCATION)
        found["bytes"], found["block"], found["item"] = _TID_BYTES, places >> 16, places & 0xFFFF
        return pack(">iiIii", 1, 0, _TID, len(found), 1) + found.tobytes() if len(found) else b""

    @property
    def vectors(self) -> int:
        """How many of the rows have a vector."""
        return max(0, len(self.locations) - _HEADER_BYTES) // _LOCATION.itemsize

    def among(self, ids: NDArray[np.int64], state: str | None) -> PassingRows | None:
        """Return those of some ids, which pass in another state; None if the place of one is not known."""
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        if not len(self.ids) or not (self.ids[at] == ids).all() or (self.places[at] == _NOWHERE).any():
            return None
        return PassingRows(ids, self.places[at], self.file, self.horizon, state, must_check=True)


def _values(array: bytes | None, of: np.dtype[np.void]) -> NDArray[np.void]:
    return np.frombuffer(array or bytes(_HEADER_BYTES), of, offset=_HEADER_BYTES)


@dataclass(slots=True)
class RememberedFilter:
    """The rows that pass a filter, as they were last read."""

    rows: PassingRows | None = None
    is_moving: bool = False  # whether the filter has to be evaluated again before the rows are used
    _searches: int = 0  # without rows, since they were read or lost
    _uses: int = 0  # of the rows, since then
    _wait: int = 0  # searches that do without rows before they are read
    _without_index: int = 0  # searches that leave out the vector index

    def is_due(self, after: int) -> bool:
        """Return whether a search should read the rows: the first after so many others, or later."""
        self._searches += 1
        return self._searches > max(after, self._wait)

    def leave_out_index(self) -> None:
        """Note that the vector index has found too few rows."""
        self._without_index = WITHOUT_INDEX

    def leaves_out_index(self) -> bool:
        """Return whether a search should compare the rows right away, because the index would probably not do."""
        self._without_index = max(0, self._without_index - 1)
        return self.rows is not None and self._without_index > 0

    def keep(self, rows: PassingRows | None) -> None:
        """Remember rows; None if they are too many."""
        # What must be checked was read in a snapshot of one search: no other takes it as it is.
        self.rows, self.is_moving, self._searches = rows, rows is not None and rows.must_check, 0
        if rows is None:
            self._wait = MAX_WAIT

    def note(self, rows: PassingRows, *, worked: bool) -> None:
        """Note whether a search has found these rows where they were."""
        if worked:
            self._uses += 1
        else:
            self._wait = 0 if self._uses >= USES_THAT_PAY else min(2 * self._wait + 1, MAX_WAIT)
            self._uses = self._searches = 0
        if self.rows is not rows:  # another search has read them meanwhile
            return
        if worked and rows.must_check and rows.state is not None:
            self.rows, self.is_moving = replace(rows, must_check=False), False
        elif not worked:
            # Rows of another state may still be where they were; checked ones are not.
            self.rows, self.is_moving = None if rows.must_check else rows, True


class RememberedRows:
    """Remembers the rows that pass each of the last filters."""

    def __init__(self) -> None:
        self._filters: OrderedDict[Hashable, RememberedFilter] = OrderedDict()

    def of(self, key: Hashable) -> RememberedFilter:
        """Return what is remembered of a filter."""
        found = self._filters.setdefault(key, RememberedFilter())
        self._filters.move_to_end(key)
        if len(self._filters) > MAX_FILTERS:
            self._filters.popitem(last=False)
        return found

    def forget_oldest(self) -> None:
        """Forget the filters that were used longest ago, if too many rows are remembered."""
        sizes = {key: len(one.rows.ids) for key, one in self._filters.items() if one.rows is not None}
        rows = sum(sizes.values())
        for key, size in sizes.items():
            if rows <= MAX_REMEMBERED:
                return
            del self._filters[key]
            rows -= size
