"""A language model behind any server that offers OpenAI's ``/chat/completions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.chat.endpoint import ChatEndpoint
from semlex.models.http_stream import Limits
from semlex.models.model_names import ACCOUNTS
from semlex.models.remote_model import RemoteModel
from semlex.validation import check_parameters, number_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from semlex.chat.base import Completion, Message

MAX_SECONDS = 3600.0


class OpenAIChatModel(RemoteModel):
    """A language model behind a server; the messages are sent there.

    Nothing is sent before the first call. Blocking, and safe for several threads.

    Args:
        model: Name by which the server knows the model.
        base_url: Address in front of ``/chat/completions``.
        api_key: Key of the account. None for the environment: ``OPENAI_API_KEY`` at OpenAI, ``OPENROUTER_API_KEY`` at
            OpenRouter, ``SEMLEX_CHAT_API_KEY``, if set, anywhere else.
        timeout: Most seconds until an answer begins, and of an attempt that is answered in one piece.
        pause: Most seconds between two pieces of a streamed answer.
        seconds: Most seconds of a streamed answer, from its first piece on.
        attempts: Most attempts of one request; an answer that has begun is not asked for again.
        name: Name that leads to this model; None for ``ACCOUNT:MODEL`` or ``ADDRESS#MODEL``.

    Raises:
        ConfigurationError: A parameter cannot be used, or a key is missing.
    """

    max_texts = 1
    accounts = ("openai", "openrouter")
    key_variable = "SEMLEX_CHAT_API_KEY"
    halved_statuses = frozenset()

    def __init__(
        self,
        model: str,
        base_url: str = ACCOUNTS["openai"].url,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        pause: float = 60.0,
        seconds: float = 300.0,
        attempts: int = 5,
        name: str | None = None,
    ) -> None:
        check_parameters(
            number_errors("pause", pause, 0.001, MAX_SECONDS), number_errors("seconds", seconds, 0.001, MAX_SECONDS)
        )
        super().__init__(
            model,
            base_url,
            api_key=api_key,
            name=name,
            batch_size=1,
            timeout=timeout,
            attempts=attempts,
            concurrency=1,
        )
        self._endpoint = ChatEndpoint(self._server, model)
        self._limits = Limits(pause=pause, seconds=seconds)

    @property
    def identity(self) -> str:
        """Model and server, in one line."""
        return f"{self._model}@{self.host}"

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Completion:
        """Writes the next message; as `semlex.chat.base.ChatModel.complete`.

        Raises:
            ModelServerError: The server cannot be reached, refuses, or answers with something that is no message.
        """
        return self._endpoint.complete(messages, schema)

    def stream(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Iterator[str | Completion]:
        """Writes the next message piece by piece; as `semlex.chat.base.ChatModel.stream`.

        Raises:
            ModelServerError: As `complete`; or the answer breaks off, pauses for too long, is too long or does not end.
        """
        return self._endpoint.stream(messages, schema, self._limits)
