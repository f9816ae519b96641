"""A program for tests: changes the model of a collection, and stops itself at a moment of one of its transactions."""

from semlex.maintenance import version_fill
from semlex.proof.children import stop_at
from semlex.store import embedding_versions
from semlex.store.indexes import choice
from tests.support.retrievers import sync_opened
from tests.support.two_models import NAME, new_model
from tests.support.waiting import LIMIT


def main(url, moment):
    """Pages are small; the run is over when the tests say so."""
    embedding_versions.RUN_SECONDS = LIMIT
    version_fill.PAGE_ROWS, version_fill.LAST_ROWS = 10, 4
    choice.INDEX_FROM_ROWS = 50
    stop_at(*moment)
    with sync_opened(url, "none", collection=NAME) as retriever:
        retriever.embeddings.change(new_model())
