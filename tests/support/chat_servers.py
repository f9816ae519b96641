"""A chat model on a server of this machine that answers as a script says, whole or as server-sent events."""

import json

from tests.support.model_servers import ModelServerDouble, Reply

EVENT_STREAM = {"Content-Type": "text/event-stream"}
PIECE = 7  # characters of a piece of a stream


def answer_text(sentences):
    """What a model writes that says these sentences, each with (number of the source, quote)."""
    said = [
        {"text": text, "citations": [{"source": source, "quote": quote} for source, quote in quotes]}
        for text, quotes in sentences
    ]
    return json.dumps({"sentences": said}, ensure_ascii=False)


def completion(content, finish="stop"):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}


def events(content, finish="stop", *, line_end="\n", done=True):
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    sent = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    sent.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    sent.append({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})
    lines = [": comment", *(f"data: {json.dumps(event, ensure_ascii=False)}{line_end}" for event in sent)]
    return line_end.join([*lines, f"data: [DONE]{line_end}" if done else "", ""]).encode()


def streamed(content, **options):
    return Reply(events(content, **options), headers=EVENT_STREAM)


def chat_server(say, faults=()):
    """A server whose model says what the function makes of a request."""

    def answer(request):
        content = say(request)
        return streamed(content) if request.body.get("stream") else completion(content)

    return ModelServerDouble(answer, faults)
