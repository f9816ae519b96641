"""Google's Gemini embedding models.

``POST {base_url}/v1beta/models/MODEL:batchEmbedContents`` with one request per text, as in the Gemini API reference
(Embeddings); the key travels in a header, never in the address. Of gemini-embedding-001 only vectors of the full 3,072
dimensions come normalised, so all are normalised here. Its task is ``taskType``; gemini-embedding-2 ignores
that and reads the task in front of the text (Gemini API guide, "Embeddings").
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from semlex.embedding.base import FITTED_FUSION_WEIGHT
from semlex.embedding.remote import RemoteEmbedder, read_vector
from semlex.models.model_names import ACCOUNTS

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

DEFAULT_MODEL = "gemini-embedding-001"
PREFIXED_MODELS = "gemini-embedding-2"
TASK_TYPES = {True: "RETRIEVAL_QUERY", False: "RETRIEVAL_DOCUMENT"}
QUERY_PREFIX = "task: search result | query: "
DOCUMENT_PREFIX = "title: none | text: "


class GeminiEmbedder(RemoteEmbedder):
    """Embeds with a Gemini model. Texts are sent to Google; nothing is sent before the first call.

    Args:
        model: Name of the model.
        dimensions: Length of the vectors, which the server cuts: 768, 1536 and 3072 are recommended. None for the
            model's own, 3072.
        api_key: Key of the account; None for ``GEMINI_API_KEY`` or ``GOOGLE_API_KEY`` of the environment.
        base_url: Address in front of ``/v1beta``.
        batch_size: Most texts in a request, 1 to 100.
        tokenizer: A ``tokenizer.json`` on this machine, or a folder that holds it; None to count two tokens a word.
        timeout: Most seconds of one attempt.
        concurrency: Most requests at the same time in one call, 1 to 64.

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
        api_key: str | None = None,
        base_url: str = ACCOUNTS["gemini"].url,
        batch_size: int = 32,
        tokenizer: str | PathLike[str] | None = None,
        timeout: float = 60.0,
        concurrency: int = 4,
    ) -> None:
        model = model.removeprefix("models/")
        takes_type = not model.startswith(PREFIXED_MODELS)
        super().__init__(
            model,
            base_url,
            api_key=api_key,
            account="gemini",
            key_header="x-goog-api-key",
            dimensions=dimensions,
            query_prompt="" if takes_type else QUERY_PREFIX,
            document_prompt="" if takes_type else DOCUMENT_PREFIX,
            task=TASK_TYPES[True] if takes_type else QUERY_PREFIX,
            tokenizer=tokenizer,
            batch_size=batch_size,
            timeout=timeout,
            concurrency=concurrency,
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
            raise self._unusable(f"it holds {len(vectors)} vectors for {len(texts)} texts")
        return vectors
