"""Chooses the embedder of a collection, and says in one line why it was chosen.

Nothing is downloaded here unless that was allowed, no server is contacted, and torch is imported only if a model that
needs it is cached and there is a GPU. Texts leave this machine only if a name says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from semlex.embedding.static import WHEEL_MODEL, StaticEmbedder
from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelMismatchError
from semlex.models.files import ModelFolder, find_model, leads_to_onnx
from semlex.models.local.device import automatic_obstacle
from semlex.models.model_names import (
    ACCOUNTS,
    DEFAULT_EMBEDDING_MODEL,
    ONNX_PREFIX,
    ModelChoice,
    bare_name,
    is_path_or_hub_id,
    leads_to,
    model_and_address,
    ollama_address,
)

if TYPE_CHECKING:
    from os import PathLike

    from semlex.embedding.base import Embedder
    from semlex.embedding.remote import RemoteEmbedder

KEYWORDS_ONLY = "none"
STATIC = "static"
# Prefixes of names, before a colon.
SCHEMES = ("openai", "openrouter", "gemini", "ollama", "sentence-transformers", "onnx")
AS_CONFIGURED = "as configured"


def choose_embedder(
    configured: str | Embedder | None = None,
    *,
    device: str | None = None,
    dimensions: int | None = None,
    revision: str | None = None,
    why: str = AS_CONFIGURED,
    send_key: bool = True,
    tokenizer: str | PathLike[str] | None = None,
) -> ModelChoice[Embedder]:
    """Choose an embedder: the configured one, else Qwen3 from the cache on a GPU, else static, else none.

    A configured embedder is used or the call fails; it is never replaced by another.

    Args:
        configured: An embedder; ``none`` for keyword search only; ``static``; the path of a local folder; a hub id;
            ``sentence-transformers:NAME_OR_PATH``; ``onnx:NAME_OR_PATH``, with ``#FILE`` for one of its ONNX files; a
            model on a server: ``openai:MODEL``, ``openrouter:MODEL``, ``gemini:MODEL``, ``ollama:MODEL`` or
            ``http(s)://HOST[:PORT]/v1#MODEL``; None to choose automatically.
        dimensions: Length of the vectors. Vectors are cut to it; a static model must already have it.
        revision: Branch, tag or commit of the hub.
        why: Reason for a configured model, shown in the line about the choice.
        send_key: Whether ``SEMLEX_EMBEDDING_API_KEY`` may go to the server of a configured address.
        tokenizer: Tokenizer of a model on a server; see `semlex.models.tokenizer.given_tokenizer`.

    Raises:
        ConfigurationError: The name is unknown, the server's key is missing, or a tokenizer is named for a local model.
        ModelMismatchError: The embedder makes vectors of another length than ``dimensions``.
        ModelError: The configured model is not on this machine, or not supported.
        MissingExtraError: The configured model needs a package that is not installed.
    """
    if tokenizer is not None:
        _check_takes_tokenizer(configured)
    if configured is None:
        choice = _automatic_embedder(device, dimensions)
    elif not isinstance(configured, str):
        reason = f"hybrid search with the embedder that was passed, {configured.identity.model}"
        choice = ModelChoice(configured, reason)
    else:
        server = _at_server(configured, dimensions, tokenizer, send_key=send_key)
        if server is None:
            choice = _on_this_machine(configured, device, dimensions, revision, why=why)
        elif revision is not None:
            raise ConfigurationError(f"revision={revision!r} is for models of the hub; leave it out for a server")
        else:
            choice = ModelChoice(server, f"hybrid search with {configured}, {why}; texts are sent to {server.host}")
    if dimensions is not None and choice.model is not None and choice.model.dimensions != dimensions:
        raise ModelMismatchError(
            f"dimensions={dimensions} was configured, but {choice.model.identity.model} makes vectors of "
            f"{choice.model.dimensions}; leave dimensions out, or name another model"
        )
    return choice


def _on_this_machine(
    configured: str, device: str | None, dimensions: int | None, revision: str | None, *, why: str
) -> ModelChoice[Embedder]:
    if configured == KEYWORDS_ONLY:
        return ModelChoice(None, f"keyword search only, {why}")
    if configured in (STATIC, WHEEL_MODEL):  # the second is the name that a collection remembers
        return ModelChoice(StaticEmbedder(), f"hybrid search with static embeddings, {why}")
    if leads_to_onnx(configured, revision):
        from semlex.embedding.onnx import OnnxEmbedder  # noqa: PLC0415 - only the chosen kind is loaded

        onnx = OnnxEmbedder(configured.removeprefix(ONNX_PREFIX), dimensions=dimensions, revision=revision)
        return ModelChoice(onnx, f"hybrid search with {bare_name(configured)} ({onnx.file}, ONNX), {why}")
    from semlex.embedding.sentence_transformers import PREFIX, SentenceTransformersEmbedder, is_default_for  # noqa: PLC0415 - only the chosen kind is loaded

    chosen: Embedder
    name = configured.removeprefix(PREFIX)
    if name not in ("", configured):
        chosen = SentenceTransformersEmbedder(name, device, dimensions=dimensions, revision=revision)
        return ModelChoice(chosen, f"hybrid search with {name}, {why}")
    if not is_path_or_hub_id(configured):
        raise ConfigurationError(
            "the model must be 'static', 'none', the path of a local folder, a hub id, "
            f"{', '.join(f'{scheme}:NAME' for scheme in SCHEMES)} or http(s)://HOST[:PORT]/v1#MODEL"
        )
    folder = find_model(configured, revision=revision)
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder  # noqa: PLC0415 - only the chosen kind is loaded

    if folder.read_json("config.json").get("model_type") == "qwen3":
        chosen = Qwen3EmbeddingEncoder(configured, device, dimensions=dimensions, revision=revision)
    elif _is_static(folder):
        chosen = StaticEmbedder(configured, revision=revision)
    elif is_default_for(folder):
        chosen = SentenceTransformersEmbedder(configured, device, dimensions=dimensions, revision=revision)
    else:
        raise ModelError(
            f"{folder.name} is neither a Qwen3-Embedding nor a model2vec nor a sentence-transformers model, and has no "
            "ONNX file; choose one of these kinds"
        )
    return ModelChoice(chosen, f"hybrid search with {folder.name}, {why}")


def _check_takes_tokenizer(configured: str | Embedder | None) -> None:
    if isinstance(configured, str) and leads_to(configured) == "server":
        return
    if configured is None or configured == KEYWORDS_ONLY:
        remedy = "name such a model, or leave the tokenizer out"
    elif isinstance(configured, str):
        remedy = f"{configured} has its own tokenizer, so leave the tokenizer out"
    else:
        remedy = "give the tokenizer to your embedder, as OpenAIEmbedder(…, tokenizer=…), and leave it out here"
    raise ConfigurationError(f"a tokenizer can only be set for the name of a model on a server: {remedy}")


def _at_server(
    name: str, dimensions: int | None, tokenizer: str | PathLike[str] | None, *, send_key: bool
) -> RemoteEmbedder | None:
    """Return the embedder of a name that leads to a server; nothing is sent to it yet."""
    if leads_to(name) != "server":
        return None
    from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder  # noqa: PLC0415 - only where a server is named

    key = None if send_key else ""
    scheme, _, model = name.partition(":")
    openai = partial(OpenAIEmbedder, dimensions=dimensions, tokenizer=tokenizer)

    if not model:
        return None
    if scheme in {"openai", "openrouter"}:
        return openai(model, ACCOUNTS[scheme].url)
    if scheme == "gemini":
        return GeminiEmbedder(model, dimensions=dimensions, tokenizer=tokenizer)
    if scheme == "ollama":
        return openai(model, ollama_address(), api_key=key, name=name)
    return openai(*model_and_address(name), api_key=key) if scheme in {"http", "https"} else None


def _automatic_embedder(device: str | None, dimensions: int | None) -> ModelChoice[Embedder]:
    obstacle = automatic_obstacle(DEFAULT_EMBEDDING_MODEL, device)
    if obstacle is None:
        from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder  # noqa: PLC0415 - only the chosen kind is loaded

        reason = f"hybrid search with {DEFAULT_EMBEDDING_MODEL} on the GPU, found in the local cache"
        return ModelChoice(Qwen3EmbeddingEncoder(device=device, dimensions=dimensions), reason)
    try:
        static = StaticEmbedder()
    except (MissingExtraError, ModelError) as error:
        reason = (
            f"keyword search only ({obstacle}; {error}); to get hybrid search later: semlex models fill --model NAME"
        )
        return ModelChoice(None, reason)
    return ModelChoice(static, f"hybrid search with static embeddings (small, English; {obstacle})")


def _is_static(folder: ModelFolder) -> bool:
    if folder.read_json("config.json").get("model_type") == "model2vec":
        return True
    # model2vec writes the pipeline of sentence-transformers beside its own config.
    modules = folder.path / "modules.json"
    return modules.is_file() and "StaticEmbedding" in modules.read_text(encoding="utf-8")
