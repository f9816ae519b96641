"""Options of chunk descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from semlex.chat.base import NO_CHAT_MODEL
from semlex.errors import ConfigurationError
from semlex.validation import (
    check_parameters,
    is_one_of,
    kind_errors,
    model_errors,
    refuse,
    text_parameter,
    whole_number_errors,
)

if TYPE_CHECKING:
    from semlex.chat.base import ChatModel

OnFailure = Literal["error", "plain"]
MAX_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Enrichment:
    """Which language model describes each chunk in one line, and how it is called.

    Attributes:
        model: A `ChatModel`, or the name of one behind a server, as for `chat_model`. It receives titles and texts.
        concurrency: Maximum number of requests at the same time, 1 to 64.
        on_failure: If the model fails before the first line: ``error`` tests it with a text of semlex's own and raises
            before anything is written; ``plain`` stores the chunks without lines, and the report says why.
        dry_run: Whether only to count what the lines would cost; nothing is sent.

    Raises:
        ConfigurationError: A value cannot be used.
    """

    model: str | ChatModel
    concurrency: int = 4
    on_failure: OnFailure = "error"
    dry_run: bool = False

    def __post_init__(self) -> None:
        named = text_parameter("model", self.model) if isinstance(self.model, str) else []
        check_parameters(
            named or model_errors("model", self.model, "identity", "stream"),
            refuse("model", "not_usable", "a language model") if self.model is None else [],
            whole_number_errors("concurrency", self.concurrency, 1, MAX_AT_ONCE),
            [] if self.on_failure in ("error", "plain") else refuse("on_failure", "not_usable", "'error' or 'plain'"),
            kind_errors("dry_run", self.dry_run, bool),
        )

    def opened(self) -> ChatModel:
        """Return the model.

        Raises:
            ConfigurationError: Its name cannot be used, or the key that it needs is not set.
        """
        from semlex.chat.openai import choose_chat_model  # noqa: PLC0415 - most programs only search

        model = choose_chat_model(self.model).model
        if model is None:
            raise ConfigurationError("enrichment needs a language model: openai:MODEL, http(s)://HOST/v1#MODEL, …")
        return model


def checked_enrichment(value: Enrichment | str | ChatModel | None) -> Enrichment | None:
    """Return the option `enrichment` as a value; None and ``"none"`` mean no descriptions."""
    if value is None or is_one_of(value, (NO_CHAT_MODEL,)):
        return None
    return value if isinstance(value, Enrichment) else Enrichment(value)
