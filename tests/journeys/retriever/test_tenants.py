"""Tenants on one client: the server refuses what is another's, on every path, for real roles."""

import asyncio
import uuid
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool

from semlex import Document, HnswIndex, PostgreSQLRetriever, SemlexError
from semlex.errors import CollectionNotFoundError, ConfigurationError, PrivilegeError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.testing import HashEmbedder
from tests.support.folders import folder_with
from tests.support.properties import OWN_ROWS, examples
from tests.support.tenant_reads import reads, told
from tests.support.tenants import tenants_of
from tests.support.waiting import held, until_waiting

ROWS = 30
WORDS = {"acme": "anvil", "bolt": "brick"}
OTHER = {"acme": "bolt", "bolt": "acme"}
REFUSED = r"permission denied for (schema|table) .*the role '\w+' lacks the right"


@pytest.fixture
def tenants(database_url):
    with tenants_of(database_url) as made:
        for name, word in WORDS.items():
            made.make(name, word)
        yield made


def documents(word):
    return [Document(f"{word} number{n}", {"year": n, "word": word}, f"{word}{n}") for n in range(ROWS)]


async def filled(collection, word, folder):
    """A collection with added documents, a file, a tombstone and a source."""
    await collection.add_documents(documents(word))
    await collection.delete([f"{word}0"])
    files = {f"{word}.md": f"# {word}\n\nThe {word} is heavy.\n"}
    await collection.index(folder_with(folder / f"{word}-files", files))


def owned(client, tenant):
    return client.collection("notes", schema=tenant.name, role=tenant.owner)


def read(client, tenant, of=None):
    """A tenant's reader of the tables of a tenant."""
    return client.collection("notes", create=False, schema=(of or tenant).name, role=tenant.reader)


async def check_matrix(own, strange, folder):
    """Every read of every tenant tells its own words, nothing of the other, and is refused with the other's name.

    `own` and `strange` have by the name of each tenant its collection and the other's, as its role.
    """
    for name, word in WORDS.items():
        other = WORDS[OTHER[name]]
        for what, call in reads(folder / f"{name}-dump").items():
            assert other not in told(await call(own[name], word)), (name, what)
            # It may repeat the question, and says nothing else.
            if asked_for_the_other := what != "dump" and told(await call(own[name], other)):
                assert f"The {other}" not in asked_for_the_other, (name, what)
                assert f"{other} number3" not in asked_for_the_other.replace(f"{other} number3?", ""), (name, what)
        texts = {chunk.content for chunk in await own[name].list_chunks(limit=1000)}
        assert len(texts) == ROWS
        assert all(word in text for text in texts)
        for what, call in reads(folder / f"{name}-refused").items():
            with pytest.raises(PrivilegeError, match=REFUSED) as raised:
                await call(strange[name], other)
            assert other not in str(raised.value), (name, what)
        assert not (folder / f"{name}-refused").exists()


@pytest.mark.slow
async def test_a_schema_for_each_tenant(tenants, tmp_path):
    acme, bolt = tenants.tenants["acme"], tenants.tenants["bolt"]
    pool = AsyncConnectionPool(tenants.url, min_size=1, max_size=2, open=False)
    async with tenants.client() as client:
        for tenant in (acme, bolt):
            await filled(owned(client, tenant), tenant.word, tmp_path)
        own = {tenant.name: read(client, tenant) for tenant in (acme, bolt)}
        strange = {"acme": read(client, acme, bolt), "bolt": read(client, bolt, acme)}
        await check_matrix(own, strange, tmp_path)
        # A reader may not write.
        reader = own["acme"]
        for call in (
            *(reader.add_documents([Document(f"{n}", id=f"{n}") for n in range(count)]) for count in (1, 1200)),
            *(reader.delete(["anvil1"]), reader.index(tmp_path / "anvil-files"), reader.indexes.create(HnswIndex())),
            *(reader.indexes.optimize(), reader.indexes.rebuild_keyword(), reader.jobs.submit("optimize")),
            reader.drop(),
        ):
            with pytest.raises(PrivilegeError, match=r"the role .* lacks the right"):
                await call
        assert await reader.count() == ROWS
        with pytest.raises(PrivilegeError, match=r'GRANT USAGE, CREATE ON SCHEMA "acme" TO "acme_reader_\w+"'):
            await client.collection("more", schema="acme", role=acme.reader).count()
        # Roles hold on the caller's own connections.
        async with pool, tenants.client(pool=pool) as other, pool.connection() as connection:
            await connection.execute("SELECT 1")
            for tenant, stranger in ((acme, bolt), (bolt, acme)):
                hits = await read(other, tenant).using(connection).search("number3")
                assert {tenant.word in hit.content for hit in hits} == {True}
                with pytest.raises(PrivilegeError, match=REFUSED):
                    await read(other, tenant, stranger).using(connection).search("number3")
            await owned(other, acme).using(connection).add_documents([Document("anvil late", id="late")])
            cursor = await connection.execute("SELECT current_user::text, current_setting('role')")
            assert await cursor.fetchone() == (tenants.login, "none")
        # A revoked right takes effect at once.
        assert await reader.search("anvil", mode="keyword")
        tenants.run("REVOKE SELECT ON ALL TABLES IN SCHEMA acme FROM {}", acme.reader)
        for what, call in reads(tmp_path / "dump").items():
            with pytest.raises(PrivilegeError, match=REFUSED):
                assert await call(reader, "anvil") == what  # names it where it is not refused
        tenants.run("REVOKE {} FROM {}", acme.reader, tenants.login)
        for mode in ("keyword", "vector", "hybrid"):
            with pytest.raises(PrivilegeError, match="may not take the role"):
                await reader.search("anvil", mode=mode)


@pytest.mark.slow
async def test_one_schema_with_a_collection_for_each_tenant(tenants, tmp_path):
    """As in docs/how-to/tenants.md: readers see which collections there are, and read their own."""
    owner = tenants.make_role("common_owner")
    tenants.run("CREATE SCHEMA common AUTHORIZATION {}", owner)
    async with tenants.client(schema="common") as client:
        for name, word in WORDS.items():
            await filled(client.collection(name, role=owner), word, tmp_path)
        for name, tenant in tenants.tenants.items():
            tenants.run("GRANT USAGE ON SCHEMA common TO {}", tenant.reader)
            for table in ("collection", "embedding_version", "registry_version"):  # what all collections share
                tenants.run("GRANT SELECT ON common.{} TO {}", table, tenant.reader)
            for (table,) in tenants.run("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_%'"):
                if table.startswith(f"{name}_"):
                    tenants.run("GRANT SELECT ON common.{} TO {}", table, tenant.reader)
        roles = {name: tenant.reader for name, tenant in tenants.tenants.items()}
        own = {name: client.collection(name, create=False, role=roles[name]) for name in WORDS}
        strange = {name: client.collection(OTHER[name], create=False, role=roles[name]) for name in WORDS}
        await check_matrix(own, strange, tmp_path)
        # What docs/how-to/tenants.md says that they see of each other, and no more.
        with pytest.raises(CollectionNotFoundError, match="'x' does not exist here; collections: acme, bolt"):
            await client.collection("x", create=False, role=roles["acme"]).count()
        opened = await strange["acme"].open()
        assert (opened.info.names.collection, opened.info.settings.language) == ("bolt", "english")


@pytest.mark.slow
async def test_the_owner_does_all_of_it(tenants, tmp_path):
    acme, options = tenants.tenants["acme"], {"collection": "notes", "use_reranking": False}
    model = HashEmbedder(16)
    async with PostgreSQLRetriever(tenants.url, model, schema="acme", role=acme.owner, **options) as retriever:
        await filled(retriever, acme.word, tmp_path)
        assert len(await retriever.search("anvil", 100)) == ROWS
        assert [one.name for one in await retriever.collections()] == ["notes"]
    for name, role in (("acme", None), ("bolt", acme.owner)):
        with pytest.raises(PrivilegeError):
            await PostgreSQLRetriever(tenants.url, model, schema=name, role=role, **options).initialize()
    async with tenants.client() as client:
        mine = owned(client, acme)
        await mine.add_documents([Document(f"{acme.word} more{n}", id=f"more{n}") for n in range(1200)])
        assert await mine.count() == ROWS + 1200
        assert (await mine.indexes.create(HnswIndex())).busy == []
        assert (await mine.indexes.create(HnswIndex(m=8), concurrently=True)).dropped
        await mine.indexes.optimize()
        await mine.indexes.rebuild_keyword()
        await mine.fields.add("year", "number")
        await mine.jobs.submit("optimize")
        await mine.sync(tmp_path / "anvil-files")
        theirs = client.collection("notes", create=False, schema="bolt", role=acme.owner)
        with pytest.raises(PrivilegeError, match=REFUSED):
            await theirs.search("brick")
        assert await mine.drop()
        query = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'acme'::regnamespace"
        assert tenants.run(query) == [(acme.owner,)]


@pytest.mark.slow
async def test_a_writer_that_owns_nothing(tenants, tmp_path):
    """As in docs/how-to/tenants.md, after the owner has made the collection and its first vectors."""
    acme = tenants.tenants["acme"]
    writer = tenants.make_role("acme_writer")
    tenants.run("GRANT USAGE ON SCHEMA acme TO {}", writer)
    for rights in ("SELECT, INSERT, UPDATE, DELETE ON TABLES", "USAGE ON SEQUENCES"):
        grant = f"ALTER DEFAULT PRIVILEGES FOR ROLE {{}} IN SCHEMA acme GRANT {rights} TO {{}}"
        tenants.run(grant, acme.owner, writer)
    async with tenants.client() as client:
        await owned(client, acme).add_documents([Document("first", id="first")])
        written = client.collection("notes", create=False, schema="acme", role=writer)
        await filled(written, acme.word, tmp_path)
        await written.add_documents([Document(f"{acme.word} more{n}", id=f"more{n}") for n in range(1200)])
        await written.indexes.optimize()
        assert await written.count() == ROWS + 1201
        assert (await written.search(acme.word)).warnings == []
        strange = client.collection("notes", schema="bolt", role=writer)
        with pytest.raises(PrivilegeError, match=REFUSED):
            await strange.add_documents([Document("x", id="x")])


@pytest.mark.slow
async def test_behind_a_pooler(tenants, tmp_path):
    async with TransactionPooler(tenants.url, 1) as pooler, tenants.client(pooler.address) as client:
        for tenant in tenants.tenants.values():
            await filled(owned(client, tenant), tenant.word, tmp_path)
        pairs = [(tenant, tenants.tenants[OTHER[tenant.name]]) for tenant in tenants.tenants.values()]
        for tenant, other in pairs * 2:
            hits = await read(client, tenant).search("number3 heavy", 100)
            assert {tenant.word in hit.content for hit in hits} == {True}
            with pytest.raises(PrivilegeError, match=REFUSED):
                await read(client, tenant, other).search("number3")


async def test_roles_that_cannot_be_taken(tenants):
    async with tenants.client() as client:
        with pytest.raises(PrivilegeError, match="role 'nobody' does not exist on this server"):
            await client.collection("notes", schema="acme", role="nobody").search("x")
        acme = tenants.tenants["acme"]
        tenants.run("REVOKE {} FROM {}", acme.owner, tenants.login)
        with pytest.raises(PrivilegeError, match=rf'GRANT "{acme.owner}" TO "{tenants.login}";'):
            await owned(client, acme).add_documents([Document("x", id="x")])
        with pytest.raises(ConfigurationError, match="reserved word"):
            client.collection("notes", role="none")


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(4))
@given(data=st.data())
async def test_nothing_of_another_in_any_order_of_calls(tenants, tmp_path, data):
    size, folder = data.draw(st.integers(1, 2), label="connections"), tmp_path / uuid.uuid4().hex
    async with tenants.client(max_connections=size) as client:
        try:
            for tenant in tenants.tenants.values():
                await filled(owned(client, tenant), tenant.word, folder)
            for number in range(data.draw(st.integers(5, 15), label="calls")):
                tenant = tenants.tenants[data.draw(st.sampled_from(sorted(WORDS)))]
                await step(client, tenant, tenants, folder / f"{number}", data)
                await check_connections(client, tenants.login, size)
        finally:
            for tenant in tenants.tenants.values():
                await owned(client, tenant).drop()


async def step(client, tenant, tenants, folder, data):
    other, ways = tenants.tenants[OTHER[tenant.name]], reads(folder)
    steps = ("read", "refused", "add", "delete", "cancelled", "wrong filter", "using", "login")
    what, call = data.draw(st.sampled_from(steps)), ways[data.draw(st.sampled_from(sorted(ways)))]
    mine, strange = read(client, tenant), read(client, tenant, other)
    if what == "read":
        assert other.word not in told(await call(mine, tenant.word))
    elif what == "refused":
        with pytest.raises(PrivilegeError, match=REFUSED):
            await call(strange, other.word)
    elif what == "add":
        await owned(client, tenant).add_documents([Document(f"{tenant.word} added", {"word": tenant.word}, "added")])
    elif what == "delete":
        await owned(client, tenant).delete(["added"])
    elif what == "cancelled":
        query = "SELECT oid::regclass::text, relnamespace::regnamespace::text FROM pg_class WHERE relkind = 'r'"
        tables = ", ".join(table for table, schema in tenants.run(query) if schema == tenant.name)
        with held(tenants.administrator, tables) as lock:
            task = asyncio.ensure_future(call(mine, tenant.word))
            await asyncio.to_thread(until_waiting, lock)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    elif what == "wrong filter":
        with suppress(SemlexError):
            await mine.search(tenant.word, filters="year > 1 and nothing like this")
    elif what == "using":
        async with client._resources.database.connection() as connection, connection.transaction():
            assert other.word not in told(await mine.using(connection).search(tenant.word))
            with pytest.raises(PrivilegeError, match=REFUSED):
                await strange.using(connection).count()
    else:
        with pytest.raises(PrivilegeError):
            await client.collection("notes", create=False, schema=tenant.name).count()


async def check_connections(client, login, size):
    """All connections of the pool are the login's."""
    database = client._resources.database

    async def look():
        async with database.connection() as connection:
            cursor = await connection.execute("SELECT current_user::text, session_user::text, current_setting('role')")
            return await cursor.fetchone()

    assert set(await asyncio.gather(*(look() for _ in range(size)))) == {(login, login, "none")}


async def test_questions_are_logged_with_the_rights_of_the_role(tenants, tmp_path):
    tenant = tenants.tenants["acme"]
    async with tenants.client(query_log="text") as client:
        mine, reader = owned(client, tenant), read(client, tenant)
        await filled(mine, tenant.word, tmp_path)
        await mine.search("asked by the owner")
        await reader.search("asked by a reader")
        await client._resources.query_log.flush()
        assert [query.query for query in (await mine.queries.summary()).most_asked] == ["asked by the owner"]
        log = (await reader.status()).query_log
        assert (log.logged, log.lost) == (0, 1)
        assert "permission denied" in str(log.problem)
