"""Run by the interpreter of the baseline's environment: loads rows with langchain-postgres and prints rows/s.

python langchain_postgres_load.py ADDRESS ROWS DIMENSIONS [hnsw VECTORS.npy]

With `hnsw` the vectors of a file, and until an HNSW index at its defaults is built as well.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_postgres import PGEngine, PGVectorStore
from langchain_postgres.v2.indexes import HNSWIndex


def main() -> None:
    """Loads and prints."""
    address, rows, dimensions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    engine = PGEngine.from_connection_string(f"postgresql+psycopg://{address}")
    engine.init_vectorstore_table("baseline", dimensions, overwrite_existing=True)
    embedder = DeterministicFakeEmbedding(size=dimensions)
    store = PGVectorStore.create_sync(engine, table_name="baseline", embedding_service=embedder)
    indexed = "hnsw" in sys.argv
    random = np.random.default_rng(1)
    vectors = (np.load(sys.argv[-1]) if indexed else random.normal(size=(rows, dimensions)).astype(np.float32)).tolist()
    texts = [f"row {number}: a text of about the length of a short sentence" for number in range(rows)]
    metadata = [{"number": number} for number in range(rows)]
    started = time.perf_counter()
    store.add_embeddings(texts, vectors, metadata, ids=None)
    if indexed:
        store.apply_vector_index(HNSWIndex())
    print(rows / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
