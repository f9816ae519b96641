"""An open collection: what both journeys, in and out, work on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from semlex.errors import ModelMismatchError
from semlex.models.token_counters import counter_of_words
from semlex.models.tokenizer import FILE_COUNTER
from semlex.store.indexes.catalog import RememberedIndexes
from semlex.store.query.score_calibration import VectorSample
from semlex.store.query.selection import RememberedShares
from semlex.store.schema.registry import ensure_embedding_version, find_collection, open_collection

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.embedding.query_cache import QueryEmbeddingCache
    from semlex.errors import ModelError
    from semlex.models.executor import ModelExecutor
    from semlex.models.token_counters import TokenCounter
    from semlex.reranking.base import Reranker
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion


@dataclass(frozen=True, slots=True)
class OpenModels:
    """The models of a collection.

    Attributes:
        embedder: The model that embeds, or None.
        embedding_choice: One line: which and why.
        counter_name: Its way of counting tokens, or None.
        names_tokenizer: Whether the user has named its tokenizer, which then must be the collection's.
        version: What its vectors are, or None.
        missing: Why the collection's own model cannot be used here, or None. Words can be searched then; vectors
            cannot be made.
        owned: The embedder, if it was made here.
    """

    embedder: Embedder | None = None
    embedding_choice: str = ""
    counter_name: str | None = None
    names_tokenizer: bool = False
    version: EmbeddingVersion | None = None
    missing: ModelError | None = None
    owned: tuple[Embedder, ...] = ()

    def refuse_without_model(self) -> None:
        """Raises what stands in the way of the collection's own model, if anything does."""
        if self.missing is not None:
            raise self.missing.with_traceback(None)

    def token_counter(self, collection: str, stored: str) -> TokenCounter:
        """What counts the tokens of a collection's chunks.

        Args:
            collection: Its name.
            stored: Name of the way in which they are counted.

        Raises:
            ModelMismatchError: Another model or tokenizer than the open one counts so.
        """
        words = counter_of_words(stored)
        if words is not None and not self.names_tokenizer:
            return words
        if self.embedder is not None and self.counter_name == stored:
            return self.embedder
        remedy = "choose the model that brings it" if words is None else "leave the tokenizer out"
        if stored.startswith(FILE_COUNTER):
            remedy += (
                ", or behind a server name the tokenizer.json whose SHA-256 begins with "
                f"{stored.removeprefix(FILE_COUNTER)} (--tokenizer PATH, tokenizer= in Python)"
            )
        here = "no model is open" if self.counter_name is None else f"the open model counts with {self.counter_name}"
        raise ModelMismatchError(
            f"the tokens of collection {collection!r} are counted with {stored}, and {here}: {remedy}; or index into "
            "another collection"
        )

    def close(self) -> None:
        """Closes the model, if it was made here."""
        for model in self.owned:
            model.close()


@dataclass(frozen=True, slots=True)
class OpenReranker:
    """The reranker of a client.

    Attributes:
        reranker: The model that reranks, or None.
        choice: One line: which and why.
        owned: Whether it was made here.
    """

    reranker: Reranker | None
    choice: str
    owned: bool

    def close(self) -> None:
        """Closes the model, if it was made here."""
        if self.owned and self.reranker is not None:
            self.reranker.close()


@dataclass(slots=True)
class OpenCollection:
    """A collection as it was opened.

    Attributes:
        database: An open database.
        info: What is known of the collection; replaced when it has changed.
        models: What embeds. What it is is not asked again: an embedder may have to wait for its model.
        executor: Runs blocking calls of models.
        query_cache: Vectors of queries that were asked before.
        sample: Stored vectors, for completed fusion.
        filter_shares: Which shares of the chunks filters keep.
    """

    database: Database
    info: CollectionInfo
    models: OpenModels
    executor: ModelExecutor
    query_cache: QueryEmbeddingCache
    sample: VectorSample = field(default_factory=VectorSample)
    filter_shares: RememberedShares = field(default_factory=RememberedShares)
    indexes: RememberedIndexes = field(default_factory=RememberedIndexes)
    _may_be_undone: bool = False

    async def refresh(self) -> None:
        """Reads again what there is: another process may have changed it.

        Raises:
            CollectionNotFoundError: The collection is not there any more.
        """
        found = await open_collection(self.database, self.info.names, None, create=False)
        self.info = replace(found, keyword=self.info.keyword)

    async def renew(self) -> None:
        """Reads again what there is where the caller's rollback may have undone what his transaction made."""
        if self._may_be_undone and (found := await find_collection(self.database, self.info.names)):
            self.info = replace(found, keyword=self.info.keyword)

    async def ensure_version(self, wanted: EmbeddingVersion) -> None:
        """Makes sure that the collection can hold such vectors.

        Raises:
            ModelMismatchError: It has others.
        """
        # Whether the caller's transaction will be committed is not known yet.
        self._may_be_undone |= self.database.joins_transaction and self.info.embedding is None
        self.info = await ensure_embedding_version(self.database, self.info, wanted)
