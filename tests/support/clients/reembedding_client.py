"""A program for tests: changes the model of a collection, and is killed at a moment of one of its transactions.

Arguments: connection string, and after how many such moments it kills itself (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from semlex.maintenance import version_fill
from semlex.retriever.synchronous import SyncRetriever
from semlex.store.indexes import wanted
from semlex.store.postgres.database import Database
from semlex.store.write import embedding_version
from tests.support.two_models import NAME, new_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RUN_SECONDS = 0.5  # expires: the run of a client that was killed
PAGE_ROWS = 10
INDEX_FROM_ROWS = 50


def kill_after(moments: int) -> None:
    """Kills this process before, inside or after one of its transactions."""
    left = moments
    write = Database.write

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def counted(database: Database, doing: str, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
        async def inside(connection: Any) -> Any:
            result = await work(connection)
            passed()
            return result

        passed()
        result = await write(database, doing, inside, **options)
        passed()
        return result

    Database.write = counted  # type: ignore[method-assign]


def main() -> None:
    url, moments = sys.argv[1], int(sys.argv[2])
    embedding_version.RUN_SECONDS = RUN_SECONDS
    version_fill.PAGE_ROWS = PAGE_ROWS
    version_fill.LAST_ROWS = 4
    wanted.INDEX_FROM_ROWS = INDEX_FROM_ROWS
    with SyncRetriever(url, "none", collection=NAME, use_reranking=False) as retriever:
        kill_after(moments)
        report = retriever.reembed(new_model())
    sys.stdout.write(f"{report.version} {report.embedded} {report.resumed}\n")


if __name__ == "__main__":
    main()
