"""A program for tests: loads documents with given ids in batches, and says which batches are acknowledged.

Arguments: connection string, number of batches, rows of a batch. One line per batch that the server has confirmed.
"""

from __future__ import annotations

import sys

from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder
from semlex.types.documents import Document


def documents_of(batch: int, rows: int) -> list[Document]:
    """The documents of one batch: the same in every run."""
    numbers = range(batch * rows, (batch + 1) * rows)
    return [Document(f"text number {number}", {"number": number}, id=f"d{number}") for number in numbers]


def main() -> None:
    address, batches, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with SyncRetriever(address, HashEmbedder(8), use_reranking=False) as retriever:
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for batch in range(batches):
            retriever.add_documents(documents_of(batch, rows))
            sys.stdout.write(f"{batch}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
