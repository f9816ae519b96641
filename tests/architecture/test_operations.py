"""Operations are methods that say their names and rights."""

import inspect
from typing import is_typeddict

import pytest

import semlex.options.answers
import semlex.options.indexing
import semlex.options.search
import semlex.retriever.options
from semlex.options.declare import arguments_of, declared
from semlex.retriever.operations import OPERATIONS, OWNERS
from semlex.retriever.synchronous import public_members

# Public methods that no interface offers, because they are for programs.
PROGRAMS = {
    "add_texts": "texts in lists; interfaces take documents",
    "count_jobs": "part of a server's metrics",
    "close": "an interface closes what it opened",
    "collections": "`count_collections` has them with their counts",
    "diversify": "reorders hits that a program holds",
    "drop": "of a collection; interfaces use `Client.drop`",
    "estimate": "asked for before an index is built",
    "health_check": "what servers are probed by",
    "hits_as_sql": "part of a search of the command line",
    "hits_into": "joins a transaction of a program",
    "initialize": "an interface opens what it needs",
    "open": "an interface opens what it needs",
    "pool_figures": "part of a server's metrics",
    "store_calibration": "part of an evaluation",
    "stop_builds": "a server stops what it began",
    "status": "of a job; `Client.job` is the operation",
    "upsert": "`add_documents` by another name",
    "vectors": "vectors of chunks, for stores of other frameworks",
    "wait": "a program waits; interfaces ask again",
    "read": "for programs that read in parts, such as Ray's workers",
    "stored_vectors": "for programs that embed rows themselves, such as Ray's workers",
    "work": "what a worker does",
}


def test_every_operation_has_a_name_and_a_method_is_one_or_says_why_not():
    marked = [
        member.__operation__.name
        for owner in OWNERS
        for _, member in inspect.getmembers(owner, lambda one: hasattr(one, "__operation__"))
    ]
    assert sorted(marked) == sorted(OPERATIONS)
    others = {
        name
        for owner in OWNERS
        for name, member in public_members(owner).items()
        if inspect.iscoroutinefunction(member) and not hasattr(member, "__operation__")
    }
    assert others == PROGRAMS.keys()
    changing = ("add", "clear", "create", "delete", "drop", "load", "migrate", "move", "re", "remove", "submit", "sync")
    assert [name for name, one in OPERATIONS.items() if name.startswith(changing) and one.rights == "read"] == []


def test_options_count_as_arguments():
    given = arguments_of(OPERATIONS["search"].method)
    assert {"query", "top_k", "mode", "fusion", "min_rerank", "group_by", "tuning"} <= given.keys()
    assert "rerank" not in given  # hidden
    assert {"fields", "filters", "query", "mode", "limit"} <= arguments_of(OPERATIONS["facets"].method).keys()
    assert {"query", "depth", "boost", "deadline"} <= arguments_of(OPERATIONS["candidates"].method).keys()


@pytest.mark.parametrize(
    "module", [semlex.options.answers, semlex.options.indexing, semlex.options.search, semlex.retriever.options]
)
def test_every_key_is_declared(module):
    for kind in filter(is_typeddict, vars(module).values()):
        assert declared(kind).keys() == kind.__annotations__.keys(), kind
