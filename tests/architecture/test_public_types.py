"""Public names have types and descriptions, and a type checker finds the mistakes in users' programs."""

import asyncio
import inspect
import pickle
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import is_typeddict

import pytest

import semlex
from semlex.errors import ConfigurationError
from semlex.retriever import synchronous

ROOT = Path(semlex.__file__).parent.parent.parent
# Any is the truth of JSON and of rows of any library; it hides nothing of coroutines, arrays, integers, connections.
# ndarray[Any, ...]: numpy before 2.2 has no types of shapes.
HARMLESS = (
    "Coroutine[Any, Any, ", "AsyncGenerator[Any, ", "tuple[Any, ...]", "dtype[Any]", "ndarray[Any, ",
    "numpy.integer[Any]", "Connection[Any]", "ConnectionPool[Any]", "dict[str, Any]", "Mapping[str, Any]",
)  # fmt: skip
# JSON values; what a setting may be; whatever holds rows; classes of packages that are not installed here.
UNTYPED = {
    "FacetValue.value", "SearchResults.to_pandas", "FacetValue.__init__", "Job.arguments", "Job.__init__",
    "load_vectors", "unused_defaults",
}  # fmt: skip


def public_classes():
    for name in semlex.__all__:
        if inspect.isclass(found := getattr(semlex, name)) and not is_typeddict(found):
            yield name, found


def members(kind):
    """What an editor offers after a dot, but what Python's own classes bring along."""
    builtin = {name for base in kind.__mro__ if base.__module__ in {"builtins", "typing", "abc"} for name in vars(base)}
    return [name for name in dir(kind) if not name.startswith("_") and name not in builtin]


def untyped(told):
    """Whether a checker's words say Any where something is known."""
    for harmless in HARMLESS:
        told = told.replace(harmless, "")
    return re.search(r"\bAny\b|Unknown", told) is not None


RIGHT = """
import psycopg

from semlex import F, FilterTree, SearchResults
from semlex import Client, CollectionOptions, Document, PostgreSQLRetriever, SyncClient, SyncRetriever, connect_sync

with SyncRetriever("postgresql://", "static", collection="handbook", language="english") as retriever:
    ids: list[str] = retriever.add_documents([Document("text", {"year": 2026}, "a")], on_duplicate="skip")
    hits = retriever.search("question", 3, {"year": 2026}, mode="hybrid", rerank=False)
    best: float | None = hits[0].vector_score
    tree: FilterTree = (F("year") >= 2026) & ~F("tags").contains("draft") | (F("lang") == "de")
    found = retriever.search("question", filters=tree).warnings + retriever.search("q", filters="year == 1").warnings
    print(found, retriever.count(tree), retriever.list_chunks({"year": {"$gte": 2026}}), retriever.delete(filters=tree))
    report = retriever.index("docs", include=["*.md"], chunk_tokens=300)
    print(report.added, retriever.count(), [chunk.id for chunk in retriever.list_chunks(limit=5)])
    page = retriever.search("question", max_results=200, group_by=None)
    print(retriever.search_page(page.next_cursor or "").next_cursor, retriever.search_many(["a", "b"])[1][0].id)
    print([document.hits[0].id for document in retriever.search("question", group_by="document").documents])
    print(retriever.fields.facets(["year"], "year > 2000")["year"].values[0].count)
    statement: str = retriever.tables.hits_as_sql(hits, include=["excerpt"])
    with psycopg.connect("postgresql://") as connection:
        print(retriever.tables.hits_into(connection, hits, "hits", include=["content", "metadata"]) + 1)
    retriever.index("docs", progress="bar")
    retriever.embeddings.fill(lambda step: print(step.stage, step.done))
with connect_sync("postgresql://") as client:
    book = client.collection("handbook", CollectionOptions(language="german", distance="l2"))
    print(book.search("question").warnings, book.get(["a"])[0].content)


async def asynchronous() -> None:
    async with Client("postgresql://") as client:
        print((await client.collection("handbook").search("question"))[0].rank)
        async with await psycopg.AsyncConnection.connect("postgresql://") as connection:
            await client.collection("handbook").tables.hits_into(connection, SearchResults(), "hits")
    async with PostgreSQLRetriever() as retriever:
        await retriever.add_texts(["a", "b"], ids=["b", 5])
"""
MISTAKES = """
from semlex import Client, CollectionOptions, SyncClient, SyncRetriever, connect_sync
from semlex import SyncRetreiver  # wrong

retriever = SyncRetriever("postgresql://", colection="handbook")  # wrong
retriever = SyncRetriever("postgresql://", dimensions="256")  # wrong
retriever = SyncRetriever("postgresql://", use_reranking="yes")  # wrong
retriever = SyncRetriever("postgresql://", distance="cosin")  # wrong
retriever.search("question", topk=3)  # wrong
retriever.search("question", "3")  # wrong
retriever.search("question", mode="both")  # wrong
retriever.search("question", fusion="rff")  # wrong
retriever.serach("question")  # wrong
retriever.search("question", group_by="chunk")  # wrong
retriever.search_page(retriever.search("question").next_cursor)  # wrong
retriever.search_many(3)  # wrong
retriever.fields.facets(["year"])["year"].value  # wrong
retriever.search("question")[0].scores  # wrong
retriever.search("question").hits  # wrong
retriever.add_documents("one text")  # wrong
retriever.add_documents([], on_duplicate="replace")  # wrong
retriever.add_texts(["a"], ids=[1.5])  # wrong
retriever.index("docs", chunk_tokens="300")  # wrong
retriever.index("docs", includes=["*.md"])  # wrong
retriever.delete(["a"], dryrun=True)  # wrong
retriever.list_chunks(limit="10")  # wrong
retriever.search("question", filters=["year"])  # wrong
retriever.count(F("year").cotnains(1))  # wrong
retriever.count((F("year") == 1) & {"year": 1})  # wrong
retriever.count(F("year").like(5))  # wrong
client = connect_sync("postgresql://", modles=["a"])  # wrong
client = SyncClient(keep_alive="5 minutes")  # wrong
book = client.collection("handbook", CollectionOptions(languge="german"))  # wrong
book = client.collection("handbook", {"language": "german"})  # wrong
book.reindex()  # wrong
count: str = book.count()  # wrong
book.index("docs", progress=True)  # wrong
book.index("docs", progress="bars")  # wrong
book.tables.hits_into("postgresql://", book.search("question"), "hits")  # wrong
book.tables.hits_as_sql(book.search("question"), include=["vector"])  # wrong
book.tables.hits_as_sql("question")  # wrong
Client("postgresql://", max_connections="8")  # wrong
"""


def revealing():
    """A program that asks for the type of every public member, and the member of each of its lines."""
    lines, names = ["import semlex"], [""]
    for name, kind in public_classes():
        lines += [f"reveal_type(semlex.{name}.__init__)", f"def of_{name}(one: semlex.{name}) -> None:", "    pass"]
        names += [f"{name}.__init__", "", ""]
        lines += [f"    reveal_type(one.{member})" for member in members(kind)]
        names += [f"{name}.{member}" for member in members(kind)]
    return "\n".join(lines), names


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The output of a type checker for all programs."""
    folder = tmp_path_factory.mktemp("programs")
    programs = {"members": revealing()[0], "right": RIGHT, "mistakes": MISTAKES}
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    # With the project's own settings, which are strict, what is known of the package is not worked out again.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *(folder / f"{name}.py" for name in programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_every_public_member_has_a_type_and_every_mistake_is_found(told):
    names = revealing()[1]
    types = {int(line): words for line, words in re.findall(r"members\.py:(\d+): note: Revealed type is (.*)", told)}
    assert [name for number, name in enumerate(names, 1) if name and number not in types] == [], told
    leaking = {names[line - 1] for line, words in types.items() if untyped(words)}
    known = {name for name in leaking if name.removeprefix("Sync") in UNTYPED or name.rpartition(".")[2] in UNTYPED}
    assert leaking == known
    assert len(types) > 500
    found = {(file, int(line)) for file, line in re.findall(r"(\w+)\.py:(\d+): error: ", told)}
    expected = {("mistakes", number) for number, line in enumerate(MISTAKES.split("\n"), 1) if "# wrong" in line}
    assert len(expected) > 15
    assert found == expected, told


def test_what_an_editor_offers_is_described_and_typed():
    bare = [
        f"{name}.{member}"
        for name, kind in public_classes()
        for member in members(kind)
        if (found := inspect.getattr_static(kind, member)) is not None
        and (callable(getattr(kind, member)) or isinstance(found, property))
        and not inspect.getdoc(found if isinstance(found, property) else getattr(kind, member))
    ]
    assert bare == []
    assert (Path(semlex.__file__).parent / "py.typed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["rust/python/generate_stub.py", "python/generate_stubs.py"])
def test_the_written_stubs_are_fresh(script):
    for path, text in runpy.run_path(str(ROOT / script))["generated"]().items():
        assert path.read_text(encoding="utf-8") == text, "./x stubs writes it again"


# --- the synchronous classes ------------------------------------------------------------------------------------------

assert all(hasattr(synchronous, name) for name in synchronous.__all__)  # makes the classes that are made on first use
PAIRS = [(kind, made) for kind, made in synchronous._KINDS.items() if made is not None]  # before those of this file


def test_synchronous_classes_have_the_members_of_the_asynchronous_ones():
    for asynchronous, made in PAIRS:
        members = synchronous.public_members(asynchronous)
        assert members.keys() <= set(dir(made))
        for name, member in members.items():
            if inspect.isfunction(member) and not hasattr(synchronous.Opened, name) and name != "drop_collection":
                function = getattr(made, name)
                assert not inspect.iscoroutinefunction(function)
                bound = {"pool", "connection"} if inspect.signature(member).parameters.keys() & {"pool"} else set()
                assert (
                    inspect.signature(function).parameters.keys() == inspect.signature(member).parameters.keys() - bound
                )
                if not bound:
                    assert inspect.getdoc(function) == inspect.getdoc(member)
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
