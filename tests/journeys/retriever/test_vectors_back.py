"""Stored vectors are read as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

from semlex import CollectionOptions, Document, SyncRetriever, connect_sync
from semlex.errors import ValidationError
from semlex.testing import HashEmbedder


@pytest.mark.parametrize("storage", ["vector", "halfvec"])
def test_vectors_come_back_by_id(database_url, storage):
    rows = np.random.default_rng(7).normal(size=(5, 6)).astype(np.float32)
    kept = rows if storage == "vector" else rows.astype(np.float16).astype(np.float32)
    with connect_sync(database_url, "none") as client:
        collection = client.collection("given", CollectionOptions(vector_storage=storage))
        assert collection.embeddings.vectors(["0"]) == {}
        collection.add_texts(list("abcde"), ids=list("01234"), embeddings=rows)
        collection.add_documents([Document("without", id="words")])
        found = collection.embeddings.vectors(["3", "words", "none", "0", "3"])
        assert set(found) == {"0", "3"}
        assert all(np.array_equal(vector, kept[int(name)]) for name, vector in found.items())
        assert all((vector.dtype, vector.shape) == (np.float32, (6,)) for vector in found.values())
        assert collection.embeddings.vectors([]) == {}
        with pytest.raises(ValidationError, match="ids must be a list of str"):
            collection.embeddings.vectors("0")


def test_first_vectors_of_another_process_are_seen(database_url):
    with connect_sync(database_url, "none") as early, connect_sync(database_url, "none") as late:
        reader = early.collection("shared")
        reader.add_texts(["words alone"], ids=["a"])
        late.collection("shared").add_texts(["with a vector"], ids=["b"], embeddings=[[1.0, 2.0]])
        assert {name: vector.tolist() for name, vector in reader.embeddings.vectors(["a", "b"]).items()} == {
            "b": [1.0, 2.0]
        }


def test_vectors_of_a_model_are_those_that_it_made(database_url):
    model = HashEmbedder(dimensions=8)
    with SyncRetriever(database_url, model, collection="made") as retriever:
        retriever.add_texts(["a lion"], ids=["lion"])
        [made] = model.embed_documents(["a lion"])
        assert np.allclose(retriever.embeddings.vectors(["lion"])["lion"], made)
