"""Arguments of wrong kinds: every public call refuses them with an error of ours that names the argument, or works."""

import inspect
import itertools
import math
from copy import copy
from functools import partial
from operator import attrgetter

import numpy as np
import psycopg
import pyarrow as pa
import pytest

import semlex
from semlex import PostgreSQLRetriever, SyncClient, SyncRetriever
from semlex.errors import SemlexError
from semlex.options.declare import declared, unpacked
from semlex.retriever.operations import OWNERS
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.line_models import LineModel

# Only --full does all; usually every eleventh, so that each argument gets other kinds than the next.
STEP = 11
WRONG = {
    **{
        name: partial(copy, value)
        for name, value in {
            "None": None, "True": True, "5": 5, "-1": -1, "huge": 10**30, "1.5": 1.5, "nan": math.nan, "inf": math.inf,
            "empty str": "", "str": "zebra", "surrogate": "zebra\udcff", "nul": "zebra\0", "bytes": b"zebra",
            "list": [], "list of ints": [1, 2], "list of str": ["zebra"], "list of lists": [["zebra"], [1]],
            "dict": {}, "dict of ints": {1: 2}, "dict of str": {"zebra": object()}, "set": {1}, "object": object(),
            "class": Document,
        }.items()
    },
    "document": lambda: Document("zebra"),
    "generator": lambda: (letter for letter in "zebra"),
    "array": lambda: np.array([1, 2]),
    "array of str": lambda: np.array(["zebra", "zebra"]),
}  # fmt: skip
NUMBERS = itertools.count()
# One good call of every method; each argument is then replaced by each wrong value.
GOOD = {
    **dict.fromkeys((
        "tables.followed", "embeddings.fill", "embeddings.list", "indexes.create", "indexes.estimate",
        "indexes.optimize", "indexes.wait", "indexes.rebuild_keyword", "queries.summary", "queries.clear", "count",
        "fields.list", "status", "description", "collections", "documents.sources", "documents.list", "health_check",
    ), lambda _: {}),
    **dict.fromkeys(("add_documents", "upsert"), lambda _: {"documents": [Document("good", id="good")]}),
    **dict.fromkeys(("search", "candidates"), lambda _: {"query": "good"}),
    **dict.fromkeys(("context", "answer"), lambda _: {"question": "good"}),
    **dict.fromkeys(("get", "embeddings.vectors"), lambda _: {"ids": ["good"]}),
    **dict.fromkeys(("documents.get", "documents.outline"), lambda _: {"document": "good"}),
    "tables.import_table": lambda _: (
        {"table": "default_collection_embedding_1", "layout": "pgvector", "source_schema": "semlex"}
        | {"id_field": "chunk_id", "text_field": "chunk_id", "vector_field": "embedding"}
    ),
    "add_texts": lambda _: {"texts": ["good"]}, "index": lambda folder: {"paths": folder},
    "tables.load": lambda _: {"rows": {"text": ["good"], "vector": [[1.0] * 8], "metadata": [{}]}},
    "diversify": lambda _: {"hits": []},
    "tables.stored_vectors": lambda _: {"rows": pa.table({"text": ["good"], "metadata": ["{}"]})},
    "tables.read": lambda _: {"after": "good"},
    "tables.follow": lambda _: {"table": "good", "name": f"good {next(NUMBERS)}", "text": "body"},
    "tables.change": lambda _: {"name": "rows"}, "tables.ddl": lambda _: {"table": "good", "text": "body"},
    "tables.sync": lambda _: {"dry_run": True},
    "documents.enrich": lambda _: {"enrichment": LineModel(), "dry_run": True},
    "embeddings.store_calibration": lambda _: {"curve": None}, "delete": lambda _: {"ids": ["missing"]},
    "documents.rechunk": lambda _: {"dry_run": True}, "checkup": lambda _: {"sample": 1},
    "why": lambda _: {"document": "good", "question": "good"},
    "fields.facets": lambda _: {"fields": ["good"], "query": "good"}, "search_many": lambda _: {"queries": ["good"]},
    "search_page": lambda folder: {"cursor": (folder / "cursor").read_text(encoding="utf-8")},
    "list_chunks": lambda _: {"limit": 5}, "describe": lambda _: {"text": "good"},
    "sync": lambda folder: {"paths": str(folder), "dry_run": True},
    "documents.move_source": lambda folder: {"name": "good", "root": str(folder)},
    "fields.add": lambda _: {"name": "year", "type": "number", "force": True},
    "fields.remove": lambda _: {"name": "year"}, "jobs.submit": lambda _: {"kind": "optimize"},
    "tables.hits_as_sql": lambda _: {"results": []},
}  # fmt: skip
# Other words for an argument in a message; what its elements are called.
OTHER_NAMES = {
    "query_text": "query", "queries": "query", "question": "query", "query_embedding": "vector", "texts": "content",
    "documents": "document", "metadata": "metadata", "ids": "id", "embeddings": "embedding", "paths": "file or folder",
    "rows": "batch|file", "name": "source|field|followed", "root": "folder", "after": "id", "db_url": "database URL",
    "source_url": "database URL", "embedding_model": "model", "enrichment": "model", "reranker_model": "reranker",
    "data_folder": "folder", "source_database": "database URL",
}  # fmt: skip
# Arguments whose content no message may hold.
SAYS_NOTHING = {
    *("content", "texts", "documents", "embeddings", "vector", "query", "query_text", "filters", "db_url"),
    *("queries", "question", "cursor"),
}
# What ends or begins a retriever, and what needs another test's world.
APART = {
    *("initialize", "close", "open", "drop", "drop_collection", "open_reranker", "embeddings.change"),
    *("embeddings.roll_back", "embeddings.drop", "tables.dump", "tables.hits_into", "tables.stop"),
}
STRINGS = {"data_folder": ("str", "nul", "surrogate"), "db_url": ()} | dict.fromkeys(("pool", "connection"), ())
PARTS = [owner for owner in OWNERS if owner.__name__ not in ("Client", "Collection", "Job")]
CLASSES = (
    *("CollectionOptions", "SearchQuery", "ChunkMetadata", "VectorDocument", "BulkIngestConfig", "HnswIndex"),
    *("IvfflatIndex", "Bm25Options", "QueryLogOptions"),
)
CHUNK = {"chunk_id": "a", "source_document": "b", "chunk_text": "c", "token_count": 1}
GOOD_FIELDS = {
    "SearchQuery": {"query_text": "good"},
    "ChunkMetadata": CHUNK,
    "VectorDocument": CHUNK | {"embedding": (1.0, 0.0)},
}


def public_methods():
    """Those of a retriever, and with the name of the part in front those of its parts."""
    found = {}
    for part, owner in ("", PostgreSQLRetriever), *((f"{one.__name__.lower()}.", one) for one in PARTS):
        members = inspect.getmembers(owner, inspect.iscoroutinefunction)
        found |= {part + name: member for name, member in members if not name.startswith("_")}
    return found


def arguments_of_call(call):
    """The names of all arguments, those of its options included."""
    found = []
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found.append(name)
        elif (options := unpacked(call)) is not None:
            found += declared(options)
    return found


def of_methods():
    for name, method in public_methods().items():
        for argument in arguments_of_call(method):
            yield from ((name, argument, kind) for kind in WRONG if argument != "self" and name not in APART)


def of_classes(names=CLASSES):
    for name in names:
        for argument in arguments_of_call(getattr(semlex, name)):
            yield from ((name, argument, kind) for kind in WRONG)


of_documents, of_constructor = partial(of_classes, ["Document"]), partial(of_classes, ["PostgreSQLRetriever", "Client"])


def unexpected(call, argument):
    """What is wrong with how a call ended; None when it worked, or an error of ours named the argument."""
    names = (argument, *filter(None, OTHER_NAMES.get(argument, "").split("|")))
    try:
        call()
    except SemlexError as error:
        text = str(error)
        # The place of a fault in a filter is the name of the field.
        if argument in SAYS_NOTHING and "zebra" in text.replace("filters.zebra", ""):
            return f"quotes: {text[:200]}"
        return None if any(name in text for name in names) else f"unnamed: {type(error).__name__}: {text[:200]}"
    except Exception as error:  # noqa: BLE001 - that is the question
        return f"{type(error).__name__}: {str(error)[:160]}"
    return None


def check(wrong):
    """Assert that no call ended with a wrong error."""
    told = "\n".join(f"{'.'.join(case)}: {text}" for case, text in sorted(wrong.items()) if text)
    assert not told, "\n" + told


def test_every_public_method_is_asked():
    assert set(public_methods()) <= set(GOOD) | APART
    found = [*of_methods(), *of_classes(), *of_documents(), *of_constructor()]
    assert len(found) >= 2_000


@pytest.mark.slow
def test_methods_and_documents(database_url, tmp_path, full):
    (tmp_path / "page.md").write_text("# Good\n\nA good page.\n", encoding="utf-8")
    wrong = {}
    with SyncRetriever(database_url, HashEmbedder(8), use_reranking=False) as retriever:
        for case in [*of_documents()][:: 1 if full else STEP]:
            fields = {"content": "good", "id": "good"} | {case[1]: WRONG[case[2]]()}
            wrong[case] = unexpected(lambda: retriever.add_documents([Document(**fields)]), case[1])  # noqa: B023
        retriever.index(tmp_path, source="good")
        retriever.add_documents([Document("another good one", id="other")])
        cursor = retriever.search("good", 1, max_results=2).next_cursor
        (tmp_path / "cursor").write_text(str(cursor), encoding="utf-8")
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("CREATE TABLE good (id bigint PRIMARY KEY, body text)")
        retriever.tables.follow("good", name="rows", text="body")
        for method, argument, kind in [*of_methods()][:: 1 if full else STEP]:
            arguments = GOOD[method](tmp_path) | {argument: WRONG[kind]()}
            paths = [arguments.pop("paths")] if method in {"index", "sync"} else []
            call = attrgetter(method)(retriever)
            wrong[method, argument, kind] = unexpected(lambda: call(*paths, **arguments), argument)  # noqa: B023
        # What was refused left nothing; the retriever works.
        retriever.add_documents([Document("the last row", id="last")])
        assert "last" in {hit.id for hit in retriever.search("last row", 1000)}
    check(wrong)


def test_value_classes(full):
    wrong = {}
    for name, argument, kind in [*of_classes()][:: 1 if full else STEP]:
        fields = GOOD_FIELDS.get(name, {}) | {argument: WRONG[kind]()}
        wrong[name, argument, kind] = unexpected(lambda: getattr(semlex, name)(**fields), argument)  # noqa: B023
    check(wrong)


@pytest.mark.slow
def test_constructors(database_url, full):
    wrong = {}
    for name, argument, kind in [*of_constructor()][:: 1 if full else STEP]:
        # A collection of its own for each, so that what it is made with counts.
        arguments = {"db_url": database_url, "embedding_model": "none", "use_reranking": False}
        if name == "PostgreSQLRetriever":
            arguments["collection"] = f"c{len(wrong)}"
        value = WRONG[kind]()
        if argument in ("pool", "connection", "data_folder"):
            del arguments["db_url"]
        if argument in ("db_url", "data_folder", "pool", "connection") and (value is None or kind in STRINGS[argument]):
            continue  # it says "the embedded server", or makes a folder

        def opened(name=name, given=arguments | {argument: value}):
            if given.keys() & {"pool", "connection"}:
                getattr(semlex, name)(**given)
            elif name == "PostgreSQLRetriever":
                with SyncRetriever(**given) as retriever:
                    retriever.count()
            else:
                with SyncClient(**given) as client:
                    client.collection(f"c{len(wrong)}").count()

        wrong[name, argument, kind] = unexpected(opened, argument)
    check(wrong)
