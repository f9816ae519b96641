"""The sources of a run with what was read from them before; new ones are made."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from semlex.errors import ConfigurationError
from semlex.ingest.files.reading import read_file
from semlex.ingest.files.roots import check_root
from semlex.ingest.loaders.base import FileBytes
from semlex.store.schema.presence import hold_collection
from semlex.store.write.sources import (
    KnownDocument,
    Source,
    known_documents,
    read_sources,
    unknown_source,
    write_source,
)
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.ingest.files.discovery import FoundFile
    from semlex.ingest.files.roots import Place
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

# Root of a source -> the source, and the documents that were read from it before.
OpenSources: TypeAlias = dict[str, tuple[Source, dict[UUID, KnownDocument]]]


async def open_sources(database: Database, collection: CollectionInfo, places: Sequence[Place]) -> OpenSources:
    """The sources of places, made where they are new."""
    roots = {place.source: str(place.root) for place in places}

    async def work(connection: Connection) -> OpenSources:
        known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
        if not roots.items() <= known_roots.items():
            # Another run may make a source above or below since it was planned.
            await hold_collection(connection, collection, alone=True)
            known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
            for name in roots.keys() - known_roots.keys():
                check_root(Path(roots[name]), name, known_roots)
        opened: list[Source] = []
        for name, root in sorted(roots.items()):
            source = await write_source(connection, collection, name, root, utc_now())
            if source is None:  # since it was planned
                raise ConfigurationError(f"the source {name!r} has got another folder in the meantime: try again")
            opened.append(source)
        return await _with_documents(connection, collection, opened)

    return await database.write("open the sources", work)


async def known_sources(database: Database, collection: CollectionInfo, name: str | None = None) -> OpenSources:
    """The source of a name, or all of them."""

    async def work(connection: Connection) -> OpenSources:
        found = await read_sources(connection, collection)
        wanted = [source for source in found if name in (None, source.name)]
        if name is not None and not wanted:
            raise unknown_source(name, found)
        return await _with_documents(connection, collection, wanted)

    return await database.read("read the sources", work)


def refuse_moved(found: Sequence[FoundFile], known: OpenSources) -> None:
    """Refuses files of new sources of which half of a known source, whose folder is gone, has the names and bytes."""
    files: dict[Path, dict[str, FoundFile]] = {}
    for file in found:
        files.setdefault(file.root, {})[file.uri] = file
    for source, documents in known.values():
        if not documents or os.path.exists(source.root):  # noqa: PTH110 - says False where Path would raise
            continue
        for root, by_uri in files.items():
            pairs = [(by_uri[one.uri], one) for one in documents.values() if one.uri in by_uri]
            alike = [(file, one) for file, one in pairs if file.size == one.size_bytes]
            needed = (len(documents) + 1) // 2
            if len(alike) >= needed and sum(_is_same(*pair) for pair in alike) >= needed:
                move = f"semlex sources move {shlex.quote(source.name)} {shlex.quote(str(root))}"
                raise ConfigurationError(
                    f"{root} has the files of the source {source.name!r}, whose folder {source.root} is gone. If it "
                    f"has moved: {move}. If not, give this folder a name of its own with --source NAME (source=)"
                )


def _is_same(file: FoundFile, document: KnownDocument) -> bool:
    read = read_file(file)
    return isinstance(read, FileBytes) and read.content_hash == document.content_hash


async def _with_documents(connection: Connection, collection: CollectionInfo, sources: Sequence[Source]) -> OpenSources:
    known = await known_documents(connection, collection, [source.source_id for source in sources])
    return {source.root: (source, known[source.source_id]) for source in sources}
