"""Another embedding model for a collection, while it is searched and written: a second set of vectors, and a switch.

    begin: a version of the new model beside the one that serves; from here on whoever changes a text or deletes one
        removes its vector from both
    fill, build the index, look at both, fill again what came in
    switch: for a moment nobody writes; the rest is made, and the new version serves

Whoever holds the old model goes on with the old version. A run that was killed is continued by the same command.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semlex.embedding.probe import EmbedderProbe, may_be_equal
from semlex.errors import ConfigurationError, ModelServesError, ReadOnlyError, StoreError
from semlex.ingest.embed import DocumentVectors
from semlex.ingest.progress import Progress
from semlex.maintenance.embedding_checks import EmbeddingChecks
from semlex.maintenance.report import ReembedReport
from semlex.maintenance.version_fill import VersionFill
from semlex.models.tokenizer import counter_of_words
from semlex.store.embedding_versions import (
    VersionRun,
    begin_run,
    check_dimensions,
    create_version,
    drop_version,
    read_versions,
)
from semlex.store.indexes.build import IndexBuilder
from semlex.store.indexes.catalog import indexes_wanted, read_vector_indexes
from semlex.store.schema.locks import without_writers
from semlex.store.schema.presence import gone
from semlex.store.write.documents import count_unembedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.embedding.base import Embedder
    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.parameters import StorageName
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion, Versions

logger = logging.getLogger("semlex")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A version to be filled.

    Attributes:
        versions: All, the new one included.
        version: That one.
        run: The right to fill it; else the seconds for which another run has it.
        resumed: Whether an earlier run had begun.
    """

    versions: Versions
    version: EmbeddingVersion
    run: VersionRun | float
    resumed: bool


def refuse_work(opened: OpenCollection) -> None:
    """Refuses where several transactions of one's own are not possible."""
    if opened.info.server.read_only:
        raise ReadOnlyError("this server is read-only (a standby?); the model is changed on the primary")
    if opened.database.joins_transaction:
        raise ConfigurationError("a model is changed in several transactions: open the collection without connection=")


class Reembedding:
    """Changes the embedding model of a collection."""

    def __init__(
        self,
        opened: OpenCollection,
        models: OpenModels,
        storage: StorageName | None,
        *,
        restart: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        if models.embedder is None or models.version is None:
            raise ConfigurationError(
                "say which model the collection is to have (--model, model= in Python); 'none' is no model"
            )
        serving = opened.info.versions.answering
        self._opened = opened
        self._database = opened.database
        self._embedder: Embedder = models.embedder
        self._probe = EmbedderProbe(models.embedder, opened.executor)
        self._counter = models.counter_name
        self._wanted = replace(models.version, storage=storage or ("vector" if serving is None else serving.storage))
        self._restart = restart
        self._progress = progress
        self._started = time.perf_counter()
        check_dimensions(self._wanted)

    async def dry_run(self) -> ReembedReport:
        """Counts what `run` would do."""
        await self._make_probe()
        info = self._opened.info

        async def look(connection: Connection) -> tuple[Versions, int, int]:
            found = await read_versions(connection, info)
            if found is None:
                raise gone(info)
            building = self._resumable(found)
            missing = await count_unembedded(connection, replace(info, embedding=building))
            return found, missing, await count_unembedded(connection, replace(info, embedding=None))

        versions, missing, chunks = await self._database.read("count", look)
        return self._report(versions, self._resumable(versions), missing, chunks)

    async def _make_probe(self) -> None:
        self._wanted = replace(self._wanted, probe=await self._probe.make())

    def _report(self, versions: Versions, resumed: EmbeddingVersion | None, missing: int, chunks: int) -> ReembedReport:
        serving, wanted = versions.answering, self._wanted
        return ReembedReport(
            version=None if resumed is None else resumed.version,
            previous=None if serving is None else serving.version,
            model=wanted.model,
            dimensions=wanted.dimensions,
            storage=wanted.storage,
            chunks=chunks,
            embedded=missing,
            resumed=resumed is not None,
            dry_run=True,
            seconds=time.perf_counter() - self._started,
        )

    async def run(self) -> ReembedReport:
        """Fills a version of the new model, looks at it and lets it serve."""
        refuse_work(self._opened)
        await self._make_probe()
        begun = await self._begin()
        info = replace(self._opened.info, versions=begun.versions, embedding=begun.version)
        assert isinstance(begun.run, VersionRun)  # noqa: S101 - `_begin` has waited for it
        serving = begun.versions.answering
        vectors = DocumentVectors(info.names.collection, self._embedder, self._opened.executor, self._probe)
        cut_before = getattr(self._embedder, "documents_cut", 0)
        report = ReembedReport(
            version=begun.version.version,
            previous=None if serving is None else serving.version,
            model=begun.version.model,
            dimensions=begun.version.dimensions,
            storage=begun.version.storage,
            resumed=begun.resumed,
        )
        fill = VersionFill(self._database, info, begun.run, vectors, self._progress)
        async with fill.kept():
            await fill.catch_up()
            await build_indexes(self._opened, info, report, self._progress)
            checks = EmbeddingChecks(self._database, info, self._embedder, vectors, self._opened.executor)
            report.sampled, report.recall = await checks.run()
            report.lacking = await fill.switch()
        report.embedded = fill.written
        report.chunks = await self._database.read("count", lambda c: count_unembedded(c, replace(info, embedding=None)))
        report.cut = getattr(self._embedder, "documents_cut", 0) - cut_before
        report.seconds = time.perf_counter() - self._started
        if report.cut:
            report.warnings.append(
                f"{report.cut:,} texts were longer than {report.model} reads, which saw their beginning: semlex "
                f"rechunk --collection {info.names.collection} --chunk-tokens N cuts the files shorter"
            )
        if serving is not None and serving.calibration is not None:
            report.warnings.append(
                f"the calibration of version {serving.version} stays with its vectors: hits have no confidence until "
                f"the new ones are calibrated, too (semlex eval calibrate --collection {info.names.collection})"
            )
        logger.info("version %d of the vectors of %s serves", begun.version.version, info.names.collection)
        return report

    # --- the beginning ------------------------------------------------------------------------------------------------

    async def _begin(self) -> _Begun:
        """Takes the right to fill a version; where another run has it, waits whether that one still lives."""
        begun = await self._try_begin()
        if isinstance(begun.run, float):
            name = self._opened.info.names.collection
            logger.info("%s: waiting whether a run that has begun goes on", name)
            if self._progress is not None:
                self._progress(Progress("wait for another run", 0, None, "chunks"))
            await self._database.clock.sleep(begun.run + 0.1)
            begun = await self._try_begin()
            if isinstance(begun.run, float):
                raise StoreError(
                    f"another process is changing the model of collection {name!r} at this moment: wait until it is "
                    f"done (semlex embeddings --collection {name} shows how far it is), or end it"
                )
        return begun

    async def _try_begin(self) -> _Begun:
        info = self._opened.info

        async def work(connection: Connection) -> _Begun:
            found = await read_versions(connection, info)
            if found is None:
                raise gone(info)
            if self._restart and found.building is not None:
                run = await begin_run(connection, info, found.building.version)
                if isinstance(run, float):
                    return _Begun(found, found.building, run, resumed=True)
                await drop_version(connection, info, found.building.version, force=True)
                found = replace(found, building=None)
            version = self._resumable(found)
            resumed = version is not None
            if version is None:
                version = await create_version(
                    connection, info, self._wanted, building=True, token_counter=self._token_counter()
                )
            run = await begin_run(connection, info, version.version)
            return _Begun(replace(found, building=version), version, run, resumed)

        begun = await without_writers(self._database, "begin to change the embedding model", info, work, sets_up=True)
        if isinstance(begun.run, VersionRun):
            self._restart = False  # done
        return begun

    def _resumable(self, versions: Versions) -> EmbeddingVersion | None:
        """The version that an earlier run has begun for this model, or None."""
        wanted, name = self._wanted, self._opened.info.names.collection
        building = None if self._restart else versions.building
        if building is not None and self._is_same(building):
            return building
        if building is not None:
            raise ConfigurationError(
                f"a change of collection {name!r} to {building.model} ({building.dimensions} dimensions, "
                f"{building.storage}) was begun and is not done: go on with that model, or give up what it has made "
                "with --restart (restart=True in Python)"
            )
        for standing in versions.standing:
            if self._is_same(standing):
                if standing.version == versions.serving:
                    raise ModelServesError(
                        f"collection {name!r} has the model {wanted.model} ({wanted.dimensions} dimensions, "
                        f"{wanted.storage}) already; what lacks a vector gets one with: semlex embed "
                        f"--collection {name}"
                    )
                raise ConfigurationError(
                    f"collection {name!r} still has vectors of {wanted.model} as version {standing.version}: go back "
                    f"to the one that served before with --rollback, or drop it first with: semlex embeddings "
                    f"--collection {name} --drop {standing.version}"
                )
        return None

    def _is_same(self, stored: EmbeddingVersion) -> bool:
        """Whether a set of vectors is of the new model, and as far as is known of the same weights."""
        wanted = self._wanted
        is_named_so = (stored.identity_key, stored.storage) == (wanted.identity_key, wanted.storage)
        return is_named_so and may_be_equal(stored.probe, wanted.probe)

    def _token_counter(self) -> str | None:
        """What counts tokens with the new model; None: as before, where that needs no model."""
        stored = self._opened.info.settings.token_counter
        return None if counter_of_words(stored) is not None else self._counter


async def build_indexes(
    opened: OpenCollection,
    info: CollectionInfo,
    report: ReembedReport,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Builds the index that a version should have before it serves: the one that was chosen for the serving vectors."""
    serving = replace(info, embedding=info.versions.answering)

    async def look(connection: Connection) -> tuple[VectorIndex | None, bool]:
        chosen = (await read_vector_indexes(connection, serving)).wanted
        return chosen, await indexes_wanted(connection, info)

    chosen, is_wanted = await opened.database.read("look at the indexes", look)
    if chosen is None and not is_wanted:
        return

    def tell(name: str, done: int, total: int | None, unit: str) -> None:
        if progress is not None:
            progress(Progress(f"build the index {name}", done, total, unit))

    # Whoever deletes or changes a text removes its vector here, too, and must not wait for the build.
    concurrently = opened.database.url is not None
    try:
        built = await IndexBuilder(opened.database, info, tell).run(chosen, concurrently=concurrently)
    except ConfigurationError as error:
        report.warnings.append(
            f"the index that was chosen is not possible for the new vectors, the usual one is: {error}"
        )
        built = await IndexBuilder(opened.database, info, tell).run(concurrently=concurrently)
    report.indexes += built
    report.warnings += built.warnings
    if built.busy:
        raise StoreError(
            f"another process builds indexes of collection {info.names.collection!r} at this moment, so nothing was "
            "switched: run the same command again when it is done"
        )
