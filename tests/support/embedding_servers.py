"""Embedders of the two wire formats on a server of this machine, and the vectors that they must give."""

import numpy as np
from hypothesis import strategies as st

from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder
from tests.support.model_servers import KEY, ModelServerDouble, gemini_embeddings, openai_embeddings, vector

DIMENSIONS = 8
LINES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXTS = st.lists(LINES, max_size=20)


def openai_api(faults=(), **options):
    """A server that plays OpenAI's, with every fault on demand."""
    return ModelServerDouble(openai_embeddings(DIMENSIONS, **options), faults)


def gemini_api(faults=()):
    """A server that plays Gemini's."""
    return ModelServerDouble(gemini_embeddings(DIMENSIONS), faults)


def openai(double, **options):
    return OpenAIEmbedder(options.pop("model", "m"), f"{double.url}/v1", **options)


def gemini(double, **options):
    return GeminiEmbedder(options.pop("model", "gemini-embedding-001"), base_url=double.url, api_key=KEY, **options)


def expected(text, prompt="", dimensions=DIMENSIONS):
    """What one text's vector is: that of the prompted text, cut, of norm 1."""
    values = vector(prompt + text or " ", DIMENSIONS)[:dimensions].astype(np.float64)
    return values / np.linalg.norm(values)


def all_expected(rows, prompt="", dimensions=DIMENSIONS):
    return np.array([expected(text, prompt, dimensions) for text in rows]).reshape(len(rows), dimensions)
