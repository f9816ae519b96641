"""A program for tests: changes a collection with a keyword index until it is killed.

Arguments: connection string, what to do (write, merge or rebuild), seed. It says ``ready`` when it has begun.
"""

from __future__ import annotations

import random
import sys

from semlex.retriever.synchronous import SyncRetriever
from semlex.types.documents import Document

WORDS = ["cat", "dog", "ship", "running", "the", "key", "rotation", "vault", "banana", "yellow", "fruit"]
IDS = 300


def some_documents(numbers: random.Random, count: int) -> list[Document]:
    """Documents with ids of a small range, so that many of them are there already."""
    return [
        Document(" ".join(numbers.choices(WORDS, k=numbers.randint(1, 12))), id=f"d{number}")
        for number in numbers.sample(range(IDS), count)
    ]


def main() -> None:
    address, what, seed = sys.argv[1:]
    numbers = random.Random(int(seed))
    with SyncRetriever(address, "none", use_reranking=False, keyword="bm25", collection="words") as retriever:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            if what == "merge":
                retriever.add_documents(some_documents(numbers, 3))
                retriever.optimize()
            elif what == "rebuild":
                retriever.reindex_keyword()
            elif numbers.random() < 0.2:
                retriever.delete([f"d{number}" for number in numbers.sample(range(IDS), 5)])
            else:
                retriever.add_documents(some_documents(numbers, numbers.choice([1, 10, 100])))


if __name__ == "__main__":
    main()
