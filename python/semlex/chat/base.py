"""The protocol of a language model, and untrusted text made fit for its prompts. No input or output."""

from __future__ import annotations

import json
import re
import secrets
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
    """Return a text parsed as JSON; None if it is not JSON."""
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


MARK_BYTES = 8
# A longer path or title does not help a reader.
MAX_SHOWN = 200
# What ends a line somewhere.
LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# What nobody sees and a model reads: control characters but tab and newline; marks that turn the direction of writing;
# characters without width that join nothing; tags and variation selectors, in which whole texts can be hidden.
UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def drawn_mark() -> str:
    """Return a random word, which no document can contain on purpose."""
    return secrets.token_hex(MARK_BYTES)


def visible(text: str) -> str:
    """Return a text without invisible characters, with every line ended by a newline."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # most are, and the patterns take a hundred times as long
    return UNSEEN.sub("", LINE_ENDS.sub("\n", text))


def one_line(text: str) -> str:
    """Return a path or a title on one line, shortened in the middle."""
    line = " ".join(visible(text).split())
    if len(line) <= MAX_SHOWN:
        return line
    half = MAX_SHOWN // 2
    return f"{line[: half - 1]}…{line[-half:]}"
