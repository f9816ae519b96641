"""Which embedder runs, and the one line that says so.

Nothing is downloaded here, the network is not touched, and torch is imported only where a model that needs it is in the
cache and a GPU's driver is in sight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.embedding.qwen3 import DEFAULT_MODEL, Qwen3EmbeddingEncoder
from semlex.embedding.static import WHEEL_MODEL, StaticEmbedder
from semlex.errors import ConfigurationError, MissingExtraError, ModelError, ModelMismatchError
from semlex.models.device import automatic_obstacle
from semlex.models.weights import find_model

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.models.weights import ModelFolder

KEYWORDS_ONLY = "none"
STATIC = "static"
_BETTER = f"better, with a GPU: --model {DEFAULT_MODEL}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The embedder of a run.

    Attributes:
        embedder: The embedder, or None: search by words alone.
        reason: One line: what was chosen, why, and how to change it.
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
) -> Choice:
    """Chooses an embedder: the configured one, else Qwen3 from the cache on a GPU, else static, else none.

    A configured embedder is used or the call fails; it is never replaced by another.

    Args:
        configured: An embedder; ``none`` for words alone; ``static``; the path of a local folder; a hub id; or None to
            choose by what is installed.
        device: For Qwen3, as for `semlex.embedding.qwen3.Qwen3EmbeddingEncoder`.
        dimensions: Length of the vectors. Qwen3 cuts its own to it; for every other embedder it is a check.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the hub may be asked for a configured model.

    Returns:
        The embedder, if any, and the line that says so.

    Raises:
        ConfigurationError: The name is an address, which no embedder here can use.
        ModelMismatchError: The embedder makes vectors of another length than ``dimensions``.
        ModelNotFoundError: The configured model is not on this machine.
        ModelError: The configured model is of a kind that is not supported.
        MissingExtraError: The configured model needs a package that is not installed.
    """
    choice = _choose(configured, device, dimensions, revision, allow_download=allow_download)
    if dimensions is not None and choice.embedder is not None and choice.embedder.dimensions != dimensions:
        raise ModelMismatchError(
            f"dimensions={dimensions} was configured, but {choice.embedder.identity.model} makes vectors of "
            f"{choice.embedder.dimensions}; drop the setting, or name another model"
        )
    return choice


def _choose(
    configured: str | Embedder | None,
    device: str | None,
    dimensions: int | None,
    revision: str | None,
    *,
    allow_download: bool,
) -> Choice:
    if configured is None:
        return _automatic_embedder(device, dimensions)
    if not isinstance(configured, str):
        return Choice(configured, f"hybrid search with the embedder that was passed, {configured.identity.model}")
    if configured == KEYWORDS_ONLY:
        return Choice(None, "keyword search only, as configured; for hybrid search: --model NAME")
    if configured in (STATIC, WHEEL_MODEL):  # the second is the name that a collection remembers
        return Choice(StaticEmbedder(), f"hybrid search with static embeddings, as configured; {_BETTER}")
    if "://" in configured:
        raise ConfigurationError(
            "the model must be 'static', 'none', the path of a local folder or a hub id; addresses of servers are not "
            "supported"
        )
    folder = find_model(configured, revision=revision, allow_download=allow_download)
    chosen: Embedder
    if folder.read_json("config.json").get("model_type") == "qwen3":
        chosen = Qwen3EmbeddingEncoder(configured, device, dimensions=dimensions, revision=revision)
    elif _is_static(folder):
        chosen = StaticEmbedder(configured, revision=revision)
    else:
        raise ModelError(f"{folder.name} is neither a Qwen3-Embedding nor a model2vec model; choose one of these kinds")
    return Choice(chosen, f"hybrid search with {folder.name}, as configured; another model: --model NAME")


def _automatic_embedder(device: str | None, dimensions: int | None) -> Choice:
    obstacle = automatic_obstacle(DEFAULT_MODEL, device)
    if obstacle is None:
        reason = f"hybrid search with {DEFAULT_MODEL} on the GPU, found in the local cache; another model: --model NAME"
        return Choice(Qwen3EmbeddingEncoder(device=device, dimensions=dimensions), reason)
    try:
        static = StaticEmbedder()
    except (MissingExtraError, ModelError) as error:
        reason = f"keyword search only ({obstacle}; {error}); for hybrid search afterwards: semlex embed --model NAME"
        return Choice(None, reason)
    return Choice(static, f"hybrid search with static embeddings (small, English; {obstacle}); {_BETTER}")


def _is_static(folder: ModelFolder) -> bool:
    if folder.read_json("config.json").get("model_type") == "model2vec":
        return True
    # model2vec writes the pipeline of sentence-transformers beside its own config.
    modules = folder.path / "modules.json"
    return modules.is_file() and "StaticEmbedding" in modules.read_text(encoding="utf-8")
