"""What tests of jobs share: clients, and a model that stands still."""

import asyncio
import threading

from semlex import Client
from semlex.clock import SYSTEM
from semlex.embedding import probe
from semlex.testing import HashEmbedder
from tests.support.waiting import LIMIT


def client(url, embedder=None, clock=SYSTEM):
    made = Client(url, embedder or HashEmbedder(8), use_reranking=False)
    made._resources.clock = clock
    return made


class Blocking(HashEmbedder):
    """Waits in the model, with a text of the collection, until it may go on, and says when it does."""

    def __init__(self, dimensions=8):
        super().__init__(dimensions)
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def embed_documents(self, texts):
        if list(texts) != [probe.TEXT]:
            self.reached.set()
            assert self.may_go_on.wait(LIMIT)
        return super().embed_documents(texts)


async def reached(model):
    assert await asyncio.to_thread(model.reached.wait, LIMIT)
