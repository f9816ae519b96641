"""`semlex ui`, and `semlex try --open`: the address is printed, and no browser is opened where nobody looks."""

import re
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import pytest

from semlex.cli.commands import serve as command
from semlex.server import observability
from semlex.server.options import ServeOptions

pytestmark = pytest.mark.slow


@contextmanager
def running(shell, *arguments):
    """The process, and the address that it prints; a browser that is started leaves a file."""
    browser = shell.folder / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {shell.folder}/opened\n")
    browser.chmod(0o755)
    with shell.start(*arguments, BROWSER=str(browser), DISPLAY=":0") as process:
        said = ""
        while not (found := re.search(r"the page: (http://127\.0\.0\.1:\d+/\S*)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, found[1]


def test_ui_serves_the_page_until_it_is_interrupted(shell):
    shell("index", "docs")
    with running(shell, "ui", "--judgements", "judged") as (process, address):
        assert "#" not in address
        assert "semlex" in httpx2.get(address).text
        assert httpx2.get(f"{address}v1/page").json()["stores"] is True
        assert httpx2.post(f"{address}v1/search", json={"query": "key"}).json()["hits"]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert (process.returncode, "Traceback" in said) == (130, False)
    assert not (shell.folder / "opened").exists()


def test_ui_only_reads_unless_a_folder_for_judgements_is_given(shell, monkeypatch):
    served = []
    monkeypatch.setattr(command, "server_parts", lambda _: (lambda options, *_: served.append(options), ServeOptions))
    monkeypatch.setattr(observability, "log_to_stderr", lambda *_, **__: None)
    for options in ((), ("--judgements", "judged"), ("--rights", "admin")):
        shell("ui", *options)
    folder = shell.folder / "judged"
    assert [(one.rights, one.judgements) for one in served] == [("read", None), ("write", folder), ("admin", None)]


def test_a_folder_that_was_tried_is_opened_with_its_question(shell):
    with running(shell, "try", "docs", "where is a key?", "--open") as (_, address):
        assert re.search(r"#search\?collection=try_docs_\w+&q=where\+is\+a\+key%3F$", address)
    assert not (shell.folder / "opened").exists()
    assert "exclude each other" in shell("try", "docs", "where is a key?", "--open", "--json", code=2).stderr


def test_a_browser_is_opened_for_somebody_who_looks(monkeypatch):
    for name in command.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    assert not command.can_open()
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(sys, name, SimpleNamespace(isatty=lambda: True))
    assert command.can_open()
    monkeypatch.delenv("DISPLAY")
    assert not command.can_open()
