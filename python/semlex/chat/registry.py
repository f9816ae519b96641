"""Which language model writes answers, and the one line that says so.

Nothing is sent here. Questions and passages go to a server only where one was named: a key that happens to be in the
environment sends nothing anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.chat.base import NO_CHAT_MODEL
from semlex.chat.openai import OpenAIChatModel
from semlex.errors import ConfigurationError
from semlex.models.model_names import ACCOUNTS, ModelChoice, model_and_address, ollama_address

if TYPE_CHECKING:
    from semlex.chat.base import ChatModel


def choose_chat_model(configured: str | ChatModel | None = None) -> ModelChoice[ChatModel]:
    """The configured language model, or none.

    ==============================  ==================================================  =====================
    configured                      language model                                      key
    ==============================  ==================================================  =====================
    ``none``, or None               none: answers are sentences of the documents
    ``openai:MODEL``                OpenAI's                                            OPENAI_API_KEY
    ``openrouter:MODEL``            behind OpenRouter                                   OPENROUTER_API_KEY
    ``ollama:MODEL``                of the Ollama that ``OLLAMA_HOST`` names, else      SEMLEX_CHAT_API_KEY
                                    of this machine's
    ``http(s)://HOST/v1#MODEL``     any server with OpenAI's ``/chat/completions``      SEMLEX_CHAT_API_KEY
    ==============================  ==================================================  =====================
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
