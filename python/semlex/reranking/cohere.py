"""Rerankers behind a server of Cohere's form: Cohere itself, Jina, vLLM, Infinity, LiteLLM, OpenVINO Model Server.

Wire format: "Rerank API (v2)" in Cohere's API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.models.model_names import ACCOUNTS
from semlex.reranking.remote import RemoteReranker, read_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_MODEL = "rerank-v3.5"
PATH = "/rerank"


class CohereReranker(RemoteReranker):
    """Scores candidates with ``POST {base_url}/rerank``.

    The query and the texts are sent to that server; texts that are too long for its model are cut there. Nothing is
    sent before the first call of `score`. Blocking, and safe for several threads.

    Args:
        model: Name by which the server knows the model.
        base_url: Address in front of ``/rerank``.
        api_key: Key of the account. None for the environment: ``COHERE_API_KEY`` or ``CO_API_KEY`` at Cohere,
            ``JINA_API_KEY`` at Jina, ``SEMLEX_RERANKER_API_KEY``, if set, anywhere else.
        raw_scores: Whether the server answers with the model's raw scores (logits); the logistic function then makes
            probabilities of them. Said here and not guessed, because a call whose raw scores happen to lie between 0
            and 1 could not be told from probabilities.
        batch_size: Most texts of a request, 1 to 1000 (Cohere's bound); more texts are several requests.
        timeout: Most seconds of one attempt.
        attempts: Most attempts of one request.
        concurrency: Most requests at the same time in one call.

    Raises:
        ConfigurationError: A parameter cannot be used, or a key is missing.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        base_url: str = ACCOUNTS["cohere"].url,
        *,
        api_key: str | None = None,
        raw_scores: bool = False,
        batch_size: int = 1000,
        timeout: float = 60.0,
        attempts: int = 5,
        concurrency: int = 4,
    ) -> None:
        super().__init__(
            model,
            base_url,
            api_key=api_key,
            batch_size=batch_size,
            timeout=timeout,
            attempts=attempts,
            concurrency=concurrency,
        )
        self._raw_scores = raw_scores

    def _ask(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        body = {"model": self._model, "query": query, "documents": texts, "top_n": len(texts)}
        return self._read(self._server.post(PATH, body), len(texts))

    def _read(self, answer: Any, count: int) -> NDArray[np.float32]:
        scores = read_scores(
            answer.get("results") if isinstance(answer, dict) else None,
            count=count,
            position="index",
            score="relevance_score",
            source=f"{self.host}{PATH}",
            most=None if self._raw_scores else 1.0,
            remedy="if the server answers with raw scores, set raw_scores=True",
        )
        if not self._raw_scores:
            return scores
        # exp never sees a large number.
        probabilities: NDArray[np.float32] = 1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0, dtype=np.float64)))
        return probabilities.astype(np.float32)
