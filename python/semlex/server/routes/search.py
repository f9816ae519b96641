"""Routes of searches and of their explanations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from semlex.errors import SemlexError, ValidationError
from semlex.server.problems import Problem, problem_of
from semlex.server.request_context import Current, as_json, dict_response, hits_response, many_response, route
from semlex.server.routes.bodies import (
    AnswerBody,
    CandidatesBody,
    CollectionQuery,
    ContextBody,
    FacetsBody,
    ManyBody,
    PageBody,
    SearchBody,
    WhyBody,
)
from semlex.store.query.rows import OfDefinitions
from semlex.types.answers import Answer, AnswerSentence, Context
from semlex.types.explanations import Explanation
from semlex.types.fields import Facets, FieldSummaries
from semlex.types.results import SearchResults

router, answers = APIRouter(tags=["find"]), APIRouter(tags=["answer"])
EVENTS = "text/event-stream"


@route(router, "POST", "/v1/search", "search", returns=SearchResults, also=("/search",))
async def search(context: Current, body: SearchBody) -> Response:
    """Return the chunks that fit a query best, with every score."""
    collection, given = await context.searched(body.collection), _with_columns(body.given())
    fields = given.pop("fields", None)
    return await hits_response(context, await collection.search(**given), fields)


@route(router, "POST", "/v1/candidates", "candidates", returns=SearchResults)
async def candidates(context: Current, body: CandidatesBody) -> Response:
    """Return every candidate of both searches with both scores and the figures that the fusion used."""
    collection, given = await context.searched(body.collection), body.given()
    fields = given.pop("fields", None)
    return await hits_response(context, await collection.candidates(**given), fields)


@route(router, "POST", "/v1/search/page", "search page", returns=SearchResults)
async def search_page(context: Current, body: PageBody) -> Response:
    """Return the next page of a list that a search opened with `max_results`."""
    collection, given = await context.searched(body.collection), body.given()
    fields = given.pop("fields", None)
    try:
        found = await collection.search_page(**given)
    except ValidationError as error:
        if any(one.field != "cursor" for one in error.errors):
            raise
        raise Problem(404, f"the cursor is not valid: {error}") from None
    return await hits_response(context, found, fields)


@route(router, "POST", "/v1/search/many", "search many", returns={"results": [SearchResults]})
async def search_many(context: Current, body: ManyBody) -> Response:
    """Run many searches in one request; return the results of each, in the order of the searches."""
    collection, given = await context.searched(body.collection), body.given()
    fields = given.pop("fields", None)
    return await many_response(context, await collection.search_many(**given), fields)


@route(router, "POST", "/v1/why", "why", returns=Explanation)
async def why(context: Current, body: WhyBody) -> Response:
    """Explain why a document has its rank in the results, or why it is missing."""
    collection = await context.searched(body.collection)
    return await dict_response(context, await collection.why(**_with_columns(body.given())))


@route(router, "POST", "/v1/facets", "facets", returns=Facets)
async def facets(context: Current, body: FacetsBody) -> Response:
    """Count, for each field, how many chunks have each value."""
    collection = await context.collection(body.collection)
    return await dict_response(context, await collection.fields.facets(**body.given()))


@route(router, "GET", "/v1/fields", "list fields", returns=FieldSummaries)
async def fields(context: Current, collection: CollectionQuery = None, *, values: bool = False) -> Response:
    """List the fields that chunks have: names, types with counts, and which have an index."""
    opened = await context.collection(collection)
    return await dict_response(context, await opened.fields.list(values=values))


@route(answers, "POST", "/v1/context", "context", returns=Context)
async def context(context: Current, body: ContextBody) -> Response:
    """Return the passages that fit a question best, as numbered text for a prompt."""
    collection = await context.searched(body.collection)
    return await dict_response(context, await collection.context(**body.given()))


@route(answers, "POST", "/v1/answer", "answer", returns=Answer, also=("/query",), media={EVENTS: {}})
async def answer(context: Current, body: AnswerBody) -> Response:
    """Answer from the documents alone, with every quote checked; the answer comes whole, or sentence by sentence."""
    collection, given = await context.searched(body.collection), body.given()
    if not given.pop("stream", False):
        return await dict_response(context, await collection.answer(**given))
    events = collection.answer_stream(**given)
    # Errors of the question or of the search become the status: the first event comes before it.
    first = await anext(events)
    return StreamingResponse(_written(first, events), media_type=EVENTS)


def _with_columns(given: dict[str, Any]) -> dict[str, Any]:
    """Limit the `columns` of a request to those that the definitions of followed tables name."""
    columns = given.get("columns")
    return given if columns is None else given | {"columns": OfDefinitions(columns)}


async def _written(
    first: AnswerSentence | Answer, events: AsyncGenerator[AnswerSentence | Answer, None]
) -> AsyncIterator[bytes]:
    async with aclosing(events):
        yield _event(first)
        try:
            async for event in events:
                yield _event(event)
        except SemlexError as error:
            problem = problem_of(error)
            yield _line("error", {"status": problem.status.value, "detail": problem.detail})


def _event(event: AnswerSentence | Answer) -> bytes:
    return _line("answer" if isinstance(event, Answer) else "sentence", event.to_dict())


def _line(name: str, value: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), as_json(value))
