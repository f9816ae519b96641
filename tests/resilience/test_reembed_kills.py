"""A change of the model that is killed wherever: the old model answers, and the same command goes on."""

from __future__ import annotations

import random

import psycopg
import pytest

from semlex.types.documents import Document
from tests.support.clients import reembedding_client
from tests.support.programs import Program
from tests.support.retrievers import sync_opened
from tests.support.two_models import NAME, assert_vectors, new_model, old_model, texts_of, told, vectors_of, versions

ROWS = 60
WORDS = ("key", "vault", "dome", "comet", "banana", "ship", "zenith")
# Where one run after another is killed; by the last, the new model serves.
MOMENTS = [
    ("begin to change the embedding model", "worked", 1),
    ("begin to change the embedding model", "committed", 1),
    ("write embeddings", "worked", 2),
    ("write embeddings", "committed", 2),
    ("switch to another embedding version", "worked", 1),
    ("switch to another embedding version", "committed", 1),
]


def texts(chance, count):
    return [Document(" ".join(chance.choices(WORDS, k=5)), id=f"d{chance.randrange(ROWS)}") for _ in range(count)]


@pytest.mark.timeout(3600)
def test_a_kill_at_every_moment_and_then_it_is_done(database_url, full):
    for _ in range(20 if full else 1):
        chance = random.Random(random.getrandbits(64))
        with sync_opened(database_url, old_model(), collection=NAME) as old:
            old.add_documents([Document(" ".join(chance.choices(WORDS, k=5)), id=f"d{n}") for n in range(ROWS)])
            for moment in MOMENTS:
                assert versions(database_url)[0] == 1, moment
                with Program(reembedding_client.main, database_url, moment) as changing:
                    changing.until_stopped()
                    changing.kill()
                with psycopg.connect(database_url) as connection:
                    connection.execute("UPDATE semlex.embedding_version SET run_until = now()")
                # The old model answers all the while, and writes.
                assert told(old.search("key vault", 5))
                old.add_documents(texts(chance, 5))
                old.delete([f"d{chance.randrange(ROWS)}"])
                assert_vectors(vectors_of(database_url, 1), texts_of(database_url), old_model(), whole=True)
            assert versions(database_url) == (2, {1: False, 2: False})
            written = vectors_of(database_url, 2)
            assert_vectors(written, texts_of(database_url), new_model(), whole=False)
        with sync_opened(database_url, new_model(), collection=NAME) as new:
            new.embeddings.fill()
            assert "hnsw_2" in new.status().vector_indexes[-1].name
            assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=True)
            new.drop_collection()
