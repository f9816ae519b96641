"""Retrievers, nodes and tools in graphs of LangGraph, with a checkpointer that serialises what is in the state."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.prompts import PromptTemplate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

import semlex
from semlex import DocumentRetriever, F, PostgreSQLRetriever, SyncRetriever
from semlex.integrations.langgraph import retrieval_node, retrieval_tool
from semlex.testing import HashEmbedder

TEXTS = {"rotation": "keys are rotated", "banana": "a banana is yellow"}


class State(TypedDict, total=False):
    question: str
    documents: list
    asked: Annotated[list[str], operator.add]


class ModelState(BaseModel):
    query: str
    found: list[Document] = []


@pytest.fixture
def collection(database_url):
    with SyncRetriever(database_url, "none") as opened:
        opened.add_texts(TEXTS.values(), ids=list(TEXTS), metadata=[{"n": 1}, {"n": 2}])
        yield opened


def graph(node, state=State, saver=None):
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


def thread(name):
    return {"configurable": {"thread_id": name}}


def call_of(query):
    return {"messages": [AIMessage("", tool_calls=[{"name": "handbook", "args": {"query": query}, "id": "1"}])]}


async def test_a_users_own_node_searches_with_a_retriever_from_its_closure(database_url):
    async with PostgreSQLRetriever(database_url, HashEmbedder(dimensions=32)) as retriever:

        async def retrieve(state):
            return {"documents": await retriever.search(state["question"], top_k=1)}

        assert isinstance(retriever, DocumentRetriever)
        fruit, ship = semlex.Document("A banana is yellow.", id="banana"), semlex.Document("Ships sail.", id="ship")
        await retriever.add_documents([fruit, ship])
        state = await graph(retrieve).ainvoke({"question": "what is yellow?"})
    assert [document.id for document in state["documents"]] == ["banana"]
    assert isinstance(state["documents"][0], semlex.Document)


async def test_the_filter_of_a_node_may_come_from_state_and_config(database_url):
    with SyncRetriever(database_url, "none") as retriever:
        owners = {"ann": "a key of ann", "bob": "a key of bob"}
        retriever.add_texts(owners.values(), ids=list(owners), metadata=[{"owner": name} for name in owners])

        def own(state, config):
            return {"owner": config["configurable"]["user"]} if state["question"] else None

        owned = graph(retrieval_node(retriever, filters=own))
        for name in owners:
            config = {"configurable": {"user": name}}
            for state in (owned.invoke({"question": "key"}, config), await owned.ainvoke({"question": "key"}, config)):
                assert [document.id for document in state["documents"]] == [name]
        fixed = graph(retrieval_node(retriever, filters=F("owner") == "ann"))
        assert [document.id for document in fixed.invoke({"question": "key"})["documents"]] == ["ann"]


async def test_a_model_reads_what_is_wrong_with_its_search(database_url):
    with SyncRetriever(database_url, "none") as retriever:
        retriever.add_texts(["a key of ann"])
        handbook = retrieval_tool(retriever, "handbook", "Searches the handbook.")
        assert handbook.invoke({"query": "pear", "terms": "ann"}) == "a key of ann"
        assert handbook.args.keys() == {"query", "terms"}
        asking = graph(ToolNode([handbook]), MessagesState)
        for query, said, status in (
            (" ", "query is blank", "error"),
            ("x" * 5_000, "4,096 bytes", "error"),
            ("pear", "Nothing was found", "success"),
            ("which zebras of Ulan Bator play with a key?", "probably not in here", "success"),
            ("key", "a key of ann", "success"),
        ):
            for answer in (asking.invoke(call_of(query)), await asking.ainvoke(call_of(query))):
                message = answer["messages"][-1]
                assert (said in message.content, message.status) == (True, status), message
                assert len(message.artifact or []) == (query == "key")


async def test_a_node_s_documents_come_back_from_a_checkpoint(collection):
    saver = InMemorySaver()
    node = retrieval_node(collection, k=1, filters={"n": {"$lt": 3}}, mode="keyword")
    one = graph(node, State, saver).invoke({"question": "yellow banana"}, thread("sync"))
    other = await graph(node, State, saver).ainvoke({"question": "yellow banana"}, thread("async"))
    assert one == other
    [found] = one["documents"]
    assert (found.id, found.metadata["n"]) == ("banana", 2)
    assert found.metadata["keyword_score"] > 0
    for name in ("sync", "async"):  # a second graph reads what the first one wrote
        stored = graph(node, State, saver).get_state(thread(name)).values
        assert stored == one
        assert type(stored["documents"][0]) is Document


async def test_a_state_of_another_form_and_a_collection_of_a_loop(database_url):
    async with PostgreSQLRetriever(database_url, "none") as collection:
        await collection.add_texts(TEXTS.values(), ids=list(TEXTS))
        node = retrieval_node(collection, question="query", documents="found", details=False)
        state = await graph(node, ModelState, InMemorySaver()).ainvoke({"query": "keys"}, thread("model"))
    assert state["found"] == [Document(page_content=TEXTS["rotation"], id="rotation")]


def test_a_tool_gives_texts_to_the_model_and_documents_to_the_program(collection):
    prompt = PromptTemplate.from_template("<{page_content}>")
    tool = retrieval_tool(collection, "handbook", "Searches the handbook.", k=2, document_prompt=prompt)
    assert tool.name == "handbook"
    assert tool.description.startswith("Searches the handbook. Give the user's question as query, and always terms.")
    app = graph(ToolNode([tool]), MessagesState, InMemorySaver())
    message = app.invoke(call_of("banana"), thread("tool"))["messages"][-1]
    assert isinstance(message, ToolMessage)
    assert message.content == "<a banana is yellow>"
    [document] = message.artifact
    assert (document.id, document.metadata["n"]) == ("banana", 2)
    # What a message holds comes back from a checkpoint as plain values.
    stored = app.get_state(thread("tool")).values["messages"][-1]
    assert stored.content == message.content
    assert [Document.model_validate(one) for one in stored.artifact] == [document]


def test_hits_of_semlex_in_a_state_have_to_be_allowed(collection):
    hits = list(collection.search("banana", 1))
    allowing = JsonPlusSerializer(allowed_msgpack_modules=[("semlex.types.results", "SearchResult")])
    stored = allowing.dumps_typed(hits)
    [found] = allowing.loads_typed(stored)
    assert type(found) is type(hits[0])
    assert (found.id, found.metadata, found.keyword_score) == ("banana", {"n": 2}, hits[0].keyword_score)
    [values] = JsonPlusSerializer(allowed_msgpack_modules=None).loads_typed(stored)
    assert (values["id"], values["metadata"]) == ("banana", {"n": 2})
