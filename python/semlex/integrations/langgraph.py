"""semlex in a graph of LangGraph: a node that retrieves, and a tool for agents.

Needs the extra ``langchain``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from semlex.integrations.langchain import SemlexRetriever  # first: it says what is missing

# LangGraph reads the annotations of a tool's functions.
from langchain_core.callbacks import Callbacks  # noqa: TC002 # isort: skip
from langchain_core.documents import Document  # noqa: TC002 # isort: skip
from langchain_core.runnables import RunnableConfig, RunnableLambda  # isort: skip
from langchain_core.prompts import PromptTemplate, aformat_document, format_document  # isort: skip
from langchain_core.tools import StructuredTool, ToolException  # isort: skip
from pydantic import BaseModel, Field  # isort: skip

from semlex.errors import SearchTimeoutError, ValidationError
from semlex.types.queries import TERMS_TO_WRITE

if TYPE_CHECKING:
    from langchain_core.prompts import BasePromptTemplate
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

    from semlex.integrations.calls import AnyCollection


NOTHING_FOUND = "Nothing was found: the answer is probably not in here. Ask with other terms."
HOW_TO_ASK = (
    "Give the user's question as query, and always terms. If the texts do not answer, or the result says "
    '"probably not in here", try once more with other terms.'
)


class ToolInput(BaseModel):
    """Arguments that a model gives to the tool."""

    query: str = Field(description="The user's question.")
    terms: str | None = Field(None, description=TERMS_TO_WRITE)


def retrieval_node(
    collection: AnyCollection,
    *,
    question: str = "question",
    documents: str = "documents",
    filters: Any | Callable[[Any, RunnableConfig], Any] = None,
    **options: Any,
) -> Runnable[Any, dict[str, list[Document]]]:
    """Return a graph node that searches for the question in the state and puts the documents into the state.

    It supports ``invoke`` and ``ainvoke``. Places and scores are in the metadata (`SearchResults.to_documents`), so
    that every checkpointer can store them.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        question: Key or attribute of the question in the state.
        documents: Key of the documents in the state.
        filters: A filter for every search; or a function of the state and the config that returns one for this search,
            such as that of the current user. If it returns None, every document is searched.
        options: Other fields of `SemlexRetriever`: ``k``, ``mode``, ``search_kwargs``.
    """
    fixed = None if callable(filters) else filters
    retriever = SemlexRetriever(collection=collection, **({"details": True} | options), filters=fixed)

    def search(state: Any, config: RunnableConfig) -> dict[str, Any]:
        asked = state[question] if isinstance(state, Mapping) else getattr(state, question)
        return {"input": asked, "config": config} | ({"filters": filters(state, config)} if callable(filters) else {})

    def retrieve(state: Any, config: RunnableConfig) -> dict[str, list[Document]]:
        return {documents: retriever.invoke(**search(state, config))}

    async def aretrieve(state: Any, config: RunnableConfig) -> dict[str, list[Document]]:
        return {documents: await retriever.ainvoke(**search(state, config))}

    return RunnableLambda(retrieve, aretrieve, name="retrieve")


def retrieval_tool(
    collection: AnyCollection,
    name: str,
    description: str,
    *,
    document_prompt: BasePromptTemplate[str] | None = None,
    **options: Any,
) -> BaseTool:
    """Return a tool that searches: the model reads the texts, and the documents are the message's artifact.

    The model gives the user's question and terms that the documents would use. If its query is refused (blank, too
    long) or finds nothing, the model gets a message, and the graph continues. A search whose `SearchResults.support` is
    ``unlikely`` returns no documents, unless ``supported=False``.

    Args:
        collection: A collection or a retriever, as for `SemlexRetriever`.
        name: Name of the tool for the model.
        description: Description of the collection's content, for the model; instructions on searching are added.
        document_prompt: Prompt that turns a document into text. Default: its text alone.
        options: Fields of `SemlexRetriever`: ``k``, ``filters``, ``mode``, ``search_kwargs``.
    """
    retriever = SemlexRetriever(collection=collection, **({"details": True, "supported": True} | options))
    prompt = document_prompt or PromptTemplate.from_template("{page_content}")

    def run(query: str, terms: str | None = None, callbacks: Callbacks = None) -> tuple[str, list[Document]]:
        with _refused_to_the_model():
            found = retriever.invoke(query, {"callbacks": callbacks}, **({"terms": terms} if terms else {}))
        return "\n\n".join(format_document(one, prompt) for one in found) or NOTHING_FOUND, found

    async def arun(query: str, terms: str | None = None, callbacks: Callbacks = None) -> tuple[str, list[Document]]:
        with _refused_to_the_model():
            found = await retriever.ainvoke(query, {"callbacks": callbacks}, **({"terms": terms} if terms else {}))
        return "\n\n".join([await aformat_document(one, prompt) for one in found]) or NOTHING_FOUND, found

    return StructuredTool(
        name=name,
        description=f"{description} {HOW_TO_ASK}",
        func=run,
        coroutine=arun,
        args_schema=ToolInput,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


@contextmanager
def _refused_to_the_model() -> Iterator[None]:
    """Turn errors that the model can correct into tool errors, which the model reads."""
    try:
        yield
    except (SearchTimeoutError, ValidationError) as error:
        raise ToolException(str(error)) from error
