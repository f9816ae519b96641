"""A process for tests: a worker, until it is killed; it says a line about each job."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from semlex import Client
from semlex.proof.children import say, stop_at
from semlex.testing import HashEmbedder
from tests.support.waiting import LIMIT


@dataclass(frozen=True)
class Order:
    url: str
    allow: Path  # a folder that jobs may read
    moment: tuple[str, str, int] | None = None  # where it stops itself: arguments of `stop_at`
    patience: float | None = None  # seconds that it waits for a connection once it works; None: as usual
    lease: float = LIMIT
    concurrency: int = 1


def run(order):
    async def work():
        async with Client(order.url, HashEmbedder(8), use_reranking=False) as client:
            if order.patience is not None:
                client._resources.database._pool.timeout = order.patience
            await client.work(concurrency=order.concurrency, allow=[order.allow], lease=order.lease, tell=say)

    if order.moment is not None:
        stop_at(*order.moment)
    asyncio.run(work())
