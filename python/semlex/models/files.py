"""Finds the folder of a model: a local path, the local cache, and only then, if allowed, the hub."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelNotFoundError
from semlex.models.model_names import ONNX_PREFIX, WEIGHTS_WHEEL, choose_file, companions, split_name


def import_bars() -> None:
    """Import the library of progress bars; suppress its warning in a notebook without ``ipywidgets``."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Import transformers, with its progress bars turned off until the context ends."""
    import_bars()
    transformers = import_module("transformers")
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        if shown:
            transformers.logging.enable_progress_bar()


Weights = Literal["safetensors", "onnx"]
PROBE_SECONDS = 3.0
# What must be in the cache; a model may have more files, which other programs may have left out.
DESCRIPTIONS = ["config.json", "modules.json", "tokenizer.json"]
NEEDED_FILES = [*DESCRIPTIONS, "*.safetensors", "*.safetensors.index.json"]
UNKNOWN_OR_CLOSED = (401, 403, 404)  # without a token the hub does not say which
_REFUSED = "it answered"  # how an obstacle begins that is the hub's own answer
FINGERPRINT_BLOCKS = 16
FINGERPRINT_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The folder of a model on this machine, with the model's name and revision."""

    name: str  # hub id, or the absolute path of a local folder
    revision: str  # commit of the hub, or ``sha256:…`` of a local folder
    path: Path

    def read_json(self, file: str) -> dict[str, Any]:
        """Read one of the model's JSON files; {} if it does not exist."""
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
    """A model that was downloaded: its folder, and the downloaded files and bytes."""

    folder: ModelFolder
    files: int  # 0 if the hub was not reachable and the cache held the model
    bytes: int
    fetched_bytes: int  # of files that were not in the cache before


def find_cached(name: str, revision: str | None = None, weights: Weights = "safetensors") -> ModelFolder | None:
    """Look for a model in the local cache of the hub, without the network."""
    if weights == "onnx" and name == WEIGHTS_WHEEL:
        return _wheel_folder()
    found = _look_into_cache(name, revision, weights)
    return found if isinstance(found, ModelFolder) else None


def find_model(
    name: str,
    *,
    revision: str | None = None,
    allow_download: bool = False,
    without_hub: str = "'static' needs no hub, 'none' searches by words alone",
    weights: Weights = "safetensors",
) -> ModelFolder:
    """Find a model locally, in the cache or, with `allow_download`, on the hub, which must answer within 3 seconds."""
    as_named = name if weights == "safetensors" else f"{ONNX_PREFIX}{name}"
    name, file = split_name(name) if weights == "onnx" else (name, None)
    if weights == "onnx" and name == WEIGHTS_WHEEL:
        if (wheel := _wheel_folder()) is not None:
            return wheel
        raise ModelNotFoundError(
            f"the wheel {WEIGHTS_WHEEL} is not installed: build it with ./x weights FOLDER and install it, or name "
            "another model (semlex models known)"
        )
    local = Path(name).expanduser()
    if os.path.isdir(local):  # noqa: PTH112 - says False where Path would raise
        if revision is not None:
            raise ModelNotFoundError(f"{local} is a local folder and has no revision; drop revision={revision!r}")
        return ModelFolder(str(local.resolve()), fingerprint(local), local.resolve())
    tried = [f"local folder {local}"]
    if not _is_path(name):
        cached = _look_into_cache(name, revision, weights, file)
        if isinstance(cached, ModelFolder):
            return cached
        tried.append(f"local cache of the hub{cached}")
        if not allow_download:
            tried.append("hub not asked (downloads are not allowed)")
        else:
            obstacle = _hub_obstacle(name, revision)
            if obstacle is None:
                patterns = _patterns(name, revision, weights, file)
                path = _download(name, revision, patterns)
                return ModelFolder(name, path.name, path)
            tried.append(f"hub: {obstacle}")
    pull = "" if _is_path(name) else f"semlex models pull {shlex.quote(as_named)}, or "
    raise ModelNotFoundError(
        f"model {as_named!r}{_at(revision)} is not on this machine; tried: {'; '.join(tried)}. "
        "Remedies: give the path of a folder that holds the model; or, where the hub is reachable, fetch it once "
        f"({pull}allow_download=True); or choose another model ({without_hub})"
    )


def _at(revision: str | None) -> str:
    return "" if revision is None else f" at revision {revision!r}"


def pull_model(
    name: str,
    *,
    revision: str | None = None,
    # Called before the first byte with the number of files, their bytes, and the bytes to download.
    announce: Callable[[int, int, int], None] | None = None,
    # Called with the bytes that have arrived, from several threads.
    progress: Callable[[int], None] | None = None,
) -> PulledModel:
    """Download a model into the hub's local cache, except for files that are already there."""
    # For a name with "onnx:", the one ONNX file that will be used is downloaded.
    weights: Weights = "onnx" if name.startswith(ONNX_PREFIX) else "safetensors"
    name, file = split_name(name) if weights == "onnx" else (name, None)
    if _is_path(name):
        raise ConfigurationError(f"{name!r} is a folder on this machine; a model to fetch is named like org/model")
    obstacle = _hub_obstacle(name, revision)
    if obstacle is not None:
        cached = _look_into_cache(name, revision, weights, file)
        if isinstance(cached, ModelFolder):
            return PulledModel(cached, 0, 0, 0)
        unknown = obstacle.startswith(_REFUSED) and "later" not in obstacle
        remedy = (
            "Check the name, and that your account may read the model (HF_TOKEN)"
            if unknown
            else "Check the network, HF_HUB_OFFLINE, HF_ENDPOINT and the proxies, and run the same command again"
        )
        raise ModelNotFoundError(
            f"model {name!r}{_at(revision)} cannot be fetched from the hub: {obstacle}; it is not in the local cache "
            f"either{cached}. {remedy}; or copy a folder that holds the model to this machine, and give its path"
        )
    patterns = _patterns(name, revision, weights, file)
    wanted = _fetch(name, revision, patterns, dry_run=True)
    if not wanted:
        raise ModelNotFoundError(f"model {name!r} has no files of the kinds {', '.join(patterns)} on the hub")
    size = sum(entry.file_size or 0 for entry in wanted)
    missing = sum(entry.file_size or 0 for entry in wanted if entry.will_download)
    if announce is not None:
        announce(len(wanted), size, missing)
    path = _download(name, revision, patterns, progress)
    return PulledModel(ModelFolder(name, path.name, path), len(wanted), size, missing)


def fingerprint(folder: Path) -> str:
    """Return a hash of a model's folder, from samples of its files instead of all gigabytes."""
    digest = hashlib.sha256()
    for name in ("config.json", "tokenizer.json"):
        path = folder / name
        if path.is_file():
            digest.update(path.read_bytes())
    for path in sorted(folder.rglob("*.safetensors")):
        digest_weights(digest, folder, path)
    return f"sha256:{digest.hexdigest()[:16]}"


def digest_weights(digest: hashlib._Hash, folder: Path, path: Path) -> None:
    """Add name, size and 16 blocks of a weights file to a hash."""
    size = path.stat().st_size
    digest.update(f"{path.relative_to(folder).as_posix()}:{size}".encode())
    with path.open("rb") as file:
        for block in range(FINGERPRINT_BLOCKS):
            file.seek(max(0, size - FINGERPRINT_BLOCK_BYTES) * block // (FINGERPRINT_BLOCKS - 1))
            digest.update(file.read(FINGERPRINT_BLOCK_BYTES))


def leads_to_onnx(name: str, revision: str | None = None) -> bool:
    """Return whether a name requires an ONNX file, or this machine has the model only as an ONNX file."""
    if name.startswith(ONNX_PREFIX):
        return name != ONNX_PREFIX
    local = Path(name).expanduser()
    if os.path.isdir(local):  # noqa: PTH112 - says False where Path would raise
        return onnx_file(local) is not None and not any(local.rglob("*.safetensors"))
    return find_cached(name, revision) is None and find_cached(name, revision, "onnx") is not None


def onnx_file(folder: Path, wanted: str | None = None) -> str | None:
    """Return which ONNX file of a folder to use, as `choose_file` does."""
    return choose_file((path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.onnx"))), wanted)


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package without importing the package; None if it is not installed."""
    spec = find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return Path(places[0]) if places else None


def _wheel_folder() -> ModelFolder | None:
    folder = package_folder(WEIGHTS_WHEEL.replace("-", "_"))
    return None if folder is None else ModelFolder(WEIGHTS_WHEEL, version(WEIGHTS_WHEEL), folder)


def _is_path(name: str) -> bool:
    local = Path(name).expanduser()
    is_folder = os.path.isdir(local)  # noqa: PTH112 - as above
    return is_folder or local.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1


def _look_into_cache(name: str, revision: str | None, weights: Weights, file: str | None = None) -> ModelFolder | str:
    """Look for a model in the local cache; return its folder, or a remark on what is wrong ("" if it is not there)."""
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
        # A cache holds one of a model's ONNX files, not all of them.
        needed = NEEDED_FILES if weights == "safetensors" else DESCRIPTIONS
        path = Path(snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=needed))
    except (HFValidationError, LocalEntryNotFoundError, OSError) as error:
        # Newer clients know which files a commit has and refuse a folder that lacks some; older ones return it.
        partial = getattr(error, "snapshot_path", None)
        if partial is None:
            return ""
        path = Path(partial)
        return f" (incomplete: {_missing_file(path, weights, file) or 'files are missing'})"
    missing = _missing_file(path, weights, file)
    return ModelFolder(name, path.name, path) if missing is None else f" (incomplete: {missing})"


def _missing_file(folder: Path, weights: Weights, file: str | None) -> str | None:
    """Return what a cached folder lacks, as a phrase, or None; links to files that never arrived count as missing."""
    # A cache may hold the config alone, left there when a program only looked at the model.
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return "config.json is missing"
    if weights == "onnx":
        has_file = (onnx := onnx_file(folder, file)) is not None and (folder / onnx).is_file()
        return None if has_file else f"{file or 'an ONNX file'} is missing"
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
    if any(file.is_file() for file in folder.rglob("*.safetensors")):
        return None
    only_onnx = f"it has only ONNX weights: use {ONNX_PREFIX}NAME"
    return "its weights are missing" if onnx_file(folder) is None else only_onnx


# A hub that refuses delays a loader for most of a minute, one that never answers for many minutes. So the network is
# used only if a download was allowed, and then a short probe first finds out whether the hub answers.
def _hub_obstacle(name: str, revision: str | None) -> str | None:
    """Return why the hub cannot provide the model, or None if it answers in `PROBE_SECONDS` that it can."""
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("huggingface_hub", "onnx", "downloading a model")
    import urllib.error  # noqa: PLC0415 - most programs ask no hub
    import urllib.request  # noqa: PLC0415
    from http.client import HTTPException  # noqa: PLC0415

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


def _patterns(name: str, revision: str | None, weights: Weights, wanted: str | None) -> list[str]:
    """Return patterns of the files to download; the hub is asked which ONNX files exist."""
    if weights == "safetensors":
        return MODEL_FILES
    found = [entry.filename for entry in _fetch(name, revision, ["*.onnx"], dry_run=True)]
    file = choose_file(found, wanted)
    if file is None:
        there = ", ".join(sorted(found)) or "none"
        raise ModelNotFoundError(
            f"model {name!r} has no ONNX file {wanted or 'with a known name'} on the hub; it has: {there}. Name one: "
            f"{ONNX_PREFIX}{name}#FILE"
        )
    return ["*.json", "*.txt", file, *companions(file)]


def _download(name: str, revision: str | None, patterns: list[str], step: Callable[[int], None] | None = None) -> Path:
    """Download missing files; several threads call `step` with the number of bytes that have arrived so far."""
    return Path(_fetch(name, revision, patterns, step))


def _fetch(
    name: str,
    revision: str | None,
    patterns: list[str],
    step: Callable[[int], None] | None = None,
    **options: Any,
) -> Any:
    import_bars()
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (not in the base install)

    options |= {"etag_timeout": PROBE_SECONDS, "tqdm_class": _counting_bar(step)}
    try:
        return snapshot_download(name, revision=revision, allow_patterns=patterns, **options)
    except Exception as error:  # the hub's client raises many unrelated types
        why = type(error).__name__
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            why = "the disk of the cache is full"
        raise ModelNotFoundError(
            f"model {name!r} could not be downloaded ({why}); run the same command again to resume, "
            "or give the path of a folder that holds the model"
        ) from error


def _counting_bar(step: Callable[[int], None] | None) -> type[Any]:
    """Return a class of progress bars that draw nothing and report arrived bytes to `step`."""
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
