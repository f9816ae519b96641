"""Deleting by id, document, source, filter and because the file is gone: counts, what is left, other writers."""

import contextlib
import threading

import psycopg
import pytest

from semlex.errors import ConfigurationError
from semlex.ingest.progress import DeleteReport
from semlex.store.write import deletes
from semlex.types.documents import Document
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened

WORDS = ("apple", "birch", "cedar", "daisy", "elder", "fern")
PAGES = len(WORDS)
NOTES = 8


@pytest.fixture
def handbook(tmp_path):
    def text(number, word):
        return "\n\n".join(f"# Part {part} of {number}\n\n" + f"{word} part{part} " * 40 for part in range(3))

    pages = {f"sub/p{number}.md": text(number, word) for number, word in enumerate(WORDS)}
    return folder_with(tmp_path / "handbook", pages | {"empty.md": ""})


@pytest.fixture
def keyword():
    return "bm25"


@pytest.fixture
def store(database_url, handbook, keyword):
    """Six pages of three chunks and an empty one; eight notes, two a topic, of which two are called like a page."""
    with sync_opened(database_url, keyword=keyword, chunk_tokens=100) as retriever:
        fill(retriever, handbook)
        yield retriever


def fill(retriever, handbook):
    retriever.index(handbook)
    notes = [
        Document(f"note{number}", {"topic": number // 2, "source_document": f"n{number // 2}"}, f"note-{number}")
        for number in range(NOTES)
    ]
    retriever.add_documents(notes)
    assert retriever.count() == 3 * PAGES + NOTES


engines = pytest.mark.parametrize("keyword", ["bm25", "tsvector"])


def tables(store):
    """Chunks, vectors, and documents with a row; every count and key fits."""
    with psycopg.connect(store.asynchronous._resources.server.db_url or "") as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM semlex.default_collection_chunk), "
            "(SELECT count(*) FROM semlex.default_collection_embedding_1 JOIN semlex.default_collection_chunk "
            "USING (document_id, chunk_id)), (SELECT count(*) FROM semlex.default_collection_document), "
            "(SELECT count(*) FROM semlex.default_collection_embedding_1), "
            "(SELECT count(*) FROM semlex.default_collection_document AS d WHERE chunk_count <> "
            "(SELECT count(*) FROM semlex.default_collection_chunk AS c WHERE c.document_id = d.document_id))"
        ).fetchone()
    chunks, vectors, documents, all_vectors, wrong_counts = row
    assert (vectors, wrong_counts) == (all_vectors, 0)
    return chunks, vectors, documents


def ids_of(store, question):
    return sorted(hit.id for hit in store.search(question, 50, mode="keyword"))


CASES = [
    ({"ids": ["note-0", "note-1", "nothing"]}, 2, 2),
    ({"ids": []}, 0, 0),
    ({"document": "sub/p1.md"}, 3, 1),
    ({"document": "sub/p1.md", "source": "handbook"}, 3, 1),
    ({"document": "empty.md"}, 0, 1),
    ({"document": "n2"}, 2, 2),
    ({"document": "nowhere.md"}, 0, 0),
    ({"source": "handbook"}, 3 * PAGES, PAGES + 1),
    ({"filters": {"topic": 1}}, 2, 2),
    ({"filters": {"source_document": "sub/p0.md"}}, 3, 1),
    ({"filters": {"chapter_title": "Part 1 of 3"}}, 1, 0),
    ({"source": "handbook", "filters": {"chapter_title": "Part 1 of 3"}}, 1, 0),
    ({"source": "handbook", "filters": {"topic": 1}}, 0, 0),
    ({"document": "sub/p1.md", "filters": {"source_document": "sub/p0.md"}}, 0, 0),
    ({"ids": ["note-0", "note-2"], "filters": {"topic": 1}}, 1, 1),
    ({"ids": ["note-0"], "source": "handbook"}, 0, 0),
]


def test_counts_are_exact_and_a_dry_run_tells_them(store, handbook, monkeypatch):
    monkeypatch.setattr("semlex.ingest.deletion.BATCH_DOCUMENTS", 2)  # several transactions
    before = tables(store)
    with monkeypatch.context() as patched:
        patched.setattr(deletes, "BATCH_DOCUMENTS", 2)
        for given, chunks, documents in CASES:
            told = store.delete(**given, dry_run=True)
            assert (told.chunks, told.documents, told.dry_run) == (chunks, documents, True), given
            assert tables(store) == before
            done = store.delete(**given)
            assert (done.chunks, done.documents, done.dry_run) == (chunks, documents, False), given
            assert tables(store)[0] == before[0] - chunks
            if given == {"source": "handbook"}:  # the source has gone with its documents
                with pytest.raises(ConfigurationError, match="unknown source 'handbook'"):
                    store.delete(**given)
            else:
                again = store.delete(**given)
                assert (again.chunks, again.documents) == (0, 0), given
            if chunks or documents:
                with contextlib.suppress(ConfigurationError):  # the source has gone
                    store.delete(source="handbook")  # a page is read again when all of it is gone
                fill(store, handbook)
            assert tables(store) == before
    # Chunks of one document stay in one transaction.
    ids = [identity for word in WORDS for identity in ids_of(store, word)]
    assert len(set(ids)) == 3 * PAGES
    told = store.delete(ids, dry_run=True)
    assert (told.chunks, told.documents) == (3 * PAGES, PAGES)
    done = store.delete(ids)
    assert (done.chunks, done.documents) == (3 * PAGES, PAGES)


def test_unclear_deletions_are_refused_and_deleted_files_are_logged_beside_the_last_run(store, handbook, tmp_path):
    before = tables(store)
    with pytest.raises(ConfigurationError, match="name what to delete"):
        store.delete()
    with pytest.raises(ConfigurationError, match="unknown source 'handbok'; known sources: handbook"):
        store.delete(source="handbok")
    store.index(folder_with(tmp_path / "other", {"sub/p1.md": "birch again"}))
    last = store.status().last_run
    with pytest.raises(ConfigurationError, match=r"several sources .* \(source=\): handbook, other"):
        store.delete(document="sub/p1.md")
    assert store.delete(document="sub/p1.md", source="other").chunks == 1
    assert tables(store) == before
    store.delete(["note-0"])
    store.delete(document="nowhere.md")
    store.delete(document="sub/p1.md", dry_run=True)
    store.delete(document="sub/p1.md", source="handbook")
    store.delete(source="handbook")
    with psycopg.connect(store.asynchronous._resources.server.db_url or "") as connection:
        logged = connection.execute(
            "SELECT source_uri, deleted, added, finished_at >= started_at, seconds >= 0 "
            "FROM semlex.default_collection_ingestion_log WHERE command = 'delete' ORDER BY started_at"
        ).fetchall()
    expected = {"other, sub/p1.md": 1, "handbook, sub/p1.md": 1, "handbook": PAGES}
    assert logged == [(uri, deleted, 0, True, True) for uri, deleted in expected.items()]
    assert store.status().last_run == last


@engines
def test_what_is_deleted_is_not_found_and_can_come_back(store, handbook):
    assert len(ids_of(store, "birch")) == 3
    store.delete(document="sub/p1.md")
    assert ids_of(store, "birch") == []
    report = store.index(handbook)
    assert (report.added, report.unchanged) == (1, PAGES)
    assert len(ids_of(store, "birch")) == 3
    first, *rest = ids_of(store, "cedar")
    assert store.delete([first]) == DeleteReport(1, 0)
    assert ids_of(store, "cedar") == rest
    tables(store)  # chunk_count of its document
    assert store.delete(rest) == DeleteReport(2, 1)


@pytest.mark.slow
@engines
def test_deleting_beside_indexing_and_other_deletions(store, database_url, handbook):
    """Nobody waits for another in a circle, and in the end everything fits."""
    failures = []

    def repeat(work):
        try:
            with sync_opened(database_url) as other:
                for round_ in range(8):
                    work(other, round_)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    def index(other, round_):
        page = handbook / "sub" / "p1.md"
        page.write_text(f"# Part 1 of 1\n\nbirch in round {round_}\n", encoding="utf-8")
        other.index(handbook)

    def delete_source(other, _):
        with contextlib.suppress(ConfigurationError):  # nobody has indexed it again
            other.delete(source="handbook")

    works = [
        index,
        delete_source,
        lambda other, _: other.delete(ids_of(other, "birch cedar daisy")),
        lambda other, _: other.delete(filters={"chapter_title": "Part 1 of 3"}),
    ]
    threads = [threading.Thread(target=repeat, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store.index(handbook)
    tables(store)
    assert len(ids_of(store, "elder")) == 3
