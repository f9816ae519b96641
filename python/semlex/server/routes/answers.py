"""Answers, and what they are written from."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from semlex.errors import SemlexError
from semlex.server.asked import Ask, answered, answered_dict, as_json, does
from semlex.server.problems import problem_of
from semlex.server.routes.schemas import AnswerBody, ContextBody
from semlex.types.answers import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from semlex.types.answers import AnswerSentence

router = APIRouter(tags=["answer"])
EVENTS = "text/event-stream"


@does(router, "POST", "/v1/context", "context")
async def context(asked: Ask, body: ContextBody) -> Response:
    """The passages that fit a question best, as numbered text for a prompt."""
    collection = await asked.collection(body.collection)
    given = body.model_dump(exclude={"collection", "question", "tokens"})
    asked.count_search()
    return await answered_dict(asked, await collection.context(body.question, body.tokens, **given))


@does(
    router,
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
