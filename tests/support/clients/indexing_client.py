"""A program for tests: indexes a folder again and again until it is ended, one line after every run.

Arguments: connection string, folder, number of runs (0: without end).
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder


def main() -> None:
    address, folder, runs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with SyncRetriever(address, HashEmbedder(8), use_reranking=False) as retriever:
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for number in range(runs) if runs else itertools.count():
            retriever.index(folder)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
