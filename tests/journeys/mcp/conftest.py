"""What tests of assistants share: a collection that was read from files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from semlex import Client
from tests.support.shell import PAGE


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with two documents."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "keys.md").write_text(PAGE, encoding="utf-8")
    (folder / "fruit.txt").write_text("A banana is a yellow fruit.\n", encoding="utf-8")
    return folder


@pytest.fixture
async def client(database_url: str, docs: Path) -> AsyncIterator[Client]:
    """A client with the collection ``handbook`` of that folder, and an empty ``other``."""
    async with Client(database_url, "none") as opened:
        await opened.collection("handbook").index(docs)
        await opened.collection("other").open()
        yield opened
