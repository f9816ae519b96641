"""What the tests of all integrations share."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import semlex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection


@pytest.fixture(scope="session", autouse=True)
def _wheel() -> None:
    """What is tested is the installed wheel, as users have it, not the folder of the sources."""
    assert Path(semlex.__file__).is_relative_to(sys.prefix), "run ./x test --framework NAME"


@pytest.fixture(scope="module")
def module_database(administration: Connection, server_url: str) -> Iterator[str]:
    """A database that the tests of a module share: for the examples of a property."""
    name = f"test_{uuid.uuid4().hex}"
    administration.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield make_conninfo(server_url, dbname=name)
    finally:
        administration.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
