"""The synchronous classes have what the asynchronous ones have."""

import asyncio
import inspect
import pickle
import threading

import pytest

import semlex
from semlex.errors import ConfigurationError
from semlex.retriever import synchronous

assert all(hasattr(synchronous, name) for name in synchronous.__all__)  # makes the classes that are made on first use
PAIRS = [(kind, made) for kind, made in synchronous._KINDS.items() if made is not None]  # before those of this file


@pytest.mark.parametrize(("asynchronous", "made"), PAIRS, ids=[made.__name__ for _, made in PAIRS])
def test_each_has_the_members_of_the_other(asynchronous, made):
    members = synchronous.public_members(asynchronous)
    assert members.keys() <= set(dir(made))
    for name, member in members.items():
        if inspect.isfunction(member) and not hasattr(synchronous.Opened, name) and name != "drop_collection":
            function = getattr(made, name)
            assert not inspect.iscoroutinefunction(function)
            bound = {"pool", "connection"} if inspect.signature(member).parameters.keys() & {"pool"} else set()
            assert inspect.signature(function).parameters.keys() == inspect.signature(member).parameters.keys() - bound
            if not bound:
                assert inspect.getdoc(function) == inspect.getdoc(member)


def test_signatures_and_wrong_arguments():
    returned = {
        semlex.SyncClient.collection: "SyncCollection",
        semlex.SyncClient.jobs: "list[SyncJob]",
        semlex.SyncCollection.watch: "Generator[SyncReport, None, None]",
        semlex.SyncKnowledgeBase.add: "SyncKnowledgeBase",
    }
    assert {one: inspect.signature(one).return_annotation for one in returned} == returned
    assert "pool" not in inspect.signature(semlex.SyncClient).parameters
    assert "    pool:" not in (semlex.SyncClient.__doc__ or "")
    assert "    pool:" in (semlex.Client.__doc__ or "")
    for call, message in [
        (lambda: semlex.SyncClient(pool=1), r"SyncClient.__init__\(\) got an unexpected keyword argument 'pool'"),
        (lambda: semlex.SyncRetriever(colection="a"), r"SyncRetriever.__init__\(\) got an .* argument 'colection'"),
        (lambda: semlex.SyncRetriever().count(filter="a"), r"SyncCollection.count\(\) got an .* argument 'filter'"),
        (lambda: semlex.SyncRetriever().search("a", fuson="rrf"), r"SyncCollection.search\(\) got .* mean 'fusion'\?"),
        (lambda: semlex.SyncRetriever().get(), r"SyncCollection.get\(\) missing a required argument: 'ids'"),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=message):
            call()
        assert not [thread for thread in threading.enumerate() if thread.name == "semlex-loop"]


class Tool:
    """A small object of a server."""

    def __init__(self, name):
        self.name = name

    async def use(self, times=1):
        """Use it."""
        return self.name * times


class Server:
    """What is opened, with everything that an asynchronous class may have."""

    address: str

    def __init__(self, address):
        self.address = address
        self.events = []

    async def initialize(self):
        self.events.append("open")

    async def close(self):
        self.events.append("close")

    @property
    def tool(self):
        """Its tool."""
        return Tool("t")

    async def tools(self):
        """Return all tools."""
        return [Tool("a"), Tool("b")]

    async def counts(self):
        """Count for ever."""
        try:
            number = 0
            while True:
                yield (number := number + 1)
        finally:
            self.events.append("ended")

    async def itself(self):
        """Return this."""
        return self

    @classmethod
    def of(cls):
        """Make one."""
        return cls("")


for kind in (Tool, Server):
    kind.__module__ = "semlex.retriever.of_a_test"


class SyncServer(synchronous.Opened, of=Server):
    """The same without an event loop."""


def test_whatever_a_class_has_works_without_await():
    with SyncServer("here") as server:
        assert (server.address, server.itself()) == ("here", server)
        assert type(server.tool).__name__ == "SyncTool"
        assert server.tool.use(times=2) == "tt"
        assert [tool.use() for tool in server.tools()] == ["a", "b"]
        counts = server.counts()
        assert [next(counts), next(counts)] == [1, 2]
        counts.close()
        assert asyncio.run(server.awaited(server.asynchronous.tool.use)) == "t"
        assert server.run(server.asynchronous.tool.use, 3) == "ttt"
    assert server.asynchronous.events == ["open", "ended", "close"]
    assert not hasattr(server, "of")
    for one in (server, server.tool):
        with pytest.raises(ConfigurationError, match="cannot be sent to another process"):
            pickle.dumps(one)

    class Mine(SyncServer):
        def __init__(self, number):
            super().__init__(f"server {number}")

    assert Mine(5).address == "server 5"
    assert list(inspect.signature(Mine).parameters) == ["number"]
