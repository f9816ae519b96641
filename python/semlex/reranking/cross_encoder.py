"""Cross-encoders: classifiers with one label that read the query and a text together.

sentence-transformers loads and runs them. Only safetensors weights are read. A model without its trained head is
refused, because transformers would fill in random numbers. The activation is always the logistic function, so that
scores of different rerankers have one scale.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import MissingExtraError, ModelError
from semlex.forks import drop, new_lock, renew_after_fork
from semlex.models.files import ModelFolder, find_model
from semlex.models.local import memory
from semlex.models.local.device import check_names, choose_placement, sentence_model
from semlex.models.tokenizer import CutTexts
from semlex.reranking.base import WITHOUT_HUB, CheckedReranker
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class CrossEncoderReranker(CheckedReranker):
    """Score candidates with a cross-encoder of sentence-transformers.

    The constructor finds the model, and fails if it is missing; the weights are loaded at first use.
    Blocking, and safe for several threads. The model gets query and text as they are; models of the Qwen3-Reranker
    family need a prompt and are loaded by `Qwen3Reranker`.

    Args:
        model_name: Hub id, or path of a local folder.
        device: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        batch_size: Maximum candidates in a forward pass, 1 to 256; None for 256 on CUDA and 32 elsewhere. If memory
            runs out, batches become smaller.
        max_length: Maximum tokens of query and text together, 16 to 32768; None: the model's own limit. If they do not
            fit, the longer of the two is cut, and a warning is logged from time to time.
        dtype, revision, allow_download: As for `semlex.embedding.qwen3.Qwen3EmbeddingEncoder`.

    Raises:
        ConfigurationError: A parameter is unknown or out of range.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is not on this machine, or of another kind.
    """

    runs_on_torch = True

    def __init__(
        self,
        model_name: str,
        device: str | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        *,
        dtype: str | None = None,
        revision: str | None = None,
        allow_download: bool = False,
    ) -> None:
        if batch_size is not None:
            check_range("batch_size", batch_size, 1, 256)
        if max_length is not None:
            check_range("max_length", max_length, 16, 32768)
        check_names(device, dtype)
        if find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "sentence-transformers", "a cross-encoder")
        self._folder = find_model(model_name, revision=revision, allow_download=allow_download, without_hub=WITHOUT_HUB)
        _check_kind(self._folder)
        positions = self._folder.read_json("config.json").get("max_position_embeddings")
        if max_length is not None and isinstance(positions, int) and 0 < positions < max_length:
            check_range(f"max_length for {self._folder.name}", max_length, 16, positions)
        self._requested = (device, dtype)
        self._batch_size = batch_size
        self._max_length = max_length
        self._model: Any = None
        self._closed = False
        self._cut = CutTexts("candidates", self._folder.name)
        # One forward pass at a time: two would need twice the memory, and neither MPS nor a tokenizer whose truncation
        # is switched on and off is safe with two.
        self._lock = new_lock()
        renew_after_fork(self)

    @property
    def identity(self) -> str:
        """Return model and revision, in one line."""
        return f"{self._folder.name}@{self._folder.revision}"

    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        pairs = [(query, text) for text in texts]
        scores = np.empty(len(pairs), dtype=np.float32)
        with self._lock:
            if self._closed:
                raise ModelError(f"the reranker {self._folder.name} was closed; make a new one")
            if not pairs:
                return scores
            model = self._load()
            # Rows of like length together, so that little is padded; the longest first, so that memory fails early.
            order = np.argsort(-self._lengths(model, pairs), kind="stable")

            def run(rows: NDArray[np.int64]) -> None:
                scores[rows] = self._forward(model, [pairs[row] for row in rows])

            device = model.device.type
            size = self._batch_size or memory.usual_batch(device)
            self._batch_size = memory.run_in_batches(run, order, size, device=device, model=self._folder.name)
        faulty = np.flatnonzero(~np.isfinite(scores))
        if faulty.size:
            raise ModelError(f"{self.identity}: the score of row {faulty[0]} is not finite; dtype='float32' may help")
        return scores

    def _after_fork(self) -> None:
        drop(self._model)
        self._model = None

    def close(self) -> None:
        """Release the model and the device's memory; a second call does nothing."""
        with self._lock:
            self._closed = True
            if self._model is not None:
                device = self._model.device.type
                self._model = None
                memory.give_back(device)

    def _lengths(self, model: Any, pairs: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        """Return the number of tokens of every pair, and count the pairs that are cut."""
        encoded = model.tokenizer(pairs, truncation=False, padding=False, verbose=False)["input_ids"]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        cut = int((lengths > model.max_seq_length).sum())
        self._cut.add(len(pairs), cut, f"max_length={model.max_seq_length} tokens with the query")
        return lengths

    def _forward(self, model: Any, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        import torch  # noqa: PLC0415 (loaded already)

        try:
            scores: NDArray[np.float32] = model.predict(
                pairs, batch_size=len(pairs), activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
            )
        except Exception as error:  # three libraries take part, and each has errors of its own
            if memory.is_exhausted(error):
                raise
            raise ModelError(
                f"{self._folder.name} cannot judge {len(pairs)} candidates ({type(error).__name__}); a smaller "
                "batch_size or max_length may help"
            ) from error
        return scores

    def _load(self) -> Any:
        if self._model is None:
            remedy = (
                "the folder must hold config.json, a tokenizer and *.safetensors of a cross-encoder, and no Python "
                "code; fetch it again"
            )
            placement = choose_placement(*self._requested)
            model = sentence_model("CrossEncoder", self._folder, placement, remedy, max_length=self._max_length)
            if model.num_labels != 1:
                raise ModelError(f"{self._folder.name} is a classifier with {model.num_labels} labels; expected 1")
            self._check_head(model)
            self._model = model
        return self._model

    def _check_head(self, model: Any) -> None:
        """Refuse a classifier whose head is missing from the files, since it would be random."""
        from safetensors import safe_open  # noqa: PLC0415 (not in the base install)

        network = model.model
        if not type(network).__name__.endswith("ForSequenceClassification"):
            return  # the head is a module of its own, and its loader is strict
        body = f"{network.base_model_prefix}."
        stored: set[str] = set()
        for path in self._folder.path.glob("*.safetensors"):
            with safe_open(path, "pt") as file:
                stored.update(file.keys())
        missing = [name for name, _ in network.named_parameters() if not name.startswith(body) and name not in stored]
        if missing:
            raise ModelError(
                f"{self._folder.name}: {len(missing)} weights of its head are missing from {self._folder.path} (the "
                f"first is {min(missing)}); is it another kind of model? If not, fetch it again"
            )


def is_cross_encoder(folder: ModelFolder) -> bool:
    """Return whether a folder contains a cross-encoder, as its config says."""
    architecture = _architecture(folder)
    if architecture.endswith("ForCausalLM"):
        return False
    own_word = folder.read_json("config_sentence_transformers.json").get("model_type")
    return own_word == "CrossEncoder" or (own_word is None and architecture.endswith("ForSequenceClassification"))


def _check_kind(folder: ModelFolder) -> None:
    if not is_cross_encoder(folder):
        remedy = "choose another model"
        if _architecture(folder).endswith("ForCausalLM"):
            remedy = "a Qwen3-Reranker is loaded by its name alone, or by semlex.reranking.qwen3.Qwen3Reranker"
        raise ModelError(f"{folder.name} is not a cross-encoder (config.json: architectures); {remedy}")
    # Beside the transformer, whose loader refuses them, a model may have modules of its own.
    pickled = [path.parent for path in folder.path.rglob("pytorch_model.bin")]
    if any(not any(parent.glob("*.safetensors")) for parent in pickled):
        raise ModelError(f"{folder.name} has no weights in safetensors format; choose a model that has")


def _architecture(folder: ModelFolder) -> str:
    architectures = folder.read_json("config.json").get("architectures") or [""]
    return str(architectures[0]) if isinstance(architectures, list) else ""
