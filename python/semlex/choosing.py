"""The models of an open collection: what was asked for, what the collection was made with, what is at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from semlex.embedding.selection import choose_embedder
from semlex.preparation import GIVEN, embedder_version
from semlex.reranking.selection import choose_reranker

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.models.calling import ModelCaller
    from semlex.reranking.base import Reranker
    from semlex.store.schema import EmbeddingVersion


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the user asked for.

    Attributes:
        embedding_model: As for `semlex.embedding.selection.choose_embedder`.
        reranker_model: As for `semlex.reranking.selection.choose_reranker`.
        use_reranking: As for `semlex.reranking.selection.choose_reranker`.
        device: Where local models run, or None.
        dimensions: Length of the vectors, or None.
    """

    embedding_model: str | Embedder | None = None
    reranker_model: str | Reranker | None = None
    use_reranking: bool | Literal["auto"] = "auto"
    device: str | None = None
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class OpenModels:
    """What was chosen.

    Attributes:
        embedder: The model that embeds, or None.
        embedding_choice: One line: which and why.
        counter_name: Its way of counting tokens, or None.
        version: What its vectors are, or None.
        reranker: The model that reranks, or None.
        reranking_choice: One line: which and why.
        owned: Those of the two that were made here.
    """

    embedder: Embedder | None = None
    embedding_choice: str = ""
    counter_name: str | None = None
    version: EmbeddingVersion | None = None
    reranker: Reranker | None = None
    reranking_choice: str = ""
    owned: list[Embedder | Reranker] = field(default_factory=list)

    def close(self) -> None:
        """Closes the models that were made here; those that the user passed stay open."""
        for model in self.owned:
            model.close()


async def choose_models(caller: ModelCaller, options: ModelOptions, stored: EmbeddingVersion | None) -> OpenModels:
    """Chooses the models; a collection's own model is never silently replaced by another one.

    Args:
        caller: Runs what opens files or asks servers.
        options: What the user asked for.
        stored: What the collection's vectors are, or None when there are none yet.

    Returns:
        The models.

    Raises:
        ConfigurationError: Names or options that contradict each other.
        ModelError: As the two functions that choose.
    """
    configured, dimensions = options.embedding_model, options.dimensions
    if configured is None and stored is not None:
        configured = "none" if stored.model == GIVEN else stored.model
    if dimensions is None and stored is not None and configured == stored.model:
        dimensions = stored.dimensions

    def choose() -> OpenModels:
        choice = choose_embedder(configured, device=options.device, dimensions=dimensions)
        embedder = choice.embedder
        owned: list[Embedder | Reranker] = []
        if embedder is not None and embedder is not configured:
            owned.append(embedder)
        models = OpenModels(owned=owned)
        try:
            # Both may open a file or ask a server.
            counter_name = None if embedder is None else embedder.counter_name
            version = None if embedder is None else embedder_version(embedder)
            reranking = choose_reranker(options.reranker_model, options.use_reranking, device=options.device)
        except BaseException:
            models.close()
            raise
        if reranking.reranker is not None and reranking.reranker is not options.reranker_model:
            owned.append(reranking.reranker)
        return OpenModels(embedder, choice.reason, counter_name, version, reranking.reranker, reranking.reason, owned)

    return await caller.query(choose)
