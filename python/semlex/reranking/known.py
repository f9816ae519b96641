"""Names that choosing a reranker needs before any kind of reranker is loaded."""

from __future__ import annotations

import os

# The model that is chosen unasked where it is cached and there is a GPU.
DEFAULT_MODEL = "Qwen/Qwen3-Reranker-0.6B"
COHERE_URL = "https://api.cohere.com/v2"
JINA_URL = "https://api.jina.ai/v1"
OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
# Environment variables of the key that goes to an address and nowhere else.
KEY_VARIABLES = {
    COHERE_URL: ("COHERE_API_KEY", "CO_API_KEY"),
    JINA_URL: ("JINA_API_KEY",),
    OPENAI_URL: ("OPENAI_API_KEY",),
    OPENROUTER_URL: ("OPENROUTER_API_KEY",),
}


def environment(variable: str) -> str | None:
    """An environment variable; a blank one counts as not set."""
    return os.environ.get(variable, "").strip() or None
