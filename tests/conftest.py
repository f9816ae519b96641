"""What all tests share: a server of their own, databases, and how thorough to be."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.embedding.static import StaticEmbedder
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.browser import REQUIRED
from tests.support.folders import TEMPORARY
from tests.support.shell import PAGE, Shell, run_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import Connection

TORCH = Path(__file__).parent / "torch"
RESILIENCE = Path(__file__).parent / "resilience"
FRAMEWORKS = Path(__file__).parent / "frameworks"
TEMPLATE = "semlex_test_template"
NEWEST_POSTGRES = 18
# What this machine is set to is nothing to the tests: neither variables nor the user's own file of settings.
for _name in [*os.environ]:
    if _name.startswith(("SEMLEX_", "RAG_", "PG", "DATABASE_URL")) and _name != REQUIRED:
        del os.environ[_name]
os.environ["XDG_CONFIG_HOME"] = str(TEMPORARY / "semlex-tests-without-settings")
# Commands that tests run leave no server behind; test_keep_alive has its own.
os.environ["SEMLEX_KEEP_ALIVE"] = "0"
# For the folders that pytest makes, and for programs that tests start.
os.environ["TMPDIR"] = str(TEMPORARY)
# A shell starts what runs in the background with SIGINT ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are imported


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres-major", type=int, choices=(16, 18), default=NEWEST_POSTGRES, help="version of the tests' own server"
    )
    parser.addoption("--texts", metavar="FOLDER", help="texts of one's own for the test of tokenizers")
    parser.addoption("--tokenizer", metavar="FILE", help="the tokenizer.json to read them with")
    parser.addoption(
        "--bm25-server", type=Path, metavar="FOLDER", help="programs of a Postgres with the BM25 extensions, see ./x"
    )
    parser.addoption("--framework", metavar="NAME", help="the tests of an integration, see ./x test --framework")
    depth = parser.getgroup("depth").addoption
    depth("--quick", action="store_true", help="nothing that is slow or needs torch, and few examples of a property")
    depth("--full", action="store_true", help="the heavy proofs: a hundred times the cases")


def pytest_configure(config: pytest.Config) -> None:
    # No deadline: the machine is shared, and a slow example is no defect. Nor is it one how many values a strategy
    # throws away, which chance decides; and fixtures that many examples share are meant.
    free = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    settings.register_profile("default", **free, print_blob=True, max_examples=25)
    settings.register_profile("quick", settings.get_profile("default"), max_examples=10)
    settings.register_profile("full", settings.get_profile("default"), max_examples=10_000)
    # Another server sees the same properties with few examples: many were tried on the newest one.
    usual = "quick" if config.getoption("--postgres-major") != NEWEST_POSTGRES else "default"
    settings.load_profile(next((name for name in ("full", "quick") if config.getoption(name)), usual))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing torch takes seconds, and frameworks have environments of their own: what does not run, stays out."""
    if collection_path.parent == FRAMEWORKS and collection_path.is_dir():
        return True if collection_path.name != config.getoption("framework") else None
    return True if config.getoption("quick") and collection_path in (TORCH, RESILIENCE) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what the folder and the fixtures say, and leaves out what this run is not for."""
    left_out = {"slow", "torch"} if config.getoption("quick") else set()
    if not config.getoption("full"):
        left_out.add("full")
    if config.getoption("bm25_server") is None:
        left_out.add("extensions")  # a round of its own (`./x test`), not a skipped test
    kept = []
    for item in items:
        if TORCH in item.path.parents:
            item.add_marker("torch")
        if RESILIENCE in item.path.parents:
            item.add_marker("slow")
        if "server_url" in getattr(item, "fixturenames", ()):
            item.add_marker("db")
        if left_out.isdisjoint(mark.name for mark in item.iter_markers()):
            kept.append(item)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: no search for garbage need look at them (with torch it takes 0.3 s)."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the heavy proofs are asked for (``--full``)."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def postgres_major(request: pytest.FixtureRequest) -> int:
    """Version of the tests' server, 16 or 18."""
    return int(request.config.getoption("--postgres-major"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A new folder, with a short path, that the server's account can pass through (pytest's own are closed)."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-test-", dir=TEMPORARY))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def make_server_folder(postgres_major: int) -> Iterator[Callable[[Path], Path]]:
    """Makes the folder of an embedded server with its database: a copy, for making a database takes a second."""
    prepared = Path(tempfile.mkdtemp(prefix="semlex-tests-", dir=TEMPORARY))
    prepared.chmod(0o711)

    def make(folder: Path) -> Path:
        subprocess.run(["cp", "-a", prepared / "server", folder], check=True)
        return folder

    try:
        with EmbeddedServer(prepared / "server", major=postgres_major):
            pass
        yield make
    finally:
        shutil.rmtree(prepared, ignore_errors=True)


@pytest.fixture(scope="session")
def static_model() -> Iterator[StaticEmbedder]:
    """Keeps the weights that retrievers have by default in memory: opening them takes longer than most tests."""
    with closing(StaticEmbedder()) as model:
        model.dimensions  # noqa: B018 - loads them
        yield model


@pytest.fixture(scope="session")
def server_url(static_model: StaticEmbedder, make_server_folder: Callable[[Path], Path]) -> Iterator[str]:
    """A server that lives as long as the test run; its address leads to a database that tests leave alone."""
    del static_model  # open
    folder = Path(tempfile.mkdtemp(prefix="semlex-tests-", dir=TEMPORARY))
    folder.chmod(0o711)
    try:
        with EmbeddedServer(make_server_folder(folder / "server")) as server:
            with psycopg.connect(server.url, autocommit=True) as connection:
                # Most of a test's time would go into making and dropping databases durably; this server is thrown
                # away, and what survives a crash is tested with servers of their own.
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("SELECT pg_reload_conf()")
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
            with psycopg.connect(make_conninfo(server.url, dbname=TEMPLATE), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def administration(server_url: str) -> Iterator[Connection]:
    """A connection that makes and drops databases."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield connection


@contextmanager
def _fresh_database(administration: Connection, server_url: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    administration.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
            sql.Identifier(name), sql.Identifier(template)
        )
    )
    try:
        yield make_conninfo(server_url, dbname=name)
    finally:
        administration.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def database_url(administration: Connection, server_url: str) -> Iterator[str]:
    """A database of the test's own, with the extension ``vector``."""
    with _fresh_database(administration, server_url, TEMPLATE) as url:
        yield url


@pytest.fixture(scope="module")
def new_database(administration: Connection, server_url: str) -> Iterator[Callable[[], str]]:
    """Makes databases that tests of a module share; they end with the module."""
    with ExitStack() as made:
        yield lambda: made.enter_context(_fresh_database(administration, server_url, TEMPLATE))


@pytest.fixture
def empty_database_url(administration: Connection, server_url: str) -> Iterator[str]:
    """A database of the test's own, without any extension."""
    with _fresh_database(administration, server_url, "template1") as url:
        yield url


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Shell:
    """The command line in a folder with two documents, and a database of its own."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text(PAGE, encoding="utf-8")
    (docs / "fruit.txt").write_text("A banana is a yellow fruit.\n", encoding="utf-8")
    return Shell(database_url, tmp_path)


@pytest.fixture
def program(shell: Shell) -> Shell:
    """The same, every command as a process of its own."""
    return Shell(shell.environment["DATABASE_URL"], shell.folder, run_process)
