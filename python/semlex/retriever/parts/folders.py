"""Folders kept in step: the part of a collection that follows what happens to files."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import ConfigurationError
from semlex.ingest.document_states import Documents, documents_with_states
from semlex.ingest.enrichment.options import checked_enrichment
from semlex.ingest.files.discovery import checked_paths
from semlex.ingest.loaders.base import LoadOptions
from semlex.ingest.loaders.extraction import checked_extraction
from semlex.ingest.sync.apply import SyncOptions, SyncRun
from semlex.ingest.sync.watch import watch
from semlex.progress import ProgressOption, check_progress, shown
from semlex.retriever.parts.enriching import CollectionEnriching
from semlex.validation import check_parameters, kind_errors, strings_errors, text_parameter, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path
    from uuid import UUID

    from semlex.chat.base import ChatModel
    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.loaders.base import OnBadText
    from semlex.ingest.loaders.extraction import Extract, MetadataExtraction
    from semlex.ingest.progress import SyncReport
    from semlex.parameters import WantedOptions
    from semlex.retriever.resources import Resources

MAX_LISTED = 1_000_000

T = TypeVar("T")


class CollectionFolders(CollectionEnriching):
    """Synchronising and watching folders of a collection; `Collection` is one."""

    _resources: Resources
    _wanted: WantedOptions

    @abstractmethod
    async def _reading(self, read: Callable[[Indexer], Awaitable[T]]) -> T:
        """Read the open collection; once more if it was dropped, since another one may have its name now."""

    async def sync(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        dry_run: bool = False,
        keep_deleted: bool = False,
        allow_empty: bool = False,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> SyncReport:
        """Makes the collection hold what files and folders hold: as `index`, and what is gone is deleted.

        A file that has its size, times and inode of the last run is not read. One that was renamed keeps its chunks and
        vectors; nothing of it is embedded. A document whose file cannot be looked at stays.

        Args:
            paths: Files or folders.
            source: As for `index`.
            include: As for `index`.
            exclude: As for `index`; documents of what a pattern leaves out stay.
            recursive: As for `index`.
            dry_run: Whether to compare only; the report's `plan` says what would be done.
            keep_deleted: Whether documents stay whose file is gone.
            allow_empty: Whether a path that is missing, or holds no file, means that its documents are to be deleted.
            text_fields: As for `index`.
            id_field: As for `index`.
            detect_encoding: As for `index`.
            on_bad_text: As for `index`.
            chunk_tokens: As for `index`.
            overlap_tokens: As for `index`.
            min_tokens: As for `index`.
            extract_metadata: As for `index`.
            enrichment: As for `index`.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A path is missing or empty while documents of it are stored; or as for `index`.
            CollectionSettingsError: As for `index`.
        """
        loading = checked_load_options(text_fields, id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text)
        options = _checked(SyncOptions(source, include, exclude, recursive, keep_deleted, allow_empty, loading))
        check_parameters(kind_errors("dry_run", dry_run, bool))
        bars = shown(progress)
        wanted = self._wanted.saying(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
        lines = checked_enrichment(enrichment)
        if lines is not None and dry_run:
            raise ConfigurationError(
                "what lines cost is known when files are stored: leave dry_run or enrichment out, and let "
                "enrich(dry_run=True) count afterwards"
            )
        found, reports = await asyncio.to_thread(checked_paths, paths, must_exist=False), []
        with bars as tell:
            run = SyncRun(await self._ready(), wanted, tell, checked_extraction(extract_metadata))

            async def fill() -> Sequence[UUID]:
                reports.append(await run.sync(found, options, dry_run=dry_run))
                return run.documents

            run.report.enrichment = await self._filled(lines, tell, fill)
        return reports[0]

    def watch(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        keep_deleted: bool = False,
        allow_empty: bool = False,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        extract_metadata: MetadataExtraction | Extract | None = None,
        poll: bool = False,
        progress: ProgressOption = None,
    ) -> AsyncGenerator[SyncReport, None]:
        """Synchronises, and again whenever something changes, until the iteration is ended.

        Changes are gathered for at most a second. Every five minutes all is looked at, whatever the system has told.

        Args:
            paths: Files or folders.
            source: As for `sync`.
            include: As for `sync`.
            exclude: As for `sync`.
            recursive: As for `sync`.
            keep_deleted: As for `sync`.
            allow_empty: As for `sync`.
            text_fields: As for `sync`.
            id_field: As for `sync`.
            detect_encoding: As for `sync`.
            on_bad_text: As for `sync`.
            chunk_tokens: As for `sync`.
            overlap_tokens: As for `sync`.
            min_tokens: As for `sync`.
            extract_metadata: As for `sync`.
            poll: Whether to look again and again instead of asking the system for events, as for network drives. So
                it is, too, where the system cannot watch so many folders; `watched_by` of the reports says which.
            progress: Called as the work goes on; ``bar`` shows it.

        Returns:
            The report of the first synchronisation, then of each that did something or met other problems.

        Raises:
            ConfigurationError: As for `sync`.
        """
        loading = checked_load_options(text_fields, id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text)
        options = _checked(SyncOptions(source, include, exclude, recursive, keep_deleted, allow_empty, loading))
        check_parameters(kind_errors("poll", poll, bool))
        check_progress(progress)
        wanted = self._wanted.saying(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
        extraction = checked_extraction(extract_metadata)

        async def look(some: Sequence[Path], only_changes: bool) -> SyncReport:
            with shown(progress) as tell:
                run = SyncRun(await self._ready(), wanted, tell, extraction)
                return await run.sync(some, options, only_changes=only_changes)

        return watch(paths, look, poll=poll, clock=self._resources.clock)

    async def documents(
        self, source: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> Documents:
        """The documents that were read from files, with the states of these, and what the last run could not read.

        A file with the size, times and inode of the last run is not read. Documents that were added are not among them.

        Args:
            source: Name of the only source to list.
            limit: Maximum number of documents, up to 1,000,000; None: all.
            after: ``next_after`` of the page before.

        Raises:
            ConfigurationError: There is no such source.
        """
        check_parameters(
            text_parameter("source", source),
            [] if limit is None else whole_number_errors("limit", limit, 1, MAX_LISTED),
            text_parameter("after", after),
        )

        async def read(indexer: Indexer) -> Documents:
            return await documents_with_states(
                indexer.database, indexer.collection, source, indexer.limits, limit=limit, after=after
            )

        return await self._reading(read)


def checked_load_options(
    text_fields: Sequence[str], id_field: str | None, *, detect_encoding: bool, on_bad_text: OnBadText
) -> LoadOptions:
    """How files are to be read."""
    check_parameters(
        strings_errors("text_fields", text_fields),
        text_parameter("id_field", id_field),
        kind_errors("detect_encoding", detect_encoding, bool),
    )
    return LoadOptions(tuple(text_fields), id_field, detect_encoding, on_bad_text)


def _checked(options: SyncOptions) -> SyncOptions:
    check_parameters(
        text_parameter("source", options.source),
        [] if options.include is None else strings_errors("include", options.include),
        strings_errors("exclude", options.exclude),
        kind_errors("recursive", options.recursive, bool),
        kind_errors("keep_deleted", options.keep_deleted, bool),
        kind_errors("allow_empty", options.allow_empty, bool),
    )
    return options
