"""A change of the model that is killed wherever: the old model answers, and the same command goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import psycopg
import pytest

from semlex.types.documents import Document
from tests.support.folders import CLIENTS, ROOT
from tests.support.retrievers import sync_opened
from tests.support.two_models import NAME, assert_vectors, new_model, old_model, texts_of, told, vectors_of, versions

CLIENT = CLIENTS / "reembedding_client.py"
ROWS = 100
WORDS = ("key", "vault", "dome", "comet", "banana", "ship", "zenith")
# Transactions of a run over so many rows, three moments each.
MOMENTS = 3 * (ROWS // 10 + 10)
IN_PAGES = 9


def run(url: str, moments: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CLIENT), url, str(moments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"},
    )


def texts(chance: random.Random, count: int) -> list[Document]:
    return [Document(" ".join(chance.choices(WORDS, k=5)), id=f"d{chance.randrange(ROWS)}") for _ in range(count)]


@pytest.mark.timeout(3600)
def test_six_kills_and_then_it_is_done(database_url: str, full: bool) -> None:
    for _ in range(20 if full else 1):
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS semlex CASCADE")
        with sync_opened(database_url, old_model(), collection=NAME) as old:
            old.add_documents([Document(" ".join(chance.choices(WORDS, k=5)), id=f"d{n}") for n in range(ROWS)])
            # Five in the pages, where it gets on a little each time; then anywhere, also around the switch.
            for moments in [*(chance.randint(1, IN_PAGES) for _ in range(5)), chance.randint(1, MOMENTS)]:
                assert versions(database_url)[0] == 1, seed
                done = run(database_url, moments)
                assert done.returncode in (-signal.SIGKILL, 0), (seed, done.stderr)
                assert moments > IN_PAGES or done.returncode != 0, seed
                # The old model answers all the while, and writes.
                assert told(old.search("key vault", 5))
                old.add_documents(texts(chance, 5))
                old.delete([f"d{chance.randrange(ROWS)}"])
                assert_vectors(vectors_of(database_url, 1), texts_of(database_url), old_model(), whole=True)
            if versions(database_url)[0] == 1:
                done = run(database_url, 0)
                assert done.returncode == 0, (seed, done.stderr)
            serving, others = versions(database_url)
            assert (serving, others) == (2, {1: False, 2: False}), seed
            written = vectors_of(database_url, 2)
            assert_vectors(written, texts_of(database_url), new_model(), whole=False)
        with sync_opened(database_url, new_model(), collection=NAME) as new:
            new.embed_missing()
            assert "hnsw_2" in new.status().vector_indexes[-1].name
        assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=True)
