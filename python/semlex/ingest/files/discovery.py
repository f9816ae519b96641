"""Find files without ever leaving the named folder, and read their bytes."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.ingest.files.roots import Place
from semlex.ingest.files.safe_open import Folder, NotRegularError, OutsideError, names, open_file, open_folder, status
from semlex.ingest.files.selection import (
    NAMES,
    Rules,
    Selection,
    Skipped,
    is_document,
    is_ignored,
    max_bytes,
    rules_below,
)
from semlex.ingest.loaders.base import FileBytes
from semlex.options.collection import DEFAULT_LIMITS, MIB, FileLimits

SETTLED_NS = 2_000_000_000  # file systems count time in steps of up to two seconds
MAX_DEPTH = 256  # levels below the named folder; limits the work per file

# Reasons that are not reported: nobody expects these files, or the user excluded them.
NOT_TOLD = ("hidden", "excluded")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that can be loaded; `size` and `max_bytes` in bytes, `mtime_ns` in nanoseconds since 1970."""

    root: Path
    uri: str
    size: int
    location: str
    mtime_ns: int = field(default=0, compare=False)
    ctime_ns: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)
    seen_ns: int = field(default=0, compare=False)
    max_bytes: int = field(default=DEFAULT_LIMITS.file, compare=False)

    @property
    def state(self) -> str:
        """The file's size, times and inode as text. A file with the stored state is unchanged and need not be read."""
        return f"{self.size}:{self.mtime_ns}:{self.ctime_ns}:{self.inode}"

    @property
    def settled_state(self) -> str | None:
        """The state; None if the file changed so recently that another change might not alter its timestamps."""
        return self.state if self.mtime_ns < self.seen_ns - SETTLED_NS else None

    @property
    def path(self) -> Path:
        """The absolute path."""
        return self.root / self.location


# Returned and never raised, so that a file that cannot be read does not stop the run.
@dataclass(frozen=True, slots=True)
class FileProblem:
    r"""A file that is not loaded, and why; in `source_document`, bytes that are not UTF-8 are written as ``\xNN``."""

    source_document: str
    code: str
    message: str


_Found: TypeAlias = FoundFile | FileProblem


def find_files(
    paths: str | Path | Place | Iterable[str | Path | Place], selection: Selection, skipped: Skipped | None = None
) -> Iterator[FoundFile | FileProblem]:
    """Yield the files in folders, or why they cannot be read: each once, in an order that depends on names only."""
    # Files ignored by .gitignore or .semlexignore are left out.
    given = [paths] if isinstance(paths, str | Path | Place) else paths
    walk = _Walk(selection, Skipped() if skipped is None else skipped)
    for entry in given:
        path, root = (entry.path, entry.root) if isinstance(entry, Place) else (Path(entry), None)
        yield from walk.path(path, root)


def checked_paths(paths: Iterable[object], *, must_exist: bool = True) -> list[Path]:
    """Return the paths of a call after checking them."""
    given = list(paths)
    errors = [] if given else [FieldError(-1, None, "paths", "missing", "at least one file or folder")]
    for row, path in enumerate(given):
        if not isinstance(path, str | Path):
            errors.append(FieldError(row, None, "paths", "wrong_type", "str or Path", type(path).__name__))
        elif path == "":  # `Path` reads it as the working directory
            errors.append(FieldError(row, None, "paths", "blank", "1 character"))
    if errors:
        raise ValidationError(errors)
    found = [Path(str(path)) for path in given]
    missing = [_told(path) for path in found if _is_missing(path) and (must_exist or not _is_storable(path))]
    if missing:
        text = f"no such file or folder: {', '.join(missing)}"
        if any(letter in name for name in missing for letter in "*?["):
            text += "; a pattern belongs in include= (--include) beside its folder: index('docs', include=['*.rst'])"
        raise ConfigurationError(text)
    if unstorable := [_told(path) for path in found if not _is_utf8(os.path.realpath(path))]:
        raise ConfigurationError(f"a path that is not UTF-8 cannot be stored; rename it: {', '.join(unstorable)}")
    return found


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:  # it exists; reading it raises the error
        pass
    return False


def _is_storable(path: Path) -> bool:
    """Return whether a path that does not exist could be the path of a stored document."""
    return "\0" not in str(path) and _is_utf8(str(path))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(path: Path) -> str:
    name = str(path)
    return name if name.isprintable() else ascii(name)


class _Waiting(NamedTuple):
    """A folder still to be read, with the ignore rules of the folders above it."""

    parts: tuple[str, ...]
    rules: Rules


class _Walk:
    """One call of `find_files`."""

    def __init__(self, selection: Selection, skipped: Skipped) -> None:
        self._selection = selection
        self._skipped = skipped
        self._begun = time.time_ns()
        self._seen: set[tuple[int, int]] = set()

    def path(self, path: Path, root: Path | None) -> Iterator[_Found]:
        try:
            # The links of a place were resolved when it was made; newer ones are refused.
            real = Path(os.path.realpath(path)) if root is None else path
            found = real.stat() if root is None else _status_below(root, real)
        except OSError as error:
            yield problem(str(path), error)
        except ValueError:
            yield FileProblem(ascii(str(path)), "bad_name", "the name holds a NUL character")
        else:
            if stat.S_ISDIR(found.st_mode):
                yield from self._tree(root or real, real.relative_to(root or real).parts)
                return
            root = root or real.parent
            uri = real.relative_to(root).as_posix()
            yield from self._file(root, uri, uri, found)

    def _tree(self, root: Path, start: tuple[str, ...]) -> Iterator[_Found]:
        links: list[str] = []
        rules = self._rules_above(root, start)
        waiting = [] if rules is None else [_Waiting(start, rules)]
        while waiting:
            at = waiting.pop()
            below: list[_Waiting] = []
            try:
                with open_folder(root, at.parts) as folder:
                    yield from self._folder(root, at, folder, below, links)
            except OSError as error:
                yield problem("/".join(at.parts) or str(root), error)
            if len(at.parts) - len(start) < MAX_DEPTH:
                waiting += reversed(below)
                continue
            message = f"it is more than {MAX_DEPTH} levels below the named folder: add this folder to the paths"
            yield from (FileProblem(shown("/".join(deep.parts)), "too_deep", message) for deep in below)
        # Last, so that a file found twice keeps its own name.
        for uri in links:
            yield from self._link(root, uri)

    def _rules_above(self, root: Path, start: tuple[str, ...]) -> Rules | None:
        """Return the ignore rules of the folders above `start`, or None if they exclude `start`."""
        rules: Rules = ()
        for depth, name in enumerate(start):
            rules = rules_below(root, start[:depth], NAMES, rules)
            if is_ignored(rules, "/".join(start[: depth + 1]), is_folder=True):
                self._skipped.note("ignored", shown(name), is_folder=True)
                return None
        return rules

    def _folder(
        self, root: Path, at: _Waiting, folder: Folder, below: list[_Waiting], links: list[str]
    ) -> Iterator[_Found]:
        listed = names(folder)
        rules = rules_below(root, at.parts, listed, at.rules)
        for name in listed:
            uri = "/".join((*at.parts, name))
            try:
                found = status(folder, name)
            except OSError as error:
                if not name.startswith("."):
                    yield problem(uri, error)
                continue
            if self._is_skipped(uri, found, rules):
                continue
            if stat.S_ISDIR(found.st_mode):
                if self._is_new(found):
                    below.append(_Waiting((*at.parts, name), rules))
            elif stat.S_ISLNK(found.st_mode):
                links.append(uri)
            else:
                yield from self._file(root, uri, uri, found)

    def _is_skipped(self, uri: str, found: os.stat_result, rules: Rules) -> bool:
        is_folder = stat.S_ISDIR(found.st_mode)
        if is_folder and not self._selection.recursive:
            return True
        is_file = not is_folder and not stat.S_ISLNK(found.st_mode)
        reason = self._selection.skip_file(uri) if is_file else self._selection.skip_folder(uri)
        if reason is None and is_ignored(rules, uri, is_folder=is_folder):
            reason = "ignored"
        if reason is not None and reason not in NOT_TOLD:
            self._skipped.note(reason, shown(uri.rpartition("/")[2]), is_folder=is_folder)
        return reason is not None

    def _link(self, root: Path, uri: str) -> Iterator[_Found]:
        wanted = self._selection.skip_file(uri) is None
        try:
            target = Path(os.path.realpath(root / uri))
            found = target.stat()
        except OSError as error:
            if wanted:
                yield problem(uri, error)
            return
        is_folder = stat.S_ISDIR(found.st_mode)
        if not target.is_relative_to(root):
            if is_folder or wanted:
                yield _link_out(uri)
        elif is_folder:
            if target != root and (found.st_dev, found.st_ino) not in self._seen:
                yield FileProblem(shown(uri), "link_to_folder", "links to folders are not followed: name the target")
        elif wanted:
            yield from self._file(root, uri, target.relative_to(root).as_posix(), found)

    def _file(self, root: Path, uri: str, location: str, found: os.stat_result) -> Iterator[_Found]:
        if not self._is_new(found):
            return
        most = max_bytes(uri, self._selection.limits)
        if not stat.S_ISREG(found.st_mode):
            yield problem(uri, NotRegularError())
        elif found.st_size > most:
            yield too_large(uri, found.st_size, most)
        elif shown(uri) != uri:
            yield FileProblem(shown(uri), "bad_name", "the file's name is not UTF-8, so it cannot be stored: rename it")
        else:
            yield _found_file(root, uri, location, found, self._begun, most=most)

    def _is_new(self, found: os.stat_result) -> bool:
        # Links, bind mounts, hard links and overlapping paths lead to the same file.
        key = (found.st_dev, found.st_ino)
        new = key not in self._seen
        self._seen.add(key)
        return new


def _status_below(root: Path, path: Path) -> os.stat_result:
    """Return the status of a path below a root, following no link."""
    if path == root:
        return path.lstat()
    *above, name = path.relative_to(root).parts
    with open_folder(root, above, is_above=True) as folder:
        return status(folder, name)


def find_document(root: Path, uri: str, limits: FileLimits) -> FoundFile | FileProblem:
    """Find the file of a document that is already stored."""
    seen = time.time_ns()
    try:
        target = Path(os.path.realpath(root / uri))
        found = target.stat()
    except OSError as error:
        return problem(uri, error)
    if not target.is_relative_to(root):
        return _link_out(uri)
    return _found_file(root, uri, target.relative_to(root).as_posix(), found, seen, most=max_bytes(uri, limits))


def _found_file(root: Path, uri: str, location: str, found: os.stat_result, seen_ns: int, *, most: int) -> FoundFile:
    times = found.st_mtime_ns, found.st_ctime_ns
    return FoundFile(root, uri, found.st_size, location, *times, found.st_ino, seen_ns, most)


def _link_out(uri: str) -> FileProblem:
    return FileProblem(shown(uri), "link_out", "a link that leads out of the folder: name its target instead")


def problem(uri: str, error: OSError) -> FileProblem:
    """Return the problem for an error of the operating system."""
    uri = shown(uri)
    if isinstance(error, NotRegularError) or error.errno in (errno.ENXIO, errno.EISDIR, errno.ELOOP, errno.ENOTDIR):
        return FileProblem(uri, "not_regular", "a folder, FIFO, socket, device or unusable link, not a file")
    if isinstance(error, OutsideError):
        return FileProblem(uri, "link_out", "it is outside the folders that semlex may read here")
    if isinstance(error, FileNotFoundError):
        return FileProblem(uri, "missing", "it does not exist (any more)")
    if isinstance(error, PermissionError):
        return FileProblem(uri, "unreadable", "the account that runs semlex may not read it: change its permissions")
    return FileProblem(uri, "failed", f"cannot be read: {error.strerror}")


def too_large(uri: str, size: int, most: int) -> FileProblem:
    """Return the problem of a file above the limit."""
    setting = "max_document_mib" if is_document(uri) else "max_file_mib"
    message = f"{size / MIB:,.1f} MiB or more, the limit is {most / MIB:,.5g}: split it, or raise the setting {setting}"
    return FileProblem(shown(uri), "too_large", message)


def shown(name: str) -> str:
    r"""Return a file's name as storable text, with bytes that are not UTF-8 as ``\xNN``."""
    return os.fsencode(name).decode(errors="backslashreplace")


def read_file(found: FoundFile) -> FileBytes | FileProblem:
    """Read a file's bytes, never more than its limit, or return the problem."""
    try:
        descriptor = open_file(found.root, found.location.split("/"))
        with os.fdopen(descriptor, "rb", buffering=0):
            before = os.fstat(descriptor)
            if before.st_size > found.max_bytes:
                return too_large(found.uri, before.st_size, found.max_bytes)
            data = _read_at_most(descriptor, found.max_bytes + 1)
    except OSError as error:
        return problem(found.uri, error)
    if len(data) > found.max_bytes:
        return too_large(found.uri, len(data), found.max_bytes)
    return FileBytes(found.uri, data, hashlib.sha256(data).digest(), _moment(before.st_mtime))


def _read_at_most(file: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _moment(seconds: float) -> datetime:
    # A damaged file system may hold any number; a datetime holds the years 1 to 9999.
    bounded = min(max(seconds, -62_135_596_800.0), 253_402_300_799.0)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=bounded)


def list_files(
    paths: Sequence[Path | Place], selection: Selection
) -> tuple[list[FoundFile], list[FileProblem], Skipped]:
    """Return the files to read, the problems, and the counts of skipped files."""
    skipped = Skipped()
    entries = list(find_files(paths, selection, skipped))
    found = [entry for entry in entries if isinstance(entry, FoundFile)]
    return found, [entry for entry in entries if isinstance(entry, FileProblem)], skipped
