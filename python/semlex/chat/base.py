"""What a language model offers. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, runtime_checkable

from semlex.types.answers import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The name that stands for no language model.
NO_CHAT_MODEL = "none"


class Message(TypedDict):
    """A part of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote.

    Attributes:
        text: All of it.
        usage: What its server counted.
        is_cut: Whether the server ended it at a limit of its own.
    """

    text: str
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    is_cut: bool = False


@runtime_checkable
class ChatModel(Protocol):
    """A language model. Its calls block, and may come from several threads at once."""

    @property
    def identity(self) -> str:
        """Model and server, in one line."""

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Completion:
        """Writes the next message.

        Args:
            messages: The conversation.
            schema: JSON schema of the message, for servers that can keep to one; the messages must say it, too.

        Raises:
            ModelError: It cannot be asked, or answers with something that is no text.
        """

    def stream(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Iterator[str | Completion]:
        """Writes the next message, piece by piece; at the end all of it as a `Completion`.

        Args:
            messages: As for `complete`.
            schema: As for `complete`.

        Raises:
            ModelError: As `complete`; or the text stops in the middle.
        """

    def close(self) -> None:
        """Lets go of what it holds; a second call does nothing."""
