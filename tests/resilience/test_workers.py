"""Workers that are killed, paused until their lease is over, or cut off: nothing is lost, done twice, or stuck."""

import signal
from collections import Counter
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from semlex import Document, SyncClient
from semlex.testing import HashEmbedder
from tests.support.clients import worker_client
from tests.support.clients.worker_client import Order
from tests.support.folders import folder_with
from tests.support.followed import articles
from tests.support.histories import EXPIRE as EXPIRE_CHANGES
from tests.support.programs import Program
from tests.support.waiting import LIMIT, until
from tests.support.whole_collection import count_faults

ADDED, INDEXED = 12, 4
# Transactions and moments in which a worker stops. While it holds locks it is killed only: that the server ends the
# transaction of one that is paused is shown by test_job_queue.
DONE = ("complete a job", "committed")
BETWEEN = [("take a job", "committed"), ("add documents", "committed"), ("complete a job", "before"), DONE]
INSIDE = [("add documents", "worked"), ("complete a job", "worked")]
# The lease of whoever is at work is over.
EXPIRE = "UPDATE semlex.job SET due_at = due_at - interval '1 day' WHERE state = 'running'"
# A job that is done is written down, by whoever does it: nothing of the queue's own can say that it was done twice.
AUDIT = """
    CREATE TABLE public.ended (job_id uuid, state text, fence int);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.ended VALUES (NEW.job_id, NEW.state, NEW.fence); RETURN NEW; END $$;
    CREATE TRIGGER note AFTER UPDATE ON semlex.job FOR EACH ROW
        WHEN (OLD.state <> NEW.state AND NEW.state IN ('done', 'failed', 'cancelled'))
        EXECUTE FUNCTION public.note();
"""


def client(url):
    return SyncClient(url, HashEmbedder(8), use_reranking=False)


def states(connection):
    return Counter(state for (state,) in connection.execute("SELECT state FROM semlex.job").fetchall())


def make_folders(base):
    """Folders of a few files, each to be indexed by a job of its own."""

    def pages(number):
        return {f"{page}.md": f"# Page {page}\n\nWords of page {page} in {number}.\n" for page in range(3)}

    return [folder_with(base / f"folder{number}", pages(number)) for number in range(INDEXED)]


def submit_all(book, folders, round_):
    expected = set()
    for number in range(ADDED):
        texts = [Document(f"text {number} of round {round_}", {"round": round_}, f"{number}-{n}") for n in range(2)]
        expected.add(book.jobs.submit("add", {"documents": texts}).id)
    for number, folder in enumerate(folders):
        (folder / "0.md").write_text(f"# Page 0\n\nRound {round_} in {number}.\n")
        expected.add(book.jobs.submit("sync" if number % 2 else "index", {"paths": [folder]}).id)
    assert len(expected) == ADDED + INDEXED
    return expected


def all_ended(connection):
    return not states(connection).keys() & {"queued", "running"}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("way", "moment"),
    [("killed", one) for one in BETWEEN + INSIDE] + [("paused", one) for one in BETWEEN],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_killed_and_paused_workers_lose_nothing(database_url, tmp_path, full, way, moment):
    """One stops at a moment, its lease ends, and two others do all there is; then it is gone, or goes on."""
    folders = make_folders(tmp_path)
    with client(database_url) as opened, psycopg.connect(database_url, autocommit=True) as connection:
        book = opened.collection("book")
        book.add_texts(["the first"], ids=["first"])
        book.jobs.submit("optimize").cancel()  # makes the table
        connection.execute(AUDIT)
        for round_ in range(4 if full else 1):
            expected = submit_all(book, folders, round_)
            connection.execute("TRUNCATE public.ended")
            with Program(worker_client.run, Order(database_url, tmp_path, (*moment, round_ + 1))) as stopped:
                stopped.until_stopped()
                if way == "killed":
                    stopped.kill()
                assert states(connection)["running"] == (moment != DONE)
                connection.execute(EXPIRE)
                order = Order(database_url, tmp_path, concurrency=2)
                with Program(worker_client.run, order), Program(worker_client.run, order):
                    until(lambda: all_ended(connection))
                if way == "paused":
                    stopped.send(signal.SIGCONT)
                    stopped.until_said("done" if moment == DONE else "lost")
                    assert book.jobs.submit("optimize").wait(LIMIT).state == "done"  # it goes on to work
                    connection.execute("DELETE FROM public.ended WHERE job_id <> ALL(%s::uuid[])", [[*expected]])
            ended = connection.execute("SELECT job_id::text, state FROM public.ended").fetchall()
            assert sorted(ended) == sorted((job_id, "done") for job_id in expected)
            # What was added has no document.
            assert count_faults(connection, "book") == {"a chunk without a document": 2 * ADDED + 1}
            assert book.count({"round": round_}) == 2 * ADDED
            assert book.count() == 2 * ADDED + 3 * INDEXED + 1
            assert book.count('@source_document == "0.md"') == INDEXED
            texts = connection.execute("SELECT chunk_text FROM semlex.book_chunk WHERE source_document = '0.md'")
            assert all(f"Round {round_} in" in text for (text,) in texts.fetchall())
            # Every taking had a number of its own, so that no attempt is without one.
            assert connection.execute("SELECT count(*) FROM semlex.job WHERE attempts > fence").fetchone() == (0,)


def test_workers_that_are_cut_off_come_back(database_url, tmp_path, server_url):
    place = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format
    with client(database_url) as opened, ExitStack() as stack:
        book = opened.collection("book")
        documents = [Document(f"text {number}", id=str(number)) for number in range(40)]
        jobs = [book.jobs.submit("add", {"documents": [one]}, max_attempts=1_000) for one in documents]
        order = Order(database_url, tmp_path, patience=0.5, lease=1, concurrency=2)  # expires
        workers = [stack.enter_context(Program(worker_client.run, order)) for _ in range(2)]
        jobs[5].wait(LIMIT)
        with psycopg.connect(server_url, autocommit=True) as administration:
            try:
                administration.execute(allow(sql.Identifier(place), False))
                cut_off = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                administration.execute(cut_off, [place])
                for worker in workers:
                    worker.until_said("started;")
            finally:
                administration.execute(allow(sql.Identifier(place), True))
        for worker in workers:
            worker.until_said("reached")
        assert {job.wait(LIMIT).state for job in jobs} == {"done"}
        assert all(worker.is_alive for worker in workers)
        assert book.count() == len(jobs)


WORKER_MOMENTS = [
    ("trigger", "claim changes", "committed"),
    ("trigger", "store rows", "worked"),
    ("trigger", "store rows", "committed"),
    ("trigger", "give changes back", "before"),
    ("comparison", "take a followed table", "committed"),
    ("comparison", "store rows", "worked"),
]
# Whether a lease goes on, of the table or of entries of the queue.
HELD = """SELECT coalesce(leased_until > now(), false) OR EXISTS (SELECT FROM semlex.row_change WHERE due_at > now())
    FROM semlex.followed_table"""


@pytest.mark.parametrize(("way", "doing", "moment"), WORKER_MOMENTS, ids=lambda value: value.replace(" ", "_"))
def test_what_a_killed_worker_had_begun_is_stored(database_url, tmp_path, way, doing, moment):
    with articles(database_url, rows=10) as table, client(database_url) as opened:
        news = opened.collection("news")
        news.tables.follow(**table.options(changes=way))
        news.tables.sync()
        for number in range(5):
            table.update(number, body=f"cherry {number}")
        table.delete(9)
        table.connection.execute(EXPIRE_CHANGES)
        with Program(worker_client.run, Order(database_url, tmp_path, (doing, moment, 1))) as worker:
            worker.until_stopped()
            worker.kill()
        assert table.connection.execute(HELD).fetchone() == (doing != "give changes back",)
        table.connection.execute(EXPIRE_CHANGES)
        opened.work(drain=True)
        rows = table.connection.execute("SELECT 'articles/' || id, title || E'\\n\\n' || body FROM shop.articles")
        assert sorted((chunk.source_document, chunk.content) for chunk in news.list_chunks()) == sorted(rows)
        assert count_faults(table.connection, "news") == {}
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
