"""The routes of the page: its files, who gets them, and judgements without a browser."""

import asyncio
import json
import logging
import re
import threading
from unittest.mock import MagicMock

import pytest

from semlex.evaluation.datasets import JudgementFolder, read_judged_set
from semlex.server.routes.page import FOLDER, page_files
from tests.journeys.server.test_limits import head
from tests.support.http_server import COLLECTION, bearer, in_process, on_a_port
from tests.support.waiting import LIMIT, eventually


async def test_files_are_sent_with_their_types_and_asked_for_again(served):
    for name, file in page_files().items():
        path = "/" if name == "index.html" else f"/page/{name}"
        answer = await served.http.get(path)
        assert answer.status_code == 200
        wanted = {"content-type": file.media_type, "cache-control": "no-cache", "x-content-type-options": "nosniff"}
        assert wanted.items() <= answer.headers.items()
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert all(f"{name} 'none'" in policy for name in ("default-src", "frame-ancestors"))
        again = await served.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for path in ("/page/", "/page/..%2fapp.py", "/page/../app.py", "/page/none.js", "/page/%00"):
        assert (await served.http.get(path)).status_code == 404
    assert (await served.http.get("/v1/collections")).headers["cache-control"] == "no-store"


def test_files_are_short_make_no_markup_of_texts_and_ask_no_other_server():
    assert {path.name for path in FOLDER.iterdir()} == page_files().keys()
    forbidden = r"(inner|outer|insertAdjacent)HTML|document\.write|eval\(|https?://|<style|style=|onclick"
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert len(text.splitlines()) <= 300, path.name
        assert not re.search(forbidden, text), path.name


@pytest.mark.slow
async def test_the_page_needs_no_token_and_what_it_asks_does(filled, tokens, tmp_path):
    reader, writer = tokens.add("reader", "read"), tokens.add("writer", "write")
    other = tokens.add("other", "write", ("elsewhere",))
    given = {"question": "keys?", "judgements": {"d0": 3}, "collection": COLLECTION}
    async with in_process(filled, token_file=tokens.path, judgements=tmp_path / "judged", rate=3) as served:
        assert (await served.http.get("/")).status_code == 200
        assert (await served.http.get("/v1/page")).status_code == 401
        for secret, status, stores in ((reader, 403, False), (other, 403, True), (writer, 200, True)):
            served.http.headers |= bearer(secret)
            about = (await served.http.get("/v1/page")).json()
            assert (about["stores"], about["collection"]) == (stores, None if secret == other else COLLECTION)
            assert (await served.post("/v1/judgements", given)).status_code == status
            for name in page_files():  # files do not count for the rate limit
                assert (await served.http.get(f"/page/{name}")).status_code == 200
            assert [(await served.http.get("/v1/page")).status_code for _ in range(2)] == [200, 429]
    assert read_judged_set(tmp_path / "judged" / COLLECTION).judgements == {"q1": {"d0": 3}}


async def test_judgements_that_cannot_be_stored_are_refused(filled, tmp_path):
    given = {"question": "q", "judgements": {"d0": 1}}
    async with in_process(filled, rights="write", judgements=tmp_path) as served:
        judged = ({"d0": 4}, {"d0": -1}, {"d0": 1.5}, {}, {"a\tb": 1}, {" a": 1})
        for wrong in (*({"judgements": one} for one in judged), {"question": " \n"}, {"collection": "../x"}):
            assert (await served.post("/v1/judgements", given | wrong)).status_code == 422, wrong
    assert not [*tmp_path.rglob("*.tsv")]
    async with in_process(filled, rights="write") as served:
        answer = await served.post("/v1/judgements", given)
        assert (answer.status_code, "--judgements" in answer.json()["detail"]) == (409, True)


async def test_judgements_of_a_client_that_left_are_kept_beside_the_next(filled, tmp_path, monkeypatch):
    """The first one's thread is still writing when the second one asks."""
    writing, go_on, whole = threading.Event(), threading.Event(), JudgementFolder._write

    def slow(folder, *rows):
        writing.set()
        assert go_on.wait(LIMIT)
        whole(folder, *rows)

    monkeypatch.setattr(JudgementFolder, "_write", slow)
    async with on_a_port(filled, rights="write", judgements=tmp_path) as served:
        lock, asked = threading.Lock(), []
        served.state.judging = MagicMock(
            __enter__=lambda _: asked.append(1) or lock.acquire(), __exit__=lambda *_: lock.release()
        )
        body = json.dumps({"question": "first?", "judgements": {"d0": 1}}).encode()
        async with served.connection(head("/v1/judgements", f"Content-Length: {len(body)}") + body):
            assert await asyncio.to_thread(writing.wait, LIMIT)
        await eventually(lambda: served.state.metrics.refused["client-gone"])
        second = asyncio.ensure_future(served.post("/v1/judgements", {"question": "second?", "judgements": {"d1": 2}}))
        await eventually(lambda: len(asked) == 2)
        go_on.set()
        assert (await second).json()["questions"] == 2
    assert read_judged_set(tmp_path / COLLECTION).judgements == {"q1": {"d0": 1}, "q2": {"d1": 2}}


@pytest.mark.slow
async def test_readers_and_errors_do_not_name_folders(filled, tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="semlex.server")
    given = {"question": "q", "judgements": {"d0": 1}}
    async with in_process(filled, rights="write", judgements=tmp_path / "judged") as served:
        assert (await served.post("/v1/judgements", given)).json()["folder"] == str(tmp_path / "judged" / COLLECTION)
    async with in_process(filled, judgements=tmp_path / "judged") as served:
        read = (await served.http.get("/v1/judgements", params={"question": "q"})).json()
        assert read == {"judgements": {"d0": 1}, "questions": 1, "folder": None}
    (tmp_path / "judged" / COLLECTION / "qrels.tsv").write_bytes(b"\xff\xfe damaged")
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "judged", tmp_path / "file"):
        async with in_process(filled, rights="write", judgements=folder) as served:
            answer = await served.post("/v1/judgements", given)
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:semlex:problem:judgements")
            assert str(tmp_path) not in answer.text
        assert str(tmp_path) in caplog.text
