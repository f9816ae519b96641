"""Find the source of a path: a source is a named folder, and a document is a path below it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from semlex.errors import ConfigurationError
from semlex.ingest.files.safe_open import is_allowed

MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder to read, with its source."""

    path: Path
    root: Path
    source: str

    @property
    def part(self) -> str:
        """The path below the root; ``.`` for the root."""
        return self.path.relative_to(self.root).as_posix()


def lineage(uri: str) -> Iterator[str]:
    """Yield a path below a root, the folders above it, and ``.`` for the root."""
    yield uri
    end = uri.rfind("/")
    while end > 0:
        yield uri[:end]
        end = uri.rfind("/", 0, end)
    yield "."


def is_below(uri: str, parts: set[str] | frozenset[str]) -> bool:
    """Return whether a path is one of `parts` (paths below a root), or below one of them."""
    return not parts.isdisjoint(lineage(uri))


def plan_places(
    paths: Iterable[str | Path], roots: Mapping[str, str | Path], source: str | None = None
) -> tuple[list[Place], list[Path]]:
    """Return each path's place, below the deepest known root that contains it or in a new source; and missing paths."""
    if source is not None:
        check_name(source)
    known = {name: Path(root) for name, root in roots.items()}
    places, missing = [], []
    for path in sorted(map(Path, paths), key=_depth):
        try:
            real = Path(os.path.realpath(path))
            is_folder = os.path.isdir(real)  # noqa: PTH112 - says False where Path would raise
            exists = is_folder or real.exists()
        except (OSError, ValueError):
            exists = False
        if not exists:
            missing.append(path)
            continue
        if not is_allowed(real):
            raise ConfigurationError(
                f"{str(path)!a} is outside the folders that may be read: start the worker or server with --allow FOLDER"
            )
        name = _source_of(real, known)
        if name is None:
            root = real if is_folder else real.parent
            name = _new_source(root, known, source)
            known[name] = root
        elif source not in (None, name):
            raise ConfigurationError(
                f"{real} lies in the folder of the source {name!r} ({known[name]}): "
                f"leave out --source {shlex.quote(source)} (source=)"
            )
        places.append(Place(real, known[name], name))
    return places, missing


def _depth(path: Path) -> int:
    try:
        return len(Path(os.path.realpath(path)).parts)
    except (OSError, ValueError):
        return 0


def _source_of(path: Path, known: Mapping[str, Path]) -> str | None:
    """Return the source with the deepest root that contains the path."""
    containing = [name for name, root in known.items() if path.is_relative_to(root)]
    return max(containing, key=lambda name: len(known[name].parts), default=None)


def _new_source(root: Path, known: Mapping[str, Path], given: str | None) -> str:
    """Return the name for a new source."""
    check_apart(root, known)
    name = given or root.name
    if not name:
        raise ConfigurationError(
            f"{root} has no name that could become the source's name: give one with --source NAME (source=)"
        )
    if given is None:
        check_name(name)
    if name not in known:
        return name
    other = known[name]
    if other.is_dir():
        raise ConfigurationError(
            f"the source {name!r} is another folder ({other}): give {root} its own name with --source NAME (source=)"
        )
    raise ConfigurationError(
        f"the source {name!r} was read from {other}, which no longer exists. If it is {root} now: "
        f"semlex documents move {name} {root}. If not, give this folder its own name with --source NAME (source=)"
    )


def check_apart(root: Path, known: Mapping[str, Path]) -> None:
    """Refuse a root that contains other roots: their files would be stored twice."""
    inside = {name: folder for name, folder in known.items() if folder.is_relative_to(root)}
    if not inside:
        return
    shown = ", ".join(f"{name!r} ({folder})" for name, folder in sorted(inside.items()))
    removing = "; ".join(f"semlex delete --source {name}" for name in sorted(inside))
    raise ConfigurationError(
        f"{root} contains sources whose files would be stored twice: {shown}. "
        f"Index those folders instead, or first remove the sources with: {removing}"
    )


def existing_root(root: str | Path) -> Path:
    """Return the folder of a source, absolute and without links."""
    folder = Path(os.path.realpath(root))
    if not os.path.isdir(folder):  # noqa: PTH112 - says False where Path would raise
        raise ConfigurationError(f"{folder} is not an existing folder")
    return folder


def check_root(folder: Path, name: str, known: Mapping[str, str | Path]) -> None:
    """Refuse a folder for the source `name` that contains, or is inside, the folder of another source."""
    others = {other: Path(path) for other, path in known.items() if other != name}
    check_apart(folder, others)
    if above := _source_of(folder, others):
        where = f"{folder} lies in the folder of the source {above!r} ({others[above]})"
        raise ConfigurationError(f"{where}: name a folder outside of it")


def check_name(name: str) -> None:
    """Refuse a source name that is empty, too long, unprintable, or contains a slash."""
    if not isinstance(name, str):
        raise ConfigurationError(f"the name of a source must be text; got {type(name).__name__}")
    if not (0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable() and "/" not in name and name.strip() == name):
        raise ConfigurationError(
            f"{name[:MAX_NAME_CHARACTERS]!a} cannot be the name of a source: use 1 to {MAX_NAME_CHARACTERS} "
            "characters that can be shown, without a slash; set a name with --source NAME (source=)"
        )


def holds_anything(folder: Path) -> bool:
    """Return whether a folder can be read and is not empty; a drive that is not mounted leaves an empty folder."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def vanished(root: Path, uris: Iterable[str]) -> list[str]:
    """Return the documents of a source whose file is certainly gone."""
    gone = []
    for uri in uris:
        try:
            os.lstat(root / uri)
        except (FileNotFoundError, NotADirectoryError):
            gone.append(uri)
        except OSError:  # it may exist
            continue
    return gone
