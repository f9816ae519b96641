"""The models of a collection for direct use: vectors of texts and scores of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.embedding.base import Embedder, normalise
from semlex.errors import CollectionNotFoundError
from semlex.models.model_names import short_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.models.executor import ModelExecutor
    from semlex.reranking.base import Reranker
    from semlex.retriever.collection import Collection


class TextTooLongError(Exception):
    """A text has more tokens than the model reads.

    Args:
        tokens: Number of tokens of the text.
    """

    def __init__(self, row: int, tokens: int, most: int) -> None:
        super().__init__(
            f"text {row} of the request (counted from 0) has {tokens:,} tokens, but the model reads at most {most:,}; "
            "send it in parts"
        )


class DimensionsError(Exception):
    """The model cannot make vectors of the requested length."""


@dataclass(frozen=True, slots=True)
class ServedEmbedder:
    """An embedding model under the name that callers use.

    Attributes:
        name: Name of the model, without its folder or address.
        embedder: The model.
        executor: Runs its calls.
    """

    name: str
    embedder: Embedder
    executor: ModelExecutor

    async def embed(
        self, texts: list[str], *, is_query: bool, dimensions: int | None = None
    ) -> tuple[NDArray[np.float32], int]:
        """Embed texts in one call; if the caller is cancelled, the call is, too.

        Args:
            dimensions: Length to which vectors are shortened and normalised; None: the model's own length.

        Returns:
            The vectors, shape (texts, dimensions), and the number of tokens read.
        """
        if is_query:
            return await self.executor.query(self._embed, texts, is_query, dimensions, model=self.embedder)
        return await self.executor.documents(self._embed, texts, is_query, dimensions)

    def _embed(self, texts: list[str], is_query: bool, dimensions: int | None) -> tuple[NDArray[np.float32], int]:
        embedder = self.embedder
        whole = embedder.dimensions
        least = getattr(embedder, "least_dimensions", whole)
        if dimensions is not None and not (dimensions == whole or least <= dimensions < whole):
            known = f"{whole}" if least >= whole else f"{least} to {whole}"
            raise DimensionsError(f"{self.name} makes vectors of {known} dimensions, not of {dimensions}")
        counts = embedder.count_tokens(texts)
        most = getattr(embedder, "max_tokens", None)
        if most is not None and counts.size and counts.max() > most:
            row = int((counts > most).argmax())
            raise TextTooLongError(row, int(counts[row]), most)
        vectors = _queries(embedder, texts) if is_query else embedder.embed_documents(texts)
        return vectors if dimensions in (None, whole) else normalise(vectors, dimensions), int(counts.sum())


@dataclass(frozen=True, slots=True)
class ServedReranker:
    """A reranker under the name that callers use.

    Attributes:
        name: Name of the model, without its revision and its folder or server.
        reranker: The model.
        executor: Runs its calls.
    """

    name: str
    reranker: Reranker
    executor: ModelExecutor

    async def score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """Return the score of every text, 0 to 1; if the caller is cancelled, the call is, too."""
        return await self.executor.query(self.reranker.score, query, texts, model=self.reranker)


async def open_with_models(collection: Collection) -> None:
    """Open a collection and load all models before the first request; load them even if the collection is missing."""
    resources = await collection._handle.resources.ready()  # noqa: SLF001 - of this package
    await resources.chat_model()
    await resources.reranker()
    try:
        await collection._handle.readable()  # noqa: SLF001 - of this package
    except CollectionNotFoundError:
        await resources.models_of(None)
        raise


async def served_embedder(collection: Collection) -> ServedEmbedder | None:
    """Return the embedding model of an existing collection, else that of a new one; None: keyword search only."""
    resources = collection._handle.resources  # noqa: SLF001 - of this package
    try:
        models = (await collection._handle.readable()).models  # noqa: SLF001 - of this package
    except CollectionNotFoundError:
        models = await resources.models_of(None)
    models.refuse_without_model()
    if models.embedder is None or models.version is None:
        return None
    return ServedEmbedder(short_name(models.version.model), models.embedder, resources.executor)


async def served_reranker(collection: Collection) -> ServedReranker | None:
    """Return the reranker of a collection, if it has one."""
    resources = collection._handle.resources  # noqa: SLF001 - of this package
    reranker = (await resources.reranker()).reranker
    if reranker is None:
        return None
    return ServedReranker(short_name(reranker.identity.partition("@")[0]), reranker, resources.executor)


def _queries(embedder: Embedder, texts: list[str]) -> NDArray[np.float32]:
    if hasattr(embedder, "embed_queries"):
        made: NDArray[np.float32] = embedder.embed_queries(texts)
        return made
    return np.stack([embedder.embed_query(text) for text in texts])
