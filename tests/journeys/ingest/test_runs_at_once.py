"""Runs that are concurrent, stand still or end early: nothing hangs or is lost, and the next run completes."""

import asyncio
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import astuple

import pytest
from psycopg.conninfo import make_conninfo

from semlex.errors import StoreError
from semlex.ingest.loaders import office
from semlex.ingest.loaders.worker import MAX_SECONDS, Worker
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.journeys.ingest.test_sync_histories import Folder
from tests.support import synchronised
from tests.support.clients import killed_client, stopping_client
from tests.support.clients.killed_client import Order
from tests.support.clients.stopped_command import halted
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.manual_clock import ManualClock
from tests.support.programs import Program
from tests.support.retrievers import opened, sync_opened
from tests.support.shell import Shell

pytestmark = pytest.mark.slow


def contents(retriever):
    return sorted(hit.content for hit in retriever.search("page words", top_k=1000))


@pytest.fixture
def folder(tmp_path):
    return folder_with(tmp_path / "docs", {f"{number}.md": f"# Page {number}\n\nOld words.\n" for number in range(6)})


def test_three_syncs_at_once_of_a_folder_that_changes(database_url, tmp_path, full):
    folder = Folder(tmp_path / "changing", random.Random(random.randrange(2**32)))

    def run(_):
        with synchronised.opened(database_url, "runs") as retriever:
            retriever.sync(folder.root)

    last = 100 if full else 4
    for number in range(last + 1):  # the first runs make the collection
        for _ in range(6):
            folder.happen()
        with ThreadPoolExecutor(3) as threads:
            runs = threads.map(run, range(3))
            for _ in range(6 if number < last else 0):  # the last runs are over a folder at rest
                folder.happen()
            assert len(list(runs)) == 3
    with synchronised.opened(database_url, "runs") as kept, synchronised.opened(database_url, "fresh") as fresh:
        fresh.index(folder.root)
        assert synchronised.contents(kept) == synchronised.contents(fresh)
        assert kept.status().embedded == kept.count() == fresh.count()
        # A young file is read once more; nothing of it has changed.
        counts = kept.sync(folder.root).plan.counts()
        assert counts.unchanged == len(folder.files()) == sum(astuple(counts))


REWRITTEN = {f"{number}.md": f"# Page {number}\n\nNew words of the page." for number in range(6)}


@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL])
def test_a_run_that_stands_still_inside_a_transaction(database_url, folder, ending):
    impatient = make_conninfo(database_url, options="-c lock_timeout=1s")  # expires; usually a minute
    with (
        sync_opened(database_url, "none", collection="runs") as retriever,
        sync_opened(impatient, "none", collection="runs") as hurried,
    ):
        retriever.sync(folder)
        before = contents(retriever)
        folder_with(folder, REWRITTEN)
        with Program(stopping_client.main, database_url, folder, "writing") as client:
            client.until_stopped()
            with pytest.raises(StoreError, match=r"another transaction holds a lock .*pg_stat_activity shows it"):
                hurried.sync(folder)
            assert contents(retriever) == before  # searches go on
            client.send(ending)
            code = client.ended()
            assert (client.said, code) == (("done\n", 0) if ending == signal.SIGCONT else ("", -signal.SIGKILL))
        retriever.sync(folder)
        assert contents(retriever) == [*REWRITTEN.values()]


def test_a_run_that_stands_still_while_it_reads_is_in_nobodys_way(database_url, folder):
    with sync_opened(database_url, "none", collection="runs") as retriever:
        with Program(stopping_client.main, database_url, folder, "reading") as client:
            client.until_stopped()
            assert retriever.sync(folder).done.added == 6
            folder_with(folder, REWRITTEN)
            assert retriever.sync(folder).done.changed == 6
            client.send(signal.SIGCONT)
            assert (client.ended(), client.said) == (0, "done\n")
        assert retriever.sync(folder).run.failed == 0
        assert contents(retriever) == [*REWRITTEN.values()]


async def test_a_reader_that_stands_still_costs_its_file(database_url, folder, monkeypatch):
    clock = ManualClock()
    with closing(Worker(max_seconds=MAX_SECONDS, clock=clock)) as worker:
        monkeypatch.setattr(office, "WORKER", worker)
        async with opened(database_url, "none", collection="runs") as retriever:
            (folder / "one.eml").write_text("Subject: one\n\nThe first letter.")
            assert (await retriever.index(folder)).failed == 0
            os.kill(worker.pid, signal.SIGSTOP)
            letters = {f"{name}.eml": f"Subject: {name}\n\nAnother letter." for name in ("three", "two")}
            folder_with(folder, letters | {"zebra.md": "A zebra."})
            indexing = asyncio.create_task(retriever.index(folder))
            await clock.eventually_waited(MAX_SECONDS)
            clock.advance(MAX_SECONDS)
            report = await indexing
            # The first one waited; for the next a new process was started.
            assert [(one.source_document, one.code) for one in report.problems] == [("three.eml", "too_slow")]
            assert report.added == 2
            assert (await retriever.index(folder)).failed == 0
            assert {hit.source_document for hit in await retriever.search("letter")} == {"one.eml", *letters}


# --- runs that end in the middle -----------------------------------------------------------------------------------

# Batches of three or four files each; the second is committed when a run is ended.
FILES = 40
LIMITS = {"semlex.ingest.run": {"BATCH_CHUNKS_WITHOUT_MODEL": 10}}
INDEX = ("index", "many", "-c", "ended", "--model", "none")


@pytest.fixture
def many(tmp_path):
    text = "\n\n".join(f"## Section {section}\n\n{'A word of the text. ' * 10}" for section in range(3))
    return folder_with(tmp_path / "many", {f"{number:04}.md": f"# Page {number}\n\n{text}" for number in range(FILES)})


def stored(url):
    """Number of chunks -> how many documents have so many, by their rows."""
    counts = "SELECT count(c.*) AS n FROM semlex.ended_document LEFT JOIN semlex.ended_chunk c USING (document_id)"
    statement = f"SELECT n, count(*) FROM ({counts} GROUP BY document_id) AS counted GROUP BY n"
    return dict(execute(url, statement))


def goes_on(shell, url):
    """The same command again: what is stored is whole, and the rest is added."""
    [(size, documents)] = stored(url).items()  # each as many chunks as the others
    assert 0 < documents < FILES
    (report,) = shell.objects(*INDEX)
    assert (report["added"], report["unchanged"], report["failed"]) == (FILES - documents, documents, 0)
    assert stored(url) == {size: FILES}


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run(shell, many, way):
    with halted(shell, INDEX, ("index files", "committed", 2), "ended_chunk", limits=LIMITS) as (program, _):
        program.send(way)
        assert program.ended() == (130 if way == signal.SIGINT else -way)
        assert "Traceback" not in program.said
    goes_on(shell, shell.environment["DATABASE_URL"])


@pytest.mark.full  # ten seconds, after which the run gives up; test_ingest_kills starts the server again
def test_a_server_that_goes_in_the_middle(many, open_folder, make_server_folder):
    folder = make_server_folder(open_folder / "server")
    with EmbeddedServer(folder) as server:
        arguments, point = [INDEX[0], str(many), *INDEX[2:]], "a batch committed, nobody told"
        order = Order(arguments, server.url, folder, point, times=2, victim="server", limits=LIMITS)
        with Program(killed_client.run, order) as program:
            assert program.ended() == 3
            assert "Traceback" not in program.said
            assert "semlex doctor" in program.said
    with EmbeddedServer(folder) as server:
        goes_on(Shell(server.url, many.parent), server.url)
