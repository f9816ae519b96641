"""A process for tests: a worker, until it is killed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex import Client
from semlex.testing import HashEmbedder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Order:
    """How a worker is started.

    Attributes:
        url: Address of the server.
        allow: Folder that jobs may read.
        lease: Seconds.
        concurrency: Most jobs at a time.
    """

    url: str
    allow: Path
    lease: float = 1.0
    concurrency: int = 2


def run(order: Order) -> None:
    """Is the worker."""
    asyncio.run(_work(order))


async def _work(order: Order) -> None:
    async with Client(order.url, HashEmbedder(8), use_reranking=False, timeout=2) as client:
        await client.work(concurrency=order.concurrency, allow=[order.allow], lease=order.lease)
