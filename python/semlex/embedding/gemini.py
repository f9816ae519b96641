"""Google's Gemini embedding models.

``POST {base_url}/v1beta/models/MODEL:batchEmbedContents`` with one request per text, as in the Gemini API reference
(Embeddings); the key travels in a header, never in the address. Of gemini-embedding-001 only vectors of the full 3,072
dimensions come normalised, so all are normalised here. It is told the task by ``taskType``; gemini-embedding-2 ignores
that and reads the task in front of the text (Gemini API guide, "Embeddings").
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from semlex.embedding.base import FITTED_FUSION_WEIGHT
from semlex.embedding.remote import ServerEmbedder, find_key, read_vector
from semlex.errors import ConfigurationError, ModelServerError
from semlex.models.http_client import ModelServer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BASE_URL = "https://generativelanguage.googleapis.com"
DEFAULT_MODEL = "gemini-embedding-001"
KEY_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
MOST_TEXTS = 100  # that one request may hold
PREFIXED_MODELS = "gemini-embedding-2"
TASK_TYPES = {True: "RETRIEVAL_QUERY", False: "RETRIEVAL_DOCUMENT"}
QUERY_PREFIX = "task: search result | query: "
DOCUMENT_PREFIX = "title: none | text: "


class GeminiEmbedder(ServerEmbedder):
    """Embeds with a Gemini model. Texts are sent to Google; nothing is sent before the first call.

    Args:
        model: Name of the model.
        dimensions: Length of the vectors, which the server cuts: 768, 1536 and 3072 are recommended. None for the
            model's own, 3072.
        api_key: Key of the account; None for ``GEMINI_API_KEY`` or ``GOOGLE_API_KEY`` of the environment.
        base_url: Address in front of ``/v1beta``.
        batch_size: Most texts in a request, 1 to 100.
        tokenizer: Folder of a tokenizer on this machine; None to count Unicode words.
        timeout: Most seconds of one attempt.
        concurrency: Most requests at the same time in one call, 1 to 64.

    Raises:
        ConfigurationError: A parameter cannot be used, or the key is missing.
    """

    fusion_weight = FITTED_FUSION_WEIGHT

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        dimensions: int | None = None,
        api_key: str | None = None,
        base_url: str = BASE_URL,
        batch_size: int = 32,
        tokenizer: str | None = None,
        timeout: float = 60.0,
        concurrency: int = 4,
    ) -> None:
        if not 1 <= batch_size <= MOST_TEXTS:
            raise ConfigurationError(f"batch_size must be from 1 to {MOST_TEXTS} for Gemini; found {batch_size}")
        model = model.removeprefix("models/")
        name = f"gemini:{model}"
        server = ModelServer(
            base_url,
            api_key=find_key(api_key, *KEY_VARIABLES, needed_by=name),
            key_header="x-goog-api-key",
            key_variable=" or ".join(KEY_VARIABLES),
            timeout=timeout,
            concurrency=concurrency,
        )
        takes_type = not model.startswith(PREFIXED_MODELS)
        super().__init__(
            server,
            model,
            name,
            dimensions=dimensions,
            query_prompt="" if takes_type else QUERY_PREFIX,
            document_prompt="" if takes_type else DOCUMENT_PREFIX,
            task=TASK_TYPES[True] if takes_type else QUERY_PREFIX,
            batch_size=batch_size,
            tokenizer=tokenizer,
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
            raise ModelServerError(
                f"the answer of {self.host} for {self._model} cannot be used: it holds {len(vectors)} vectors for "
                f"{len(texts)} texts",
                status=200,
            )
        return vectors
