"""Servers that tests of this folder share."""

import pytest

from tests.support.folders import new_open_folder
from tests.support.standbys import replicated


@pytest.fixture(scope="session")
def pair(make_server_folder):
    """A primary and its standby; each test has collections of its own there."""
    with new_open_folder() as folder, replicated(folder, make_server_folder) as pair:
        yield pair
