"""A chat model on a server of this machine that answers as a script says, whole or as server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.model_servers import ModelServerDouble, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.model_servers import Fault

EVENT_STREAM = {"Content-Type": "text/event-stream"}
PIECE = 7  # characters of a piece of a stream


def answer_text(sentences: Sequence[tuple[str, Sequence[tuple[int, str]]]]) -> str:
    """What a model writes that says these sentences, each with (number of the source, quote)."""
    return json.dumps(
        {
            "sentences": [
                {"text": text, "citations": [{"source": source, "quote": quote} for source, quote in quotes]}
                for text, quotes in sentences
            ]
        },
        ensure_ascii=False,
    )


def completion(content: Any, finish: str = "stop") -> dict[str, Any]:
    """The answer in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}


def events(content: str, finish: str = "stop", *, line_end: str = "\n", done: bool = True) -> bytes:
    """The answer as server-sent events."""
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    sent = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    sent.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    sent.append({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})
    lines = [": comment", *(f"data: {json.dumps(event, ensure_ascii=False)}{line_end}" for event in sent)]
    return line_end.join([*lines, f"data: [DONE]{line_end}" if done else "", ""]).encode()


def streamed(content: str, **options: Any) -> Reply:
    """The answer to a request for a stream."""
    return Reply(events(content, **options), headers=EVENT_STREAM)


def chat_server(say: Callable[[Request], str], faults: Sequence[Fault] = ()) -> ModelServerDouble:
    """A server whose model says what the function makes of a request."""

    def answer(request: Request) -> Any:
        content = say(request)
        return streamed(content) if request.body.get("stream") else completion(content)

    return ModelServerDouble(answer, faults)
