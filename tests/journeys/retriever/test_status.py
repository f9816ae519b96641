"""What is told of a collection and of its server: figures, estimates, problems with their remedies."""

import re
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from semlex.diagnostics.doctor import examine_server
from semlex.retriever.synchronous import SyncClient
from semlex.store.query import statistics
from semlex.types.documents import Document
from tests.support import second_migration
from tests.support.databases import new_role
from tests.support.retrievers import opened as async_opened
from tests.support.retrievers import sync_opened as opened

CHUNK = "semlex.default_collection_chunk"
TWO_GONE = "DELETE FROM semlex.default_collection_chunk WHERE chunk_id IN ('d1', 'd2')"


def filled(url, count=50):
    with opened(url) as retriever:
        retriever.add_documents([Document(f"text {number}", id=f"d{number}") for number in range(count)])


def execute(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def counted(url):
    with SyncClient(url, "none", use_reranking=False) as client:
        return client.count_collections()


def test_large_tables_are_estimated_unless_asked(database_url, monkeypatch):
    filled(database_url)
    with opened(database_url) as retriever:
        status = retriever.status()
        assert (status.estimated, status.chunks, status.embedded, status.tokens) == (False, 50, 50, 0)
        assert status == replace(retriever.status(exact=True), query_cache=status.query_cache)
        # Without statistics there is nothing to estimate by.
        monkeypatch.setattr(statistics, "SMALL_BYTES", 0)
        [entry] = counted(database_url)
        for one in (entry, retriever.status()):
            assert (one.chunks, one.estimated) == (50, False)
        execute(database_url, f"ANALYZE {CHUNK}, semlex.default_collection_embedding_1")
        execute(database_url, TWO_GONE)
        status, exact = retriever.status(), retriever.status(exact=True)
    [entry] = counted(database_url)
    assert (entry.documents, entry.chunks, entry.estimated) == (50, 50, True)
    assert (status.chunks, status.embedded, status.estimated) == (50, 50, True)
    assert (status.tokens, status.orphaned_vectors, status.chunks_not_indexed) == (None, None, None)
    assert (exact.chunks, exact.embedded, exact.estimated) == (48, 48, False)
    assert (exact.tokens, exact.orphaned_vectors, exact.chunks_not_indexed) == (0, 2, 0)
    assert status.index_segments == exact.index_segments == 1


@pytest.mark.slow
def test_collections_with_their_counts(shell):
    assert shell("collections").stderr == "no collections: semlex index FOLDER makes one\n"
    url = shell.environment["DATABASE_URL"]
    filled(url)
    shell("index", "docs", "-c", "handbook")
    first, second = shell.objects("collections")
    assert [first[name] for name in ("name", "documents", "chunks")] == ["default_collection", 50, 50]
    assert first["estimated"] is False
    assert (second["name"], second["documents"]) == ("handbook", 2)
    assert {"name", "keyword", "language", "embedding_model", "dimensions", "created_at"} < set(second)
    titles, *rows = shell("collections").stdout.splitlines()
    assert titles.split() == ["name", "documents", "chunks", "model", "language"]
    assert rows == shell("collections", "--no-header").stdout.splitlines()
    assert rows[0].split()[:3] == ["default_collection", "50", "50"]
    assert {line.index("english") for line in rows} == {titles.index("language")}
    # What a role may not read, or what somebody dropped, is no reason to hide the others.
    execute(url, "DROP TABLE semlex.handbook_chunk CASCADE")
    first, second = shell.objects("collections")
    assert (first["chunks"], second["documents"], second["chunks"]) == (50, None, None)
    assert shell("collections", "--no-header").stdout.splitlines()[1].split()[1:3] == ["unknown", "unknown"]


def test_documents_that_were_added_count_beside_files(database_url, tmp_path, monkeypatch):
    (tmp_path / "long.md").write_text("# One\n\n" + "A key. " * 20 + "\n\n# Two\n\n" + "A vault. " * 20)
    (tmp_path / "empty.md").write_text("")
    with opened(database_url) as retriever:
        retriever.index(tmp_path, chunk_tokens=40)
        retriever.add_texts(["one", "two"], ids=["one", "two"])
        status = retriever.status()
        assert (status.documents, status.estimated) == (4, False)
        assert status.chunks > 4
        monkeypatch.setattr(statistics, "SMALL_BYTES", 0)
        execute(database_url, f"ANALYZE {CHUNK}")
        assert (retriever.status().documents, retriever.status().estimated) == (3, True)  # the empty file has no chunk
        assert retriever.status(exact=True).documents == 4
    monkeypatch.undo()
    assert [entry.documents for entry in counted(database_url)] == [4]


@pytest.mark.slow
def test_people_read_the_figures_in_words(shell):
    shell("index", "docs")
    told = shell("status").stdout
    groups = [line for line in told.splitlines() if not line.startswith(" ")]
    assert groups == ["Collection", "Content", "Vectors", "Words", "Last run"]
    assert not [line for line in told.splitlines() if "_" in line[:26]]  # the labels
    for line in ("documents                2", "chunks with a vector     2", "2 new, 0 changed, 0 unchanged, 0 failed"):
        assert f"{line}\n" in told
    info = conninfo_to_dict(shell.environment["DATABASE_URL"])
    assert f"dbname={info['dbname']}" in told
    assert "data folder" not in told
    execute(shell.environment["DATABASE_URL"], "DELETE FROM semlex.default_collection_chunk")
    told = shell("status").stdout
    assert "vectors without a chunk  2\n" in told
    shell("index", "docs", "-c", "words", "--model", "none")
    assert "none: keywords only" in shell("status", "-c", "words").stdout


async def test_the_server_is_named(database_url):
    parts = conninfo_to_dict(database_url)
    named = f"host={parts['host']} port=5432 dbname={parts['dbname']} user={parts['user']}"
    async with async_opened(database_url + " password=secret", "none") as retriever:
        status = await retriever.status()
        assert (status.server, status.data_folder) == (named, None)
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with connection, async_opened(connection=connection, model="none") as retriever:
        assert (await retriever.status()).server == named


def test_the_remedies_for_collections_work(database_url, empty_database_url, monkeypatch):
    (problem,) = examine_server(empty_database_url).problems
    assert "CREATE EXTENSION vector" in problem
    assert examine_server(database_url).problems == []
    filled(database_url)
    assert examine_server(database_url).problems == []
    execute(database_url, TWO_GONE)
    execute(database_url, "CREATE TABLE semlex.forgotten_embedding_1 (n int)")
    orphaned, unknown = examine_server(database_url).problems
    assert "2 vectors whose chunk is gone" in orphaned
    assert "semlex.forgotten_embedding_1 belongs to no collection" in unknown
    for problem in (orphaned, unknown):
        execute(database_url, problem[problem.index(": D") + 2 :])
    assert examine_server(database_url).problems == []
    # A killed rebuild is named.
    execute(database_url, "UPDATE semlex.collection SET building_generation = 2, building_analyzer_version = 1")
    (problem,) = examine_server(database_url).problems
    assert "semlex maintain reindex --collection default_collection" in problem
    with opened(database_url) as retriever:
        retriever.indexes.rebuild_keyword()
    assert examine_server(database_url).problems == []
    # A role without rights is named.
    with new_role(database_url) as role:
        (problem,) = examine_server(f"{database_url} user={role}").problems
    assert "schema semlex cannot be checked" in problem
    # Tables of an older version are named.
    second_migration.install(monkeypatch.setattr)
    (problem,) = examine_server(database_url).problems
    told = "collection default_collection .* has schema version 1; the newest is 2.*semlex maintain migrate"
    assert re.search(told, problem)


DROP = "unreleased semlex .*semlex collections drop default_collection"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("INSERT INTO semlex.registry_version VALUES (99, 'its', now())", "schema semlex was made by a newer semlex"),
        ("UPDATE semlex.collection SET schema_version = 99", "collection default_collection .* by a newer semlex"),
        ("UPDATE semlex.collection SET schema_fingerprint = 'x'", DROP),
        ("UPDATE semlex.registry_version SET fingerprint = 'x'", DROP),
        ("DROP TABLE semlex.default_collection_source CASCADE", "lacks the table default_collection_source"),
        ("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'semlex.collection_pkey'::regclass", "DROP INDEX"),
    ],
)
def test_what_is_wrong_is_named(database_url, statement, told):
    filled(database_url)
    execute(database_url, statement)
    assert re.search(told, "\n".join(examine_server(database_url).problems))
