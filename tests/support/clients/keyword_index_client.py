"""A program for tests: changes a keyword index (writes, merges or rebuilds) until it stops itself."""

import random

from semlex.proof.children import stop_at
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened

WORDS = ["cat", "dog", "ship", "running", "the", "key", "rotation", "vault", "banana", "yellow", "fruit"]
IDS = 300


def some_documents(numbers, count):
    """Documents with ids of a small range, so that many of them are there already."""
    return [
        Document(" ".join(numbers.choices(WORDS, k=numbers.randint(1, 12))), id=f"d{number}")
        for number in numbers.sample(range(IDS), count)
    ]


def main(url, what, seed, moment):
    numbers = random.Random(seed)
    stop_at(*moment)
    with sync_opened(url, "none", keyword="bm25", collection="words") as retriever:
        while True:
            if what == "merge":
                retriever.add_documents(some_documents(numbers, 3))
                retriever.indexes.optimize()
            elif what == "rebuild":
                retriever.indexes.rebuild_keyword()
            elif numbers.random() < 0.2:
                retriever.delete([f"d{number}" for number in numbers.sample(range(IDS), 5)])
            else:
                retriever.add_documents(some_documents(numbers, numbers.choice([1, 10, 100])))
