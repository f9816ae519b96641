"""Searches, and what explains them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from semlex.errors import SemlexError, ValidationError
from semlex.server.problems import Problem, problem_of
from semlex.server.request_context import Ask, answered, answered_dict, answered_hits, answered_many, as_json, does
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
from semlex.types.answers import Answer
from semlex.types.documents import json_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from semlex.types.answers import AnswerSentence


router = APIRouter(tags=["find"])


@does(router, "POST", "/v1/search", "search", also=("/search",))
async def search(asked: Ask, body: SearchBody) -> Response:
    """The chunks that fit a query best, with every score."""
    collection = await asked.collection(body.collection)
    given = _given(body)
    asked.count_search()
    fields = given.pop("fields")
    return await answered_hits(asked, await collection.search(given.pop("query"), **given), fields)


@does(router, "POST", "/v1/candidates", "candidates")
async def candidates(asked: Ask, body: CandidatesBody) -> Response:
    """Every candidate of both legs with both scores, and what the fusion has measured them against."""
    collection = await asked.collection(body.collection)
    given = _given(body)
    asked.count_search()
    fields = given.pop("fields")
    return await answered_hits(asked, await collection.candidates(given.pop("query"), **given), fields)


def _given(body: Any) -> dict[str, Any]:
    """What a body says, by the names of the method's arguments."""
    found = {name: getattr(body, name) for name in type(body).model_fields if name != "collection"}
    if found.get("weights") is not None:
        found["weights"] = found["weights"].model_dump()
    return found


@does(router, "POST", "/v1/search/page", "search page")
async def search_page(asked: Ask, body: PageBody) -> Response:
    """The next page of a list that a search opened with `max_results`."""
    collection = await asked.collection(body.collection)
    asked.count_search()
    try:
        found = await collection.search_page(body.cursor, body.filters, deadline=body.deadline)
    except ValidationError as error:
        if any(one.field != "cursor" for one in error.errors):
            raise
        raise Problem(404, f"there is no list at this cursor: {error}") from None
    return await answered_hits(asked, found, body.fields)


@does(router, "POST", "/v1/search/many", "search many")
async def search_many(asked: Ask, body: ManyBody) -> Response:
    """Many searches at once; the results of each, in their order."""
    collection = await asked.collection(body.collection)
    given = _given(body)
    asked.count_search()
    fields = given.pop("fields")
    return await answered_many(asked, await collection.search_many(given.pop("queries"), **given), fields)


@does(router, "POST", "/v1/why", "why")
async def why(asked: Ask, body: WhyBody) -> Response:
    """Why a document is where it is in the answer to a question, or why it is missing."""
    collection = await asked.collection(body.collection)
    given = _given(body)
    asked.count_search()
    return answered((await collection.why(given.pop("document"), given.pop("question"), **given)).to_dict())


@does(router, "POST", "/v1/facets", "facets")
async def facets(asked: Ask, body: FacetsBody) -> Response:
    """Which values fields have, and how many chunks have each."""
    collection = await asked.collection(body.collection)
    given = _given(body)
    return answered((await collection.facets(given.pop("fields"), given.pop("filters"), **given)).to_dict())


@does(router, "GET", "/v1/fields", "list fields")
async def fields(asked: Ask, collection: CollectionQuery = None, *, values: bool = False) -> Response:
    """The fields that chunks have: names, types with counts, and which have an index."""
    opened = await asked.collection(collection)
    found = await opened.fields(values=values)
    beside = {"chunks": found.chunks, "are_all": found.are_all, "left_out": found.left_out}
    return answered({"fields": json_value(list(found)), **beside})


answers = APIRouter(tags=["answer"])
EVENTS = "text/event-stream"


@does(answers, "POST", "/v1/context", "context")
async def context(asked: Ask, body: ContextBody) -> Response:
    """The passages that fit a question best, as numbered text for a prompt."""
    collection = await asked.collection(body.collection)
    given = body.model_dump(exclude={"collection", "question", "tokens"})
    asked.count_search()
    return await answered_dict(asked, await collection.context(body.question, body.tokens, **given))


@does(
    answers,
    "POST",
    "/v1/answer",
    "answer",
    also=("/query",),
    answer={
        "application/json": {"schema": {"type": "object"}},
        EVENTS: {"schema": {}},
    },
)
async def answer(asked: Ask, body: AnswerBody) -> Response:
    """An answer from the documents alone, every quote looked up; as a whole, or sentence by sentence."""
    collection = await asked.collection(body.collection)
    given = body.model_dump(exclude={"collection", "question", "tokens", "stream"})
    asked.count_search()
    if not body.stream:
        return answered((await collection.answer(body.question, body.tokens, **given)).to_dict())
    events = collection.answer_stream(body.question, body.tokens, **given)
    # What is wrong with the question, or with the search, is told by the status: the first event comes before it.
    first = await anext(events)
    return StreamingResponse(_written(first, events), media_type=EVENTS)


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
