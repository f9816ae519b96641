"""Collections are made, opened and dropped by any role and in any schema; a role is that of one transaction."""

import re
import uuid
from contextlib import ExitStack, nullcontext
from unittest.mock import AsyncMock

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

from semlex import Document, SyncClient, SyncRetriever, errors
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.postgres.database import Database, SnapshotReads
from semlex.store.postgres.server_info import read_server_info
from semlex.store.schema import migrations
from semlex.testing import HashEmbedder
from tests.support.databases import execute, new_role
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_filled, sync_opened
from tests.support.shell import Started
from tests.support.tenants import tenants_of

pytestmark = pytest.mark.pg16

PROCESSES = [str(number) for number in range(8)]


def relations(url, schema="semlex"):
    """Name -> kind of everything in a schema."""
    names = "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
    return dict(execute(url, names, [schema]))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_processes_use_a_database_for_the_first_time_at_once(server_url, full):
    workers = [Started((number,), module="tests.support.clients.first_use") for number in PROCESSES]
    pipes = [(worker.stdin, worker.stdout) for worker in workers]
    try:
        for _, output in pipes:
            assert output.readline() == "ready\n"
        with psycopg.connect(server_url, autocommit=True) as connection:
            for _ in range(50 if full else 2):
                name = sql.Identifier(f"test_{uuid.uuid4().hex}")
                connection.execute(sql.SQL("CREATE DATABASE {}").format(name))  # without the extension
                url = make_conninfo(server_url, dbname=name.as_string().strip('"'))
                for given, _ in pipes:
                    given.write(url + "\n")
                    given.flush()
                assert [output.readline() for _, output in pipes] == ["done\n"] * len(PROCESSES)
                with sync_opened(url) as retriever:
                    assert [document.id for document in retriever.get(PROCESSES)] == PROCESSES
                    assert retriever.count() == retriever.status().embedded == len(PROCESSES)
                with psycopg.connect(url) as inside:
                    versions = inside.execute("SELECT version FROM semlex.registry_version").fetchall()
                    assert versions == [(number,) for number in range(1, len(migrations.REGISTRY) + 1)]
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
    finally:
        for given, _ in pipes:
            given.close()
        codes = [worker.wait() for worker in workers]
        for worker in workers:
            worker.close()
    assert codes == [0] * len(PROCESSES)


def test_without_the_right_to_create_the_extension(empty_database_url):
    # A trusted extension may be created by whoever may create in the database; this role may not.
    name = conninfo_to_dict(empty_database_url)["dbname"]
    execute(empty_database_url, f'REVOKE CREATE ON DATABASE "{name}" FROM PUBLIC')
    message = "CREATE EXTENSION vector;"
    with new_role(empty_database_url) as role, pytest.raises(errors.PrivilegeError, match=message) as caught:
        sync_opened(make_conninfo(empty_database_url, user=role)).initialize()
    assert caught.value.sqlstate == "42501"
    assert relations(empty_database_url) == {}


def test_without_the_right_to_create_the_schema(bare_database_url):
    with new_role(bare_database_url) as role:
        with pytest.raises(errors.PrivilegeError, match="CREATE SCHEMA semlex AUTHORIZATION") as caught:
            sync_opened(make_conninfo(bare_database_url, user=role)).initialize()
        statement = re.search(r"run: (CREATE SCHEMA .*;)$", str(caught.value))
        assert statement is not None
        execute(bare_database_url, statement[1].encode())
        # What the message asked the owner for is enough.
        with sync_filled(make_conninfo(bare_database_url, user=role), {"a": "first"}) as retriever:
            assert [result.id for result in retriever.search("first")] == ["a"]


def test_a_reader_needs_select_only(database_url):
    with sync_opened(database_url) as retriever:
        retriever.add_documents([Document("the first row", {"kind": "x"}, id="a"), Document("another", id="b")])
    with new_role(database_url, "USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex") as role:
        reader_url = make_conninfo(database_url, user=role)
        with sync_opened(make_conninfo(reader_url, options="-c default_transaction_read_only=on")) as retriever:
            results = retriever.search("first row", filters={"kind": "x"}, explain=True)
            assert ([result.id for result in results], results.mode) == (["a"], "hybrid")
            assert results.explanation is not None
            assert (results.warnings, retriever.count()) == ([], 2)
            assert retriever.why("a", "first").found
            assert retriever.why("nobody", "first").code == "never_seen"
            assert retriever.get(["b"])[0].content == "another"
            assert retriever.status().embedded == 2
        with sync_opened(reader_url) as retriever:
            writes = (retriever.add_documents, [Document("not mine", id="c")]), (retriever.delete, ["a"])
            for refused, *given in (*writes, (retriever.drop_collection,)):
                with pytest.raises(errors.PrivilegeError):
                    refused(*given)
            assert retriever.count() == 2


@pytest.mark.slow
def test_the_extension_may_live_in_any_schema(empty_database_url):
    execute(empty_database_url, 'CREATE SCHEMA "Odd Place"')
    execute(empty_database_url, 'CREATE EXTENSION vector SCHEMA "Odd Place"')
    with sync_opened(empty_database_url, schema="elsewhere") as retriever:
        ids = [str(number) for number in range(100)]
        retriever.add_texts([f"text {number}" for number in ids], ids=ids)  # direct
        retriever.add_texts(["text again"], ids=["5"])  # by arrays
        retriever.add_texts([f"other {number}" for number in ids], ids=ids)  # staged
        assert retriever.indexes.create() != []
        assert len(retriever.search("other 5", 50)) == 50
        assert [result.id for result in retriever.search("other 5", 1, mode="vector")] == ["5"]
        assert retriever.delete(ids).chunks == 100
    assert relations(empty_database_url) == {}
    assert "default_collection_chunk" in relations(empty_database_url, "elsewhere")


TRAPS = [
    *(("distance(public.vector, public.vector)", "float8"), ("to_tsvector(regconfig, text)", "tsvector")),
    *(("unnest(tsvector)", "SETOF text"), ("ts_rank(tsvector, tsquery, int)", "float4"), ("same(text, text)", "bool")),
    *(("set_config(text, text, bool)", "text"), ("current_setting(text)", "text"), ("to_regclass(text)", "regclass")),
    ("pg_advisory_xact_lock(bigint)", "void"),
]
TRAP = (
    "CREATE FUNCTION hostile.{} RETURNS {} LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile function was called: {}'; END $$"
)
HOSTILE = f"""
CREATE SCHEMA hostile;
{"; ".join(TRAP.format(name, kind, name) for name, kind in TRAPS)};
CREATE OPERATOR hostile.<=> (LEFTARG = public.vector, RIGHTARG = public.vector, FUNCTION = hostile.distance);
CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.same);
CREATE TABLE hostile.pg_extension (extname text, extversion text, extnamespace oid);
CREATE DOMAIN hostile.vector AS text CHECK (false);
CREATE DOMAIN hostile.jsonb AS text CHECK (false);
"""


async def test_a_hostile_schema_in_front_of_the_search_path_is_not_called(database_url):
    execute(database_url, HOSTILE)
    name = conninfo_to_dict(database_url)["dbname"]
    execute(database_url, f'ALTER DATABASE "{name}" SET search_path = hostile, pg_catalog, public')
    with pytest.raises(psycopg.Error, match="hostile function was called"):
        execute(database_url, "SELECT set_config('a.b', 'c', true)")  # the trap is armed
    ids = [str(number) for number in range(100)]
    metadata = [{"n": number} for number in range(100)]
    async with opened(database_url) as retriever:
        await retriever.add_texts([f"text {number}" for number in ids], ids=ids, metadata=metadata)
        await retriever.add_texts(["changed text"], ids=["5"], metadata=[{"n": 5}])
        await retriever.add_texts([f"other {number}" for number in ids], ids=ids, metadata=metadata)
        await retriever.indexes.create()
        results = await retriever.search("other 5", 3, filters={"n": 5})
        assert ([result.id for result in results], results.warnings) == (["5"], [])
        assert len(await retriever.search("other text", 100)) == 100
        assert (await retriever.status()).chunks == 100
        assert (await retriever.delete(["5"])).chunks == 1
        assert await retriever.drop_collection()

    async def where(connection):
        return (await (await connection.execute("SHOW search_path")).fetchone())[0]

    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        database = Database(connection=connection)
        async with connection.transaction():
            assert await database.write("look", where) == "pg_catalog, pg_temp"
            assert await database.read("look", where) == "pg_catalog, pg_temp"
            assert await where(connection) == "hostile, pg_catalog, public"


@pytest.mark.parametrize(
    ("postgres", "version", "refused"),
    [
        *((18, "0.7.4", "0.7.4"), (18, "0.5", "0.5"), (14, "0.8.5", "14")),
        *((15, "0.8.0", None), (18, "0.10.0", None), (16, None, None)),
    ],
)
async def test_versions_below_the_floor_are_refused(postgres, version, refused, monkeypatch):
    found = AsyncMock(return_value=(postgres, version, "public", False))  # of a server of those versions
    monkeypatch.setattr("semlex.store.postgres.server_info.only_row", found)
    connection = AsyncMock()
    if refused is None:
        info = await read_server_info(connection)
        assert (info.postgres, info.pgvector is None) == (postgres, version is None)
    else:
        with pytest.raises(errors.UnsupportedServerError, match=refused):
            await read_server_info(connection)


@pytest.mark.parametrize(
    "name",
    [
        *("", "a" * 49, "a" * 63, "a" * 64, "Notes", "NOTES", "notes-1", "my notes", 'a"b', "a'b", "a;b", "a.b", "1a"),
        *("pg_notes", "nötes", "ｎotes", "noteѕ", "ı", "ſ", "a\0", "a\n", "\ud800", "notes ", "K"),  # noqa: RUF001
    ],
    ids=ascii,
)
def test_names_that_are_refused(name):
    for options in ({"collection": name}, {"schema": name}):
        with pytest.raises(errors.ValidationError) as caught:
            SyncRetriever("host=nowhere", "none", **options)
        assert [error.field for error in caught.value.errors] == list(options)


def test_reserved_words_are_names_like_others(database_url):
    for name in ("select", "table", "user", "collection", "embedding", "registry", "_", "null"):
        with sync_filled(database_url, {"a": "some text"}, collection=name, schema=name) as retriever:
            assert [result.id for result in retriever.search("text")] == ["a"], name


def test_the_longest_names_fit(database_url):
    twins = ["n" * 47 + letter for letter in "ab"]
    schema = "s" * 48
    for name in twins:
        with sync_filled(database_url, {name[-1]: f"text of {name[-1]}"}, collection=name, schema=schema) as retriever:
            assert "hnsw_1" in retriever.indexes.create()
    names = relations(database_url, schema)
    assert max(map(len, names)) <= 63
    suffixes = [{name.removeprefix(twin) for name in names if name.startswith(twin)} for twin in twins]
    assert {one for one in suffixes[0] ^ suffixes[1] if "pkey" not in one} == set()
    for name in twins:
        with sync_opened(database_url, collection=name, schema=schema) as retriever:
            assert [result.content for result in retriever.search("text")] == [f"text of {name[-1]}"]


@pytest.mark.slow
def test_collections_stand_side_by_side(database_url):
    # Among them every name that, with a suffix of ours, could be the name of another collection's table or index.
    suffixes = ("source", "document", "chunk", "embedding", "embedding_1", "document_source", "ingestion", "text", "x")
    names = ["notes", *(f"notes_{suffix}" for suffix in suffixes)]
    with SyncClient(database_url, HashEmbedder(8), use_reranking=False) as client:
        for name in names:
            client.collection(name).add_documents([Document(f"text of {name}", id=name)])
            assert len(client.collection(name).indexes.create()) == 3
        for name in names:
            assert [result.id for result in client.collection(name).search("text")] == [name]
        assert [entry.name for entry in client.collections()] == sorted(names)


@pytest.mark.slow
def test_a_dropped_collection_leaves_nothing(database_url):
    with sync_filled(database_url, {"a": "stays"}, collection="stays"):
        before = relations(database_url)
    retriever = sync_opened(database_url, collection="goes")
    retriever.initialize()
    retriever.add_texts([f"text {number}" for number in range(100)])
    retriever.indexes.create()
    assert retriever.drop_collection()
    assert relations(database_url) == before
    with pytest.raises(errors.ConfigurationError, match="was closed"):
        retriever.count()
    with pytest.raises(errors.CollectionNotFoundError, match="collections: stays"):
        sync_opened(database_url, collection="goes", create=False).initialize()
    # Made again it is a new one, and free to hold another model's vectors.
    with SyncRetriever(database_url, "none", use_reranking=False, collection="goes") as retriever:
        assert retriever.count() == 0
        retriever.add_documents([Document("new", id="a")], np.ones((1, 3), np.float32))
        assert retriever.status().dimensions == 3


@pytest.mark.parametrize("keyword", ["bm25", "tsvector"])
def test_a_stale_writer_leaves_a_new_collection_alone(database_url, tmp_path, keyword):
    (tmp_path / "page.md").write_text("a page", encoding="utf-8")
    writes = [
        lambda stale: stale.add_texts(["lost"], ids=["lost"]),
        lambda stale: stale.index(tmp_path),
        lambda stale: stale.delete(["old"]),
        lambda stale: stale.documents.rechunk(),
    ]
    with ExitStack() as stack:
        # One for each write: behind its first failure a writer opens the new collection.
        open_ones = [stack.enter_context(SyncRetriever(database_url, "none", keyword=keyword)) for _ in writes]
        absent = stack.enter_context(SyncRetriever(database_url, "none", keyword=keyword))
        open_ones[0].add_texts(["old"], ids=["old"])
        open_ones[0].add_texts(["older"], ids=["older"])  # in one round trip, by what it has remembered
        open_ones[0].index(tmp_path)
        with SyncClient(database_url, "none", use_reranking=False) as client:
            client.drop("default_collection")
        with pytest.raises(errors.CollectionNotFoundError):
            absent.add_texts(["lost"], ids=["lost"])
        with SyncRetriever(database_url, "none", keyword="bm25") as fresh:
            for stale, write in zip(open_ones, writes, strict=True):
                with pytest.raises(errors.CollectionNotFoundError, match="dropped"):
                    write(stale)
            assert fresh.count() == 0
            assert fresh.status().last_run is None
            assert fresh.documents.sources() == []
            fresh.add_texts(["new"], ids=["new"])
            assert [hit.id for hit in fresh.search("new")] == ["new"]


WHO = "SELECT current_user::text, current_setting('role')"
FORMS = ("read", "whole", "nested", "limited", "failing", "write", "one_snapshot", "in_one_go", "interrupted")


@pytest.fixture
def tenants(database_url):
    with tenants_of(database_url) as made:
        yield made


async def who(connection):
    return await (await connection.execute(WHO)).fetchone()


async def in_a_read(snapshot, form, seen):
    """Notes who it is, before and after what a form does inside."""
    seen.append(await who(snapshot.connection))  # the driver has seen all answers, and does not know that it has begun
    if form == "nested":
        inside = SnapshotReads(snapshot)
        seen.append(await inside.read("look", who))
        with pytest.raises(errors.StoreError):
            await inside.read("fail", lambda connection: connection.execute("SELECT 1 / 0"))
    elif form == "limited":
        async with snapshot.in_time():
            await snapshot.connection.execute("SELECT set_config('statement_timeout', '20', true)")  # expires
            await snapshot.connection.execute("SELECT pg_sleep(5)")
            seen.append(await who(snapshot.connection))
    elif form == "failing":
        await snapshot.connection.execute("SELECT 1 / 0")
    seen.append(await who(snapshot.connection))


async def seen_in(database, form):
    """Who a transaction of a form was, at its beginning and its end."""
    seen = []

    async def in_a_write(connection):
        seen.append(await who(connection))
        if form == "interrupted":
            raise KeyError

    if form == "whole":
        seen.append(await database.read_whole("look", who))
    elif form in ("read", "nested", "limited", "failing"):
        with pytest.raises(errors.StoreError) if form == "failing" else nullcontext():
            await database.read_snapshot("look", lambda snapshot: in_a_read(snapshot, form, seen))
    elif form == "in_one_go":
        sent = []

        async def send(connection):
            sent.append(await connection.execute(WHO))

        await database.write_in_one_go("look", send)
        seen += [await cursor.fetchone() for cursor in sent]
    else:
        with pytest.raises(KeyError) if form == "interrupted" else nullcontext():
            await database.write("look", in_a_write, one_snapshot=form == "one_snapshot")
    return seen


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(6))
@given(
    turns=st.lists(st.tuples(st.sampled_from(FORMS), st.sampled_from([None, "one", "two"])), min_size=8, max_size=30)
)
async def test_every_form_of_a_transaction_has_its_role_and_leaves_none(database_url, turns):
    with tenants_of(database_url) as tenants:
        roles = {None: None} | {name: tenants.make_role(name) for name in ("one", "two")}
        async with Database(tenants.url, max_size=1) as database:
            for form, name in turns:
                role = roles[name]
                acting = database if role is None else database.acting_as(role)
                expected = (tenants.login, "none") if role is None else (role, role)
                assert set(await seen_in(acting, form)) == {expected}, form
                async with database.connection() as connection:
                    assert await who(connection) == (tenants.login, "none"), form


async def test_behind_a_transaction_pooler_and_on_a_pool_whose_connections_begin_transactions(tenants):
    async with (
        TransactionPooler(tenants.url, 1) as pooler,
        Database(pooler.address, max_size=2) as behind,
        AsyncConnectionPool(tenants.url, min_size=1, max_size=1, open=False) as pool,
    ):
        role = tenants.make_role("one")
        for database in (behind, Database(pool=pool)):
            for form in FORMS:
                assert set(await seen_in(database.acting_as(role), form)) == {(role, role)}, form
                assert set(await seen_in(database, "read")) == {(tenants.login, "none")}, form


@pytest.fixture
async def own(tenants):
    async with await psycopg.AsyncConnection.connect(tenants.url) as connection:
        yield connection


async def test_a_transaction_of_the_users_gets_its_own_role_back(tenants, own):
    role, other = tenants.make_role("one"), tenants.make_role("two")
    for before in ("none", other):
        await own.execute("SELECT set_config('role', %s, true)", [before])
        mine = await who(own)
        for form in ("read", "write", "failing", "interrupted"):
            seen = await seen_in(Database(connection=own).acting_as(role), form)
            assert seen == [(role, role)] * (2 if form == "read" else 1), form
            assert await who(own) == mine, form


async def test_roles_that_cannot_be_taken_and_rights_that_a_role_lacks(tenants, own):
    strange, inherited = f"Strange {tenants.login}", tenants.make_role("one")
    tenants.run("CREATE ROLE {}", strange)
    tenants.run("GRANT {} TO {} WITH SET FALSE", inherited, tenants.login)
    absent = r"role 'nobody' does not exist on this server: run CREATE ROLE \"nobody\";"
    async with Database(tenants.url) as database:
        for form in ("read", "whole", "write", "in_one_go"):
            with pytest.raises(errors.PrivilegeError) as raised:
                await seen_in(database.acting_as(strange), form)
            remedy = f'run GRANT "{strange}" TO "{tenants.login}";'
            assert str(raised.value) == f"the login '{tenants.login}' may not take the role '{strange}': {remedy}"
        with pytest.raises(errors.PrivilegeError, match="may not take the role"):
            await seen_in(database.acting_as(inherited), "read")
        with pytest.raises(errors.PrivilegeError, match=absent):
            await seen_in(database.acting_as("nobody"), "read")
    for form in ("read", "write"):
        with pytest.raises(errors.PrivilegeError, match=absent):
            await seen_in(Database(connection=own).acting_as("nobody"), form)
        await own.execute("SELECT 1")
    assert await who(own) == (tenants.login, "none")

    one, role = tenants.make("acme", "anvil"), tenants.make_role("two")
    forbidden = "permission denied for schema acme.*"

    async def ask(database, statement):
        await database.read("look", lambda connection: connection.execute(statement))

    async with Database(tenants.url) as database:
        with pytest.raises(errors.PrivilegeError, match=rf"{forbidden}the role '{role}' lacks the right"):
            await ask(database.acting_as(role), "SELECT FROM acme.collection")
        with pytest.raises(errors.PrivilegeError, match=rf"{forbidden}deploy\.md shows what to GRANT"):
            await ask(database, "SELECT FROM acme.collection")
        with pytest.raises(errors.StoreError, match="the server refused a value"):  # 22023, and no role's fault
            await ask(database.acting_as(one.owner), "SELECT set_config('jit', 'x', true)")


@pytest.mark.parametrize("role", ["", " ", "x" * 64, "ü" * 32, "a\0b", "none", "public", "\ud800", 3, b"one"])
async def test_what_can_be_no_role_is_refused_before_anything_is_asked(role):
    with pytest.raises(errors.ConfigurationError, match="role"):
        Database("host=nowhere").acting_as(role)


async def test_any_other_name_is_a_name(tenants):
    async with Database(tenants.url) as database:
        for role in ('a"b', "a'b", "a\\b", "A b", "ü" * 31, "'; DROP ROLE x; --"):
            name = f"{role[:40]}{tenants.login}"[:31] if len(role) < 31 else role
            tenants.run("CREATE ROLE {}", name)
            try:
                tenants.run("GRANT {} TO {}", name, tenants.login)
                for form in ("read", "write"):
                    assert set(await seen_in(database.acting_as(name), form)) == {(name, name)}
            finally:
                tenants.run("DROP ROLE {}", name)
