"""Run models of sentence-transformers with that package, and read their configuration files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.embedding.base import TRANSFORMER_FUSION_WEIGHT, EmbedderIdentity, LocalEmbedder, check_length, unit_vectors
from semlex.errors import MissingExtraError, ModelError
from semlex.forks import drop, renew_after_fork
from semlex.models.files import ModelFolder, find_model
from semlex.models.local import memory
from semlex.models.local.device import check_names, choose_placement, sentence_model
from semlex.models.local.fair_lock import FairLock
from semlex.models.tokenizer import TextTokenizer, TokenCounter, tokenizer_in
from semlex.validation import check_range

if TYPE_CHECKING:
    from numpy.typing import NDArray


MODULES = "modules.json"


def own_prompt(folder: ModelFolder, *, is_query: bool) -> str:
    """Return the text that the model's files put before every query or document."""
    config = folder.read_json("config_sentence_transformers.json")
    own = config.get("prompts") or {}
    # The names that the package documents, in its order; version 6.2 itself overlooks all but the first of each.
    names = ("query",) if is_query else ("document", "passage", "corpus")
    chosen = (*names, config.get("default_prompt_name"))
    return next((own[name] for name in chosen if isinstance(own.get(name), str)), "")


def digest_recipe(folder: ModelFolder, document_prompt: str) -> hashlib._Hash:
    """Return a hash of what the vectors depend on besides the weights: modules, their settings, the prompt."""
    digest = hashlib.sha256(document_prompt.encode())
    for path in sorted(folder.path.rglob("*.json")):
        if path.name == MODULES or path.name.endswith("config.json"):
            digest.update(path.relative_to(folder.path).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest


def read_modules(folder: ModelFolder) -> list[tuple[str, str]]:
    """Return kind and folder of each module of the pipeline, in order; empty if the model lists none."""
    path = folder.path / MODULES
    if not path.is_file():
        return []
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (OSError, ValueError, LookupError, TypeError):
        raise ModelError(f"{path} cannot be read as a list of modules; fetch the model again") from None


def pooling_in(folder: ModelFolder, module: str) -> tuple[str, ...]:
    """Return the ways in which a module combines token vectors; the vectors of several ways are joined."""
    config: dict[str, Any] = folder.read_json(f"{module}/config.json")
    stated = config.get("pooling_mode")
    if isinstance(stated, str):
        modes: tuple[str, ...] = (stated,)
    elif isinstance(stated, list):
        modes = tuple(map(str, stated))
    else:
        prefix = "pooling_mode_"
        modes = tuple(
            name.removeprefix(prefix).removesuffix("_tokens").removesuffix("_token")
            for name, is_on in config.items()
            if name.startswith(prefix) and is_on is True
        )
    return (*modes, "without the prompt") if config.get("include_prompt") is False else modes


PREFIX = "sentence-transformers:"
PROBE = "dimension"


class SentenceTransformersEmbedder(LocalEmbedder[TokenCounter]):
    """Embed with a model of sentence-transformers on this machine.

    The constructor finds the model; the package and the weights are loaded at first use. Only safetensors are read, and
    no code of the model is run. It computes one batch at a time, in the order of the calls; safe for several threads.

    Args:
        model_name: Hub id, or path of a local folder with ``modules.json``.
        device: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        batch_size: Maximum texts in a forward pass, 1 to 1024; None for 256 on CUDA and 32 elsewhere. If memory runs
            out, batches become smaller.
        dimensions: Length to which vectors are cut and normalised, for models that were trained for it (Matryoshka);
            None: the model's own.
        revision: Branch, tag or commit of the hub.
        query_prompt, document_prompt: Text put before every query and document; None: the model's own.
        allow_download: Whether the model may be fetched from the hub.

    Raises:
        ConfigurationError: A parameter is unknown or out of range.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is not on this machine or of another kind, or its weights are not safetensors.
    """

    runs_on_torch = True
    fusion_weight = TRANSFORMER_FUSION_WEIGHT

    def __init__(
        self,
        model_name: str,
        device: str | None = None,
        batch_size: int | None = None,
        *,
        dimensions: int | None = None,
        revision: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        allow_download: bool = False,
    ) -> None:
        if find_spec("sentence_transformers") is None:
            purpose = "embedding with a model of sentence-transformers"
            raise MissingExtraError("sentence-transformers", "sentence-transformers", purpose)
        check_names(device, None)
        if batch_size is not None:
            check_range("batch_size", batch_size, 1, 1024)
        if dimensions is not None:
            check_range("dimensions", dimensions, 1, 1 << 16)
        super().__init__(find_model(model_name, revision=revision, allow_download=allow_download))
        self._tokenizer_folder = _checked_pipeline(self._folder)
        self._device = device
        self._batch_size = batch_size
        self._wanted = dimensions
        self._given_prompts = {True: query_prompt, False: document_prompt}
        self._model: Any = None
        self._length = 0
        self._closed = False
        # The package is not made for two calls at once. A search takes its turn between the batches of a load.
        self._computing = FairLock()
        renew_after_fork(self)

    def _after_fork(self) -> None:
        drop(self._model)
        self._model = None

    def _read_identity(self) -> EmbedderIdentity:
        recipe = digest_recipe(self._folder, self._prompt(is_query=False)).hexdigest()[:12]
        return EmbedderIdentity(
            model=self._folder.name if is_default_for(self._folder) else f"{PREFIX}{self._folder.name}",
            revision=f"{self._folder.revision}+{recipe}",
            dimensions=self.dimensions,
            instruction=self._prompt(is_query=True) or None,
            pooling="sentence-transformers",
            normalised=True,
        )

    @property
    def dimensions(self) -> int:
        """Length of a vector; loads the model."""
        self._load()
        return self._wanted or self._length

    @property
    def max_tokens(self) -> int | None:
        """Maximum tokens of a text that are read, without those the model adds; None if the model does not say."""
        model = self._load()
        most, added = model.max_seq_length, getattr(model.tokenizer, "num_special_tokens_to_add", int)()
        return most - added if isinstance(most, int) else None

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        with self._computing, self._opening:
            self._closed = True
            if self._model is not None:
                device = self._model.device.type
                self._model = None
                memory.give_back(device)

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        self._count_cut(texts, is_query=is_query)
        # Texts of like length together, so that little is padded.
        order = np.argsort([len(text) for text in texts], kind="stable")

        def run(rows: NDArray[np.int64]) -> None:
            vectors[rows] = self._encode([texts[row] for row in rows], is_query=is_query)[:, : vectors.shape[1]]

        device = self._load().device.type
        size = self._batch_size or memory.usual_batch(device)
        fitting = memory.run_in_batches(run, order, size, device=device, model=self._folder.name)
        if fitting < size:  # another thread may have found meanwhile that less fits
            self._batch_size = fitting
        return unit_vectors(vectors, rows=len(texts), dimensions=vectors.shape[1], model=self._folder.name)

    def _encode(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Run one forward pass; return the vectors as the model makes them, neither cut nor normalised here."""
        with self._computing:
            model = self._load()
            encode = model.encode_query if is_query else model.encode_document
            vectors: NDArray[np.float32] = encode(
                texts,
                prompt=self._prompt(is_query=is_query),
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=False,
            )
            return vectors

    def _prompt(self, *, is_query: bool) -> str:
        given = self._given_prompts[is_query]
        return own_prompt(self._folder, is_query=is_query) if given is None else given

    def _count_cut(self, texts: list[str], *, is_query: bool) -> None:
        tokenizer = self._open_tokenizer()
        model = self._load()
        most = model.max_seq_length
        added = getattr(model.tokenizer, "num_special_tokens_to_add", int)()
        if not isinstance(tokenizer, TextTokenizer) or not isinstance(most, int):
            return
        prompt = self._prompt(is_query=is_query)
        lengths = tokenizer.count_tokens([prompt + text for text in texts]) + added
        self._cut[is_query].add(len(texts), int((lengths > most).sum()), f"the {most} tokens that the model reads")

    def _load(self) -> Any:
        with self._opening:
            if self._closed:
                raise ModelError(f"the embedder {self._folder.name} was closed; make a new one")
            if self._model is None:
                model = _read_model(self._folder, self._device)
                (vector,) = model.encode([PROBE], show_progress_bar=False, convert_to_numpy=True)
                check_length(self._wanted, vector.size, self._folder.name)
                self._model, self._length = model, vector.size
            return self._model

    def _read_tokenizer(self) -> TokenCounter:
        return tokenizer_in(self._tokenizer_folder)


def is_default_for(folder: ModelFolder) -> bool:
    """Return whether `SentenceTransformersEmbedder` loads a folder that is named without a prefix."""
    modules = folder.path / MODULES
    if not modules.is_file() or folder.read_json("config.json").get("model_type") in {"qwen3", "model2vec"}:
        return False
    return "StaticEmbedding" not in modules.read_text(encoding="utf-8")


def _checked_pipeline(folder: ModelFolder) -> ModelFolder:
    """Return the folder of the tokenizer; refuse pickled weights and models of other kinds."""
    try:
        modules = json.loads((folder.path / MODULES).read_text(encoding="utf-8"))
        first = str(modules[0]["path"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ModelError(
            f"{folder.name} is not a model of sentence-transformers ({MODULES} is missing or broken in {folder.path}); "
            "choose another model, or fetch it again"
        ) from None
    pickled = [path for path in folder.path.rglob("pytorch_model*.bin") if not any(path.parent.glob("*.safetensors"))]
    if pickled:
        raise ModelError(
            f"{pickled[0]} is a pickle, which can run code when it is read; choose a model, or a revision, whose "
            "weights are safetensors"
        )
    return replace(folder, path=folder.path / first)


def _read_model(folder: ModelFolder, device: str | None) -> Any:
    placement = choose_placement(device, None)
    if placement.device == "cpu":
        placement = choose_placement("cpu", "float32")
    remedy = "fetch it again, or choose another model; it must be one of sentence-transformers"
    model = sentence_model("SentenceTransformer", folder, placement, remedy)
    import torch  # noqa: PLC0415 (loaded already)

    return model.eval().to(placement.device, getattr(torch, placement.precision))
