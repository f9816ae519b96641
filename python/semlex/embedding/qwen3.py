"""Qwen3-Embedding: last-token pooling, a prompt for queries only, vectors that can be cut to any length.

The recipe is that of the model card of Qwen/Qwen3-Embedding-0.6B: the state of the end token ``<|endoftext|>``, cut,
then normalised; queries follow ``Instruct: …`` and ``Query:`` (no space after the colon).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from semlex.embedding.base import (
    FITTED_FUSION_WEIGHT,
    EmbedderIdentity,
    LocalEmbedder,
    check_length,
    check_vectors,
    normalise,
)
from semlex.errors import ConfigurationError, ModelError
from semlex.models.files import find_model
from semlex.models.local.device import require_torch
from semlex.models.local.transformer import MAX_ROWS, RuntimeReport, Transformer, check_config
from semlex.models.model_names import DEFAULT_EMBEDDING_MODEL, DEFAULT_INSTRUCTION
from semlex.models.tokenizer import TextTokenizer, TokenRows, open_tokenizer
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray


END_TOKEN = "<|endoftext|>"  # noqa: S105 (not a password)
# Texts that are tokenized together: enough to batch rows of similar length, few enough to hold little memory.
WINDOW_TEXTS = 2_048
MIN_DIMENSIONS = 32  # the shortest leading part that the models were trained for


class Qwen3EmbeddingEncoder(LocalEmbedder[TextTokenizer]):
    """Embed with a model of the Qwen3-Embedding family.

    The constructor finds the model and reads its config, and fails if the model is missing; the weights are loaded at
    first use. Blocking, and safe for several threads.

    Args:
        model_name: Hub id, or path of a local folder.
        device: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        batch_size: Maximum texts in a forward pass, 1 to 1024; the token budget is usually the tighter limit.
        max_length: Maximum tokens of a text with its end token, 128 to 32768. Longer texts are cut and counted; a
            warning is logged from time to time.
        normalize_embeddings: Whether vectors get norm 1.
        instruction: Task that is put before queries; None for the one on the model card.
        dimensions: Length to which vectors are cut and normalised, 32 to the model's hidden size; None: the model's
            own.
        dtype: ``float32``, ``bfloat16``, ``float16``, or None for the device's (see `semlex.models.local.device`).
        revision: Branch, tag or commit of the hub.
        attn: ``trimmed`` (no padding, the last layer for last tokens alone), ``packed`` (all layers by transformers) or
            ``reference`` (padded batches); all give the same vectors.
        token_budget: Maximum tokens in a forward pass; None for a value that suits the device.
        allow_download: Whether the model may be fetched from the hub.

    Raises:
        ConfigurationError: A parameter is unknown or out of range.
        ModelMismatchError: ``dimensions`` is more than the model has.
        ModelNotFoundError: The model is not on this machine.
        MissingExtraError: torch or transformers is not installed.
    """

    fusion_weight = FITTED_FUSION_WEIGHT
    runs_on_torch = True

    def __init__(  # noqa: PLR0917 (the order that callers know: all six may be positional)
        self,
        model_name: str = DEFAULT_EMBEDDING_MODEL,
        device: str | None = None,
        batch_size: int = MAX_ROWS,
        max_length: int = 8192,
        normalize_embeddings: bool = True,
        instruction: str | None = None,
        *,
        dimensions: int | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        attn: str = "trimmed",
        token_budget: int | None = None,
        allow_download: bool = False,
    ) -> None:
        check_range("batch_size", batch_size, 1, MAX_ROWS)
        check_range("max_length", max_length, 128, 32768)
        if instruction is not None and not instruction.strip():
            raise ConfigurationError("instruction must not be blank; leave it out (None) for the one on the model card")
        require_torch("Qwen3 embedding")
        folder = find_model(model_name, revision=revision, allow_download=allow_download)
        super().__init__(folder)
        self._transformer = Transformer(
            folder,
            head="none",
            device=device,
            precision=dtype,
            batch_size=batch_size,
            token_budget=token_budget,
            attention=attn,
        )
        self._max_length = max_length
        self._instruction = instruction or DEFAULT_INSTRUCTION
        self._prompt = f"Instruct: {self._instruction}\nQuery:"
        self._prompt_start: NDArray[np.int64] | None = None
        self._end_id = -1
        hidden = check_config(folder, max_length)
        if dimensions is not None:
            check_range("dimensions", dimensions, min(MIN_DIMENSIONS, hidden), 1 << 16)
        check_length(dimensions, hidden, folder.name, MIN_DIMENSIONS)
        self._length = dimensions or hidden
        self._is_unit = normalize_embeddings

    def _read_identity(self) -> EmbedderIdentity:
        return EmbedderIdentity(
            model=self._folder.name,
            revision=self._folder.revision,
            dimensions=self._length,
            instruction=self._instruction,
            pooling="last-token",
            normalised=self._is_unit,
        )

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self._length

    @property
    def least_dimensions(self) -> int:
        """Return the minimum length to which a vector can be cut."""
        return min(MIN_DIMENSIONS, self.dimensions)

    @property
    def max_tokens(self) -> int:
        """Return the maximum tokens of a text that are read, without the end token."""
        return self._max_length - 1

    @property
    def report(self) -> RuntimeReport | None:
        """Return how the model runs and which faster ways failed, or None while it is not loaded."""
        return self._transformer.report

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        self._transformer.close()

    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Embed all texts in windows; a thread tokenizes the next window while the model reads one."""
        prompt = self._prompt_ids() if is_query else None
        prompted = [self._prompt + text for text in texts] if is_query else texts
        windows = [prompted[start : start + WINDOW_TEXTS] for start in range(0, len(prompted), WINDOW_TEXTS)]
        unit, count = self._is_unit, len(texts)
        vectors = np.empty((count, self.dimensions), dtype=np.float32)
        cut = start = 0
        with closing(prefetched(self._token_rows, windows)) as parts:
            for rows in parts:
                states = self._transformer.last_hidden(rows, kept_prefix=prompt)
                kept = normalise(states, self.dimensions) if unit else states[:, : self.dimensions]
                vectors[start : start + len(rows)] = kept
                cut += rows.cut.size
                start += len(rows)
        self._cut[is_query].add(count, cut, f"max_length={self._max_length} tokens")
        return check_vectors(vectors, rows=count, dimensions=self.dimensions, model=self._folder.name, normalised=unit)

    def _prompt_ids(self) -> NDArray[np.int64]:
        """Return the token ids before the prompt's colon. The colon is left out: it may form a token with the query."""
        tokenizer = self._open_tokenizer()
        with self._opening:
            if self._prompt_start is None:
                (self._prompt_start,) = tokenizer.ids([self._prompt.removesuffix(":")])
            return self._prompt_start

    def _token_rows(self, texts: Sequence[str]) -> TokenRows:
        """Return token ids of every text, cut if needed, each closed by the end token."""
        tokenizer = self._open_tokenizer()
        return tokenizer.encode(texts, tail=[self._end_id], most=self._max_length - 1)

    def _read_tokenizer(self) -> TextTokenizer:
        tokenizer = open_tokenizer(self._folder)
        self._end_id = _checked_end(tokenizer, self._folder.name)
        return tokenizer


def _checked_end(tokenizer: TextTokenizer, model: str) -> int:
    """Return the id of the end token, whose state is the vector; refuse a tokenizer without it."""
    end = tokenizer.token_id(END_TOKEN)
    if end is None:
        raise ModelError(f"the tokenizer of {model} lacks {END_TOKEN}; it is not one of Qwen3-Embedding")
    before, after = tokenizer.frame()
    if before or after not in ([], [end]):  # early revisions of the model appended nothing
        raise ModelError(
            f"the tokenizer of {model} adds the token ids {before} before and {after} after a text; expected only "
            f"{END_TOKEN} ({end}) after it"
        )
    return end


Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(make: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
    """Yield a function's results in the order of its items; a thread makes the next while one is used.

    If the caller may stop early, it must close the iterator (`contextlib.closing`), so that the thread ends.
    """
    if len(items) <= 1:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-prefetch") as thread:
        upcoming = thread.submit(make, items[0])
        for item in items[1:]:
            result = upcoming.result()
            upcoming = thread.submit(make, item)
            yield result
        yield upcoming.result()
