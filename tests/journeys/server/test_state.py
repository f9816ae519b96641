"""What the server does beside its requests: it looks for changes and does jobs, and no error ends either unnoticed."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path

import psycopg
import pytest

from semlex import Client
from semlex.errors import ConfigurationError
from semlex.reranking.term_overlap import TermOverlapReranker
from semlex.server.options import ServeOptions
from semlex.server.state import JOBS_PAUSE_SECONDS
from semlex.server.tokens import TokenFile
from semlex.settings.sources import file_stamp
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, FixedSettings, in_process, settings_for
from tests.support.manual_clock import ManualClock
from tests.support.waiting import LIMIT, eventually


@pytest.fixture
def clock():
    return ManualClock()


async def checks(served):
    found = (await served.http.get("/readyz")).json()["checks"]
    return found


async def job_done(served):
    job = (await served.post("/v1/jobs", {"kind": "optimize", "collection": COLLECTION})).json()["id"]

    async def is_done():
        return bool((await served.http.get(f"/v1/jobs/{job}")).json()["state"] == "done")

    await eventually(is_done)


def test_folders_and_numbers_of_jobs_are_checked_at_the_start(tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere' is not an existing folder"):
        ServeOptions(allow=[tmp_path, tmp_path / "nowhere"])
    assert ServeOptions(jobs=256, allow=[tmp_path]).jobs == 256
    with pytest.raises(ConfigurationError, match="jobs"):
        ServeOptions(jobs=257)  # no worker does more


async def test_models_are_opened_before_anybody_asks(filled_url):
    async with Client(filled_url, HashEmbedder(), TermOverlapReranker()) as client:
        assert client._resources.open_reranker is None
        async with in_process(client) as served:
            assert served.state.open_client.readiness == "ok"
            assert client._resources.open_reranker is not None


async def test_jobs_are_begun_again_after_an_error_and_it_is_told(changing, database_url, caplog, clock):
    async with (
        in_process(changing, clock=clock, rights="admin", jobs=1) as served,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        assert (await checks(served))["jobs"] == "ok"
        await job_done(served)
        # Not while a job is in progress, whose outcome would be lost with the table: it runs again when its lease ends.
        await connection.execute("ALTER TABLE semlex.job RENAME TO away")
        await eventually(lambda: "jobs stopped by an error" in caplog.text)
        assert "started again" in (await checks(served))["jobs"]
        await connection.execute("ALTER TABLE semlex.away RENAME TO job")
        clock.advance(JOBS_PAUSE_SECONDS)
        await job_done(served)
        assert "started again" in (await checks(served))["jobs"]
        clock.advance(JOBS_PAUSE_SECONDS)
        await eventually(lambda: served.state.jobs_readiness == "ok")


async def test_no_jobs_are_spoken_of_where_none_are_done(filled):
    async with in_process(filled) as served:
        assert "jobs" not in await checks(served)


async def test_a_removed_token_does_not_wait_for_models(filled, tmp_path, monkeypatch, clock):
    file = TokenFile(tmp_path / "tokens.json")
    file.add("ann", "read")
    loading, go_on = threading.Event(), threading.Event()
    whole = FixedSettings.reload

    def slow(source):
        loading.set()
        go_on.wait(LIMIT)
        return whole(source)

    monkeypatch.setattr(FixedSettings, "reload", slow)
    async with in_process(filled, clock=clock, token_file=file.path) as served:
        try:
            served.source.next = settings_for(collection=COLLECTION)
            await clock.passes_until(loading.is_set)
            file.remove("ann")
            assert served.state.tokens == ()
            assert not go_on.is_set()
        finally:
            go_on.set()


async def test_an_error_does_not_end_the_looking(filled, monkeypatch, caplog, clock):
    whole, failed = FixedSettings.has_changed, []

    def once(source):
        if not failed:
            failed.append(1)
            raise RuntimeError("a disk that is gone")
        return whole(source)

    monkeypatch.setattr(FixedSettings, "has_changed", once)
    async with in_process(filled, clock=clock) as served:
        await clock.passes_until(lambda: "could not be checked for changes" in caplog.text)
        served.source.problems = ("top_k must be a whole number",)
        await clock.passes_until(lambda: served.state.problems)


@pytest.mark.parametrize("error", [RuntimeError("a driver's"), asyncio.CancelledError()])
async def test_a_client_that_could_not_be_opened_is_closed(changing, database_url, monkeypatch, clock, error):
    del changing
    closed = []
    whole = Client.close

    async def close(client):
        closed.append(client)
        await whole(client)

    async def broken(_):
        raise error

    async with in_process(url=database_url, clock=clock) as served:
        old = served.state.open_client
        monkeypatch.setattr(Client, "close", close)
        monkeypatch.setattr("semlex.server.open_client.OpenClient.warm", broken)
        served.source.next = settings_for(database_url, collection="another")
        await clock.passes_until(lambda: closed)
        assert served.state.open_client is old
        assert old.client not in closed
        if isinstance(error, RuntimeError):
            await eventually(lambda: served.state.problems)
            assert "old ones are in use" in (await checks(served))["settings"]


async def test_tokens_that_could_not_be_read_once_are_read_again(filled, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.ERROR, logger="semlex.server")
    file = TokenFile(tmp_path / "tokens.json")
    file.add("ann", "read")
    whole, failures = Path.read_bytes, [1] * 5

    def failing(path):
        if path == file.path and failures:
            failures.pop()
            raise PermissionError(13, "Permission denied")
        return whole(path)

    async with in_process(filled, token_file=file.path) as served:
        file.remove("ann")
        monkeypatch.setattr(Path, "read_bytes", failing)
        await eventually(lambda: served.state.tokens == ())
        assert not failures
        assert caplog.text.count("the changed token file is not used") == served.state.metrics.reloads["refused"] == 1


def test_other_rights_of_a_file_are_a_change(tmp_path):
    (tmp_path / "file").write_text("x")
    before = file_stamp(tmp_path / "file")
    (tmp_path / "file").chmod(0o640)
    assert file_stamp(tmp_path / "file") != before


def test_a_file_of_tokens_keeps_its_owner_and_rights(tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    file.add("ann", "read")
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file.path, 12_345, 12_346)
    before = file.path.stat()
    file.add("bob", "read")
    file.remove("ann")
    after = file.path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.json"]
