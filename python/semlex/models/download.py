"""Fetches a model's files from the hub into its local cache, and says how far it is.

Files that have arrived whole are kept when a download ends early, and are not fetched again. Lost connections are taken
up again where they broke off. The hub's client draws progress bars; here they draw nothing and only count.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelNotFoundError
from semlex.models.quiet_bars import import_bars

if TYPE_CHECKING:
    from collections.abc import Callable

# Everything that a safetensors model needs, and nothing that is executed when it is loaded (no *.py, no pickles).
MODEL_FILES = ["*.json", "*.safetensors", "*.txt"]


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What a download would do.

    Attributes:
        commit: The commit that the revision stands for.
        files: Number of the model's files.
        bytes: Their size.
        missing_bytes: Size of those that are not in the cache.
    """

    commit: str
    files: int
    bytes: int
    missing_bytes: int


def plan_download(name: str, revision: str | None, timeout: float) -> DownloadPlan:
    """Asks the hub what there is to fetch.

    Args:
        timeout: Seconds that the hub has for each answer about a file.
    """
    found = _fetch(name, revision, timeout, dry_run=True)
    if not found:
        raise ModelNotFoundError(f"model {name!r} has no files of the kinds {', '.join(MODEL_FILES)} on the hub")
    sizes = [(file.file_size or 0, file.will_download) for file in found]
    return DownloadPlan(
        found[0].commit_hash,
        len(found),
        sum(size for size, _ in sizes),
        sum(size for size, missing in sizes if missing),
    )


def download(name: str, revision: str | None, timeout: float, step: Callable[[int], None] | None = None) -> Path:
    """Fetches what is missing.

    Args:
        timeout: Seconds that the hub has for each answer about a file.
        step: Called with the bytes that have arrived so far, from several threads.
    """
    return Path(_fetch(name, revision, timeout, tqdm_class=_counting_bar(step)))


def _fetch(name: str, revision: str | None, timeout: float, **options: Any) -> Any:
    import_bars()
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (not in the base install)

    options.setdefault("tqdm_class", _counting_bar(None))
    try:
        return snapshot_download(
            name,
            revision=revision,
            allow_patterns=MODEL_FILES,
            etag_timeout=timeout,
            **options,
        )
    except Exception as error:  # the hub's client raises many unrelated types
        why = type(error).__name__
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            why = "the disk of the cache is full"
        raise ModelNotFoundError(
            f"model {name!r} could not be downloaded ({why}); run the same command again to resume, "
            "or give the path of a folder that holds the model"
        ) from error


def _counting_bar(step: Callable[[int], None] | None) -> type[Any]:
    """A class of progress bars that draw nothing; those that count bytes report to `step`."""
    bar: Any = import_module("tqdm.std").tqdm  # comes with the hub's client

    arrived: dict[int, int] = {}  # one bar counts what comes over the network, another what is written

    class CountingBar(bar):  # type: ignore[misc]
        monitor_interval = 0  # no thread that watches over bars nobody sees

        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **options | {"file": _Nowhere(), "disable": False})

        def update(self, n: float | None = 1) -> Any:
            drawn = super().update(n)
            if step is not None and self.unit == "B":
                arrived[id(self)] = int(self.n)
                step(max(arrived.values()))
            return drawn

    return CountingBar


class _Nowhere:
    """A stream for what nobody should see."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass
