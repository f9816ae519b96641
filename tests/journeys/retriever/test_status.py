"""The status of a collection and of its server: figures, problems with their remedies, advice on settings."""

import re
from dataclasses import replace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from semlex.diagnostics.doctor import examine_server
from semlex.diagnostics.server_settings import NAMES, Machine, advise
from semlex.retriever.synchronous import SyncClient
from semlex.store.postgres.embedded.server import server_memory, settings_of
from semlex.store.postgres.server_info import ServerSetting
from semlex.store.query import statistics
from semlex.types.documents import Document
from tests.support import second_migration
from tests.support.databases import execute, new_role
from tests.support.retrievers import opened, sync_opened

CHUNK = "semlex.default_collection_chunk"
TWO_GONE = "DELETE FROM semlex.default_collection_chunk WHERE chunk_id IN ('d1', 'd2')"


def filled(url, count=50):
    with sync_opened(url) as retriever:
        retriever.add_documents([Document(f"text {number}", id=f"d{number}") for number in range(count)])


def counted(url):
    with SyncClient(url, "none", use_reranking=False) as client:
        return client.count_collections()


def test_large_tables_are_estimated_unless_asked(database_url, monkeypatch):
    filled(database_url)
    with sync_opened(database_url) as retriever:
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
    with sync_opened(database_url) as retriever:
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
    async with opened(database_url + " password=secret", "none") as retriever:
        status = await retriever.status()
        assert (status.server, status.data_folder) == (named, None)
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with connection, opened(connection=connection, model="none") as retriever:
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
    with sync_opened(database_url) as retriever:
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


UNITS = {"": 1, "MB": 2**20, "GB": 2**30}
DEFAULTS = {
    "shared_buffers": 128 * 2**20, "effective_cache_size": 4 * 2**30, "work_mem": 4 * 2**20,
    "maintenance_work_mem": 64 * 2**20, "max_parallel_maintenance_workers": 2, "max_parallel_workers": 8,
    "max_worker_processes": 8, "max_wal_size": 2**30, "random_page_cost": 4.0, "jit": 0, "max_connections": 100,
}  # fmt: skip


def settings(values):
    return {
        name: ServerSetting(name, "on" if name == "jit" else str(value), value, name == "shared_buffers")
        for name, value in values.items()
    }


def number(value):
    found = re.fullmatch(r"([0-9.]+)(MB|GB)?", value)
    assert found is not None, value
    return float(found[1]) * UNITS[found[2] or ""]


@pytest.mark.pg16
@given(gigabytes=st.integers(1, 2048), cores=st.integers(1, 256))
def test_followed_advice_is_not_given_again_and_a_new_embedded_server_needs_none(gigabytes, cores):
    machine = Machine(gigabytes * 2**30, cores)
    before = settings(DEFAULTS)
    advice = list(advise(before, machine))
    assert {one.setting for one in advice} == set(NAMES) - {"max_connections"}
    after = dict(before)
    for one in advice:
        assert one.statement is not None
        assert one.met is not None
        if one.setting == "jit":
            after["jit"] = replace(before["jit"], text="off")
        elif not one.met:
            after[one.setting] = replace(before[one.setting], number=number(one.advised))
    assert [one.setting for one in advise(after, machine) if not one.met] == []
    sizes = {one.setting: number(one.advised) for one in advice if one.advised.endswith("B")}
    assert sizes["shared_buffers"] <= machine.memory / 4
    assert sizes["effective_cache_size"] <= machine.memory * 3 / 4
    made = settings_of(machine.memory, cores)
    values = DEFAULTS | {name: number(value) for name, value in made.items() if name in NAMES and name != "jit"}
    found = settings(values) | {"jit": ServerSetting("jit", made["jit"], 0, needs_restart=False)}
    assert [one.setting for one in advise(found, Machine(server_memory(machine.memory), cores)) if not one.met] == []
    assert values["shared_buffers"] <= max(machine.memory / 16, 128 * 2**20)


@pytest.mark.pg16
def test_of_an_unknown_machine_only_what_every_one_needs_is_judged():
    judged = {one.setting: one.met for one in advise(settings(DEFAULTS), Machine())}
    assert {name for name, met in judged.items() if met is not None} == {"max_wal_size", "random_page_cost", "jit"}
    assert all(one.statement is None for one in advise(settings(DEFAULTS), Machine()) if one.met is None)


@pytest.mark.pg16
def test_the_server_takes_what_is_advised(database_url):
    advice = examine_server(database_url).settings
    assert {one.setting for one in advice} == set(NAMES) - {"max_connections"}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for one in advice:
            assert one.statement is not None  # the server runs on this machine
            assert one.now == connection.execute("SELECT current_setting(%s)", [one.setting]).fetchone()[0]
            try:
                connection.execute(one.statement)
            finally:
                connection.execute(f"ALTER SYSTEM RESET {one.setting}")


@pytest.mark.pg16
def test_the_command_shows_it(shell):
    shell.environment["PGOPTIONS"] = "-c random_page_cost=4"
    said = shell("doctor", "server").stdout
    assert "ALTER SYSTEM SET random_page_cost = '1.1'; -- then: SELECT pg_reload_conf();" in said
    (found,) = shell.objects("doctor", "server", "--json")
    assert {one["setting"] for one in found["settings"]} == set(NAMES) - {"max_connections"}
