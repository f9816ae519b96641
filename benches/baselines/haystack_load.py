"""Run by the interpreter of the baseline's environment: loads rows with Haystack, prints rows/s.

python haystack_load.py ADDRESS ROWS DIMENSIONS
"""

from __future__ import annotations

import sys
import time

import numpy as np
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore


def main() -> None:
    """Loads and prints."""
    address, rows, dimensions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    name = f"baseline_{time.time_ns()}"
    store = PgvectorDocumentStore(
        connection_string=Secret.from_token(f"postgresql://{address}"),
        table_name=name,
        keyword_index_name=f"{name}_words",
        embedding_dimension=dimensions,
    )
    vectors = np.random.default_rng(1).normal(size=(rows, dimensions)).astype(np.float32).tolist()
    documents = [
        Document(
            id=f"document-{number}",
            content=f"row {number}: a text of about the length of a short sentence",
            meta={"number": number},
            embedding=vectors[number],
        )
        for number in range(rows)
    ]
    store.write_documents(documents[:1])  # makes the table
    started = time.perf_counter()
    store.write_documents(documents[1:])
    print((rows - 1) / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
