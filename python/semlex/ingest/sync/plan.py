"""Find the differences between files and documents, without writing anything."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from semlex.ingest.chunk_rows import new_state
from semlex.ingest.files.discovery import FileProblem, FoundFile, read_file
from semlex.ingest.files.roots import is_below, vanished
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.registry import load, loader_of
from semlex.ingest.progress import DocumentName, MovedDocument, SyncPlan
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.write.sources import DocumentMove

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from threading import Event
    from uuid import UUID

    from semlex.ingest.document_chunks import Reading
    from semlex.ingest.loaders.base import FileBytes
    from semlex.store.write.sources import FileState, KnownDocument


@dataclass(frozen=True, slots=True)
class Side:
    """A source as it is stored, together with its folder as it is now."""

    name: str
    root: Path
    key: str
    known: Mapping[UUID, KnownDocument]
    found: Sequence[FoundFile]
    problems: frozenset[str]


@dataclass(slots=True)
class Work:
    """A plan with everything needed to carry it out."""

    plan: SyncPlan = field(default_factory=SyncPlan)
    files: list[FoundFile] = field(default_factory=list)
    moves: list[tuple[DocumentMove, FoundFile]] = field(default_factory=list)
    states: list[FileState] = field(default_factory=list)
    gone: list[tuple[UUID, Path, str]] = field(default_factory=list)
    outdated: int = 0


class PlanEndedError(Exception):
    """The plan is not needed any more, because its caller was cancelled."""


def plan_sync(sides: Sequence[Side], reading: Reading, *, keep_deleted: bool, ended: Event) -> Work:
    """Compare folders with the documents read from them."""
    work = Work()
    for side in sides:
        _Comparison(side, reading, work, ended).run(keep_deleted=keep_deleted)
    return work


@dataclass(frozen=True, slots=True)
class _Free:
    key: UUID
    known: KnownDocument


class _Comparison:
    def __init__(self, side: Side, reading: Reading, work: Work, ended: Event) -> None:
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
        work.files += sorted([*added, *changed], key=lambda file: file.uri)
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
        """Return documents without a file, and those whose file was not found but exists."""
        side = self._side
        found = {file.uri for file in side.found}
        missing = sorted(uri for uri in self._by_uri if uri not in found)
        gone = set(vanished(side.root, missing)) | self._spelt_otherwise(missing)
        left_out = [uri for uri in missing if uri not in gone and not is_below(uri, side.problems)]
        return [(self._by_uri[uri][0], uri) for uri in sorted(gone)], left_out

    def _spelt_otherwise(self, missing: Sequence[str]) -> set[str]:
        """Return names of files found under another spelling, on systems that ignore case."""
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
        """Return documents whose bytes are under another name."""
        # Documents without a file come first, then those whose file has other bytes now. Among documents with equal
        # bytes any may be chosen.
        free: dict[tuple[int, bytes], list[_Free]] = {}
        for uri in [*(uri for _, uri in gone), *sorted(self._changed)]:
            key, known = self._by_uri[uri]
            free.setdefault((known.size_bytes, known.content_hash), []).append(_Free(key, known))
        sizes = {size for size, _ in free}
        moves = []
        for file in self._each(sorted([*self._new, *(file for file, _ in self._changed.values())], key=_uri_of)):
            hashed = self._changed.get(file.uri)
            waiting = file.size in sizes if hashed is None else (file.size, hashed[1]) in free
            if waiting and (move := self._move(file, free)) is not None:
                moves.append((move, file))
        return moves

    def _move(self, file: FoundFile, free: Mapping[tuple[int, bytes], list[_Free]]) -> DocumentMove | None:
        read = read_file(file)
        if isinstance(read, FileProblem):  # reported when it is written
            return None
        waiting = free.get((len(read.data), read.content_hash), [])
        for one in waiting:
            if self._loads_alike(read, one.known):
                waiting.remove(one)
                new = indexed_document_id(self._side.key, file.uri)
                return DocumentMove(one.key, new, one.known.uri, file.uri, one.known.content_hash, file.settled_state)
        return None

    def _loads_alike(self, file: FileBytes, known: KnownDocument) -> bool:
        """Return whether a file's new name changes nothing in its text: code has its path above each chunk."""
        before = replace(file, uri=known.uri)
        loader = loader_of(file, self._reading.loaders)
        if (loader.name, loader.version) != (known.format, known.loader_version):
            return False
        try:
            return load(file, loader, self._reading.options) == load(before, loader, self._reading.options)
        except LoadError:
            return False


def _uri_of(file: FoundFile) -> str:
    return file.uri
