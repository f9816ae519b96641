"""The ids of all chunks that pass a wide filter: for words that occur mostly where the filter leaves out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.store.query.passing_ids import database_state, passing_ids
from semlex.store.write.copy import ids_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import Statement
    from semlex.store.schema.names import Names

# State of the database, and ids.
PassingRow = tuple[str | None, bytes | None]
# Ids that are read for one filter, and that are kept of all: 16 MB.
MAX_PASSING = 2_000_000


class PassingIds:
    """The ids that were read last, each array with the state of the database in which they pass."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[str, NDArray[np.int64]]] = OrderedDict()
        self._wanted: Hashable | None = None
        self._deeper: tuple[Hashable, int] | None = None

    def depth(self, condition: Filter, text: str) -> int:
        """Return how many of the best chunks the last search would have had to check, if it was this one; else 0."""
        key, depth = self._deeper or (None, 0)
        return depth if key == (condition.key, text) else 0

    def deepen(self, condition: Filter, text: str, depth: int) -> None:
        """Note how many ids a search has to check, perhaps in another snapshot."""
        self._deeper = (condition.key, text), depth

    def wants(self, condition: Filter) -> bool:
        """Return whether a search with the filter probably needs the ids, because the last one did."""
        if self._wanted is None and not self._kept:
            return False
        return condition.key == self._wanted or condition.key in self._kept

    def want(self, condition: Filter) -> None:
        """Note that a search needs the ids, perhaps in another snapshot."""
        self._wanted = condition.key

    def of(self, names: Names, condition: Filter) -> PassingQuery:
        """Return the query for the ids of the chunks that pass."""
        key = condition.key
        known, ids = self._kept.get(key, (None, None))
        return PassingQuery(names, condition, key, known, ids)

    def keep(self, query: PassingQuery, state: str | None, ids: NDArray[np.int64] | None) -> None:
        """Keep the answer to a query for the next search with the same filter."""
        self._wanted = None
        if state is None or ids is None:
            return
        self._kept[query.key] = state, ids
        self._kept.move_to_end(query.key)
        while sum(len(kept) for _, kept in self._kept.values()) > MAX_PASSING:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class PassingQuery:
    """A query for the ids of the chunks that pass a filter."""

    # The ids are sent again when a transaction has ended on the server since: only metadata may have changed, which the
    # keyword index does not show.

    names: Names
    condition: Filter
    key: Hashable  # of the condition
    known: str | None  # state of the database in which the ids that are kept pass
    ids: NDArray[np.int64] | None  # the kept ones

    @property
    def statement(self) -> Statement:
        """One row: the state of the database, and the ids unless they are known in it."""
        state = database_state(self.names)
        return passing_ids(self.names, self.condition, MAX_PASSING, state=state, known=self.known)

    def read(self, row: PassingRow) -> NDArray[np.int64] | None:
        """Return the ids, ascending; None if there are more than `MAX_PASSING`."""
        state, array = row
        ids = self.ids
        if ids is None or state != self.known:
            ids = ids_of(array)
        return None if len(ids) > MAX_PASSING else ids
