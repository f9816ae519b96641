"""A program for tests: searches and writes with the old model until it is ended; one line of JSON for all it did."""

import json
import random

import numpy as np

from semlex import open_collection
from semlex.proof.children import say
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened
from tests.support.two_models import NAME, old_model

STEPS_AFTER = 10
WORDS = ("key", "vault", "dome", "comet", "banana", "ship", "zenith")


class Client:
    def __init__(self, retriever, own):
        self.retriever, self.own = retriever, own
        self.model = old_model()
        self.chance = random.Random(own)
        self.present = {}
        self.told = {"searches": 0, "failed": [], "mixed": 0, "notes": 0, "writes": 0}

    def step(self):
        act = self.chance.choice((self.search, self.search, self.write, self.delete))
        try:
            act()
        except Exception as error:  # noqa: BLE001 - it is told
            self.told["failed"].append(f"{act.__name__}: {type(error).__name__}: {error}")

    def search(self):
        """Every score is that of the old model for the text that was found."""
        query = " ".join(self.chance.choices(WORDS, k=3))
        found = self.retriever.search(query, 10)
        self.told["searches"] += 1
        self.told["notes"] += len(found.warnings)
        if found.mode != "hybrid" or found.embedding_model != self.model.identity.model:
            self.told["mixed"] += 1
            return
        scored = [hit for hit in found if hit.vector_score is not None]
        if scored:
            wanted = self.model.embed_documents([hit.content for hit in scored]) @ self.model.embed_query(query)
            self.told["mixed"] += int(np.abs(wanted - [hit.vector_score for hit in scored]).max() > 1e-4)

    def write(self):
        ids = [f"{self.own}{self.chance.randrange(60)}" for _ in range(self.chance.choice((1, 5, 80)))]
        texts = {one: " ".join(self.chance.choices(WORDS, k=4)) for one in ids}
        self.retriever.add_documents([Document(text, id=one) for one, text in texts.items()])
        self.present |= texts
        self.told["writes"] += 1

    def delete(self):
        gone = [f"{self.own}{self.chance.randrange(60)}" for _ in range(3)]
        self.retriever.delete(gone)
        for one in gone:
            self.present.pop(one, None)
        self.told["writes"] += 1


def main(url, own, ended):
    """Says ``open`` when it works, and ``went-on`` some steps after the report of the other model."""
    open_collection.LOOK_SECONDS = 0.0
    with sync_opened(url, old_model(), collection=NAME) as retriever:
        client = Client(retriever, own)
        client.write()
        say("open")
        after = 0
        while not ended.is_set():
            client.step()
            after += bool(client.told["notes"])
            if after == STEPS_AFTER:
                say("went-on")
    say(json.dumps(client.told | {"present": client.present}))
