"""Static embeddings: the average of one vector per token. No torch, no hub, thousands of texts per second.

The default weights come with the package ``wordllama`` (English, 256 dimensions); other model2vec models work as well.
The package is published under the MIT licence. Its weights are derived from the token embeddings of Llama 2 70B, and
its tokenizer is that of Llama 2, so that the Llama 2 Community License applies to both. semlex contains neither.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from semlex import _core
from semlex.embedding.base import CheckedEmbedder, EmbedderIdentity, check_vectors, normalise
from semlex.errors import MissingExtraError, ModelError
from semlex.forks import new_lock
from semlex.models.files import ModelFolder, find_model, import_bars, package_folder
from semlex.models.local.fair_lock import FairLock
from semlex.models.tokenizer import FILE_COUNTER, TextTokenizer, open_tokenizer, text_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

WHEEL = "wordllama"
WHEEL_VERSION = "0.4.0.post1"
WHEEL_MODEL = "wordllama/l2_supercat_256"
# Files of the wheel and their SHA-256: vectors are comparable only as long as both are the same.
WHEEL_WEIGHTS = (
    "weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
WHEEL_TOKENIZER = (
    "tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)
WHEEL_WIDTH = 256
WHEEL_UNKNOWN = "<unk>"
# Up to this many texts use the float16 rows as they are; for more, all rows are converted to float32 once.
FEW_TEXTS = 4
# Texts whose token vectors are in memory together: 64 texts of 500 tokens and 256 dimensions are 33 MB.
TEXTS_PER_CALL = 64


class StaticEmbedder(CheckedEmbedder):
    """Embed by averaging token vectors; queries and documents are treated alike, and no text is cut.

    A text without a known token gets the opposite of the vocabulary's mean vector, so that such texts are similar only
    to each other. The model is loaded at first use; safe for several threads; the network is never used. The weights of
    ``static`` are derived from Llama 2, so that model's Community License applies to them.

    Args:
        model_name: ``static`` for the wheel ``wordllama``, the path of a local folder, or the hub id of a cached
            model2vec model.
        revision: Branch, tag or commit of the hub.

    Raises:
        MissingExtraError: The wheel for ``static``, or model2vec, is not installed.
        ModelError: The model is not on this machine, or the wheel has another version than semlex needs.
    """

    def __init__(self, model_name: str = "static", *, revision: str | None = None) -> None:
        self._from_wheel = model_name == "static"
        if not self._from_wheel and find_spec("model2vec") is None:
            raise MissingExtraError("model2vec", "local", "static embedding")
        self._folder = _wheel_folder() if self._from_wheel else find_model(model_name, revision=revision)
        self._loaded: _Wheel | _Folder | None = None
        self._closed = False
        # Held while the model is opened, never while it computes.
        self._opening = new_lock()

    @property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on; loads the model."""
        return EmbedderIdentity(
            model=self._folder.name,
            revision=self._folder.revision,
            dimensions=self.dimensions,
            instruction=None,
            pooling="mean",
            normalised=True,
        )

    @property
    def dimensions(self) -> int:
        """Length of a vector; loads the model."""
        return self._load().dimensions

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:  # noqa: ARG002 (embedded alike)
        loaded = self._load()
        vectors = loaded.means(texts)
        unknown = ~vectors.any(axis=1)
        if unknown.any():
            vectors[unknown] = _opposite(loaded.rows)
        return check_vectors(normalise(vectors), rows=len(texts), dimensions=loaded.dimensions, model=self._folder.name)

    def _open_tokenizer(self) -> TextTokenizer:
        return self._load().tokenizer

    def close(self) -> None:
        """Release the vectors; a second call does nothing."""
        with self._opening:
            self._closed = True
            self._loaded = None

    def _load(self) -> _Wheel | _Folder:
        with self._opening:
            if self._closed:
                raise ModelError(f"the embedder {self._folder.name} was closed; make a new one")
            if self._loaded is None:
                self._loaded = _shared_wheel(self._folder) if self._from_wheel else _Folder(self._folder)
            return self._loaded


class _Wheel:
    """The weights of the package ``wordllama``: one row per token, averaged here.

    model2vec would do the same, but importing it takes 0.3 s, three times as long as the rest of `semlex search`.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.rows: NDArray[np.floating] = _matrix(_pinned(folder, *WHEEL_WEIGHTS))
        content = _pinned(folder, *WHEEL_TOKENIZER)
        self.tokenizer = text_tokenizer(_core.BpeTokenizer(content), f"{FILE_COUNTER}{WHEEL_TOKENIZER[1][:16]}")
        self._unknown = self.tokenizer.token_id(WHEEL_UNKNOWN)
        self.dimensions: int = self.rows.shape[1]

    def means(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the mean vectors of texts, (n, dimensions); zeros for a text without a known token."""
        if len(texts) > FEW_TEXTS:
            self.rows = self.rows.astype(np.float32, copy=False)
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, ids in enumerate(self.tokenizer.ids(texts)):
            known = ids[ids != self._unknown]
            if known.size:
                # Sums of float16 would be rounded to 11 bits.
                vectors[row] = self.rows[known].astype(np.float32, copy=False).mean(axis=0)
        return vectors


# Embedders that are open at the same time share the weights; reading them takes 16 MB and a tenth of a second.
_wheels: WeakValueDictionary[Path, _Wheel] = WeakValueDictionary()
_opening_wheels = new_lock()


def _shared_wheel(folder: ModelFolder) -> _Wheel:
    with _opening_wheels:
        wheel = _wheels.get(folder.path)
        if wheel is None:
            wheel = _wheels[folder.path] = _Wheel(folder)
        return wheel


class _Folder:
    """A model2vec model in a folder, loaded by the library model2vec."""

    def __init__(self, folder: ModelFolder) -> None:
        import_bars()
        from model2vec import StaticModel  # noqa: PLC0415 (not in the base install)

        try:
            # The path exists, so the runtime does not ask the hub.
            self._runtime = StaticModel.from_pretrained(folder.path)
        except Exception as error:  # the runtime lets the errors of four libraries through
            raise ModelError(
                f"{folder.name} cannot be loaded from {folder.path} as a model2vec model ({type(error).__name__}); "
                "the folder must hold model.safetensors, tokenizer.json and config.json; fetch it again"
            ) from error
        # Sums of float16 would be rounded to 11 bits.
        self.rows = self._runtime.embedding = np.asarray(self._runtime.embedding, dtype=np.float32)
        # A copy: the runtime changes its own.
        self.tokenizer = open_tokenizer(folder)
        self.dimensions: int = self.rows.shape[1]
        # The runtime sets its tokenizer's truncation in every call, which two threads must not do at once.
        self._computing = FairLock()

    def means(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), TEXTS_PER_CALL):
            part = texts[start : start + TEXTS_PER_CALL]
            with self._computing:
                vectors[start : start + len(part)] = self._runtime.encode(
                    part, normalize=False, max_length=None, batch_size=TEXTS_PER_CALL, use_multiprocessing=False
                )
        return vectors


def _opposite(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the vector of a text without a known token: the opposite of the vocabulary's mean vector."""
    opposite = -rows.mean(axis=0, dtype=np.float64)
    if not opposite.any():
        opposite[0] = 1.0  # a vocabulary that is centred exactly has no mean to point away from
    neutral: NDArray[np.float32] = opposite.astype(np.float32)
    return neutral


def _wheel_folder() -> ModelFolder:
    folder = package_folder(WHEEL)
    if folder is None:
        raise MissingExtraError(WHEEL, "local", "static embedding")
    found = version(WHEEL)
    if found != WHEEL_VERSION:
        raise ModelError(
            f"static embedding needs {WHEEL} {WHEEL_VERSION}, found {found}: pip install '{WHEEL}=={WHEEL_VERSION}'"
        )
    return ModelFolder(WHEEL_MODEL, WHEEL_VERSION, folder)


def _matrix(content: bytes) -> NDArray[np.float16]:
    """Read the single table of the package's safetensors file."""
    start = 8 + int.from_bytes(content[:8], "little")
    (begin, end) = json.loads(content[8:start])["embedding.weight"]["data_offsets"]
    return np.frombuffer(content, dtype="<f2", count=(end - begin) // 2, offset=start + begin).reshape(-1, WHEEL_WIDTH)


def _pinned(folder: ModelFolder, name: str, sha256: str) -> bytes:
    path = folder.path / name
    content = path.read_bytes() if path.is_file() else b""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        state = f"has SHA-256 {found[:16]}…, expected {sha256[:16]}…" if content else "is missing or empty"
        raise ModelError(
            f"{path} {state}; install the wheel again: "
            f"pip install --force-reinstall --no-deps '{WHEEL}=={WHEEL_VERSION}'"
        )
    return content
