"""Watch folders, and synchronise whenever something changes."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConnectionFailedError, MissingExtraError, StoreError
from semlex.ingest.files.discovery import FileProblem, checked_paths
from semlex.ingest.files.selection import NAMES, SKIPPED_FOLDERS
from semlex.store.postgres.errors import is_out_of_resources

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from watchfiles import Change

    from semlex.ingest.progress import SyncReport

logger = logging.getLogger("semlex")

GATHER_MS = 1_000  # changes so close together cause one synchronisation
STEP_MS = 50
FULL_LOOK_SECONDS = 300.0  # the system may have lost an event
POLL_MS = 300
# Between two attempts to reach a lost server.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 30.0

WatchedBy = Literal["events", "polling"]


class FolderWatch:
    """Reports changes below some paths."""

    def __init__(self, paths: Sequence[Path], *, poll: bool, clock: Clock = SYSTEM) -> None:
        self._given = paths
        self._paths: dict[Path, Path] = {}
        self._folders: set[Path] = set()
        self._clock = clock
        self.watched_by: WatchedBy = "polling" if poll else "events"
        self._stream: AsyncGenerator[set[tuple[Change, str]], None] | None = None
        self._next: asyncio.Task[set[tuple[Change, str]]] | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        """Start to watch; poll if the system cannot watch that many folders."""
        self._paths, self._folders = await asyncio.to_thread(_looked_up, self._given)
        self._listen()
        await asyncio.sleep(0)
        # Errors appear at once: the folders are registered before anything waits.
        if self._next is None or not self._next.done() or self.watched_by == "polling":
            return
        error = self._next.exception()
        if not isinstance(error, OSError | RuntimeError) or isinstance(error, FileNotFoundError | PermissionError):
            return
        self.watched_by, self._stream = "polling", None
        self._listen()

    def _listen(self) -> None:
        if self._stream is None:
            try:
                from watchfiles import awatch  # noqa: PLC0415 - of an extra
            except ImportError:
                otherwise = "run semlex sync when something has changed"
                raise MissingExtraError("watchfiles", "watch", "watching folders", otherwise) from None

            self._stream = awatch(
                *self._folders,
                watch_filter=lambda _, path: self._is_wanted(Path(path)),
                debounce=GATHER_MS,
                step=STEP_MS,
                force_polling=self.watched_by == "polling",
                poll_delay_ms=POLL_MS,
                ignore_permission_denied=True,
                stop_event=self._stop,
            )
        self._next = asyncio.ensure_future(anext(self._stream))

    async def changed(self) -> list[Path]:
        """Wait for changes, and return the watched paths with changes; none if nothing changed for a long time."""
        if self._next is None:
            await self.start()
        assert self._next is not None  # noqa: S101 - it was started
        await self._clock.wait_for_tasks({self._next}, FULL_LOOK_SECONDS)
        if not self._next.done():
            return []
        changes = self._next.result()
        self._listen()
        seen = [Path(path) for _, path in changes]
        return [path for real, path in self._paths.items() if any(one.is_relative_to(real) for one in seen)]

    async def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._next is not None:
            # Not cancelled: the package's thread would go on, and may abort the process when the interpreter ends.
            await asyncio.gather(self._next, return_exceptions=True)
        if self._stream is not None:
            await self._stream.aclose()

    def _is_wanted(self, path: Path) -> bool:
        """Return whether a change may concern a file that is read, or an ignore file."""
        for root in self._paths:
            if path.is_relative_to(root):
                *folders, name = path.relative_to(root).parts or ("",)
                hidden = any(part.startswith(".") or part in SKIPPED_FOLDERS for part in folders)
                return not hidden and (not name.startswith(".") or name in NAMES)
        return False


def _looked_up(paths: Sequence[Path]) -> tuple[dict[Path, Path], set[Path]]:
    """Return a mapping from the paths with links resolved to the given paths, and the folders to watch."""
    real = {Path(os.path.realpath(path)): path for path in paths}
    # A file is watched through its folder: editors replace files.
    return real, {path if path.is_dir() else path.parent for path in real}


async def watch(
    given: Sequence[str | Path],
    look: Callable[[Sequence[Path], bool], Awaitable[SyncReport]],
    *,
    poll: bool,
    clock: Clock = SYSTEM,
) -> AsyncGenerator[SyncReport, None]:
    """Synchronise now, after changes and every five minutes; yield the first report, and later ones with changes."""
    paths = await asyncio.to_thread(checked_paths, given)
    watched = FolderWatch(paths, poll=poll, clock=clock)
    try:
        await watched.start()
        report = await look(paths, False)
        yield replace(report, watched_by=watched.watched_by)
        looked = clock.monotonic()
        # Problems of some paths are compared with the last ones of the same paths, or of all.
        of_all = report.plan.problems
        before: dict[tuple[Path, ...], Sequence[FileProblem]] = {}
        while True:
            changed = await watched.changed()
            if not changed or clock.monotonic() - looked > FULL_LOOK_SECONDS:
                changed, looked = list(paths), clock.monotonic()
            report = await _look_again(look, changed, clock)
            problems, key = report.plan.problems, tuple(changed)
            is_whole = len(changed) == len(paths)
            last = of_all if is_whole else before.get(key)
            is_new = problems != last if last is not None else any(problem not in of_all for problem in problems)
            if is_whole:
                of_all, before = problems, {}
            before[key] = problems
            if is_new or not report.plan.is_empty:
                yield replace(report, watched_by=watched.watched_by)
    finally:
        await watched.close()


async def _look_again(
    look: Callable[[Sequence[Path], bool], Awaitable[SyncReport]], paths: Sequence[Path], clock: Clock
) -> SyncReport:
    """Synchronise paths; if the server is unreachable or its disk full, log that once and retry until it works."""
    pause, is_lost = FIRST_PAUSE_SECONDS, False
    while True:
        try:
            report = await look(paths, True)
        except StoreError as error:
            if not isinstance(error, ConnectionFailedError) and not is_out_of_resources(error):
                raise
            if not is_lost:
                logger.warning("still watching; semlex keeps trying to reach the server: %s", error)
            is_lost = True
            await clock.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - not a secret
            pause = min(pause * 2, LAST_PAUSE_SECONDS)
        else:
            if is_lost:
                logger.warning("the server is back")
            return report
