"""The background jobs of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.jobs.job import Job
from semlex.jobs.kinds import arguments_to_store
from semlex.options.declare import check_options, operation
from semlex.options.indexing import JobOptions
from semlex.retriever.handle import Part
from semlex.store.jobs import JobQueue, NewJob
from semlex.store.schema.locks import no_such_collection
from semlex.store.schema.registry import find_collection, list_collections
from semlex.types.reports import DEFAULT_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack


class Jobs(Part):
    """The jobs of a collection; `Collection.jobs` is one."""

    @operation("submit job", "write")
    async def submit(
        self,
        kind: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Store a job for this collection; a worker runs it (`Client.work`, ``semlex worker``).

        The kinds are ``index``, ``sync`` (with ``paths``, and the methods' options), ``add`` (with ``documents``, and
        ``on_duplicate``), ``optimize``, ``rechunk``, ``embed`` and ``reembed`` (with ``model``). A job that is
        interrupted is continued; nothing it does is stored twice. If the collection does not exist, this call makes it
        without loading its model.

        Args:
            kind: One of the kinds above.
            arguments: Arguments of the job, at most 1 MiB as JSON. Paths are made absolute and read by the worker.
            **options: See `JobOptions`.

        Raises:
            ConfigurationError: The kind or an argument is unknown, or a value is refused.
            ValidationError: With every error of every document.
            CollectionNotFoundError: The collection does not exist, and `create` is False.
        """
        check_options(JobOptions, options, "submit")
        stored = arguments_to_store(kind, arguments)
        database = await self._handle.database()
        if await find_collection(database, self._handle.names) is None:
            if not self._handle.create:
                known = [listed.name for listed in await list_collections(database, self._handle.names.schema)]
                raise no_such_collection(self._handle.names.collection, known)
            await self._handle.ready()
        queue = JobQueue(database, self._handle.names.schema)
        await queue.ensure_table()
        job = NewJob(
            kind,
            self._handle.names.collection,
            stored,
            options.get("priority", 0),
            options.get("unique_key"),
            options.get("not_before"),
            options.get("max_attempts", DEFAULT_ATTEMPTS),
        )
        return Job.of(await queue.submit(job), queue)
