"""Run by the interpreter of the baseline's environment: loads rows with LlamaIndex's PGVectorStore, prints rows/s.

python llama_index_load.py ADDRESS ROWS DIMENSIONS
"""

from __future__ import annotations

import sys
import time

import numpy as np
from llama_index.core.schema import TextNode
from llama_index.vector_stores.postgres import PGVectorStore


def main() -> None:
    """Loads and prints."""
    address, rows, dimensions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    store = PGVectorStore(
        connection_string=f"postgresql+psycopg2://{address}",
        async_connection_string=f"postgresql+asyncpg://{address}",
        table_name=f"baseline_{time.time_ns()}",
        embed_dim=dimensions,
    )
    vectors = np.random.default_rng(1).normal(size=(rows, dimensions)).astype(np.float32).tolist()
    nodes = [
        TextNode(
            id_=f"document-{number}",
            text=f"row {number}: a text of about the length of a short sentence",
            metadata={"number": number},
            embedding=vectors[number],
        )
        for number in range(rows)
    ]
    store.add(nodes[:1])  # makes the table
    started = time.perf_counter()
    store.add(nodes[1:])
    print((rows - 1) / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
