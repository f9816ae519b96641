"""Folders and models for jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.job_clients import Blocking


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text(f"# Page {number}\n\nWords of page {number}.\n")
    return folder


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    model = Blocking()
    yield model
    model.may_go_on.set()
