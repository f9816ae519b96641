"""The retriever inside a LangGraph graph, as a closure around an open retriever."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from semlex import Document, DocumentRetriever, F, PostgreSQLRetriever, SyncRetriever
from semlex.integrations.langgraph import retrieval_node, retrieval_tool
from semlex.testing import HashEmbedder


class State(TypedDict, total=False):
    question: str
    documents: list[Any]


def graph(retriever):
    async def retrieve(state):
        return {"documents": await retriever.search(state["question"], top_k=1)}

    return compiled(retrieve, State)


async def test_a_node_retrieves(database_url):
    async with PostgreSQLRetriever(database_url, HashEmbedder(dimensions=32)) as retriever:
        assert isinstance(retriever, DocumentRetriever)
        await retriever.add_documents(
            [Document("A banana is yellow.", id="banana"), Document("Ships sail.", id="ship")]
        )
        state = await graph(retriever).ainvoke({"question": "what is yellow?"})
    assert [document.id for document in state["documents"]] == ["banana"]
    assert isinstance(state["documents"][0], Document)


def compiled(node, state):
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


async def test_the_filter_of_a_node_may_come_from_state_and_config(database_url):
    with SyncRetriever(database_url, "none") as retriever:
        owners = {"ann": "a key of ann", "bob": "a key of bob"}
        retriever.add_texts(owners.values(), ids=list(owners), metadata=[{"owner": name} for name in owners])
        node = retrieval_node(
            retriever,
            filters=lambda state, config: {"owner": config["configurable"]["user"]} if state["question"] else None,
        )
        graph = compiled(node, State)
        for name in owners:
            config = {"configurable": {"user": name}}
            for state in (graph.invoke({"question": "key"}, config), await graph.ainvoke({"question": "key"}, config)):
                assert [document.id for document in state["documents"]] == [name]
        fixed = compiled(retrieval_node(retriever, filters=F("owner") == "ann"), State)
        assert [document.id for document in fixed.invoke({"question": "key"})["documents"]] == ["ann"]


@pytest.mark.parametrize(
    ("query", "said", "status"),
    [
        (" ", "query is blank", "error"),
        ("x" * 5_000, "4,096 bytes", "error"),
        ("pear", "Nothing was found", "success"),
        ("which zebras of Ulan Bator play with a key?", "probably not in here", "success"),
        ("key", "a key of ann", "success"),
    ],
)
async def test_a_model_reads_what_is_wrong_with_its_search(database_url, query, said, status):
    with SyncRetriever(database_url, "none") as retriever:
        retriever.add_texts(["a key of ann"])
        handbook = retrieval_tool(retriever, "handbook", "Searches the handbook.")
        assert handbook.invoke({"query": "pear", "terms": "ann"}) == "a key of ann"
        graph = compiled(ToolNode([handbook]), MessagesState)
        assert handbook.args.keys() == {"query", "terms"}
        assert handbook.description.startswith("Searches the handbook. Give the user's question as query, and always")
        call = {"name": "handbook", "args": {"query": query}, "id": "1", "type": "tool_call"}
        asked = {"messages": [AIMessage("", tool_calls=[call])]}
        for answer in (graph.invoke(asked), await graph.ainvoke(asked)):
            message = answer["messages"][-1]
            assert (said in message.content, message.status) == (True, status), message
            assert len(message.artifact or []) == (query == "key")
