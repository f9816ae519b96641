"""Remember which rows pass a filter, and where the vectors of these rows are in the table."""

# Comparing the vectors of all rows that pass is exact, and cheap once it is known where they are: evaluating a filter
# and finding each vector by its key takes most of the time. What is remembered holds as long as no transaction has
# ended on the server. Afterwards the filter is evaluated again, and the locations are checked: a row that is visible
# where it was, and older than every transaction that ran when its place was read, is the same row.
#
# Rows that were used twice are kept with their vectors, as far as these are few, and rounded to a byte per number: then
# only those that may be among the nearest are compared on the server, by the stored vectors.

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from struct import pack
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

# Rows that are remembered of all filters: 34 MB.
MAX_REMEMBERED = 1_000_000
# Of the rounded vectors of one filter, and of all.
MAX_VECTOR_BYTES = 32 * 1024 * 1024
MAX_ALL_VECTOR_BYTES = 64 * 1024 * 1024
# Vectors give way to others if so many other filtered searches went by without their filter.
IDLE_SEARCHES = 100
# Fewer rows are compared on the server in half a millisecond.
MIN_WITH_VECTORS = 500
BEFORE_VECTORS = 2  # searches, in one state
# Decoding or comparing more than so many rows, or numbers of their vectors, takes more than half a millisecond.
MAX_ROWS_ON_LOOP = 10_000
MAX_NUMBERS_ON_LOOP = 2_000_000
# The largest relative error of one rounding, and the largest absolute one to a subnormal float16.
FLOAT32_ERROR, FLOAT16_ERROR, SUBNORMAL_ERROR = 2**-24, 2**-11, 2**-25
# Numbers and sums that are rounded once, counted as if the vectors had so many more dimensions.
SINGLE_ROUNDINGS = 32
# Of float32 that stay in the processor's cache.
NUMBERS_AT_ONCE = 262_144
MAX_CODE = 127
BYTES_BESIDE = 8  # the codes: scale and error of each vector
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


@dataclass(frozen=True, slots=True)
class RoundedVectors:
    """Vectors of norm 1, rounded to a byte per number."""

    codes: NDArray[np.int8]  # shape (n, d)
    scales: NDArray[np.float32]  # shape (n,); a number is its code times the scale
    errors: NDArray[np.float32]  # shape (n,); of a cosine, at most

    @classmethod
    def read(cls, array: bytes | None, places: bytes | None, *, at: NDArray[np.int64], dimensions: int) -> Self | None:
        """Read vectors from a halfvec[] in binary form, in the order of `at`; None if one is missing or all zeros."""
        kind = np.dtype([("head", ">i4", (2,)), ("values", ">f2", (dimensions,))])
        found = _places(places)
        order = found.argsort()
        return cls.of(_values(array, kind)["values"][order]) if np.array_equal(found[order], at) else None

    @classmethod
    def of(cls, vectors: NDArray[np.float16]) -> Self | None:
        """Round vectors of shape (n, d); None if one is all zeros."""
        number, dimensions = vectors.shape
        rounded = cls(np.empty(vectors.shape, np.int8), np.empty(number, np.float32), np.empty(number, np.float32))
        sums = _error_of_sums(dimensions)
        others = FLOAT16_ERROR + math.sqrt(dimensions) * SUBNORMAL_ERROR + 3 * sums
        for part in _parts(number, dimensions):
            exact = vectors[part].astype(np.float32)
            scales = np.abs(exact).max(axis=1) / MAX_CODE
            if not scales.all():
                return None
            codes = np.rint(exact / scales[:, None])
            rounded.codes[part], rounded.scales[part] = codes, scales
            # A cosine changes by at most the length of what rounding takes from a vector of norm 1: by the codes, and
            # by float16. Three sums are in float32: the product here, the server's product, and the server's two
            # squared lengths, whose roots are wrong by half as much each. The product here is one of the codes, which
            # may be longer than 1 by what they take away.
            lengths = np.linalg.norm(exact - codes * scales[:, None], axis=1)
            rounded.errors[part] = lengths * (1 + 2 * sums) + others
        return rounded

    def cosines(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return cosines to a query of norm 1, each wrong by at most its number in `errors`: float32, shape (n,)."""
        cosines = np.empty(len(self.codes), np.float32)
        for part in _parts(*self.codes.shape):
            # Takes one thread; a product by BLAS would wake others up for half a millisecond.
            np.einsum("ij,j->i", self.codes[part].astype(np.float32), query, out=cosines[part])
        cosines *= self.scales
        return cosines

    def may_be_nearest(self, query: NDArray[np.float32], limit: int) -> NDArray[np.bool_]:
        """Return which vectors may be among the `limit` nearest to a query of norm 1, by cosine: bool, shape (n,)."""
        cosines = self.cosines(query)
        least = np.partition(cosines - self.errors, -limit)[-limit]
        may_be: NDArray[np.bool_] = cosines + self.errors >= least
        return may_be

    def at(self, places: NDArray[np.intp]) -> RoundedVectors:
        """Return the vectors at these positions of the array."""
        return RoundedVectors(self.codes[places], self.scales[places], self.errors[places])

    @classmethod
    def joined(cls, parts: Sequence[RoundedVectors]) -> Self:
        """Return the vectors of several parts, one after another."""
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate([part.errors for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """How many bytes the vectors take."""
        return self.codes.nbytes + self.scales.nbytes + self.errors.nbytes


def _error_of_sums(dimensions: int) -> float:
    """Return the largest error of a product of two vectors of norm 1 in float32."""
    # In whatever order it is summed: Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1.
    total = (dimensions + SINGLE_ROUNDINGS) * FLOAT32_ERROR
    return total / (1 - total)


def _parts(number: int, dimensions: int) -> Iterator[slice]:
    step = max(1, NUMBERS_AT_ONCE // max(1, dimensions))
    return (slice(start, start + step) for start in range(0, number, step))


@dataclass(frozen=True)
class PassingRows:
    """The chunks that pass a filter, and the places of their vectors in the table."""

    ids: NDArray[np.int64]  # keyword ids, ascending
    places: NDArray[np.int64]  # where their vectors are: shape (n,), block and item
    file: str  # of the table of vectors
    horizon: str  # transactions before this one had ended when the places were read
    state: str | None  # of the database in which they pass; None if it has no name
    # Whether they were read in another state. Then they pass in one snapshot, which has to check the places.
    must_check: bool
    # In the order of `locations`; None if they are not kept.
    vectors: RoundedVectors | None = None

    @classmethod
    def read(cls, state: str | None, file: str, horizon: str, ids: bytes | None, places: bytes | None) -> Self:
        """Decode the rows from arrays of ids and places, which must have the same order."""
        numbers = _values(ids, _ID)["value"].astype(np.int64)
        at, order = _places(places), numbers.argsort()
        return cls(numbers[order], at[order], file, horizon, state, must_check=state is None)

    @cached_property
    def _ordered(self) -> NDArray[np.int64]:
        return np.sort(self.places[self.places != _NOWHERE])

    @cached_property
    def locations(self) -> bytes:
        """Where the vectors are, in ascending order, as a tid[] in binary form; no bytes if no place is known."""
        return location_array(self._ordered)

    @cached_property
    def number(self) -> int:
        """How many of the rows have a vector."""
        return int(np.count_nonzero(self.places != _NOWHERE))

    @property
    def takes_long(self) -> bool:
        """Whether decoding or comparing these rows must run in a thread, to keep the event loop free."""
        return len(self.ids) > MAX_ROWS_ON_LOOP or (
            self.vectors is not None and self.vectors.codes.size > MAX_NUMBERS_ON_LOOP
        )

    def nearest(self, query: NDArray[np.floating], limit: int) -> bytes:
        """Return places that include the `limit` nearest vectors by cosine; all if none can be compared in memory."""
        # `query` has the numbers that the server gets. A state that must be checked is checked by all rows.
        vectors = None if self.must_check else self.vectors
        wide = query.astype(np.float64)
        norm = math.sqrt(wide @ wide)
        if vectors is None or not 0 < norm < math.inf or limit >= len(vectors):
            return self.locations
        return location_array(self._ordered[vectors.may_be_nearest((wide / norm).astype(np.float32), limit)])

    def parts(self, size: int) -> list[tuple[NDArray[np.int64], bytes]]:
        """Return the places of the vectors, ascending, in parts of up to `size`, each part as numbers and as tid[]."""
        parts = [self._ordered[start : start + size] for start in range(0, self.number, size)]
        return [(part, location_array(part)) for part in parts]

    def among(self, ids: NDArray[np.int64], state: str | None) -> PassingRows | None:
        """Return the rows that pass in a later database `state`, by their ids; None if the place of one is unknown."""
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        if not len(self.ids) or not (self.ids[at] == ids).all() or (self.places[at] == _NOWHERE).any():
            return None
        found = PassingRows(ids, self.places[at], self.file, self.horizon, state, must_check=True)
        if self.vectors is None:
            return found
        is_same = found.number == self.number
        kept = self.vectors if is_same else self.vectors.at(np.searchsorted(self._ordered, found._ordered))
        return replace(found, vectors=kept)


def has_many(ids: bytes | None) -> bool:
    """Return whether an array of ids is so long that decoding it must run in a thread, outside the event loop."""
    return len(ids or b"") > _HEADER_BYTES + _ID.itemsize * MAX_ROWS_ON_LOOP


def location_array(places: NDArray[np.int64]) -> bytes:
    """Return places as a tid[] in binary form; no bytes for no places."""
    found = np.empty(len(places), _LOCATION)
    found["bytes"], found["block"], found["item"] = _TID_BYTES, places >> 16, places & 0xFFFF
    return pack(">iiIii", 1, 0, _TID, len(found), 1) + found.tobytes() if len(found) else b""


def _places(array: bytes | None) -> NDArray[np.int64]:
    found = _values(array, _LOCATION)
    places: NDArray[np.int64] = (found["block"].astype(np.int64) << 16) | found["item"]
    return places


def _values(array: bytes | None, of: np.dtype[np.void]) -> NDArray[np.void]:
    return np.frombuffer(array or bytes(_HEADER_BYTES), of, offset=_HEADER_BYTES)


@dataclass(slots=True)
class RememberedFilter:
    """What is remembered about one filter: the rows that pass, as last read, and how useful that was."""

    rows: PassingRows | None = None
    used_at: int = 0  # number of the last search with the filter
    is_moving: bool = False  # whether the filter has to be evaluated again before the rows are used
    bytes_due: int = 0  # of the vectors that a search is reading
    _searches: int = 0  # without rows, since they were read or lost
    _uses: int = 0  # of the rows, since then
    _wait: int = 0  # searches that do without rows before they are read
    _unchanged: int = 0  # searches that have found the state of the rows unchanged, one after another
    _without_index: int = 0  # searches that leave out the vector index

    def is_due(self, after: int) -> bool:
        """Count a search that ran without the rows; return whether enough ran to make reading the rows worthwhile."""
        self._searches += 1
        return self._searches > max(after, self._wait)

    def lacks_vectors(self) -> bool:
        """Return whether enough searches have used the rows to make reading their vectors into memory worthwhile."""
        rows = self.rows
        is_worth = rows is not None and rows.number >= MIN_WITH_VECTORS and rows.vectors is None
        return is_worth and not self.bytes_due and self._unchanged >= BEFORE_VECTORS

    @contextmanager
    def reading_vectors(self, size: int) -> Iterator[None]:
        """Reserve memory for the vectors inside the block, so that no other search reads the same vectors."""
        self.bytes_due = size
        try:
            yield
        finally:
            self.bytes_due = 0

    def take_vectors(self, rows: PassingRows) -> None:
        """Remember the rows with their vectors, or that the vectors could not be read."""
        self._unchanged = 0 if rows.vectors is not None else -MAX_WAIT
        if self.rows is not None and self.rows.places is rows.places:
            self.rows = rows

    @property
    def vector_bytes(self) -> int:
        """How many bytes the vectors take, or will take once they are read."""
        return self.bytes_due if self.rows is None or self.rows.vectors is None else self.rows.vectors.nbytes

    def drop_vectors(self) -> None:
        """Remove the vectors from memory, and keep the rows."""
        if self.rows is not None:
            self.rows = replace(self.rows, vectors=None)

    def leave_out_index(self) -> None:
        """Note that the vector index found too few rows, so that the next searches do without it."""
        self._without_index = WITHOUT_INDEX

    def leaves_out_index(self) -> bool:
        """Return whether a search should compare all rows with the query, because the index would find too few."""
        self._without_index = max(0, self._without_index - 1)
        return self.rows is not None and self._without_index > 0

    def keep(self, rows: PassingRows | None) -> None:
        """Remember the rows that pass; None means that they are too many."""
        # What must be checked was read in a snapshot of one search: no other takes it as it is.
        self.rows, self.is_moving, self._searches = rows, rows is not None and rows.must_check, 0
        if rows is None:
            self._wait = MAX_WAIT

    def note(self, rows: PassingRows, *, worked: bool) -> None:
        """Note whether a search has found these rows at their remembered places."""
        self._unchanged = self._unchanged + 1 if worked and not rows.must_check else 0
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
    """Remembers, for each of the filters used last, the rows that pass."""

    def __init__(self) -> None:
        self._filters: OrderedDict[Hashable, RememberedFilter] = OrderedDict()
        self._searches = 0

    def of(self, key: Hashable) -> RememberedFilter:
        """Return what is remembered about a filter, and note that it is used now."""
        found = self._filters.setdefault(key, RememberedFilter())
        self._filters.move_to_end(key)
        self._searches += 1
        found.used_at = self._searches
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

    def have_room(self, size: float) -> bool:
        """Return whether `size` more bytes of vectors may be kept; if needed, drop those of long unused filters."""
        size += sum(one.vector_bytes for one in self._filters.values())
        for one in self._filters.values():
            is_kept = one.rows is not None and one.rows.vectors is not None
            if size > MAX_ALL_VECTOR_BYTES and is_kept and self._searches - one.used_at > IDLE_SEARCHES:
                size -= one.vector_bytes
                one.drop_vectors()
        return size <= MAX_ALL_VECTOR_BYTES
