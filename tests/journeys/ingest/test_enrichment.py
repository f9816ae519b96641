"""A line about each chunk: found by words and vectors, never a part of its text, and asked for once."""

import asyncio
import threading
from functools import partial
from itertools import product
from unittest.mock import Mock

import pytest

from semlex import Document, Enrichment, EnrichmentEstimate
from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, WorkAbandonedError
from semlex.ingest.enrichment import MAX_FAILURES_IN_A_ROW, MAX_LINE_TOKENS, ROUNDS_A_BATCH
from semlex.testing import HashEmbedder
from semlex.types.answers import Usage
from tests.support.folders import folder_with
from tests.support.line_models import LineModel, line_about
from tests.support.retrievers import opened, sync_opened
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slow  # most of them
WORD = "zyxwv"  # of every line, and of no document
PAGES = {
    "keys.md": "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n## Storage\n\nKeys are in a vault.\n",
    "fruit.md": "# Fruit\n\n## Bananas\n\nA banana is yellow.\n\n## Cherries\n\nA cherry is red.\n",
}
BATCH_CHUNKS = ROUNDS_A_BATCH * 4  # with the usual number of requests at a time
enriched = partial(sync_opened, chunk_tokens=16)


@pytest.fixture
def folder(tmp_path):
    return folder_with(tmp_path / "docs", PAGES)


def stored(retriever):
    """All that is stored of the chunks but times."""
    return [
        {name: value for name, value in chunk.to_dict().items() if not name.endswith("_at")}
        for chunk in retriever.list_chunks(limit=1000)
    ]


def found(retriever):
    return {hit.id for hit in retriever.search(WORD, top_k=50, mode="keyword")}


@pytest.mark.parametrize("engine", ["bm25", "tsvector"])
@pytest.mark.parametrize("with_vectors", [False, True], ids=["words", "vectors"])
def test_what_is_stored_of_chunks_is_the_same_but_that_lines_find_them(database_url, folder, engine, with_vectors):
    embedder = HashEmbedder(32) if with_vectors else "none"
    with enriched(database_url, embedder, keyword=engine) as retriever:
        retriever.index(folder)
        retriever.add_documents([Document("An added text.", {"chapter_title": "Added"}, id="added")])
        before = stored(retriever)
        assert found(retriever) == set()
        model = LineModel()
        report = retriever.documents.enrich(Enrichment(model, concurrency=2))
        assert (report.chunks, report.written, report.failed, report.left) == (len(before), len(before), 0, 0)
        assert report.usage == Usage(10 * len(before), 2 * len(before))
        assert stored(retriever) == before
        assert found(retriever) == {chunk["id"] for chunk in before}
        assert sorted(model.texts) == sorted(chunk["content"] for chunk in before)
        assert WORD not in retriever.context("keys vault", 2000).text.lower()
        if with_vectors:
            # Each vector is that of the titles, the line and the text.
            titles = {text: above for above, text in model.asked}
            for chunk in before:
                text = chunk["content"]
                alike = HashEmbedder(32).embed_documents([f"{titles[text]}\n{line_about(text)}\n{text}"])[0]
                (best,) = retriever.search("any", top_k=1, vector=alike, mode="vector")
                assert (best.id, best.vector_score) == (chunk["id"], pytest.approx(1, abs=1e-5))
        assert retriever.documents.enrich(model).chunks == 0  # nothing lacks a line


def test_a_batch_gets_the_lines_that_its_chunks_get_one_by_one(database_url, monkeypatch):
    monkeypatch.setattr("semlex.ingest.enrichment.ROUNDS_A_BATCH", 2)
    at_once = 4
    texts = [f"A text with the number {row}." for row in range(at_once * 2 + 3)]
    gate = threading.Barrier(at_once)  # opens when so many requests are on their way

    def before(number):
        if 2 <= number <= at_once + 1:  # the first is semlex's own
            gate.wait(LIMIT)

    together, alone = LineModel(before=before), LineModel()
    with enriched(database_url, 16, collection="together") as retriever:
        retriever.add_texts(texts, ids=texts)
        retriever.documents.enrich(Enrichment(together, concurrency=at_once))
        vectors = [[hit.id for hit in retriever.search(text, top_k=5, mode="vector")] for text in texts]
        words = found(retriever)
    with enriched(database_url, 16, collection="alone") as retriever:
        for text in texts:
            retriever.add_documents([Document(text, id=text)], enrichment=alone)
        assert vectors == [[hit.id for hit in retriever.search(text, top_k=5, mode="vector")] for text in texts]
        assert words == found(retriever)
    assert sorted(together.texts) == sorted(alone.texts) == sorted(texts)
    assert together.most_at_once == at_once


def test_files_get_their_lines_when_they_are_indexed_and_keep_them(database_url, folder):
    model = LineModel()
    with enriched(database_url, 32) as retriever:
        retriever.add_documents([Document("Not of this run.", id="other")])
        report = retriever.index(folder, enrichment=model)
        assert report.enrichment.written == report.chunks == 4
        assert "Not of this run." not in model.texts
        retriever.index(folder, enrichment=model)
        retriever.sync(folder, enrichment=model)
        assert len(model.texts) == 4
        # A changed file is asked about where it changed, whoever stores it.
        (folder / "keys.md").write_text(PAGES["keys.md"].replace("ninety", "sixty"), encoding="utf-8")
        report = retriever.sync(folder, enrichment=model).run
        assert (report.enrichment.written, report.lines_kept) == (1, 1)
        assert model.texts[4:] == ["# Keys\n\n## Rotation\n\nRotate a key every sixty days."]
        (folder / "keys.md").write_text(PAGES["keys.md"].replace("ninety", "thirty"), encoding="utf-8")
        report = retriever.index(folder)
        assert (report.lines_kept, report.embedded, report.enrichment) == (1, 1, None)
        assert len(found(retriever)) == 3
        assert retriever.documents.enrich(model, dry_run=True).chunks == 2  # of the changed file, and the added one
        # A file of another name keeps its lines with its chunks.
        (folder / "fruit.md").rename(folder / "apples.md")
        retriever.sync(folder)
        assert len(found(retriever)) == 3
        assert retriever.documents.enrich(model, source="docs").written == 1
        # Chunks keep their lines when they are split again, and with another embedding model.
        lines = found(retriever)
        report = retriever.documents.rechunk(chunk_tokens=17)
        assert (len(lines), report.changed, report.lines_kept, report.embedded) == (4, 2, 4, 0)
        assert found(retriever) == lines
        retriever.embeddings.change(HashEmbedder(48))
    with sync_opened(database_url, 48) as retriever:
        assert found(retriever) == lines
        assert retriever.search(line_about("x"), top_k=1)[0].vector_score is not None
        assert retriever.documents.enrich(model, source="docs", dry_run=True).chunks == 0
    assert len(model.texts) == 6


def test_documents_keep_their_line_until_they_change(database_url):
    model = LineModel()
    for collection, embedder in (("a", "none"), ("b", 16)):
        with enriched(database_url, embedder, collection=collection) as retriever:
            documents = [Document(f"Text number {row}.", {"year": row}, id=f"{row}") for row in range(3)]
            retriever.add_documents(documents, enrichment=model)
            retriever.add_documents([Document("Text number 0.", {"year": 7}, id="0")])
            retriever.add_documents([Document("Text number 1, changed.", {"year": 1}, id="1")])
            assert found(retriever) == {"0", "2"}
            assert [hit.metadata["year"] for hit in retriever.get(["0"])] == [7]
            asked = len(model.texts)
            retriever.documents.enrich(model)
            assert model.texts[asked:] == ["Text number 1, changed."]


def test_costs_are_estimated_and_another_text_or_model_gets_another_line(database_url, folder):
    model = LineModel()
    with enriched(database_url, "none") as retriever:
        estimate = retriever.index(folder, enrichment=Enrichment(model, dry_run=True)).enrichment.estimate
        assert model.asked == []
        assert (estimate.chunks, estimate.tokens_out) == (4, 4 * MAX_LINE_TOKENS)
        assert estimate == retriever.documents.enrich(model, dry_run=True).estimate
        assert 4 * 100 < estimate.tokens_in < 4 * 500
        assert retriever.documents.enrich(model, source="docs", dry_run=True).estimate == estimate
        with pytest.raises(ConfigurationError, match="nothing"):
            retriever.documents.enrich(model, source="nothing")
        retriever.documents.enrich(model)
        assert retriever.documents.enrich(model, dry_run=True).estimate == EnrichmentEstimate(0, 0, 0)
        # If a chunk is stored with another text, the line about the old one goes, and it gets one line, not two.
        chunk = next(chunk for chunk in retriever.list_chunks(limit=10) if "banana" in chunk.content)
        retriever.add_documents([chunk])
        assert chunk.id in found(retriever)
        chunk.content = "A banana is green."
        retriever.add_documents([chunk])
        assert chunk.id not in found(retriever)
        retriever.documents.enrich(model)
        assert model.asked[-1] == ("Fruit > Bananas", "A banana is green.")
        other = LineModel(lambda text: f"Qwertz {len(text)}", "another")
        assert retriever.documents.enrich(other).written == 4
        assert (found(retriever), len(retriever.search("qwertz", top_k=10))) == (set(), 4)
        titles = {"Keys > Rotation", "Keys > Storage", "Fruit > Bananas", "Fruit > Cherries"}
        assert {titles for titles, _ in other.asked[1:]} == titles


def test_a_model_that_is_down_is_an_error_and_one_failure_leaves_its_chunk_plain(database_url, folder, caplog):
    fails = Mock(side_effect=ZeroDivisionError("a secret text"))

    def fails_on_fruit(text):
        if "cherry" in text:
            raise ValueError(text)
        return line_about(text)

    message = "no descriptions are written: ZeroDivisionError; on_failure='plain' stores"
    with enriched(database_url, "none") as retriever:
        for call in (retriever.index, retriever.sync):
            with pytest.raises(ModelError, match=message) as caught:
                call(folder, enrichment=LineModel(fails))
            assert "secret" not in str(caught.value)
            assert stored(retriever) == []
        report = retriever.index(folder, enrichment=Enrichment(LineModel(fails), on_failure="plain"))
        assert (report.added, report.chunks, len(stored(retriever))) == (2, 4, 4)
        lines = report.enrichment
        assert (lines.chunks, lines.written, lines.failed, lines.left) == (4, 0, 4, 0)
        assert lines.first_failure == "ZeroDivisionError"
    with enriched(database_url, 16, collection="one") as retriever:
        lines = retriever.index(folder, enrichment=LineModel(fails_on_fruit)).enrichment
        assert (lines.written, lines.failed, lines.first_failure) == (3, 1, "ValueError")
        assert len(found(retriever)) == 3
        assert retriever.embeddings.fill() == 0
        again = LineModel()  # is asked for the chunk without a line alone
        retriever.documents.enrich(again)
        assert again.texts == ["## Cherries\n\nA cherry is red."]
        retriever.add_documents([Document("One more cherry.", id="c")], enrichment=LineModel(fails_on_fruit))
        assert "1 of 1 chunks got no description: ValueError" in caplog.text


def test_a_model_that_only_fails_is_left_alone(database_url):
    """After so many failures in a row nothing more is sent; what was not asked for is told apart."""
    count = 192

    def fails(text):
        if int(text.rsplit(maxsplit=1)[-1]) >= 10:
            raise ValueError
        return line_about(text)

    with enriched(database_url, "none") as retriever:
        retriever.add_texts([f"text {row}" for row in range(count)], ids=[f"{row:04}" for row in range(count)])
        model = LineModel(fails)
        # Ids are hashed into keys: which ones come first is nobody's to say.
        report = retriever.documents.enrich(Enrichment(model, concurrency=1, on_failure="plain"))
        assert report.failed + report.written == len(model.texts) < count
        assert report.written + report.failed + report.left == count
        assert report.failed >= MAX_FAILURES_IN_A_ROW
        assert retriever.documents.enrich(LineModel()).written == count - report.written
        assert retriever.documents.enrich(LineModel()).written == 0


async def test_a_run_that_is_ended_asks_for_the_rest_alone(database_url):
    texts, reached = [f"text {row}" for row in range(4 * BATCH_CHUNKS)], threading.Event()

    def before(number):
        if number == 2 * BATCH_CHUNKS + 10:
            reached.set()

    first, second = LineModel(before=before), LineModel()
    async with opened(database_url, "none") as retriever:
        await retriever.add_texts(texts, ids=texts)
        run = asyncio.ensure_future(retriever.documents.enrich(first))
        assert await asyncio.to_thread(reached.wait, LIMIT)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        there = {hit.content for hit in await retriever.search(WORD, top_k=1000, mode="keyword")}
        assert len(there) % BATCH_CHUNKS == 0
        await retriever.documents.enrich(second)
        assert set(second.texts) == set(texts) - there
        assert len(second.texts) == len(set(second.texts))
        # What was asked twice is what was on its way: a batch being written, and one being asked for.
        assert len(set(first.texts) & set(second.texts)) <= 2 * BATCH_CHUNKS
        assert len(await retriever.search(WORD, top_k=1000, mode="keyword")) == len(texts)


async def test_when_one_request_is_abandoned_no_other_is_begun(database_url):
    abandoned = threading.Event()

    def before(number):
        if number == 2:  # the first is semlex's own
            abandoned.set()
            raise WorkAbandonedError("nobody waits")
        if number > 2:
            assert abandoned.wait(LIMIT)

    model = LineModel(before=before)
    async with opened(database_url, "none") as retriever:
        await retriever.add_texts([f"text {row}" for row in range(4 * BATCH_CHUNKS)])
        with pytest.raises(WorkAbandonedError):
            await retriever.documents.enrich(model)
        assert not [task for task in asyncio.all_tasks() if "_ask" in repr(task)]


async def test_a_chunk_that_changes_meanwhile_gets_no_line(database_url):
    asked, changed = threading.Event(), threading.Event()

    def before(number):
        if number == 2:  # the first is semlex's own
            asked.set()
            assert changed.wait(LIMIT)

    async with opened(database_url, 16) as retriever:
        await retriever.add_texts(["one", "two"], ids=["1", "2"])
        run = asyncio.ensure_future(retriever.documents.enrich(LineModel(before=before)))
        assert await asyncio.to_thread(asked.wait, LIMIT)
        await retriever.add_texts(["another"], ids=["1"])
        changed.set()
        report = await run
        assert (report.chunks, report.written, report.failed) == (2, 1, 0)
        assert {hit.id for hit in await retriever.search(WORD, mode="keyword")} == {"2"}
        assert await retriever.embeddings.fill() == 0


def test_invalid_models_are_refused_and_the_collections_model_is_required(database_url, folder):
    for options in ({"concurrency": 0}, {"concurrency": 65}, {"on_failure": "ignore"}, {"dry_run": 1}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            Enrichment("openai:x", **options)
    wrong = {Enrichment: "model", "": "model", "nowhere:x:": "the language model must be", 7: "model"}
    with enriched(database_url, "none") as retriever:
        calls = partial(retriever.index, folder), retriever.documents.enrich
        for call, (model, message) in product(calls, wrong.items()):
            with pytest.raises(ConfigurationError, match=message):
                call(enrichment=model)
        with pytest.raises(ConfigurationError, match="must name a language model"):
            retriever.documents.enrich("none")
        with pytest.raises(ConfigurationError, match="without dry_run or without enrichment"):
            retriever.sync(folder, dry_run=True, enrichment=LineModel())
        assert retriever.index(folder, enrichment="none").enrichment is None
    with enriched(database_url, 16, collection="vectors") as retriever:
        retriever.add_texts(["one"])
    with enriched(database_url, "none", collection="vectors") as retriever:
        model = LineModel()
        with pytest.raises(EmbeddingsMissingError, match="name the collection's"):
            retriever.documents.enrich(model)
        assert model.asked == []
