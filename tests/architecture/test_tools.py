"""Operations are methods that say their names and rights; tools of assistants are operations."""

import inspect
import json
import re
from typing import is_typeddict

import semlex.options.answers
import semlex.options.indexing
import semlex.options.search
import semlex.retriever.options
from semlex import Client, StaticEmbedder
from semlex.filters.forms import filter_tree
from semlex.options.declare import arguments_of, declared, unpacked
from semlex.retriever.operations import OPERATIONS, OWNERS
from semlex.retriever.synchronous import public_members
from semlex.server.app import create_app
from semlex.server.mcp.access import OFFERS, Access
from semlex.server.mcp.server import mcp_server
from semlex.server.mcp.tools import MAX_TOP_K
from semlex.types.queries import DEFAULT_TOP_K
from tests.support.http_server import FixedSettings, settings_for

ids = [offer.name for offer in OFFERS]
# Tool -> argument of the tool -> that of its operation, if they differ; and arguments that only the tool has.
RENAMED = {"get_chunk": {"chunk_id": "ids"}, "index_folder": {"folder": "paths"}}
OWN = {
    "get_chunk": {"start"}, "get_document": {"start"}, "job_status": {"job_id"}, "index_folder": {"background"},
}  # fmt: skip
# Name, description and arguments of all of them: every conversation pays for these.
MAX_READING_TOKENS = 2_000


async def listed(*, writes):
    server = mcp_server(Client("postgresql://nobody@127.0.0.1:1/none", "none"), Access.of(writes=writes))
    return {tool.name: tool for tool in await server.list_tools()}


def test_operations_have_unique_names_declared_arguments_and_fitting_rights():
    assert len(set(ids)) == len(ids)
    assert len({offer.description for offer in OFFERS}) == len(ids)
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
    given = arguments_of(OPERATIONS["search"].method)
    assert {"query", "top_k", "mode", "fusion", "min_rerank", "group_by", "tuning"} <= given.keys()
    assert "rerank" not in given  # hidden
    assert {"fields", "filters", "query", "mode", "limit"} <= arguments_of(OPERATIONS["facets"].method).keys()
    assert {"query", "depth", "boost", "deadline"} <= arguments_of(OPERATIONS["candidates"].method).keys()
    for module in [semlex.options.answers, semlex.options.indexing, semlex.options.search, semlex.retriever.options]:
        for kind in filter(is_typeddict, vars(module).values()):
            assert declared(kind).keys() == kind.__annotations__.keys(), kind


async def test_tools_have_the_arguments_of_their_operations_and_say_what_they_are_for():
    for offer in OFFERS:
        tool = (await listed(writes=True))[offer.name]
        given = tool.input_schema["properties"]
        method = OPERATIONS[offer.operations[0]].method
        signature = inspect.signature(method).parameters
        arguments = signature.keys() | ({} if (options := unpacked(method)) is None else declared(options)).keys()
        names = RENAMED.get(offer.name, {})
        own = {"collection"} | OWN.get(offer.name, set())
        assert {names.get(name, name) for name in given} - own <= arguments
        for name, schema in given.items():
            argument = signature.get(names.get(name, name))
            if argument is None or argument.kind is argument.VAR_POSITIONAL:
                continue
            is_needed = name in tool.input_schema.get("required", ())
            # A question is what tools are about, also where programs may leave it out.
            assert is_needed == (argument.default is argument.empty) or name in ("query", "question")
            if not is_needed:
                default = schema.get("default")
                # A model is told the library's default as a number.
                known = DEFAULT_TOP_K if name == "top_k" and argument.default is None else argument.default
                assert (tuple(default) if isinstance(default, list) else default) == known, name
        assert tool.input_schema["additionalProperties"] is False
        if "top_k" in given:
            assert given["top_k"]["maximum"] == MAX_TOP_K
    for offer in OFFERS:
        tool = (await listed(writes=True))[offer.name]
        rights = {OPERATIONS[name].rights for name in offer.operations}
        assert tool.annotations.read_only_hint == (rights == {"read"})
        assert tool.annotations.destructive_hint is offer.overwrites
        assert tool.annotations.open_world_hint is False
        assert 40 < len(tool.description) < 400
        assert tool.output_schema["properties"]
        for name, schema in tool.input_schema["properties"].items():
            assert len(schema["description"]) > 5, name


async def test_tools_that_read_cost_few_tokens_and_examples_of_filters_are_valid():
    tools = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in (await listed(writes=False)).values()
    ]
    count = StaticEmbedder().count_tokens([json.dumps(tool) for tool in tools]).sum()
    assert count <= MAX_READING_TOKENS, count
    reading = {
        name for name in ids if {OPERATIONS[one].rights for one in OFFERS[ids.index(name)].operations} == {"read"}
    }
    assert (await listed(writes=False)).keys() == reading
    assert (await listed(writes=True)).keys() == set(ids)
    tools = [tool.input_schema for tool in (await listed(writes=True)).values()]
    openapi = create_app(source=FixedSettings(settings_for())).openapi()
    for schema, wanted in ((tools, 1), (openapi, 4)):
        told = {
            one for one in descriptions(schema) if re.search(r"(?i)\b(a filter|must pass)\b.* (such as|example)", one)
        }
        examples = {re.search(r"(?:such as|example:) (\{.*\}|\".*\"|.*?)[;.]", one)[1].strip('"') for one in told}
        assert len(examples) == wanted, told
        for example in examples:
            filter_tree(json.loads(example) if example.startswith("{") else example)


def descriptions(schema):
    """Every description in a schema."""
    values = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("description"), str):
        yield schema["description"]
    for value in values:
        yield from descriptions(value)


# --- operations -------------------------------------------------------------------------------------------------------

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
