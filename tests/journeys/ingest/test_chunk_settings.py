"""How texts are cut: nothing is cut again automatically, and everything is on request."""

from unittest.mock import Mock

import pytest

from semlex import preview_chunks
from semlex.errors import CollectionSettingsError, ConfigurationError, ModelError
from semlex.ingest import document_chunks
from semlex.ingest import run as file_run
from semlex.ingest.loaders.markdown import HtmlLoader, MarkdownLoader
from semlex.options.collection import ChunkSettings
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.spies import before_calls

LOADER, RULES = MarkdownLoader.version, document_chunks.RULES_VERSION


@pytest.fixture
def docs(tmp_path):
    def text(name):
        return "\n\n".join(f"# Part {part} of {name}\n\n" + f"word{part} and others " * 50 for part in range(3))

    return folder_with(tmp_path / "docs", {"a.md": text("a"), "b.md": text("b"), "c.mdown": "# One\n\nof a kind"})


@pytest.fixture
def store(database_url, docs):
    with sync_opened(database_url) as retriever:
        retriever.index(docs, chunk_tokens=300)
        yield retriever


def test_a_run_that_stores_nothing_settles_nothing(database_url, docs):
    broken = HashEmbedder(8)
    broken.embed_documents = Mock(side_effect=ModelError("no room"))
    with sync_opened(database_url, broken) as retriever:
        for chunk_tokens in (300, 200):  # the second is not compared with the first
            with pytest.raises(ModelError, match="no room"):
                retriever.index(docs, chunk_tokens=chunk_tokens)
    with sync_opened(database_url) as retriever:
        assert retriever.index(docs, chunk_tokens=100).added == 3
        assert {row[2] for row in cut_with(database_url)} == {100}
        with pytest.raises(ConfigurationError, match=r"chunk_tokens.*100.*300"):
            retriever.index(docs, chunk_tokens=300)


def test_of_two_first_runs_one_decides(database_url, docs, monkeypatch):
    def index():
        with sync_opened(database_url) as other:
            other.index(docs, chunk_tokens=100)

    before_calls(monkeypatch, file_run, "prepare_file", index)
    with sync_opened(database_url) as retriever:
        with pytest.raises(ConfigurationError, match=r"another run .* chunk_tokens=100"):
            retriever.index(docs, chunk_tokens=300)
        assert {row[2] for row in cut_with(database_url)} == {100}
        assert retriever.index(docs).unchanged == 3


def cut_with(url):
    columns = "loader_version, chunker_version, chunk_tokens, overlap_tokens"
    return set(execute(url, f"SELECT {columns} FROM semlex.default_collection_document"))


@pytest.mark.slow
def test_a_new_version_cuts_nothing_by_itself(store, docs, database_url, monkeypatch):
    before = store.count()
    for column in ("loader_version", "chunker_version"):
        # As an older version has cut them.
        execute(database_url, f"UPDATE semlex.default_collection_document SET {column} = {column} - 1")
        report = store.index(docs)
        assert (report.added, report.changed, report.unchanged, report.outdated, store.count()) == (0, 0, 3, 3, before)
        planned = store.documents.rechunk(dry_run=True)
        assert (planned.changed, planned.chunks, planned.embedded, planned.unchanged) == (3, before, 0, 0)
        assert len(cut_with(database_url)) == 1
        done = store.documents.rechunk()
        assert (done.changed, done.chunks, done.embedded) == (3, before, 0)  # the same texts keep their vectors
        assert store.index(docs).outdated == 0
        assert cut_with(database_url) == {(LOADER, RULES, 300, 50)}
        assert store.documents.rechunk(dry_run=True).changed == 0
    # HTML that did not change is not converted.
    (docs / "page.html").write_text("<h1>One</h1><p>of a kind</p>", encoding="utf-8")
    assert store.index(docs).added == 1
    monkeypatch.delattr(HtmlLoader, "load")
    assert store.index(docs).unchanged == 4


def test_other_settings_cut_all_of_a_collection(store, docs, database_url):
    for options, message in (
        ({"source": "x"}, "unknown source 'x'; known sources: docs"),
        ({"source": "docs", "chunk_tokens": 60}, "the whole collection"),
        ({"chunk_tokens": 5}, "chunk_tokens must be"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            store.documents.rechunk(**options)
    before = store.count()
    planned = store.documents.rechunk(chunk_tokens=60, overlap_tokens=0, dry_run=True)
    assert (planned.changed, planned.chunks > before) == (3, True)
    assert (store.count(), cut_with(database_url)) == (before, {(LOADER, RULES, 300, 50)})
    done = store.documents.rechunk(chunk_tokens=60, overlap_tokens=0)
    assert (done.changed, done.chunks, done.embedded) == (3, planned.chunks, planned.embedded)
    assert (store.count(), cut_with(database_url)) == (planned.chunks, {(LOADER, RULES, 60, 0)})
    assert store.index(docs).unchanged == 3
    assert store.index(docs, chunk_tokens=60, overlap_tokens=0).unchanged == 3
    # Settings that another process has changed stay.
    with sync_opened(database_url) as other:
        other.documents.rechunk(chunk_tokens=70, overlap_tokens=0)
    assert store.documents.rechunk(dry_run=True).changed == 0
    assert store.documents.rechunk().changed == 0
    assert cut_with(database_url) == {(LOADER, RULES, 70, 0)}
    assert store.index(docs, chunk_tokens=70).unchanged == 3
    # Files that are gone keep their chunks.
    (docs / "a.md").unlink()
    before = store.count({"source_document": "a.md"})
    report = store.documents.rechunk(chunk_tokens=299)
    assert (report.changed, report.failed, [problem.code for problem in report.problems]) == (2, 1, ["missing"])
    assert store.count({"source_document": "a.md"}) == before > 0


def test_a_run_that_was_ended_is_completed(store, docs, database_url, monkeypatch):
    monkeypatch.setattr("semlex.ingest.run.BATCH_CHUNKS", 1)
    fails_later = Mock(side_effect=[None, RuntimeError])
    with monkeypatch.context() as patched:
        before_calls(patched, HashEmbedder, "embed_documents", fails_later, fails_later)
        with pytest.raises(RuntimeError):
            store.documents.rechunk(chunk_tokens=60)
    assert len(cut_with(database_url)) == 2
    assert store.index(docs).outdated == 2
    assert store.documents.rechunk().changed == 2
    assert cut_with(database_url) == {(LOADER, RULES, 60, 29)}


@pytest.fixture
def sections(tmp_path):
    """Twelve sections of 101 words with a heading each, and one of a thousand."""
    small = [f"## Section {number}\n\n" + "word " * 99 for number in range(12)]
    return folder_with(tmp_path / "sections", {"page.md": "\n\n".join([*small, "## Long\n\n" + "word " * 1000])})


def tokens(url):
    """Tokens of the chunks of the page, in its order."""
    rows = execute(url, "SELECT token_count FROM semlex.default_collection_chunk ORDER BY chunk_no")
    return [count for (count,) in rows]


@pytest.mark.slow
def test_small_sections_are_joined_and_long_ones_split(database_url, sections):
    with sync_opened(database_url) as retriever:
        assert retriever.index(sections, min_tokens=200, chunk_tokens=600).added == 1
        joined = tokens(database_url)
        assert (joined[:6], len(joined)) == ([202] * 6, 8)
        assert all(200 <= count <= 600 for count in joined)
        previewed = next(preview_chunks(sections, min_tokens=200, chunk_tokens=600)).chunks
        assert [chunk.tokens for chunk in previewed] == joined
        assert retriever.status().chunk_settings == ChunkSettings(600, 50, 200)
    with sync_opened(database_url) as retriever:  # without saying so again
        assert retriever.index(sections).unchanged == 1
        (sections / "page.md").write_text((sections / "page.md").read_text().replace("Long", "Longer"))
        assert retriever.index(sections).changed == 1
        assert tokens(database_url) == joined
    with sync_opened(database_url) as retriever:
        with pytest.raises(CollectionSettingsError, match=r"=200, but you gave 100: .*rechunk .*--min-tokens 100"):
            retriever.index(sections, min_tokens=100)
        with pytest.raises(CollectionSettingsError, match="min_tokens=200"):
            retriever.sync(sections, min_tokens=100)
        assert retriever.documents.rechunk(dry_run=True).unchanged == 1
        assert retriever.documents.rechunk(min_tokens=0, dry_run=True).changed == 1
        assert tokens(database_url) == joined
        report = retriever.documents.rechunk(min_tokens=0)
        assert (report.changed, tokens(database_url)[:12]) == (1, [101] * 12)
        assert retriever.index(sections, min_tokens=0).unchanged == 1
        assert retriever.documents.rechunk(dry_run=True).unchanged == 1
