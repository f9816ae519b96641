"""A program for tests: indexes a folder again and again, and says ``indexed`` after every run."""

from semlex import BulkIngestConfig
from semlex.proof.children import say, stop_at
from tests.support.retrievers import sync_opened


def main(url, folder, moment=None):
    """Stops itself at the moment, if there is one."""
    if moment is not None:
        stop_at(*moment)
    # Everything goes through COPY, which has a moment in the middle.
    with sync_opened(url, bulk=BulkIngestConfig(small_batch_rows=0)) as retriever:
        while True:
            retriever.index(folder)
            say("indexed")
