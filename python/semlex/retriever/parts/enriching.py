"""Lines of a language model: asked for while a collection is filled, or afterwards."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.enrichment.options import checked_enrichment
from semlex.ingest.run import known_sources
from semlex.progress import ProgressOption, shown
from semlex.validation import check_parameters, kind_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from uuid import UUID

    from semlex.chat.base import ChatModel
    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.enrichment.run import EnrichmentRun
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.progress import Progress
    from semlex.types.reports import EnrichmentReport


logger = logging.getLogger("semlex")


class CollectionEnriching(ABC):
    """Lines about chunks; `Collection` is one."""

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    async def enrich(
        self,
        enrichment: Enrichment | str | ChatModel,
        *,
        source: str | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> EnrichmentReport:
        """Lets a language model write one line about each chunk that has none, and stores the chunk with it.

        The line says what the chunk is about, in words that people would ask with. It is embedded and found by words
        with the chunk, and is never a part of its text. The model is sent the titles and the text of each chunk. A
        chunk whose titles and text do not change keeps its line, whoever stores it again; a run that was ended is
        continued by the same call.

        Args:
            enrichment: A language model, its name, or both with how it is asked (`Enrichment`).
            source: Name of the only source whose chunks are wanted.
            dry_run: Whether only to count what the lines would cost; nothing is sent then.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: The model's name cannot be used, or there is no such source.
            ModelError: The model fails before the first line; nothing was written.
            EmbeddingsMissingError: The collection has vectors, and their model is not open.
        """
        check_parameters(
            text_parameter("source", source),
            kind_errors("dry_run", dry_run, bool),
        )
        bars = shown(progress)
        wanted = checked_enrichment(enrichment)
        if wanted is None:
            raise ConfigurationError("enrichment must name a language model: openai:MODEL, http(s)://HOST/v1#MODEL, …")
        indexer = await self._ready()
        key = None
        if source is not None:
            ((found, _),) = (await known_sources(indexer.database, indexer.collection, source)).values()
            key = found.source_id
        with bars as tell:
            async with self._enrichment(wanted, tell) as work:
                if dry_run or wanted.dry_run:
                    return await work.estimated(source=key)
                if await work.count(source=key):
                    await work.check()
                return await work.run(source=key)

    async def _filled(
        self,
        wanted: Enrichment | None,
        progress: Callable[[Progress], None] | None,
        fill: Callable[[], Awaitable[Sequence[UUID]]],
    ) -> EnrichmentReport | None:
        """Fills the collection, and lets the model write about the documents whose keys come of that."""
        if wanted is None:
            await fill()
            return None
        async with self._enrichment(wanted, progress) as work:
            await work.check()
            documents = await fill()
            return await (work.estimated if wanted.dry_run else work.run)(documents=documents)

    @asynccontextmanager
    async def _enrichment(
        self, wanted: Enrichment, progress: Callable[[Progress], None] | None
    ) -> AsyncGenerator[EnrichmentRun, None]:
        """What asks for lines, and closes the model behind it where it was made here."""
        from semlex.ingest.enrichment.run import EnrichmentRun  # noqa: PLC0415 - most programs only search

        indexer = await self._ready()
        model = wanted.opened()
        try:
            yield EnrichmentRun(indexer, wanted, model, progress)
        finally:
            if model is not wanted.model:
                await asyncio.to_thread(model.close)


def warn_of_failures(report: EnrichmentReport | None) -> None:
    """Logs that chunks got no line, where a call returns no report."""
    if report is not None and report.failed + report.left:
        lacking = report.failed + report.left
        logger.warning("%d of %d chunks got no line: %s", lacking, report.chunks, report.first_failure)
