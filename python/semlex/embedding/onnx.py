"""Encoders as ONNX files (BERT, ModernBERT, XLM-R and their like), run on the CPU without torch.

Pooling, prompts and maximum length are taken from the sentence-transformers files beside the model. A model without
these files is refused: guessed values would give wrong vectors without an error.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from semlex.embedding.base import TRANSFORMER_FUSION_WEIGHT, EmbedderIdentity, LocalEmbedder, check_length, unit_vectors
from semlex.embedding.sentence_transformers import digest_recipe, own_prompt, pooling_in, read_modules
from semlex.errors import ConfigurationError, ModelError
from semlex.models.files import ModelFolder, digest_weights, find_cached, find_model
from semlex.models.local.onnx_model import Batch, OnnxModel, require_onnx
from semlex.models.model_names import KNOWN_MODELS, ONNX_PREFIX, WEIGHTS_WHEEL, companions, known_prompts, split_name
from semlex.models.tokenizer import TextTokenizer, open_tokenizer
from semlex.validation import check_range

if TYPE_CHECKING:
    from numpy.typing import NDArray


TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
WHOLE_OUTPUT = "sentence_embedding"
POOLINGS = ("cls", "mean", "lasttoken")
PROBE = "dimension"


class OnnxEmbedder(LocalEmbedder[TextTokenizer]):
    """Embed with an ONNX file of an encoder, on the CPU.

    The constructor finds the model; the file is loaded at first use. No code of the model is run and no network is
    used. One batch at a time, first come first served; safe for several threads.

    Args:
        model_name: Hub id of a cached model, or path of a folder with an ONNX file, ``tokenizer.json``,
            ``modules.json`` and the settings of its pooling. ``#FILE`` after it names one of several ONNX files; by
            default the first of ``model.onnx``, ``model_quantized.onnx``, ``model_int8.onnx`` and similar names is
            used, in the folder itself or in ``onnx/``.
        dimensions: Length to which vectors are cut and normalised, for models that were trained for it (Matryoshka);
            None: the model's own.
        pooling: ``cls``, ``mean`` or ``lasttoken``; None: as the model's files set.
        query_prompt, document_prompt: Text put before every query and document; None: the model's own.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the model may be fetched from the hub.

    Raises:
        ConfigurationError: A parameter is unknown or out of range.
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ModelError: The model is not on this machine, or its files do not say how it makes vectors.
    """

    fusion_weight = TRANSFORMER_FUSION_WEIGHT

    def __init__(
        self,
        model_name: str,
        *,
        dimensions: int | None = None,
        pooling: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        revision: str | None = None,
        allow_download: bool = False,
    ) -> None:
        require_onnx("embedding with an ONNX model")
        if dimensions is not None:
            check_range("dimensions", dimensions, 1, 1 << 16)
        if pooling is not None and pooling not in POOLINGS:
            raise ConfigurationError(f"pooling must be one of {', '.join(POOLINGS)} or None; got {pooling!r}")
        self._wanted_file = split_name(model_name)[1]
        folder = find_model(model_name, revision=revision, allow_download=allow_download, weights="onnx")
        super().__init__(folder)
        prompts = {True: query_prompt, False: document_prompt}
        self._pooling = pooling or _pooling(folder)
        wanted = (WHOLE_OUTPUT,) if self._pooling == WHOLE_OUTPUT else TOKEN_OUTPUTS
        self._model = OnnxModel(folder, self._wanted_file, wanted)
        self._prompts = {
            is_query: own_prompt(folder, is_query=is_query) or known_prompts(folder.name)[is_query]
            if given is None
            else given
            for is_query, given in prompts.items()
        }
        self._wanted = dimensions
        self._length = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._folder.name!r}, {self._model.file})"

    @property
    def file(self) -> str:
        """The ONNX file that is used, in the model's folder."""
        return self._model.file

    @property
    def is_quantised(self) -> bool:
        """Whether the file's int8 scales depend on the input (dynamic quantization); loads the model."""
        return self._model.is_quantised

    def _read_identity(self) -> EmbedderIdentity:
        named = "" if self._wanted_file is None else f"#{self._wanted_file}"
        return EmbedderIdentity(
            model=f"{ONNX_PREFIX}{self._folder.name}{named}",
            revision=f"{self._folder.revision}+{self._recipe()}",
            dimensions=self.dimensions,
            instruction=self._prompts[True] or None,
            pooling=self._pooling,
            normalised=True,
        )

    @property
    def dimensions(self) -> int:
        """Length of a vector; loads the model."""
        with self._opening:
            if not self._length:
                found = self._forward([PROBE], is_query=False).shape[1]
                check_length(self._wanted, found, self._folder.name)
                self._length = found
            return self._wanted or self._length

    @property
    def max_tokens(self) -> int | None:
        """Maximum tokens of a text that are read, without those the model adds; None if its files do not say."""
        head, tail = self._open_tokenizer().frame()
        return self._model.max_tokens(len(head) + len(tail))

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        self._model.close()

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        dimensions = self.dimensions
        vectors = self._forward(texts, is_query=is_query, counts=True)[:, :dimensions]
        return unit_vectors(vectors, rows=len(texts), dimensions=dimensions, model=self._folder.name)

    def _forward(self, texts: list[str], *, is_query: bool, counts: bool = False) -> NDArray[np.float32]:
        tokenizer, most, prompt = self._open_tokenizer(), self.max_tokens, self._prompts[is_query]
        head, tail = tokenizer.frame()
        rows = tokenizer.encode([prompt + text for text in texts], head=head, tail=tail, most=most)
        if counts:
            self._cut[is_query].add(len(texts), rows.cut.size, f"the {most} tokens that the model reads")
        vectors = np.empty((len(texts), self._length), dtype=np.float32)
        for batch in self._model.run([rows[row] for row in range(len(rows))]):
            pooled = self._pool(batch)
            if vectors.shape[1] != pooled.shape[1]:  # the first of all
                vectors = np.empty((len(texts), pooled.shape[1]), dtype=np.float32)
            vectors[batch.rows] = pooled
        faulty = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if faulty.size:
            raise ModelError(
                f"{self._model.where}: the vector of row {faulty[0]} is not finite; a file of full precision may help: "
                f"{ONNX_PREFIX}{self._folder.name}#FILE"
            )
        return vectors

    def _pool(self, batch: Batch) -> NDArray[np.float32]:
        found = batch.outputs[self._model.outputs[0]]
        expected = batch.mask.shape if self._pooling != WHOLE_OUTPUT else batch.mask.shape[:1]
        if found.ndim != len(expected) + 1 or found.shape[:-1] != expected:
            raise ModelError(
                f"{self._model.where}: {self._model.outputs[0]} has the shape {found.shape} for {expected[0]} texts of "
                f"{batch.mask.shape[1]} tokens; is it an encoder? Choose another file or model"
            )
        states = found.astype(np.float32, copy=False)
        if self._pooling == "cls":
            states = states[:, 0]
        elif self._pooling == "lasttoken":
            states = states[np.arange(len(states)), batch.mask.sum(axis=1) - 1]
        elif self._pooling == "mean":
            states = np.einsum("btd,bt->bd", states, batch.mask.astype(np.float32)) / batch.mask.sum(axis=1)[:, None]
        return states

    def _recipe(self) -> str:
        digest = digest_recipe(self._folder, self._prompts[False])
        digest.update(f"{self._pooling}:{self._model.max_tokens(0)}".encode())
        for name in (self._model.file, *companions(self._model.file)):
            path = self._folder.path / name
            if path.is_file():
                digest_weights(digest, self._folder.path, path)
        return digest.hexdigest()[:12]

    def _read_tokenizer(self) -> TextTokenizer:
        return open_tokenizer(self._folder)


def _pooling(folder: ModelFolder) -> str:
    """Return how the model's files combine token vectors into one vector."""
    modules = read_modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        ways = pooling_in(folder, modules[1][1])
        if len(ways) == 1 and ways[0] in POOLINGS:
            return ways[0]
        problem = f"its pooling is {' and '.join(ways) or 'not stated'}; only {', '.join(POOLINGS)} are supported"
    elif modules:
        return WHOLE_OUTPUT  # a file that was exported with all of its modules has it, any other one is refused
    else:
        problem = "modules.json and the settings of its pooling are missing"
    raise ModelError(
        f"{folder.name} does not say how it combines token vectors ({folder.path}): {problem}. Put the files of "
        "sentence-transformers of this model beside it (modules.json, 1_Pooling/config.json), or name the pooling in "
        "Python: OnnxEmbedder(NAME, pooling='mean')"
    )


# A new collection uses the light model if embedding is estimated to take no longer than this.
MAX_LIGHT_SECONDS = 30.0
# English text has about so many bytes a token; marked up files have more, so that estimates are rather too long.
BYTES_PER_TOKEN = 4
_CHUNK = "a text of about as many tokens as a chunk usually has " * 23


def find_light_model() -> str | None:
    """Return the name of the first small model found in the package ``semlex-weights`` or the hub's local cache."""
    if find_spec("onnxruntime") is None or find_spec("tokenizers") is None:
        return None
    known = [WEIGHTS_WHEEL, *(model.name for model in KNOWN_MODELS if model.kind == "embedder")]
    found = next((name for name in known if find_cached(name, weights="onnx") is not None), None)
    return None if found is None else f"{ONNX_PREFIX}{found}"


def estimate_seconds(name: str, size: int) -> float:
    """Estimate the seconds that embedding files of `size` bytes takes, by embedding one text."""
    embedder = OnnxEmbedder(name.removeprefix(ONNX_PREFIX))
    try:
        tokens = int(embedder.count_tokens([_CHUNK])[0])
        embedder.embed_query("")  # loads the file
        started = time.perf_counter()
        embedder.embed_documents([_CHUNK])
        return (time.perf_counter() - started) * size / (tokens * BYTES_PER_TOKEN)
    finally:
        embedder.close()
