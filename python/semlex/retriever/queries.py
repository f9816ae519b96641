"""Operations on the query log of a collection: summarise and clear it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.options.declare import operation
from semlex.retriever.handle import Part
from semlex.store.query_log import PRUNED_ROWS, clear_batch, summarise
from semlex.validation import check_parameters, whole_number_errors

if TYPE_CHECKING:
    from semlex.types.query_log import QueryLogSummary


DEFAULT_LISTED = 20
MAX_LISTED = 10_000


class Queries(Part):
    """Operations on the query log of a collection; `Collection.queries` returns them."""

    @operation("queries", "admin")
    async def summary(self, *, limit: int = DEFAULT_LISTED) -> QueryLogSummary:
        """Return figures of the query log, the most frequent questions, and questions that found nothing.

        Questions that are not written to the log yet are not counted.

        Args:
            limit: Maximum number of questions in each list, 1 to 10,000.
        """
        check_parameters(whole_number_errors("limit", limit, 1, MAX_LISTED))
        return await self._handle.read("read the query log", lambda c, info: summarise(c, info.names, limit))

    @operation("clear queries", "admin")
    async def clear(self) -> int:
        """Delete all logged questions; return how many were deleted.

        Raises:
            PrivilegeError: This role may not delete.
        """
        opened = await self._handle.ready()
        cleared = 0
        while deleted := await opened.database.write("clear the query log", lambda c: clear_batch(c, opened.info)):
            cleared += deleted
            if deleted < PRUNED_ROWS:
                break
        return cleared
