"""A collection in step with a followed table: whatever happens to the rows, it holds what the table holds."""

import asyncio
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import Client, register_loader
from semlex.errors import ConfigurationError, ModelError
from semlex.ingest.followed import changed_rows, run, writes
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.markdown import MarkdownLoader
from semlex.jobs.tables import TableKeeper
from semlex.options.collection import FileLimits
from semlex.store.followed.compare import ComparedTable
from semlex.testing import HashEmbedder
from tests.support.databases import set_in_database
from tests.support.followed import KEYS, RELATIONS, WAYS, Articles, articles
from tests.support.histories import EXPIRE, WORKERS, WRITERS, Worker, Writer, events, happen, transactions_in_turn
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import sync_opened
from tests.support.synchronised import CountingEmbedder, opened
from tests.support.waiting import LIMIT, until, until_waiting, waiting
from tests.support.whole_collection import count_faults

pytestmark = pytest.mark.pg16
# Words of digits are several words.
LETTERS = str.maketrans("0123456789", "abcdefghij")
numbers = st.integers(0, 5)
operations = st.one_of(
    st.tuples(st.just("insert"), numbers, st.sampled_from([1, 3, 60])),
    st.tuples(st.just("body"), numbers, st.sampled_from([0, 2, 60])),
    st.tuples(st.just("author"), numbers, st.sampled_from(["bob", None])),
    *(st.tuples(st.just(act), numbers, st.none()) for act in ("status", "delete")),
    *(st.tuples(st.just(act), st.none(), st.none()) for act in ("truncate", "sync")),
)


@dataclass
class Twin:
    """The table as Python holds it: row number -> column -> value, and every word that was ever in a body."""

    table: Articles
    collection: str = "rows"
    rows: dict[int, dict] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    _made: int = 0

    def body(self, words):
        """A text with words that no other text has."""
        made = [f"zq{str(self._made + number).translate(LETTERS)}x" for number in range(words)]
        self._made += words
        self.words.update(made)
        return " ".join(made)

    def insert(self, number, words):
        if number not in self.rows:
            row = {"title": f"title {number}", "body": self.body(words), "author": f"author{words}"}
            self.table.insert(number, **row)
            self.rows[number] = row

    def update(self, number, **values):
        if number in self.rows:
            self.table.update(number, **values)
            self.rows[number] |= values

    def delete(self, number):
        self.table.delete(number)
        self.rows.pop(number, None)

    def truncate(self):
        self.table.connection.execute(sql.SQL("TRUNCATE {}").format(self.table.table))
        self.rows.clear()

    def check(self, store):
        """Compare the collection with the rows: texts, metadata, keys, and what searches find."""
        keys = ((self.table.key_of(number), row) for number, row in self.rows.items())
        expected = {f"articles/{json.dumps(key) if isinstance(key, tuple) else key}": row for key, row in keys}
        found = {}
        for chunk in store.list_chunks(limit=1_000):
            found.setdefault(chunk.source_document, []).append(chunk)
        texts = {name: "\n\n".join(filter(None, (row["title"], row["body"]))) for name, row in expected.items()}
        assert found.keys() == {name for name, text in texts.items() if text.strip()}
        for name, chunks in found.items():
            row, text, covered = expected[name], texts[name], set()
            for chunk in chunks:
                assert chunk.content == text[chunk.char_start : chunk.char_end]
                assert chunk.metadata == ({} if row["author"] is None else {"author": row["author"]})
                covered |= set(range(chunk.char_start, chunk.char_end))
            assert all(letter.isspace() for place, letter in enumerate(text) if place not in covered)
        words = {word: name for name, row in expected.items() for word in (row["body"] or "").split()}
        for word in sorted(self.words)[:: max(1, len(self.words) // 12)]:
            found = {hit.source_document for hit in store.search(word, 5, mode="keyword")}
            assert found == ({words[word]} if word in words else set())


@contextmanager
def followed(url, key="int", relation="table", *, rows=0, schema="shop", **options):
    """A table with rows, and a collection that follows it."""
    with articles(url, key, relation, schema=schema) as table, opened(url, f"{schema}_rows") as store:
        twin = Twin(table, f"{schema}_rows")
        for number in range(rows):
            twin.insert(number, 3)
        store.tables.follow(**table.options(name="articles", metadata=["author"]) | options)
        yield twin, store


def sync(store, **options):
    [report] = store.tables.sync(**options)
    return report


def counts(report):
    """Rows that were added, changed, refreshed, deleted, and that could not be stored."""
    return report.added, report.changed, report.refreshed, report.deleted, report.failed


def checked(twin, store, report):
    """What a run counted, after a comparison of what it left with the rows."""
    twin.check(store)
    return counts(report)


@contextmanager
def small_batches():
    """Lets a few rows be several pages and batches, inside the block alone: other tests are about one batch."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("FIRST_PAGE_ROWS", 2), ("MAX_PAGE_ROWS", 3), ("KEYS_AT_ONCE", 2)):
            patch.setattr(changed_rows, name, size)
        for name in ("BATCH_ROWS", "METADATA_ROWS"):
            patch.setattr(run, name, 2)
        yield


@pytest.fixture(scope="module")
def tables(new_database):
    """A table for each kind of key and each way of noticing changes, all followed."""
    url = new_database()
    with ExitStack() as stack:
        made = {
            (key, way): stack.enter_context(followed(url, key, rows=1, schema=f"{key}_{way}", **WAYS[way]))
            for key in KEYS
            for way in WAYS
        }
        for _, store in made.values():
            sync(store)
        yield made


@settings(OWN_ROWS)
@given(st.sampled_from(sorted(KEYS)), st.sampled_from(sorted(WAYS)), st.lists(operations, max_size=12))
@small_batches()
def test_a_collection_holds_what_the_table_holds_whatever_happened(tables, key, way, history):
    twin, store = tables[key, way]
    acts = {
        "insert": twin.insert,
        "body": lambda number, words: twin.update(number, body=twin.body(words)),
        "author": lambda number, author: twin.update(number, author=author),
        "status": lambda number, _: twin.table.update(number, status="draft"),  # of no column that is read
        "delete": lambda number, _: twin.delete(number),
        "truncate": lambda *_: twin.truncate(),
        "sync": lambda *_: sync(store, allow_empty=True),
    }
    twin.truncate()
    sync(store, allow_empty=True)
    twin.words.clear()
    for act, number, value in history:
        acts[act](number, value)
    sync(store, allow_empty=True)
    twin.check(store)
    assert count_faults(twin.table.connection, twin.collection) == {}
    CountingEmbedder.texts = 0
    assert (counts(sync(store, allow_empty=True)), CountingEmbedder.texts) == ((0, 0, 0, 0, 0), 0)


@pytest.mark.parametrize(("key", "relation"), [*product(["int"], RELATIONS[1:]), *product(sorted(KEYS), ["table"])])
def test_partitions_views_and_other_databases_are_kept_in_step(database_url, new_database, key, relation):
    url = new_database() if relation == "table" else database_url
    with articles(url, key, relation) as table, opened(database_url, "rows") as store:
        twin, options = Twin(table), {"source_database": url} if relation == "table" else {}
        for number in range(4):
            twin.insert(number, 3)
        store.tables.follow(**table.options(name="articles", metadata=["author"], **options))
        table.refresh()
        assert counts(sync(store)) == (4, 0, 0, 0, 0)
        twin.update(1, body=twin.body(60))
        twin.update(2, author="bob")
        twin.delete(3)
        twin.insert(7, 2)
        table.refresh()
        assert checked(twin, store, sync(store)) == (1, 1, 1, 1, 0)
        assert counts(sync(store, compare=True)) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_rows_are_split_again_by_another_size_of_chunks(database_url, way):
    with followed(database_url, rows=1, **WAYS[way]) as (twin, store):
        twin.insert(1, 300)
        sync(store)
        before = len(store.list_chunks())
        store.documents.rechunk(chunk_tokens=50)
        assert checked(twin, store, sync(store)) == (0, 2, 0, 0, 0)
        assert len(store.list_chunks()) > before
        assert counts(sync(store)) == (0, 0, 0, 0, 0)


def test_only_changed_texts_are_embedded_and_analysed(database_url):
    with followed(database_url, rows=30) as (twin, store):
        for number in (0, 1):
            twin.update(number, title="")
        sync(store)
        before = postings(twin)
        CountingEmbedder.texts = 0
        for number in range(30):
            twin.update(number, author="bob", status="draft")
        assert (checked(twin, store, sync(store)), CountingEmbedder.texts) == ((0, 0, 30, 0, 0), 0)
        assert postings(twin) == before
        assert len(store.search("zqbx", 5, mode="keyword", filters={"author": "bob"})) == 1
        store.tables.change("articles", text=["body"])
        assert (counts(sync(store)), CountingEmbedder.texts) == ((0, 30, 0, 0, 0), 28)
        store.tables.change("articles", metadata=["status"])
        assert (counts(sync(store)), CountingEmbedder.texts) == ((0, 0, 30, 0, 0), 28)
        assert {chunk.metadata["status"] for chunk in store.list_chunks()} == {"draft"}


def postings(twin):
    """Everything that the keyword index holds, and the ids by which it knows chunks."""
    run, listed = twin.table.connection.execute, "SELECT tablename FROM pg_tables WHERE tablename ~ %s ORDER BY 1"
    names = run(listed, [f"^{twin.collection}_(segment|posting|tombstone|manifest)"]).fetchall()
    assert names
    queries = [f"SELECT t::text FROM semlex.{name} AS t ORDER BY 1" for (name,) in names]
    queries.append(f"SELECT chunk_id, keyword_id FROM semlex.{twin.collection}_chunk ORDER BY 1")
    return [run(query).fetchall() for query in queries]


def test_long_texts_expressions_and_formats_make_the_chunks(database_url):
    own = {"collection": "shop_rows", "chunk_tokens": 40, "overlap_tokens": 0}
    with followed(database_url, rows=1) as (twin, _), sync_opened(database_url, CountingEmbedder(8), **own) as store:
        paragraphs = [twin.body(30) for _ in range(5)]
        twin.update(0, title="", body="\n\n".join(paragraphs))
        sync(store)
        assert len(store.list_chunks()) == 5
        CountingEmbedder.texts = 0
        paragraphs[2] = twin.body(30)
        twin.update(0, body="\n\n".join(paragraphs))
        assert (checked(twin, store, sync(store)), CountingEmbedder.texts) == ((0, 1, 0, 0, 0), 1)
        twin.update(0, title="Keys & locks", body="# Doors\n\nA **key** opens.\n\n## Windows\n\nThey have none.")
        store.tables.change("articles", text=["body"], heading="title", formats={"body": "markdown"}, metadata=[])
        sync(store)
        headings = {chunk.heading_path for chunk in store.list_chunks()}
        assert ("Keys & locks", "Doors") in headings
        assert {first for first, *_ in headings} == {"Keys & locks"}
        twin.table.insert(2, title="100 %", body="x")
        store.tables.change("articles", text=["'%s ' || upper(title) || E'\\n\\n' || body"], heading=None, formats={})
        sync(store)
        assert {chunk.content for chunk in store.list_chunks()} >= {"%s 100 %\n\nx"}


async def other_runs_have_ended(_):
    """Replace `RowWrites.wait`, as if this run had begun after the others."""


@contextmanager
def waiting_run(url, twin, store):
    """A run that has read its rows, and waits for the lock of its first write until the block ends."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool, psycopg.connect(url) as connection:
        patch.setattr(writes.RowWrites, "wait", other_runs_have_ended)
        source = sql.Identifier("semlex", f"{twin.collection}_source")
        connection.execute(sql.SQL("SELECT FROM {} FOR UPDATE").format(source))
        running = pool.submit(sync, store, allow_empty=True)
        try:
            until_waiting(connection)
            yield running
        finally:
            connection.rollback()


@pytest.mark.parametrize("relation", ["table", "view"])  # whose rows have versions, or only hashes
def test_rows_that_change_while_they_are_read_are_read_again(database_url, relation):
    set_in_database(database_url, "default_transaction_isolation", "repeatable read")
    with followed(database_url, "int", relation, rows=6) as (twin, store):
        sync(store)
        for number in range(4):
            twin.update(number, body=twin.body(2))
        with waiting_run(database_url, twin, store) as running:
            twin.update(0, body=twin.body(60))
            twin.update(1, author="bob")
            twin.delete(2)
            twin.table.update(3, status="draft")  # of no column that is read
        assert checked(twin, store, running.result(LIMIT)) == (0, 3, 0, 1, 0)
        # A row that returns during the run is not deleted.
        before = dict(twin.rows[4])
        twin.delete(4)
        with waiting_run(database_url, twin, store) as running:
            twin.table.insert(4, **before)
            twin.rows[4] = before
        assert checked(twin, store, running.result(LIMIT)) == (0, 0, 0, 0, 0)
        # If the text changes during the run, text and metadata are stored together.
        twin.update(5, author="bob")
        with waiting_run(database_url, twin, store) as running:
            twin.update(5, body=twin.body(3))
        assert checked(twin, store, running.result(LIMIT)) == (0, 1, 0, 0, 0)


@contextmanager
def held_run(store, owner, name):
    """A run whose first call of a coroutine function is done, and returns when the block ends."""
    is_held, may_go_on, real = threading.Event(), threading.Event(), getattr(owner, name)

    async def held(*given, **options):
        result = await real(*given, **options)
        if not is_held.is_set():
            is_held.set()
            await asyncio.to_thread(may_go_on.wait, LIMIT)
        return result

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(owner, name, held)
        running = pool.submit(sync, store)
        try:
            assert is_held.wait(LIMIT)
            yield running
        finally:
            may_go_on.set()


def test_a_change_that_is_taken_back_while_it_is_stored_is_stored_again(database_url):
    """The second run reads the row while the first is about to store what it was for a moment."""

    async def work():
        async with Client(database_url, CountingEmbedder(8)) as client:
            await client.work(drain=True)

    with followed(database_url, rows=2, changes="trigger") as (twin, store):
        sync(store)
        before = twin.rows[0]["body"]
        twin.update(0, body=twin.body(2))
        with ThreadPoolExecutor(1) as pool:
            with held_run(store, writes, "write_chunks") as first:
                twin.update(0, body=before)
                second = pool.submit(asyncio.run, work())
                until(lambda: second.done() or waiting(twin.table.connection), "a run that waits for another one")
            first.result(LIMIT)
            second.result(LIMIT)
        assert checked(twin, store, sync(store)) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("stored", [0, 2])  # copied into empty tables, or merged
def test_two_runs_that_store_a_new_row_leave_what_it_is_now(database_url, monkeypatch, stored):
    """The first run has compared the row once more when it changes, and the second stores it before the first does."""
    with followed(database_url, rows=stored) as (twin, store), opened(database_url, twin.collection) as other:
        sync(store)
        twin.insert(7, 2)
        with held_run(store, ComparedTable, "unchanged") as first:
            twin.update(7, body=twin.body(3))
            monkeypatch.setattr(writes.RowWrites, "wait", other_runs_have_ended)
            assert counts(sync(other)) == (1, 0, 0, 0, 0)
            monkeypatch.undo()
        assert checked(twin, store, first.result(LIMIT)) == (0, 0, 0, 0, 0)


def test_a_run_that_writes_is_waited_for_before_its_table_is_not_followed_any_more(database_url, caplog):
    caplog.set_level(logging.INFO, "semlex")
    with followed(database_url, rows=3) as (twin, store), ThreadPoolExecutor(1) as pool:
        with waiting_run(database_url, twin, store) as running, psycopg.connect(database_url) as connection:
            stop = pool.submit(store.tables.stop, "articles")
            until_waiting(connection, 2)
        assert (running.result(LIMIT).added, stop.result(LIMIT), store.list_chunks()) == (3, 3, [])
    assert "retry" not in caplog.text  # neither has waited for the other in a circle


def test_a_run_ends_when_its_table_is_not_followed_any_more(database_url):
    with followed(database_url, rows=3) as (twin, other), opened(database_url, twin.collection) as store:
        with held_run(other, writes.RowWrites, "wait") as running:
            assert store.tables.stop("articles") == 0
        report = running.result(LIMIT)
        assert "is not followed any more, or its definition was changed" in report.warnings[0]
        assert (report.added, store.list_chunks()) == (0, [])


def test_an_emptied_table_needs_consent(database_url):
    with followed(database_url, rows=3) as (twin, store):
        sync(store)
        twin.truncate()
        with pytest.raises(ConfigurationError, match=r"none of the 3 rows .* --allow-empty"):
            sync(store)
        assert "--allow-empty" in store.tables.followed()[0].error
        twin.insert(9, 1)  # all stored rows are gone nevertheless
        with pytest.raises(ConfigurationError, match="--allow-empty"):
            sync(store)
        assert len(store.list_chunks()) == 3
        assert checked(twin, store, sync(store, allow_empty=True)) == (1, 0, 0, 3, 0)
        assert store.tables.followed()[0].error is None
        # A changed or dropped table is one error and deletes no rows.
        twin.table.connection.execute("ALTER TABLE shop.articles RENAME body TO content")
        with pytest.raises(ConfigurationError, match="has no column 'body'"):
            sync(store)
        assert "has no column 'body'" in store.tables.followed()[0].error
        twin.table.connection.execute("DROP TABLE shop.articles")
        with pytest.raises(ConfigurationError, match="does not exist"):
            sync(store, allow_empty=True)
        assert len(store.list_chunks()) == 1


class Picky(CountingEmbedder):
    """Refuses a text."""

    refused = "poison"

    def embed_documents(self, texts):
        if any(self.refused in text for text in texts):
            raise ModelError("a text cannot be embedded")
        return super().embed_documents(texts)


@pytest.mark.direct
def test_rows_that_cannot_be_stored_keep_no_other_waiting(database_url, monkeypatch):
    limits, nul = FileLimits(file=2_000), r"""'"\u0000"'"""
    store = sync_opened(database_url, Picky(8), collection="rows", file_limits=limits)
    with articles(database_url, "text") as table, store:
        twin, run_sql = Twin(table, "rows"), table.connection.execute
        run_sql("ALTER TABLE shop.articles ADD COLUMN raw json")
        for number in range(20):
            twin.insert(number, 2)
        run_sql(f"UPDATE shop.articles SET raw = {nul} WHERE title = 'title 3'")
        twin.update(5, body="long " * 500)
        twin.update(7, body="poison")
        run_sql("INSERT INTO shop.articles (id, title) VALUES (%s, 'long key')", ["k" * 600])
        store.tables.follow(**table.options(name="articles", metadata=["author", "raw"]))
        report = sync(store)
        assert counts(report) == (17, 0, 0, 0, 4)
        codes = {problem.key[:8]: problem.code for problem in report.problems}
        assert codes == {"é 3/%s": "22P05", "é 5/%s": "too_long", "é 7/%s": "ModelError", "kkkkkkkk": "too_long"}
        assert counts(sync(store)) == (0, 0, 0, 0, 0)  # they are not due
        assert {problem.key[:8]: problem.code for problem in store.tables.followed()[0].problems} == codes
        # Changed rows are tried at once, the others when they are due.
        twin.update(5, body=twin.body(2))
        twin.insert(30, 1)
        assert counts(sync(store)) == (2, 0, 0, 0, 0)
        monkeypatch.setattr(Picky, "refused", "nothing")
        due = "UPDATE semlex.row_change SET due_at = now()"
        run_sql(due)
        assert counts(sync(store)) == (1, 0, 0, 0, 2)
        run_sql("UPDATE shop.articles SET raw = NULL; DELETE FROM shop.articles WHERE title = 'long key'")
        assert counts(sync(store)) == (1, 0, 0, 0, 0)
        run_sql(due)
        assert checked(twin, store, sync(store)) == (0, 0, 0, 0, 0)
        assert list(store.tables.followed()[0].problems) == []
        # Of a stored row that cannot be read any more, the last text stays.
        run_sql(f"UPDATE shop.articles SET raw = {nul} WHERE title IN ('title 3', 'title 4')")
        twin.update(6, body=twin.body(2))
        assert counts(sync(store)) == (0, 1, 0, 0, 2)
        twin.insert(40, 2)
        assert checked(twin, store, sync(store)) == (1, 0, 0, 0, 0)


def test_a_model_that_refuses_everything_fails_the_run_and_sets_no_row_aside(database_url, monkeypatch):
    monkeypatch.setattr(run, "BATCH_ROWS", 3)
    monkeypatch.setattr(Picky, "refused", "title")
    with articles(database_url, rows=30) as table, sync_opened(database_url, Picky(8), collection="rows") as store:
        store.tables.follow(**table.options(name="articles"))
        with pytest.raises(ModelError, match="a text cannot be embedded"):
            sync(store)
        [status] = store.tables.followed()
        assert (status.rows, list(status.problems)) == (0, [])


def test_a_format_that_fails_and_a_key_that_occurs_twice_are_problems(database_url):
    class Failing(MarkdownLoader):
        name, suffixes = "failing", ("failing",)

        def load(self, file, options):
            if b"bad" in file.data:
                raise LoadError("broken", "it is broken")
            return super().load(file, options)

    register_loader(Failing())
    with articles(database_url) as table, opened(database_url, "rows") as store:
        for number, body in enumerate(["good", "bad", "good", "fine"]):
            table.insert(number, body=body)
        table.connection.execute(
            "SET search_path = shop; CREATE VIEW twice AS SELECT * FROM articles UNION ALL SELECT * FROM articles "
            "WHERE id = 2 OR author = 'twice' UNION ALL SELECT null, title, body, author, status, price, tags, extra, "
            "published_at, updated_at FROM articles"
        )
        store.tables.follow("shop.twice", key="id", text=["body"], formats={"body": "failing"})
        report = sync(store)
        assert counts(report) == (2, 0, 0, 0, 2)
        assert {problem.key: problem.code for problem in report.problems} == {"1": "broken", "2": "repeated_key"}
        [warning] = report.warnings
        assert warning == "4 rows of shop.twice have a NULL in their key and are not stored: give every row a key"
        # A row that is there twice does not hide that another one is gone.
        table.update(3, author="twice")
        table.delete(0)
        assert counts(sync(store)) == (0, 0, 0, 1, 0)
        table.update(3, author="ann", body="finer")
        table.update(1, author="twice", body="good")
        assert counts(sync(store)) == (0, 1, 0, 0, 1)
        table.update(1, author="ann")
        assert counts(sync(store)) == (1, 0, 0, 0, 0)


def test_only_runs_that_changed_rows_are_logged(database_url):
    with followed(database_url, rows=3) as (twin, store), psycopg.connect(database_url) as connection:
        assert (counts(sync(store, dry_run=True)), store.list_chunks()) == ((3, 0, 0, 0, 0), [])
        sync(store)
        sync(store)
        log = "SELECT command, source_uri, added, chunks, finished_at IS NOT NULL FROM semlex.shop_rows_ingestion_log"
        assert connection.execute(log).fetchall() == [("sync", "articles", 3, 3, True)]
        connection.rollback()
        with pytest.raises(ConfigurationError, match="its own transactions"):
            store.using(connection).tables.sync()
        store.delete(document="articles/1")  # the next run adds a document that a user deleted
        assert checked(twin, store, sync(store)) == (1, 0, 0, 0, 0)
        twin.update(0, body="x")
        twin.update(1, author="x")
        twin.delete(2)
        report = sync(store, dry_run=True)
        assert (counts(report), report.dry_run, len(store.list_chunks())) == ((0, 1, 1, 1, 0), True, 3)


def test_a_column_that_grows_shows_changes_and_keys_show_deletions(database_url):
    options = {"changes": "column", "updated_at": "updated_at", "keys_every": 3_600, "overlap": 0}
    with followed(database_url, rows=4, **options) as (twin, store):
        assert sync(store).unchanged == 0
        twin.update(0, body=twin.body(2))
        twin.update(1, body=twin.body(2), updated_at="2000-01-01")  # which the column does not show
        twin.delete(2)
        report = sync(store)
        assert (counts(report), report.unchanged) == ((0, 1, 0, 0, 0), None)
        assert checked(twin, store, sync(store, compare=True)) == (0, 1, 0, 1, 0)
        twin.table.connection.execute("ALTER TABLE shop.articles ALTER updated_at DROP NOT NULL")
        twin.update(0, body=twin.body(2), updated_at=None)
        store.tables.change("articles", keys_every=0)
        sync(store)
        twin.update(0, body=twin.body(3), updated_at=None)
        assert checked(twin, store, sync(store)) == (0, 1, 0, 0, 0)


@pytest.fixture(scope="module", params=WAYS)
def stage(request, new_database):
    """A followed table with writers and workers, for one history after another."""
    url = new_database()
    with ExitStack() as stack:
        table = stack.enter_context(articles(url, relation="partitioned"))
        runner = stack.enter_context(asyncio.Runner())

        def worker_of(news):
            indexer = runner.run(news._handle.indexer())
            return Worker(lambda: TableKeeper(indexer, "articles", news._handle.wanted, lambda _: nullcontext(), 60))

        clients = [Client(url, HashEmbedder(8), use_reranking=False) for _ in range(WORKERS)]
        for client in clients:
            stack.callback(lambda one=client: runner.run(one.close()))
        news = clients[0].collection("news")
        runner.run(news.tables.follow(**table.options(metadata=["author"], **WAYS[request.param])))
        runner.run(news.tables.sync())
        writers = [Writer(url, table) for _ in range(WRITERS)]
        for writer in writers:
            stack.callback(writer.connection.close)
        workers = [worker_of(client.collection("news")) for client in clients]
        yield SimpleNamespace(run=runner.run, sql=table.connection, news=news, writers=writers, workers=workers)


@pytest.mark.direct
def test_the_collection_ends_as_the_table(stage, monkeypatch, full):
    def sync_and_check(**options):
        stage.run(stage.news.tables.sync(allow_empty=True, **options))
        rows = stage.sql.execute(
            "SELECT 'articles/' || id, concat_ws(E'\\n\\n', title, body), author FROM shop.articles ORDER BY 1"
        ).fetchall()
        chunks = stage.run(stage.news.list_chunks(limit=1_000))
        assert sorted((chunk.source_document, chunk.content, chunk.metadata.get("author")) for chunk in chunks) == rows
        assert count_faults(stage.sql, "news") == {}
        assert stage.sql.execute("SELECT row_key, error_code FROM semlex.row_change").fetchall() == []

    @settings(OWN_ROWS, max_examples=500 if full else examples(8))
    @given(events)
    def check(history):
        stage.sql.execute("DELETE FROM shop.articles")
        stage.sql.execute("INSERT INTO shop.articles (id, title, body) VALUES (0, 'title 0', 'apple')")
        stage.sql.execute("TRUNCATE semlex.row_change")
        sync_and_check(compare=True)
        with transactions_in_turn(monkeypatch):
            stage.run(happen(history, stage.writers, stage.workers, lambda: stage.sql.execute(EXPIRE)))
        sync_and_check()

    monkeypatch.setattr(run, "BATCH_ROWS", 2)  # so that a run has several batches, and two writes at once
    check()
