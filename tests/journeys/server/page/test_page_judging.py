"""Hits judged with one key, and `semlex eval`, which reads what the page has written."""

import json

import pytest

from semlex.evaluation.datasets import read_judged_set
from tests.journeys.server.page.conftest import shown_of
from tests.support.http_server import COLLECTION
from tests.support.shell import run_here
from tests.support.shown import HAS_HITS, click, hold, order, release
from tests.support.waiting import until

pytestmark = pytest.mark.slow
PRESSED = (
    "[...document.querySelectorAll('.hits > li')].map((one) => [...one.querySelectorAll('.judge button')]"
    ".findIndex((button) => button.ariaPressed === 'true'))"
)


def test_hits_are_judged_with_one_key_and_eval_reads_them(shown, judged_folder, handbook_url):
    judged = judged_folder / COLLECTION
    for question in ("how do I rotate keys", "rotated keys of the vaults"):
        with shown.asking(question) as page:
            ids = order(page)
            page.press("j", "3", "j", "0", "j", "2", "j", "1", "k")
            page.wait(f"({PRESSED}).slice(0, 4).join() === '3,0,2,1'")
            page.press("Delete")  # the third
            page.wait(f"({PRESSED}).slice(0, 4).join() === '3,0,-1,1'")
            said = page.wait("document.querySelector('.judging pre')?.innerText")
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


def test_without_a_folder_the_files_are_downloaded(handbook_url, browser, tmp_path):
    with shown_of(browser, handbook_url) as shown, shown.asking("how do I  rotate keys") as page:
        page.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        ids = order(page)
        page.press("j", "2", "j", "0")
        for name in ("queries.tsv", "qrels.tsv"):
            page.wait("document.querySelectorAll('.judging button').length === 2")
            click(page, ".judging button", name)
            until((tmp_path / name).exists, name)  # it has its name when it is whole
    found = read_judged_set(tmp_path)
    assert found.queries == {"q1": "how do I rotate keys"}
    assert found.judgements == {"q1": {ids[0]: 2, ids[1]: 0}}


def test_the_last_of_two_quick_judgements_is_kept(shown, judged_folder):
    with shown.asking("keys judged twice") as page:
        page.wait("document.querySelector('.judging p') !== null")
        hold(page, "v1/judgements")
        first = order(page)[0]
        page.press("j", "3", "0")
        for _ in range(2):  # the later one first, if both were sent
            release(page)
        page.wait(f"({PRESSED})[0] === 0 && document.querySelector('#status').textContent.includes('0, no answer')")
        for _ in range(3):  # each click takes the state that the click before it has left
            click(page, ".judge button", "2")
        for _ in range(3):
            release(page)
        page.wait(f"({PRESSED})[0] === 2")
    found = read_judged_set(judged_folder / COLLECTION)
    query = next(name for name, text in found.queries.items() if text == "keys judged twice")
    assert found.judgements[query] == {first: 2}


def test_late_judgements_of_an_older_question_are_not_shown(shown, judged_folder):
    with shown.asking("vaults of the keys") as page:
        page.press("j", "3")
        page.wait(f"({PRESSED})[0] === 3")
    with shown.at() as page:
        hold(page, "v1/judgements")
        page.enter("vaults of the keys", "question")
        page.wait(f"{HAS_HITS} && window.held.length === 1")
        page.enter("the keys of vaults", "question")
        page.wait("location.hash.includes('keys+of+vaults')")
        for _ in range(2):
            release(page)
        page.wait("document.querySelector('.judging').innerText.includes('Judged: 0')")
        assert page.value(f"({PRESSED}).every((one) => one === -1)")
        first = order(page)[0]
        page.value("document.querySelector('.hits article').focus()")
        page.press("1")
        assert release(page)["question"] == "the keys of vaults"
        page.wait(f"({PRESSED})[0] === 1")
    found = read_judged_set(judged_folder / COLLECTION)
    judged = {found.queries[name]: values for name, values in found.judgements.items()}
    assert judged["the keys of vaults"] == {first: 1}
    assert judged["vaults of the keys"] == {first: 3}


def test_until_the_next_hits_are_there_the_shown_ones_are_judged_and_explained(shown):
    with shown.asking("rotated keys") as page:
        page.wait("document.querySelector('.judging p') !== null")
        hold(page, "v1/")
        page.enter("which filters are there", "question")
        click(page, ".judge button", "2")
        assert release(page)["question"] == "rotated keys"
        click(page, ".hits footer button", "Why here?")
        assert release(page)["question"] == "rotated keys"
        click(page, "nav a", "Documents")
        page.wait("location.hash === '#documents' && window.held.length > 1")
        page.value("window.held.splice(0).forEach((one) => one.go())")
        page.wait("document.querySelectorAll('main table').length > 0")
        assert page.value("location.hash") == "#documents"  # the late hits have not noted their question
