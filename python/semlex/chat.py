"""Language models that write text: their protocol, untrusted text made fit for prompts, and models on a server."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from semlex.errors import ConfigurationError, ModelServerError
from semlex.models.http_client import Limits, ModelServer
from semlex.models.model_names import ACCOUNTS, ModelChoice, model_and_address, ollama_address
from semlex.models.remote_model import RemoteModel
from semlex.telemetry import INPUT_TOKENS, OUTPUT_TOKENS, SERVER, Span, Work, span
from semlex.types.answers import Usage
from semlex.validation import check_parameters, number_errors

# The name that stands for no language model.
NO_CHAT_MODEL = "none"
# Models often write their thoughts before a JSON answer, and put it into a fence.
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"```\w*\s(.*)```", re.DOTALL)


class Message(TypedDict):
    """A message of a conversation with a language model.

    Attributes:
        role: Who wrote it.
        content: Its text.
    """

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that a language model wrote.

    Attributes:
        text: The text.
        usage: Number of tokens that the model read and wrote.
        is_cut: Whether the server cut the text at a limit.
    """

    text: str
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    is_cut: bool = False


@runtime_checkable
class ChatModel(Protocol):
    """A language model. Its calls block, and may come from several threads at the same time."""

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
        """Yield the next message piece by piece, then all of it as a `Completion`; see `complete`."""

    def close(self) -> None:
        """Release the model's resources; a second call does nothing."""


def parsed(text: str | bytes) -> Any:
    """Return a text parsed as JSON; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # the error would hold the answer


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object that has all of these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def instructed(instructions: str, text: str) -> list[Message]:
    """Return the messages that give a model instructions and the user's text."""
    return [{"role": "system", "content": instructions}, {"role": "user", "content": text}]


def answer_object(answer: str) -> dict[str, Any]:
    """Return the JSON object of an answer; empty if the answer is anything else."""
    answer = _THOUGHT.sub("", answer, count=1).strip()
    fenced = _FENCED.fullmatch(answer)
    found = parsed(fenced[1] if fenced else answer)
    return found if isinstance(found, dict) else {}


MARK_BYTES = 8
# A longer path or title does not help a reader.
MAX_SHOWN = 200
# Characters that end a line in some programs.
LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Characters that people do not see but a model reads: control characters but tab and newline; marks that turn the
# direction of writing; characters without width that join nothing; tags and variation selectors, in which whole texts
# can be hidden.
UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def drawn_mark() -> str:
    """Return a random word that no author of a document could have guessed."""
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


# The path of OpenAI's interface, which most servers offer.
PATH = "/chat/completions"
# Statuses with which servers refuse a setting that they or the model do not support.
REFUSED_STATUSES = frozenset({400, 422})
STREAM_END = b"[DONE]"


class NoTextError(ModelServerError):
    """The server answered, but not with a text."""


class ChatEndpoint:
    """Sends conversations to one language model on a server, and reads its messages."""

    # Optional settings (temperature 0, a JSON schema, usage figures of a stream) are sent until the server refuses them
    # with 400 or 422 and accepts the same request without them.

    def __init__(self, server: ModelServer, model: str) -> None:
        self._server = server
        self._model = model
        self._takes_settings = True

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Completion:
        """Write the next message; see `semlex.chat.ChatModel.complete`."""
        body: dict[str, Any] = {"model": self._model, "messages": list(messages)}
        with self._span() as told:
            answer = self._asked(
                lambda settings: self._server.post(PATH, body | settings, Limits().max_bytes), _settings(schema)
            )
            completion = self._completion(answer)
            told.note(_counts(completion.usage))
        return completion

    def stream(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None, limits: Limits | None = None
    ) -> Iterator[str | Completion]:
        """Write the next message piece by piece; see `semlex.chat.ChatModel.stream`."""
        body: dict[str, Any] = {"model": self._model, "messages": list(messages), "stream": True}
        settings = {**_settings(schema), "stream_options": {"include_usage": True}}

        def begun(chosen: dict[str, Any]) -> tuple[Generator[bytes], bytes]:
            # The first piece decides whether the settings were taken.
            parts = self._server.stream(PATH, body | chosen, limits or Limits())
            return parts, next(parts, b"")

        # While the caller reads, this span is not the current one: the caller has its own, perhaps in several contexts.
        told = self._span().start()
        try:
            with told.current():
                parts, first = self._asked(begun, settings)
            try:
                for piece in self._pieces(parts, first):
                    if isinstance(piece, Completion):
                        told.note(_counts(piece.usage))
                    yield piece
            finally:
                parts.close()
        except BaseException as error:
            told.end(error)
            raise
        finally:
            told.end()

    def _span(self) -> Span:
        return span(Work.CHAT, self._model, {SERVER: self._server.host}, is_call=True)

    def _asked(self, ask: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> Any:
        """Return the answer to a request with the optional settings, or without them if they are refused."""
        if self._takes_settings:
            try:
                return ask(settings)
            except ModelServerError as error:
                if error.status not in REFUSED_STATUSES:
                    raise
        answer = ask({})
        self._takes_settings = False
        return answer

    def _pieces(self, parts: Iterator[bytes], first: bytes) -> Iterator[str | Completion]:
        if first.lstrip()[:1] == b"{":  # a server that does not know streams
            whole = self._completion(parsed(first + b"".join(parts)))
            yield whole.text
            yield whole
            return
        texts: list[str] = []
        usage, finish, is_done, has_choices = Usage(), None, False, False
        for data in _events(first, parts):
            if data == STREAM_END:
                is_done = True
                break
            event = parsed(data)
            if not isinstance(event, dict) or event.get("error"):
                raise self._unusable("an error in the middle of its answer; see the server's own log")
            usage = _usage(event) or usage
            choices = event.get("choices")
            has_choices |= isinstance(choices, list)
            choice = choices[0] if isinstance(choices, list) and choices else {}
            finish = choice.get("finish_reason") or finish if isinstance(choice, dict) else finish
            delta = choice.get("delta") if isinstance(choice, dict) else None
            piece = delta.get("content") if isinstance(delta, dict) else None
            if isinstance(piece, str) and piece:
                texts.append(piece)
                yield piece
        if not (is_done or has_choices):
            raise self._unusable("something other than a message; check the address and the model")
        if not is_done and finish is None:
            raise self._unusable("half of an answer: it broke off in the middle; see the server's own log")
        yield Completion("".join(texts), usage, finish == "length")

    def _completion(self, answer: Any) -> Completion:
        try:
            choice = answer["choices"][0]
            text, finish = choice["message"]["content"], choice.get("finish_reason")
        except (LookupError, TypeError, AttributeError):
            text = finish = None  # the error would hold the answer
        if not isinstance(text, str):
            raise self._unusable("something other than a message; check the address and the model")
        return Completion(text, _usage(answer) or Usage(), finish == "length")

    def _unusable(self, what: str) -> NoTextError:
        return NoTextError(f"{self._model} at {self._server.host} answered with {what}", status=200)


def _counts(usage: Usage) -> dict[str, Any]:
    return {INPUT_TOKENS: usage.prompt_tokens, OUTPUT_TOKENS: usage.completion_tokens}


def _settings(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"temperature": 0}
    if schema is not None:
        described = {"name": "answer", "strict": True, "schema": schema}
        settings["response_format"] = {"type": "json_schema", "json_schema": described}
    return settings


def _events(first: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the data of each server-sent event; other lines (comments, names, retries) are ignored."""
    data: list[bytes] = []
    for line in _lines(first, parts):
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


def _lines(first: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    kept: list[bytes] = []
    for part in chain((first,), parts):
        *whole, rest = part.split(b"\n")
        for line in whole:
            yield b"".join([*kept, line]).rstrip(b"\r")
            kept = []
        if rest:
            kept.append(rest)
    yield b"".join(kept).rstrip(b"\r")


def _usage(answer: Any) -> Usage | None:
    counted = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(counted, dict):
        return None
    numbers = (counted.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return Usage(*(number if type(number) is int and number >= 0 else None for number in numbers))


MAX_SECONDS = 3600.0


class OpenAIChatModel(RemoteModel):
    """A language model on a server; messages are sent there, from the first call on.

    Blocking, and safe for several threads.

    Args:
        model: Name by which the server knows the model.
        base_url: Address before ``/chat/completions``.
        api_key: Key of the account. None for the environment: ``OPENAI_API_KEY`` at OpenAI, ``OPENROUTER_API_KEY`` at
            OpenRouter, ``SEMLEX_CHAT_API_KEY`` anywhere else.
        timeout: Maximum seconds until a streamed answer begins, and for an attempt that is not streamed.
        pause, seconds: Maximum seconds between two pieces of a streamed answer, and from its first piece to its end.
        attempts: Maximum attempts of one request; an answer that has begun is not requested again.
        name: Name by which settings choose this model; None: ``ACCOUNT:MODEL`` or ``ADDRESS#MODEL``.

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
            model, base_url, api_key=api_key, name=name, batch_size=1, timeout=timeout, attempts=attempts, concurrency=1
        )
        self._endpoint = ChatEndpoint(self._server, model)
        self._limits = Limits(pause=pause, seconds=seconds)

    @property
    def identity(self) -> str:
        """Return model and server, in one line."""
        return f"{self._model}@{self.host}"

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Completion:
        """Write the next message; see `semlex.chat.ChatModel.complete`. Raises `ModelServerError`."""
        return self._endpoint.complete(messages, schema)

    def stream(
        self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> Iterator[str | Completion]:
        """Write the next message piece by piece; see `semlex.chat.ChatModel.stream`. Raises `ModelServerError`."""
        return self._endpoint.stream(messages, schema, self._limits)


def choose_chat_model(configured: str | ChatModel | None = None) -> ModelChoice[ChatModel]:
    """Return the configured language model, or None, with the reason; nothing is sent to the model.

    ==============================  ============================================================  ===================
    configured                      language model                                                key
    ==============================  ============================================================  ===================
    ``none``, or None               none: answers are sentences of the documents
    ``openai:MODEL``                OpenAI's                                                      OPENAI_API_KEY
    ``openrouter:MODEL``            through OpenRouter                                            OPENROUTER_API_KEY
    ``ollama:MODEL``                Ollama at ``OLLAMA_HOST``, else on this machine               SEMLEX_CHAT_API_KEY
    ``http(s)://HOST/v1#MODEL``     any server with OpenAI's ``/chat/completions``                SEMLEX_CHAT_API_KEY
    ==============================  ============================================================  ===================
    """
    if configured is None or configured == NO_CHAT_MODEL:
        return ModelChoice(None, "no language model: answers are sentences of the documents")
    if not isinstance(configured, str):
        return ModelChoice(configured, f"answers by the language model that was passed, {configured.identity}")
    model = _named(configured)
    reason = f"answers by {model.identity}, as configured; questions and passages are sent to {model.host}"
    return ModelChoice(model, reason)


def _named(name: str) -> OpenAIChatModel:
    scheme, _, rest = name.partition(":")
    if name.startswith(("http://", "https://")):
        return OpenAIChatModel(*model_and_address(name))
    if scheme in OpenAIChatModel.accounts and rest.strip():
        return OpenAIChatModel(rest, ACCOUNTS[scheme].url)
    if scheme == "ollama" and rest.strip():
        return OpenAIChatModel(rest, ollama_address(), name=name)
    raise ConfigurationError(
        "the language model must be 'none', openai:MODEL, openrouter:MODEL, ollama:MODEL or http(s)://HOST/v1#MODEL"
    )
