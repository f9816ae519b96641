"""What the server does beside its requests: it notices changes, uses good settings and not bad ones, and does jobs."""

import asyncio
import logging
import os
import threading
from itertools import product
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from semlex import Client
from semlex.errors import ConfigurationError, ConnectionFailedError, ModelNotFoundError
from semlex.reranking.term_overlap import TermOverlapReranker
from semlex.server.open_client import OpenClient
from semlex.server.options import ServeOptions
from semlex.server.state import JOBS_PAUSE_SECONDS
from semlex.settings.sources import WatchedSettings, file_stamp
from semlex.testing import HashEmbedder
from tests.journeys.server.conftest import HIDDEN, with_two
from tests.support.databases import execute
from tests.support.http_server import COLLECTION, FixedSettings, in_process, settings_for
from tests.support.manual_clock import ManualClock
from tests.support.spies import calls_of, fail_first
from tests.support.waiting import LIMIT, eventually, held, waiting


@pytest.fixture
def clock():
    return ManualClock()


async def checks(served):
    return (await served.http.get("/readyz")).json()["checks"]


async def job_done(served):
    job = (await served.post("/v1/jobs", {"kind": "optimize", "collection": COLLECTION})).json()["id"]

    async def is_done():
        return (await served.http.get(f"/v1/jobs/{job}")).json()["state"] == "done"

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
            assert "jobs" not in await checks(served)  # where none are done


async def test_jobs_are_begun_again_after_an_error_and_it_is_told(changing, database_url, caplog, clock):
    async with in_process(changing, clock=clock, rights="admin", jobs=1) as served:
        assert (await checks(served))["jobs"] == "ok"
        await job_done(served)
        # Not while a job is in progress, whose outcome would be lost with the table: it runs again when its lease ends.
        await asyncio.to_thread(execute, database_url, "ALTER TABLE semlex.job RENAME TO away")
        await eventually(lambda: "jobs stopped by an error" in caplog.text)
        assert "started again" in (await checks(served))["jobs"]
        await asyncio.to_thread(execute, database_url, "ALTER TABLE semlex.away RENAME TO job")
        clock.advance(JOBS_PAUSE_SECONDS)
        await job_done(served)
        assert "started again" in (await checks(served))["jobs"]
        clock.advance(JOBS_PAUSE_SECONDS)
        await eventually(lambda: served.state.jobs_readiness == "ok")


async def test_a_removed_token_does_not_wait_for_models(filled, tokens, monkeypatch, clock):
    tokens.add("ann", "read")
    loading, go_on, whole = threading.Event(), threading.Event(), FixedSettings.reload

    def slow(source):
        loading.set()
        go_on.wait(LIMIT)
        return whole(source)

    monkeypatch.setattr(FixedSettings, "reload", slow)
    async with in_process(filled, clock=clock, token_file=tokens.path) as served:
        try:
            served.source.next = settings_for(collection=COLLECTION)
            await clock.passes_until(loading.is_set)
            tokens.remove("ann")
            assert served.state.tokens == ()
            assert not go_on.is_set()
        finally:
            go_on.set()


async def test_an_error_does_not_end_the_looking(filled, monkeypatch, caplog, clock):
    fail_first(monkeypatch, FixedSettings, "has_changed", RuntimeError("a disk that is gone"))
    async with in_process(filled, clock=clock) as served:
        await clock.passes_until(lambda: "could not be checked for changes" in caplog.text)
        served.source.problems = ("top_k must be a whole number",)
        await clock.passes_until(lambda: served.state.problems)


@pytest.mark.parametrize("error", [RuntimeError("a driver's"), asyncio.CancelledError()])
async def test_a_client_that_could_not_be_opened_is_closed(changing, database_url, monkeypatch, clock, error):
    del changing
    async with in_process(url=database_url, clock=clock) as served:
        old = served.state.open_client
        closed = calls_of(monkeypatch, Client, "close")
        monkeypatch.setattr("semlex.server.open_client.OpenClient.warm", AsyncMock(side_effect=error))
        served.source.next = settings_for(database_url, collection="another")
        await clock.passes_until(lambda: closed)
        assert served.state.open_client is old
        assert old.client not in [one["self"] for one in closed]
        if isinstance(error, RuntimeError):
            await eventually(lambda: served.state.problems)
            assert "old ones are in use" in (await checks(served))["settings"]


async def test_tokens_that_could_not_be_read_once_are_read_again(filled, tokens, monkeypatch, caplog):
    caplog.set_level(logging.ERROR, logger="semlex.server")
    tokens.add("ann", "read")
    async with in_process(filled, token_file=tokens.path) as served:
        tokens.remove("ann")
        fail_first(monkeypatch, Path, "read_bytes", *[PermissionError(13, "Permission denied")] * 5)
        await eventually(lambda: served.state.tokens == ())
        assert caplog.text.count("the changed token file is not used") == served.state.metrics.reloads["refused"] == 1


def test_a_file_of_tokens_keeps_its_owner_and_rights_which_count_as_a_change(tokens):
    tokens.add("ann", "read")
    stamp = file_stamp(tokens.path)
    tokens.path.chmod(0o640)
    assert file_stamp(tokens.path) != stamp
    if os.geteuid() == 0:
        os.chown(tokens.path, 12_345, 12_346)
    before = tokens.path.stat()
    tokens.add("bob", "read")
    tokens.remove("ann")
    after = tokens.path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert [path.name for path in tokens.path.parent.iterdir()] == ["tokens.json"]


@pytest.mark.slow
async def test_a_search_in_flight_ends_with_the_client_that_it_began_with(two_url, clock):
    async with in_process(url=two_url, clock=clock) as served:
        old = served.state.open_client

        async def found():
            return [hit["id"] for hit in (await served.post("/v1/search", {"query": "key"})).json()["hits"]]

        with held(two_url, f"semlex.{COLLECTION}_chunk") as holder:
            asking = asyncio.ensure_future(found())
            await eventually(lambda: waiting(holder) == 1)
            assert await served.changed(two_url, collection=HIDDEN)
            assert served.state.open_client is not old
            assert await found() == [f"{HIDDEN}-id"]
            assert (old.users, asking.done()) == (1, False)
        assert await asking == [f"{COLLECTION}-id"]
        await eventually(lambda: not any("retire" in str(task) for task in served.state._tasks))
        with pytest.raises(ConfigurationError, match="was closed"):
            await old.client.collections()
        assert served.state.metrics.reloads == {"ok": 1}


@pytest.mark.slow
async def test_bad_settings_leave_the_old_ones_and_say_so(two_url, tmp_path, caplog, clock):
    caplog.set_level(logging.ERROR, logger="semlex.server")
    (tmp_path / "spoilt.json").write_text("{}")
    wrong = [
        {"database_url": "postgresql://nobody@127.0.0.1:1/none"}, {"chat_model": "nosuch:model"},
        {"reranker_model": str(tmp_path / "none"), "use_reranking": True}, {"embedding_model": str(tmp_path / "none")},
        {"calibration": tmp_path / "none.json"}, {"calibration": tmp_path / "spoilt.json"},
    ]  # fmt: skip
    async with in_process(url=two_url, clock=clock) as served:
        old = served.state.open_client
        for number, (given, collection) in enumerate(product([{}, *wrong], (COLLECTION, "nothing_yet")), 1):
            caplog.clear()
            served.source.problems = () if given else ("top_k must be a whole number",)
            assert not await served.changed(two_url, **given, collection=collection), given
            assert served.state.open_client is old
            assert "the changed settings are not used" in caplog.text
            assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
            told = await checks(served)
            assert "old ones are in use" in told["settings"]
            assert str(tmp_path) not in str(told)
            assert served.state.metrics.reloads == {"refused": number}
        assert await served.changed(two_url, top_k=1)
        assert (await checks(served))["settings"] == "ok"
        caplog.clear()
        caplog.set_level(logging.WARNING, logger="semlex.server")
        served.state.open_client.settings = settings_for(two_url, calibration=tmp_path / "none.json")
        answer = await served.post("/v1/search", {"query": "key"})
        assert (answer.status_code, str(tmp_path) in answer.text, str(tmp_path) in caplog.text) == (503, False, True)


@pytest.mark.slow
async def test_settings_serve_when_the_server_that_was_away_is_there(two_url, monkeypatch, caplog, clock):
    async with in_process(url=two_url, clock=clock) as served:
        fail_first(monkeypatch, Client, "initialize", *[ConnectionFailedError("the server does not answer")] * 3)
        served.source.next = settings_for(two_url, collection=HIDDEN)
        await clock.passes_until(lambda: served.state.problems)
        assert "old ones are in use" in (await checks(served))["settings"]
        await clock.passes_until(lambda: served.state.open_client.settings.collection == HIDDEN)
        assert served.state.metrics.reloads == {"refused": 1, "ok": 1}
        assert caplog.text.count("the changed settings are not used") == 1
        assert (await checks(served))["settings"] == "ok"


async def test_what_was_wrong_before_does_not_keep_settings_from_changing(two_url, tmp_path, clock):
    wrong = {"reranker_model": str(tmp_path / "none"), "use_reranking": True}
    async with in_process(url=two_url, clock=clock) as served:
        served.state._open_client = OpenClient(served.state.open_client.client, settings_for(two_url, **wrong))
        served.state._open_client.problem = ModelNotFoundError("gone")
        assert not await served.changed(two_url, **wrong)  # it is another problem
        (told,) = served.state.problems
        served.state._open_client.problem = ModelNotFoundError(told)
        assert await served.changed(two_url, **wrong, top_k=2)


@pytest.mark.slow
async def test_searches_begin_with_what_the_settings_say(database_url, clock):
    async with Client(with_two(database_url), "none") as client:
        await client.collection(COLLECTION).add_texts(f"key number {number}" for number in range(8))
    async with in_process(url=database_url, clock=clock) as served:

        async def found(**given):
            answer = await served.post("/v1/search", {"query": "key", **given})
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert len((await found())["hits"]) == 5
        assert await served.changed(database_url, top_k=3, route="rules")
        assert len((await found())["hits"]) == 3
        assert (await found())["route"] is not None
        assert len((await found(collection=HIDDEN))["hits"]) == 1
        assert len((await found(top_k=6))["hits"]) == 6  # a request takes precedence over the settings
        many = (await served.post("/v1/search/many", {"queries": ["key", "number"]})).json()["results"]
        assert [len(one["hits"]) for one in many] == [3, 3]
        fourth = (await found(top_k=4))["hits"][3]["id"]
        for given, is_below in (({}, True), ({"top_k": 4}, False)):
            told = await served.post("/v1/why", {"question": "key", "document": fourth, **given})
            assert (told.status_code, "below_top_k" in told.text) == (200, is_below)
        assert await served.changed(database_url, mode="vector")
        assert (await served.post("/v1/search", {"query": "key"})).status_code == 409  # there are no vectors
        assert len((await found(mode="keyword"))["hits"]) == 5


def test_settings_are_read_again(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "own.toml"
    monkeypatch.setenv("SEMLEX_CONFIG", str(file))
    file.write_text('collection = "one"\n')
    watched = WatchedSettings()
    assert (watched.settings.collection, watched.has_changed()) == ("one", False)
    file.write_text('collection = "two or"\nwrong = 3\n')
    assert watched.has_changed()
    read = watched.reload()
    assert (read.settings.collection, len(read.problems) > 0, watched.has_changed()) == ("one", True, False)
    file.write_text('collection = "three"\n')
    assert (watched.has_changed(), watched.reload().problems, watched.settings.collection) == (True, (), "three")
