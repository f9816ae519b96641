"""Embedders on a server of OpenAI's format, or on Google's Gemini API.

A server's answer is never trusted: the number of rows, their length, and every value are checked, and vectors are cut
and normalised here.
"""

from __future__ import annotations

import base64
import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

import numpy as np

from semlex.embedding.base import (
    FITTED_FUSION_WEIGHT,
    CheckedEmbedder,
    EmbedderIdentity,
    unit_vectors,
)
from semlex.errors import ConfigurationError, ModelMismatchError, ModelServerError
from semlex.forks import new_lock
from semlex.models.model_names import ACCOUNTS, DEFAULT_INSTRUCTION
from semlex.models.remote_model import RemoteModel, RequestOptions
from semlex.models.tokenizer import TokenCounter, find_tokenizer
from semlex.validation import check_range, shown_rows

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray


PROBE = "dimension"
MAX_DIMENSIONS = 1 << 16


class RemoteEmbedder(RemoteModel, CheckedEmbedder):
    """An embedder whose model runs on a server. An empty text is sent as a space.

    Args:
        dimensions: Length to which vectors are cut and normalised. None: the model's own; the server is sent one word
            to find it out.
        task: Instruction in the identity, for example the prompt for queries; None without such a prompt.
        tokenizer: The model's tokenizer; see `semlex.models.tokenizer.find_tokenizer`.
        options: See `RequestOptions`.
    """

    max_texts = 2048
    key_variable = "SEMLEX_EMBEDDING_API_KEY"
    halved_statuses = frozenset({400, 413, 422})

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        dimensions: int | None,
        query_prompt: str,
        document_prompt: str,
        task: str | None,
        tokenizer: str | PathLike[str] | None,
        **options: Any,
    ) -> None:
        super().__init__(model, base_url, **options)
        if dimensions is not None:
            check_range("dimensions", dimensions, 1, MAX_DIMENSIONS)
        self._wanted = dimensions
        self._prompts = {True: query_prompt, False: document_prompt}
        self._task = task
        self._given_tokenizer = tokenizer
        self._tokenizer: TokenCounter | None = None
        self._length: int | None = None  # of the vectors that the server returns
        self._lock = new_lock()

    @property
    def identity(self) -> EmbedderIdentity:
        """Return what the vectors depend on; may ask the server for its dimension."""
        prompt = self._prompts[False]
        revision = f"server+{hashlib.sha256(prompt.encode()).hexdigest()[:12]}" if prompt else "server"
        return EmbedderIdentity(
            model=self._name,
            revision=revision,
            dimensions=self.dimensions,
            instruction=self._task,
            pooling="server",
            normalised=True,
        )

    @property
    def dimensions(self) -> int:
        """Return the length of a vector; may ask the server for it."""
        if self._wanted is not None:
            return self._wanted
        if self._length is None:
            self._embed([PROBE], is_query=False)
        return self._length or 0

    @abstractmethod
    def _ask(self, texts: list[str], *, is_query: bool) -> list[NDArray[np.float32]]:
        """Send one request; return the vector of every text, in order, as the server made it."""

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        prompt = self._prompts[is_query]

        def ask(batch: list[str]) -> NDArray[np.float32]:
            return np.stack([self._cut(vector) for vector in self._ask(batch, is_query=is_query)])

        parts = self._in_batches(ask, [prompt + text or " " for text in texts])
        vectors = np.concatenate([np.empty((0, self.dimensions), dtype=np.float32), *parts])
        return unit_vectors(vectors, rows=len(texts), dimensions=self.dimensions, model=self._name)

    def _cut(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a vector cut to the wanted length; refuse one whose length differs from earlier ones."""
        with self._lock:
            if self._length is None:
                if not max(self._wanted or 1, 1) <= vector.size <= MAX_DIMENSIONS:
                    raise ModelMismatchError(
                        f"{self._name} makes vectors of {vector.size} dimensions; "
                        f"{'expected at least one' if self._wanted is None else f'{self._wanted} were configured'}"
                    )
                self._length = vector.size
            if vector.size != self._length:
                raise ModelMismatchError(
                    f"{self._name} returned a vector of dimension {vector.size} after vectors of dimension "
                    f"{self._length}; does the server now run another model?"
                )
        return vector[: self._wanted]

    def _open_tokenizer(self) -> TokenCounter:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = find_tokenizer(self._model, self._given_tokenizer)
            return self._tokenizer


def read_vector(values: Any) -> NDArray[np.float32] | None:
    """Return an answer's numbers as a vector, or None if they are not numbers; infinite values are checked later."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=np.float64).astype(np.float32)
    except OverflowError:  # a whole number of hundreds of digits
        return None


DEFAULT_MODEL = "gemini-embedding-001"
PREFIXED_MODELS = "gemini-embedding-2"
TASK_TYPES = {True: "RETRIEVAL_QUERY", False: "RETRIEVAL_DOCUMENT"}
QUERY_PREFIX = "task: search result | query: "
DOCUMENT_PREFIX = "title: none | text: "


class GeminiEmbedder(RemoteEmbedder):
    """Embed with a Gemini model. Texts are sent to Google, from the first call on.

    All vectors are normalised here, because gemini-embedding-001 normalises only those of full length. The task is sent
    as ``taskType``, for gemini-embedding-2 as a prefix of the text.

    Args:
        model: Name of the model.
        dimensions: Length of the vectors, which the server cuts: 768, 1536 and 3072 are recommended; None for 3072.
        base_url: Address before ``/v1beta``.
        tokenizer: A ``tokenizer.json`` on this machine, or its folder; None to count two tokens a word.
        requests: See `RequestOptions`. Without `api_key`, the key is ``GEMINI_API_KEY`` or ``GOOGLE_API_KEY`` of the
            environment; `batch_size` is 1 to 100.

    Raises:
        ConfigurationError: A parameter cannot be used, or the key is missing.
    """

    fusion_weight = FITTED_FUSION_WEIGHT
    max_texts = 100

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        dimensions: int | None = None,
        base_url: str = ACCOUNTS["gemini"].url,
        tokenizer: str | PathLike[str] | None = None,
        **requests: Unpack[RequestOptions],
    ) -> None:
        model = model.removeprefix("models/")
        takes_type = not model.startswith(PREFIXED_MODELS)
        super().__init__(
            model,
            base_url,
            account="gemini",
            key_header="x-goog-api-key",
            dimensions=dimensions,
            query_prompt="" if takes_type else QUERY_PREFIX,
            document_prompt="" if takes_type else DOCUMENT_PREFIX,
            task=TASK_TYPES[True] if takes_type else QUERY_PREFIX,
            tokenizer=tokenizer,
            **requests,
        )
        self._takes_type = takes_type

    def _ask(self, texts: list[str], *, is_query: bool) -> list[NDArray[np.float32]]:
        settings: dict[str, object] = {"model": f"models/{self._model}"}
        if self._takes_type:
            settings["taskType"] = TASK_TYPES[is_query]
        if self._wanted is not None:
            settings["outputDimensionality"] = self._wanted
        requests = [{**settings, "content": {"parts": [{"text": text}]}} for text in texts]
        path = f"/v1beta/models/{quote(self._model, safe='')}:batchEmbedContents"
        answer = self._server.post(path, {"requests": requests})
        entries = answer.get("embeddings") if isinstance(answer, dict) else None
        vectors = [
            vector
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and (vector := read_vector(entry.get("values"))) is not None
        ]
        if len(vectors) != len(texts):
            raise self._unusable(f"it has {len(vectors)} vectors for {len(texts)} texts")
        return vectors


PATH = "/embeddings"
# Servers add no prompt, and without it Qwen3-Embedding loses 1 to 5 % of retrieval quality.
PROMPTED_MODELS = "qwen3-embedding"
# Models of which is known that they were trained for retrieval in many languages; names of others promise nothing.
MULTILINGUAL_MODELS = (PROMPTED_MODELS, "text-embedding-3")


class OpenAIEmbedder(RemoteEmbedder):
    """Embed with a model on a server of OpenAI's format. Texts are sent there, from the first call on.

    Args:
        model: The server's name for the model.
        base_url: Address before ``/embeddings``.
        name: Name in the identity; None: a name from which `choose_embedder` makes this embedder again.
        dimensions: Length to which vectors are cut and normalised, for models that were trained for it (Matryoshka);
            None: the model's own.
        query_prompt, document_prompt: Text put before every query, and before every document.
        instruction: Task for models with a prompt of the form ``Instruct: …``, instead of ``query_prompt``. If neither
            is given, models with ``qwen3-embedding`` in their name get the model card's.
        tokenizer: The model's ``tokenizer.json`` on this machine, its folder, or a hub id in the local cache. None for
            that of the model in the local cache, else two tokens a word.
        send_dimensions: Whether the server is asked to cut the vectors (``dimensions``), which saves traffic; not every
            server can.
        requests: See `RequestOptions`. Without `api_key`, the key comes from the environment: ``OPENAI_API_KEY`` at
            OpenAI, ``OPENROUTER_API_KEY`` at OpenRouter, ``SEMLEX_EMBEDDING_API_KEY`` anywhere else, unless
            ``SEMLEX_EMBEDDING_MODEL`` names an address of another host. `batch_size` is 1 to 2048.

    Raises:
        ConfigurationError: A parameter cannot be used, or a key is missing.
    """

    accounts = ("openai", "openrouter")

    def __init__(
        self,
        model: str,
        base_url: str = ACCOUNTS["openai"].url,
        *,
        name: str | None = None,
        dimensions: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        instruction: str | None = None,
        tokenizer: str | PathLike[str] | None = None,
        send_dimensions: bool = False,
        **requests: Unpack[RequestOptions],
    ) -> None:
        if instruction is not None and query_prompt is not None:
            raise ConfigurationError("instruction and query_prompt contradict each other; give one of them")
        if instruction is None and query_prompt is None and PROMPTED_MODELS in model.lower():
            instruction = DEFAULT_INSTRUCTION
        if send_dimensions and dimensions is None:
            raise ConfigurationError(
                "send_dimensions=True needs dimensions=: give the length, or leave send_dimensions out"
            )
        super().__init__(
            model,
            base_url,
            name=name,
            dimensions=dimensions,
            query_prompt=(query_prompt or "") if instruction is None else f"Instruct: {instruction}\nQuery:",
            document_prompt=document_prompt or "",
            task=query_prompt or None if instruction is None else instruction,
            tokenizer=tokenizer,
            **requests,
        )
        if any(known in model.lower() for known in MULTILINGUAL_MODELS):
            self.fusion_weight = FITTED_FUSION_WEIGHT
        self._sent_dimensions = {"dimensions": dimensions} if send_dimensions else {}
        self._encoding: str | None = None  # what the server is known to understand

    def _ask(self, texts: list[str], *, is_query: bool) -> list[NDArray[np.float32]]:  # noqa: ARG002 (in the prompt)
        try:
            answer = self._post(texts, self._encoding or "base64")
        except ModelServerError as error:
            if self._encoding is not None or error.status not in self.halved_statuses:
                raise
            answer = self._post(texts, "float")
            self._encoding = "float"
        return self._read(answer, len(texts))

    def _post(self, texts: list[str], encoding: str) -> Any:
        body = {"model": self._model, "input": texts, "encoding_format": encoding, **self._sent_dimensions}
        return self._server.post(PATH, body)

    def _read(self, answer: Any, rows: int) -> list[NDArray[np.float32]]:
        """Return the vectors of an answer in the order of the texts, even if the answer has another order."""
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._unusable("it has no list of embeddings; is it a server of OpenAI's format?")
        found: dict[Any, Any] = {}
        for entry in entries:
            index = entry.get("index")
            if not isinstance(index, int) or not 0 <= index < rows:
                raise self._unusable(f"it has a vector whose index is not a number from 0 to {rows - 1}")
            if index in found:
                raise self._unusable(f"it has two vectors with the index {index}")
            found[index] = entry.get("embedding")
        missing = sorted(set(range(rows)) - set(found))
        if missing:
            raise self._unusable(f"it has no vectors for {shown_rows(missing)} of the {rows} texts")
        self._encoding = self._encoding or ("base64" if isinstance(found[0], str) else "float")
        vectors = []
        for row in range(rows):
            vector = _decode(found[row]) if isinstance(found[row], str) else read_vector(found[row])
            if vector is None:
                raise self._unusable(f"its vector for row {row} of the request is not numbers or base64 of float32")
            vectors.append(vector)
        return vectors


def _decode(text: str) -> NDArray[np.float32] | None:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return None if len(content) % 4 else np.frombuffer(content, dtype="<f4").astype(np.float32)
