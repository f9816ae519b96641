"""Paths that are missing or without a file: whether that means that everything in them was deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.files.roots import Place, lineage, vanished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.ingest.open_sources import OpenSources
    from semlex.ingest.sync.plan import Side


def missing_places(missing: Sequence[Path], known: OpenSources) -> list[Place]:
    """What paths that lead to nothing have been."""
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
    """Refuses to take a path without any file for one whose files were all deleted.

    A drive that is not mounted looks like that, too.
    """
    parts = {place: place.path.relative_to(place.root).as_posix() for place in places}
    wanted: dict[Path, dict[str, list[str]]] = {}
    for place, part in parts.items():
        wanted.setdefault(place.root, {})[part] = []
    filled: dict[Path, set[str]] = {}
    by_root = {side.root: side for side in sides}
    for root, stored_below in wanted.items():
        for known in by_root[root].known.values():
            for part in lineage(known.uri):
                if part in stored_below:
                    stored_below[part].append(known.uri)
        filled[root] = {part for file in by_root[root].found for part in lineage(file.uri)}
    for place, part in parts.items():
        stored = wanted[place.root][part]
        what = _what_is_wrong(place, by_root[place.root], part, stored, is_filled=part in filled[place.root])
        if what is None or not stored or (keep_deleted and what == EMPTY):
            continue
        raise ConfigurationError(
            f"{place.path} {what}, but {len(stored):,} documents were read from there: nothing was changed. "
            f"If it has moved: semlex sources move {place.source} FOLDER. If these documents are to be deleted: "
            "--allow-empty (allow_empty=True)"
        )


EMPTY = "holds no file that is read"


def _what_is_wrong(place: Place, side: Side, part: str, stored: Sequence[str], *, is_filled: bool) -> str | None:
    if not os.path.lexists(place.path):
        return "is not there"
    if not place.path.is_dir():
        return None
    if str(place.root) in side.problems or part in side.problems:
        return "cannot be read"
    if is_filled:
        return None
    return EMPTY if vanished(place.root, stored) else None


def still_gone(root: Path, uris: Sequence[str], *, allow_empty: bool) -> list[str]:
    """Those of these documents whose file is gone; looked at right before they are deleted."""
    gone = vanished(root, uris)
    # Looked at afterwards: the drive may have been taken away meanwhile.
    if gone and not allow_empty and not _holds_anything(root):
        raise ConfigurationError(
            f"{root} was taken away meanwhile, so nothing was deleted. When it is back, try again; if its documents "
            "are to be deleted: --allow-empty (allow_empty=True)"
        )
    return gone


def _holds_anything(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
