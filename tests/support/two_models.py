"""Two models whose vectors have the same length and mean different things, and what a collection holds of either."""

from functools import partial

import numpy as np

from semlex.embedding.base import EmbedderIdentity
from semlex.testing import HashEmbedder
from tests.support import retrievers
from tests.support.databases import execute

DIMENSIONS = 16
NAME = "moving"


class OtherEmbedder(HashEmbedder):
    """As `HashEmbedder`, with another direction for every word, by a salt that is part of the identity."""

    def __init__(self, dimensions=DIMENSIONS, salt="other"):
        super().__init__(dimensions)
        self._salt = salt

    @property
    def identity(self):
        return EmbedderIdentity(f"tests/{self._salt}", "1", self.dimensions, None, "mean", normalised=True)

    @property
    def counter_name(self):
        return f"tests/{self._salt}"

    def _direction(self, word):
        return super()._direction(f"{self._salt} {word}")


old_model, new_model = partial(HashEmbedder, DIMENSIONS), OtherEmbedder


def opened(url, model=None, **options):
    """The collection with a model, by default the old one."""
    return retrievers.opened(url, old_model() if model is None else model, **{"collection": NAME} | options)


def vectors_of(url, version, collection=NAME):
    rows = execute(url, f"SELECT chunk_id, embedding::text FROM semlex.{collection}_embedding_{version}")
    return {chunk_id: np.fromstring(text.strip("[]"), np.float32, sep=",") for chunk_id, text in rows}


def texts_of(url, collection=NAME):
    """The texts of all chunks by id, as they are embedded."""
    rows = execute(url, f"SELECT chunk_id, context, chunk_text FROM semlex.{collection}_chunk")
    return {chunk_id: f"{context}\n{text}" if context else text for chunk_id, context, text in rows}


def assert_vectors(found, texts, model, *, whole):
    """Every vector is the model's for the present text of its chunk; of a whole version, no chunk lacks one."""
    assert found.keys() == texts.keys() if whole else found.keys() <= texts.keys()
    if found:
        wanted = model.embed_documents([texts[one] for one in found])
        assert np.abs(np.stack(list(found.values())) - wanted).max() <= 1e-6


def versions(url):
    """Number of the serving version, and of each whether it is in the making."""
    ((serving,),) = execute(url, "SELECT embedding_version FROM semlex.collection WHERE name = %s", [NAME])
    return serving, dict(execute(url, "SELECT version, building FROM semlex.embedding_version WHERE name = %s", [NAME]))


def told(results):
    """What a search found, to be compared: ids and scores, rounded as sums of floats are."""
    scores = ((hit.id, hit.vector_score, hit.fused_score) for hit in results)
    return [(name, *(None if one is None else round(one, 5) for one in both)) for name, *both in scores]
