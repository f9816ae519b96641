"""What tests of folders that are kept in step share."""

from semlex.embedding import probe
from semlex.testing import HashEmbedder
from tests.support.retrievers import sync_opened


class CountingEmbedder(HashEmbedder):
    texts = 0

    def embed_documents(self, texts):
        type(self).texts += len(texts) if list(texts) != [probe.TEXT] else 0
        return super().embed_documents(texts)


def opened(url, collection="files"):
    return sync_opened(url, CountingEmbedder(8), collection=collection)


def contents(store):
    return {
        (chunk.source, chunk.source_document, chunk.content, chunk.line, chunk.heading_path)
        for chunk in store.list_chunks(limit=1_000)
    }


def counts(report):
    """What was done: added, changed, moved, deleted, unchanged."""
    assert not report.differs
    assert report.done == report.plan.counts()
    done = report.done
    return done.added, done.changed, done.moved, done.deleted, done.unchanged
