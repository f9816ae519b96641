"""Folders and models for jobs."""

from __future__ import annotations

import pytest

from tests.support.job_clients import Blocking


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text(f"# Page {number}\n\nWords of page {number}.\n")
    return folder


@pytest.fixture
def blocking():
    model = Blocking()
    yield model
    model.may_go_on.set()
