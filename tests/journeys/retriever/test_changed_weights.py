"""Models that have the name of a collection's model and make other vectors: refused before their first use."""

import logging

import numpy as np
import psycopg
import pytest

import semlex
from semlex import BaseEmbedder, Client, Embedder, EmbedderIdentity
from semlex.embedding import probe
from semlex.errors import DumpError, ModelMismatchError
from semlex.testing import HashEmbedder
from tests.support import retrievers
from tests.support.two_models import DIMENSIONS, OtherEmbedder

NAME = "weights"
TEXTS = ["alpha beta", "gamma delta", "epsilon zeta"]


class OtherWeights(OtherEmbedder):
    """Another model that has the name of `HashEmbedder`."""

    @property
    def identity(self):
        return HashEmbedder(self.dimensions).identity

    @property
    def counter_name(self):
        return HashEmbedder(self.dimensions).counter_name


class Turned(HashEmbedder):
    """`HashEmbedder` with every vector turned, so that its cosine with the original one is known."""

    def __init__(self, cosine):
        super().__init__(DIMENSIONS)
        self._cosine = cosine
        self.asked = []

    def embed_documents(self, texts):
        self.asked.append(list(texts))
        made = super().embed_documents(texts)
        beside = np.roll(made, 1, axis=1)
        beside -= (beside * made).sum(axis=1, keepdims=True) * made
        beside /= np.linalg.norm(beside, axis=1, keepdims=True)
        turned = self._cosine * made + np.sqrt(1 - self._cosine**2) * beside
        return turned.astype(np.float32)


USES = {
    "search": lambda one: one.search("alpha"),
    "search by vectors": lambda one: one.search("alpha", mode="vector"),
    "search_many": lambda one: one.search_many(["alpha", "beta"]),
    "context": lambda one: one.context("alpha"),
    "why": lambda one: one.why("d0", "alpha"),
    "facets": lambda one: one.fields.facets(["n"], query="alpha"),
    "candidates": lambda one: one.candidates("alpha"),
    "add_texts": lambda one: one.add_texts(["eta"]),
    "embed_missing": lambda one: one.embeddings.fill(),
}


def opened(url, model=None, **options):
    return retrievers.opened(url, model or HashEmbedder(DIMENSIONS), collection=NAME, **options)


async def make(url):
    async with opened(url) as making:
        await making.add_texts(TEXTS, ids=[f"d{number}" for number in range(len(TEXTS))])


def probes(url):
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT probe FROM semlex.embedding_version ORDER BY name, version").fetchall()
        return [row[0] for row in rows]


async def test_other_weights_are_refused_before_their_first_use(database_url):
    await make(database_url)
    async with opened(database_url, "none") as plain:
        await plain.add_texts(["lacks a vector"], ids=["plain"])
    async with opened(database_url, OtherWeights()) as other:
        for use in USES.values():
            with pytest.raises(ModelMismatchError, match=rf"that differ from those of collection '{NAME}' \(cosine"):
                await use(other)
        # Nothing was written, and what asks no model goes on.
        assert await other.count() == len(TEXTS) + 1
        assert len(await other.search("alpha", mode="keyword")) == 1
        assert len(await other.search(vector=[1.0] * DIMENSIONS)) == len(TEXTS)
    async with opened(database_url) as same:
        for use in USES.values():
            await use(same)


async def test_the_remedy_of_the_message(database_url):
    await make(database_url)
    async with opened(database_url) as held, opened(database_url, OtherWeights()) as other:
        first = await held.search("alpha beta", 1)
        report = await other.embeddings.change(OtherWeights())
        assert (report.version, report.previous, report.lacking) == (2, 1, 0)
        async with opened(database_url, OtherWeights()) as new:
            found = await new.search("alpha beta", 1)
            assert found[0].vector_score == pytest.approx(1.0, abs=1e-5)
        # One that is open goes on with the vectors of its own weights, and says so.
        held._handle.opened.forget_versions()
        again = await held.search("alpha beta", 1)
        assert again[0].vector_score == first[0].vector_score == pytest.approx(1.0, abs=1e-5)
        assert "has version 2 of its vectors now" in again.warnings[0]
        await new.initialize()
        await new.embeddings.drop(1, force=True)
        held._handle.opened.forget_versions()
        with pytest.raises(ModelMismatchError, match="were dropped since it was opened"):
            await held.search("alpha beta", 1)
        await new.close()


async def test_how_much_may_differ(database_url, caplog):
    await make(database_url)
    caplog.set_level(logging.WARNING, "semlex")
    model = Turned(0.97)
    async with opened(database_url, model) as turned:
        assert model.asked == []  # opening asks nothing
        with pytest.raises(ModelMismatchError, match=r"cosine 0\.970 for the same text"):
            await turned.search("alpha")
    for cosine, is_told in ((0.985, True), (0.998, True), (0.9995, False), (1.0, False)):
        caplog.clear()
        model = Turned(cosine)
        async with opened(database_url, model) as turned:
            first, second = await turned.search("alpha"), await turned.search("beta")
            added = [[probe.TEXT], ["alpha"], ["beta"]]
            assert model.asked == added  # once
            await turned.add_texts(["eta"], ids=[f"eta of {cosine}"])
            assert model.asked == [*added, ["eta"]]
        notes = [f"now makes slightly different vectors than those of collection '{NAME}' (cosine {cosine:.4f}"]
        notes = notes if is_told else []
        assert [len(first.warnings), len(second.warnings), len(caplog.records)] == [len(notes), 0, len(notes)]
        for note, warning, record in zip(notes, first.warnings, caplog.records, strict=True):
            assert note in warning == record.getMessage()


async def test_a_dump_keeps_it_and_vectors_from_elsewhere_cannot_be_compared(database_url, tmp_path):
    await make(database_url)
    async with opened(database_url) as dumping:
        await dumping.tables.dump(tmp_path / "dump")
    async with Client(database_url, "none", use_reranking=False) as client:
        await client.restore(tmp_path / "dump", "weights_again")
        first, second = probes(database_url)
        assert first == second
        assert first is not None
        assert probe.restored(first).shape == (DIMENSIONS,)
        manifest = tmp_path / "dump" / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"probe": "', '"probe": "A!'))
        with pytest.raises(DumpError, match="is damaged"):
            await client.restore(tmp_path / "dump", "weights_damaged")
        for name in (NAME, "weights_again"):
            await client.drop(name)
    async with opened(database_url) as loading:
        await loading.tables.load({"id": ["v"], "text": ["alpha"], "vector": [[1.0] * DIMENSIONS]})
    assert probes(database_url) == [None]
    async with opened(database_url, OtherWeights()) as other:
        assert len(await other.search("alpha")) == 1


class Lengths(BaseEmbedder):
    """The number of words and of characters."""

    @property
    def identity(self):
        return EmbedderIdentity("lengths", "1", 2, None, "mean", normalised=False)

    def embed_documents(self, texts):
        return np.array([[len(text.split()), len(text)] for text in texts], dtype=np.float32)


def test_an_embedder_of_ones_own_needs_two_members(database_url):
    embedder = Lengths()
    assert isinstance(embedder, Embedder)
    assert embedder.embed_query("two words").tolist() == [2, 9]
    assert (embedder.dimensions, embedder.counter_name) == (2, "unicode-words/1")
    assert embedder.count_tokens(["two words", ""]).tolist() == [2, 0]
    assert embedder.token_offsets("two words").tolist() == [[0, 3], [4, 9]]
    assert (embedder.fusion_weight, embedder.calls_at_once, embedder.documents_cut) == (0.5, 1, 0)
    with pytest.raises(TypeError, match="embed_documents"):
        type("Lacking", (BaseEmbedder,), {})()
    with semlex.SyncRetriever(database_url, embedder, use_reranking=False, distance="l2") as retriever:
        retriever.add_texts(["one", "some words more", "a text of several words"], ids=["a", "b", "c"])
        assert [hit.id for hit in retriever.search("three words there", 1, mode="vector")] == ["b"]
    embedder.close()
