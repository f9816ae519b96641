"""Several reads in one snapshot, each as if it had a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import psycopg

from semlex.store.postgres.database import Database
from semlex.store.postgres.errors import is_retryable, translate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.store.postgres.snapshot import Snapshot

T = TypeVar("T")


class SnapshotReads(Database):
    """Reads of one snapshot, each in a savepoint, so that one that fails leaves the others as they are."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(connection=snapshot.connection)
        self._snapshot = snapshot

    async def read_snapshot(
        self,
        doing: str,
        work: Callable[[Snapshot], Awaitable[T]],
        *,
        deadline: float | None = None,
        with_vectors: bool = False,
    ) -> T:
        """Runs `work` in the snapshot; settings of its own end with it."""
        # The time limits of statements end late work, and whoever opened the snapshot watches it.
        del deadline, with_vectors
        try:
            async with self._snapshot.savepoint(force_rollback=True):
                return await work(self._snapshot)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            raise translate(error, doing) from None
