"""Changes of followed tables: triggers queue the keys of changed rows, and the queue agrees with a plain model."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from semlex.errors import ConfigurationError, StoreError
from semlex.store.followed.connection import fix_formatting
from semlex.store.followed.definitions import bound_times, definition_to_json, read_tables
from semlex.store.followed.queue import LAST_PAUSE_SECONDS, ChangeQueue, FailedRow
from semlex.store.followed.source import find_source
from semlex.store.followed.triggers import TableTriggers, remove_triggers
from semlex.store.postgres.database import Database
from semlex.store.schema.names import Names
from semlex.types.followed import FollowedTable
from tests.support.databases import new_role
from tests.support.followed import trigger_function
from tests.support.properties import OWN_ROWS, examples
from tests.support.waiting import until_waiting

pytestmark = pytest.mark.pg16

NAMES = Names("semlex", "book")
# Columns named like what a function has already: its variables, its aliases, what PL/pgSQL defines.
COLUMNS = """tenant int, slug text, source text, t json, tg_op numeric, body text,
    seen int DEFAULT 0, PRIMARY KEY (tenant, slug)"""
TABLES = {
    "plain": ["CREATE TABLE shop.item ({})"],
    # By range, so that rows move between partitions, one of which is partitioned again and one has other column order.
    "partitioned": [
        "CREATE TABLE shop.item ({}) PARTITION BY RANGE (tenant)",
        "CREATE TABLE shop.item_0 PARTITION OF shop.item FOR VALUES FROM (0) TO (2)",
        "CREATE TABLE shop.item_2 PARTITION OF shop.item FOR VALUES FROM (2) TO (4) PARTITION BY LIST (tenant)",
        "CREATE TABLE shop.item_2_2 PARTITION OF shop.item_2 FOR VALUES IN (2)",
        """CREATE TABLE shop.item_2_3 (seen int DEFAULT 0, body text, gone int, tenant int NOT NULL, t json,
            tg_op numeric, slug text NOT NULL, source text)""",
        "ALTER TABLE shop.item_2_3 DROP COLUMN gone",
        "ALTER TABLE shop.item_2 ATTACH PARTITION shop.item_2_3 FOR VALUES IN (3)",
    ],
    "inherited": ["CREATE TABLE shop.item ({})", "CREATE TABLE shop.item_0 (more text) INHERITS (shop.item)"],
}
DEFINITION = FollowedTable(
    name="it's 100% $semlex$", schema="shop", table="item", key=("tenant", "slug"), key_kinds=("int", "text"),
    text=("body", "source || '%' || tg_op -- $semlex$"), heading="source", metadata=("t",), changes="trigger",
)  # fmt: skip


async def define(connection, definition):
    """Store a definition, in place of one of the same name."""
    await connection.execute("DELETE FROM semlex.followed_table WHERE name = %s", [definition.name])
    await connection.execute(
        "INSERT INTO semlex.followed_table (collection, name, source_id, definition, look_at, created_at, updated_at) "
        "VALUES ('book', %s, %s, %s, now(), clock_timestamp(), clock_timestamp())",
        [definition.name, uuid4(), Jsonb(definition_to_json(definition, {}))],
    )
    [stored] = await read_tables(connection, NAMES, definition.name)
    return stored


async def triggers_of(connection, definition):
    async with connection.transaction():
        await fix_formatting(connection)
        return TableTriggers(NAMES, await find_source(connection, definition))


@asynccontextmanager
async def followed(url, *statements, definition=DEFINITION):
    """A table that is followed, without triggers; `seen` are the entries of the queue that a test has looked at."""
    async with Database(url) as database, await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for statement in ("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop", *statements):
            await connection.execute(sql.SQL(statement).format(sql.SQL(COLUMNS)))
        await connection.execute("TRUNCATE semlex.row_change")
        stored = await define(connection, definition)
        triggers, connect = await triggers_of(connection, definition), partial(psycopg.connect, url)
        yield SimpleNamespace(database=database, stored=stored, triggers=triggers, connect=connect, seen=set())


def new_entries(table, connection):
    """The keys of entries that came since the last call; with their tables, as they should be."""
    rows = connection.execute(
        "SELECT change_id, row_key, source_id, due_at <= clock_timestamp(), attempts, error_code FROM semlex.row_change"
    ).fetchall()
    new = [row for row in rows if row[0] not in table.seen]
    table.seen |= {row[0] for row in rows}
    assert {row[2:] for row in new} <= {(table.stored.source_id, True, 0, None)}
    return {row[1] for row in new}


def contents(connection):
    """The plain twin of what triggers see: the followed columns of every row, by key."""
    columns = "jsonb_build_array(tenant, slug)::text, source, t::text, body, source || '%' || tg_op"
    return {key: rest for key, *rest in connection.execute(f"SELECT {columns} FROM shop.item")}


tenants, slugs = st.integers(0, 3), st.sampled_from(["a", "b", 'é"%'])
bodies = st.sampled_from([None, "", "x", "X", "long " * 1_000])
rows = st.tuples(tenants, slugs, st.sampled_from(["s", "S"]), st.sampled_from(['{"a":1}', '{"a": 1}', None]), bodies)
conditions = st.sampled_from(["tenant = 0", "tenant > 1", "slug = 'a'", "body IS NULL", "true", "false"])
changes = st.sampled_from(
    [
        *("body = body", "body = 'x'", "body = body || 'y'", "source = upper(source)", "t = t::jsonb::text::json"),
        *("tg_op = coalesce(tg_op, 0) + 1", "tg_op = 1.00", "tg_op = 1.0", "seen = seen + 1"),
        *("tenant = (tenant + 1) % 4", "slug = 'b'", "slug = slug || '1', seen = 9"),
    ]
)
some_rows = st.lists(rows, min_size=1, max_size=4)
different_rows = st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: row[:2])
updates, deletions = st.tuples(conditions, changes), st.tuples(conditions)
VALUES = {
    "insert": some_rows, "copy": some_rows, "upsert": different_rows, "merge": different_rows,
    "update": updates, "update part": updates, "delete": deletions, "delete part": deletions,
    "cascade": tenants, "truncate": st.just(()), "truncate part": st.just(()), "two in one": updates,
}  # fmt: skip
writes = st.one_of(st.tuples(st.just(name), values) for name, values in VALUES.items())
MERGE = (
    "MERGE INTO shop.item AS i USING (SELECT * FROM jsonb_to_recordset(%s) "
    "AS r(tenant int, slug text, source text, t json, body text)) AS r ON i.tenant = r.tenant AND i.slug = r.slug "
    "WHEN MATCHED AND r.body IS NULL THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET body = r.body, t = r.t "
    "WHEN NOT MATCHED THEN INSERT (tenant, slug, source, t, body) VALUES (r.tenant, r.slug, r.source, r.t, r.body)"
)


def execute(connection, part, write):
    do, values = write
    if do in ("insert", "upsert", "copy", "merge"):
        write_rows(connection, do, values)
    elif do == "cascade":
        connection.execute("DELETE FROM shop.tenant WHERE id = %s", [values])
        connection.execute("INSERT INTO shop.tenant VALUES (%s)", [values])
    else:
        table = part if do.endswith("part") else "shop.item"
        statement = {
            "update": "UPDATE {table} SET {change} WHERE {condition}",
            "delete": "DELETE FROM {table} WHERE {condition}",
            "truncate": "TRUNCATE {table}",
            "two": "WITH gone AS (DELETE FROM {table} WHERE slug = 'a' RETURNING 1) "
            "UPDATE {table} SET {change} WHERE slug <> 'a' AND {condition}",
        }[do.split()[0]]
        connection.execute(statement.format(table=table, **dict(zip(("condition", "change"), values, strict=False))))


def write_rows(connection, do, values):
    if do == "copy":
        with connection.cursor().copy("COPY shop.item (tenant, slug, source, t, body) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    elif do == "merge":
        made = [dict(zip(("tenant", "slug", "source", "t", "body"), row, strict=True)) for row in values]
        connection.execute(MERGE, [Jsonb([row | {"t": row["t"] and {"a": 1}} for row in made])])
    else:
        ending = "" if do == "insert" else "ON CONFLICT (tenant, slug) DO UPDATE SET body = EXCLUDED.body"
        rows = ", ".join(["(%s, %s, %s, %s::json, %s)"] * len(values))
        statement = f"INSERT INTO shop.item (tenant, slug, source, t, body) VALUES {rows} {ending}"
        connection.execute(statement, [value for row in values for value in row])


ROW = (2, "b", "s", None, "x")
EACH = [*((name, [ROW]) for name in ("insert", "upsert", "merge")), ("update", ("true", "body = 'y'"))]
EACH += [("delete", ("tenant = 0",)), ("truncate part", ()), ("truncate", ())]
transactions = st.tuples(st.lists(st.tuples(writes, st.booleans()), min_size=1, max_size=4), st.booleans())


@pytest.mark.parametrize("kind", TABLES)
def test_what_a_transaction_changes_is_queued_with_it_and_nothing_else(database_url, kind):
    """Beside a plain twin: the table before and after each statement; savepoints and transactions are rolled back."""

    @settings(OWN_ROWS)
    @example(history=[([(one, True) for one in EACH], True)])
    @given(history=st.lists(transactions, min_size=1, max_size=5))
    def check(history):
        rows = "(0, 'a', 'x'), (1, 'b', 'y'), (3, 'a', 'z')"
        connection.execute(f"TRUNCATE shop.item; INSERT INTO shop.item (tenant, slug, body) VALUES {rows}")
        new_entries(table, connection)
        for statements, commits in history:
            expected = set()
            with connection.transaction(force_rollback=not commits):
                for write, keeps in statements:
                    before = contents(connection)
                    after = before
                    with suppress(psycopg.IntegrityError), connection.transaction(force_rollback=not keeps):
                        execute(connection, "shop.item" if kind == "plain" else "shop.item_0", write)
                        after = contents(connection)
                        done.add(write[0])
                    if keeps:
                        changed = {key for key in before | after if before.get(key) != after.get(key)}
                        # TRUNCATE says that every row must be compared, and names none.
                        expected |= {None} if write[0].startswith("truncate") else changed
            assert new_entries(table, connection) == (expected if commits else set())

    done = set()

    async def prepare():
        tenants = "CREATE TABLE shop.tenant (id int PRIMARY KEY); INSERT INTO shop.tenant VALUES (0), (1), (2), (3)"
        key = "ALTER TABLE shop.item ADD FOREIGN KEY (tenant) REFERENCES shop.tenant ON DELETE CASCADE"
        async with followed(database_url, *TABLES[kind], tenants, key) as made:
            assert (await made.triggers.keep(made.database, made.stored)).is_complete
            return made

    table = asyncio.run(prepare())
    with table.connect(autocommit=True) as connection:
        check()
    assert done >= {name for name, _ in EACH}


INSERT = "INSERT INTO shop.item (tenant, slug, source, tg_op) VALUES (%s, %s, 's', 1)"


@asynccontextmanager
async def watched(url, *statements, kind="plain", definition=DEFINITION):
    """A table with its triggers, and a connection that writes."""
    async with followed(url, *TABLES[kind], *statements, definition=definition) as table:
        assert (await table.triggers.keep(table.database, table.stored)).is_complete
        with table.connect(autocommit=True) as connection:
            yield table, connection


async def test_a_role_that_knows_nothing_of_the_queue_writes_as_before(database_url):
    async with watched(database_url) as (table, administration):
        rights = ("USAGE ON SCHEMA shop", "INSERT, SELECT ON shop.item")
        with new_role(database_url, *rights) as role, table.connect(user=role, autocommit=True) as connection:
            connection.execute(INSERT, [1, "a"])
            assert new_entries(table, administration) == {'[1, "a"]'}
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT FROM semlex.row_change")
            # With it, a table's owner would let types of their own run with the rights of the queue's.
            connection.execute("CREATE TEMP TABLE own (tenant int, slug text)")
            administration.execute("GRANT USAGE ON SCHEMA semlex TO " + role)
            function = f"EXECUTE FUNCTION {trigger_function(administration)}"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"CREATE TRIGGER x AFTER INSERT ON own {function}")


def triggers_left(connection):
    return connection.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'semlex%'").fetchall()


async def test_a_write_never_fails(database_url):
    divided = replace(DEFINITION, text=("(1 / seen)::text", "body"))
    async with watched(database_url, definition=divided) as (table, connection):
        messages = []
        connection.add_notice_handler(lambda notice: messages.append(str(notice.message_primary)))
        # Of a row whose expression fails, and of all rows beside it, nothing is known: every row is compared.
        connection.execute("INSERT INTO shop.item (tenant, slug, seen) VALUES (1, 'a', 1), (2, 'a', 0)")
        connection.execute("UPDATE shop.item SET body = 'x'")
        assert new_entries(table, connection) == {'[1, "a"]', '[2, "a"]', None}
        assert not messages
        # Somebody locks the queue for longer than a writer waits.
        with table.connect() as other:
            other.execute("LOCK TABLE semlex.row_change")
            connection.execute(INSERT, [3, "a"])
        assert messages.pop().endswith("finds it. Error 55P03")
        # The queue is gone, or all of semlex.
        for gone in ("row_change", "followed_table"):
            connection.execute(f"ALTER TABLE semlex.{gone} RENAME TO other".encode())
            with connection.transaction():
                connection.execute(INSERT, [3, gone])
                connection.execute("TRUNCATE shop.item")
                connection.execute(INSERT, [3, gone])
            assert [message[-5:] for message in messages] == ["42P01"] * 3
            messages.clear()
            connection.execute(f"ALTER TABLE semlex.other RENAME TO {gone}".encode())
        assert connection.execute("SELECT count(*) FROM shop.item").fetchone() == (1,)
        assert new_entries(table, connection) == set()


async def test_triggers_are_removed_only_if_the_table_is_not_followed_and_do_nothing_until_then(database_url):
    async with watched(database_url) as (table, connection):
        await remove_triggers(table.database, NAMES, DEFINITION.name)
        assert len(triggers_left(connection)) == 4
        other = """UPDATE semlex.followed_table SET definition = definition || '{"changes": "column"}'"""
        for change in (other, "DELETE FROM semlex.followed_table"):
            connection.execute(change)
            connection.execute(INSERT, [1, change[:6]])
            connection.execute("DELETE FROM shop.item")
        assert new_entries(table, connection) == set()
        assert len(triggers_left(connection)) == 4
        for _ in range(2):
            await remove_triggers(table.database, NAMES, DEFINITION.name)
            assert triggers_left(connection) == []


async def test_a_changed_definition_has_other_triggers_and_a_former_one_makes_none(database_url):
    async with watched(database_url, kind="partitioned") as (table, connection):
        connection.execute(INSERT, [3, "a"])
        connection.execute("UPDATE shop.item SET seen = 1")
        assert new_entries(table, connection) == {'[3, "a"]'}
        before = await table.triggers.keep(table.database, table.stored)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
            wanted = replace(DEFINITION, text=("seen",))
            stored = await define(other, wanted)
            triggers = await triggers_of(other, wanted)
        after = await triggers.keep(table.database, stored)
        assert after.state != before.state
        # A worker that read the former definition.
        await table.triggers.keep(table.database, table.stored)
        assert await triggers.keep(table.database, stored) == after
        table.stored = stored
        connection.execute("UPDATE shop.item SET seen = 2")
        assert new_entries(table, connection) == {'[3, "a"]'}
        connection.execute("UPDATE shop.item SET body = 'other'")
        assert new_entries(table, connection) == set()


DROP_ONE = """DO $$ BEGIN EXECUTE (
    SELECT format('DROP TRIGGER %I ON shop.item', min(tgname)) FROM pg_trigger WHERE tgname LIKE 'semlex%'
); END $$"""
PER_TABLE = """SELECT count(*), tgrelid IN (SELECT relid FROM pg_partition_tree('shop.item'))
    FROM pg_trigger WHERE tgname LIKE 'semlex%' GROUP BY tgrelid"""


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE shop.item_5 PARTITION OF shop.item FOR VALUES FROM (5) TO (6)",
        "CREATE TABLE shop.other ({}); ALTER TABLE shop.item ATTACH PARTITION shop.other FOR VALUES FROM (4) TO (9)",
        "ALTER TABLE shop.item DETACH PARTITION shop.item_0",
        "DROP TABLE shop.item_0",
        "ALTER TABLE shop.item ALTER body TYPE text USING upper(body)",
        "ALTER TABLE shop.item_0 DISABLE TRIGGER ALL",
        "ALTER TABLE shop.item_0 DISABLE TRIGGER ALL; ALTER TABLE shop.item_0 ENABLE TRIGGER ALL",
        DROP_ONE,
    ],
)
async def test_what_no_trigger_notices_changes_the_state(database_url, statement):
    async with watched(database_url, kind="partitioned") as (table, connection):
        before = await table.triggers.look(table.database, table.stored)
        assert await table.triggers.look(table.database, table.stored) == before
        connection.execute(INSERT, [1, "a"])
        connection.execute("DELETE FROM shop.item")
        assert await table.triggers.look(table.database, table.stored) == before
        new_entries(table, connection)
        connection.execute(sql.SQL(statement).format(sql.SQL(COLUMNS)))
        noticed = await table.triggers.look(table.database, table.stored)
        assert (noticed.is_complete, noticed.warnings) == (True, [])
        assert noticed.state != before.state
        # What was attached has its triggers, and what was detached has them no more.
        assert all(count == 4 and is_partition for count, is_partition in connection.execute(PER_TABLE).fetchall())
        for name in ("item_5", "other"):
            if name in statement:
                connection.execute(f"INSERT INTO shop.{name} (tenant, slug) VALUES (5, 'b')")
                assert new_entries(table, connection) == {'[5, "b"]'}


async def test_triggers_of_a_detached_partition_are_dropped_by_its_owner(database_url):
    async with watched(database_url, kind="partitioned") as (table, connection):
        connection.execute("ALTER TABLE shop.item DETACH PARTITION shop.item_0")
        with new_role(database_url, "USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex") as role:
            async with Database(make_conninfo(database_url, user=role)) as database:
                noticed = await table.triggers.look(database, table.stored)
        assert noticed.is_complete
        [warning] = noticed.warnings
        assert "permission denied" in warning
        connection.execute(warning.partition("owner can run: ")[2].encode())
        assert {is_partition for _, is_partition in connection.execute(PER_TABLE).fetchall()} == {True}


async def test_a_long_transaction_of_a_user_makes_no_other_wait(database_url):
    """A lock that is asked for and not granted lets later ones wait: each try is short."""
    async with followed(database_url, *TABLES["plain"]) as table:
        with table.connect() as long, table.connect(autocommit=True) as connection:
            long.execute(INSERT, [1, "a"])
            with pytest.raises(StoreError, match=rf"make the triggers of shop\.item.*process {long.info.backend_pid}"):
                await table.triggers.keep(table.database, table.stored, seconds=0)
            making = asyncio.create_task(table.triggers.keep(table.database, table.stored))
            await asyncio.to_thread(until_waiting, connection)
            connection.execute(INSERT, [2, "a"])  # after 100 ms, or never
            assert not making.done()
            noticed = await table.triggers.look(table.database, table.stored)
            assert not noticed.is_complete
            assert f"process {long.info.backend_pid}" in noticed.warnings[0]
            long.commit()
            assert (await making).is_complete
            assert new_entries(table, connection) == set()
            connection.execute(INSERT, [3, "a"])
            assert new_entries(table, connection) == {'[3, "a"]'}


async def test_a_foreign_partition_is_refused(database_url):
    below = "CREATE TABLE shop.item_0 PARTITION OF shop.item FOR VALUES FROM (0) TO (2) PARTITION BY LIST (tenant)"
    async with followed(database_url, TABLES["partitioned"][0], below) as table:
        with table.connect(autocommit=True) as connection:
            connection.execute(
                """ALTER TABLE shop.item DROP CONSTRAINT item_pkey; CREATE FOREIGN DATA WRAPPER w;
                CREATE SERVER s FOREIGN DATA WRAPPER w;
                CREATE FOREIGN TABLE shop.item_9 PARTITION OF shop.item_0 FOR VALUES IN (0) SERVER s"""
            )
        with pytest.raises(ConfigurationError, match=r"shop\.item_9 is a foreign table.*--changes comparison"):
            await table.triggers.keep(table.database, table.stored)


# Seconds of the model's clock. A test takes less than one of them, so that the true clock changes no order.
STEP = 10_000
LEASE = 2 * STEP
SOURCES = [UUID(int=1), UUID(int=2)]
QUEUED = "INSERT INTO semlex.row_change (source_id, row_key, due_at, attempts)"
KEYS = ["1", "2", '[1, "a"]', "k" * 3_000]


@dataclass
class Entry:
    table: UUID
    key: str | None
    due: float
    attempts: int = 0
    hash: str | None = None
    code: str | None = None

    @property
    def row(self):
        return (self.table, self.key, self.attempts, self.hash, self.code)


def expected_pause(attempts):
    return min(60 * 2.0 ** (attempts - 1), LAST_PAUSE_SECONDS)


class QueueBesideModel(RuleBasedStateMachine):
    """What triggers and workers do with the queues of two tables."""

    url = ""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.entries = {}
        self.claimed = {table: [] for table in SOURCES}
        self._runner = asyncio.Runner()
        self.connection = self.run(psycopg.AsyncConnection.connect(self.url, autocommit=True))
        self.plain = psycopg.connect(self.url, autocommit=True)
        self.plain.execute("TRUNCATE semlex.row_change")
        self.queues = {table: ChangeQueue(Names("semlex", "x"), table) for table in SOURCES}

    def run(self, work):
        return self._runner.run(work)

    def teardown(self):
        self.plain.close()
        self.run(self.connection.close())
        self._runner.close()

    def stored(self):
        return self.plain.execute(
            "SELECT change_id, source_id, row_key, attempts, row_hash, error_code, "
            "extract(epoch FROM due_at - clock_timestamp())::float8 FROM semlex.row_change ORDER BY change_id"
        ).fetchall()

    @rule(table=st.sampled_from(SOURCES), key=st.sampled_from([None, *KEYS]))
    def notice(self, table, key):
        insert = f"{QUEUED} VALUES (%s, %s, now(), 0) RETURNING change_id"
        (number,) = self.plain.execute(insert, [table, key]).fetchone()
        self.entries[number] = Entry(table, key, self.now)

    @rule(steps=st.integers(1, 3))
    def pass_time(self, steps):
        self.now += steps * STEP
        self.plain.execute("UPDATE semlex.row_change SET due_at = due_at - %s * interval '1 s'", [steps * STEP])

    @rule(steps=st.integers(1, 3))
    def the_clock_steps_back(self, steps):
        """All stored times seem to be later, and are limited."""
        self.plain.execute("UPDATE semlex.row_change SET due_at = due_at + %s * interval '1 s'", [steps * STEP])
        self.run(bound_times(self.connection, "semlex", LEASE, {}))
        for entry in self.entries.values():
            longest = LEASE if entry.code is None else expected_pause(entry.attempts)
            entry.due = min(entry.due + steps * STEP, self.now + longest)

    @rule(table=st.sampled_from(SOURCES), limit=st.integers(1, 4))
    def claim(self, table, limit):
        changes = self.run(self.queues[table].claim(self.connection, limit=limit, seconds=LEASE))
        due = sorted(entry.due for entry in self.entries.values() if entry.table == table and entry.due <= self.now)
        # Entries that are due at nearly the same time have any order.
        latest = due[min(limit, len(due)) - 1] + STEP / 2 if due else 0
        assert len(changes) == min(limit, len(due))
        for change in changes:
            entry = self.entries[change.change_id]
            assert (change.row_key, table) == (entry.key, entry.table)
            assert entry.due <= min(self.now, latest)
            entry.due = self.now + LEASE
        self.claimed[table] += changes

    @rule(table=st.sampled_from(SOURCES), seconds=st.sampled_from([0, STEP]))
    def release(self, table, seconds):
        self.run(self.queues[table].release(self.connection, self.claimed[table], seconds=seconds))
        for change in self.claimed[table]:
            if change.change_id in self.entries:
                self.entries[change.change_id].due = self.now + seconds
        self.claimed[table] = []

    @rule(
        table=st.sampled_from(SOURCES),
        done=st.lists(st.sampled_from(KEYS), max_size=2),
        failed=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([None, "a", "b"]), max_size=2),
        count=st.integers(0, 3),
    )
    def settle(self, table, done, failed, count):
        done = [key for key in done if key not in failed]
        ended = self.claimed[table][:count]
        del self.claimed[table][:count]
        rows = [FailedRow(key, hashed, "TooLarge", "\0" + "é" * 5_000) for key, hashed in failed.items()]
        self.run(self.queues[table].settle(self.connection, ended, done=done, failed=rows))
        before = {}
        for number, entry in list(self.entries.items()):
            is_problem = entry.table == table and entry.code is not None
            if is_problem and entry.key in failed and entry.hash == failed[entry.key]:
                before[entry.key] = entry.attempts
            if (is_problem and (entry.key in failed or entry.key in done)) or number in {e.change_id for e in ended}:
                del self.entries[number]
        for number, source_id, key, *_, due in self.stored():
            if number not in self.entries:
                assert source_id == table
                attempts = before.get(key, 0) + 1
                assert due == pytest.approx(expected_pause(attempts), abs=20)
                ends = self.now + expected_pause(attempts)
                self.entries[number] = Entry(table, key, ends, attempts, failed[key], "TooLarge")
        assert {e.key for e in self.entries.values() if e.table == table and e.code} >= set(failed)

    @invariant()
    def holds_the_same(self):
        stored = self.stored()
        assert [row[:-1] for row in stored] == [(number, *one.row) for number, one in sorted(self.entries.items())]
        for number, *_, due in stored:
            assert self.entries[number].due - self.now == pytest.approx(due, abs=STEP / 2 if due > 0 else 2 * STEP)
        for table, queue in self.queues.items():
            own = [entry for entry in self.entries.values() if entry.table == table]
            problems = [entry for entry in own if entry.code is not None]
            assert self.run(queue.count(self.connection)) == (len(own) - len(problems), len(problems))
            shown = self.run(queue.problems(self.connection))
            assert sorted((one.key, one.attempts) for one in shown) == sorted((e.key, e.attempts) for e in problems)
            assert all(one.message == "é" * 1_999 for one in shown)
            put_off = {entry.key: entry.hash for entry in problems if entry.due > self.now}
            assert self.run(queue.put_off(self.connection, KEYS)) == put_off


def test_the_queue_holds_what_a_plain_model_of_it_holds(database_url):
    QueueBesideModel.url = database_url
    run_state_machine_as_test(QueueBesideModel, settings=settings(max_examples=examples(12), stateful_step_count=30))


async def test_workers_share_what_is_due_and_wait_for_nobody(database_url):
    queue = ChangeQueue(Names("semlex", "x"), uuid4())
    connect = psycopg.AsyncConnection.connect
    async with await connect(database_url) as first, await connect(database_url) as second:
        rows = "SELECT %s, n::text, now(), 0 FROM generate_series(1, 5) AS n"
        await first.execute(f"{QUEUED} {rows}", [queue._source_id])
        await first.commit()
        mine = await queue.claim(first, limit=3)
        others = await queue.claim(second)  # the first has not committed
        assert sorted(change.row_key or "" for change in mine + others) == ["1", "2", "3", "4", "5"]
        assert (len(mine), len(others)) == (3, 2)
        await first.rollback()  # killed before it committed: its part is there at once
        await second.commit()
        assert {change.row_key for change in await queue.claim(first)} == {change.row_key for change in mine}
