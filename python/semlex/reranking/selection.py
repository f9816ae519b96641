"""Which reranker runs, and the one line that says so. The rules are those of `semlex.embedding.selection`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from semlex.errors import ConfigurationError
from semlex.models.device import automatic_obstacle
from semlex.reranking.qwen3 import DEFAULT_MODEL, Qwen3Reranker

if TYPE_CHECKING:
    from semlex.reranking.base import Reranker

NO_RERANKER = "none"


@dataclass(frozen=True, slots=True)
class RerankerChoice:
    """The reranker of a run.

    Attributes:
        reranker: The reranker, or None: results stay in the order of the search.
        reason: One line: what was chosen, why, and how to change it.
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

    Args:
        configured: A reranker; ``none``; the path of a local folder; a hub id; or None to choose by what is installed.
        use_reranking: ``False`` for never; ``True`` for the configured one or Qwen3-Reranker-0.6B, which must then be
            on this machine; ``auto`` for the configured one, or Qwen3-Reranker-0.6B where it is cached and there is a
            GPU.
        device: As for `semlex.reranking.qwen3.Qwen3Reranker`.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the hub may be asked for the model.

    Returns:
        The reranker, if any, and the line that says so.

    Raises:
        ConfigurationError: ``use_reranking`` is neither a bool nor ``auto``, or contradicts ``configured``.
        ModelNotFoundError: The model is not on this machine.
        ModelError: The configured model is not a Qwen3-Reranker.
        MissingExtraError: A package that the model needs is not installed.
    """
    if use_reranking not in (True, False, "auto"):
        raise ConfigurationError(f"use_reranking must be True, False or 'auto'; found {use_reranking!r}")
    if use_reranking is False:
        return RerankerChoice(None, "no reranking, as configured")
    if configured == NO_RERANKER:
        if use_reranking is True:
            raise ConfigurationError("use_reranking=True contradicts the reranker 'none'; drop one of the two")
        return RerankerChoice(None, "no reranking, as configured")
    if configured is not None and not isinstance(configured, str):
        return RerankerChoice(configured, f"reranking with the reranker that was passed, {configured.identity}")
    if configured is not None or use_reranking is True:
        name = DEFAULT_MODEL if configured is None else configured
        reranker = Qwen3Reranker(name, device, revision=revision, allow_download=allow_download)
        return RerankerChoice(reranker, f"reranking with {name}, as configured")
    obstacle = automatic_obstacle(DEFAULT_MODEL, device)
    if obstacle is not None:
        return RerankerChoice(None, f"no reranking: {obstacle}")
    reason = f"reranking with {DEFAULT_MODEL} on the GPU, found in the local cache"
    return RerankerChoice(Qwen3Reranker(device=device), reason)
