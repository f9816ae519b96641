"""Explain why no document has a given name, from the folders of the sources and the log of the runs."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.ingest.files.discovery import FileProblem, FoundFile, find_document, read_file
from semlex.ingest.files.selection import NAMES, Rules, Selection, is_ignored, kind_of, rules_below
from semlex.ingest.loaders.registry import loaders
from semlex.types.explanations import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semlex.options.collection import FileLimits
    from semlex.store.query.documents import KnownSource, LoggedRun, Records

MEANING = {
    "format": "no loader reads files of the format {kind}",
    "hidden": "hidden files and folders are not read",
    "generated": "generated files and folders are not read",
    "ignored": "a .gitignore or .semlexignore leaves it out",
}

_database_alone: ContextVar[bool] = ContextVar("semlex_database_alone", default=False)


@contextmanager
def database_alone() -> Iterator[None]:
    """Make the functions here answer from the database only: a remote caller must not learn which files exist here."""
    token = _database_alone.set(True)
    try:
        yield
    finally:
        _database_alone.reset(token)


def _resolved(path: str) -> Path:
    return Path(os.path.normpath(path) if _database_alone.get() else os.path.realpath(path))


def places_of(name: str, sources: Sequence[KnownSource]) -> list[tuple[str, str]]:
    """Return the (source, path) pairs that a document's name may mean: a path on disk, or ``source: path``."""
    # A path on disk is relative to the working directory.
    places = [(one.name, name.removeprefix(f"{one.name}: ")) for one in sources if name.startswith(f"{one.name}: ")]
    if _database_alone.get() and not Path(name).is_absolute():
        return places  # the working directory is not the caller's
    try:
        real = _resolved(name)
    except (OSError, ValueError):
        return places
    below = [one for one in sources if real.is_relative_to(one.root) and real != Path(one.root)]
    below.sort(key=lambda one: (one.is_present, len(Path(one.root).parts)), reverse=True)
    return places + [(one.name, real.relative_to(one.root).as_posix()) for one in below]


def why_absent(
    name: str,
    places: Sequence[tuple[str, str]],
    sources: Sequence[KnownSource],
    records: Records,
    collection: str,
    *,
    limits: FileLimits,
) -> Reason:
    """Return why no document has this name, and what helps."""
    roots = {one.name: one for one in sources}
    possible = [(roots[source], uri) for source, uri in places]
    if not Path(name).is_absolute():
        possible += [(one, name) for one in sources if (one.name, name) not in places]
    possible = [(one, uri) for one, uri in possible if not Path(uri).is_absolute() and ".." not in Path(uri).parts]
    looks = not _database_alone.get()
    for source, uri in possible:
        if looks and os.path.lexists(Path(source.root) / uri):
            return _of_file(source, uri, records, collection, limits)
    for source, uri in possible:
        if (gone := _deletion(source, uri, records.runs, collection, also=_suggestion(name, records))) is not None:
            return gone
    failed = next((run.problems[uri] for run in records.runs for _, uri in possible if uri in run.problems), None)
    if failed is not None:
        text = f"a run could not read it ({failed})"
        if looks:
            return Reason("deleted", f"{text}, and it does not exist any more")
        return Reason("unreadable", text, f"docs/reference/file-formats.md has the remedy for {failed}")
    return _never_seen(name, places, roots, records, collection)


def _of_file(source: KnownSource, uri: str, records: Records, collection: str, limits: FileLimits) -> Reason:
    """Return why a file that exists is not a document."""
    root = Path(source.root)
    read = f"semlex index {shlex.quote(str(root / uri))} --collection {collection}"
    if not source.is_present:
        text = f"the source {source.name!r} was removed with its documents"
        return Reason("deleted", text, f"semlex index {shlex.quote(source.root)} --collection {collection}")
    if (left_out := _left_out(root, uri)) is not None:
        return Reason("skipped", left_out, f"{read} (a file that you name is always read)")
    failed = next((run.problems[uri] for run in records.runs if uri in run.problems), None)
    problem = _problem(root, uri, limits)
    if code := problem.code if problem is not None else failed:
        detail = f": {problem.message}" if problem is not None else ""
        text = f"it could not be read ({code}{detail})"
        return Reason("unreadable", text, f"docs/reference/file-formats.md has the remedy for {code}; then {read}")
    if (gone := _deletion(source, uri, records.runs, collection, by_name=True)) is not None:
        return Reason("deleted", gone.text, read)
    last = next((run for run in records.runs if run.command in ("index", "sync")), None)
    changed = os.stat(root / uri).st_mtime  # noqa: PTH116 - as the functions beside it
    if last is not None and changed <= last.started_at.timestamp():
        why = f"the last run ({last.started_at:%Y-%m-%d %H:%M}) read another folder, or an option left the file out"
    else:
        why = "no run has read it since it was changed"
    return Reason("not_indexed", f"the file exists and can be read, but {why}", read)


def _left_out(root: Path, uri: str) -> str | None:
    """Return why a walk through the folder skips a file, or None."""
    selection = Selection(None, (), loaders().keys())
    parts = tuple(uri.split("/"))
    rules: Rules = ()
    for depth, part in enumerate(parts):
        above, path = parts[:depth], "/".join(parts[: depth + 1])
        is_folder = depth < len(parts) - 1
        present = [one for one in NAMES if os.path.lexists(root.joinpath(*above, one))]
        rules = rules_below(root, above, present, rules)
        reason = selection.skip_folder(path) if is_folder else selection.skip_file(path)
        if reason is None and is_ignored(rules, path, is_folder=is_folder):
            reason = "ignored"
        if reason is not None:
            where = f" (the folder {path})" if is_folder else ""
            return MEANING[reason].format(kind=kind_of(part)) + where
    return None


def _problem(root: Path, uri: str, limits: FileLimits) -> FileProblem | None:
    """Return why this machine cannot read a file, or None."""
    found = find_document(root, uri, limits)
    read = read_file(found) if isinstance(found, FoundFile) else found
    return read if isinstance(read, FileProblem) else None


def _deletion(
    source: KnownSource,
    uri: str,
    runs: Sequence[LoggedRun],
    collection: str,
    *,
    also: str = "",
    by_name: bool = False,
) -> Reason | None:
    """Return the reason if a run deleted a document, or may have; if it is uncertain, the text ends with `also`."""
    named = {uri, f"{source.name}, {uri}", f"vanished, {uri}", f"vanished, {source.name}, {uri}"}
    for run in runs:
        when = f"{run.started_at:%Y-%m-%d %H:%M}"
        back = "put the file back and index it"
        if run.command == "delete" and run.where in {*named, source.name}:
            text = f"it was deleted ({when}, semlex delete: {run.where})"
            return Reason("deleted", text if run.where in named else text + also, back)
        if by_name or not run.deleted:
            continue
        is_of_source = run.where in ("vanished", f"vanished, {source.name}")
        is_synced = run.command == "sync" and _covers(run.where, Path(source.root) / uri)
        if is_of_source or is_synced:
            text = f"the run of {when} (semlex {run.command}) deleted the documents of files that were gone"
            if not _database_alone.get():
                text = f"the file does not exist; {text}"
            return Reason("deleted", text + also, back)
    if not source.is_present:
        back = f"semlex index {shlex.quote(source.root)} --collection {collection}"
        return Reason("deleted", f"the source {source.name!r} was removed with its documents{also}", back)
    return None


def _covers(where: str, path: Path) -> bool:
    return any(part and path.is_relative_to(_resolved(part)) for part in where.split(", "))


def _suggestion(name: str, records: Records) -> str:
    near = get_close_matches(name, records.paths, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _never_seen(
    name: str, places: Sequence[tuple[str, str]], roots: dict[str, KnownSource], records: Records, collection: str
) -> Reason:
    also = _suggestion(name, records)
    if places and _database_alone.get():
        return Reason("never_seen", f"the source {places[0][0]!r} has no such document{also}", "check the name")
    if places:
        root = roots[places[0][0]].root
        if not Path(root).is_dir():
            text = f"the document does not exist, and the folder of its source ({root}) cannot be reached from here"
            back = f"semlex documents move {shlex.quote(places[0][0])} FOLDER --collection {collection}"
            return Reason("never_seen", text + also, back)
        return Reason("never_seen", f"no such document exists, and no such file in {root}{also}", "check the name")
    if not _database_alone.get() and os.path.lexists(name):
        path = shlex.quote(os.path.realpath(name))
        text = "it is a file outside the folders of all sources, and was never read"
        return Reason("never_seen", text, f"semlex index {path} --collection {collection}")
    text = f"no chunk has this id, no document has this name, and no source contains such a path{also}"
    return Reason("never_seen", text, f"semlex documents --collection {collection} lists the documents read from files")
