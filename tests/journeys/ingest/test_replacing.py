"""Chunks that are read, changed and stored again take the place of what was read, wherever that came from."""

import asyncio
import json
import shutil
import tempfile
from itertools import product
from operator import attrgetter
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from semlex import BulkIngestConfig, Document
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.properties import examples
from tests.support.retrievers import opened, sync_opened
from tests.support.spies import before_calls
from tests.support.whole_collection import count_faults

# Sections that are long enough to be chunks of their own.
PAGE = (
    "# Keys\n\n" + "How keys are kept in a vault. " * 8 + "\n\n"
    "## Rotation\n\n" + "Rotate a key every ninety days, and revoke the old one. " * 5 + "\n"
)
options = {"model": 16, "collection": "c"}


def rows(url, table, columns="*"):
    return execute(url, f"SELECT {columns} FROM semlex.c_{table}")


@pytest.fixture
def page(tmp_path):
    return folder_with(tmp_path, {"keys.md": PAGE}) / "keys.md"


@pytest.fixture
async def store(database_url, page):
    async with opened(database_url, **options) as store:
        await store.index(page, chunk_tokens=200, overlap_tokens=0)
        await store.add_documents([Document("ninety ships", {"n": 1}, id="added")])
        yield store


@pytest.mark.slow
@pytest.mark.parametrize("way", ["get", "search", "plain"])
async def test_what_is_read_changed_and_stored_is_there_once(store, database_url, way):
    for origin in ("indexed", "added"):
        before = await store.count()
        ids = [hit.id for hit in await store.search("ninety", mode="keyword")]
        chunk_id = next(one for one in ids if (one == "added") == (origin == "added"))
        (place,) = await store.get([chunk_id])
        found = {hit.id: hit for hit in await store.search("ninety", 100)}
        document = place if way == "get" else found[chunk_id]
        if way == "plain":  # a document that was sent as JSON has lost its class
            document = Document(document.content, dict(document.metadata), document.id)
        content, metadata = place.content, dict(place.metadata)
        document.metadata["reviewed"] = True
        document.content += " corrected"
        assert await store.upsert([document]) == [chunk_id]
        assert await store.count() == before
        (now,) = await store.get([chunk_id])
        assert (now.content, now.metadata) == (content + " corrected", {**metadata, "reviewed": True})
        assert type(now.metadata) is dict
        # It stands where it stood, and is found by its new words there, and by its new vector.
        where = attrgetter("source_document", "heading_path", "line", "char_start", "char_end")
        assert where(now) == where(place)
        if origin == "indexed":
            assert (now.source_document, now.heading_path) == ("keys.md", ("Keys", "Rotation"))
            assert [hit.id for hit in await store.search("rotation corrected", mode="keyword", top_k=1)] == [chunk_id]
        assert [hit.id for hit in await store.search("corrected", mode="keyword")] == [chunk_id]
        assert [hit.id for hit in await store.search("ninety", mode="keyword", top_k=100)].count(chunk_id) == 1
        context = " > ".join(now.heading_path)
        text = f"{context}\n{now.content}" if context else now.content
        (nearest,) = await store.search(vector=HashEmbedder(16).embed_query(text), top_k=1, mode="vector")
        assert (nearest.id, nearest.vector_score) == (chunk_id, pytest.approx(1.0, abs=1e-5))
        assert len(rows(database_url, "embedding_1")) == before
        assert (await store.delete([chunk_id])).chunks == 1
        assert await store.count() == before - 1


async def test_scores_of_a_hit_are_not_stored_and_metadata_costs_no_embedding(store, database_url, page, monkeypatch):
    hits = await store.search("ninety", top_k=100)
    assert hits[0].metadata["similarity"] == hits[0].vector_score
    await store.upsert(hits)
    assert {key for (metadata,) in rows(database_url, "chunk", "metadata") for key in metadata} == {"n"}
    again = await store.search("ships", top_k=100)
    assert all(hit.metadata["similarity"] == hit.vector_score for hit in again)
    assert len(again) == len(hits)
    # Metadata alone costs no embedding, and the file wins when it changes.
    (hit,) = await store.search("rotate", mode="keyword", top_k=1)
    with monkeypatch.context() as patched:
        patched.delattr(HashEmbedder, "embed_documents")
        hit.metadata["reviewed"] = True
        await store.upsert([hit])
        assert (await store.index(page, chunk_tokens=200, overlap_tokens=0)).unchanged == 1
    hit.content = "Something else."
    await store.upsert([hit])
    page.write_text(PAGE + "\n## More\n\n" + "More of it. " * 12)
    await store.index(page, chunk_tokens=200, overlap_tokens=0)
    (now,) = await store.get([hit.id])
    assert ("ninety days" in now.content, now.metadata) == (True, {})
    (nearest,) = await store.search("Keys > Rotation\n" + now.content, mode="vector", top_k=1)
    assert (nearest.id, nearest.vector_score) == (hit.id, pytest.approx(1.0, abs=1e-5))
    assert (await store.status()).embedded == await store.count()


@pytest.mark.slow
async def test_two_writers_of_an_indexed_chunk_and_of_its_file(database_url, page):
    text = "\n\n".join(f"## Part {n}\n\nWords of part {n} are {n * n}." for n in range(60))
    async with (
        opened(database_url, **options) as one,
        opened(database_url, bulk=BulkIngestConfig(small_batch_rows=0), **options) as other,
    ):
        page.write_text(text)
        await one.index(page, chunk_tokens=30, overlap_tokens=0)
        chunks = await one.get([hit.id for hit in await one.search("words", top_k=1000)])

        async def change(store, order):
            for number in range(6):
                documents = [Document(f"{chunk.content} {number}", {}, chunk.id) for chunk in chunks[::order]]
                await store.upsert(documents)

        async def rewrite():
            for number in range(6):
                page.write_text(f"{text}\n\n## New {number}\n\nNew.\n")
                await other.index(page, chunk_tokens=30, overlap_tokens=0)

        await asyncio.gather(change(one, 1), change(other, -1), rewrite())
    with psycopg.connect(database_url) as connection:
        assert count_faults(connection, "c") == {}


DEEDS = [
    # By arrays or by COPY in turn; with --full each in both ways.
    pytest.param(way, deed, rows, marks=() if (number + (rows == 0)) % 2 else pytest.mark.full)
    for number, (way, deed) in enumerate(product(("index", "update", "skip"), ("changes", "deletes", "forgets")))
    for rows in (0, 64)
]


@pytest.mark.parametrize(("way", "deed", "small_batch_rows"), DEEDS)
async def test_a_text_whose_vector_another_writer_takes_meanwhile_is_embedded_again(
    database_url, page, way, deed, small_batch_rows
):
    embedder = HashEmbedder(16)
    bulk = BulkIngestConfig(small_batch_rows=small_batch_rows)
    cut = {"chunk_tokens": 200, "overlap_tokens": 0}
    async with opened(database_url, embedder, collection="c", bulk=bulk) as store:
        with sync_opened(database_url, **options) as other:
            await store.index(page, **cut)
            added = [Document(f"ships of {n}", {}, f"added {n}") for n in range(3)]
            await store.add_documents(added)
            of_file = [hit.id for hit in await store.search("rotate", mode="keyword")]
            victims = of_file if way == "index" else ["added 1"]
            every = [hit.id for hit in await store.search("ships", top_k=100)]
            deeds = {
                "changes": lambda: other.upsert([Document("Another text.", {}, one) for one in victims]),
                "deletes": lambda: other.delete(victims),
                "forgets": lambda: other.delete([*every, *victims]),
            }
            # Between the look at what is stored and the write.
            left = before_calls(pytest.MonkeyPatch(), embedder, "embed_documents", deeds[deed])
            if way == "index":
                page.write_text(PAGE + "\n## More\n\n" + "More of it. " * 12)
                await store.index(page, **cut)
            else:
                await store.add_documents([*added, Document("new", {}, "new")], on_duplicate=way)
            assert left == []
            kept = {chunk.id: chunk for chunk in await store.get([*victims, *(["new"] if way != "index" else [])])}
    assert len(kept) == len(victims) + (way != "index")
    if not (way == "skip" and deed == "changes"):
        assert "Another text." not in {chunk.content for chunk in kept.values()}
    stored = rows(database_url, "chunk", "chunk_id, context, chunk_text")
    vectors = dict(rows(database_url, "embedding_1", "chunk_id, embedding::text"))
    assert vectors.keys() == {chunk_id for chunk_id, *_ in stored}
    for chunk_id, context, text in stored:
        wanted = HashEmbedder(16).embed_documents([f"{context}\n{text}" if context else text])[0]
        assert json.loads(vectors[chunk_id]) == pytest.approx(wanted.tolist(), abs=1e-5)


WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta"])
TEXTS = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
OWN_IDS = st.sampled_from(["a", "b", "c", f"{'0' * 32}-{'1' * 16}"])


class Store(RuleBasedStateMachine):
    """A collection beside a dictionary id -> (content, metadata), and text and chunks of each file."""

    url = None

    @initialize(small=st.sampled_from([0, 64]))
    def open(self, small):
        self.folder = Path(tempfile.mkdtemp(prefix="semlex-model-"))
        self.store = sync_opened(self.url, bulk=BulkIngestConfig(small_batch_rows=small), **options)
        self.store.initialize()
        self.expected, self.files = {}, {}

    @rule(texts=st.dictionaries(OWN_IDS, TEXTS, min_size=1), skip=st.booleans())
    def add(self, texts, skip):
        documents = [Document(text, {"own": text}, id=chunk_id) for chunk_id, text in texts.items()]
        self.store.add_documents(documents, on_duplicate="skip" if skip else "update")
        added = {document.id: (document.content, document.metadata) for document in documents}
        self.expected = added | self.expected if skip else self.expected | added

    def stored(self):
        """All ids, in an order that is the same in every run: ids of chunks of files follow from the folder's name."""
        files = {chunk_id: name for name, (_, owned) in self.files.items() for chunk_id in owned}
        return sorted(self.expected, key=lambda one: (files.get(one, ""), self.expected[one][0], one))

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), text=st.none() | TEXTS, found=st.booleans())
    def change(self, data, text, found):
        chunk_id = data.draw(st.sampled_from(self.stored()))
        if found:
            hits = self.store.search(self.expected[chunk_id][0], top_k=1000)
            document = next(hit for hit in hits if hit.id == chunk_id)
        else:
            (document,) = self.store.get([chunk_id])
        document.content = text or document.content
        document.metadata["changed"] = text
        self.store.upsert([document])
        self.expected[chunk_id] = (document.content, dict(document.metadata))

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def delete(self, data):
        chosen = data.draw(st.lists(st.sampled_from(self.stored()), min_size=1, max_size=3, unique=True))
        assert self.store.delete(chosen).chunks == len(chosen)
        for chunk_id in chosen:
            del self.expected[chunk_id]
        # A file of which nothing is left is read again.
        self.files = {name: file for name, file in self.files.items() if not file[1].isdisjoint(self.expected)}

    @rule(name=st.sampled_from(["one.md", "two.md"]), sections=st.lists(TEXTS, min_size=1, max_size=3))
    def index(self, name, sections):
        text = "\n\n".join(f"# {section}\n\nText {section} {number}." for number, section in enumerate(sections))
        (self.folder / name).write_text(text)
        report = self.store.index(self.folder / name, chunk_tokens=20, overlap_tokens=0)
        before, owned = self.files.get(name, ("", set()))
        assert (report.failed, report.unchanged) == (0, int(before == text))
        if before == text:
            return
        for chunk_id in owned:
            self.expected.pop(chunk_id, None)
        # What a file is cut into is the chunker's matter: the texts must be the file's, each with the file's name.
        chunks = self.store.search("text", top_k=1000, filters={"source_document": name})
        assert report.chunks == len({hit.id for hit in chunks}) == len(chunks)
        assert all(hit.content in text and hit.metadata == {} for hit in chunks)
        self.expected |= {hit.id: (hit.content, {}) for hit in chunks}
        self.files[name] = (text, {hit.id for hit in chunks})

    def teardown(self):
        if not hasattr(self, "store"):
            return
        try:
            assert self.store.count() == len(self.expected)
            found = self.store.get(sorted(self.expected))
            assert {one.id: (one.content, one.metadata) for one in found} == self.expected
            for word in ("alpha", "text"):
                hits = self.store.search(word, mode="keyword", top_k=1000)
                matching = {one for one, (content, _) in self.expected.items() if word in content.lower().split()}
                assert matching <= {hit.id for hit in hits}
                assert len(hits) == len({hit.id for hit in hits})
            status = self.store.status()
            assert (status.embedded, status.orphaned_vectors, status.chunks_not_indexed) == (len(self.expected), 0, 0)
            self.store.drop_collection()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)


@pytest.mark.slow
def test_every_sequence_of_writes_is_as_with_a_dictionary(database_url, full):
    Store.url = database_url
    run_state_machine_as_test(
        Store, settings=settings(max_examples=400 if full else examples(8), stateful_step_count=12, deadline=None)
    )
