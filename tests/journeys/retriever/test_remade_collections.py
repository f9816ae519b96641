"""A collection that was dropped and made again, and a model whose weights changed: nobody uses the old state."""

import asyncio
import logging
from contextlib import AsyncExitStack
from itertools import pairwise

import numpy as np
import psycopg
import pytest

import semlex
from semlex import BaseEmbedder, Client, Embedder, EmbedderIdentity, errors
from semlex.embedding import probe
from semlex.errors import CollectionNotFoundError, ModelMismatchError
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.two_models import DIMENSIONS, NAME, OtherEmbedder, new_model, old_model, opened

OLD, NEW = ["alpha beta", "alpha delta", "gamma"], ["alpha epsilon", "gamma zeta", "alpha eta", "theta"]


async def last(events):
    return [event async for event in events][-1]


# Every read, and what says in its answer which collection it has read.
READS = {
    "search": (lambda one: one.search("alpha", 9), lambda found: [(hit.id, hit.content) for hit in found]),
    "search, explained": (lambda one: one.search("alpha", 9, explain=True), len),
    "search by words": (lambda one: one.search("alpha", 9, mode="keyword"), lambda found: [h.content for h in found]),
    "search by vectors": (lambda one: one.search("alpha", 9, mode="vector"), len),
    "search by a vector": (lambda one: one.search(vector=[1.0] * 16, top_k=9), len),
    "search, filtered": (lambda one: one.search("alpha", 9, "n > 0"), len),
    "search_many": (lambda one: one.search_many(iter(["alpha"]), 9), lambda found: len(found[0])),
    "candidates": (lambda one: one.candidates("alpha"), len),
    "facets": (lambda one: one.fields.facets(["n"]), lambda found: found.chunks),
    "facets of a query": (lambda one: one.fields.facets(["n"], query="alpha"), lambda found: found.chunks),
    "why": (lambda one: one.why("d2", "alpha"), lambda found: found.rank),
    "context": (lambda one: one.context("alpha"), lambda found: [one.hits[0].id for one in found.sources]),
    "answer": (lambda one: one.answer("alpha"), lambda found: found.text),
    "answer_stream": (lambda one: last(one.answer_stream("alpha")), lambda found: found.text),
    "get": (lambda one: one.get(iter(["d2"])), lambda found: found[0].content),
    "get_document": (lambda one: one.documents.get("d2"), lambda found: found.text),
    "vectors": (lambda one: one.embeddings.vectors(["d2"]), lambda found: found["d2"].tolist()),
    "count": (lambda one: one.count(), lambda found: found),
    "list": (lambda one: one.list_chunks(), len),
    "fields": (lambda one: one.fields.list(values=True), repr),
    "status": (lambda one: one.status(), lambda found: found.chunks),
    "embeddings": (lambda one: one.embeddings.list(), lambda found: found[0].vectors),
}


async def make(url, texts, model=None):
    async with opened(url, model) as making:
        ids = [f"d{number}" for number in range(len(texts))]
        await making.add_texts(texts, ids=ids, metadata=[{"n": len(texts)} for _ in texts])


async def drop(url):
    async with Client(url, "none", use_reranking=False) as client:
        await client.drop(NAME)


async def make_again(url, texts=NEW, model=None):
    await drop(url)
    await make(url, texts, model)


@pytest.mark.slow
async def test_every_read_is_of_what_has_the_name_now(database_url):
    await make(database_url, OLD)
    async with opened(database_url) as held, Client(database_url, "none", use_reranking=False) as client:
        before = {name: told(await read(held)) for name, (read, told) in READS.items()}
        stale = held._handle._opened
        await make_again(database_url)
        async with opened(database_url) as fresh:
            now = {name: told(await read(fresh)) for name, (read, told) in READS.items()}
        for name, (read, told) in READS.items():
            held._handle._opened, stale.presence.is_gone = stale, False
            assert told(await read(held)) == now[name] != before[name], name
            assert held._handle._opened is not stale
        # If the new collection has another model, every read is refused.
        stale = held._handle._opened
        await make_again(database_url, model=new_model())
        for name, (read, _) in READS.items():
            held._handle._opened, stale.presence.is_gone = stale, False
            with pytest.raises(ModelMismatchError, match=f"collection '{NAME}' holds vectors of tests/other"):
                await read(held)
            assert held._handle._opened is stale, name
        # Again, and for writers, as long as the model is another one.
        for call in (held.add_texts(["iota"]), held.search("alpha")):
            with pytest.raises(ModelMismatchError):
                await call
        await make_again(database_url)
        assert len(await held.search("alpha", 9)) == len(NEW)
        # Reading does not make a dropped collection again.
        await drop(database_url)
        for name, (read, _) in READS.items():
            with pytest.raises(CollectionNotFoundError, match=f"collection '{NAME}' does not exist here"):
                await read(held)
            assert await client.collections() == [], name
        assert (await held.health_check()).ok
        assert await held.collections() == []
        # Adding makes it, as it did the first time.
        await held.add_texts(["iota"], ids=["i"])
        assert [hit.id for hit in await held.search("iota", 1)] == ["i"]


WRITES = {
    "add_texts": lambda one: one.add_texts(["iota"]), "delete": lambda one: one.delete(["d0"]),
    "load_vectors": lambda one: one.tables.load({"id": ["v"], "text": ["iota"], "vector": [[1.0] * 16]}),
    "create_index": lambda one: one.indexes.create(), "reindex_keyword": lambda one: one.indexes.rebuild_keyword(),
    "embed_missing": lambda one: one.embeddings.fill(), "reembed": lambda one: one.embeddings.change(new_model()),
}  # fmt: skip


@pytest.mark.slow
async def test_a_write_fails_once_and_never_again(database_url):
    await make(database_url, OLD)
    async with Client(database_url, old_model(), use_reranking=False) as client:
        held = client.collection(NAME)
        await held.search("alpha")
        stale = held._handle._opened
        await make_again(database_url)
        for name, write in WRITES.items():
            held._handle._opened, stale.presence.is_gone = stale, False
            with pytest.raises(errors.CollectionDroppedError, match="was dropped after it was opened"):
                await write(client.collection(NAME))
            await write(client.collection(NAME))
            assert held._handle._opened is not stale, name


@pytest.mark.slow
async def test_in_a_transaction_of_the_callers(database_url):
    await make(database_url, OLD)
    async with opened(database_url) as held, await psycopg.AsyncConnection.connect(database_url) as connection:
        within = held.using(connection)
        assert len(await within.search("alpha", 9)) == len(OLD)
        await connection.commit()
        await make_again(database_url)
        assert len(await within.search("alpha", 9)) == len(NEW)
        await connection.rollback()
        await drop(database_url)
        for _ in range(2):
            with pytest.raises(CollectionNotFoundError, match=f"collection '{NAME}' does not exist"):
                await within.search("alpha", 9)
            await connection.execute("SELECT 1")  # begins one of the caller's
        await make(database_url, OLD)
        assert len(await within.search("alpha", 9)) == len(OLD)


@pytest.mark.slow
async def test_it_costs_no_round_trip(database_url, tmp_path):
    await make(database_url, OLD)
    trips = []
    async with opened(database_url, max_connections=1) as held:
        database = held._handle.opened.database
        for watch in (held._handle.opened.presence, None):
            database._watch = watch
            for _ in range(3):  # until everything is in memory
                await held.search("alpha")
            with (tmp_path / "trace").open("w+") as trace:
                async with database.connection() as connection:
                    connection.pgconn.trace(trace.fileno())
                await held.search("alpha")
                async with database.connection() as connection:
                    connection.pgconn.untrace()
                trace.seek(0)
                sides = [line.split("\t")[1] for line in trace.read().splitlines()]
            trips.append(sum(pair == ("F", "B") for pair in pairwise(sides)))
    assert trips[0] == trips[1] > 0


@pytest.mark.slow
async def test_no_answer_is_by_the_wrong_model(database_url, full):
    """Four clients of two models search while the collection is dropped and made again, and afterwards."""
    question, models = "alpha beta", [old_model(), new_model()]
    texts = {f"d{number}": text for number, text in enumerate([*OLD, *NEW])}
    nearness = [
        {key: float(model.embed_query(question) @ model.embed_query(text)) for key, text in texts.items()}
        for model in models
    ]

    async def ask(held, model):
        try:
            found = await held.search(question, 9, mode="vector")
        except (CollectionNotFoundError, ModelMismatchError, errors.EmbeddingsMissingError):
            return False
        assert found.embedding_model == models[model].identity.model
        near = {hit.id: nearness[model][hit.id] for hit in found}
        assert {hit.id: hit.vector_score for hit in found} == pytest.approx(near, abs=1e-5)
        return bool(found)

    async def remake(making, model):
        await making.drop(NAME)
        await making.collection(NAME).add_texts(texts.values(), ids=list(texts))

    async with AsyncExitStack() as stack:
        makers = [await stack.enter_async_context(Client(database_url, model, use_reranking=False)) for model in models]
        clients = [Client(database_url, models[number % 2], use_reranking=False) for number in range(4)]
        held = [(await stack.enter_async_context(one)).collection(NAME, create=False) for one in clients]
        await makers[0].collection(NAME).add_texts(texts.values(), ids=list(texts))
        for number in range(1_000 if full else 4):
            model = (number + 1) // 2 % 2
            await asyncio.gather(*(ask(one, which % 2) for which, one in enumerate(held)), remake(makers[model], model))
            found = await asyncio.gather(*(ask(one, which % 2) for which, one in enumerate(held)))
            assert found == [model == 0, model == 1] * 2


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
        self._cosine, self.asked = cosine, []

    def embed_documents(self, texts):
        self.asked.append(list(texts))
        made = super().embed_documents(texts)
        beside = np.roll(made, 1, axis=1)
        beside -= (beside * made).sum(axis=1, keepdims=True) * made
        beside /= np.linalg.norm(beside, axis=1, keepdims=True)
        turned = self._cosine * made + np.sqrt(1 - self._cosine**2) * beside
        return turned.astype(np.float32)


USES = {
    "search": lambda one: one.search("alpha"), "search by vectors": lambda one: one.search("alpha", mode="vector"),
    "search_many": lambda one: one.search_many(["alpha", "beta"]), "context": lambda one: one.context("alpha"),
    "why": lambda one: one.why("d0", "alpha"), "facets": lambda one: one.fields.facets(["n"], query="alpha"),
    "candidates": lambda one: one.candidates("alpha"), "add_texts": lambda one: one.add_texts(["eta"]),
    "embed_missing": lambda one: one.embeddings.fill(),
}  # fmt: skip


def probes(url):
    return [one for (one,) in execute(url, "SELECT probe FROM semlex.embedding_version ORDER BY name, version")]


async def test_other_weights_are_refused_before_their_first_use(database_url):
    await make(database_url, TEXTS)
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
    await make(database_url, TEXTS)
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
    await make(database_url, TEXTS)
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


async def test_a_dump_keeps_the_probe_and_loaded_vectors_have_none(database_url, tmp_path):
    await make(database_url, TEXTS)
    async with opened(database_url) as dumping:
        await dumping.tables.dump(tmp_path / "dump")
    async with Client(database_url, "none", use_reranking=False) as client:
        await client.restore(tmp_path / "dump", "again")
        first, second = probes(database_url)
        assert first == second
        assert first is not None
        assert probe.restored(first).shape == (DIMENSIONS,)
        manifest = tmp_path / "dump" / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"probe": "', '"probe": "A!'))
        with pytest.raises(errors.DumpError, match="is damaged"):
            await client.restore(tmp_path / "dump", "damaged")
        for name in (NAME, "again"):
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


def test_a_custom_embedder_needs_two_members(database_url):
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
