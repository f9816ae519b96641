"""Which embedder runs, and the one line that says so.

Nothing is downloaded here unless that was allowed, no server is asked, and torch is imported only where a model that
needs it is in the cache and a GPU's driver is in sight. Models behind servers are never chosen unasked: texts leave
this machine only when a name says so.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from semlex.embedding.known import ACCOUNTS, DEFAULT_MODEL
from semlex.embedding.static import WHEEL_MODEL, StaticEmbedder
from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelMismatchError
from semlex.models.files import find_model
from semlex.models.local.device import automatic_obstacle

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.embedding.remote import ServerEmbedder
    from semlex.models.files import ModelFolder

KEYWORDS_ONLY = "none"
STATIC = "static"
OLLAMA_PORT = 11434
# What a name may begin with, before a colon.
PROVIDERS = (*ACCOUNTS, "gemini", "ollama", "sentence-transformers")
AS_CONFIGURED = "as configured"


@dataclass(frozen=True, slots=True)
class Choice:
    """The embedder of a run.

    Attributes:
        embedder: The embedder, or None: search by words alone.
        reason: One line: what was chosen, and why.
    """

    embedder: Embedder | None
    reason: str


def choose_embedder(
    configured: str | Embedder | None = None,
    *,
    device: str | None = None,
    dimensions: int | None = None,
    revision: str | None = None,
    allow_download: bool = False,
    why: str = AS_CONFIGURED,
    send_key: bool = True,
) -> Choice:
    """Chooses an embedder: the configured one, else Qwen3 from the cache on a GPU, else static, else none.

    A configured embedder is used or the call fails; it is never replaced by another.

    Args:
        configured: An embedder; ``none`` for words alone; ``static``; the path of a local folder; a hub id;
            ``sentence-transformers:NAME_OR_PATH``; a model behind a server: ``openai:MODEL``, ``openrouter:MODEL``,
            ``gemini:MODEL``, ``ollama:MODEL`` or ``http(s)://HOST[:PORT]/v1#MODEL``; or None to choose by what is
            installed. Keys come from the environment (see `OpenAIEmbedder`, `GeminiEmbedder`).
        device: For models that run in torch on this machine.
        dimensions: Length of the vectors. For static models it is a check; all others are cut to it.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the hub may be asked for a configured model.
        why: Why this model, for the line that says so.
        send_key: Whether ``SEMLEX_EMBEDDING_API_KEY`` may go to the server of a configured address.

    Returns:
        The embedder, if any, and the line that says so.

    Raises:
        ConfigurationError: The name is not of one of these forms, or the server's key is missing.
        ModelMismatchError: The embedder makes vectors of another length than ``dimensions``.
        ModelNotFoundError: The configured model is not on this machine.
        ModelError: The configured model is of a kind that is not supported.
        MissingExtraError: The configured model needs a package that is not installed.
    """
    if configured is None:
        choice = _automatic_embedder(device, dimensions)
    elif not isinstance(configured, str):
        choice = Choice(configured, f"hybrid search with the embedder that was passed, {configured.identity.model}")
    else:
        choice = _named_embedder(
            configured, device, dimensions, revision, allow_download=allow_download, why=why, send_key=send_key
        )
    if dimensions is not None and choice.embedder is not None and choice.embedder.dimensions != dimensions:
        raise ModelMismatchError(
            f"dimensions={dimensions} was configured, but {choice.embedder.identity.model} makes vectors of "
            f"{choice.embedder.dimensions}; drop the setting, or name another model"
        )
    return choice


def _named_embedder(
    configured: str,
    device: str | None,
    dimensions: int | None,
    revision: str | None,
    *,
    allow_download: bool,
    why: str,
    send_key: bool,
) -> Choice:
    if configured == KEYWORDS_ONLY:
        return Choice(None, f"keyword search only, {why}")
    if configured in (STATIC, WHEEL_MODEL):  # the second is the name that a collection remembers
        return Choice(StaticEmbedder(), f"hybrid search with static embeddings, {why}")
    server = _behind_server(configured, dimensions, send_key=send_key) if ":" in configured else None
    if server is not None:
        if revision is not None:
            raise ConfigurationError(f"revision={revision!r} is for models of the hub; a server has its own")
        return Choice(server, f"hybrid search with {configured}, {why}; texts are sent to {server.host}")
    chosen: Embedder
    provider, _, name = configured.partition(":")
    if provider == "sentence-transformers" and name:
        from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder  # noqa: PLC0415 - only the chosen kind is loaded

        chosen = SentenceTransformersEmbedder(
            name, device, dimensions=dimensions, revision=revision, allow_download=allow_download
        )
        return Choice(chosen, f"hybrid search with {name}, {why}")
    _refuse_unknown_form(configured)
    folder = find_model(configured, revision=revision, allow_download=allow_download)
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder  # noqa: PLC0415 - only the chosen kind is loaded
    from semlex.embedding.sentence_transformers import (  # noqa: PLC0415 - as above
        SentenceTransformersEmbedder,
        is_chosen_unasked,
    )

    if folder.read_json("config.json").get("model_type") == "qwen3":
        chosen = Qwen3EmbeddingEncoder(configured, device, dimensions=dimensions, revision=revision)
    elif _is_static(folder):
        chosen = StaticEmbedder(configured, revision=revision)
    elif is_chosen_unasked(folder):
        chosen = SentenceTransformersEmbedder(configured, device, dimensions=dimensions, revision=revision)
    else:
        raise ModelError(
            f"{folder.name} is neither a Qwen3-Embedding nor a model2vec nor a sentence-transformers model; choose one "
            "of these kinds"
        )
    return Choice(chosen, f"hybrid search with {folder.name}, {why}")


def _behind_server(configured: str, dimensions: int | None, *, send_key: bool) -> ServerEmbedder | None:
    """The embedder of a name that leads to a server; nothing is sent to it yet."""
    from semlex.embedding.gemini import GeminiEmbedder  # noqa: PLC0415 - only the chosen kind is loaded
    from semlex.embedding.openai import OpenAIEmbedder  # noqa: PLC0415 - as above

    key = None if send_key else ""
    if configured.startswith(("http://", "https://")):
        address, _, model = configured.partition("#")
        if not model:
            raise ConfigurationError("an address needs the name of a model behind it: http(s)://HOST[:PORT]/v1#MODEL")
        return OpenAIEmbedder(model, address, api_key=key, dimensions=dimensions)
    provider, _, model = configured.partition(":")
    if not model:
        return None
    if provider in ACCOUNTS:
        return OpenAIEmbedder(model, ACCOUNTS[provider][0], dimensions=dimensions)
    if provider == "gemini":
        return GeminiEmbedder(model, dimensions=dimensions)
    if provider == "ollama":
        return OpenAIEmbedder(model, _ollama_address(), api_key=key, name=configured, dimensions=dimensions)
    return None


def _ollama_address() -> str:
    """Address of Ollama's server: ``OLLAMA_HOST`` read as Ollama's own client reads it."""
    value = os.environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not value:
        return f"http://localhost:{OLLAMA_PORT}/v1"
    has_scheme = "://" in value
    try:
        parts = urlsplit(value if has_scheme else f"http://{value}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        raise ConfigurationError("OLLAMA_HOST must have the form [http(s)://]HOST[:PORT]") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("OLLAMA_HOST must not hold a user or password")
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (a server's own setting: every address of this machine)
        host = "127.0.0.1"
    bracketed = f"[{host}]" if ":" in host else host
    # With a scheme and no port, Ollama takes the scheme's own port.
    place = bracketed if port is None and has_scheme else f"{bracketed}:{port or OLLAMA_PORT}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}/v1"


def _refuse_unknown_form(configured: str) -> None:
    """Refuses what looks like a provider's name, but is none; one letter and a colon begin a path of Windows."""
    provider, colon, _ = configured.partition(":")
    looks_like_provider = colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+", provider)
    if "://" in configured or (looks_like_provider and not Path(configured).is_dir()):
        raise ConfigurationError(
            "the model must be 'static', 'none', the path of a local folder, a hub id, "
            f"{', '.join(f'{known}:NAME' for known in PROVIDERS)} or http(s)://HOST[:PORT]/v1#MODEL"
        )


def _automatic_embedder(device: str | None, dimensions: int | None) -> Choice:
    obstacle = automatic_obstacle(DEFAULT_MODEL, device)
    if obstacle is None:
        from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder  # noqa: PLC0415 - only the chosen kind is loaded

        reason = f"hybrid search with {DEFAULT_MODEL} on the GPU, found in the local cache"
        return Choice(Qwen3EmbeddingEncoder(device=device, dimensions=dimensions), reason)
    try:
        static = StaticEmbedder()
    except (MissingExtraError, ModelError) as error:
        reason = f"keyword search only ({obstacle}; {error}); for hybrid search afterwards: semlex embed --model NAME"
        return Choice(None, reason)
    return Choice(static, f"hybrid search with static embeddings (small, English; {obstacle})")


def _is_static(folder: ModelFolder) -> bool:
    if folder.read_json("config.json").get("model_type") == "model2vec":
        return True
    # model2vec writes the pipeline of sentence-transformers beside its own config.
    modules = folder.path / "modules.json"
    return modules.is_file() and "StaticEmbedding" in modules.read_text(encoding="utf-8")
