"""The recipes of docs/how-to/move-in.md as they stand there: a store is made, the recipe run, its file imported."""

import json
import re
import shlex

import numpy as np
import pytest

from semlex import SyncRetriever
from tests.frameworks.moving_in.interpreters import PROGRAMS, bytes_of, output_of
from tests.support.folders import documentation
from tests.support.foreign_tables import stored_rows

PAGE = documentation("move-in.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^##+ (.+?)\n(?:(?!^##)[\s\S])*?```py\n([\s\S]*?)```", PAGE, re.MULTILINE))
[COMMAND] = re.findall(r"^\$ semlex (documents import rows.*)$", PAGE, re.MULTILINE)
STORES = ["FAISS", "FAISS of LangChain", "Chroma", "LanceDB", "Qdrant"]
ROWS, DIMENSIONS = 1_200, 16
# FAISS alone has texts, and no metadata; in this table of LanceDB's a field is no object.
KEPT = {"FAISS": (), "LanceDB": ("kind",)}


def rows():
    vectors = np.random.default_rng(5).normal(size=(ROWS, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # so that every measure finds the same neighbours
    metadata = [{}, {"kind": "fruit", "page": 3}, {"kind": "Äpfel 🍏", "ratio": 0.1, "draft": True}]
    return [
        (str(10 * number + 1), f"Row {number}\n\tis about 'apples' 🍏", metadata[number % 3], vectors[number].tolist())
        for number in range(ROWS)
    ]


@pytest.mark.parametrize("store", STORES)
def test_a_recipe_takes_everything_along(shell, store):
    assert list(RECIPES) == STORES
    given = rows()
    (shell.folder / "rows.json").write_text(json.dumps(given), encoding="utf-8")
    nearest = json.loads(output_of("stores", PROGRAMS / "make_store.py", store, "rows.json", folder=shell.folder))
    output_of("stores", "-c", RECIPES[store], folder=shell.folder)
    for _ in range(2):  # the second time updates
        shell(*shlex.split(COMMAND))
    url = shell.environment["DATABASE_URL"]
    kept = KEPT.get(store)
    assert stored_rows(url, "articles") == {
        name: (text, {key: value for key, value in metadata.items() if kept is None or key in kept}, bytes_of(vector))
        for name, text, metadata, vector in given
    }
    with SyncRetriever(url, "none", None, use_reranking=False, collection="articles") as articles:
        hits = articles.search(vector=np.array(given[0][3], np.float32), mode="vector", top_k=5)
    assert [hit.id for hit in hits] == nearest
