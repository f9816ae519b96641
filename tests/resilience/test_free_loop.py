"""The event loop stays free while models work, whatever else is asked of a retriever meanwhile."""

import asyncio
import threading
from contextlib import closing
from functools import partial

import numpy as np

from semlex import Document
from semlex.embedding.remote import OpenAIEmbedder
from semlex.models.executor import ModelExecutor
from semlex.testing import HashEmbedder
from tests.support.model_servers import ModelServerDouble
from tests.support.retrievers import ids_of, opened
from tests.support.waiting import LIMIT, eventually, turns

SEARCHES = 20


def guarded(name):
    """A property that waits for the model's lock."""

    def read(self):
        self.guard()
        return getattr(super(GuardedEmbedder, self), name)

    return property(read)


class GuardedEmbedder(HashEmbedder):
    """One lock for everything that it is asked, held while it computes; nobody may wait for it on the event loop."""

    identity, dimensions, counter_name = map(guarded, ("identity", "dimensions", "counter_name"))

    def __init__(self):
        super().__init__(16)
        self.lock = threading.Lock()
        self.loop_thread = None
        self.computing, self.free = threading.Event(), threading.Event()
        self.free.set()

    def guard(self):
        assert threading.get_ident() != self.loop_thread, "the event loop waits for the model"
        with self.lock:
            pass

    def embed_documents(self, texts):
        with self.lock:
            self.computing.set()
            assert self.free.wait(LIMIT)
            rows = [np.full(16, 1 + len(text), np.float32) for text in texts]
        return np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    def close(self):
        self.guard()


async def test_the_loop_never_waits_for_an_embedder_that_works(database_url, tmp_path):
    """Everything that a retriever is asked runs while the loop counts on; the lock is held in between."""
    model = GuardedEmbedder()
    model.loop_thread = threading.get_ident()
    (tmp_path / "file.txt").write_text("a plum is blue")
    async with opened(database_url, model) as retriever:
        await retriever.add_documents([Document("a banana is yellow", id="banana")])
        model.free.clear()
        model.computing.clear()
        load = asyncio.ensure_future(retriever.add_documents([Document("an apple is red")]))
        assert await asyncio.to_thread(model.computing.wait, LIMIT)
        # The model's lock is held from here on; the loop answers what needs no vector, and takes new questions.
        search = asyncio.ensure_future(retriever.search("yellow"))
        index = asyncio.ensure_future(retriever.index(tmp_path))
        with_vectors = retriever.add_documents([Document("given", id="given")], np.ones((1, 16), np.float32))
        given = asyncio.ensure_future(with_vectors)
        by_words = await asyncio.wait_for(retriever.search("yellow", mode="keyword"), LIMIT)
        assert ids_of(by_words) == ["banana"]
        assert (await retriever.health_check()).embedding_model == "semlex.testing/hash"
        assert await asyncio.wait_for(given, LIMIT) == ["given"]
        assert not load.done()
        assert not search.done()
        model.free.set()
        assert len(await load) == 1
        assert (await search)[0].keyword_rank == 1
        assert (await index).chunks == 1


async def test_searches_do_not_queue_for_a_models_server(database_url):
    """The server answers none of the twenty queries before all of them have arrived."""
    together = threading.Barrier(SEARCHES)

    def answer(request):
        texts = request.body["input"]
        if any("query" in text for text in texts):
            together.wait(LIMIT)
        rows = [{"index": place, "embedding": [1.0, float(len(text))]} for place, text in enumerate(texts)]
        return {"object": "list", "data": rows}

    with ModelServerDouble(answer) as double, closing(OpenAIEmbedder("m", f"{double.url}/v1")) as model:
        async with opened(database_url, model) as retriever:
            await retriever.add_documents([Document("a text", id="a")])
            searches = (retriever.search(f"query {number}", mode="vector") for number in range(SEARCHES))
            found = await asyncio.wait_for(asyncio.gather(*searches), LIMIT)
        assert [ids_of(hits) for hits in found] == [["a"]] * SEARCHES
        assert double.most_at_once == SEARCHES


async def test_a_local_model_is_asked_one_query_at_a_time():
    executor, model = ModelExecutor(), HashEmbedder(8)
    asked, answered, let_go = [], [], threading.Event()

    def ask(number):
        assert asked == answered, "two at once"
        asked.append(number)
        assert let_go.wait(LIMIT)
        answered.append(number)

    queries = [asyncio.create_task(executor.query(partial(ask, number), model=model)) for number in range(10)]
    await eventually(lambda: asked)
    await turns(100)  # a second one could begin
    let_go.set()
    await asyncio.gather(*queries)
    executor.close()
    assert sorted(asked) == [*range(10)]
