"""Finds the folder of a model: a local path, the local cache, and only then, when allowed, the hub.

The hub is the slowest failure there is: a hub that refuses holds a loader for most of a minute, one that never answers
for many. So nothing here touches the network unless a download was allowed, and then a probe decides first.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import threading
import urllib.error
import urllib.request
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def import_bars() -> None:
    """Import the library of progress bars without its warning in a notebook without ``ipywidgets``."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Import transformers, which draws no bars until the end."""
    import_bars()
    transformers = import_module("transformers")
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        if shown:
            transformers.logging.enable_progress_bar()


PROBE_SECONDS = 3.0
# What must be in the cache; a model may have more files, which other programs may have left out.
NEEDED_FILES = ["config.json", "modules.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json"]
UNKNOWN_OR_CLOSED = (401, 403, 404)  # without a token the hub does not say which
_REFUSED = "answered"  # how an obstacle begins that is the hub's own answer
FINGERPRINT_BLOCKS = 16
FINGERPRINT_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on this machine."""

    name: str  # hub id, or the absolute path of a local folder
    revision: str  # commit of the hub, or ``sha256:…`` of a local folder
    path: Path

    def read_json(self, file: str) -> dict[str, Any]:
        """Read one of the model's JSON files."""
        path = self.path / file
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ModelError(f"{path} is not a JSON object; fetch the model again")
        return content


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model that was fetched."""

    folder: ModelFolder
    files: int  # 0 if the hub was not reachable and the cache held the model
    bytes: int
    fetched_bytes: int  # of files that were not in the cache before


def find_cached(name: str, revision: str | None = None) -> ModelFolder | None:
    """Look for a model in the local cache of the hub, without the network."""
    found = _look_into_cache(name, revision)
    return found if isinstance(found, ModelFolder) else None


def find_model(
    name: str,
    *,
    revision: str | None = None,
    allow_download: bool = False,
    without_hub: str = "'static' needs no hub, 'none' searches by words alone",
) -> ModelFolder:
    """Find a model's folder; with `allow_download` the hub has 3 seconds to answer (``HF_HUB_OFFLINE`` is honoured)."""
    local = Path(name).expanduser()
    if os.path.isdir(local):  # noqa: PTH112 - says False where Path would raise
        if revision is not None:
            raise ModelNotFoundError(f"{local} is a local folder and has no revision; drop revision={revision!r}")
        return ModelFolder(str(local.resolve()), fingerprint(local), local.resolve())
    tried = [f"local folder {local}"]
    if not _is_path(name):
        cached = _look_into_cache(name, revision)
        if isinstance(cached, ModelFolder):
            return cached
        tried.append(f"local cache of the hub{cached}")
        if not allow_download:
            tried.append("hub not asked (downloads are not allowed)")
        else:
            obstacle = _hub_obstacle(name, revision)
            if obstacle is None:
                path = download(name, revision, PROBE_SECONDS)
                return ModelFolder(name, path.name, path)
            tried.append(f"hub: {obstacle}")
    raise _not_found(name, revision, tried, without_hub)


def pull_model(
    name: str,
    *,
    revision: str | None = None,
    announce: Callable[[int, int, int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PulledModel:
    """Fetch a model into the local cache of the hub, without files that are there already.

    `announce` gets number of files, their bytes, and the bytes to fetch, before the first byte; `progress` the bytes
    that have arrived, from several threads.
    """
    if _is_path(name):
        raise ConfigurationError(f"{name!r} is a folder on this machine; a model to fetch is named like org/model")
    obstacle = _hub_obstacle(name, revision)
    if obstacle is not None:
        cached = _look_into_cache(name, revision)
        if isinstance(cached, ModelFolder):
            return PulledModel(cached, 0, 0, 0)
        unknown = obstacle.startswith(_REFUSED) and "later" not in obstacle
        remedy = (
            "Check the name, and that your account may read the model (HF_TOKEN)"
            if unknown
            else "Check the network, HF_HUB_OFFLINE, HF_ENDPOINT and the proxies, and run the same command again"
        )
        at = "" if revision is None else f" at revision {revision!r}"
        raise ModelNotFoundError(
            f"model {name!r}{at} cannot be fetched: {obstacle}; nor is it in the local cache of the hub{cached}. "
            f"{remedy}; or copy a folder that holds the model to this machine, and give its path"
        )
    plan = plan_download(name, revision, PROBE_SECONDS)
    if announce is not None:
        announce(plan.files, plan.bytes, plan.missing_bytes)
    path = download(name, revision, PROBE_SECONDS, progress)
    return PulledModel(ModelFolder(name, path.name, path), plan.files, plan.bytes, plan.missing_bytes)


def fingerprint(folder: Path) -> str:
    """Describes the content of a model's folder without reading gigabytes."""
    digest = hashlib.sha256()
    for name in ("config.json", "tokenizer.json"):
        path = folder / name
        if path.is_file():
            digest.update(path.read_bytes())
    for path in sorted(folder.rglob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}:{size}".encode())
        with path.open("rb") as file:
            for block in range(FINGERPRINT_BLOCKS):
                file.seek(max(0, size - FINGERPRINT_BLOCK_BYTES) * block // (FINGERPRINT_BLOCKS - 1))
                digest.update(file.read(FINGERPRINT_BLOCK_BYTES))
    return f"sha256:{digest.hexdigest()[:16]}"


def _is_path(name: str) -> bool:
    local = Path(name).expanduser()
    is_folder = os.path.isdir(local)  # noqa: PTH112 - as above
    return is_folder or local.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1


def _not_found(name: str, revision: str | None, tried: list[str], without_hub: str) -> ModelNotFoundError:
    at = "" if revision is None else f" at revision {revision!r}"
    return ModelNotFoundError(
        f"model {name!r}{at} is not on this machine; tried: {'; '.join(tried)}. "
        "Remedies: give the path of a folder that holds the model; or, where the hub is reachable, fetch it once "
        f"({_how_to_fetch(name)}); or choose another model ({without_hub})"
    )


def _how_to_fetch(name: str) -> str:
    return (
        "allow_download=True" if _is_path(name) else f"semlex models pull {shlex.quote(name)}, or allow_download=True"
    )


def _look_into_cache(name: str, revision: str | None) -> ModelFolder | str:
    """Return the folder, or what is wrong with it as a remark (empty if there is nothing)."""
    if find_spec("huggingface_hub") is None:
        return ""
    from huggingface_hub import constants  # noqa: PLC0415 (not in the base install)

    # The client itself takes half a second to load, and most searches only ask whether a model is there at all.
    if not os.path.isdir(Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"):  # noqa: PTH112 - as above
        return ""
    import_bars()
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (as above)
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        path = Path(snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=NEEDED_FILES))
    except (HFValidationError, LocalEntryNotFoundError, OSError) as error:
        # Newer clients know which files a commit has and refuse a folder that lacks some; older ones return it.
        partial = getattr(error, "snapshot_path", None)
        if partial is None:
            return ""
        path = Path(partial)
        return f" (incomplete: {_missing_file(path) or 'files are missing'})"
    missing = _missing_file(path)
    return ModelFolder(name, path.name, path) if missing is None else f" (incomplete: {missing})"


def _missing_file(folder: Path) -> str | None:
    """Return what a cached folder lacks, as a phrase, or None; links to files that never arrived count as missing."""
    # A cache may hold the config alone, left there when a program only looked at the model.
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return "config.json is missing"
    shards: set[str] = set()
    for index in folder.rglob("*.safetensors.index.json"):
        try:
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            shards |= {(index.parent / str(name)).relative_to(folder).as_posix() for name in names}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return f"{index.name} cannot be read"
    missing = sorted(shard for shard in shards if not (folder / shard).is_file())
    if missing:
        return f"{len(missing)} of {len(shards)} files of weights are missing, the first is {missing[0]}"
    return None if any(file.is_file() for file in folder.rglob("*.safetensors")) else "its weights are missing"


def _hub_obstacle(name: str, revision: str | None) -> str | None:
    """Return why the hub cannot give the model, or None, within `PROBE_SECONDS`."""
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("huggingface_hub", "torch", "downloading a model")
    from huggingface_hub import constants, get_token  # noqa: PLC0415 (not in the base install)

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    url = f"{constants.ENDPOINT}/api/models/{quote(name)}"
    if revision is not None:
        url += f"/revision/{quote(revision, safe='')}"
    if not url.startswith(("https://", "http://")):
        return "HF_ENDPOINT is not an http(s) address"
    token = get_token()
    answer = [f"no answer within {PROBE_SECONDS:g} s"]

    def probe() -> None:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (scheme checked above)
        if token is not None:  # a redirect may lead to another host, which must not get it
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=PROBE_SECONDS):  # noqa: S310
                answer[0] = ""
        except urllib.error.HTTPError as error:
            meaning = "unknown, private or gated" if error.code in UNKNOWN_OR_CLOSED else "try again later"
            answer[0] = f"{_REFUSED} {error.code} for this model ({meaning})"
            error.close()
        except (OSError, ValueError, HTTPException) as error:
            if not isinstance(getattr(error, "reason", error), TimeoutError):
                answer[0] = "not reachable"

    # A thread, because no timeout of a socket bounds the look-up of a host's name.
    thread = threading.Thread(target=probe, name="semlex-hub-probe", daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answer[0] or None


# Everything that a safetensors model needs, and nothing that is executed when it is loaded (no *.py, no pickles).
MODEL_FILES = ["*.json", "*.safetensors", "*.txt"]


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What a download would do: the commit, the model's files, their bytes, and the bytes that the cache lacks."""

    commit: str
    files: int
    bytes: int
    missing_bytes: int


def plan_download(name: str, revision: str | None, timeout: float) -> DownloadPlan:
    """Ask the hub what there is to fetch; `timeout` seconds for each file."""
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
    """Fetch what is missing; `step` gets the bytes that have arrived, from several threads."""
    return Path(_fetch(name, revision, timeout, tqdm_class=_counting_bar(step)))


def _fetch(name: str, revision: str | None, timeout: float, **options: Any) -> Any:
    import_bars()
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (not in the base install)

    options.setdefault("tqdm_class", _counting_bar(None))
    try:
        return snapshot_download(name, revision=revision, allow_patterns=MODEL_FILES, etag_timeout=timeout, **options)
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
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass
