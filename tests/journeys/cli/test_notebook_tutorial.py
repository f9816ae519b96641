"""The notebook of the tutorials runs in a kernel, and its outputs are those that are stored in it.

``jupyter execute --inplace`` writes new outputs into it; keep their texts alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.folders import ROOT

NOTEBOOK = ROOT / "docs" / "tutorials" / "pdf-notebook.ipynb"


def shown(cell: Any) -> str:
    """The text that a cell shows, without progress; what it prints may come in pieces."""
    outputs = [one for one in cell.get("outputs", []) if one["output_type"] != "display_data"]
    return "".join(one.get("text") or one["data"]["text/plain"] for one in outputs)


@pytest.mark.slow
def test_the_notebook_shows_what_its_page_shows(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(stored)
    run = nbformat.read(NOTEBOOK, 4)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("DATABASE_URL", database_url)
    NotebookClient(run, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [shown(cell) for cell in run.cells] == [shown(cell) for cell in stored.cells]
