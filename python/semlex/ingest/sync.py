"""Synchronise a collection with folders: find the differences, then write, move and delete documents."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError, StoreError
from semlex.ingest.batches import in_parts
from semlex.ingest.chunk_rows import new_state
from semlex.ingest.files.discovery import FileProblem, FoundFile, read_file
from semlex.ingest.files.roots import Place, holds_anything, is_below, lineage, vanished
from semlex.ingest.loaders.base import FileBytes, LoadError, LoadOptions
from semlex.ingest.loaders.registry import load, loader_of
from semlex.ingest.progress import DocumentName, MovedDocument, SyncCounts, SyncPlan, SyncReport
from semlex.ingest.run import FileRun, OpenSources, known_sources, open_sources
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.query.filters import Filter
from semlex.store.write import deletes
from semlex.store.write.sources import DocumentMove, FileState, KnownDocument, move_documents
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from semlex.ingest.document_chunks import Reading


@dataclass(frozen=True, slots=True)
class Side:
    """A stored source: its known documents, and the files that are now in its folder."""

    name: str
    root: Path
    key: str
    known: Mapping[UUID, KnownDocument]
    found: Sequence[FoundFile]
    problems: frozenset[str]


@dataclass(slots=True)
class Work:
    """A plan, and the files, moves and states that carry it out."""

    plan: SyncPlan = field(default_factory=SyncPlan)
    files: list[FoundFile] = field(default_factory=list)
    moves: list[tuple[DocumentMove, FoundFile]] = field(default_factory=list)
    states: list[FileState] = field(default_factory=list)
    gone: list[tuple[UUID, Path, str]] = field(default_factory=list)
    outdated: int = 0


class PlanEndedError(Exception):
    """Planning ended early, because its caller was cancelled."""


def plan_sync(sides: Sequence[Side], reading: Reading, *, keep_deleted: bool, ended: threading.Event) -> Work:
    """Compare folders with the documents read from them; return the plan of what to write, move and delete."""
    work = Work()
    for side in sides:
        _Comparison(side, reading, work, ended).run(keep_deleted=keep_deleted)
    return work


class _Comparison:
    def __init__(self, side: Side, reading: Reading, work: Work, ended: threading.Event) -> None:
        self._side, self._reading, self._work, self._ended = side, reading, work, ended
        self._by_uri = {known.uri: (key, known) for key, known in side.known.items()}
        self._new: list[FoundFile] = []
        self._changed: dict[str, tuple[FoundFile, bytes]] = {}
        self._other_fields: list[FoundFile] = []
        self._problems: list[FileProblem] = []
        self._unchanged = 0

    def run(self, *, keep_deleted: bool) -> None:
        side, work = self._side, self._work
        for file in self._each(side.found):
            self._look_at(file)
        gone, left_out = self._without_file()
        moved = self._moves(gone)
        taken = {move.old for move, _ in moved}
        arrived = {move.uri for move, _ in moved}
        added = [file for file in self._new if file.uri not in arrived]
        changed = list(self._other_fields)
        for uri, (file, _) in self._changed.items():
            if uri not in arrived:
                # A moved document leaves its name behind: a file with that name is new.
                (added if self._by_uri[uri][0] in taken else changed).append(file)
        rest = [(key, uri) for key, uri in gone if key not in taken]
        if not keep_deleted:
            work.gone += [(key, side.root, uri) for key, uri in rest]
        work.files += sorted([*added, *changed], key=attrgetter("uri"))
        work.moves += moved
        names = [DocumentName(side.name, uri) for _, uri in rest]
        plan = work.plan
        work.plan = replace(
            plan,
            added=[*plan.added, *sorted(DocumentName(side.name, file.uri) for file in added)],
            changed=[*plan.changed, *sorted(DocumentName(side.name, file.uri) for file in changed)],
            moved=[*plan.moved, *sorted(MovedDocument(side.name, move.old_uri, move.uri) for move, _ in moved)],
            deleted=[*plan.deleted, *([] if keep_deleted else names)],
            kept=[*plan.kept, *(names if keep_deleted else [])],
            left_out=[*plan.left_out, *(DocumentName(side.name, uri) for uri in left_out)],
            unchanged=plan.unchanged + self._unchanged,
            problems=[*plan.problems, *self._problems],
        )

    def _each(self, files: Sequence[FoundFile]) -> Iterator[FoundFile]:
        for file in files:
            if self._ended.is_set():
                raise PlanEndedError
            yield file

    # A file in its known state is not read again. For the others the hash of their bytes decides.
    def _look_at(self, file: FoundFile) -> None:
        found = self._by_uri.get(file.uri)
        if found is None:
            self._new.append(file)
            return
        key, known = found
        if known.fields != self._reading.fields_for(file.uri):
            self._other_fields.append(file)
            return
        if known.file_state != file.state:
            read = read_file(file)
            if isinstance(read, FileProblem):
                self._problems.append(read)
                return
            if known.content_hash != read.content_hash:
                self._changed[file.uri] = file, read.content_hash
                return
            if (state := new_state(key, known, file)) is not None:
                self._work.states.append(state)
        self._unchanged += 1
        self._work.outdated += self._reading.is_outdated(known)

    def _without_file(self) -> tuple[list[tuple[UUID, str]], list[str]]:
        """Return documents whose file is gone, and documents whose file exists but was left out."""
        side = self._side
        found = {file.uri for file in side.found}
        missing = sorted(uri for uri in self._by_uri if uri not in found)
        gone = set(vanished(side.root, missing)) | self._spelt_otherwise(missing)
        left_out = [uri for uri in missing if uri not in gone and not is_below(uri, side.problems)]
        return [(self._by_uri[uri][0], uri) for uri in sorted(gone)], left_out

    def _spelt_otherwise(self, missing: Sequence[str]) -> set[str]:
        """Return documents whose file was found with other upper and lower case, on systems that ignore case."""
        found = {file.inode: file.uri for file in self._side.found if file.uri == file.location}
        spelt = set()
        for uri in missing:
            try:
                status = os.lstat(self._side.root / uri)
            except OSError:
                continue
            other = found.get(status.st_ino)
            if status.st_nlink == 1 and other is not None and other.casefold() == uri.casefold():
                spelt.add(uri)
        return spelt

    def _moves(self, gone: Sequence[tuple[UUID, str]]) -> list[tuple[DocumentMove, FoundFile]]:
        """Return the documents whose bytes are now in a file of another name."""
        # Documents without a file come first, then those whose file has other bytes now. Among documents with equal
        # bytes any may be chosen.
        free: dict[tuple[int, bytes], list[tuple[UUID, KnownDocument]]] = {}
        for uri in [*(uri for _, uri in gone), *sorted(self._changed)]:
            key, known = self._by_uri[uri]
            free.setdefault((known.size_bytes, known.content_hash), []).append((key, known))
        sizes = {size for size, _ in free}
        moves = []
        files = [*self._new, *(file for file, _ in self._changed.values())]
        for file in self._each(sorted(files, key=attrgetter("uri"))):
            hashed = self._changed.get(file.uri)
            waiting = file.size in sizes if hashed is None else (file.size, hashed[1]) in free
            if waiting and (move := self._move(file, free)) is not None:
                moves.append((move, file))
        return moves

    def _move(
        self, file: FoundFile, free: Mapping[tuple[int, bytes], list[tuple[UUID, KnownDocument]]]
    ) -> DocumentMove | None:
        read = read_file(file)
        if isinstance(read, FileProblem):  # reported when it is written
            return None
        waiting = free.get((len(read.data), read.content_hash), [])
        for number, (key, known) in enumerate(waiting):
            if self._loads_alike(read, known):
                del waiting[number]
                new = indexed_document_id(self._side.key, file.uri)
                return DocumentMove(key, new, known.uri, file.uri, known.content_hash, file.settled_state)
        return None

    def _loads_alike(self, file: FileBytes, known: KnownDocument) -> bool:
        """Return whether a renamed file gives the same text; source code does not, since its path is in the text."""
        before = replace(file, uri=known.uri)
        loader = loader_of(file, self._reading.loaders)
        if (loader.name, loader.version) != (known.format, known.loader_version):
            return False
        try:
            return load(file, loader, self._reading.options) == load(before, loader, self._reading.options)
        except LoadError:
            return False


def missing_places(missing: Sequence[Path], known: OpenSources) -> list[Place]:
    """Return the places of missing paths from which documents were read; refuse a path without such documents."""
    places = []
    stored: dict[str, set[str]] = {}
    for path in missing:
        real = Path(os.path.realpath(path))
        root = max((root for root in known if real.is_relative_to(root)), key=len, default=None)
        if root is not None and root not in stored:
            stored[root] = {part for document in known[root][1].values() for part in lineage(document.uri)}
        if root is None or real.relative_to(root).as_posix() not in stored[root]:
            raise ConfigurationError(f"no such file or folder: {str(path)!a}")
        places.append(Place(real, Path(root), known[root][0].name))
    return places


def refuse_empty(places: Sequence[Place], sides: Sequence[Side], *, keep_deleted: bool) -> None:
    """Refuse to delete all documents of a path that has no file: its drive may not be mounted."""
    for side in sides:
        own = {place.part: place for place in places if place.root == side.root}
        stored: dict[str, list[str]] = {part: [] for part in own}
        for known in side.known.values():
            for part in lineage(known.uri):
                if part in stored:
                    stored[part].append(known.uri)
        filled = {part for file in side.found for part in lineage(file.uri)}
        for part, place in own.items():
            uris = stored[part]
            what = _what_is_wrong(place, side, uris, is_filled=part in filled)
            if what is None or not uris or (keep_deleted and what == EMPTY):
                continue
            raise ConfigurationError(
                f"{place.path} {what}, but {len(uris):,} documents were read from there: nothing was changed. "
                f"If it has moved: semlex documents move {place.source} FOLDER. If these documents are to be deleted: "
                "--allow-empty (allow_empty=True)"
            )


EMPTY = "contains no file that can be read"


def _what_is_wrong(place: Place, side: Side, stored: Sequence[str], *, is_filled: bool) -> str | None:
    if not os.path.lexists(place.path):
        return "does not exist"
    if not place.path.is_dir():
        return None
    if str(place.root) in side.problems or place.part in side.problems:
        return "cannot be read"
    if is_filled:
        return None
    return EMPTY if vanished(place.root, stored) else None


def still_gone(root: Path, uris: Sequence[str], *, allow_empty: bool) -> list[str]:
    """Return the documents whose files are still gone, right before they are deleted."""
    gone = vanished(root, uris)
    # Checked afterwards: the drive may have been removed meanwhile.
    if gone and not allow_empty and not holds_anything(root):
        raise ConfigurationError(
            f"{root} was removed meanwhile, or cannot be read, so none of its documents was deleted: try again when it "
            "is back. If its documents are to be deleted: --allow-empty (allow_empty=True)"
        )
    return gone


# Another run has created a document of the new name; the server cannot change keys (distributed tables).
NOT_MOVABLE = ("23505", "0A000")


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Which files are synchronised, and how."""

    source: str | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    recursive: bool = True
    keep_deleted: bool = False
    allow_empty: bool = False
    loading: LoadOptions = field(default_factory=LoadOptions)


class SyncRun(FileRun):
    """One synchronisation; arguments as for `FileRun`."""

    async def sync(
        self, paths: Sequence[Path], options: FolderOptions, *, dry_run: bool = False, only_changes: bool = False
    ) -> SyncReport:
        """Compare folders with the collection, then write, move and delete the differences."""
        if not dry_run:
            self._indexer.refuse_write()
        self._chunks.check(self._indexer.collection)
        places, missing = await self._plan(paths, options.source)
        reading = self._reading(await self._chunks.chunker(), options.loading)
        known = await known_sources(self._database, self._indexer.collection)
        gone = await asyncio.to_thread(missing_places, missing, known)
        found, problems = await self._list(places, options.include, options.exclude, recursive=options.recursive)
        looked_at = [*places, *gone]
        sides = await asyncio.to_thread(_sides, looked_at, known, found, problems)
        if not options.allow_empty:
            await asyncio.to_thread(refuse_empty, looked_at, sides, keep_deleted=options.keep_deleted)
        ended = threading.Event()
        try:
            work = await asyncio.to_thread(plan_sync, sides, reading, keep_deleted=options.keep_deleted, ended=ended)
        finally:
            ended.set()
        work.plan = replace(work.plan, skipped=dict(self.report.skipped), problems=[*problems, *work.plan.problems])
        self._fail(work.plan.problems)
        self.report.unchanged, self.report.outdated = work.plan.unchanged, work.outdated
        if dry_run or (only_changes and work.plan.is_empty):
            self._states = [] if dry_run else work.states
            await self._store_states()
            self.report.seconds = self._log.seconds
            done = SyncCounts() if dry_run else work.plan.counts()
            return SyncReport(work.plan, done, run=self.report, dry_run=dry_run)
        return await self._carry_out(work, looked_at, paths, reading, options, found=found)

    async def _carry_out(
        self,
        work: Work,
        places: Sequence[Place],
        paths: Sequence[Path],
        reading: Reading,
        options: FolderOptions,
        *,
        found: Sequence[FoundFile],
    ) -> SyncReport:
        where = ", ".join(str(path) for path in paths)
        await self._indexer.ensure_version(None)
        await self._write_log("sync", where)
        moved, stayed = await self._move(work)
        sources = await open_sources(self._database, self._indexer.collection, places)
        self._note_documents([file for file in found if str(file.root) in sources], sources)
        self._states = work.states
        await self._write_all([*work.files, *stayed], sources, reading)
        if not options.keep_deleted:
            await self._delete(work, allow_empty=options.allow_empty)
        for name in work.plan.kept:
            self.report.vanished[name.source] = self.report.vanished.get(name.source, 0) + 1
        run = await self._finish("sync", where)
        done = SyncCounts(run.added, run.changed, moved, self._deleted, run.unchanged)
        return SyncReport(work.plan, done, done != work.plan.counts() or run.failed > len(work.plan.problems), run)

    async def _move(self, work: Work) -> tuple[int, list[FoundFile]]:
        """Rename moved documents in a transaction; return how many, and files that another run changed meanwhile."""
        moves = [move for move, _ in work.moves]
        if not moves:
            return 0, []
        part = partial(move_documents, collection=self._indexer.collection, moves=moves, now=utc_now())
        try:
            moved = await self._indexer.write_and_merge("move documents", part)
        except StoreError as error:
            if error.sqlstate not in NOT_MOVABLE:
                raise
            moved = set()
        stayed = [(move, file) for move, file in work.moves if move.old not in moved]
        # Read like any other file; the old document is deleted unless it has a file.
        work.gone += [(move.old, file.root, move.old_uri) for move, file in stayed]
        return len(moved), [file for _, file in stayed]

    async def _delete(self, work: Work, *, allow_empty: bool) -> None:
        by_root: dict[Path, dict[str, UUID]] = {}
        for key, root, uri in work.gone:
            by_root.setdefault(root, {})[uri] = key
        for root, keys in by_root.items():
            uris = await asyncio.to_thread(still_gone, root, list(keys), allow_empty=allow_empty)
            for gone in in_parts(sorted(keys[uri] for uri in uris), deletes.BATCH_DOCUMENTS):
                selection = deletes.Selection(gone, Filter(), whole=True)
                self._deleted += (await self._indexer.delete_selection(selection))[1]


def _sides(
    places: Sequence[Place], known: OpenSources, found: Sequence[FoundFile], problems: Sequence[FileProblem]
) -> list[Side]:
    parts: dict[tuple[str, str], set[str]] = {}
    for place in places:
        parts.setdefault((place.source, str(place.root)), set()).add(place.part)
    sides = []
    for (name, root), below in sorted(parts.items()):
        source, documents = known.get(root, (None, {}))
        sides.append(
            Side(
                name,
                Path(root),
                name if source is None else source.key,
                {key: document for key, document in documents.items() if is_below(document.uri, below)},
                [file for file in found if str(file.root) == root],
                frozenset(problem.source_document for problem in problems),
            )
        )
    return sides
