"""Lists, drops and rolls back the sets of vectors of a collection."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError, ModelMismatchError, StoreError
from semlex.ingest.embed import DocumentVectors
from semlex.maintenance.reembed import (
    EmbeddingFigures,
    ReembedReport,
    build_indexes,
    complete,
    new_report,
    refuse_work,
)
from semlex.maintenance.version_fill import VersionFill
from semlex.store.embedding_versions import (
    VersionRow,
    VersionRun,
    begin_run,
    bound_times,
    drop_version,
    present_versions,
    stored_versions,
    version_rows,
)
from semlex.store.query.statistics import vector_counts
from semlex.store.schema.locks import without_writers

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.progress import Progress
    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import EmbeddingVersion, Versions


async def list_embeddings(opened: OpenCollection) -> list[EmbeddingFigures]:
    """Return all sets of vectors, sorted by number."""

    async def work(connection: Connection) -> list[EmbeddingFigures]:
        found = await present_versions(connection, opened.info)
        rows = await version_rows(connection, opened.info)
        return [
            _figures(row, found, *await vector_counts(connection, opened.info, row.version.version)) for row in rows
        ]

    return await opened.database.read("count vectors", work)


def _figures(row: VersionRow, versions: Versions, vectors: int, lacking: int, size: int) -> EmbeddingFigures:
    version = row.version
    is_serving = version.version == versions.serving
    return EmbeddingFigures(
        version=version.version,
        state="serving" if is_serving else "building" if row.building else "old",
        model=version.model,
        revision=version.revision,
        dimensions=version.dimensions,
        storage=version.storage,
        vectors=vectors,
        lacking=lacking,
        bytes=size,
        created_at=row.created_at,
        idle_seconds=row.idle_seconds,
        is_running=row.is_running,
        calibration=version.calibration,
    )


async def drop_embeddings(opened: OpenCollection, version: int, *, force: bool) -> None:
    """Drop a set of vectors, as `semlex.store.embedding_versions.drop_version` does."""
    refuse_work(opened)
    # Committed separately: a refusal below leaves nothing.
    await opened.database.write("look at the embedding versions", lambda c: bound_times(c, opened.info))
    is_dropped = False

    async def work(connection: Connection) -> None:
        nonlocal is_dropped
        if is_dropped and version not in await stored_versions(connection, opened.info):
            return  # the attempt before was committed, but its answer was lost
        await drop_version(connection, opened.info, version, force=force)
        is_dropped = True

    await without_writers(opened.database, "drop an embedding version", opened.info, work, sets_up=True)


async def previous_version(opened: OpenCollection) -> EmbeddingVersion:
    """Return the set of vectors that was in use before the present one; raise if none is left."""
    rows = await opened.database.read("look at the embedding versions", lambda c: version_rows(c, opened.info))
    before = [row for row in rows if row.served_until is not None]
    if not before:
        name = opened.info.names.collection
        raise ConfigurationError(f"collection {name!r} has no earlier vectors to go back to")
    return max(before, key=lambda row: (row.served_until, row.version.version)).version


async def roll_back(
    opened: OpenCollection,
    version: EmbeddingVersion,
    models: OpenModels | None,
    why_not: str | None,
    progress: Callable[[Progress], None] | None,
    *,
    force: bool,
) -> ReembedReport:
    """Embed the chunks that lack a vector of an earlier version, and switch back to it."""
    refuse_work(opened)
    made = None if models is None else models.version
    if made is not None and made.identity_key != version.identity_key:
        raise ModelMismatchError(
            f"version {version.version} holds vectors of {version.model} ({version.identity_key}), and "
            f"{made.model} makes other vectors ({made.identity_key}): name the model that made them, or no model"
        )
    started = time.perf_counter()
    info = replace(opened.info, embedding=version)

    async def begin(connection: Connection) -> tuple[Versions, VersionRun | float]:
        return await present_versions(connection, info), await begin_run(connection, info, version.version)

    versions, run = await opened.database.write("begin to go back", begin)
    if not isinstance(run, VersionRun):
        raise StoreError(
            f"another process is filling version {version.version}, or was killed; its lease ends in {run:.0f} s: "
            "try again then"
        )
    info, name = replace(info, versions=versions), info.names.collection
    vectors = None
    if models is not None and models.embedder is not None:
        vectors = DocumentVectors(name, models.embedder, opened.executor)
    report = new_report(versions, version, resumed=True)
    fill = VersionFill(opened.database, info, run, vectors, progress)
    async with fill.kept():
        missing = await fill.count_missing()
        if vectors is not None:
            await fill.catch_up()
        elif missing and not force:
            raise StoreError(
                f"{missing:,} chunks have no vector of {version.model} (version {version.version}), and "
                f"{why_not or 'its model is not open'}; name the model (--model, model= in Python), or go "
                "back without them (--force, force=True): only keyword search finds those chunks then"
            )
        await build_indexes(opened, info, report, progress)
        report.lacking = await fill.switch(force=force and vectors is None)
    await complete(report, opened, fill, started)
    return report
