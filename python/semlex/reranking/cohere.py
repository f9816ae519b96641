"""Rerankers behind a server of Cohere's form: Cohere itself, Jina, vLLM, Infinity, LiteLLM, OpenVINO Model Server.

Wire format: "Rerank API (v2)" in Cohere's API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.models.tokenizing import check_texts
from semlex.models.transformer import check_range
from semlex.reranking.server import COHERE_URL, check_model_name, open_server, read_scores, score_in_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DEFAULT_MODEL = "rerank-v3.5"
PATH = "/rerank"


class CohereReranker:
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
        base_url: str = COHERE_URL,
        *,
        api_key: str | None = None,
        raw_scores: bool = False,
        batch_size: int = 1000,
        timeout: float = 60.0,
        attempts: int = 5,
        concurrency: int = 4,
    ) -> None:
        check_range("batch_size", batch_size, 1, 1000)
        self._model = check_model_name(model)
        self._server = open_server(base_url, api_key, timeout=timeout, attempts=attempts, concurrency=concurrency)
        self._raw_scores = raw_scores
        self._batch_size = batch_size

    @property
    def identity(self) -> str:
        """Model and server, in one line."""
        return f"{self._model}@{self.host}"

    @property
    def host(self) -> str:
        """Where texts are sent."""
        return self._server.host

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Judges texts.

        Args:
            query: The query.
            texts: n candidates.

        Returns:
            (n,) probabilities of relevance, 0 to 1, in the order of the texts.

        Raises:
            ValidationError: The query or a text is not a str or holds a lone surrogate.
            ModelServerError: The server cannot be reached, refuses, or answers with something else than one score per
                text, or with scores outside of 0 to 1 where ``raw_scores`` is not set.
            ModelError: The reranker was closed.
        """
        (checked,) = check_texts([query])

        def body(batch: Sequence[str]) -> dict[str, object]:
            return {"model": self._model, "query": checked, "documents": list(batch), "top_n": len(batch)}

        return score_in_batches(
            self._server, PATH, check_texts(texts), batch_size=self._batch_size, body=body, read=self._read
        )

    def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        self._server.close()

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
