"""Every finding of the doctor: a collection is broken on purpose, and a whole one has none; `semlex doctor`."""

import pytest

from semlex import IvfflatIndex, _core
from semlex.diagnostics import checks, doctor, server_settings
from semlex.errors import CollectionNotFoundError
from semlex.retriever.synchronous import SyncClient
from semlex.store import embedding_versions
from semlex.store.indexes import choice
from semlex.store.query import health
from semlex.testing import HashEmbedder
from semlex.types.checkups import SEVERITIES
from semlex.types.documents import Document
from tests.support import onnx_models, second_migration
from tests.support.databases import execute, new_role
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.waiting import held


def opened(url, embedder=None, **options):
    return sync_opened(url, embedder or 8, **{"collection": "c"} | options)


def filled(url, count=50):
    with opened(url) as retriever:
        retriever.add_documents([Document(f"text number{number}", id=f"d{number}") for number in range(count)])


def diagnosis(url, embedder=None, **options):
    with SyncClient(url, embedder or HashEmbedder(8), use_reranking=False) as client:
        return client.diagnose(**options)


def findings(url, embedder=None):
    """What is wrong but for the server's settings, which are those of a server for tests."""
    return [finding for finding in diagnosis(url, embedder).findings if finding.code != "setting"]


def only(url, code, severity=None, what="", embedder=None):
    """The only finding, which is this one."""
    (finding,) = findings(url, embedder)
    assert finding.code == code
    assert severity in (finding.severity, None)
    assert what in finding.what
    return finding


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch):
    """The devices are those of torch, which takes seconds to import; tests/torch looks at them."""
    monkeypatch.setattr(doctor, "_devices", lambda _: ({}, None, "nobody looks"))


@pytest.fixture
def docs(tmp_path):
    one, two = "# One\n\nA lion sleeps in the grass.\n", "# Two\n\nA banana is yellow.\n"
    return folder_with(tmp_path / "docs", {"one.md": one, "two.md": two})


@pytest.fixture
def indexed(database_url, docs):
    with opened(database_url) as retriever:
        retriever.index(docs)
        retriever.add_texts(["an added text"])
    return database_url


def test_a_server_without_collections_has_none(database_url):
    found = diagnosis(database_url)
    assert (found.collections, found.is_well, found.not_checked) == ((), True, ())


def test_a_whole_collection_has_none(indexed):
    found = diagnosis(indexed)
    assert [finding for finding in found.findings if finding.code != "setting"] == []
    assert found.is_well
    assert (found.schema, found.collections) == ("semlex", ("c",))
    # What a model that is not one reads at most is not known.
    assert [skipped.check for skipped in found.not_checked] == ["chunks that the model cuts"]
    assert diagnosis(f"{indexed} options='-c default_transaction_read_only=on'").is_well


def test_without_pgvector(empty_database_url):
    finding = only(empty_database_url, "pgvector_missing", "error")
    assert finding.command == "CREATE EXTENSION vector;"
    assert "superuser" in finding.remedy
    execute(empty_database_url, finding.command)
    assert findings(empty_database_url) == []


INVALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'semlex.{}'::regclass"
# Code, severity and what breaks it.
BROKEN = [
    ("index_invalid", "warning", INVALID.format("c_document_pkey")),
    ("vectors_orphaned", "warning", "DELETE FROM semlex.c_chunk WHERE chunk_text LIKE '%added%'"),
    ("vectors_missing", "warning", "DELETE FROM semlex.c_embedding_1"),
    ("chunks_orphaned", "warning", "DELETE FROM semlex.c_document WHERE uri = 'one.md'"),
    ("documents_orphaned", "warning", "DELETE FROM semlex.c_source"),
    ("analyzer_version", "error", "UPDATE semlex.collection SET analyzer_version = 0"),
    ("keyword_index_damaged", "error", "DELETE FROM semlex.c_posting"),
    ("keyword_rebuild_left", "warning", "UPDATE semlex.collection SET building_generation = 2"),
    ("table_missing", "error", "DROP TABLE semlex.c_ingestion_log"),
    ("table_missing", "error", "DROP TABLE semlex.c_posting"),
    ("table_unknown", "hint", "CREATE TABLE semlex.forgotten (n int)"),
    ("collection_newer", "error", "UPDATE semlex.collection SET schema_version = 99"),
    ("collection_unreleased", "error", "UPDATE semlex.collection SET schema_fingerprint = 'another'"),
    ("collection_unreleased", "error", "UPDATE semlex.registry_version SET fingerprint = 'another'"),
    ("schema_newer", "error", "INSERT INTO semlex.registry_version VALUES (99, 'its', now())"),
]


@pytest.mark.parametrize(("code", "severity", "statement"), BROKEN)
def test_what_is_broken_is_found(indexed, code, severity, statement):
    execute(indexed, statement)
    found = diagnosis(indexed)
    told = {finding.code: finding for finding in found.findings}
    assert told[code].severity == severity
    assert all((told[code].where, told[code].what, told[code].remedy))
    assert found.is_well == (severity == "hint")
    severities = [finding.severity for finding in found.findings]
    assert severities == sorted(severities, key=SEVERITIES.index)
    # Nothing is skipped silently: collections that cannot be opened or listed are reported.
    if code in ("collection_newer", "collection_unreleased", "schema_newer"):
        skipped = "collections" if "registry_version" in statement else "all checks of rows"
        assert [one.check for one in found.not_checked] == [skipped]


def test_a_collection_that_an_older_version_made(indexed, monkeypatch):
    second_migration.install(monkeypatch.setattr)
    assert only(indexed, "collection_old", "hint").command == "semlex maintain migrate"
    found = diagnosis(indexed)
    assert (found.is_well, [skipped.check for skipped in found.not_checked]) == (True, ["all checks of rows"])
    with SyncClient(indexed, "none", use_reranking=False) as client:
        client.migrate()
    assert findings(indexed) == []


def test_a_chunk_that_was_written_without_semlex(indexed):
    columns = (
        "document_id, chunk_no, chunk_type, source_document, chapter_title, section_title, subsection_title, "
        "summary, context, chunk_text, content_hash, metadata, child_ids, created_at, updated_at"
    )
    chunk = f"SELECT 'x', {columns} FROM semlex.c_chunk LIMIT 1"
    execute(indexed, f"INSERT INTO semlex.c_chunk (chunk_id, {columns}) {chunk}")
    assert {finding.code for finding in findings(indexed)} == {"chunks_not_indexed", "vectors_missing"}
    with opened(indexed) as retriever:
        retriever.indexes.rebuild_keyword()
        retriever.embeddings.fill()
    assert findings(indexed) == []


def test_commands_in_sql_help(indexed):
    broken = [(code, statement) for code, _, statement in BROKEN if code in ("vectors_orphaned", "table_unknown")]
    for code, statement in (*broken, ("index_invalid", INVALID.format("c_source_key"))):
        execute(indexed, statement)
        execute(indexed, only(indexed, code).command)
        assert findings(indexed) == []


def test_a_change_of_the_model_that_was_left(indexed, monkeypatch):
    execute(
        indexed,
        "INSERT INTO semlex.embedding_version "
        "(version, building, name, identity_key, model, revision, dimensions, storage, created_at) "
        "SELECT 2, true, name, 'k', 'tests/other', revision, dimensions, storage, created_at "
        "FROM semlex.embedding_version;"
        "CREATE TABLE semlex.c_embedding_2 (LIKE semlex.c_embedding_1 INCLUDING ALL)",
    )
    assert only(indexed, "reembed_left").command == "semlex models set tests/other --collection c"
    # The server's clock has stepped back: no run has as much time left.
    execute(indexed, "UPDATE semlex.embedding_version SET run_until = now() + interval '1 hour' WHERE version = 2")
    only(indexed, "reembed_left")
    # One that a process is at.
    monkeypatch.setattr(embedding_versions, "RUN_SECONDS", 3600.0)
    assert findings(indexed) == []


def test_another_model_is_configured(indexed):
    only(indexed, "model_differs", "error", "semlex.testing/hash@1/8/", HashEmbedder(16))
    execute(indexed, "UPDATE semlex.embedding_version SET model = 'elsewhere/other', identity_key = 'k'")
    only(indexed, "model_differs")


def test_files_of_one_onnx_folder_are_different_models(database_url, tmp_path):
    folder = onnx_models.write_folder(tmp_path / "model", file="full.onnx")
    onnx_models.write_graph(folder / "small.onnx", inputs=onnx_models.INPUTS[:2])
    full, small = f"onnx:{folder}#full.onnx", f"onnx:{folder}#small.onnx"
    with opened(database_url, full) as retriever:
        retriever.add_texts(["lion"])
    # A default is for new collections: this one goes on with its own file.
    with SyncClient(database_url, use_reranking=False, models=[full], defaults={"embedding_model": small}) as client:
        assert [one.code for one in client.diagnose().findings if one.code != "setting"] == []
        assert client.collection("c").search("lion").mode == "hybrid"
    assert findings(database_url, full) == []
    assert "#full.onnx" in only(database_url, "model_differs", what="#small.onnx", embedder=small).what


def test_a_name_of_the_database_is_not_followed(indexed):
    """Neither a server nor a folder that a row names is asked; the finding names what stands in the way."""
    for name in ("http://127.0.0.1:9/v1#model", "/no/such/folder", "nobody/has-this-model"):
        execute(indexed, "UPDATE semlex.embedding_version SET model = %s", [name])
        with SyncClient(indexed, use_reranking=False) as client:
            (finding,) = [one for one in client.diagnose().findings if one.code != "setting"]
        assert (finding.code, finding.severity) == ("model_missing", "warning")
        assert name in finding.what
        assert diagnosis(indexed, "none").is_well


def test_chunks_that_the_model_cuts(indexed):
    class ShortEmbedder(HashEmbedder):
        max_tokens = 20

    assert findings(indexed, ShortEmbedder(8)) == []
    execute(indexed, "UPDATE semlex.c_chunk SET token_count = 21 WHERE chunk_text LIKE '%lion%'")
    only(indexed, "chunks_cut", what="1 chunk with more tokens", embedder=ShortEmbedder(8))


def test_documents_without_text(database_url, docs):
    (docs / "empty.md").write_text("", encoding="utf-8")
    with opened(database_url) as retriever:
        retriever.index(docs)
    only(database_url, "documents_empty", "hint", "1 document without text")


def test_near_duplicates(database_url):
    text = "this chunk says the very same thing as the others do in the same words as number"
    with opened(database_url) as retriever:
        retriever.add_texts([f"{text} {number}" for number in range(20)])
    only(database_url, "near_duplicates", "hint", "19 near-duplicates among 20 chunks")


def test_tombstones(database_url, monkeypatch):
    monkeypatch.setattr(checks, "MIN_TOMBSTONES", 1)
    filled(database_url)
    assert findings(database_url) == []
    with opened(database_url) as retriever:
        retriever.delete([f"d{number}" for number in range(20)])
        only(database_url, "tombstones", "hint", "20 tombstones among the 50 chunks")
        retriever.indexes.optimize()
    assert findings(database_url) == []


def test_dead_rows(database_url, monkeypatch):
    monkeypatch.setattr(checks, "MIN_DEAD_ROWS", 10)
    filled(database_url)
    update = "UPDATE semlex.c_chunk SET token_count = 1;"
    # A session reports what it has changed when it is idle for a second, or at its end.
    execute(
        database_url,
        f"ALTER TABLE semlex.c_chunk SET (autovacuum_enabled = off); {update * 3} SELECT pg_stat_force_next_flush()",
    )
    found = {finding.code: finding for finding in findings(database_url)}
    assert " live rows in " in found["dead_rows"].what
    execute(database_url, "VACUUM (ANALYZE) semlex.c_chunk")
    assert findings(database_url) == []


def test_missing_indexes(database_url, monkeypatch):
    """One that was asked for is missing whatever the number of rows."""
    filled(database_url)
    monkeypatch.setattr(checks, "INDEX_FROM_ROWS", 20)
    create = "semlex maintain create-index --collection c"
    expected = [("vector_index_missing", create), ("index_missing", create)]
    assert [(one.code, one.command) for one in findings(database_url)] == expected
    with opened(database_url) as retriever:
        retriever.indexes.create()
    assert findings(database_url) == []
    monkeypatch.undo()
    with opened(database_url) as retriever:
        (name,) = [one for one in retriever.indexes.create(IvfflatIndex(lists=2)) if "ivfflat" in one]
    assert "vector_index_missing" not in {one.code for one in findings(database_url)}
    execute(database_url, f"DROP INDEX semlex.c_{name}")
    only(database_url, "vector_index_missing")
    assert choice.INDEX_FROM_ROWS > 50


@pytest.mark.slow
def test_recall_is_measured(database_url):
    """An index that looks into one of many lists misses most; one that looks into all of them misses nothing."""
    filled(database_url, 600)
    with opened(database_url) as retriever:
        retriever.indexes.create(IvfflatIndex(lists=60, probes=60))
    execute(database_url, "ANALYZE semlex.c_embedding_1")
    first, again = (diagnosis(database_url) for _ in range(2))
    (looked,) = [one for one in first.looked_at if one.check == "recall of the vector index"]
    assert "probes 60: 1.00 of the nearest 10 are found, measured on" in looked.what
    assert first.looked_at == again.looked_at
    assert first.is_well
    with opened(database_url) as retriever:
        retriever.indexes.create(IvfflatIndex(lists=60, probes=1))
    execute(database_url, "ALTER ROLE CURRENT_USER SET enable_seqscan = off")  # a planner that is sure of its index
    try:
        found = diagnosis(database_url)
    finally:
        execute(database_url, "ALTER ROLE CURRENT_USER RESET enable_seqscan")
    (finding,) = [one for one in found.findings if one.code == "recall_low"]
    assert "probes 1" in finding.what
    assert finding.severity == "warning"


def test_recall_without_time_is_told(database_url, monkeypatch):
    filled(database_url, 30)
    with opened(database_url) as retriever:
        retriever.indexes.create(IvfflatIndex(lists=2))
    monkeypatch.setattr(checks, "RECALL_SECONDS", 0.0)
    assert "recall of the vector index" in {skipped.check for skipped in diagnosis(database_url).not_checked}


def test_large_tables_are_sampled(database_url, monkeypatch):
    """A share of the rows is looked at, which is said, and what is wrong with all of them is found."""
    filled(database_url, 2_000)
    execute(database_url, "DELETE FROM semlex.c_embedding_1; ANALYZE semlex.c_chunk")
    monkeypatch.setattr(health, "MAX_ROWS", 100)
    found = diagnosis(database_url)
    (finding,) = [one for one in found.findings if one.code == "vectors_missing"]
    assert "sampled chunks without a vector" in finding.what
    (looked,) = [one for one in found.looked_at if one.check == "chunks without a vector"]
    assert looked.what.endswith("chunks of about 2,000")
    assert 0 < int(looked.what.split()[0]) <= 100


def test_questions_without_hits(indexed):
    def ask(count, hits):
        query = "SELECT gen_random_uuid(), now(), '\\x00', NULL, 'hybrid', false, %s FROM generate_series(1, %s)"
        execute(indexed, f"INSERT INTO semlex.c_query_log {query}", [hits, count])

    ask(8, 1)
    ask(1, 0)
    assert findings(indexed) == []
    ask(2, 0)
    only(indexed, "queries_without_hits", "hint", "11 queries in 30 days, of which 3 found nothing")


# --- roles, standbys, time -----------------------------------------------------------------------------------------


def test_what_a_role_may_not_do(indexed):
    with new_role(indexed) as role:
        url = f"{indexed} user={role}"

        def missing_schema():
            with SyncClient(url, HashEmbedder(8), schema=f"of_{role}") as client:
                return [one for one in client.diagnose().findings if one.code == "privilege_create"]

        (finding,) = missing_schema()
        assert (finding.severity, finding.where) == ("warning", f"schema of_{role}")
        execute(indexed, finding.command)  # the command helps
        assert missing_schema() == []
        finding = only(url, "privilege_read", "error")
        assert [skipped.check for skipped in diagnosis(url).not_checked] == ["collections"]
        execute(indexed, finding.command)
        execute(indexed, only(url, "privilege_write", "hint").command)
        only(url, "privilege_migrate", "hint")
        execute(indexed, f"REVOKE SELECT ON semlex.c_source FROM {role}")
        found = diagnosis(url)
        (finding,) = [one for one in found.findings if one.code == "privilege_read"]
        assert "c_source" in finding.what
        reason = "this role may not read the tables that the check needs"
        assert ("orphaned rows", reason) in {(skipped.check, skipped.reason) for skipped in found.not_checked}
        [(owner,)] = execute(indexed, "SELECT current_user")
        execute(indexed, f"GRANT {owner} TO {role}")
        assert findings(url) == []


@pytest.mark.slow
def test_what_takes_too_long_is_told(indexed):
    """A check that the server cancels is one that was not made; the others go on."""
    with held(indexed, "semlex.c_source"):
        found = diagnosis(indexed)
    assert found.not_checked[0].check == "orphaned rows"
    assert "lock" in found.not_checked[0].reason
    assert {"chunks that the model cuts"} < {skipped.check for skipped in found.not_checked}


def test_one_collection_is_looked_at_alone(indexed):
    with opened(indexed, collection="other") as retriever:
        retriever.add_texts(["a text"])
    assert diagnosis(indexed).collections == ("c", "other")
    told = []
    found = diagnosis(indexed, collection="other", tell=told.append)
    assert found.collections == ("other",)
    assert told[:2] == ["the models that are configured here", "the server"]
    assert {line.split(":")[0] for line in told[2:]} == {"other"}
    with pytest.raises(CollectionNotFoundError, match="nothere"):
        diagnosis(indexed, collection="nothere")
    execute(indexed, "DROP TABLE semlex.other_segment; CREATE TABLE semlex.nobodys ()")
    whole, alone = ({one.code for one in diagnosis(indexed, **of).findings} for of in ({}, {"collection": "c"}))
    assert whole - alone == {"table_missing", "table_unknown"}


def test_nothing_is_written(indexed):
    def written():
        return execute(
            indexed,
            "SELECT c.oid::regclass::text, pg_relation_size(c.oid), c.reltuples, c.xmin::text FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'semlex' ORDER BY 1",
        )

    before = written()
    diagnosis(indexed)
    assert written() == before


def test_the_analyzer_that_is_compared_is_that_of_today():
    assert _core.ANALYZER_VERSION > 0
    assert checks.check_keyword_index in checks.CHECKS.values()


def test_every_schema_is_looked_at_within_the_limits(database_url, monkeypatch):
    filled(database_url, 3)
    with opened(database_url, schema="another") as other:
        other.add_texts(["a"])
    limits = []
    look = health._in_schema

    async def watched(connection, schema, only):
        found = await look(connection, schema, only)
        cursor = await connection.execute(
            "SELECT current_setting('lock_timeout'), current_setting('transaction_read_only'), "
            "current_setting('search_path'), pg_current_snapshot()::text"
        )
        limits.append(await cursor.fetchone())
        return found

    monkeypatch.setattr(health, "_in_schema", watched)
    diagnosis(database_url)
    assert len(limits) == 2
    assert len(set(limits)) == 1
    assert limits[0][:2] == ("2s", "on")


def test_a_log_that_is_missing_is_made_again(database_url):
    filled(database_url, 3)
    execute(database_url, "DROP TABLE semlex.c_query_log")
    execute(database_url, only(database_url, "table_missing", "warning").command)
    assert findings(database_url) == []


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(shell, monkeypatch):
    monkeypatch.setattr(server_settings, "machine_memory", lambda: 2**30)  # for which the tests' server is set up well
    assert "0 collections of schema semlex" in shell("doctor").stdout
    shell("index", "docs", "-c", "handbook", "--model", "static")
    well = shell("doctor").stdout
    assert well.splitlines()[-1].startswith("1 collection of schema semlex: ")
    assert not [word for word in ("warning", "hint", "not checked") if word in well]
    broken = "DELETE FROM semlex.handbook_embedding_1; UPDATE semlex.collection SET analyzer_version = 0"
    execute(shell.environment["DATABASE_URL"], broken)
    shell.environment["PGOPTIONS"] = "-c random_page_cost=4 -c jit=on"
    said = shell("doctor", code=3).stdout
    firsts = [line.split()[0] for line in said.splitlines() if not line.startswith(" ")]
    assert firsts[:2] == ["error", "warning"]
    assert "        semlex models fill --collection handbook\n" in said
    assert "hint" in firsts  # settings of a server that is not tuned, on one line
    assert said.count("setting ") == 0
    (found,) = shell.objects("doctor", "-c", "handbook", code=3)
    assert set(found) == {"server", "schema", "collections", "findings", "not_checked", "looked_at", "is_well"}
    assert set(found["findings"][0]) == {"code", "severity", "where", "what", "remedy", "command"}
    assert (found["is_well"], found["collections"]) == (False, ["handbook"])
    for command in ("models fill", "maintain reindex"):
        assert f"semlex {command} --collection handbook" in said
    # What it says helps.
    shell("maintain", "reindex", "--collection", "handbook")
    shell("models", "fill", "--collection", "handbook")
    shell("doctor")


@pytest.mark.slow
def test_models(shell):
    shell("index", "docs", "-c", "handbook", "--model", "static")
    shell("doctor", "--model", "static")
    said = shell("doctor", "--model", "no/such/model", code=4).stdout
    assert "embedding model no/such/model does not work here" in said
    # One that is only a default gives way to that of the collection, as it does for a search.
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "no/such/model"
    said = shell("doctor", code=4).stdout
    assert "another model than the one that is configured" not in said
    assert "1 error" in said


@pytest.mark.slow
def test_wrong_input(shell):
    shell("index", "docs", "-c", "handbook", "--model", "none")
    assert "handbook" in shell("doctor", "-c", "missing", code=6).stderr
    assert shell("doctor", "--json", "server").stdout == shell("doctor", "server", "--json").stdout
    shell("doctor", "nonsense", code=2)
    shell.environment["DATABASE_URL"] = "host=/nowhere dbname=x"
    assert "nowhere" in shell("doctor", code=3).stderr
