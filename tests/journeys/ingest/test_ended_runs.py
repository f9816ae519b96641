"""Runs that end in the middle: what is stored is whole, the exit code says why, and the same command goes on."""

import signal

import psycopg
import pytest

from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.clients import killed_client
from tests.support.clients.killed_client import Order
from tests.support.folders import filled
from tests.support.programs import Program
from tests.support.shell import Shell
from tests.support.waiting import held, until_waiting

pytestmark = pytest.mark.slow

# Batches of three or four files each; the second is committed when a run is ended.
FILES, SECTIONS = 40, 3
LIMITS = {"semlex.ingest.run": {"BATCH_CHUNKS_WITHOUT_MODEL": 10}}
POINT, TIMES = "a batch committed, nobody told", 2
INDEX = ("index", "many", "-c", "ended", "--model", "none")


@pytest.fixture
def many(tmp_path):
    """A folder that is written in several batches."""
    text = "\n\n".join(f"## Section {section}\n\n{'A word of the text. ' * 10}" for section in range(SECTIONS))
    return filled(tmp_path / "many", {f"{number:04}.md": f"# Page {number}\n\n{text}" for number in range(FILES)})


def stored(url):
    """Number of chunks -> how many documents have so many, by their rows."""
    with psycopg.connect(url) as connection:
        counts = "SELECT count(c.*) AS n FROM semlex.ended_document LEFT JOIN semlex.ended_chunk c USING (document_id)"
        statement = f"SELECT n, count(*) FROM ({counts} GROUP BY document_id) AS counted GROUP BY n"  # noqa: S608 - ours
        rows = connection.execute(statement).fetchall()
    return dict(rows)


def ended(url, folder, server, **order):
    """A run that ends, or stops itself, when its second batch is committed."""
    arguments = [INDEX[0], str(folder), *INDEX[2:]]
    return Program(killed_client.run, Order(arguments, url, server, point=POINT, times=TIMES, limits=LIMITS, **order))


def goes_on(shell, url):
    """The same command again: what is stored is whole, and the rest is added."""
    before = stored(url)
    assert len(before) == 1  # each as many chunks as the others
    (documents,) = before.values()
    assert 0 < documents < FILES
    (report,) = shell.objects(*INDEX)
    assert (report["added"], report["unchanged"], report["failed"]) == (FILES - documents, documents, 0)
    assert stored(url) == {next(iter(before)): FILES}


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run(shell, many, way):
    url = shell.environment["DATABASE_URL"]
    with ended(url, many, many, sent=signal.SIGSTOP) as program:
        program.until_stopped()
        with held(url, "semlex.ended_chunk", "SHARE") as connection:  # it may write nothing more
            program.send(signal.SIGCONT)
            until_waiting(connection)
            program.send(way)
            assert program.ended() == (130 if way == signal.SIGINT else -way)
        assert "Traceback" not in program.said
    goes_on(shell, url)


@pytest.mark.full  # ten seconds, after which the run gives up; test_ingest_kills starts the server again
def test_a_server_that_goes_in_the_middle(many, open_folder, make_server_folder):
    folder = make_server_folder(open_folder / "server")
    with EmbeddedServer(folder) as server, ended(server.url, many, folder, victim="server") as program:
        assert program.ended() == 3
        assert "Traceback" not in program.said
        assert "semlex doctor" in program.said
    with EmbeddedServer(folder) as server:
        goes_on(Shell(server.url, many.parent), server.url)
