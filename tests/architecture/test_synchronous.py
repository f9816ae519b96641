"""The classes without ``await`` are those with it."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

import semlex

ROOT = Path(semlex.__file__).parent.parent
TWINS = [
    (semlex.Collection, semlex.SyncCollection),
    (semlex.Client, semlex.SyncClient),
    (semlex.PostgreSQLRetriever, semlex.SyncRetriever),
    (semlex.KnowledgeBase, semlex.SyncKnowledgeBase),
]
# They belong to an event loop, or happen by themselves.
ASYNCHRONOUS_ONLY = {"using", "open"}
LOOP_BOUND = {"pool", "connection"}
# Theirs is asked for a statement, which needs no event loop of its own.
ANY_CONNECTION = {"hits_into"}


@pytest.mark.slow
def test_the_generated_module_is_fresh() -> None:
    generated = runpy.run_path(str(ROOT / "generate_synchronous.py"))["generated"]()
    path = ROOT / "semlex" / "retriever" / "synchronous.py"
    assert path.read_text(encoding="utf-8") == generated, "./x synchronous writes it anew"


@pytest.mark.parametrize(
    ("asynchronous", "synchronous"), TWINS, ids=["collection", "client", "retriever", "knowledge base"]
)
def test_each_has_the_methods_of_the_other(asynchronous: type, synchronous: type) -> None:
    public = {name for name in dir(asynchronous) if not name.startswith("_")} - ASYNCHRONOUS_ONLY
    assert (
        public - {name for name in dir(synchronous) if not name.startswith("_")} - {"names", "embedder", "reranker"}
        == set()
    )
    for name in public & set(dir(synchronous)):
        one, other = getattr(asynchronous, name), getattr(synchronous, name)
        if not inspect.isfunction(one) or name in ("initialize", "close", "collection"):
            continue
        given = inspect.signature(other).parameters.keys()
        wanted = inspect.signature(one).parameters.keys()
        assert given == (wanted if name in ANY_CONNECTION else wanted - LOOP_BOUND), name
        assert inspect.getdoc(one) == inspect.getdoc(other), name
    given = inspect.signature(asynchronous).parameters.keys() - LOOP_BOUND
    if synchronous is not semlex.SyncCollection:
        assert given == inspect.signature(synchronous).parameters.keys()
