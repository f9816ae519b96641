"""semlex in a graph of LangGraph: a node that retrieves, and a tool for agents.

Needs the extra ``langchain``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semlex.integrations.langchain import SemlexRetriever  # first: it says what is missing

# LangGraph reads the annotations of a tool's functions.
from langchain_core.callbacks import Callbacks  # noqa: TC002 # isort: skip
from langchain_core.documents import Document  # noqa: TC002 # isort: skip
from langchain_core.runnables import RunnableConfig, RunnableLambda  # isort: skip
from langchain_core.tools import ToolException, create_retriever_tool  # isort: skip

from semlex.errors import SearchTimeoutError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.prompts import BasePromptTemplate
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

    from semlex.integrations.calls import AnyCollection


NOTHING_FOUND = "Nothing was found. Ask in other words."


def retrieval_node(
    collection: AnyCollection,
    *,
    question: str = "question",
    documents: str = "documents",
    filters: Any | Callable[[Any, RunnableConfig], Any] = None,
    **options: Any,
) -> Runnable[Any, dict[str, list[Document]]]:
    """A node that puts the documents for the question of a state into it, for ``invoke`` and ``ainvoke``.

    Places and scores are in the metadata (`SearchResults.to_documents`), so that every checkpointer can store them.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        question: Name of the question in the state, a mapping or an object.
        documents: Name of the documents in it.
        filters: A filter for every search; or a function of the state and the config that returns one for this search,
            such as that of the current user. If it returns None, every document is searched.
        options: Other fields of `SemlexRetriever`: ``k``, ``mode``, ``search_kwargs``.
    """
    has_filter_of_state = callable(filters)
    fixed = None if has_filter_of_state else filters
    retriever = SemlexRetriever(collection=collection, **({"details": True} | options), filters=fixed)

    def asked(state: Any) -> Any:
        return state[question] if isinstance(state, Mapping) else getattr(state, question)

    def chosen(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return {"filters": filters(state, config)} if has_filter_of_state else {}

    def retrieve(state: Any, config: RunnableConfig) -> dict[str, list[Document]]:
        return {documents: retriever.invoke(asked(state), config, **chosen(state, config))}

    async def aretrieve(state: Any, config: RunnableConfig) -> dict[str, list[Document]]:
        return {documents: await retriever.ainvoke(asked(state), config, **chosen(state, config))}

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

    If the model's query is refused (blank, too long) or finds nothing, the model reads that, and the graph goes on.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        name: Name of the tool for the model.
        description: Its description for the model.
        document_prompt: How a document becomes text. Default: its text alone.
        options: Fields of `SemlexRetriever`: ``k``, ``filters``, ``mode``, ``search_kwargs``.
    """
    retriever = SemlexRetriever(collection=collection, **({"details": True} | options))
    tool = create_retriever_tool(
        retriever, name, description, document_prompt=document_prompt, response_format="content_and_artifact"
    )
    search, asearch = tool.func, tool.coroutine
    assert search is not None  # noqa: S101 - it has both
    assert asearch is not None  # noqa: S101

    def run(query: str, callbacks: Callbacks = None) -> tuple[str, list[Document]]:
        with _refused_to_the_model():
            text, found = search(query, callbacks)
        return text if found else NOTHING_FOUND, found

    async def arun(query: str, callbacks: Callbacks = None) -> tuple[str, list[Document]]:
        with _refused_to_the_model():
            text, found = await asearch(query, callbacks)
        return text if found else NOTHING_FOUND, found

    tool.func, tool.coroutine, tool.handle_tool_error = run, arun, True
    return tool


@contextmanager
def _refused_to_the_model() -> Iterator[None]:
    """Raise what the model can change as an error that it reads."""
    try:
        yield
    except (SearchTimeoutError, ValidationError) as error:
        raise ToolException(str(error)) from error
