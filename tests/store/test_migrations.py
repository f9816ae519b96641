"""Tables of another version: migrated, refused, dropped. The later version is one with a made-up second migration."""

import signal

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex import SyncClient, SyncRetriever
from semlex.errors import CollectionNotFoundError, PrivilegeError, SchemaVersionError, StoreError
from semlex.store.schema import migrations
from semlex.store.schema.locks import SETUP_LOCK
from semlex.store.schema.migrations import collection_fingerprint, registry_fingerprint
from tests.support import second_migration
from tests.support.databases import execute, new_role
from tests.support.retrievers import sync_filled, sync_opened
from tests.support.shell import Started
from tests.support.waiting import held, until

TEXTS = ("the dome is closed in winter", "a lost key of the dome", "coffee for twelve people", "a note about comets")
QUESTIONS = ("when is the dome closed", "lost key", "comets")
# Name -> how it is made.
COLLECTIONS = {"words": {}, "plain": {"keyword": "tsvector"}, "keywords": {"model": "none"}}


@pytest.fixture(scope="module")
def template(new_database):
    """Name of a database with collections of this version."""
    url = new_database()
    for name, options in COLLECTIONS.items():
        with sync_opened(url, collection=name, **options) as retriever:
            retriever.add_texts(TEXTS, ids=[f"d{number}" for number in range(len(TEXTS))])
    return str(conninfo_to_dict(url)["dbname"])


@pytest.fixture
def filled(databases, template):
    """Address of a copy of it."""
    with databases.copy(template) as url:
        yield url


@pytest.fixture
def later(filled, monkeypatch):
    """The same; this process is of a later version from then on."""
    second_migration.install(monkeypatch.setattr)
    return filled


def client(url, **options):
    return SyncClient(url, "none", use_reranking=False, **options)


def migrated(url, *, dry_run=False):
    with client(url) as opened:
        return opened.migrate(dry_run=dry_run)


def drop(url, name, **options):
    with client(url, **options) as opened:
        opened.drop(name)


def answers(url, name):
    with sync_opened(url, collection=name, create=False, **COLLECTIONS[name]) as retriever:
        hits = [hit for question in QUESTIONS for hit in retriever.search(question)]
        return [(hit.id, hit.content, hit.keyword_score, hit.vector_score) for hit in hits]


def all_answers(url):
    return {name: answers(url, name) for name in COLLECTIONS}


def versions(url):
    return dict(execute(url, "SELECT name, schema_version FROM semlex.collection"))


def registry_versions(url):
    return [version for (version,) in execute(url, "SELECT version FROM semlex.registry_version ORDER BY version")]


def colours(url):
    """The tables that the second migration has reached."""
    found = execute(url, "SELECT table_name FROM information_schema.columns WHERE column_name = 'colour' ORDER BY 1")
    return [name for (name,) in found]


@pytest.mark.slow
def test_a_collection_is_migrated_when_it_is_opened_and_then_refused_by_the_earlier_version(filled, monkeypatch):
    before = all_answers(filled)
    with monkeypatch.context() as patched:
        second_migration.install(patched.setattr)
        assert answers(filled, "words") == before["words"]
        assert (registry_versions(filled), versions(filled)) == ([1, 2], {"words": 2, "plain": 1, "keywords": 1})
        assert colours(filled) == ["collection", "words_chunk", "words_source"]
        assert all_answers(filled) == before
        assert versions(filled) == dict.fromkeys(COLLECTIONS, 2)
        with sync_filled(filled, {"new": "a comet again"}, collection="words", create=False) as retriever:
            assert retriever.search("comet again", 1, mode="keyword")[0].id == "new"
        with sync_opened(filled, collection="made_later") as retriever:
            assert retriever.count() == 0
        assert versions(filled)["made_later"] == 2
    with pytest.raises(SchemaVersionError, match=r"version 2, this semlex knows up to 1: update semlex"):
        answers(filled, "words")


def test_a_default_of_partitions_is_for_new_collections(database_url, monkeypatch):
    options = {"model": "none", "collection": "n" * 41}  # too long a name for partitions
    with sync_opened(database_url, **options) as retriever:
        assert retriever.count() == 0
    second_migration.install(monkeypatch.setattr)
    with sync_opened(database_url, **options, defaults={"partitions": 2}) as retriever:
        assert retriever.count() == 0
    assert versions(database_url) == {"n" * 41: 2}


def test_migrate_does_all_at_once(later):
    expected = [("the registry", 1, 2), *((name, 1, 2) for name in sorted(COLLECTIONS))]
    assert [(step.name, step.version, step.wanted) for step in migrated(later, dry_run=True)] == expected
    assert colours(later) == []
    assert [(step.name, step.version, step.wanted) for step in migrated(later)] == expected
    assert (registry_versions(later), versions(later)) == ([1, 2], dict.fromkeys(COLLECTIONS, 2))
    assert migrated(later) == []


def test_a_registry_without_collections_is_migrated(later):
    for name in COLLECTIONS:
        drop(later, name)
    assert registry_versions(later) == [1]
    assert [step.name for step in migrated(later)] == ["the registry"]
    assert migrated(later, dry_run=True) == []


@pytest.fixture
def user(later):
    """Address of a role that may read and write the rows, and change no table."""
    on_tables = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA semlex"
    with new_role(later, "USAGE ON SCHEMA semlex", on_tables, "USAGE ON ALL SEQUENCES IN SCHEMA semlex") as role:
        yield make_conninfo(later, user=role)


def test_a_role_without_ddl_gets_the_sql(later, user):
    with pytest.raises(PrivilegeError, match=r"let the owner of its tables run: semlex maintain migrate .*--sql"):
        answers(user, "words")
    theirs = r"let their owner run: semlex maintain migrate .*--sql"
    with client(user) as opened, pytest.raises(PrivilegeError, match=theirs):
        opened.collection("words").jobs.submit("optimize")
    for step in migrated(user, dry_run=True):
        execute(later, step.script())
    assert migrated(user, dry_run=True) == []
    assert (registry_versions(later), versions(later)) == ([1, 2], dict.fromkeys(COLLECTIONS, 2))
    with sync_filled(user, {"new": "a comet again"}, collection="words", create=False) as retriever:
        assert retriever.search("comet again", 1, mode="keyword")[0].id == "new"


def migrating(url):
    """A process that migrates a collection after a line on its standard input."""
    worker = Started((url,), module="tests.support.clients.migrating_client")
    assert worker.stdout.readline() == "ready\n"
    return worker


def begin(worker):
    worker.stdin.write("words\n")
    worker.stdin.flush()


def until_it_waits(connection, lock, count=1):
    """Waits until so many processes wait for a table's lock, or for an advisory one."""
    statement = (
        "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database AND d.datname = "
        "current_database() WHERE NOT l.granted AND coalesce(l.relation::regclass::text, l.locktype) = %s"
    )
    until(lambda: connection.execute(statement, [lock]).fetchone() == (count,), f"{count} that wait for {lock}")


def kill(worker):
    worker.send_signal(signal.SIGKILL)
    assert (worker.communicate()[0], worker.returncode) == ("", -signal.SIGKILL)


# Each table that the second migration changes, in its order.
@pytest.mark.slow
@pytest.mark.parametrize("table", ["semlex.collection", "semlex.words_source", "semlex.words_chunk"])
def test_killed_while_it_migrates(filled, table, monkeypatch):
    before = all_answers(filled)
    worker = migrating(filled)
    # As a search that reads the table.
    with held(filled, table, "ACCESS SHARE") as connection:
        begin(worker)
        until_it_waits(connection, table)
        kill(worker)
    others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    others = f"SELECT FROM pg_stat_activity WHERE {others}"
    until(lambda: execute(filled, others) == [], "the end of the process at the server")
    assert (registry_versions(filled), versions(filled)) == ([1], dict.fromkeys(COLLECTIONS, 1))
    assert colours(filled) == []
    assert all_answers(filled) == before
    second_migration.install(monkeypatch.setattr)
    assert all_answers(filled) == before
    assert (registry_versions(filled), versions(filled)) == ([1, 2], dict.fromkeys(COLLECTIONS, 2))


@pytest.mark.slow
def test_others_go_on_when_one_is_killed(filled):
    first, *rest = [migrating(filled) for _ in range(4)]
    with held(filled, "semlex.words_chunk", "ACCESS SHARE") as connection:
        begin(first)
        until_it_waits(connection, "semlex.words_chunk")
        for worker in rest:
            begin(worker)
        until_it_waits(connection, "semlex.collection", len(rest))  # which the first one has changed
        kill(first)
    assert_all_done(filled, rest)


@pytest.mark.slow
def test_of_many_that_begin_at_once_one_migrates(filled):
    workers = [migrating(filled) for _ in range(4)]
    with psycopg.connect(filled) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])
        for worker in workers:
            begin(worker)
        until_it_waits(connection, "advisory", len(workers))
    assert_all_done(filled, workers)


def assert_all_done(url, workers):
    assert [(worker.communicate()[0], worker.returncode) for worker in workers] == [("done\n", 0)] * len(workers)
    assert (registry_versions(url), versions(url)["words"]) == ([1, 2], 2)


@pytest.mark.parametrize("newer", ["registry", "collection"])
def test_what_a_newer_version_made_is_refused_and_can_be_dropped(filled, newer):
    if newer == "registry":
        execute(filled, "INSERT INTO semlex.registry_version VALUES (99, 'of its', now())")
    else:
        newest = "schema_version = 99, schema_fingerprint = 'of its'"
        execute(filled, f"UPDATE semlex.collection SET {newest} WHERE name = 'words'")
        execute(filled, "CREATE TABLE semlex.words_wisdom (x int); CREATE TABLE semlex.wordsmith (x int)")
    for create in (True, False):
        with pytest.raises(SchemaVersionError, match=r"version 99, .*: update semlex"):
            sync_opened(filled, collection="words", create=create).initialize()
    if newer == "registry":
        with pytest.raises(SchemaVersionError, match="version 99"):
            sync_opened(filled, collection="quite_new").initialize()
    drop(filled, "words")
    assert tables_like(filled, "words%") == (["wordsmith"] if newer == "collection" else [])
    assert set(versions(filled).values()) == {1}
    if newer == "collection":
        with pytest.raises(CollectionNotFoundError, match="keywords, plain"):
            drop(filled, "words")


def tables_like(url, pattern):
    statement = "SELECT relname FROM pg_class WHERE relnamespace = 'semlex'::regnamespace AND relname LIKE %s"
    return [name for (name,) in execute(url, statement, [pattern])]


@pytest.mark.slow
def test_the_users_tables_and_collections_whose_names_begin_alike_stay_when_a_newer_one_is_dropped(database_url):
    with SyncRetriever(database_url, "none", collection="app", schema="public") as retriever:
        retriever.add_texts(["x"])
    execute(database_url, "UPDATE public.collection SET schema_version = 99; CREATE TABLE public.app_users (x int)")
    drop(database_url, "app", schema="public")
    left = execute(database_url, "SELECT to_regclass('public.app_users'), to_regclass('public.app_chunk')")
    assert left == [("app_users", None)]
    names = ("a", "a_chunk", "a_b")
    for name in names:
        with SyncRetriever(database_url, "none", collection=name) as retriever:
            retriever.add_texts([name], ids=["x"])
    execute(database_url, "UPDATE semlex.collection SET schema_version = 99 WHERE name = 'a'")
    drop(database_url, "a")
    for name in names[1:]:
        with SyncRetriever(database_url, "none", collection=name, create=False) as retriever:
            assert retriever.count() == 1


MORE = sql.SQL("ALTER TABLE {} ADD COLUMN size int")


def edited_registry(schema):
    return (*migrations.m0001_initial.registry(schema), MORE.format(sql.Identifier(schema, "collection")))


def edited_collection(names):
    return (*migrations.m0001_initial.collection(names), MORE.format(names.chunk))


def test_fingerprints_are_of_the_statements_alone(monkeypatch):
    fingerprints = [registry_fingerprint(1), collection_fingerprint(1)]
    assert fingerprints == [registry_fingerprint(1), collection_fingerprint(1)]
    second_migration.install(monkeypatch.setattr)
    assert fingerprints == [registry_fingerprint(1), collection_fingerprint(1)]
    fingerprints += [registry_fingerprint(2), collection_fingerprint(2)]
    monkeypatch.setattr(migrations, "REGISTRY", (edited_registry,))
    monkeypatch.setattr(migrations, "COLLECTION", (edited_collection,))
    fingerprints += [registry_fingerprint(1), collection_fingerprint(1)]
    assert len(set(fingerprints)) == 6
    original = migrations.m0001_initial.collection

    def laid_out_otherwise(names):
        return [sql.Composed([sql.SQL(one.as_string().replace("\n", "\n  "))]) for one in original(names)]

    monkeypatch.setattr(migrations, "COLLECTION", (laid_out_otherwise,))
    assert collection_fingerprint(1) == fingerprints[1]


@pytest.mark.slow
def test_a_collection_of_an_edited_migration_is_refused_until_it_is_made_again(filled, monkeypatch):
    before = all_answers(filled)
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "COLLECTION", (edited_collection,))
        with sync_opened(filled, collection="other") as retriever:
            retriever.add_texts(["x"])
        with pytest.raises(SchemaVersionError, match="collection 'words' was made by an unreleased semlex"):
            answers(filled, "words")
    execute(filled, "CREATE TABLE semlex.other_wisdom (x int)")
    for create in (True, False):
        with pytest.raises(SchemaVersionError, match=r"unreleased semlex .* drop it \(semlex collections drop other\)"):
            sync_opened(filled, collection="other", create=create).initialize()
    assert all_answers(filled) == before
    with client(filled) as opened:
        assert [one.name for one in opened.collections()] == sorted([*COLLECTIONS, "other"])
        assert opened.migrate() == []
        opened.drop("other")
    assert tables_like(filled, "other%") == []
    with sync_opened(filled, collection="other") as retriever:
        assert retriever.count() == 0


def test_a_collection_of_an_edited_migration_is_not_migrated(filled, monkeypatch):
    monkeypatch.setattr(migrations, "COLLECTION", (edited_collection,))
    second_migration.install(monkeypatch.setattr)
    for doing in (lambda: answers(filled, "words"), lambda: migrated(filled), lambda: migrated(filled, dry_run=True)):
        with pytest.raises(SchemaVersionError, match="unreleased semlex"):
            doing()
    assert colours(filled) == []


def test_a_registry_of_an_edited_migration_is_refused_until_it_is_empty(filled, monkeypatch):
    monkeypatch.setattr(migrations, "REGISTRY", (edited_registry,))
    assert_refused_until_it_is_empty(filled, sorted(COLLECTIONS))
    assert execute(filled, "SELECT size FROM semlex.collection") == [(None,)]


# What the first commits made: no fingerprints, other names of columns.
EARLIEST_REGISTRY = """
    CREATE TABLE semlex.registry_version (version int PRIMARY KEY, applied_at timestamptz NOT NULL);
    INSERT INTO semlex.registry_version VALUES (1, now()), (2, now());
    CREATE TABLE semlex.collection (
        name text COLLATE "C" PRIMARY KEY, collection_id uuid NOT NULL, schema_version int NOT NULL,
        embedding_version int NOT NULL, distance text NOT NULL, language text NOT NULL, lexical_engine text NOT NULL,
        token_counter text NOT NULL, with_context bool NOT NULL, created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL);
    CREATE TABLE semlex.embedding_version (
        name text COLLATE "C" NOT NULL, version int NOT NULL, identity_key text NOT NULL, model text NOT NULL,
        revision text, dimensions int NOT NULL, storage text NOT NULL, created_at timestamptz NOT NULL,
        PRIMARY KEY (name, version));
"""
EARLIEST_COLLECTION = """
    CREATE TABLE semlex.words_chunk (lexical_id bigint GENERATED BY DEFAULT AS IDENTITY, chunk_text text NOT NULL);
    CREATE TABLE semlex.words_lexical (data bytea);
    CREATE TABLE semlex.words_embedding_1 (embedding real[]);
    INSERT INTO semlex.collection VALUES
        ('words', gen_random_uuid(), 2, 1, 'cosine', 'english', 'bm25', 'unicode-words/1', true, now(), now());
    INSERT INTO semlex.embedding_version VALUES ('words', 1, 'key', 'model', NULL, 8, 'vector', now());
"""


def test_tables_without_fingerprints_are_refused_until_they_are_dropped(bare_database_url):
    execute(bare_database_url, "CREATE SCHEMA semlex;" + EARLIEST_REGISTRY + EARLIEST_COLLECTION)
    assert_refused_until_it_is_empty(bare_database_url, ["words"])


def assert_refused_until_it_is_empty(url, names):
    """Everything refuses the registry and names what helps, which does help."""
    drops = ", ".join(f"semlex collections drop {name}" for name in names)
    refusal = rf"schema 'semlex' were made by an unreleased semlex .* drop each of them \({drops}\) and index again"
    with client(url) as opened:
        for doing in (
            sync_opened(url, collection="words").initialize,
            sync_opened(url, collection="words", create=False).initialize,
            sync_opened(url, collection="quite_new").initialize,
            sync_opened(url, collection="quite_new", create=False).initialize,
            opened.collections,
            opened.count_collections,
            opened.migrate,
            lambda: opened.collection("words").jobs.submit("optimize"),
        ):
            with pytest.raises(SchemaVersionError, match=refusal):
                doing()
        for name in names:
            opened.drop(name)
            assert tables_like(url, f"{name}%") == []
        assert opened.collections() == opened.migrate() == []
    with sync_filled(url, {"key": "a key"}, collection="words") as retriever:
        assert [hit.id for hit in retriever.search("key")] == ["key"]
    assert execute(url, "SELECT version, fingerprint FROM semlex.registry_version") == [(1, registry_fingerprint(1))]


def test_tables_of_these_names_that_are_somebody_elses_stay(database_url):
    theirs = ("followed_table", "job", "row_change")
    tables = "".join(f"CREATE TABLE public.{name} (title text);" for name in theirs)
    execute(database_url, EARLIEST_REGISTRY.replace("semlex.", "public.") + tables)
    with pytest.raises(StoreError, match="job"):
        sync_opened(database_url, schema="public").initialize()
    columns = "information_schema.columns WHERE table_schema = 'public' AND column_name = 'title'"
    found = execute(database_url, f"SELECT table_name FROM {columns} ORDER BY 1")
    assert found == [(name,) for name in theirs]
