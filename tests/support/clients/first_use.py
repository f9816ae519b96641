"""A program for tests: uses a fresh database for the first time, when it is told to.

Arguments: connection string, number of this process. It says "ready" and waits for a line; then it opens the
collection, adds its own row and leaves. The time between line and work is as short as it can be.
"""

import sys

from semlex.proof.children import say
from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder
from semlex.types.documents import Document

if __name__ == "__main__":
    say("ready")
    number = sys.argv[1]
    for address in sys.stdin:
        with SyncRetriever(address.strip(), HashEmbedder(8), use_reranking=False) as retriever:
            retriever.add_documents([Document(f"text of process {number}", id=number)])
        say("done")
