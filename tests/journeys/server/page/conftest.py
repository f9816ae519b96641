"""A browser, and a server whose page it shows."""

from contextlib import contextmanager

import pytest

from semlex import Document
from tests.support.browser import browser_of, required_executable
from tests.support.folders import DATA
from tests.support.http_server import COLLECTION, in_a_thread, sync_client_of
from tests.support.shown import Shown

TWINS = [Document("Keys of the twin vaults are rotated.", {"year": 2020 + n}, id=f"twin-{n}") for n in range(6)]


@pytest.fixture(scope="session")
def browser():
    with browser_of(required_executable()) as made:
        yield made


@pytest.fixture(scope="module")
def judged_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def handbook_url(new_database):
    """A database whose collection holds some pages of a manual, and six documents with one text."""
    url = new_database()
    with sync_client_of(url) as client:
        client.collection(COLLECTION).index(DATA / "pages")
        client.collection(COLLECTION).add_documents(TWINS)
    return url


@contextmanager
def shown_of(browser, url, **options):
    """The page of a new server."""
    with in_a_thread(url, **options) as (host, port):
        yield Shown(browser, f"http://{host}:{port}", COLLECTION)


@pytest.fixture(scope="module")
def shown(handbook_url, browser, judged_folder):
    """The page of a server that stores judgements."""
    with shown_of(browser, handbook_url, judgements=judged_folder, rights="write") as shown:
        yield shown
