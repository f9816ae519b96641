"""A role is that of one transaction: in each form that transactions have, and never of what comes after it."""

from __future__ import annotations

from contextlib import nullcontext

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool

from semlex.errors import ConfigurationError, PrivilegeError, StoreError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.postgres.database import Database, SnapshotReads
from tests.support.properties import OWN_ROWS, examples
from tests.support.tenants import tenants_of

pytestmark = pytest.mark.pg16

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
        with pytest.raises(StoreError):
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
        with pytest.raises(StoreError) if form == "failing" else nullcontext():
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


async def test_roles_that_cannot_be_taken(tenants, own):
    strange, inherited = f"Strange {tenants.login}", tenants.make_role("one")
    tenants.run("CREATE ROLE {}", strange)
    tenants.run("GRANT {} TO {} WITH SET FALSE", inherited, tenants.login)
    absent = r"role 'nobody' does not exist on this server: run CREATE ROLE \"nobody\";"
    async with Database(tenants.url) as database:
        for form in ("read", "whole", "write", "in_one_go"):
            with pytest.raises(PrivilegeError) as raised:
                await seen_in(database.acting_as(strange), form)
            remedy = f'run GRANT "{strange}" TO "{tenants.login}";'
            assert str(raised.value) == f"the login '{tenants.login}' may not take the role '{strange}': {remedy}"
        with pytest.raises(PrivilegeError, match="may not take the role"):
            await seen_in(database.acting_as(inherited), "read")
        with pytest.raises(PrivilegeError, match=absent):
            await seen_in(database.acting_as("nobody"), "read")
    for form in ("read", "write"):
        with pytest.raises(PrivilegeError, match=absent):
            await seen_in(Database(connection=own).acting_as("nobody"), form)
        await own.execute("SELECT 1")
    assert await who(own) == (tenants.login, "none")


async def test_a_right_that_the_role_lacks(tenants):
    one, role = tenants.make("acme", "anvil"), tenants.make_role("one")
    forbidden = "permission denied for schema acme.*"

    async def ask(database, statement):
        await database.read("look", lambda connection: connection.execute(statement))

    async with Database(tenants.url) as database:
        with pytest.raises(PrivilegeError, match=rf"{forbidden}the role '{role}' lacks the right"):
            await ask(database.acting_as(role), "SELECT FROM acme.collection")
        with pytest.raises(PrivilegeError, match=rf"{forbidden}deploy\.md shows what to GRANT"):
            await ask(database, "SELECT FROM acme.collection")
        with pytest.raises(StoreError, match="the server refused a value"):  # 22023, and no role's fault
            await ask(database.acting_as(one.owner), "SELECT set_config('jit', 'x', true)")


@pytest.mark.parametrize("role", ["", " ", "x" * 64, "ü" * 32, "a\0b", "none", "public", "\ud800", 3, b"one"])
async def test_what_can_be_no_role_is_refused_before_anything_is_asked(role):
    with pytest.raises(ConfigurationError, match="role"):
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
