"""Delete chunks by id, document, source or filter, or because their file is gone, in batches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.batches import in_parts
from semlex.ingest.files.roots import holds_anything
from semlex.ingest.files.roots import vanished as vanished_files
from semlex.store.query.chunk_keys import keys_of
from semlex.store.write import sources as stored_sources
from semlex.store.write.deletes import BATCH_DOCUMENTS, Selection, documents_named, documents_that_pass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from semlex.store.postgres.database import Database
    from semlex.store.query.filters import Filter
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.sources import Source


@dataclass(frozen=True, slots=True)
class Deletion:
    """Chunks to delete: those for which every given condition holds."""

    ids: Sequence[str] | None
    document: str | None
    source: str | None
    condition: Filter
    vanished: bool

    def __post_init__(self) -> None:
        if self.ids is self.document is self.source is None and not self.vanished and self.condition.is_empty:
            raise ConfigurationError(
                "name what to delete: ids, document, source, filters or vanished; to delete everything, drop the "
                "collection"
            )

    @property
    def files(self) -> str | None:
        """The text by which the log names the deleted files; None if only ids and a filter were given."""
        given = ("vanished" if self.vanished else None, self.source, self.document)
        parts = [part for part in given if part is not None]
        return ", ".join(parts) if parts else None

    @property
    def whole_source(self) -> str | None:
        """Name of the source if all of its documents are to be deleted, else None."""
        rest = self.ids is not None or self.document is not None or self.vanished or not self.condition.is_empty
        return None if rest else self.source

    async def selections(self, database: Database, collection: CollectionInfo) -> AsyncIterator[Selection]:
        """Yield the chunks to delete, in parts that are small enough for one transaction."""
        documents = await self._documents(database, collection)
        if self.ids is not None:
            keys = sorted(keys_of(self.ids))
            wanted = keys if documents is None else [key for key in keys if key[0] in documents]
            start = 0
            while start < len(wanted):
                end = min(start + BATCH_DOCUMENTS, len(wanted))
                # All ids of a document in one part, to see whether anything of it is left.
                while end < len(wanted) and wanted[end][0] == wanted[end - 1][0]:
                    end += 1
                part_keys, start = wanted[start:end], end
                yield Selection(list(dict.fromkeys(key[0] for key in part_keys)), self.condition, part_keys)
        elif documents is not None:
            for part in in_parts(sorted(documents), BATCH_DOCUMENTS):
                yield Selection(part, self.condition, whole=self.condition.is_empty)
        else:
            after: UUID | None = None
            while True:
                page = partial(documents_that_pass, collection=collection, condition=self.condition, after=after)
                found = await database.read("look for chunks", page)
                if not found:
                    return
                yield Selection(found, self.condition)
                after = found[-1]

    async def _documents(self, database: Database, collection: CollectionInfo) -> set[UUID] | None:
        """Return the keys of the documents, or None if only ids and a filter were given."""
        if self.files is None:
            return None
        # The rows of a table have no files that could have vanished.
        known = await database.read(
            "read the sources", lambda c: stored_sources.read_sources(c, collection, tables=not self.vanished)
        )
        meant = [source for source in known if self.source in (None, source.name)]
        if self.source is not None and not meant:
            raise stored_sources.unknown_source(self.source, known)
        if self.whole_source is not None and meant[0].kind == "table":
            raise ConfigurationError(
                f"{self.source!r} is a followed table, whose rows the next sync would store again: stop following it "
                f"with tables.stop({self.source!r}), or: semlex follow {self.source} --stop"
            )
        keys = [source.source_id for source in meant]
        documents: set[UUID] | None = None
        if self.document is not None:
            named = await database.read(
                "look for the document",
                partial(
                    documents_named, collection=collection, name=self.document, sources=keys if self.source else None
                ),
            )
            if len(set(named.values())) > 1:
                names = ", ".join(source.name for source in known if source.source_id in named.values())
                raise ConfigurationError(
                    f"several sources have a document {self.document!r}: name one with --source (source=): {names}"
                )
            documents = set(named)
        if self.document is not None and not self.vanished:
            return documents
        read = await database.read("read the documents", lambda c: stored_sources.known_documents(c, collection, keys))
        found: set[UUID] = set()
        for source in meant:
            of_source = read[source.source_id]
            if self.vanished:
                gone = await asyncio.to_thread(_vanished, source, [known.uri for known in of_source.values()])
                found |= {document for document, known in of_source.items() if known.uri in gone}
            else:
                found |= of_source.keys()
        return found if documents is None else found & documents


def _vanished(source: Source, uris: Sequence[str]) -> set[str]:
    root = Path(source.root)
    if not root.is_dir():
        raise ConfigurationError(
            f"the folder of the source {source.name!r} does not exist ({root}), so semlex cannot tell which files are "
            f"gone. If the folder has moved: semlex documents move {source.name} FOLDER. To delete all documents of "
            f"the source: semlex delete --source {source.name}"
        )
    gone = set(vanished_files(root, uris))
    # Checked afterwards: the drive may have been removed meanwhile.
    if gone and not holds_anything(root):
        raise ConfigurationError(
            f"the folder of the source {source.name!r} is empty or cannot be read ({root}), so semlex cannot tell "
            "which files are gone. If its drive is not mounted: mount it. To delete all documents of the source: "
            f"semlex delete --source {source.name}"
        )
    return gone
