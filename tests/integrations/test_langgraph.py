"""The retriever inside a LangGraph graph, as a closure around an open retriever."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from semlex import Document, DocumentRetriever, PostgreSQLRetriever
from semlex.testing import HashEmbedder


class State(TypedDict, total=False):
    question: str
    documents: list[Any]


def graph(retriever: DocumentRetriever) -> Any:
    async def retrieve(state: State) -> State:
        return {"documents": await retriever.search(state["question"], top_k=1)}

    builder = StateGraph(State)
    builder.add_node("retrieve", retrieve)
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", END)
    return builder.compile()


async def test_a_node_retrieves(database_url: str) -> None:
    async with PostgreSQLRetriever(database_url, HashEmbedder(dimensions=32)) as retriever:
        assert isinstance(retriever, DocumentRetriever)
        await retriever.add_documents(
            [Document("A banana is yellow.", id="banana"), Document("Ships sail.", id="ship")]
        )
        state = await graph(retriever).ainvoke({"question": "what is yellow?"})
    assert [document.id for document in state["documents"]] == ["banana"]
    assert isinstance(state["documents"][0], Document)
