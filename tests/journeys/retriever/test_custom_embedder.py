"""An embedder of one's own needs two members."""

from __future__ import annotations

import numpy as np
import pytest

import semlex
from semlex import BaseEmbedder, Embedder, EmbedderIdentity


class Lengths(BaseEmbedder):
    """The number of words and of characters."""

    @property
    def identity(self):
        return EmbedderIdentity("lengths", "1", 2, None, "mean", normalised=False)

    def embed_documents(self, texts):
        return np.array([[len(text.split()), len(text)] for text in texts], dtype=np.float32)


def test_the_rest_has_defaults():
    embedder = Lengths()
    assert isinstance(embedder, Embedder)
    assert embedder.embed_query("two words").tolist() == [2, 9]
    assert (embedder.dimensions, embedder.counter_name) == (2, "unicode-words/1")
    assert embedder.count_tokens(["two words", ""]).tolist() == [2, 0]
    assert embedder.token_offsets("two words").tolist() == [[0, 3], [4, 9]]
    assert (embedder.fusion_weight, embedder.calls_at_once, embedder.documents_cut) == (0.5, 1, 0)
    embedder.close()


def test_missing_methods_are_reported_when_it_is_made():
    class Lacking(BaseEmbedder):
        pass

    with pytest.raises(TypeError, match="embed_documents"):
        Lacking()


def test_it_is_found_by_its_vectors(database_url):
    with semlex.SyncRetriever(database_url, Lengths(), use_reranking=False, distance="l2") as retriever:
        retriever.add_texts(["one", "some words more", "a text of several words"], ids=["a", "b", "c"])
        assert [hit.id for hit in retriever.search("three words there", 1, mode="vector")] == ["b"]
