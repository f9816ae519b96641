"""Filtered searches that take remembered rows: they find what passes now, whatever happened since."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from struct import pack

import numpy as np
import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from semlex import HnswIndex, SyncRetriever
from semlex.search import retrieval
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.query import passing_chunks, passing_rows, vector
from semlex.store.query.leg import Statement
from semlex.store.query.passing_ids import SERVER_RUN
from semlex.store.query.passing_rows import PassingRows, RememberedFilter, RememberedRows, RoundedVectors
from semlex.store.query.run import fetch
from semlex.types.documents import Document
from tests.support.databases import execute
from tests.support.embedded_servers import configure
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import ids_of, opened, sync_opened
from tests.support.spies import calls_of, results_of
from tests.support.waiting import until

DIMENSIONS, ROWS, GROUPS = 16, 80, 8
CHUNK, VECTORS = "semlex.passing_chunk", "semlex.passing_embedding_1"
RANDOM = np.random.default_rng(5).normal(size=(4 * ROWS, DIMENSIONS))
VALUES = (RANDOM / np.linalg.norm(RANDOM, axis=1, keepdims=True)).astype(np.float32)
QUERY = VALUES[-1]


@dataclass
class Stored:
    """What is in the collection: group and number of the vector, by id."""

    url: str
    retriever: SyncRetriever
    connection: psycopg.Connection  # of another program
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)

    def write(self, names, group, vector):
        """Adds or replaces documents; their texts stay, and ids are numbers. Without a group each has its own."""
        for name in names:
            own = int(name) % GROUPS if group is None else group
            self.rows[name] = own, (vector + int(name)) % len(VALUES)
        documents = [Document(f"text number {name}", {"group": self.rows[name][0]}, id=name) for name in names]
        self.retriever.add_documents(documents, np.stack([VALUES[self.rows[name][1]] for name in names]))

    def move(self):
        """Changes the state of the database by a write elsewhere."""
        self.connection.execute("INSERT INTO other VALUES (1)")

    def best(self, group, top_k=5):
        """The exact answer."""
        passing = [(-float(VALUES[vector] @ QUERY), name) for name, (own, vector) in self.rows.items() if own == group]
        return [name for _, name in sorted(passing)][:top_k]

    def found(self, group, top_k=5, mode="vector"):
        """The hits of a search; a hybrid one ranks by the vectors alone, as all texts hold the words."""
        results = self.retriever.search("text number", top_k, {"group": group}, vector=QUERY, mode=mode)
        self.plan = results.legs["vector"].plan
        return ids_of(results)

    def check(self, group, top_k=5, mode="vector", times=1):
        """Searches find the exact answer; a search by vectors alone also its order."""
        order = list if mode == "vector" else set
        for _ in range(times):
            assert order(self.found(group, top_k, mode)) == order(self.best(group, top_k))


def fill(stored):
    stored.retriever.delete(list(stored.rows))
    stored.rows.clear()
    stored.write(list(map(str, range(ROWS))), None, 0)


client = partial(sync_opened, model="none", collection="passing")


@pytest.fixture(scope="module")
def stored(module_url):
    with (
        pytest.MonkeyPatch.context() as patch,
        client(module_url) as retriever,
        psycopg.connect(module_url, autocommit=True) as connection,
    ):
        patch.setattr(passing_rows, "MIN_WITH_VECTORS", 1)
        patch.setattr(passing_rows, "NUMBERS_AT_ONCE", 4 * DIMENSIONS)
        patch.setattr(vector, "MAX_NUMBERS_AT_ONCE", 6 * DIMENSIONS)
        connection.execute("CREATE TABLE other (n int)")
        yield Stored(module_url, retriever, connection)


@pytest.fixture
def searching(stored):
    """The collection with its first rows, in a client that has asked nothing yet; `stored` writes."""
    fill(stored)
    with client(stored.url) as retriever:
        yield Stored(stored.url, retriever, stored.connection, stored.rows)


NAMES = st.lists(st.integers(0, ROWS + 20).map(str), min_size=1, max_size=6, unique=True)
RUNS = ("VACUUM", f"VACUUM FULL {VECTORS}", "INSERT INTO other VALUES (1)")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("search"), st.integers(0, GROUPS - 1), st.sampled_from((1, 5, 40))),
        st.tuples(st.just("search"), st.just(0), st.just(5)),
        st.tuples(st.just("write"), NAMES, st.integers(0, 1), st.integers(0, 2)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("move"), NAMES, st.integers(0, 1)),
        st.tuples(st.just("run"), st.sampled_from(RUNS)),
    ),
    min_size=2,
    max_size=14,
)


@given(steps=STEPS)
def test_whatever_happens_in_between_the_best_that_pass_are_found(stored, steps):
    fill(stored)
    for step, *given_ in steps:
        if step == "search":
            stored.check(*given_)
            stored.check(*given_, mode=None)
        elif step == "write":
            stored.write(*given_)
        elif step == "delete":
            stored.retriever.delete(given_[0])
            stored.rows = {name: row for name, row in stored.rows.items() if name not in given_[0]}
        elif step == "move":  # by another program
            names, group = given_
            moved = f"UPDATE {CHUNK} SET metadata = %s WHERE chunk_id = ANY(%s)"
            stored.connection.execute(moved, [Jsonb({"group": group}), names])
            stored.rows |= {name: (group, stored.rows[name][1]) for name in names if name in stored.rows}
        else:
            stored.connection.execute(given_[0])
    stored.check(0)


def test_the_rows_are_compared_from_the_second_search_on(searching):
    for plan in ("exact, vectors by key", "exact, 10 rows that pass"):
        searching.check(3)
        assert searching.plan == plan
    for mode in ("vector", None):
        plans = []
        for _ in range(20):  # a transaction of the server itself, older than the rows, may be in the way for a moment
            searching.move()
            searching.check(3, mode=mode)
            plans.append(searching.plan)
        assert plans.count("exact, 10 rows that pass") > 10


def disturb(patch, change):
    """Changes something once, just before a search sends its statements; returns the plans of the vector searches."""
    run, plans, changes = retrieval.run_legs, [], [change]

    async def disturbed(snapshot, legs, *others):
        if changes:
            async with snapshot.in_one_go():  # from here on it sees what it sees now
                await snapshot.execute(b"SELECT 1", {})
            changes.pop()()
        plans.extend(leg.plan for leg in legs if leg.name == "vector")
        return await run(snapshot, legs, *others)

    patch.setattr(retrieval, "run_legs", disturbed)
    return plans


def test_a_table_that_is_rewritten_during_a_search_is_noticed(stored, searching, monkeypatch):
    """The snapshot of the search is older, so that only the table's file tells."""
    stored.connection.execute(f"VACUUM FULL {VECTORS}")
    stored.write([str(n) for n in range(0, ROWS, 3)], 7, 5)  # the old rows stay as gaps
    # Until the vectors are kept, and the search does not read the table before its statement.
    searching.check(1, times=5)
    plans = disturb(monkeypatch, lambda: stored.connection.execute(f"VACUUM FULL {VECTORS}"))
    searching.check(1)
    assert plans[0].endswith("rows that pass")
    assert len(plans) > 1


@contextmanager
def without_vector(stored, name):
    """Another program removes a vector for the time of the block."""
    execute = stored.connection.execute
    execute("CREATE TEMPORARY TABLE kept AS TABLE semlex.passing_embedding_1 WITH NO DATA")
    execute(f"WITH one AS (DELETE FROM {VECTORS} WHERE chunk_id = %s RETURNING *) INSERT INTO kept TABLE one", [name])
    yield
    execute(f"INSERT INTO {VECTORS} TABLE kept")
    execute("DROP TABLE kept")


def test_a_row_that_lies_where_another_one_was_is_noticed(stored, searching):
    """A vector is removed and comes back elsewhere; its old place is taken by that of a chunk that does not pass."""

    def places():
        found = stored.connection.execute(f"SELECT chunk_id, ctid::text FROM {VECTORS} ORDER BY ctid")
        return dict(found.fetchall())

    stored.connection.execute(f"VACUUM FULL {VECTORS}")
    searching.check(1, 40, times=3)
    before = places()
    last = next(name for name in reversed(before) if stored.rows[name][0] == 1)  # rows are written to the last page
    with without_vector(stored, last):
        stored.connection.execute(f"VACUUM {VECTORS}")
        stored.write(["1000"], 2, 0)
        assert places()["1000"] == before[last]
    searching.check(1, 40)


def test_a_vector_that_comes_later_is_found(stored, searching):
    """The chunk passes before it has a vector, and afterwards with the same id."""
    with without_vector(stored, "9"):
        for _ in range(3):
            assert searching.found(1, 40) == [name for name in searching.best(1, 40) if name != "9"]
    searching.check(1, 40)


def test_after_too_many_transactions_ages_prove_nothing(searching, monkeypatch):
    """Half of all numbers later the one from which rows were read seems to be still to come."""
    searching.check(3, times=2)
    read = retrieval.read_again
    xid = "SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000)::text"
    [[horizon]] = searching.connection.execute(xid).fetchall()

    async def read_long_ago(*arguments, **others):
        rows = await read(*arguments, **others)
        return None if rows is None else replace(rows, horizon=horizon)

    monkeypatch.setattr(retrieval, "read_again", read_long_ago)
    searching.move()
    searching.check(3)
    assert searching.plan == "exact, vectors by key"


@pytest.mark.parametrize("mode", ["vector", None])
def test_in_read_committed_another_program_changes_the_rows_during_a_search(stored, searching, monkeypatch, mode):
    with psycopg.connect(stored.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        mine = Stored(stored.url, searching.retriever.using(connection), stored.connection, stored.rows)
        mine.check(2, mode=mode, times=3)

        def change():
            stored.write(["1", "3"], 2, 0)
            stored.retriever.delete(["2", "10"])
            del stored.rows["2"], stored.rows["10"]
            stored.connection.execute("VACUUM")

        plans = disturb(monkeypatch, change)
        found = mine.found(2, 40, mode=mode)
        assert set(found) <= {name for name, (group, _) in stored.rows.items() if group == 2}
        assert len(plans) > 1
        monkeypatch.undo()
        mine.check(2, 40, mode=mode)
        connection.rollback()


def test_a_transaction_sees_its_own_rows(stored, searching):
    searching.check(4, times=3)
    with psycopg.connect(stored.url) as connection:
        mine = Stored(stored.url, searching.retriever.using(connection), stored.connection, dict(stored.rows))
        mine.write(["0", "1", "200"], 4, 7)
        mine.check(4, 40, times=3)
        connection.rollback()
    searching.check(4, 40)


async def cancelled(snapshot, *_, **__):
    """Ends as a statement does whose time is over."""
    await fetch(snapshot, Statement(sql.SQL("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)"), {}))


@pytest.mark.parametrize("reading", ["read_passing_rows", "read_again", "read_vectors"])
@pytest.mark.parametrize("mode", ["vector", None])
def test_rows_that_take_too_long_to_read_end_no_search(searching, monkeypatch, reading, mode):
    """They are not read again for a while, and the search goes on without them."""
    if reading != "read_passing_rows":
        searching.check(3, times=2)
    if reading == "read_again":
        searching.move()
    monkeypatch.setattr(retrieval, reading, cancelled)
    tries = calls_of(monkeypatch, retrieval, reading)
    searching.check(3, mode=mode, times=8)
    assert len(tries) == 1


async def test_vectors_are_read_in_parts_until_the_deadline_is_near(searching, monkeypatch):
    """Each statement has a time limit of its own; the search goes on with the rows alone."""
    deadline, clock, ended, fetched = 60.0, ManualClock(), [], vector.fetch

    async def slow(*arguments):
        rows = await fetched(*arguments)
        clock.advance(deadline / 2 - 0.5)
        ended.append(None)
        return rows

    monkeypatch.setattr(vector, "MAX_NUMBERS_AT_ONCE", 3 * DIMENSIONS)
    monkeypatch.setattr(vector, "fetch", slow)
    reads = results_of(monkeypatch, retrieval, "read_vectors")
    async with opened(searching.url, "none", collection="passing", clock=clock) as retriever:
        for _ in range(6):
            limit = None if reads else deadline
            hits = await retriever.search(None, 5, {"group": 3}, vector=QUERY, mode="vector", deadline=limit)
            assert ids_of(hits) == searching.best(3)
            assert len(ended) in (0, 2)  # of four parts
    assert reads == [None]
    assert hits.legs["vector"].plan == "exact, 10 rows that pass"


@pytest.mark.parametrize("most", [9, 10])
def test_many_rows_are_decoded_and_compared_outside_the_event_loop(searching, monkeypatch, most):
    calls = {}

    def watch(owner, name):
        work = getattr(owner, name)

        def noted(*arguments, **others):
            calls.setdefault(name, set()).add(threading.current_thread().name == "semlex-loop")
            return work(*arguments, **others)

        monkeypatch.setattr(owner, name, noted)

    monkeypatch.setattr(passing_rows, "MAX_ROWS_ON_LOOP", most)
    for name in ("among", "nearest", "read"):
        watch(PassingRows, name)
    watch(passing_chunks, "ids_of")
    watch(passing_rows, "location_array")
    searching.check(3, times=6)
    searching.move()
    searching.check(3)
    on_loop = most == 10
    assert calls.pop("location_array") == {False, on_loop}  # vectors are always read in a thread
    assert calls == {name: {on_loop} for name in ("read", "nearest", "ids_of", "among")}


def test_vectors_stored_as_float16_are_compared_with_the_query_that_the_server_gets(database_url, monkeypatch):
    """Of a short query float16 keeps few digits."""
    monkeypatch.setattr(passing_rows, "MIN_WITH_VECTORS", 1)
    stored = VALUES.astype(np.float16)
    documents = [Document(f"text number {n}", {"group": n % GROUPS}, id=str(n)) for n in range(len(stored))]
    norms = np.linalg.norm(stored.astype(np.float64), axis=1)
    kept = results_of(monkeypatch, retrieval, "read_vectors")
    with client(database_url, vector_storage="halfvec") as retriever:
        retriever.add_documents(documents, VALUES)
        directions = np.random.default_rng(7).normal(size=(30, DIMENSIONS)).astype(np.float32)
        for query in (*directions, *(directions * np.float32(1e-7))):
            sent = query.astype(np.float16).astype(np.float64)
            cosines = stored.astype(np.float64) @ sent / norms / np.linalg.norm(sent)
            best = [str(n) for n in np.argsort(-cosines, kind="stable") if n % GROUPS == 1][:5]
            hits = retriever.search(None, 5, {"group": 1}, vector=query, mode="vector")
            assert ids_of(hits) == best
            assert [hit.vector_score for hit in hits] == pytest.approx([cosines[int(n)] for n in best], abs=1e-5)
    assert [one is not None for one in kept] == [True]


def test_the_index_gave_too_few_and_the_rows_take_too_long(database_url, monkeypatch):
    """The answer is the exact one all the same."""
    values = np.random.default_rng(6).normal(size=(1500, DIMENSIONS)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    far = np.argsort(values @ QUERY)[:190].tolist()  # from the farthest on
    documents = [Document(f"text number {n}", {"group": int(n in far)}, id=str(n)) for n in range(len(values))]
    with client(database_url) as retriever:
        retriever.add_documents(documents, values)
        retriever.indexes.create(HnswIndex())
        monkeypatch.setattr(retrieval, "read_passing_rows", cancelled)
        for _ in range(3):
            found = retriever.search("text number", 5, {"group": 1}, vector=QUERY, mode=None)
            assert set(ids_of(found)) == set(map(str, far[-5:]))
            assert set(found.legs) == {"vector", "keyword"}
            assert ", as vector index" in found.legs["vector"].plan


@pytest.mark.slow
def test_a_crash_of_the_server_loses_writes_and_what_is_remembered_of_them(open_folder, make_server_folder):
    """The numbers of lost transactions come again, for other writes, while the server's start stays the same."""

    def run():
        with suppress(psycopg.OperationalError):
            return execute(server.url, sql.SQL("SELECT {}").format(SERVER_RUN))

    folder = make_server_folder(open_folder / "server")
    configure(folder, synchronous_commit="off", wal_writer_delay="10s", autovacuum="off")
    with (
        EmbeddedServer(folder) as server,
        client(server.url) as writer,
        client(server.url) as reader,
        psycopg.connect(server.url, autocommit=True) as connection,
    ):
        stored = Stored(server.url, writer, connection)
        mine = Stored(server.url, reader, connection, stored.rows)
        stored.write([str(n) for n in range(ROWS)], None, 0)
        connection.execute("CHECKPOINT")
        stored.write(["80", "81", "82", "83"], 1, 0)  # probably lost
        mine.check(1, 40, times=3)
        assert mine.plan == "exact, 14 rows that pass"
        before = run()
        with psycopg.connect(server.url) as lost:
            os.kill(lost.info.backend_pid, signal.SIGKILL)  # as if the session had crashed
            until(lambda: run() not in (before, None), "the server to be back, in another run")
        held = execute(server.url, f"SELECT chunk_id FROM {CHUNK}")
        for name in set(stored.rows) - {name for (name,) in held}:
            del stored.rows[name]
        for names in (["90", "91"], ["92", "93"]):
            stored.write(names, 2, 0)
        mine.check(1, 40)


def passing_of(places, vectors=None, state="state"):
    return PassingRows(places, places, "file", "horizon", state, must_check=state is None, vectors=vectors)


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60), top_k=st.integers(1, 20), spread=st.sampled_from((1, 1e-4)))
def test_the_nearest_are_among_the_rows_that_are_compared_on_the_server(seed, rows, top_k, spread):
    """However near they lie together, and rounded as they are."""
    chance = np.random.default_rng(seed)
    vectors = chance.normal(size=DIMENSIONS) + spread * chance.normal(size=(rows, DIMENSIONS))
    vectors = np.repeat(vectors, chance.integers(1, 3, rows), axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = chance.normal(size=DIMENSIONS).astype(np.float32)
    places = (np.arange(len(vectors), dtype=np.int64) << 16) | 1
    kept = passing_of(places, RoundedVectors.of(vectors.astype(np.float16)))
    blocks = np.frombuffer(kept.nearest(query, top_k), "V4, >u4, V2", offset=20)["f1"]
    cosines = vectors @ query
    least = np.sort(cosines)[-min(top_k, len(vectors))]
    assert set(np.flatnonzero(cosines >= least)) <= set(blocks.tolist())


def in_sequence(products):
    """Sums along the last axis, one number after another, as a server without vector instructions does."""
    return np.cumsum(products, axis=-1, dtype=np.float32)[..., -1]


@given(dimensions=st.integers(1, 4100), seed=st.integers(0, 10**6), kind=st.sampled_from(("equal", "normal", "spiky")))
@example(dimensions=4092, seed=0, kind="equal")  # float16 rounds each number by as much as it can
@example(dimensions=4000, seed=0, kind="equal")
def test_no_cosine_of_the_server_differs_by_more_than_the_error(dimensions, seed, kind):
    chance = np.random.default_rng(seed)
    vectors = np.ones((40, dimensions)) * chance.uniform(1, 2, (40, 1))
    query = np.full(dimensions, chance.uniform(1, 2), np.float32)
    if kind == "normal":
        vectors, query = chance.normal(size=vectors.shape), chance.normal(size=dimensions).astype(np.float32)
    elif kind == "spiky":
        vectors[:, 0] *= 10 ** chance.uniform(0, 6, 40)
    stored = vectors.astype(np.float32)
    lengths = np.sqrt(in_sequence(stored * stored).astype(np.float64) * in_sequence(query * query))
    of_server = in_sequence(stored * query) / lengths
    wide = stored.astype(np.float64)
    units = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    kept = RoundedVectors.of(units.astype(np.float16))
    unit = query / np.linalg.norm(query.astype(np.float64))
    apart = kept.cosines(unit.astype(np.float32)).astype(np.float64) - of_server
    assert (np.abs(apart) <= kept.errors).all()


def test_vectors_of_one_dimension_are_read():
    values, places = np.array([[0.5], [-1.0], [1.0]], ">f2"), np.arange(3, dtype=np.int64) << 16 | 1
    entries = b"".join(pack(">ihh", 6, 1, 0) + one.tobytes() for one in values)
    read = RoundedVectors.read(bytes(20) + entries, passing_rows.location_array(places), at=places, dimensions=1)
    assert read.cosines(np.ones(1, np.float32)) == pytest.approx(values[:, 0].astype(np.float64))


def test_the_vectors_of_filters_that_were_not_used_for_long_make_room(monkeypatch):
    monkeypatch.setattr(passing_rows, "MAX_ALL_VECTOR_BYTES", 220)
    monkeypatch.setattr(passing_rows, "IDLE_SEARCHES", 5)
    remembered, vectors = RememberedRows(), RoundedVectors.of(np.ones((20, 1), np.float16))
    old = remembered.of("old")
    assert remembered.have_room(180)
    assert vectors.nbytes == 180
    old.keep(passing_of(np.arange(20), vectors))
    assert not remembered.have_room(180)
    for _ in range(6):
        remembered.of("new")
    assert remembered.have_room(180)
    assert old.rows.vectors is None


def test_searches_at_once_keep_no_more_vectors_than_there_is_room_for(searching, monkeypatch):
    """Those of one filter are read once, and those that are on their way count as well."""
    size = ROWS // GROUPS * (DIMENSIONS + passing_rows.BYTES_BESIDE)
    monkeypatch.setattr(passing_rows, "MAX_ALL_VECTOR_BYTES", 3 * size)
    reads = calls_of(monkeypatch, retrieval, "read_vectors")
    searches = calls_of(monkeypatch, retrieval.Retrieval, "find")
    with ThreadPoolExecutor(2 * GROUPS) as threads:
        for _ in range(6):
            list(threads.map(lambda number: searching.check(number % GROUPS), range(2 * GROUPS)))
    remembered = searches[0]["self"]._rows
    assert 0 < sum(one.vector_bytes for one in remembered._filters.values()) <= 3 * size
    assert len(reads) == len({read["rows"].locations for read in reads})


def test_rows_that_are_lost_too_soon_are_not_read_at_once():
    filter_, waits = RememberedFilter(), []
    for _ in range(8):
        searches = 1
        while not filter_.is_due(0):
            searches += 1
        waits.append(searches)
        read = passing_of(np.arange(3), state=None)
        filter_.keep(read)
        assert filter_.is_moving  # no other search takes what was read in this one's snapshot
        filter_.note(read, worked=False)
        assert filter_.rows is None
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64]
    assert waits[-1] - 1 == passing_rows.MAX_WAIT
    kept = passing_of(np.arange(3))
    filter_.keep(kept)
    for _ in range(passing_rows.USES_THAT_PAY):
        filter_.note(kept, worked=True)
    filter_.note(kept, worked=False)
    assert (filter_.rows, filter_.is_moving) == (kept, True)  # they may still be where they were
    assert filter_.is_due(0)
