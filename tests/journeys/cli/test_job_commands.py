"""The command line's side of jobs: submitted, shown, done by a worker, which signals stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.shell import Shell

MODEL = ("--model", "none")


def test_a_job_from_its_submission_to_its_end(shell: Shell) -> None:
    (job,) = shell.objects("submit", "index", "docs", "-c", "book", *MODEL, "--priority", "3", "--unique-key", "k")
    assert (job["state"], job["arguments"]) == ("queued", {"paths": [str(shell.folder / "docs")]})
    (same,) = shell.objects("submit", "index", "docs", "-c", "book", *MODEL, "--unique-key", "k")
    assert same["id"] == job["id"]
    assert job["id"] in shell("jobs").stdout
    done = shell("worker", "--drain", "--allow", "docs", *MODEL)
    assert f"index book {job['id']}: attempt 1 of 5: done" in done.stderr
    (found,) = shell.objects("jobs", "--state", "done", "-c", "book")
    assert found["result"]["added"] == 2
    assert shell.objects("jobs", "show", job["id"]) == [found]
    assert "2 added" in shell("jobs").stdout
    assert '"added": 2' in shell("jobs", "show", job["id"]).stdout
    assert "yellow" in shell("search", "banana", "-c", "book", *MODEL).stdout


def test_a_job_that_fails_is_shown_and_tried_again(shell: Shell) -> None:
    job = shell("submit", "index", "docs", "-c", "book", *MODEL).stdout.strip()
    shell("worker", "--once", *MODEL)
    assert "may read: start one with --allow" in shell("jobs").stdout
    assert "cannot be cancelled" in shell("jobs", "cancel", job, code=2).stderr
    assert "is queued" in shell("jobs", "retry", job).stderr
    assert "is cancelled" in shell("jobs", "cancel", job).stderr
    shell("jobs", "retry", job)
    shell("worker", "--drain", "--allow", str(shell.folder), *MODEL)
    assert shell.objects("jobs", "show", job)[0]["state"] == "done"


def test_documents_and_options_are_given_as_json(shell: Shell) -> None:
    given = {"documents": [{"content": "a lion", "id": "lion", "metadata": {"year": 2026}}], "on_duplicate": "skip"}
    shell("submit", "add", "-c", "book", *MODEL, "--arguments", json.dumps(given))
    shell("submit", "index", "docs", "-c", "book", *MODEL, "--arguments", '{"include": ["*.txt"]}')
    shell("worker", "--drain", "--concurrency", "2", "--allow", "docs", *MODEL)
    assert {job["kind"]: job["state"] for job in shell.objects("jobs")} == {"add": "done", "index": "done"}
    found = shell.objects("search", "lion", "-c", "book", "--filter", "year == 2026", *MODEL)
    assert [hit["id"] for hit in found if "id" in hit] == ["lion"]
    assert [one["uri"] for one in shell.objects("documents", "-c", "book") if "uri" in one] == ["fruit.txt"]


def test_waiting_for_a_job(shell: Shell) -> None:
    waiting = ("submit", "optimize", "-c", "book", *MODEL, "--wait", "--timeout", "0.1")
    shell("index", "docs", "-c", "book", *MODEL)
    assert "is queued after 0.1 s" in shell(*waiting, code=7).stderr
    shell("submit", "sync", "nowhere", "-c", "book", *MODEL)
    shell("worker", "--drain", *MODEL)
    assert "failed" in shell("jobs", "--state", "failed").stdout


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("submit", "dance"), "kinds: index"),
        (("submit", "index"), "needs paths"),
        (("submit", "index", "docs", "--arguments", "{"), "no JSON"),
        (("submit", "index", "docs", "--arguments", "[]"), "must be an object"),
        (("submit", "index", "docs", "--arguments", '{"paths": ["docs"]}'), "stand twice"),
        (("submit", "index", "docs", "--not-before", "tomorrow"), "must be a time"),
        (("submit", "index", "docs", "--not-before", "2030-01-01"), "with its zone"),
        (("submit", "index", "docs", "--timeout", "1"), "give --wait, too"),
        (("jobs", "--state", "sleeping"), "state must be one of"),
        (("jobs", "show", "7"), "no id of a job"),
        (("jobs", "cancel", "00000000-0000-0000-0000-000000000000"), "there is no job"),
        (("worker", "--drain", "--allow", "nowhere"), "no folder"),
        (("worker", "--drain", "--lease", "0"), "lease must be"),
    ],
)
def test_mistakes_are_refused(shell: Shell, arguments: tuple[str, ...], match: str) -> None:
    given = (*arguments, "-c", "book", *MODEL) if arguments[0] == "submit" else arguments
    assert match in shell(*given, code=2).stderr
    assert shell.objects("collections") == []


def test_no_jobs(shell: Shell) -> None:
    assert "semlex submit" in shell("jobs").stderr
    assert shell.objects("jobs") == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_stops_a_worker_which_gives_its_job_back(shell: Shell, number: int, code: int) -> None:
    _fill_many(shell)
    (job,) = shell.objects("submit", "index", "many", "-c", "c", *MODEL)
    with subprocess.Popen(
        [sys.executable, "-m", "semlex", "worker", "--allow", "many", *MODEL],
        env=shell.environment, cwd=shell.folder, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        with _halted(shell):
            os.kill(process.pid, number)
            assert process.stderr is not None
            told = process.stderr.readline()
            while "stopping: running jobs" not in told:
                line = process.stderr.readline()
                assert line
                told += line
        _, said = process.communicate(timeout=60)
        assert process.returncode == code, said
    assert "Traceback" not in told + said
    (found,) = shell.objects("jobs", "show", job["id"])
    assert (found["state"], found["attempts"]) == ("queued", 0)
    shell("worker", "--drain", "--allow", "many", *MODEL)
    (found,) = shell.objects("jobs", "show", job["id"])
    assert (found["state"], found["attempts"]) == ("done", 1)
    assert 0 < found["result"]["added"] < 300
    assert found["result"]["added"] + found["result"]["unchanged"] == 300


@pytest.mark.slow
def test_a_second_signal_ends_a_worker_at_once_and_its_job_goes_on_elsewhere(shell: Shell) -> None:
    _fill_many(shell)
    (job,) = shell.objects("submit", "index", "many", "-c", "c", *MODEL)
    with subprocess.Popen(
        [sys.executable, "-m", "semlex", "worker", "--allow", "many", "--lease", "2", *MODEL],
        env=shell.environment, cwd=shell.folder, stderr=subprocess.PIPE, text=True,
    ) as process, _halted(shell):  # fmt: skip
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT), said
    assert "Traceback" not in said
    (found,) = shell.objects("jobs", "show", job["id"])
    assert found["state"] == "running"
    _wait_for(shell, "SELECT count(*) FROM semlex.job WHERE due_at < clock_timestamp()")
    shell("worker", "--drain", "--allow", "many", "--lease", "2", *MODEL)
    (found,) = shell.objects("jobs", "show", job["id"])
    assert found["state"] == "done"
    assert found["result"]["added"] + found["result"]["unchanged"] == 300


def test_dropping_a_collection_ends_its_jobs(shell: Shell) -> None:
    (shell.folder / "page.md").write_text("# Page\n\nA page.", encoding="utf-8")
    for collection in ("c", "other"):
        shell("index", "page.md", "-c", collection, *MODEL)
    (job,) = shell.objects("submit", "optimize", "-c", "c", *MODEL)
    (other,) = shell.objects("submit", "optimize", "-c", "other", *MODEL)
    shell("drop", "c", "--yes")
    assert shell.objects("jobs", "show", job["id"])[0]["state"] == "cancelled"
    assert shell.objects("jobs", "show", other["id"])[0]["state"] == "queued"


def _fill_many(shell: Shell) -> None:
    """A folder of many batches."""
    folder = shell.folder / "many"
    folder.mkdir()
    for page in range(300):
        parts = [f"# Part {part}\n\n" + f"word{page} section{part} " * 40 for part in range(60)]
        (folder / f"{page:03}.md").write_text("\n\n".join(parts), encoding="utf-8")


@contextmanager
def _halted(shell: Shell) -> Iterator[None]:
    """Waits until files are written, and lets no more be written meanwhile: the work cannot come to its end."""
    _wait_for(shell, "SELECT count(*) FROM semlex.c_document")
    with psycopg.connect(shell.environment["DATABASE_URL"]) as connection:
        connection.execute("LOCK TABLE semlex.c_document IN SHARE MODE")
        _wait_for(shell, "SELECT count(*) FROM pg_locks WHERE NOT granted")
        yield


def _wait_for(shell: Shell, statement: str) -> None:
    """Waits until a count is not 0."""
    until = time.monotonic() + 60
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        while connection.execute(statement.encode()).fetchone() == (0,):
            assert time.monotonic() < until
            time.sleep(0.01)
