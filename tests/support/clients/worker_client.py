"""A process for tests: a worker, until it is killed; it says a line about each job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from semlex import Client
from semlex.proof.children import say, stop_at
from semlex.testing import HashEmbedder
from tests.support.waiting import LIMIT


@dataclass(frozen=True)
class Order:
    """How a worker is started.

    Attributes:
        url: Address of the server.
        allow: Folder that jobs may read.
        moment: Where it stops itself: transaction, moment, and at which of its times.
        patience: Seconds that it waits for a connection once it works; None: as usual.
        lease: Seconds.
        concurrency: Most jobs at a time.
    """

    url: str
    allow: Path
    moment: tuple[str, str, int] | None = None
    patience: float | None = None
    lease: float = LIMIT
    concurrency: int = 1


def run(order: Order) -> None:
    """Is the worker."""
    asyncio.run(_work(order))


async def _work(order: Order) -> None:
    if order.moment is not None:
        stop_at(*order.moment)
    async with Client(order.url, HashEmbedder(8), use_reranking=False) as client:
        if order.patience is not None:
            client._resources.database._pool.timeout = order.patience
        await client.work(concurrency=order.concurrency, allow=[order.allow], lease=order.lease, tell=say)
