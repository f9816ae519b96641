"""Reads the files that sentence-transformers stores beside a model: modules, pooling, prompts."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from semlex.errors import ModelError

if TYPE_CHECKING:
    from semlex.models.files import ModelFolder

MODULES = "modules.json"


def own_prompt(folder: ModelFolder, *, is_query: bool) -> str:
    """Return the text that the model's files put before every query or document."""
    config = folder.read_json("config_sentence_transformers.json")
    own = config.get("prompts") or {}
    # The names that the package documents, in its order; version 6.2 itself overlooks all but the first of each.
    names = ("query",) if is_query else ("document", "passage", "corpus")
    chosen = (*names, config.get("default_prompt_name"))
    return next((own[name] for name in chosen if isinstance(own.get(name), str)), "")


def digest_recipe(folder: ModelFolder, document_prompt: str) -> hashlib._Hash:
    """Return a hash of everything but the weights that the vectors depend on: modules, their settings, the prompt."""
    digest = hashlib.sha256(document_prompt.encode())
    for path in sorted(folder.path.rglob("*.json")):
        if path.name == MODULES or path.name.endswith("config.json"):
            digest.update(path.relative_to(folder.path).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest


def read_modules(folder: ModelFolder) -> list[tuple[str, str]]:
    """Return kind and folder of each module of the pipeline, in order; empty if the model lists none."""
    path = folder.path / MODULES
    if not path.is_file():
        return []
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]
    except (OSError, ValueError, LookupError, TypeError):
        raise ModelError(f"{path} cannot be read as a list of modules; fetch the model again") from None


def pooling_in(folder: ModelFolder, module: str) -> tuple[str, ...]:
    """Return how a module combines token vectors; several ways mean that their vectors are joined."""
    config: dict[str, Any] = folder.read_json(f"{module}/config.json")
    stated = config.get("pooling_mode")
    if isinstance(stated, str):
        modes: tuple[str, ...] = (stated,)
    elif isinstance(stated, list):
        modes = tuple(map(str, stated))
    else:
        prefix = "pooling_mode_"
        modes = tuple(
            name.removeprefix(prefix).removesuffix("_tokens").removesuffix("_token")
            for name, is_on in config.items()
            if name.startswith(prefix) and is_on is True
        )
    return (*modes, "without the prompt") if config.get("include_prompt") is False else modes
