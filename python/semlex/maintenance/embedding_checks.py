"""What is looked at before a set of vectors serves: does its model still make them, and does its index find them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ModelError, StoreError
from semlex.ingest.chunk_rows import embedded_text
from semlex.search.query_vector import usable_query_vector
from semlex.store.indexes.catalog import read_vector_indexes
from semlex.store.query.filters import Filter
from semlex.store.query.run import run_legs
from semlex.store.query.score_calibration import sample_chunks
from semlex.store.query.vector import register_vector_parameter, vector_leg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.embedding.base import Embedder
    from semlex.ingest.embed import DocumentVectors
    from semlex.models.executor import ModelExecutor
    from semlex.store.postgres.database import Database
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import LegResult
    from semlex.store.schema.collection import CollectionInfo

SAMPLE_CHUNKS = 20
# Length of the difference of two vectors of one text, as a share of theirs. Other batches, float16 and servers with
# many machines stay far below; another text, or another model, is at 0.5 and more.
TOLERATED_DIFFERENCE = 0.1
NEIGHBORS = 10
MIN_RECALL = 0.8
QUERY_WORDS = 8
# Similarities that differ by less are equal: which of them an index finds says nothing.
EQUAL = 1e-6


class EmbeddingChecks:
    """Looks at a set of vectors."""

    def __init__(
        self,
        database: Database,
        collection: CollectionInfo,
        embedder: Embedder,
        vectors: DocumentVectors,
        executor: ModelExecutor,
    ) -> None:
        self._database = database
        self._collection = collection
        self._embedder = embedder
        self._vectors = vectors
        self._executor = executor

    async def run(self) -> tuple[int, float | None]:
        """Both checks."""
        sample, stored = await self._database.read(
            "read a sample of vectors", lambda c: sample_chunks(c, self._collection, SAMPLE_CHUNKS)
        )
        if not sample:
            return 0, None
        made = await self._vectors.of([embedded_text(*one) for one in sample], self._collection.embedding)
        self._compare(stored, made)
        return len(sample), await self._recall([text for _, text in sample])

    def _compare(self, stored: NDArray[np.float32], made: NDArray[np.float32]) -> None:
        lengths = np.maximum(np.linalg.norm(made, axis=1), np.finfo(np.float32).tiny)
        differences = np.linalg.norm(stored - made, axis=1) / lengths
        if (wrong := int((differences > TOLERATED_DIFFERENCE).sum())) > 0:
            name = self._collection.names.collection
            raise ModelError(
                f"{wrong} of {len(made)} texts of collection {name!r} have another vector than before when "
                f"{self._embedder.identity.model} embeds them once more (differences up to {differences.max():.2f}, "
                f"{TOLERATED_DIFFERENCE} are tolerated), so nothing was switched: the model, or what stands behind its "
                f"name, has changed; make all of them anew with: semlex reembed --collection {name} --restart"
            )

    async def _recall(self, texts: list[str]) -> float | None:
        """How much of the exact answers the vector index finds, for the first words of the sampled texts."""
        queries = [await self._query(" ".join(text.split()[:QUERY_WORDS])) for text in texts if text.strip()]

        async def ask(snapshot: Snapshot) -> float | None:
            indexes = await read_vector_indexes(snapshot.connection, self._collection)
            if indexes.used is None:
                return None
            register_vector_parameter(snapshot.connection)
            found = wanted = 0
            for query in queries:
                exact = vector_leg(self._collection, query, NEIGHBORS, Filter(), plan="scan")
                quick = vector_leg(self._collection, query, NEIGHBORS, Filter(), indexes=indexes)
                nearest = _answer((await run_legs(snapshot, [exact])).results["vector"])
                least = nearest.min(initial=np.inf)
                least -= EQUAL * max(1.0, abs(least))
                wanted += len(nearest)
                found += int((_answer((await run_legs(snapshot, [quick])).results["vector"]) >= least).sum())
            return found / wanted if wanted else 1.0

        recall = await self._database.read_snapshot("measure the vector index", ask)
        if recall is not None and recall < MIN_RECALL:
            name = self._collection.names.collection
            raise StoreError(
                f"the vector index of the new vectors of collection {name!r} finds {recall:.0%} of the {NEIGHBORS} "
                f"nearest, and {MIN_RECALL:.0%} are asked for, so nothing was switched: choose another index for the "
                f"collection (semlex create-index --collection {name} --kind hnsw --m 32, for example), and run the "
                "same command again, which builds that one"
            )
        return recall

    async def _query(self, text: str) -> NDArray[np.float32]:
        made = await self._executor.query(self._embedder.embed_query, text, model=self._embedder)
        return usable_query_vector(made)


def _answer(result: LegResult) -> NDArray[np.float64]:
    """The similarities that a leg found."""
    if result.error is not None:
        raise result.error
    return result.scores
