"""The folders and models that jobs may use on a worker."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, model_errors, strings_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.embedding.base import Embedder


# A role that can write to the database can submit a job. The job's paths are read with the worker's rights, and their
# texts are stored where others can search them. So a worker reads only the folders that were named at its start.
class AllowedFolders:
    """Folders that jobs may read, including everything below; none by default."""

    def __init__(self, folders: Sequence[str | Path] = ()) -> None:
        check_parameters(strings_errors("allow", [str(one) for one in folders]))
        self.roots = [Path(os.path.realpath(folder)) for folder in folders]
        for given, root in zip(folders, self.roots, strict=True):
            if not os.path.isdir(root):  # noqa: PTH112 - says False where Path would raise
                raise ConfigurationError(f"allow: {str(given)!a} is not an existing folder")

    async def check(self, paths: Sequence[str]) -> None:
        """Refuse paths that may not be read, or that this worker cannot see."""
        # A path that is missing here may exist on another machine, so it is not treated as deleted.
        for path in paths:
            await asyncio.to_thread(self._check, path)

    def _check(self, path: str) -> None:
        real: Path | None = None
        # ValueError: a NUL or a lone surrogate. OSError: a link that was replaced meanwhile.
        with suppress(OSError, ValueError):
            real = Path(os.path.realpath(path))
        if real is None or not any(real.is_relative_to(root) for root in self.roots):
            raise ConfigurationError(
                f"{path!a} is not in a folder that this worker may read: start a worker with --allow FOLDER (allow=) "
                "where it is, then: semlex jobs retry"
            )
        try:
            real.stat()
        except OSError as error:
            raise ConfigurationError(
                f"this worker cannot see {path!a} ({error.strerror}); nothing was changed. Mount it, or start a worker "
                "where it is, then: semlex jobs retry"
            ) from None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The folders and models that jobs may use on a worker."""

    folders: AllowedFolders
    models: Mapping[str, str | Embedder] = field(default_factory=dict)

    def model(self, name: str) -> str | Embedder:
        """Return the allowed model with this name."""
        if name not in self.models:
            known = ", ".join(map(repr, self.models)) or "none"
            raise ConfigurationError(
                f"this worker may not use the model {name[:200]!a} (its models: {known}): start one with "
                "--allow-model NAME (models=), then: semlex jobs retry"
            )
        return self.models[name]


def models_by_name(models: Sequence[str | Embedder]) -> dict[str, str | Embedder]:
    """Return models by the names that jobs use: the given name, or the name in the embedder's identity."""
    if isinstance(models, str) or not isinstance(models, (list, tuple)):
        raise ConfigurationError(f"models must be a list of names or embedders; got {type(models).__name__}")
    for model in models:
        is_name = isinstance(model, str)
        calls = ("identity", "embed_documents", "embed_query")
        check_parameters(
            text_errors("models", model, blank=False) if is_name else model_errors("models", model, *calls)
        )
    return {model if isinstance(model, str) else model.identity.model: model for model in models}
