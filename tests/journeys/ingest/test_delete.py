"""Deleting by id, document, source, filter and because the file is gone: counts, what is left, other writers."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from semlex.errors import ConfigurationError
from semlex.ingest.progress import DeleteReport
from semlex.store.write import deletes
from semlex.types.documents import Document
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.whole_collection import count_faults

WORDS = ("apple", "birch", "cedar", "daisy", "elder", "fern")
PAGES = len(WORDS)
NOTES = 8


@pytest.fixture
def handbook(tmp_path):
    def text(number, word):
        return "\n\n".join(f"# Part {part} of {number}\n\n" + f"{word} part{part} " * 40 for part in range(3))

    pages = {f"sub/p{number}.md": text(number, word) for number, word in enumerate(WORDS)}
    return folder_with(tmp_path / "handbook", pages | {"empty.md": ""})


@pytest.fixture(params=["bm25"])
def store(database_url, looking, handbook, request):
    """Six pages of three chunks and an empty one; eight notes, two a topic, of which two are called like a page."""
    with sync_opened(database_url, keyword=request.param, chunk_tokens=100) as retriever:
        retriever.looking = looking
        fill(retriever, handbook)
        yield retriever


def fill(retriever, handbook):
    retriever.index(handbook)
    rows = [Document(f"note{n}", {"topic": n // 2, "source_document": f"n{n // 2}"}, f"note-{n}") for n in range(NOTES)]
    retriever.add_documents(rows)
    assert retriever.count() == 3 * PAGES + NOTES


engines = pytest.mark.parametrize("store", ["bm25", "tsvector"], indirect=True)


def tables(store):
    """Numbers of chunks and of documents with a row; every count and key fits."""
    assert count_faults(store.looking, "default_collection").keys() <= {"a chunk without a document"}  # the notes
    statement = "SELECT count(*) FROM semlex.default_collection_"
    return [store.looking.execute(statement + table).fetchone()[0] for table in ("chunk", "document")]


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
            assert store.delete(**given, dry_run=True) == DeleteReport(chunks, documents, dry_run=True), given
            assert tables(store) == before
            assert store.delete(**given) == DeleteReport(chunks, documents), given
            assert tables(store)[0] == before[0] - chunks
            if given == {"source": "handbook"}:  # the source has gone with its documents
                with pytest.raises(ConfigurationError, match="unknown source 'handbook'"):
                    store.delete(**given)
            else:
                assert store.delete(**given) == DeleteReport(0, 0), given
            if chunks or documents:
                with contextlib.suppress(ConfigurationError):  # the source has gone
                    store.delete(source="handbook")  # a page is read again when all of it is gone
                fill(store, handbook)
            assert tables(store) == before
    # Chunks of one document stay in one transaction.
    ids = [identity for word in WORDS for identity in ids_of(store, word)]
    assert len(set(ids)) == 3 * PAGES
    for dry_run in (True, False):
        assert store.delete(ids, dry_run=dry_run) == DeleteReport(3 * PAGES, PAGES, dry_run)


def test_unclear_deletions_are_refused_and_deletions_of_files_are_logged(store, handbook, tmp_path, database_url):
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
    statement = (
        "SELECT source_uri, deleted, added, finished_at >= started_at, seconds >= 0 "
        "FROM semlex.default_collection_ingestion_log WHERE command = 'delete' ORDER BY started_at"
    )
    expected = {"other, sub/p1.md": 1, "handbook, sub/p1.md": 1, "handbook": PAGES}
    assert execute(database_url, statement) == [(uri, deleted, 0, True, True) for uri, deleted in expected.items()]
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

    def repeat(work):
        with sync_opened(database_url) as other:
            for round_ in range(8):
                work(other, round_)

    def index(other, round_):
        other.index(folder_with(handbook, {"sub/p1.md": f"# Part 1 of 1\n\nbirch in round {round_}\n"}))

    def delete_source(other, _):
        with contextlib.suppress(ConfigurationError):  # nobody has indexed it again
            other.delete(source="handbook")

    works = [
        index,
        delete_source,
        lambda other, _: other.delete(ids_of(other, "birch cedar daisy")),
        lambda other, _: other.delete(filters={"chapter_title": "Part 1 of 3"}),
    ]
    with ThreadPoolExecutor() as threads:
        list(threads.map(repeat, works))
    store.index(handbook)
    tables(store)
    assert len(ids_of(store, "elder")) == 3
