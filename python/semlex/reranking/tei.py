"""A reranker behind Text Embeddings Inference (TEI).

Wire format: ``/rerank`` in the server's own OpenAPI description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.reranking.remote import RemoteReranker, read_scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PATH = "/rerank"


class TEIReranker(RemoteReranker):
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
        # A server serves one model, and its answers do not name it.
        super().__init__(
            "tei",
            base_url,
            api_key=api_key,
            batch_size=batch_size,
            timeout=timeout,
            attempts=attempts,
            concurrency=concurrency,
        )

    def _ask(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        body = {"query": query, "texts": texts, "raw_scores": False, "truncate": True}
        return read_scores(
            self._server.post(PATH, body),
            count=len(texts),
            position="index",
            score="score",
            source=f"{self.host}{PATH}",
            most=1.0,
            remedy="is it a server of another kind?",
        )
