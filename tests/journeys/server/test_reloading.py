"""Settings that change while the server runs: the new ones serve, bad ones do not, and nobody notices the change."""

from __future__ import annotations

import asyncio
import logging

import pytest

from semlex import Client, Document
from semlex.errors import ConfigurationError, ConnectionFailedError, ModelNotFoundError
from semlex.server.open_client import OpenClient
from semlex.settings.sources import WatchedSettings
from tests.support.http_server import COLLECTION, in_process, settings_for
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually, held, waiting


async def fill(url):
    """Two collections, searched by their words."""
    async with Client(url, embedding_model="none") as client:
        await client.collection(COLLECTION).add_documents([Document("the old key", id="old")])
        await client.collection("another").add_documents([Document("the new key", id="new")])
    return url


@pytest.fixture(scope="module")
def two(new_database):
    """A database that all tests leave as it is."""
    return asyncio.run(fill(new_database()))


@pytest.mark.slow
async def test_a_search_in_flight_ends_with_the_client_that_it_began_with(two):
    async with in_process(url=two, clock=ManualClock()) as served:
        old = served.state.open_client

        async def found():
            answer = await served.post("/v1/search", {"query": "key"})
            assert answer.status_code == 200
            return [hit["id"] for hit in answer.json()["hits"]]

        with held(two, f"semlex.{COLLECTION}_chunk") as holder:
            asking = asyncio.ensure_future(found())
            await eventually(lambda: waiting(holder) == 1)
            served.source.next = settings_for(two, collection="another")
            assert await served.state.reload()
            assert served.state.open_client is not old
            assert await found() == ["new"]
            assert (old.users, asking.done()) == (1, False)
        assert await asking == ["old"]
        await eventually(lambda: not any("retire" in str(task) for task in served.state._tasks))
        with pytest.raises(ConfigurationError, match="was closed"):
            await old.client.collections()
        assert served.state.metrics.reloads == {"ok": 1}


async def test_bad_settings_leave_the_old_ones_and_say_so(two, caplog):
    caplog.set_level(logging.ERROR, logger="semlex.server")
    async with in_process(url=two, clock=ManualClock()) as served:
        for number, spoil in enumerate(("problem", "server"), 1):
            if spoil == "problem":
                served.source.problems = ("top_k must be a whole number",)
            else:
                served.source.next = settings_for("postgresql://nobody@127.0.0.1:1/none")
            assert not await served.state.reload()
            assert "the changed settings are not used" in caplog.text
            assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
            ready = (await served.http.get("/readyz")).json()
            assert "old ones are in use" in ready["checks"]["settings"]
            assert served.state.metrics.reloads == {"refused": number}
        served.source.next = settings_for(two)
        assert await served.state.reload()
        assert (await served.http.get("/readyz")).json()["checks"]["settings"] == "ok"


@pytest.mark.slow
async def test_settings_that_cannot_be_opened_leave_the_old_ones(two, tmp_path, caplog):
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text("{}")
    wrong = [
        {"reranker_model": str(tmp_path / "none"), "use_reranking": True},
        {"calibration": tmp_path / "none.json"},
        {"calibration": spoilt},
        {"chat_model": "nosuch:model"},
        {"embedding_model": str(tmp_path / "none")},
    ]
    async with in_process(url=two, clock=ManualClock()) as served:
        old = served.state.open_client
        for given in wrong:
            for collection in (COLLECTION, "nothing_yet"):
                caplog.clear()
                served.source.next = settings_for(two, **{**given, "collection": collection})
                assert not await served.state.reload(), given
                assert served.state.open_client is old
                assert "the changed settings are not used" in caplog.text
                assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
                ready = (await served.http.get("/readyz")).json()
                assert "old ones are in use" in ready["checks"]["settings"]
                assert str(tmp_path) not in str(ready)
        assert served.state.metrics.reloads == {"refused": 2 * len(wrong)}
        served.source.next = settings_for(two, top_k=1)
        assert await served.state.reload()


@pytest.mark.slow
async def test_settings_serve_when_the_server_that_was_away_is_there(two, monkeypatch, caplog):
    whole, away = Client.initialize, [1] * 3

    async def initialize(client):
        if away:
            away.pop()
            raise ConnectionFailedError("the server does not answer")
        await whole(client)

    clock = ManualClock()
    async with in_process(url=two, clock=clock) as served:
        monkeypatch.setattr(Client, "initialize", initialize)
        served.source.next = settings_for(two, collection="another")
        await clock.passes_until(lambda: served.state.problems)
        assert "old ones are in use" in (await served.http.get("/readyz")).json()["checks"]["settings"]
        await clock.passes_until(lambda: served.state.open_client.settings.collection == "another")
        assert served.state.metrics.reloads == {"refused": 1, "ok": 1}
        assert caplog.text.count("the changed settings are not used") == 1
        assert (await served.http.get("/readyz")).json()["checks"]["settings"] == "ok"


async def test_what_was_wrong_before_does_not_keep_settings_from_changing(two, tmp_path):
    wrong = {"reranker_model": str(tmp_path / "none"), "use_reranking": True}
    async with in_process(url=two, clock=ManualClock()) as served:
        served.state._open_client = OpenClient(served.state.open_client.client, settings_for(two, **wrong))
        served.state._open_client.problem = ModelNotFoundError("gone")
        served.source.next = settings_for(two, **wrong)
        assert not await served.state.reload()  # it is another problem
        (told,) = served.state.problems
        served.state._open_client.problem = ModelNotFoundError(told)
        served.source.next = settings_for(two, **wrong, top_k=2)
        assert await served.state.reload()


async def test_a_calibration_that_cannot_be_used_is_told_to_the_log_alone(two, tmp_path, caplog):
    async with in_process(url=two, clock=ManualClock()) as served:
        served.state.open_client.settings = settings_for(two, calibration=tmp_path / "none.json")
        answer = await served.post("/v1/search", {"query": "key"})
    assert (answer.status_code, str(tmp_path) in answer.text) == (503, False)
    assert str(tmp_path) in caplog.text


@pytest.mark.slow
async def test_searches_begin_with_what_the_settings_say(database_url):
    two = await fill(database_url)
    async with Client(two, embedding_model="none") as client:
        texts = [Document(f"key number {number}", id=f"k{number}") for number in range(8)]
        await client.collection(COLLECTION).add_documents(texts)
    async with in_process(url=two, clock=ManualClock()) as served:

        async def found(**given):
            answer = await served.post("/v1/search", {"query": "key", **given})
            assert answer.status_code == 200, answer.text
            result = answer.json()
            return result

        assert len((await found())["hits"]) == 5
        served.source.next = settings_for(two, top_k=3, route="rules")
        assert await served.state.reload()
        assert len((await found())["hits"]) == 3
        assert (await found())["route"] is not None
        assert len((await found(collection="another"))["hits"]) == 1
        assert len((await found(top_k=6))["hits"]) == 6  # what a request says goes before
        many = (await served.post("/v1/search/many", {"queries": ["key", "number"]})).json()["results"]
        assert [len(one["hits"]) for one in many] == [3, 3]
        fourth = (await found(top_k=4))["hits"][3]["id"]
        for given, is_below in (({}, True), ({"top_k": 4}, False)):
            told = await served.post("/v1/why", {"question": "key", "document": fourth, **given})
            assert (told.status_code, "below_top_k" in told.text) == (200, is_below)
        served.source.next = settings_for(two, mode="vector")
        assert await served.state.reload()
        assert (await served.post("/v1/search", {"query": "key"})).status_code == 409  # there are no vectors
        assert len((await found(mode="keyword"))["hits"]) == 5


def test_settings_are_read_again(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMLEX_CONFIG", str(tmp_path / "own.toml"))
    (tmp_path / "own.toml").write_text('collection = "one"\n')
    watched = WatchedSettings()
    assert (watched.settings.collection, watched.has_changed()) == ("one", False)
    (tmp_path / "own.toml").write_text('collection = "two or"\nwrong = 3\n')
    assert watched.has_changed()
    read = watched.reload()
    assert (read.settings.collection, len(read.problems) > 0, watched.has_changed()) == ("one", True, False)
    (tmp_path / "own.toml").write_text('collection = "three"\n')
    assert (watched.has_changed(), watched.reload().problems, watched.settings.collection) == (True, (), "three")
