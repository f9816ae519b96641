"""semlex in a graph of LangGraph: a node that retrieves, and a tool for agents.

Needs the extra ``langchain``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from semlex.integrations.langchain import SemlexRetriever  # first: it says what is missing

from langchain_core.runnables import RunnableLambda  # isort: skip
from langchain_core.tools import create_retriever_tool  # isort: skip

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.prompts import BasePromptTemplate
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

    from semlex.integrations.calls import AnyCollection


def retrieval_node(
    collection: AnyCollection, *, question: str = "question", documents: str = "documents", **options: Any
) -> Runnable[Any, dict[str, list[Document]]]:
    """A node that puts the documents for the question of a state into it, for ``invoke`` and ``ainvoke``.

    They are LangChain's, with places and scores in the metadata (`SearchResults.to_documents`), so that every
    checkpointer can store them.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        question: Name of the question in the state, a mapping or an object.
        documents: Name of the documents in it.
        options: Other fields of `SemlexRetriever`: ``k``, ``filters``, ``mode``, ``search_kwargs``.
    """
    retriever = SemlexRetriever(collection=collection, **({"details": True} | options))

    def asked(state: Any) -> Any:
        return state[question] if isinstance(state, Mapping) else getattr(state, question)

    def retrieve(state: Any) -> dict[str, list[Document]]:
        return {documents: retriever.invoke(asked(state))}

    async def aretrieve(state: Any) -> dict[str, list[Document]]:
        return {documents: await retriever.ainvoke(asked(state))}

    return RunnableLambda(retrieve, aretrieve, name="retrieve")


def retrieval_tool(
    collection: AnyCollection,
    name: str,
    description: str,
    *,
    document_prompt: BasePromptTemplate[str] | None = None,
    **options: Any,
) -> BaseTool:
    """A tool that searches: the model reads the texts, and the documents are the message's artifact.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        name: What the model calls it.
        description: What the model is told of it.
        document_prompt: How a document becomes text; None: its text alone.
        options: As for `retrieval_node`.
    """
    retriever = SemlexRetriever(collection=collection, **({"details": True} | options))
    return create_retriever_tool(
        retriever, name, description, document_prompt=document_prompt, response_format="content_and_artifact"
    )
