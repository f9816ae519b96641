"""Finds the folder of a model: a local path, the local cache, and only then, when allowed, the hub.

The hub is the slowest failure there is: a hub that refuses holds a loader for most of a minute, one that never answers
for many. So nothing here touches the network unless a download was allowed, and then a probe of our own decides first.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semlex.errors import MissingExtraError, ModelError, ModelNotFoundError

PROBE_SECONDS = 3.0
# Everything that a safetensors model needs, and nothing that is executed when it is loaded (no *.py, no pickles).
MODEL_FILES = ["*.json", "*.safetensors", "*.txt"]
FINGERPRINT_BLOCKS = 16
FINGERPRINT_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on this machine.

    Attributes:
        name: Hub id, or the absolute path of a local folder.
        revision: Commit of the hub, or ``sha256:…`` of a local folder.
        path: Where the files are.
    """

    name: str
    revision: str
    path: Path

    def read_json(self, file: str) -> dict[str, Any]:
        """Reads one of the model's JSON files.

        Args:
            file: Its name, for example ``config.json``.

        Returns:
            Its content, or an empty mapping when there is no such file.

        Raises:
            ModelError: The file is not a JSON object.
        """
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


def find_cached(name: str, revision: str | None = None) -> ModelFolder | None:
    """Looks for a model in the local cache of the hub; never touches the network.

    Args:
        name: Hub id.
        revision: Branch, tag or commit; None for the newest that was fetched.

    Returns:
        The folder, or None when the cache does not hold the model's config and its weights.
    """
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (not in the base install)
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        path = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        return None
    # A cache may hold the config alone, left there by whoever only looked at the model.
    has_config = any((path / name).is_file() for name in ("config.json", "modules.json"))
    if not has_config or not any(file.is_file() for file in path.rglob("*.safetensors")):
        return None
    return ModelFolder(name, path.name, path)


def find_model(name: str, *, revision: str | None = None, allow_download: bool = False) -> ModelFolder:
    """Finds a model's folder.

    Args:
        name: Path of a local folder, or hub id.
        revision: Branch, tag or commit of the hub; refused for a local folder.
        allow_download: Whether the hub may be asked when the cache does not hold the model. The hub then has 3 seconds
            to answer; ``HF_HUB_OFFLINE`` is honoured.

    Returns:
        The folder.

    Raises:
        ModelNotFoundError: With what was tried and what helps.
    """
    local = Path(name).expanduser()
    if local.is_dir():
        if revision is not None:
            raise ModelNotFoundError(f"{local} is a local folder and has no revision; drop revision={revision!r}")
        return ModelFolder(str(local.resolve()), fingerprint(local), local.resolve())
    tried = [f"local folder {local}"]
    looks_like_path = local.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if not looks_like_path:
        cached = find_cached(name, revision)
        if cached is not None:
            return cached
        tried.append("local cache of the hub")
        if not allow_download:
            tried.append("hub not asked (downloads are not allowed)")
        else:
            obstacle = _hub_obstacle(name)
            if obstacle is None:
                return _download(name, revision)
            tried.append(f"hub: {obstacle}")
    at = "" if revision is None else f" at revision {revision!r}"
    raise ModelNotFoundError(
        f"model {name!r}{at} is not on this machine; tried: {'; '.join(tried)}. "
        "Remedies: give the path of a folder that holds the model; or allow the download (allow_download=True) where "
        "the hub is reachable; or choose another model ('static' needs no hub, 'none' searches by words alone)"
    )


def fingerprint(folder: Path) -> str:
    """Describes the content of a model's folder without reading gigabytes.

    Args:
        folder: The folder.

    Returns:
        ``sha256:`` and 16 hexadecimal digits over the JSON files that decide the vectors and, of every safetensors
        file, its size and 16 evenly spaced blocks of 64 KiB (the first holds the names and shapes).
    """
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


def _hub_obstacle(name: str) -> str | None:
    """Says why the hub cannot give the model, or None when it can; answers within `PROBE_SECONDS`."""
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("huggingface_hub", "torch", "downloading a model")
    from huggingface_hub import constants  # noqa: PLC0415 (not in the base install)

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    url = f"{constants.ENDPOINT}/api/models/{name}"
    if not url.startswith(("https://", "http://")):
        return "HF_ENDPOINT is not an http(s) address"
    answer = [f"no answer within {PROBE_SECONDS:g} s"]

    def probe() -> None:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (scheme checked above)
        try:
            with urllib.request.urlopen(request, timeout=PROBE_SECONDS):  # noqa: S310
                answer[0] = ""
        except urllib.error.HTTPError as error:
            answer[0] = f"answered {error.code} for this model (unknown, private or gated)"
            error.close()
        except (OSError, ValueError):
            answer[0] = "not reachable"

    # A thread, because no timeout of a socket bounds the look-up of a host's name.
    thread = threading.Thread(target=probe, name="semlex-hub-probe", daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answer[0] or None


def _download(name: str, revision: str | None) -> ModelFolder:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (not in the base install)

    try:
        path = Path(
            snapshot_download(name, revision=revision, allow_patterns=MODEL_FILES, etag_timeout=PROBE_SECONDS),
        )
    except Exception as error:  # the hub's client raises many unrelated types
        raise ModelNotFoundError(
            f"model {name!r} could not be downloaded ({type(error).__name__}); run the same command again to resume, "
            "or give the path of a folder that holds the model"
        ) from error
    return ModelFolder(name, path.name, path)
