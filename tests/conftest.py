"""What all tests share: a server of their own, databases, and how thorough to be."""

import atexit
import gc
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from semlex.embedding.static import StaticEmbedder
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.browser import REQUIRED
from tests.support.databases import PREPARED, TEMPLATE, Databases, ServerAddress
from tests.support.embedded_servers import configure
from tests.support.folders import TEMPORARY, new_open_folder
from tests.support.partitions import partition_collections
from tests.support.replicas import read_from_replicas
from tests.support.shell import Shell, run_process, two_documents

TORCH, RESILIENCE, FRAMEWORKS, SERVERS = (
    Path(__file__).parent / name for name in ("torch", "resilience", "frameworks", "servers")
)
NEWEST_POSTGRES = 18
# What this machine is set to is nothing to the tests: neither variables nor files of the user.
for _name in [*os.environ]:
    if _name.startswith(("SEMLEX_", "RAG_", "PG", "DATABASE_URL")) and _name != REQUIRED:
        del os.environ[_name]
os.environ["XDG_CONFIG_HOME"] = str(TEMPORARY / "semlex-tests-without-settings")
# A model in the cache of the hub would be the default of new collections.
os.environ["HF_HUB_CACHE"] = str(TEMPORARY / "semlex-tests-without-models")
# Commands that tests run leave no server behind; test_keep_alive has its own.
os.environ["SEMLEX_KEEP_ALIVE"] = "0"
# For the folders that pytest makes, and for programs that tests start.
os.environ["TMPDIR"] = str(TEMPORARY)
# A shell starts what runs in the background with SIGINT ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are imported


def pytest_addoption(parser):
    parser.addoption(
        "--postgres-major", type=int, choices=(16, 18), default=NEWEST_POSTGRES, help="version of the tests' own server"
    )
    parser.addoption("--server", metavar="NAME", help="another server for the tests, see ./x test --servers")
    parser.addoption("--texts", metavar="FOLDER", help="texts of one's own for the test of tokenizers")
    parser.addoption("--tokenizer", metavar="FILE", help="the tokenizer.json to read them with")
    parser.addoption(
        "--bm25-server", type=Path, metavar="FOLDER", help="programs of a Postgres with the BM25 extensions, see ./x"
    )
    parser.addoption("--framework", metavar="NAME", help="the tests of an integration, see ./x test --framework")
    parser.addoption(
        "--partitions", type=int, default=0, metavar="N", help="of every collection that does not say how many it has"
    )
    depth = parser.getgroup("depth").addoption
    depth("--quick", action="store_true", help="nothing that is slow or needs torch, and few examples of a property")
    depth("--random", action="store_true", help="draw new examples, see ./x test --random")
    depth("--full", action="store_true", help="the heavy proofs: a hundred times the cases")


def pytest_configure(config):
    partition_collections(config.getoption("--partitions"))
    if config.getoption("--server") == "replicas":
        read_from_replicas()
    # The same tree gives the same result: examples follow from the tests themselves. No deadline, and no check of how
    # long drawing takes: both measure the machine.
    every = settings(
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
        max_examples=25,
    )
    settings.register_profile("default", every)
    settings.register_profile("quick", every, max_examples=10)
    settings.register_profile("full", every, max_examples=10_000)
    settings.register_profile("random", every, max_examples=100, derandomize=False)
    # Another server sees the same properties with few examples: many were tried on the newest one.
    is_another = config.getoption("--postgres-major") != NEWEST_POSTGRES or config.getoption("--server")
    usual = "quick" if is_another else "default"
    chosen = (name for name in ("full", "quick", "random") if config.getoption(name))
    settings.load_profile(next(chosen, usual))


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"order of the tests: --randomly-seed={config.getoption('randomly_seed')}")


def pytest_ignore_collect(collection_path, config):
    """Importing torch takes seconds, and frameworks have environments of their own: what does not run, stays out."""
    if collection_path.parent == FRAMEWORKS and collection_path.is_dir():
        return True if collection_path.name != config.getoption("framework") else None
    if collection_path == SERVERS:
        return None if config.getoption("server") == "own" else True
    return True if config.getoption("quick") and collection_path in (TORCH, RESILIENCE) else None


def pytest_collection_modifyitems(config, items):
    """Marks what the folder and the fixtures say, and leaves out what this run is not for."""
    left_out = {"slow", "torch"} if config.getoption("quick") else set()
    if not config.getoption("full"):
        left_out.add("full")
    unsuited = {"pgbouncer": {"direct"}, "plain-role": {"superuser"}, "replicas": {"primary"}}
    left_out |= unsuited.get(config.getoption("server"), set())
    if config.getoption("bm25_server") is None:
        left_out.add("extensions")  # a round of its own (`./x test`), not a skipped test
    kept = []
    for item in items:
        if TORCH in item.path.parents:
            item.add_marker("torch")
        if RESILIENCE in item.path.parents:
            item.add_marker("slow")
        if "server_address" in getattr(item, "fixturenames", ()):
            item.add_marker("db")
        if left_out.isdisjoint(mark.name for mark in item.iter_markers()):
            kept.append(item)
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def pytest_collection_finish():
    """Modules and tests live to the end: no search for garbage need look at them, which takes a second."""
    gc.freeze()
    if "torch" in sys.modules:  # whose libraries call what is left at the end a leak
        atexit.register(gc.unfreeze)
    gc.set_threshold(100_000, 20, 50)  # as a rule nothing is in a circle, and looking took a tenth of the time
    gc.enable()


@pytest.fixture(scope="session")
def full(request):
    """Whether the heavy proofs are asked for (``--full``)."""
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def postgres_major(request):
    """Version of the tests' server, 16 or 18."""
    return request.config.getoption("--postgres-major")


@pytest.fixture
def open_folder():
    """A new folder, with a short path, that the server's account can pass through (pytest's own are closed)."""
    with new_open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def make_server_folder(postgres_major):
    """Makes the folder of an embedded server with its database: a copy, for making a database takes a second."""

    def make(folder):
        subprocess.run(["cp", "-a", prepared / "server", folder], check=True)
        return folder

    with new_open_folder() as prepared:
        with EmbeddedServer(prepared / "server", major=postgres_major):
            pass
        # Every start and every dropped table goes through all buffers, and a new file of the log is filled first.
        configure(prepared / "server", shared_buffers="32MB", wal_init_zero="off")
        yield make


@pytest.fixture(scope="session")
def static_model():
    """Keeps the weights that retrievers have by default in memory: opening them takes longer than most tests."""
    with closing(StaticEmbedder()) as model:
        model.dimensions  # noqa: B018 - loads them
        yield model


@pytest.fixture(scope="session")
def server_address(static_model, request):
    """A server that lives as long as the test run."""
    name = request.config.getoption("--server")
    if name:
        from tests.support.servers import running

        with running(name) as address:
            yield address
        return
    with new_open_folder() as folder:
        made = request.getfixturevalue("make_server_folder")(folder / "server")
        # This server is thrown away: what survives a crash is tested with servers of their own. Statistics that a
        # background process takes at some moment would change plans by chance.
        configure(made, fsync="off", full_page_writes="off", autovacuum="off")
        with EmbeddedServer(made) as server:
            yield ServerAddress(server.url, server.url)


@pytest.fixture(scope="session")
def server_url(server_address):
    """Its address leads to a database that tests leave alone."""
    return server_address.given


@pytest.fixture(scope="session")
def databases(server_address):
    """The databases of that server."""
    with closing(Databases(server_address)) as databases:
        yield databases


@pytest.fixture
def database_url(databases):
    """A database for the test alone, with the tables that all collections share, and no collection."""
    with databases.reused() as url:
        yield url


@pytest.fixture
def looking(database_url):
    """A session for tests that look often at what is stored."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def bare_database_url(databases):
    """A new database in which semlex never was, with the extension ``vector``."""
    with databases.copy(TEMPLATE) as url:
        yield url


@pytest.fixture
def empty_database_url(databases):
    """A new database without any extension."""
    with databases.copy("template1") as url:
        yield url


@pytest.fixture(scope="module")
def new_database(databases):
    """Makes databases that tests of a module share; they end with the module."""
    with ExitStack() as made:
        yield lambda: made.enter_context(databases.copy(PREPARED))


@pytest.fixture(scope="module")
def module_url(new_database):
    """A database that the tests of a module share."""
    return new_database()


@pytest.fixture
def shell(database_url, tmp_path):
    """The command line in a folder with two documents, and a database of its own."""
    two_documents(tmp_path)
    return Shell(database_url, tmp_path)


@pytest.fixture
def program(shell):
    """The same, every command as a process of its own."""
    return Shell(shell.environment["DATABASE_URL"], shell.folder, run_process)
