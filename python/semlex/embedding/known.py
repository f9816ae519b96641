"""Names that choosing an embedder needs before any kind of embedder is loaded."""

from __future__ import annotations

# The model that is chosen unasked where it is cached and there is a GPU.
DEFAULT_MODEL = "Qwen/Qwen3-Embedding-0.6B"
# Short names of `choose_embedder`: address, and variable of the key that goes there and nowhere else.
ACCOUNTS = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
