"""To which models a worker changes collections.

A job names one, and does no more than that: which model a name leads to is what the worker was started with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, model_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.embedding.base import Embedder
    from semlex.jobs.allowed_folders import AllowedFolders


@dataclass(frozen=True, slots=True)
class Allowed:
    """What jobs may use of a worker.

    Attributes:
        folders: Folders that they may read.
        models: Models that they may name.
    """

    folders: AllowedFolders
    models: Mapping[str, str | Embedder] = field(default_factory=dict)

    def model(self, name: str) -> str | Embedder:
        """The model of a name."""
        if name not in self.models:
            known = ", ".join(map(repr, self.models)) or "none"
            raise ConfigurationError(
                f"this worker changes no collection to {name[:200]!a} (its models: {known}): start one with "
                "--allow-model NAME (models=), then: semlex jobs retry"
            )
        return self.models[name]


def models_by_name(models: Sequence[str | Embedder]) -> dict[str, str | Embedder]:
    """Models by the names that jobs use: as it was given, or as the embedder calls its own."""
    if isinstance(models, str) or not isinstance(models, (list, tuple)):
        raise ConfigurationError(f"models must be a list of names or embedders; got {type(models).__name__}")
    for model in models:
        is_name = isinstance(model, str)
        calls = ("identity", "embed_documents", "embed_query")
        check_parameters(
            text_errors("models", model, blank=False) if is_name else model_errors("models", model, *calls)
        )
    return {model if isinstance(model, str) else model.identity.model: model for model in models}
