"""``semlex models set`` and ``semlex models list``."""

import re

import numpy as np
import pytest
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

from semlex.errors import ModelError
from tests.journeys.maintenance.test_reembedding import FailingEmbedder
from tests.support.databases import execute
from tests.support.retrievers import sync_opened

pytestmark = pytest.mark.slow  # most of them

WORDS = ["[UNK]", "Rotate", "a", "key", "every", "ninety", "days", "banana", "yellow", "fruit", "vault"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A static model of a few words, in a folder."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.random.default_rng(7).normal(size=(len(WORDS), 8)).astype(np.float16)
    StaticModel(vectors=vectors, tokenizer=tokenizer, normalize=True).save_pretrained(folder)
    return folder


@pytest.fixture
def keys(shell):
    shell("index", "docs", "-c", "keys", "--model", "static")
    return shell


def test_there_and_back(keys, tiny):
    [dry] = keys.objects("models", "set", str(tiny), "-c", "keys", "--dry-run")
    assert (dry["embedded"], dry["chunks"], dry["dimensions"], dry["dry_run"]) == (2, 2, 8, True)
    assert "2 of 2 chunks would be embedded" in keys("models", "set", str(tiny), "-c", "keys", "--dry-run").stderr
    done = keys("models", "set", str(tiny), "-c", "keys", "--vector-storage", "halfvec")
    assert re.search(r"version 2 is in use now: .*tiny, 8 dimensions, halfvec; 2 chunks embedded in ", done.stderr)
    assert "semlex models drop --collection keys 1 drops it" in done.stderr
    old, new = keys.objects("models", "list", "-c", "keys")
    expected = {"version": 1, "state": "old", "dimensions": 256, "storage": "vector", "vectors": 2}
    assert expected.items() <= old.items()
    expected = {"version": 2, "state": "serving", "dimensions": 8, "storage": "halfvec", "lacking": 0}
    assert expected.items() <= new.items()
    listed = keys("models", "list", "-c", "keys").stdout.splitlines()
    columns = "version state model dimensions storage vectors lacking created size calibrated"
    assert listed[0].split() == columns.split()
    assert [line.split()[:2] for line in listed[1:]] == [["1", "old"], ["2", "serving"]]
    # Who names the old model goes on with the old vectors.
    asked = keys("search", "-c", "keys", "--model", "static", "how often is a key rotated")
    assert "this process keeps using version 1" in asked.stderr
    asked = keys("search", "-c", "keys", "--model", str(tiny), "Rotate a key every ninety days")
    assert "note" not in asked.stderr
    assert "version 1 is in use now" in keys("models", "rollback", "-c", "keys").stderr
    assert "keeps using" not in keys("search", "-c", "keys", "key").stderr
    keys("models", "drop", "1", "-c", "keys", "--yes", code=2)
    refused = keys("models", "drop", "2", "-c", "keys", "--yes", code=3)
    assert "used version 2" in refused.stderr
    assert keys.objects("models", "drop", "2", "-c", "keys", "--yes", "--force") == [{"dropped": 2}]
    assert len(keys.objects("models", "list", "-c", "keys")) == 1


def test_what_is_being_made_is_shown(keys, tiny):
    url = keys.environment["DATABASE_URL"]
    with sync_opened(url, "none", collection="keys") as retriever, pytest.raises(ModelError, match="gone"):
        retriever.embeddings.change(FailingEmbedder(1))
    assert re.search(r"being made +version 2, tests/other: 0 of 2 chunks; semlex models set", keys("status").stdout)
    [status] = keys.objects("status", "-c", "keys")
    assert status["building_version"] == {"version": 2, "model": "tests/other", "vectors": 0, "is_running": False}
    said = keys("doctor", "server")
    assert "semlex models set tests/other --collection keys" in said.stdout + said.stderr
    assert "semlex models drop 2 --collection keys" in said.stdout + said.stderr
    assert "building" in keys("models", "list", "-c", "keys").stdout
    keys("models", "set", str(tiny), "-c", "keys", code=2)
    keys("models", "set", str(tiny), "-c", "keys", "--restart")
    assert [one["state"] for one in keys.objects("models", "list", "-c", "keys")] == ["old", "serving"]


def test_a_model_is_never_chosen_unasked(keys, tiny):
    """A name in the database leads nowhere: neither the old one's nor that of what was begun."""
    refused = keys("models", "set", "-c", "keys", code=2)
    assert "no model is named: semlex models set" in refused.stderr
    keys("models", "set", str(tiny), "-c", "keys")
    keys("models", "set", "static", "-c", "keys", code=2)
    keys("models", "rollback", "-c", "keys")
    execute(
        keys.environment["DATABASE_URL"],
        "DELETE FROM semlex.keys_embedding_2 WHERE chunk_id IN (SELECT min(chunk_id) FROM semlex.keys_chunk)",
    )
    # Back to the folder's model, which only the database names.
    refused = keys("models", "rollback", "-c", "keys", code=3)
    assert "1 chunks have no vector" in refused.stderr
    assert "semlex does not use such a model just because a database names it" in refused.stderr
    assert "1 chunk embedded" in keys("models", "rollback", "-c", "keys", "--model", str(tiny)).stderr


def test_from_words_alone_and_what_is_refused(shell):
    shell("index", "docs", "-c", "keys", "--model", "none")
    assert "no vectors" in shell("models", "list", "-c", "keys").stderr
    shell("models", "set", "static", "-c", "keys")
    [hit, *_] = shell.objects("search", "-c", "keys", "how often is a key rotated")
    assert hit
    for arguments, said in (
        (("set", "none"), "'none' is not a model"),
        (("set", "static"), "has the model .* already"),
        (("set", "static", "--vector-storage", "float"), "vector_storage must be one of vector, halfvec"),
        (("rollback",), "no earlier vectors to go back to"),
        (("drop", "5", "--yes"), "has no version 5"),
        (("drop", "0", "--yes"), "version must be"),
    ):
        assert re.search(said, shell("models", *arguments, "-c", "keys", code=2).stderr)
