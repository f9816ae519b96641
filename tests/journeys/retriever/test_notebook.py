"""What a notebook shows: an output that changes during long work, hits as a table."""

import json
import subprocess
import sys

import pytest

from tests.support.folders import ROOT
from tests.unit.test_display import Elements, Progresses

CELLS = (
    "import semlex, semlex.testing\nfrom semlex import Document, SyncRetriever, connect",
    'url, model, documents = {url!r}, semlex.testing.HashEmbedder(16), [Document("a key")]',
    "retriever = SyncRetriever(url, model, use_reranking=False)\nretriever.initialize()",
    'report = retriever.index("docs", progress="bar")',
    'retriever.search("keys", mode="keyword")',
    'async with connect(url, model) as one:\n    await one.collection("b").add_documents(documents, progress="bar")',
    'try:\n    retriever.index("docs", progress="baar")\nexcept semlex.SemlexError as error:\n    print(error)',
    "retriever.close()",
)


@pytest.mark.slow
def test_in_a_shell_of_notebooks(database_url, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "keys.md").write_text("# Keys\n\nRotate a <key> often.\n", encoding="utf-8")
    cells = [cell.format(url=database_url) if "{url" in cell else cell for cell in CELLS]
    command = [sys.executable, "-W", "error", ROOT / "tests" / "support" / "clients" / "notebook_cells.py"]
    given = {"input": json.dumps(cells), "cwd": tmp_path}
    done = subprocess.run(command, **given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *_, indexed, found, added, refused, _ = json.loads(done.stdout)
    for told in (indexed, added):
        first, *updates = told["outputs"]
        assert (first["update"], {one["update"] for one in updates}) == (False, {True})
        Progresses(updates[-1]["data"]["text/html"])
        assert "done after" in updates[-1]["data"]["text/html"]
        assert told["stderr"] == ""
    assert "1 of 1 files" in indexed["outputs"][-1]["data"]["text/html"]
    assert "read: 1 of 1 files" in indexed["outputs"][-1]["data"]["text/plain"]
    Elements(found["result"]["text/html"])
    assert "Rotate a &lt;<mark>key</mark>&gt; often." in found["result"]["text/html"]
    plain = "SearchResults, keyword, probably in here: 1 hit\n  1. keys.md:3  fused "
    assert found["result"]["text/plain"].startswith(plain)
    assert "progress must be function or 'bar'" in refused["stdout"]
