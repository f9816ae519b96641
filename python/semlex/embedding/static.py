"""Static embeddings: one vector per token, averaged. No torch, no hub, thousands of texts per second.

The default weights come with the wheel ``wordllama`` (an English model of 256 dimensions); any model2vec model in a
local folder or in the hub's cache works as well.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.embedding.base import STATIC_FUSION_WEIGHT, EmbedderIdentity, check_vectors, normalise
from semlex.errors import MissingExtraError, ModelError
from semlex.forks import new_lock
from semlex.models.quiet_bars import import_bars
from semlex.models.tokenizing import TextTokenizer, check_texts, open_tokenizer
from semlex.models.turns import Turns
from semlex.models.weights import ModelFolder, find_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
# Texts whose token vectors are in memory together: 64 texts of 500 tokens and 256 dimensions are 33 MB.
TEXTS_PER_CALL = 64


class StaticEmbedder:
    """Embeds by averaging token vectors.

    A text without a single known token (empty, or all of it unknown to the vocabulary) would have no direction at all.
    It gets the opposite of the vocabulary's mean instead: a fixed vector that points away from what texts have in
    common, so such a text is stored like any other, is found by its words, and passes for similar to none but its like.

    Queries and documents are embedded alike. The model is loaded at first use; safe for several threads; the network
    is never used.

    Args:
        model_name: ``static`` for the weights of the wheel ``wordllama``; or the path of a local folder; or the hub id
            of a model2vec model that is in the local cache.
        revision: Branch, tag or commit of the hub.

    Raises:
        MissingExtraError: model2vec, or the wheel for ``static``, is not installed.
        ModelError: The installed wheel is of another version.
        ModelNotFoundError: The model is not on this machine.
    """

    fusion_weight = STATIC_FUSION_WEIGHT

    def __init__(self, model_name: str = "static", *, revision: str | None = None) -> None:
        for package in ("model2vec", WHEEL) if model_name == "static" else ("model2vec",):
            if find_spec(package) is None:
                raise MissingExtraError(package, "local", "static embedding")
        self._folder = _wheel_folder() if model_name == "static" else find_model(model_name, revision=revision)
        self._from_wheel = model_name == "static"
        self._loaded: _Loaded | None = None
        self._closed = False
        # The runtime sets its tokenizer's truncation anew in every call, which two threads must not do at once.
        self._computing = Turns()
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
        return self._load().neutral.size

    @property
    def counter_name(self) -> str:
        """Name of the way in which tokens are counted; loads the model."""
        return self._load().counter_name

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds texts.

        Args:
            texts: n texts of any length; nothing is cut.

        Returns:
            (n, dimensions), each of norm 1.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, or was closed.
        """
        rows = check_texts(texts)
        loaded = self._load()
        vectors = np.empty((len(rows), loaded.neutral.size), dtype=np.float32)
        for start in range(0, len(rows), TEXTS_PER_CALL):
            part = rows[start : start + TEXTS_PER_CALL]
            with self._computing:
                vectors[start : start + len(part)] = loaded.runtime.encode(
                    part, normalize=False, max_length=None, batch_size=TEXTS_PER_CALL, use_multiprocessing=False
                )
        vectors[~vectors.any(axis=1)] = loaded.neutral
        return check_vectors(
            normalise(vectors), rows=len(rows), dimensions=loaded.neutral.size, model=self._folder.name
        )

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text, as a document would be.

        Args:
            text: The query.

        Returns:
            (dimensions,), of norm 1.

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, or was closed.
        """
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Finds where the tokens of a text stand.

        Args:
            text: The text.

        Returns:
            (t, 2) start and end in characters; the bytes of a character outside the vocabulary share a row's values.

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
        """
        (checked,) = check_texts([text])
        return self._load().tokenizer.offsets(checked)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Counts tokens, known and unknown.

        Args:
            texts: n texts.

        Returns:
            (n,).

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
        """
        return self._load().tokenizer.counts(check_texts(texts))

    def close(self) -> None:
        """Releases the vectors; a second call does nothing."""
        with self._opening:
            self._closed = True
            self._loaded = None

    def _load(self) -> _Loaded:
        with self._opening:
            if self._closed:
                raise ModelError(f"{self._folder.name} was closed; make a new one")
            if self._loaded is None:
                self._loaded = _load_wheel(self._folder) if self._from_wheel else _load_folder(self._folder)
            return self._loaded


class _Loaded:
    """The runtime, a tokenizer of our own beside it (the runtime changes its own), and the neutral vector.

    Reading a tokenizer takes a tenth of a second, and a search needs the runtime's alone: ours is read when it is used.
    """

    def __init__(self, runtime: Any, counter_name: str, read_tokenizer: Callable[[], TextTokenizer]) -> None:
        # Sums of float16 would be rounded to 11 bits.
        runtime.embedding = np.asarray(runtime.embedding, dtype=np.float32)
        self.runtime = runtime
        self.counter_name = counter_name
        self._read_tokenizer = read_tokenizer
        self._tokenizer: TextTokenizer | None = None
        self._reading = new_lock()
        opposite = -runtime.embedding.mean(axis=0, dtype=np.float64)
        if not opposite.any():
            opposite[0] = 1.0  # a vocabulary that is centred exactly has no mean to point away from
        self.neutral: NDArray[np.float32] = opposite.astype(np.float32)

    @property
    def tokenizer(self) -> TextTokenizer:
        with self._reading:
            if self._tokenizer is None:
                self._tokenizer = self._read_tokenizer()
            return self._tokenizer


def _wheel_folder() -> ModelFolder:
    """The wheel's own folder, found without importing the package: two of its files are all that is read."""
    spec = find_spec(WHEEL)
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        raise MissingExtraError(WHEEL, "local", "static embedding")
    found = version(WHEEL)
    if found != WHEEL_VERSION:
        raise ModelError(
            f"static embedding needs {WHEEL} {WHEEL_VERSION}, found {found}: pip install '{WHEEL}=={WHEEL_VERSION}'"
        )
    return ModelFolder(WHEEL_MODEL, WHEEL_VERSION, Path(places[0]))


def _load_wheel(folder: ModelFolder) -> _Loaded:
    import safetensors.numpy  # noqa: PLC0415 (not in the base install)
    from model2vec import StaticModel  # noqa: PLC0415
    from tokenizers import Tokenizer  # noqa: PLC0415

    vectors = safetensors.numpy.load(_pinned(folder, *WHEEL_WEIGHTS))["embedding.weight"]
    content = _pinned(folder, *WHEEL_TOKENIZER)
    runtime = StaticModel(vectors=vectors, tokenizer=Tokenizer.from_buffer(content), normalize=True, max_length=None)
    name = f"tokenizer/{WHEEL_TOKENIZER[1][:16]}"
    return _Loaded(runtime, name, lambda: TextTokenizer(Tokenizer.from_buffer(content), name))


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


def _load_folder(folder: ModelFolder) -> _Loaded:
    import_bars()
    from model2vec import StaticModel  # noqa: PLC0415 (not in the base install)

    try:
        # The path exists, so the runtime does not ask the hub.
        runtime = StaticModel.from_pretrained(folder.path, max_length=None, force_download=False)
    except Exception as error:  # the runtime lets the errors of four libraries through
        raise ModelError(
            f"{folder.name} cannot be loaded from {folder.path} as a model2vec model ({type(error).__name__}); "
            "the folder must hold model.safetensors, tokenizer.json and config.json; fetch it again"
        ) from error
    tokenizer = open_tokenizer(folder)
    return _Loaded(runtime, tokenizer.name, lambda: tokenizer)
