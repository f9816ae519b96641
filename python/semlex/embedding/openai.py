"""Models behind OpenAI's wire format: OpenAI, OpenRouter, vLLM, Infinity, Ollama, TEI, LM Studio, and their like.

``POST {base_url}/embeddings`` with model, input and encoding_format, as in OpenAI's API reference (Embeddings, create).
Vectors are asked for as base64 of little-endian float32, which is a third of their decimal text; a server that refuses,
or ignores, that format is asked for numbers from then on.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.embedding.base import DEFAULT_INSTRUCTION, FITTED_FUSION_WEIGHT
from semlex.embedding.remote import RemoteEmbedder, read_vector
from semlex.errors import ConfigurationError, ModelServerError
from semlex.models.model_names import ACCOUNTS
from semlex.validation import shown_rows

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

PATH = "/embeddings"
# Servers add no prompt by themselves, and without it Qwen3-Embedding loses 1 to 5 % of retrieval quality.
PROMPTED_MODELS = "qwen3-embedding"
# Models of which is known that they were trained for retrieval in many languages; names of others promise nothing.
MULTILINGUAL_MODELS = (PROMPTED_MODELS, "text-embedding-3")


class OpenAIEmbedder(RemoteEmbedder):
    """Embeds with a model behind a server that speaks OpenAI's format.

    Texts are sent to that server. Nothing is sent before the first call.

    Args:
        model: The server's name for the model.
        base_url: Address in front of ``/embeddings``.
        api_key: Key of the account. None for the environment: ``OPENAI_API_KEY`` at OpenAI, ``OPENROUTER_API_KEY`` at
            OpenRouter, ``SEMLEX_EMBEDDING_API_KEY`` anywhere else, unless ``SEMLEX_EMBEDDING_MODEL`` names an address
            of another host: the key is that one's then. Blank for none.
        name: Name in the identity; None for one that `choose_embedder` turns into this embedder again.
        dimensions: Length of the vectors: the leading part of the server's, for models that were trained for it
            (Matryoshka), normalised after the cut. None for the model's own.
        query_prompt: Put in front of every query.
        document_prompt: Put in front of every document.
        instruction: Task of a model of the form ``Instruct: …``, in place of ``query_prompt``. Models whose name holds
            ``qwen3-embedding`` get the model card's when nothing is said.
        batch_size: Most texts in a request, 1 to 2048.
        tokenizer: The model's ``tokenizer.json`` on this machine, a folder that holds it, or a hub id in the local
            cache. None for that of the model in the local cache, or else two tokens a word.
        timeout: Most seconds of one attempt.
        concurrency: Most requests at the same time in one call, 1 to 64.
        send_dimensions: Whether the server is asked to cut (``dimensions``), which saves traffic; not all can.

    Raises:
        ConfigurationError: A parameter cannot be used, or a key is missing.
    """

    accounts = ("openai", "openrouter")

    def __init__(
        self,
        model: str,
        base_url: str = ACCOUNTS["openai"].url,
        *,
        api_key: str | None = None,
        name: str | None = None,
        dimensions: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        instruction: str | None = None,
        batch_size: int = 32,
        tokenizer: str | PathLike[str] | None = None,
        timeout: float = 60.0,
        concurrency: int = 4,
        send_dimensions: bool = False,
    ) -> None:
        if instruction is not None and query_prompt is not None:
            raise ConfigurationError("instruction and query_prompt contradict each other; give one of them")
        if instruction is None and query_prompt is None and PROMPTED_MODELS in model.lower():
            instruction = DEFAULT_INSTRUCTION
        if send_dimensions and dimensions is None:
            raise ConfigurationError("send_dimensions needs dimensions")
        super().__init__(
            model,
            base_url,
            api_key=api_key,
            name=name,
            dimensions=dimensions,
            query_prompt=(query_prompt or "") if instruction is None else f"Instruct: {instruction}\nQuery:",
            document_prompt=document_prompt or "",
            task=query_prompt or None if instruction is None else instruction,
            tokenizer=tokenizer,
            batch_size=batch_size,
            timeout=timeout,
            concurrency=concurrency,
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
        """Vectors of an answer in the order of the texts, whatever the order of the answer."""
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._unusable("it holds no list of embeddings; is it a server of OpenAI's format?")
        found: dict[Any, Any] = {}
        for entry in entries:
            index = entry.get("index")
            if not isinstance(index, int) or not 0 <= index < rows or index in found:
                fault = "twice" if isinstance(index, int) and index in found else "though it was not asked for"
                raise self._unusable(f"for {rows} texts it holds a row {fault}")
            found[index] = entry.get("embedding")
        missing = sorted(set(range(rows)) - set(found))
        if missing:
            raise self._unusable(f"for {rows} texts it lacks {shown_rows(missing)} of the request")
        self._encoding = self._encoding or ("base64" if isinstance(found[0], str) else "float")
        vectors = []
        for row in range(rows):
            vector = _decode(found[row]) if isinstance(found[row], str) else read_vector(found[row])
            if vector is None:
                raise self._unusable(f"row {row} of the request is neither numbers nor base64 of float32")
            vectors.append(vector)
        return vectors


def _decode(text: str) -> NDArray[np.float32] | None:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return None if len(content) % 4 else np.frombuffer(content, dtype="<f4").astype(np.float32)
