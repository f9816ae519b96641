"""Ids of chunks in the keyword index, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# What array_send() makes of a bigint[] without NULL: 20 bytes of dimensions, then length and value of each.
ARRAY_HEADER_BYTES = 20
ARRAY_ENTRY = np.dtype([("bytes", ">i4"), ("value", ">i8")])
NO_IDS: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def ids_of(array: bytes | None) -> NDArray[np.int64]:
    """The values of ``array_send(array_agg(…))`` of a bigint, ascending; none of NULL."""
    if array is None:
        return NO_IDS
    return np.sort(np.frombuffer(array, ARRAY_ENTRY, offset=ARRAY_HEADER_BYTES)["value"].astype(np.int64))


def joined(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """One array of several; an empty one of none."""
    return np.concatenate([NO_IDS, *parts])
