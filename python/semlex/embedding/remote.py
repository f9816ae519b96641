"""What embedders behind a server have in common: dimensions, norms, and the count of tokens.

A server's answer is never trusted: the number of rows, their length, and every value are checked, and vectors are cut
and normalised here, whatever the server has done.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.embedding.base import CheckedEmbedder, EmbedderIdentity, unit_vectors
from semlex.errors import ModelMismatchError
from semlex.forks import new_lock
from semlex.models.remote_model import RemoteModel
from semlex.models.token_counters import find_tokenizer
from semlex.validation import check_range

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from semlex.models.token_counters import TokenCounter

PROBE = "dimension"
MAX_DIMENSIONS = 1 << 16


class RemoteEmbedder(RemoteModel, CheckedEmbedder):
    """An embedder whose model runs behind a server.

    An empty text is sent as a single space, since some servers refuse empty ones.

    Args:
        model: The server's name for it.
        base_url: Address in front of every path.
        dimensions: Length of the vectors: the leading part of what the server returns, normalised after the cut. None
            for the model's own, which is asked for, with one word, when it is first needed.
        query_prompt: Put in front of every query.
        document_prompt: Put in front of every document.
        task: What the prompts stand for in the identity, or None when there is no prompt for queries.
        tokenizer: The model's tokenizer; see `semlex.models.token_counters.find_tokenizer`.
        **options: As for `RemoteModel`; its name must be one that `semlex.embedding.registry.choose_embedder` knows.

    Raises:
        ConfigurationError: A parameter cannot be used, or a key is missing.
    """

    max_texts = 2048
    key_variable = "SEMLEX_EMBEDDING_API_KEY"
    halved_statuses = frozenset({400, 413, 422})

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        dimensions: int | None,
        query_prompt: str,
        document_prompt: str,
        task: str | None,
        tokenizer: str | PathLike[str] | None,
        **options: Any,
    ) -> None:
        super().__init__(model, base_url, **options)
        if dimensions is not None:
            check_range("dimensions", dimensions, 1, MAX_DIMENSIONS)
        self._wanted = dimensions
        self._prompts = {True: query_prompt, False: document_prompt}
        self._task = task
        self._given_tokenizer = tokenizer
        self._tokenizer: TokenCounter | None = None
        self._length: int | None = None  # of the vectors that the server returns
        self._lock = new_lock()

    @property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on; may ask the server for its dimension."""
        prompt = self._prompts[False]
        revision = f"server+{hashlib.sha256(prompt.encode()).hexdigest()[:12]}" if prompt else "server"
        return EmbedderIdentity(
            model=self._name,
            revision=revision,
            dimensions=self.dimensions,
            instruction=self._task,
            pooling="server",
            normalised=True,
        )

    @property
    def dimensions(self) -> int:
        """Length of a vector; may ask the server for it."""
        if self._wanted is not None:
            return self._wanted
        if self._length is None:
            self._embed([PROBE], is_query=False)
        return self._length or 0

    @abstractmethod
    def _ask(self, texts: list[str], *, is_query: bool) -> list[NDArray[np.float32]]:
        """One request: the vector of every text, in order, as the server made it."""

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        prompt = self._prompts[is_query]

        def ask(batch: list[str]) -> NDArray[np.float32]:
            return np.stack([self._cut(vector) for vector in self._ask(batch, is_query=is_query)])

        parts = self._in_batches(ask, [prompt + text or " " for text in texts])
        vectors = np.concatenate([np.empty((0, self.dimensions), dtype=np.float32), *parts])
        return unit_vectors(vectors, rows=len(texts), dimensions=self.dimensions, model=self._name)

    def _cut(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The leading part of a vector, whose length must be that of all vectors before it."""
        with self._lock:
            if self._length is None:
                if not max(self._wanted or 1, 1) <= vector.size <= MAX_DIMENSIONS:
                    raise ModelMismatchError(
                        f"{self._name} makes vectors of {vector.size} dimensions; "
                        f"{'expected at least one' if self._wanted is None else f'{self._wanted} were configured'}"
                    )
                self._length = vector.size
            if vector.size != self._length:
                raise ModelMismatchError(
                    f"{self._name} returned a vector of dimension {vector.size}, and {self._length} before; "
                    "does the server now run another model?"
                )
        return vector[: self._wanted]

    def _open_tokenizer(self) -> TokenCounter:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = find_tokenizer(self._model, self._given_tokenizer)
            return self._tokenizer


def read_vector(values: Any) -> NDArray[np.float32] | None:
    """Return an answer's numbers as a vector, or None if they are not numbers; infinite values are checked later."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype=np.float64).astype(np.float32)
    except OverflowError:  # a whole number of hundreds of digits
        return None
