"""Changes the embedding model of a collection in use: makes a second set of vectors (a version), then switches."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semlex.embedding.probe import EmbedderProbe, may_be_equal
from semlex.errors import ConfigurationError, ModelError, ModelServesError, ReadOnlyError, StoreError
from semlex.ingest.chunk_rows import embedded_text
from semlex.ingest.embed import DocumentVectors, default_storage
from semlex.ingest.indexer import build_progress
from semlex.ingest.progress import show_progress
from semlex.maintenance.version_fill import VersionFill
from semlex.models.tokenizer import counter_of_words
from semlex.search.query_vector import usable_query_vector
from semlex.store.embedding_versions import (
    VersionRun,
    begin_run,
    check_dimensions,
    create_version,
    drop_version,
    present_versions,
)
from semlex.store.indexes.build import IndexBuilder
from semlex.store.indexes.catalog import read_vector_indexes
from semlex.store.indexes.choice import indexes_wanted
from semlex.store.query.filters import Filter
from semlex.store.query.run import run_legs
from semlex.store.query.score_calibration import sample_chunks
from semlex.store.query.vector import register_vector_parameter, vector_leg
from semlex.store.schema.locks import without_writers
from semlex.store.write.documents import count_unembedded
from semlex.types.documents import json_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from numpy.typing import NDArray

    from semlex.embedding.base import Embedder
    from semlex.ingest.progress import Progress
    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.options.collection import StorageName
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.vector import VectorLeg
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFigures:
    """One set of vectors of a collection.

    Attributes:
        version: Number, from 1; never reused.
        state: ``serving`` (in use), ``building``, or ``old``: processes with its model still use it, and
            `Embeddings.roll_back` returns to it.
        storage: ``vector`` or ``halfvec``.
        vectors: Chunks with a vector.
        lacking: Chunks without a vector.
        bytes: Size of the vectors' table with its indexes.
        created_at: In UTC.
        idle_seconds: Seconds since a process last used this set while a different set was serving; None if none did.
        is_running: Whether a process is filling it.
        calibration: The stored curve, as `ConfidenceCurve.to_dict` returns it, or None.
    """

    version: int
    state: Literal["serving", "building", "old"]
    model: str
    revision: str | None
    dimensions: int
    storage: StorageName
    vectors: int
    lacking: int
    bytes: int
    created_at: datetime
    idle_seconds: float | None
    is_running: bool
    calibration: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes as JSON values."""
        values: dict[str, Any] = json_value(self)
        return values


@dataclass(slots=True, kw_only=True)
class ReembedReport:
    """The result of a change of the model.

    Attributes:
        version: Number of the set of vectors now in use; with `dry_run`, of the set that a run would continue, or None.
        previous: Number of the set that was in use before, or None.
        storage: ``vector`` or ``halfvec``.
        embedded: Vectors that were made; with `dry_run`, that a run would make.
        resumed: Whether the run continued an earlier one.
        cut: Texts that exceeded the model's limit, if the model counts them.
        sampled: Texts that were embedded again and compared with their vectors.
        recall: Share of the 10 nearest vectors that the index finds, 0 to 1; None without an index.
        indexes: Names of the built indexes.
        lacking: Chunks without a vector in the set in use; above 0 only if forced.
        seconds: Wall time.
    """

    version: int | None
    previous: int | None
    model: str
    dimensions: int
    storage: StorageName
    chunks: int = 0
    embedded: int = 0
    resumed: bool = False
    cut: int = 0
    sampled: int = 0
    recall: float | None = None
    indexes: list[str] = field(default_factory=list)
    lacking: int = 0
    dry_run: bool = False
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


SAMPLE_CHUNKS = 20
# Length of the difference of two vectors of one text, as a share of theirs. Other batches, float16 and servers with
# many machines stay far below; another text, or another model, is at 0.5 and more.
TOLERATED_DIFFERENCE = 0.1
NEIGHBORS = 10
MIN_RECALL = 0.8
QUERY_WORDS = 8
# Similarities that differ by less count as equal.
EQUAL = 1e-6


async def _check(
    opened: OpenCollection, collection: CollectionInfo, embedder: Embedder, vectors: DocumentVectors
) -> tuple[int, float | None]:
    """Refuse new vectors if the model no longer makes them or the index misses them; return sample size and recall."""
    sample, stored = await opened.database.read(
        "read a sample of vectors", lambda c: sample_chunks(c, collection, SAMPLE_CHUNKS)
    )
    if not sample:
        return 0, None
    name = collection.names.collection
    made = await vectors.of([embedded_text(*one) for one in sample], collection.embedding)
    lengths = np.maximum(np.linalg.norm(made, axis=1), np.finfo(np.float32).tiny)
    differences = np.linalg.norm(stored - made, axis=1) / lengths
    if (wrong := int((differences > TOLERATED_DIFFERENCE).sum())) > 0:
        raise ModelError(
            f"{embedder.identity.model} no longer makes the stored vectors of {wrong} of {len(made)} texts of "
            f"collection {name!r} (differences up to {differences.max():.2f}, {TOLERATED_DIFFERENCE} are tolerated), "
            "so nothing was switched: the model or its server has changed; embed all texts again with: semlex models "
            f"set --collection {name} --restart"
        )
    queries = [
        usable_query_vector(await opened.executor.query(embedder.embed_query, start, model=embedder))
        for _, text in sample
        if (start := " ".join(text.split()[:QUERY_WORDS]))
    ]
    recall = await opened.database.read_snapshot("measure the vector index", partial(_recall, collection, queries))
    if recall is not None and recall < MIN_RECALL:
        raise StoreError(
            f"the vector index of the new vectors of collection {name!r} finds {recall:.0%} of the {NEIGHBORS} "
            f"nearest, and {MIN_RECALL:.0%} are required, so nothing was switched: choose another index for the "
            f"collection (semlex maintain create-index --collection {name} --kind hnsw --m 32), and run the "
            "same command again, which builds that index"
        )
    return len(sample), recall


async def _recall(collection: CollectionInfo, queries: list[NDArray[np.float32]], snapshot: Snapshot) -> float | None:
    """Return the share of the nearest vectors of queries that the index finds; None without an index."""
    indexes = await read_vector_indexes(snapshot.connection, collection)
    if indexes.used is None:
        return None
    register_vector_parameter(snapshot.connection)

    async def scores(leg: VectorLeg) -> NDArray[np.float64]:
        result = (await run_legs(snapshot, [leg])).results["vector"]
        if result.error is not None:
            raise result.error
        return result.scores

    found = wanted = 0
    for query in queries:
        nearest = await scores(vector_leg(collection, query, NEIGHBORS, Filter(), plan="scan"))
        least = nearest.min(initial=np.inf)
        least -= EQUAL * max(1.0, abs(least))
        wanted += len(nearest)
        quick = await scores(vector_leg(collection, query, NEIGHBORS, Filter(), indexes=indexes))
        found += int((quick >= least).sum())
    return found / wanted if wanted else 1.0


logger = logging.getLogger("semlex")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A version to fill; `run` is the lease for filling it, or the seconds until another process's lease ends."""

    versions: Versions
    version: EmbeddingVersion
    run: VersionRun | float
    resumed: bool


def new_report(versions: Versions, version: EmbeddingVersion, *, resumed: bool) -> ReembedReport:
    """Return the report of a change to a version, before anything is embedded."""
    return ReembedReport(
        version=version.version,
        previous=versions.serving or None,
        model=version.model,
        dimensions=version.dimensions,
        storage=version.storage,
        resumed=resumed,
    )


async def complete(report: ReembedReport, opened: OpenCollection, fill: VersionFill, started: float) -> None:
    """Add the figures to a report: vectors made, chunks of the collection, and seconds since `started`."""
    report.embedded = fill.written
    whole = replace(fill.collection, embedding=None)
    report.chunks = await opened.database.read("count", lambda c: count_unembedded(c, whole))
    report.seconds = time.perf_counter() - started


def refuse_work(opened: OpenCollection) -> None:
    """Refuse a read-only server, and a caller's transaction: a change of the model needs several transactions."""
    if opened.info.server.read_only:
        raise ReadOnlyError("this server is read-only (a standby?): change the model on the primary")
    if opened.database.joins_transaction:
        raise ConfigurationError(
            "a change of the model needs several transactions: open the collection without connection="
        )


# 1. Create a version for the new model; from now on writers remove vectors of changed texts from both versions.
# 2. Fill it, build its index, check both, fill in what was written meanwhile.
# 3. Switch: writers wait for a moment; the rest is embedded, and the new version is used.
# Processes with the old model continue with the old version. The same command continues a killed run.
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
                "name the new model (semlex models set MODEL, model= in Python); 'none' is not a model"
            )
        serving = opened.info.versions.answering
        self._opened = opened
        self._database = opened.database
        self._embedder: Embedder = models.embedder
        self._probe = EmbedderProbe(models.embedder, opened.executor)
        self._counter = models.counter_name
        if storage is None and serving is not None:
            storage = serving.storage
        distance, dimensions = opened.info.settings.distance, models.version.dimensions
        storage = storage or default_storage(dimensions, distance, lambda: models.of_length_1)
        self._wanted = replace(models.version, storage=storage)
        self._restart = restart
        self._progress = progress
        self._started = time.perf_counter()
        check_dimensions(self._wanted)

    async def dry_run(self) -> ReembedReport:
        """Count what `run` would embed."""
        await self._make_probe()
        info = self._opened.info

        async def look(connection: Connection) -> tuple[Versions, int, int]:
            found = await present_versions(connection, info)
            building = self._resumable(found)
            missing = await count_unembedded(connection, replace(info, embedding=building))
            return found, missing, await count_unembedded(connection, replace(info, embedding=None))

        versions, missing, chunks = await self._database.read("count", look)
        resumed = self._resumable(versions)
        report = new_report(versions, resumed or self._wanted, resumed=resumed is not None)
        report.version = None if resumed is None else resumed.version
        report.chunks, report.embedded, report.dry_run = chunks, missing, True
        report.seconds = time.perf_counter() - self._started
        return report

    async def _make_probe(self) -> None:
        self._wanted = replace(self._wanted, probe=await self._probe.make())

    async def run(self) -> ReembedReport:
        """Fill a version for the new model, check it, and switch to it."""
        refuse_work(self._opened)
        await self._make_probe()
        begun = await self._begin()
        info = replace(self._opened.info, versions=begun.versions, embedding=begun.version)
        assert isinstance(begun.run, VersionRun)  # noqa: S101 - `_begin` has waited for it
        serving = begun.versions.answering
        vectors = DocumentVectors(info.names.collection, self._embedder, self._opened.executor, self._probe)
        cut_before = getattr(self._embedder, "documents_cut", 0)
        report = new_report(begun.versions, begun.version, resumed=begun.resumed)
        fill = VersionFill(self._database, info, begun.run, vectors, self._progress)
        async with fill.kept():
            await fill.catch_up()
            await build_indexes(self._opened, info, report, self._progress)
            report.sampled, report.recall = await _check(self._opened, info, self._embedder, vectors)
            report.lacking = await fill.switch()
        await complete(report, self._opened, fill, self._started)
        report.cut = getattr(self._embedder, "documents_cut", 0) - cut_before
        if report.cut:
            report.warnings.append(
                f"{report.cut:,} texts were longer than {report.model} reads: only their beginning was embedded; "
                f"semlex maintain rechunk --collection {info.names.collection} --chunk-tokens N makes shorter chunks"
            )
        if serving is not None and serving.calibration is not None:
            report.warnings.append(
                f"the calibration of version {serving.version} stays with its vectors: hits have no confidence until "
                f"the new vectors are calibrated (semlex eval calibrate --collection {info.names.collection})"
            )
        logger.info("version %d of the vectors of %s is in use", begun.version.version, info.names.collection)
        return report

    # --- the beginning ------------------------------------------------------------------------------------------------

    async def _begin(self) -> _Begun:
        """Take the lease of a version to fill; if another run has it, wait to see whether that run is still alive."""
        begun = await self._try_begin()
        if isinstance(begun.run, float):
            name = self._opened.info.names.collection
            logger.info("%s: waiting to see whether an earlier run is still working", name)
            show_progress(self._progress, "wait for another run", 0, None, "chunks")
            await self._database.clock.sleep(begun.run + 0.1)
            begun = await self._try_begin()
            if isinstance(begun.run, float):
                raise StoreError(
                    f"another process is changing the model of collection {name!r} at this moment: wait until it is "
                    f"done (semlex models list --collection {name} shows how far it is), or end it"
                )
        return begun

    async def _try_begin(self) -> _Begun:
        info = self._opened.info

        async def work(connection: Connection) -> _Begun:
            found = await present_versions(connection, info)
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
        """Return the version begun by an earlier run for this model, or None."""
        wanted, name = self._wanted, self._opened.info.names.collection
        building = None if self._restart else versions.building
        if building is not None and self._is_same(building):
            return building
        if building is not None:
            raise ConfigurationError(
                f"a change of collection {name!r} to {building.model} ({building.dimensions} dimensions, "
                f"{building.storage}) was begun and is not finished: continue with that model, or discard its vectors "
                "with --restart (restart=True in Python)"
            )
        for standing in versions.standing:
            if self._is_same(standing):
                if standing.version == versions.serving:
                    raise ModelServesError(
                        f"collection {name!r} has the model {wanted.model} ({wanted.dimensions} dimensions, "
                        f"{wanted.storage}) already; to embed chunks without a vector: semlex models fill "
                        f"--collection {name}"
                    )
                raise ConfigurationError(
                    f"collection {name!r} still has vectors of {wanted.model} as version {standing.version}: go back "
                    f"to the version used before with: semlex models rollback --collection {name}; or drop it first "
                    f"with: semlex models drop {standing.version} --collection {name}"
                )
        return None

    def _is_same(self, stored: EmbeddingVersion) -> bool:
        """Return whether a set of vectors is of the new model and, as far as known, of the same weights."""
        wanted = self._wanted
        is_named_so = (stored.identity_key, stored.storage) == (wanted.identity_key, wanted.storage)
        return is_named_so and may_be_equal(stored.probe, wanted.probe)

    def _token_counter(self) -> str | None:
        """Return the token counter of the new model; None if the collection counts words and does not need it."""
        stored = self._opened.info.settings.token_counter
        return None if counter_of_words(stored) is not None else self._counter


async def build_indexes(
    opened: OpenCollection, info: CollectionInfo, report: ReembedReport, progress: Callable[[Progress], None] | None
) -> None:
    """Before the switch, build the new version's vector index, of the kind chosen for the version in use."""
    serving = replace(info, embedding=info.versions.answering)

    async def look(connection: Connection) -> tuple[VectorIndex | None, bool]:
        chosen = (await read_vector_indexes(connection, serving)).wanted
        return chosen, await indexes_wanted(connection, info)

    chosen, is_wanted = await opened.database.read("look at the indexes", look)
    if chosen is None and not is_wanted:
        return

    await opened.builds.wait(info.names)
    # Writers remove vectors here, too, and must not wait for the build.
    concurrently, tell = opened.database.url is not None, build_progress(progress)
    try:
        built = await IndexBuilder(opened.database, info, tell).run(chosen, concurrently=concurrently)
    except ConfigurationError as error:
        report.warnings.append(
            f"the chosen index is not possible for the new vectors, so the default kind is built: {error}"
        )
        built = await IndexBuilder(opened.database, info, tell).run(concurrently=concurrently)
    report.indexes += built
    report.warnings += built.warnings
    if built.busy:
        raise StoreError(
            f"another process builds indexes of collection {info.names.collection!r} at this moment, so nothing was "
            "switched: run the same command again when it is done"
        )
