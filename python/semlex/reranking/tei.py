"""A reranker behind Text Embeddings Inference (TEI).

Wire format: ``/rerank`` in the server's own OpenAPI description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.models.tokenizing import check_texts
from semlex.models.transformer import check_range
from semlex.reranking.server import open_server, read_scores, score_in_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

PATH = "/rerank"


class TEIReranker:
    """Scores candidates with the model that a TEI server was started with.

    The query and the texts are sent to that server, which cuts texts that are too long for its model. Nothing is sent
    before the first call of `score`. Blocking, and safe for several threads.

    Args:
        base_url: Address in front of ``/rerank``.
        api_key: What the server was started with as ``--api-key``; None for ``SEMLEX_RERANKER_API_KEY``, if set.
        batch_size: Most texts of a request, 1 to 1000. The default is that of the server's ``--max-client-batch-size``;
            a batch that the server refuses as too large is halved.
        timeout: Most seconds of one attempt.
        attempts: Most attempts of one request.
        concurrency: Most requests at the same time in one call.

    Raises:
        ConfigurationError: A parameter cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        batch_size: int = 32,
        timeout: float = 60.0,
        attempts: int = 5,
        concurrency: int = 4,
    ) -> None:
        check_range("batch_size", batch_size, 1, 1000)
        self._server = open_server(base_url, api_key, timeout=timeout, attempts=attempts, concurrency=concurrency)
        self._batch_size = batch_size

    @property
    def identity(self) -> str:
        """The server, in one line: it serves one model, and its answers do not name it."""
        return f"tei@{self.host}"

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
            ModelServerError: The server cannot be reached, refuses, or answers with something else than one probability
                per text.
            ModelError: The reranker was closed.
        """
        (checked,) = check_texts([query])

        def body(batch: Sequence[str]) -> dict[str, object]:
            return {"query": checked, "texts": list(batch), "raw_scores": False, "truncate": True}

        return score_in_batches(
            self._server, PATH, check_texts(texts), batch_size=self._batch_size, body=body, read=self._read
        )

    def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        self._server.close()

    def _read(self, answer: Any, count: int) -> NDArray[np.float32]:
        return read_scores(
            answer,
            count=count,
            position="index",
            score="score",
            source=f"{self.host}{PATH}",
            most=1.0,
            remedy="is it a server of another kind?",
        )
