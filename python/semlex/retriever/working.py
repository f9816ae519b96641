"""The work of a worker, on the collections of a client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from semlex.jobs.worker import Worker, WorkerOptions
from semlex.parameters import CollectionOptions, WantedOptions
from semlex.retriever.collection import Collection
from semlex.retriever.handle import Handle
from semlex.store.jobs import JobQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.ingest.indexer import Indexer
    from semlex.retriever.resources import Resources


async def work_in(resources: Resources, defaults: Mapping[str, Any] | None, options: WorkerOptions) -> int:
    """Does jobs until it is cancelled; see `Client.work`."""

    async def opened(name: str) -> Collection:
        # Opened again for every job: somebody may have dropped it and made another, or changed its model.
        return await Collection(handle(name)).open()

    async def indexer_of(name: str) -> tuple[Indexer, WantedOptions]:
        made = handle(name)
        return await made.ready(), made.wanted

    def handle(name: str) -> Handle:
        return Handle(resources, name, WantedOptions.of(CollectionOptions(), defaults), create=False)

    worker = Worker(resources.database, resources.server.schema, opened, indexer_of, options)
    await JobQueue(resources.database, resources.server.schema).ensure_table()
    working = asyncio.ensure_future(worker.run())
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        worker.stop()
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:  # once more: batches are not waited for
            worker.abandon()
            await working
        raise
