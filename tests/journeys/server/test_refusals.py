"""What cannot be done is told by its kind: to the caller what the caller can change, to the log the rest."""

from __future__ import annotations

import errno
import json
import os

import pytest

from semlex.errors import ConfigurationError, MissingKeyError
from semlex.ingest.files.discovery import FileProblem, find_files
from semlex.ingest.files.selection import Selection
from semlex.jobs.kinds import AllowedFolders
from semlex.server.mcp.access import Access
from semlex.server.tokens import TokenFile
from tests.support.http_server import COLLECTION, in_process

NAMES = ["a\0b", "\0", "a\ud800b", "a\udc80b"]


@pytest.mark.parametrize("name", NAMES)
async def test_paths_that_no_file_can_have_are_refused(filled, tmp_path, name):
    path = f"{tmp_path}/{name}"
    async with in_process(filled, rights="write", allow=[tmp_path]) as served:
        asked = [
            ("/v1/index", {"paths": [path]}),
            ("/v1/jobs", {"kind": "index", "arguments": {"paths": [path]}}),
            ("/v1/jobs", {"kind": "sync", "arguments": {"paths": [str(tmp_path), path]}}),
        ]
        for place, body in asked:
            content = json.dumps({**body, "collection": COLLECTION})  # halves of pairs are escaped
            answer = await served.http.post(place, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code in (403, 422), (place, answer.text)
        assert (await served.http.get("/v1/jobs")).json()["jobs"] == []
    with pytest.raises(ConfigurationError):
        await AllowedFolders([tmp_path]).check([path])


async def test_a_link_that_becomes_a_file_while_it_is_read_is_refused(filled, tmp_path, monkeypatch):
    def exchanged(path):
        raise OSError(errno.EINVAL, "Invalid argument", path)

    (tmp_path / "race.md").symlink_to(tmp_path / "target.md")
    async with in_process(filled, rights="write", allow=[tmp_path]) as served:
        access = Access.of(writes=True, folders=[tmp_path])
        monkeypatch.setattr(os, "readlink", exchanged)
        answer = await served.post("/v1/index", {"paths": [str(tmp_path / "race.md")]})
        assert answer.status_code == 403
        with pytest.raises(ConfigurationError, match="not in the folders"):
            access.folder("race.md")
        (problem,) = find_files(tmp_path, Selection(None, (), ["md"], recursive=True))
        assert isinstance(problem, FileProblem)


async def test_what_the_operator_has_to_do_is_not_told_to_callers(filled, monkeypatch, caplog):
    async def broken(*_, **__):
        raise MissingKeyError("set SOME_PROVIDER_KEY")

    monkeypatch.setattr("semlex.retriever.collection.Collection.search", broken)
    async with in_process(filled) as served:
        answer = await served.post("/v1/search", {"query": "key"})
    assert answer.status_code == 503
    assert "SOME_PROVIDER_KEY" not in answer.text
    assert "SOME_PROVIDER_KEY" in caplog.text


async def test_refused_requests_are_logged_and_counted_with_route_and_address(filled, tmp_path, caplog):
    caplog.set_level("INFO", "semlex.server")
    file = TokenFile(tmp_path / "tokens.json")
    token = {"Authorization": f"Bearer {file.add('ann', 'read')}"}
    async with in_process(filled, token_file=file.path, rate=2, body_bytes=100) as served:
        asked = [
            (401, "/v1/search", {}),
            (421, "/v1/jobs/x/cancel", {"headers": {"Host": "elsewhere.example.org"}}),
            (413, "/v1/search", {"headers": token, "content": b" " * 101}),
            (404, "/v1/nowhere", {"headers": token}),
            (429, "/mcp", {"headers": token}),
        ]
        for status, path, options in asked:
            assert (await served.http.post(path, **options)).status_code == status
        served.state.is_stopping = True
        assert (await served.http.get("/v1/documents", headers=token)).status_code == 503
    counted = {(route, status) for _, route, status in served.state.metrics.requests}
    assert counted == {
        ("/v1/search", 401),
        ("/v1/jobs/{job_id}/cancel", 421),
        ("/v1/search", 413),
        ("none", 404),
        ("/mcp", 429),
        ("/v1/documents", 503),
    }
    lines = [vars(record) for record in caplog.records if "route" in vars(record)]
    assert {(line["route"], line["status"]) for line in lines} == counted
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert all("127.0.0.1)" in line["message"] for line in lines)
