"""A program for tests: after a line on its input, opens a collection as a later semlex, which migrates it.

Argument: connection string. It says "ready" and waits for a line with the name of the collection; then it opens the
collection, searches and says "done".
"""

import sys

from semlex.proof.children import say
from tests.support import second_migration
from tests.support.retrievers import sync_opened

if __name__ == "__main__":
    second_migration.install()
    say("ready")
    name = sys.stdin.readline().strip()
    with sync_opened(sys.argv[1], collection=name, create=False) as retriever:
        retriever.search("dome")
    say("done")
