"""What the tests of all integrations share."""

import sys
from pathlib import Path

import pytest

import semlex


@pytest.fixture(scope="session", autouse=True)
def _wheel():
    """What is tested is the installed wheel, as users have it, not the folder of the sources."""
    assert Path(semlex.__file__).is_relative_to(sys.prefix), "run ./x test --framework NAME"


@pytest.fixture(scope="module")
def module_database(databases):
    """A database that the tests of a module share: for the examples of a property."""
    with databases.copy("template1") as url:
        yield url
