"""Hits judged with one key, and `semlex eval`, which reads what the page has written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from semlex.evaluation.datasets import read_judged_set
from tests.support.http_server import COLLECTION, in_a_thread
from tests.support.shell import run_here
from tests.support.shown import Shown, click, order
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.browser import Browser

pytestmark = pytest.mark.slow
PRESSED = (
    "[...document.querySelectorAll('.hits > li')].map((one) => [...one.querySelectorAll('.judge button')]"
    ".findIndex((button) => button.ariaPressed === 'true'))"
)


def test_hits_are_judged_with_one_key_and_eval_reads_them(shown: Shown, judged_folder: Path, handbook_url: str) -> None:
    judged = judged_folder / COLLECTION
    for question in ("how do I rotate keys", "rotated keys of the vaults"):
        with shown.asking(question) as page:
            page.press("j")
            ids = order(page)
            for key, moves in (("3", "j"), ("0", "j"), ("2", "j"), ("1", "k")):
                page.press(key)
                page.press(moves)
            page.wait(f"({PRESSED}).slice(0, 4).join() === '3,0,2,1'")
            page.press("Delete")  # the third
            page.wait(f"({PRESSED}).slice(0, 4).join() === '3,0,-1,1'")
            page.wait("document.querySelector('.judging pre') !== null")
            said = page.value("document.querySelector('.judging pre').innerText")
            assert said == f"semlex eval run {judged} --collection {COLLECTION}"
        found = read_judged_set(judged)
        query = next(name for name, text in found.queries.items() if text == question)
        assert found.judgements[query] == {ids[0]: 3, ids[1]: 0, ids[3]: 1}
    with shown.asking("how do I rotate keys") as page:
        page.wait(f"({PRESSED}).slice(0, 4).join() === '3,0,-1,1'")
    found = run_here(("eval", "run", str(judged), "--collection", COLLECTION, "--database", handbook_url, "--json"))
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout.splitlines()[-1])
    assert (summary["type"], summary["queries"], summary["judged"]) == ("summary", 2, "chunk")
    assert "keyword" in summary["systems"]


def test_without_a_folder_the_files_are_downloaded(handbook_url: str, browser: Browser, tmp_path: Path) -> None:
    with in_a_thread(handbook_url) as (host, port):
        with Shown(browser, f"http://{host}:{port}", COLLECTION).asking("how do I  rotate keys") as page:
            page.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
            page.press("j")
            ids = order(page)
            page.press("2")
            page.press("j")
            page.press("0")
            for name in ("queries.tsv", "qrels.tsv"):
                page.wait("document.querySelectorAll('.judging button').length === 2")
                click(page, ".judging button", name)
                until((tmp_path / name).exists, name)  # it has its name when it is whole
        found = read_judged_set(tmp_path)
        assert found.queries == {"q1": "how do I rotate keys"}
        assert found.judgements == {"q1": {ids[0]: 2, ids[1]: 0}}
