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
    """What a model wrote, and whether its server ended it at a limit (`is_cut`)."""

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
        """Write the next message piece by piece, at the end all of it as a `Completion`; as `complete`."""

    def close(self) -> None:
        """Release what it holds; a second call does nothing."""
