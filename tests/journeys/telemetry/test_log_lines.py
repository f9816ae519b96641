"""The lines that semlex logs: none without a program's choice, and in the server one JSON object or one line each."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex import Client, Document
from semlex.errors import ConfigurationError
from semlex.server.observability import FIELDS, JsonLines, TextLines, log_to_stderr
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, in_process


@pytest.fixture
def lines():
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("semlex")
    level, handlers = logger.level, logger.handlers[:]
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    yield written
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_without_a_choice_of_the_program_nothing_is_written():
    # In a process of its own: in this one, commands may have chosen.
    program = "import logging, semlex; logging.getLogger('semlex').warning('x'); logging.warning('of the program')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "WARNING:root:of the program\n")


def test_every_logger_is_below_that_of_the_package():
    sources = [path.read_text(encoding="utf-8") for path in Path(semlex.__file__).parent.rglob("*.py")]
    found = [name for source in sources for name in re.findall(r"\bgetLogger\(([^)]*)\)", source)]
    others = {"__name__", '"psycopg"', "name"}  # `name` is that of a handler's own list
    assert {name for name in found if name not in others and not name.startswith('"semlex')} == set()
    assert len(found) > 20


@given(st.text(), st.text(), st.integers(), st.booleans())
def test_a_line_is_one_json_object_whatever_it_says(message, caller, status, has_failed):
    record = logging.LogRecord("semlex.server", logging.INFO, "x.py", 1, "%s", (message,), None)
    vars(record).update(caller=caller, status=status, hidden="secret")
    if has_failed:
        record.exc_info = (ValueError, ValueError("secretmessage"), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["caller"], read["status"], read["level"]) == (message, caller, status, "info")
    assert read["time"].endswith("Z")
    assert "secret" not in read
    assert (read.get("error") == ["ValueError"]) == has_failed


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_an_error_is_its_kind_and_place_and_not_its_message(formatter):
    try:
        try:
            raise KeyError("secretkey")  # noqa: TRY301
        except KeyError as error:
            raise RuntimeError("secrettext") from error
    except RuntimeError as error:
        given_error = (RuntimeError, error, error.__traceback__)
        record = logging.LogRecord("semlex", logging.ERROR, "x.py", 1, "failed", (), given_error)
    assert "secrettext" in logging.Formatter().format(record)  # as another handler's, which is kept in the record
    line = formatter.format(record)
    assert "secret" not in line
    assert "RuntimeError" in line
    assert "KeyError" in line
    assert __name__.rpartition(".")[2] in line


async def test_the_line_of_a_request_has_its_figures_and_no_text(database_url, lines):
    async with Client(database_url, embedding_model=HashEmbedder(), use_reranking=False) as client:
        await client.collection(COLLECTION).add_documents([Document("secrettext of a key", id="d")])
        async with in_process(client) as served:
            headers = {"X-Request-ID": "asked-by-me"}
            await served.http.post("/v1/search", json={"query": "secretquestion key"}, headers=headers)
            await served.http.post("/v1/search", json={"query": 5, "secretfield": 1})
            await served.http.get("/secretpath")
    read = [json.loads(line) for line in lines.getvalue().splitlines()]
    requests = [one for one in read if "route" in one]
    assert [(one["method"], one["route"], one["status"]) for one in requests] == [
        ("POST", "/v1/search", 200),
        ("POST", "/v1/search", 422),
        ("GET", "none", 404),
    ]
    assert requests[0]["request_id"] == "asked-by-me"
    assert all(set(FIELDS) < one.keys() and one["milliseconds"] >= 0 for one in requests)
    assert "secret" not in lines.getvalue()


def test_there_are_two_forms(monkeypatch):
    for name in ("semlex", "uvicorn.error"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    kinds = []
    for form in ("text", "json"):
        log_to_stderr(form)
        [handler] = logging.getLogger("semlex").handlers
        kinds.append(type(handler.formatter))
    assert kinds == [TextLines, JsonLines]
    with pytest.raises(ConfigurationError, match="text or json; got 'xml'"):
        log_to_stderr("xml")


def test_timings_are_a_table_beside_the_answer(shell):
    shell("index", "docs")
    found = shell("search", "key", "--timings", "--json")
    assert json.loads(found.stdout.splitlines()[-1])["timings"].keys() == {
        line.split()[0] for line in found.stderr.splitlines()
    }
    assert all(line.endswith(" ms") for line in found.stderr.splitlines())
    (shell.folder / "questions.txt").write_text("key\n", encoding="utf-8")
    assert "--timings" in shell("search", "--queries", "questions.txt", "--timings", code=2).stderr
