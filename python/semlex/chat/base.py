"""The protocol of a language model. No input or output."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, runtime_checkable

from semlex.types.answers import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The name that stands for no language model.
NO_CHAT_MODEL = "none"
# What models put around a JSON answer unasked: their thoughts before it, and a fence.
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"```\w*\s(.*)```", re.DOTALL)


class Message(TypedDict):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The text that a model wrote, and whether its server cut it at a limit (`is_cut`)."""

    text: str
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    is_cut: bool = False


@runtime_checkable
class ChatModel(Protocol):
    """A language model. Its calls block, and may come from several threads at once."""

    @property
    def identity(self) -> str:
        """Return model and server, in one line."""

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Completion:
        """Write the next message of a conversation; raise `ModelError` if that fails.

        `schema` is a JSON schema of the message, for servers that support one; the messages must describe it, too.
        """

    def stream(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Iterator[str | Completion]:
        """Write the next message piece by piece, then give all of it as a `Completion`; otherwise as `complete`."""

    def close(self) -> None:
        """Release its resources; a second call does nothing."""


def parsed(text: str | bytes) -> Any:
    """Return what a text is as JSON; None if it is not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # the error would hold the answer


def answer_object(answer: str) -> dict[str, Any]:
    """Return the JSON object of an answer; empty if the answer is anything else."""
    answer = _THOUGHT.sub("", answer, count=1).strip()
    fenced = _FENCED.fullmatch(answer)
    found = parsed(fenced[1] if fenced else answer)
    return found if isinstance(found, dict) else {}
