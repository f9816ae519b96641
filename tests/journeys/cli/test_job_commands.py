"""The command line's side of jobs: submitted, shown, done by a worker, which signals stop."""

import json
import signal

import pytest

from tests.support.clients.stopped_command import halted
from tests.support.databases import execute
from tests.support.folders import folder_with

MODEL = ("--model", "none")


def test_a_job_from_its_submission_to_its_end(shell):
    assert "semlex jobs submit" in shell("jobs").stderr
    assert shell.objects("jobs") == []
    submit = ("jobs", "submit", "index", "docs", "-c", "book", *MODEL, "--unique-key", "k")
    (job,) = shell.objects(*submit, "--priority", "3")
    assert (job["state"], job["arguments"]) == ("queued", {"paths": [str(shell.folder / "docs")]})
    (same,) = shell.objects(*submit)
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


@pytest.mark.slow
def test_a_job_that_fails_is_shown_and_tried_again(shell):
    job = shell("jobs", "submit", "index", "docs", "-c", "book", *MODEL).stdout.strip()
    shell("worker", "--once", *MODEL)
    assert "may read: start a worker with --allow" in shell("jobs").stdout
    assert "only queued or running jobs can be cancelled" in shell("jobs", "cancel", job, code=2).stderr
    assert "is queued" in shell("jobs", "retry", job).stderr
    assert "is cancelled" in shell("jobs", "cancel", job).stderr
    shell("jobs", "retry", job)
    shell("worker", "--drain", "--allow", str(shell.folder), *MODEL)
    assert shell.objects("jobs", "show", job)[0]["state"] == "done"


def test_documents_and_options_are_given_as_json(shell):
    given = {"documents": [{"content": "a lion", "id": "lion", "metadata": {"year": 2026}}], "on_duplicate": "skip"}
    shell("jobs", "submit", "add", "-c", "book", *MODEL, "--arguments", json.dumps(given))
    shell("jobs", "submit", "index", "docs", "-c", "book", *MODEL, "--arguments", '{"include": ["*.txt"]}')
    shell("worker", "--drain", "--concurrency", "2", "--allow", "docs", *MODEL)
    assert {job["kind"]: job["state"] for job in shell.objects("jobs")} == {"add": "done", "index": "done"}
    found = shell.objects("search", "lion", "-c", "book", "--filter", "year == 2026", *MODEL)
    assert [hit["id"] for hit in found if "id" in hit] == ["lion"]
    documents = shell.objects("documents", "-c", "book")
    assert [one["source_document"] for one in documents if "source_document" in one] == ["fruit.txt"]


@pytest.mark.slow
def test_waiting_for_a_job(shell):
    waiting = ("jobs", "submit", "optimize", "-c", "book", *MODEL, "--wait", "--timeout", "0.1")  # expires
    shell("index", "docs", "-c", "book", *MODEL)
    assert "is still queued after 0.1 s" in shell(*waiting, code=7).stderr
    shell("jobs", "submit", "sync", "nowhere", "-c", "book", *MODEL)
    shell("worker", "--drain", *MODEL)
    assert "failed" in shell("jobs", "--state", "failed").stdout


def test_mistakes_are_refused(shell):
    for arguments, match in (
        ("jobs submit dance", "kinds: index"),
        ("jobs submit index", "needs paths"),
        ("jobs submit index docs --arguments {", "not JSON"),
        ("jobs submit index docs --arguments []", "must be an object"),
        ('jobs submit index docs --arguments {"paths":["docs"]}', "are given twice"),
        ("jobs submit index docs --not-before tomorrow", "must be a time"),
        ("jobs submit index docs --not-before 2030-01-01", "with its zone"),
        ("jobs submit index docs --timeout 1", "--timeout needs --wait"),
        ("jobs --state sleeping", "state must be one of"),
        ("jobs show 7", "not the id of a job"),
        ("jobs cancel 00000000-0000-0000-0000-000000000000", "unknown job"),
        ("worker --drain --allow nowhere", "'nowhere' is not an existing folder"),
        ("worker --drain --lease 0", "lease must be"),
    ):
        assert match in shell(*arguments.split(), code=2).stderr
    assert shell.objects("collections") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGTERM], 0), ([signal.SIGINT], 130), ([signal.SIGTERM, signal.SIGINT], 128 + signal.SIGINT)],
    ids=["SIGTERM", "Ctrl-C", "both"],
)
def test_a_signal_stops_a_worker_which_gives_its_job_back_and_a_second_one_ends_it_at_once(shell, signals, code):
    files = 20
    pages = {f"many/{page:03}.md": f"# Page {page}\n\n" + f"word{page} " * 40 for page in range(files)}
    folder_with(shell.folder, pages)
    (job,) = shell.objects("jobs", "submit", "index", "many", "-c", "c", *MODEL)
    # The worker has stored two batches.
    command, moment = ("worker", "--allow", "many", *MODEL), ("index files", "committed", 2)
    limits = {"semlex.ingest.run": {"BATCH_CHUNKS_WITHOUT_MODEL": 3}}
    with halted(shell, command, moment, "c_document", limits=limits) as (program, holder):
        program.send(signals[0])
        program.until_said("stopping:")
        if signals[1:]:
            program.send(signals[1])
        else:
            holder.rollback()
        assert program.ended() == code
        assert "Traceback" not in program.said
    (found,) = shell.objects("jobs", "show", job["id"])
    if signals[1:]:
        assert (found["state"], found["attempts"]) == ("running", 1)
        execute(shell.environment["DATABASE_URL"], "UPDATE semlex.job SET due_at = due_at - interval '1 day'")
    else:
        assert (found["state"], found["attempts"]) == ("queued", 0)
    shell("worker", "--drain", "--allow", "many", *MODEL)
    (found,) = shell.objects("jobs", "show", job["id"])
    assert (found["state"], found["attempts"]) == ("done", len(signals))
    assert 0 < found["result"]["added"] < files
    assert found["result"]["added"] + found["result"]["unchanged"] == files


def test_dropping_a_collection_ends_its_jobs(shell):
    (shell.folder / "page.md").write_text("# Page\n\nA page.", encoding="utf-8")
    for collection in ("c", "other"):
        shell("index", "page.md", "-c", collection, *MODEL)
    (job,) = shell.objects("jobs", "submit", "optimize", "-c", "c", *MODEL)
    (other,) = shell.objects("jobs", "submit", "optimize", "-c", "other", *MODEL)
    shell("collections", "drop", "c", "--yes")
    assert shell.objects("jobs", "show", job["id"])[0]["state"] == "cancelled"
    assert shell.objects("jobs", "show", other["id"])[0]["state"] == "queued"
