"""Chooses the reranker of a client, and says in one line why it was chosen.

Nothing is downloaded, and no server is contacted. Texts are sent to a server later only if you named one or ``auto``;
an API key in the environment alone is not enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from semlex.errors import ConfigurationError, ModelError
from semlex.models.files import find_model, leads_to_onnx
from semlex.models.local.device import automatic_obstacle
from semlex.models.model_names import (
    ACCOUNTS,
    DEFAULT_RERANKING_MODEL,
    ONNX_PREFIX,
    ModelChoice,
    bare_name,
    environment,
    is_path_or_hub_id,
    leads_to,
    model_and_address,
)
from semlex.reranking.base import WITHOUT_HUB, Reranker

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.reranking.remote import RemoteReranker

NO_RERANKER = "none"
AUTOMATIC = "auto"
TERM_OVERLAP = "term-overlap"
CROSS_ENCODER = "cross-encoder:"
LLM_VARIABLE = "SEMLEX_LLM_MODEL"


def choose_reranker(
    configured: str | Reranker | None = None,
    use_reranking: bool | Literal["auto"] = "auto",
    *,
    device: str | None = None,
    revision: str | None = None,
) -> ModelChoice[Reranker]:
    """Choose a reranker: the configured one, else Qwen3 from the cache on a GPU, else none.

    ====================================  =====================================================  =======================
    configured                            reranker                                               key
    ====================================  =====================================================  =======================
    ``none``                              none
    ``term-overlap``                      the query's words in the texts; no model
    path of a folder, or hub id           Qwen3-Reranker or a cross-encoder, by its config.json
    ``cross-encoder:PATH_OR_ID``          a cross-encoder
    ``onnx:PATH_OR_ID``                   a cross-encoder as ONNX file, without torch
    ``cohere``                            Cohere                                                 COHERE_API_KEY or
    ``cohere:MODEL``                                                                             CO_API_KEY
    ``jina:MODEL``                        Jina                                                   JINA_API_KEY
    ``http(s)://HOST/v1#MODEL``           a server of Cohere's format                            SEMLEX_RERANKER_API_KEY
    ``tei+http(s)://HOST``                Text Embeddings Inference                              SEMLEX_RERANKER_API_KEY
    ``llm:openai:MODEL``                  a language model of OpenAI                             OPENAI_API_KEY
    ``llm:openrouter:MODEL``              a language model through OpenRouter                    OPENROUTER_API_KEY
    ``llm+http(s)://HOST/v1#MODEL``       a language model of a server of OpenAI's format        SEMLEX_RERANKER_API_KEY
    ``auto``, ``auto:MODEL``              Cohere if its key is set, else Qwen3 from the cache on
                                          a GPU, else the language model MODEL, or the one of
                                          SEMLEX_LLM_MODEL, else none
    ====================================  =====================================================  =======================

    None, the default, chooses among local models only; ``auto`` has to be named, because it may send texts to a server.

    Args:
        use_reranking: ``False``: never; ``True``: the configured one, or Qwen3-Reranker-0.6B, which must then be on
            this machine; ``auto``: the configured one, or Qwen3-Reranker-0.6B if it is cached and there is a GPU.
        device: For local models, as for `semlex.reranking.qwen3.Qwen3Reranker`.
        revision: Branch, tag or commit of the hub.

    Raises:
        ConfigurationError: ``use_reranking`` is not a bool or ``auto``, or contradicts ``configured``; a name is
            incomplete or unknown; its key is not set.
        ModelError: The model is not on this machine, or neither a Qwen3-Reranker nor a cross-encoder.
        MissingExtraError: A package that the model needs is not installed.
    """
    if use_reranking not in (True, False, "auto"):
        raise ConfigurationError(f"use_reranking must be True, False or 'auto'; got {use_reranking!r}")
    if configured == NO_RERANKER and use_reranking is True:
        raise ConfigurationError(
            "use_reranking=True contradicts the reranker 'none'; name another reranker, or leave use_reranking out"
        )
    if configured == NO_RERANKER or use_reranking is False:
        return ModelChoice(None, "no reranking, as configured")
    if configured is None and use_reranking == "auto":
        return _cached_qwen3(device)
    if configured is not None and not isinstance(configured, str):
        return ModelChoice(configured, f"reranking with the reranker that was passed, {configured.identity}")
    if configured != AUTOMATIC and not (configured or "").startswith(f"{AUTOMATIC}:"):
        return _named(configured or DEFAULT_RERANKING_MODEL, device, revision)
    choice = _automatic(device, str(configured).partition(":")[2].strip() or None)
    if choice.model is None and use_reranking is True:
        raise ConfigurationError(f"use_reranking=True, but 'auto' found nothing to rerank with ({choice.reason})")
    return choice


def _cached_qwen3(device: str | None) -> ModelChoice[Reranker]:
    obstacle = automatic_obstacle(DEFAULT_RERANKING_MODEL, device)
    if obstacle is not None:
        return ModelChoice(None, f"no reranking: {obstacle}")
    from semlex.reranking.qwen3 import Qwen3Reranker  # noqa: PLC0415 - only the chosen kind is loaded

    reason = f"reranking with {DEFAULT_RERANKING_MODEL} on the GPU, found in the local cache"
    return ModelChoice(Qwen3Reranker(device=device), reason)


def _automatic(device: str | None, named: str | None) -> ModelChoice[Reranker]:
    """Choose a reranker for ``auto``; `named` is the language model in ``auto:MODEL``, or None."""
    variable = ACCOUNTS["cohere"].variable
    if environment(variable) is not None:
        return _named("cohere", why=f"because {variable} is set")
    local = _cached_qwen3(device)
    if local.model is not None:
        return local
    language_model = named or environment(LLM_VARIABLE)
    if language_model is not None:
        is_address = language_model.startswith(("http://", "https://"))
        why = "because 'auto:…' names it" if named else f"because {LLM_VARIABLE} names it"
        return _named(f"llm{'+' if is_address else ':'}{language_model}", why=why)
    return ModelChoice(None, f"{local.reason}; neither {ACCOUNTS['cohere'].variables[0]} nor {LLM_VARIABLE} is set")


def _named(
    name: str, device: str | None = None, revision: str | None = None, *, why: str = "as configured"
) -> ModelChoice[Reranker]:
    if name == TERM_OVERLAP:
        from semlex.reranking.term_overlap import TermOverlapReranker  # noqa: PLC0415 - only the chosen kind is loaded

        return ModelChoice(
            TermOverlapReranker(), "reranking by the query's words in the texts, as configured; no model"
        )
    server = _at_server(name)
    if server is not None:
        reason = f"reranking with {server.identity}, {why}; queries and candidate texts are sent to {server.host}"
        return ModelChoice(server, reason)
    if leads_to_onnx(name, revision):
        from semlex.reranking.onnx import OnnxReranker  # noqa: PLC0415 - only the chosen kind is loaded

        onnx = OnnxReranker(name.removeprefix(ONNX_PREFIX), revision=revision)
        return ModelChoice(onnx, f"reranking with {bare_name(name)} (ONNX), as configured")
    model = name.removeprefix(CROSS_ENCODER)
    if not is_path_or_hub_id(model):
        raise ConfigurationError(
            "the reranker must be 'term-overlap', 'none', 'auto', the path of a local folder, a hub id, "
            "cross-encoder:PATH_OR_ID, onnx:PATH_OR_ID, cohere:MODEL, jina:MODEL, llm:openai:MODEL, "
            "llm:openrouter:MODEL, http(s)://HOST/v1#MODEL, tei+http(s)://HOST or llm+http(s)://HOST/v1#MODEL"
        )
    folder = find_model(model, revision=revision, without_hub=WITHOUT_HUB)
    from semlex.reranking.cross_encoder import CrossEncoderReranker, is_cross_encoder  # noqa: PLC0415 - only the chosen kind is loaded
    from semlex.reranking.qwen3 import Qwen3Reranker  # noqa: PLC0415 - as above

    reranker: Reranker
    if name == model and folder.read_json("config.json").get("model_type") == "qwen3":
        reranker = Qwen3Reranker(model, device, revision=revision)
    elif name != model or is_cross_encoder(folder):
        reranker = CrossEncoderReranker(model, device, revision=revision)
    else:
        raise ModelError(f"{folder.name} is neither a Qwen3-Reranker nor a cross-encoder; choose one of these kinds")
    return ModelChoice(reranker, f"reranking with {model}, as configured")


def _at_server(name: str) -> RemoteReranker | None:
    """Return the reranker of a name that leads to a server; nothing is sent to it yet."""
    if leads_to(name) != "server":
        return None
    from semlex.reranking.remote import DEFAULT_COHERE_MODEL, CohereReranker, LLMReranker, TEIReranker  # noqa: PLC0415 - only the chosen kind is loaded

    scheme, _, rest = name.partition(":")
    address = name.removeprefix("tei+").removeprefix("llm+")

    def chat_model() -> RemoteReranker:
        account, _, model = rest.partition(":")
        if account not in ("openai", "openrouter"):
            raise ConfigurationError(
                "a language model must be named as llm:openai:MODEL, llm:openrouter:MODEL or "
                f"llm+http(s)://HOST/v1#MODEL (in {LLM_VARIABLE} without the leading llm: or llm+)"
            )
        return LLMReranker(model, ACCOUNTS[account].url)

    factories: dict[str, Callable[[], RemoteReranker]] = {
        "cohere": lambda: CohereReranker(rest or DEFAULT_COHERE_MODEL),
        "jina": lambda: CohereReranker(rest, ACCOUNTS["jina"].url),
        "http": lambda: CohereReranker(*model_and_address(address)),
        "tei+http": lambda: TEIReranker(address),
        "llm": chat_model,
        "llm+http": lambda: LLMReranker(*model_and_address(address)),
    }
    factory = factories.get(scheme.replace("https", "http"))
    return None if factory is None else factory()
