"""Which reranker runs, and the one line that says so.

Nothing is downloaded here and the network is not touched. Texts go to a server only where one was named, or where
``auto`` was asked for: a key that happens to be in the environment sends nothing anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from semlex.errors import ConfigurationError, ModelError
from semlex.models.files import find_model
from semlex.models.local.device import automatic_obstacle
from semlex.reranking.known import (
    COHERE_URL,
    DEFAULT_MODEL,
    JINA_URL,
    KEY_VARIABLES,
    OPENAI_URL,
    OPENROUTER_URL,
    environment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.reranking.base import Reranker
    from semlex.reranking.cohere import CohereReranker
    from semlex.reranking.llm import LLMReranker
    from semlex.reranking.tei import TEIReranker

NO_RERANKER = "none"
AUTOMATIC = "auto"
SCORE = "score"
CROSS_ENCODER = "cross-encoder:"
LLM_VARIABLE = "SEMLEX_LLM_MODEL"
_LLM_PROVIDERS = {"openai": OPENAI_URL, "openrouter": OPENROUTER_URL}


@dataclass(frozen=True, slots=True)
class RerankerChoice:
    """The reranker of a run.

    Attributes:
        reranker: The reranker, or None: results stay in the order of the search.
        reason: One line: what was chosen, why, and where texts are sent, if anywhere.
    """

    reranker: Reranker | None
    reason: str


def choose_reranker(
    configured: str | Reranker | None = None,
    use_reranking: bool | Literal["auto"] = "auto",
    *,
    device: str | None = None,
    revision: str | None = None,
    allow_download: bool = False,
) -> RerankerChoice:
    """Chooses a reranker: the configured one, else Qwen3 from the cache on a GPU, else none.

    ====================================  =====================================================  =======================
    configured                            reranker                                               key
    ====================================  =====================================================  =======================
    ``none``                              none
    ``score``                             the query's words in the texts; no model
    path of a folder, or hub id           Qwen3-Reranker or a cross-encoder, by its config.json
    ``cross-encoder:PATH_OR_ID``          a cross-encoder
    ``cohere`` or ``cohere:MODEL``        Cohere                                                 COHERE_API_KEY or
                                                                                                 CO_API_KEY
    ``jina:MODEL``                        Jina                                                   JINA_API_KEY
    ``http(s)://HOST/v1#MODEL``           a server of Cohere's form                              SEMLEX_RERANKER_API_KEY
    ``tei+http(s)://HOST``                Text Embeddings Inference                              SEMLEX_RERANKER_API_KEY
    ``llm:openai:MODEL``                  a language model of OpenAI                             OPENAI_API_KEY
    ``llm:openrouter:MODEL``              a language model behind OpenRouter                     OPENROUTER_API_KEY
    ``llm+http(s)://HOST/v1#MODEL``       a language model of any such server                    SEMLEX_RERANKER_API_KEY
    ``auto``                              Cohere when its key is set, else Qwen3 from the cache
                                          on a GPU, else the language model that
                                          SEMLEX_LLM_MODEL names (``openai:MODEL``,
                                          ``openrouter:MODEL`` or ``http(s)://HOST/v1#MODEL``),
                                          else none
    ====================================  =====================================================  =======================

    None, when nothing is said, chooses among local models only; ``auto`` has to be said, because it may send queries
    and texts to a third party.

    Args:
        configured: A reranker, or one of the names above, or None.
        use_reranking: ``False`` for never; ``True`` for the configured one or Qwen3-Reranker-0.6B, which must then be
            on this machine; ``auto`` for the configured one, or Qwen3-Reranker-0.6B where it is cached and there is a
            GPU.
        device: For local models, as for `semlex.reranking.qwen3.Qwen3Reranker`.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the hub may be asked for the model.

    Returns:
        The reranker, if any, and the line that says so.

    Raises:
        ConfigurationError: ``use_reranking`` is neither a bool nor ``auto``, or contradicts ``configured``; a name is
            incomplete or unknown; the key that it needs is not set.
        ModelNotFoundError: The model is not on this machine.
        ModelError: The configured model is neither a Qwen3-Reranker nor a cross-encoder.
        MissingExtraError: A package that the model needs is not installed.
    """
    if use_reranking not in (True, False, "auto"):
        raise ConfigurationError(f"use_reranking must be True, False or 'auto'; found {use_reranking!r}")
    if configured == NO_RERANKER and use_reranking is True:
        raise ConfigurationError("use_reranking=True contradicts the reranker 'none'; drop one of the two")
    if configured == NO_RERANKER or use_reranking is False:
        return RerankerChoice(None, "no reranking, as configured")
    if configured is None and use_reranking == "auto":
        return _cached_qwen3(device)
    if configured is not None and not isinstance(configured, str):
        return RerankerChoice(configured, f"reranking with the reranker that was passed, {configured.identity}")
    if configured != AUTOMATIC:
        return _named(configured or DEFAULT_MODEL, device, revision, allow_download=allow_download)
    choice = _automatic(device)
    if choice.reranker is None and use_reranking is True:
        raise ConfigurationError(f"use_reranking=True, but 'auto' found nothing to rerank with ({choice.reason})")
    return choice


def _cached_qwen3(device: str | None) -> RerankerChoice:
    obstacle = automatic_obstacle(DEFAULT_MODEL, device)
    if obstacle is not None:
        return RerankerChoice(None, f"no reranking: {obstacle}")
    from semlex.reranking.qwen3 import Qwen3Reranker  # noqa: PLC0415 - only the chosen kind is loaded

    reason = f"reranking with {DEFAULT_MODEL} on the GPU, found in the local cache"
    return RerankerChoice(Qwen3Reranker(device=device), reason)


def _automatic(device: str | None) -> RerankerChoice:
    """What ``auto`` stands for."""
    variable = next(filter(environment, KEY_VARIABLES[COHERE_URL]), None)
    if variable is not None:
        return _at_server(_cohere("cohere"), f"because {variable} is set")
    local = _cached_qwen3(device)
    if local.reranker is not None:
        return local
    language_model = environment(LLM_VARIABLE)
    if language_model is not None:
        is_address = language_model.startswith(("http://", "https://"))
        reranker = _language_model(f"llm+{language_model}" if is_address else f"llm:{language_model}")
        return _at_server(reranker, f"because {LLM_VARIABLE} names it")
    return RerankerChoice(None, f"{local.reason}; neither {KEY_VARIABLES[COHERE_URL][0]} nor {LLM_VARIABLE} is set")


def _named(name: str, device: str | None, revision: str | None, *, allow_download: bool) -> RerankerChoice:
    if name == SCORE:
        from semlex.reranking.term_overlap import ScoreReranker  # noqa: PLC0415 - only the chosen kind is loaded

        return RerankerChoice(ScoreReranker(), "reranking by the query's words in the texts, as configured; no model")
    at_server = _AT_SERVERS.get(name.partition(":")[0])
    if at_server is not None:
        return _at_server(at_server(name), "as configured")
    model = name.removeprefix(CROSS_ENCODER)
    # One letter and a colon begin a path of Windows.
    if re.match(r"[\w+-]{2,}:", model) and not Path(model).is_dir():
        raise ConfigurationError(
            "the reranker must be 'score', 'none', 'auto', the path of a local folder, a hub id, "
            "cross-encoder:PATH_OR_ID, cohere:MODEL, jina:MODEL, llm:openai:MODEL, llm:openrouter:MODEL, or "
            "http(s)://HOST/v1#MODEL with nothing, tei+ (without #MODEL) or llm+ in front of it"
        )
    folder = find_model(model, revision=revision, allow_download=allow_download)
    from semlex.reranking.cross_encoder import CrossEncoderReranker, is_cross_encoder  # noqa: PLC0415 - only the chosen kind is loaded
    from semlex.reranking.qwen3 import Qwen3Reranker  # noqa: PLC0415 - as above

    reranker: Reranker
    if name == model and folder.read_json("config.json").get("model_type") == "qwen3":
        reranker = Qwen3Reranker(model, device, revision=revision)
    elif name != model or is_cross_encoder(folder):
        reranker = CrossEncoderReranker(model, device, revision=revision)
    else:
        raise ModelError(f"{folder.name} is neither a Qwen3-Reranker nor a cross-encoder; choose one of these kinds")
    return RerankerChoice(reranker, f"reranking with {model}, as configured")


def _at_server(reranker: CohereReranker | TEIReranker | LLMReranker, why: str) -> RerankerChoice:
    reason = f"reranking with {reranker.identity}, {why}; queries and candidate texts are sent to {reranker.host}"
    return RerankerChoice(reranker, reason)


def _cohere(name: str) -> CohereReranker:
    from semlex.reranking import cohere  # noqa: PLC0415 - only the chosen kind is loaded

    return cohere.CohereReranker(name.partition(":")[2] or cohere.DEFAULT_MODEL)


def _jina(name: str) -> CohereReranker:
    from semlex.reranking.cohere import CohereReranker  # noqa: PLC0415 - only the chosen kind is loaded

    return CohereReranker(name.partition(":")[2], JINA_URL)


def _cohere_form(name: str) -> CohereReranker:
    from semlex.reranking.cohere import CohereReranker  # noqa: PLC0415 - only the chosen kind is loaded

    address, model = _address_and_model(name)
    return CohereReranker(model, address)


def _tei(name: str) -> TEIReranker:
    from semlex.reranking.tei import TEIReranker  # noqa: PLC0415 - only the chosen kind is loaded

    return TEIReranker(name.removeprefix("tei+"))


def _language_model(name: str) -> LLMReranker:
    from semlex.reranking.llm import LLMReranker  # noqa: PLC0415 - only the chosen kind is loaded

    if not name.startswith("llm:"):
        address, model = _address_and_model(name.removeprefix("llm+"))
        return LLMReranker(model, address)
    provider, _, model = name.removeprefix("llm:").partition(":")
    if provider not in _LLM_PROVIDERS:
        raise ConfigurationError(
            "a language model must be named as llm:openai:MODEL, llm:openrouter:MODEL or llm+http(s)://HOST/v1#MODEL "
            f"(in {LLM_VARIABLE} without the leading llm: or llm+)"
        )
    return LLMReranker(model, _LLM_PROVIDERS[provider])


# By what stands before the first colon of a name.
_AT_SERVERS: dict[str, Callable[[str], CohereReranker | TEIReranker | LLMReranker]] = {
    "cohere": _cohere,
    "jina": _jina,
    "http": _cohere_form,
    "https": _cohere_form,
    "tei+http": _tei,
    "tei+https": _tei,
    "llm": _language_model,
    "llm+http": _language_model,
    "llm+https": _language_model,
}


def _address_and_model(name: str) -> tuple[str, str]:
    """Splits ``ADDRESS#MODEL``; the message shows neither, because an address may hold a password."""
    address, _, model = name.partition("#")
    if not model.strip():
        raise ConfigurationError(
            "the address of a reranker must end with # and the model's name: http(s)://HOST/v1#MODEL"
        )
    return address, model
