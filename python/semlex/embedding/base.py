"""What every embedder is: its protocol, its identity, and the one check that its vectors pass."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from semlex import _core
from semlex.errors import ModelError, ModelMismatchError
from semlex.models.tokenizer import TokenCounter, WordCounter
from semlex.validation import check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# A float32 vector that was normalised in float64 has a norm within 1e-6 of 1; the bound leaves room for vectors that a
# server normalised in half precision (8 bits of mantissa: 4e-3).
UNIT_NORM_TOLERANCE = 5e-3
# Weights of the vector leg in completed fusion. Averaged token vectors know little that the words do not; a model that
# was trained for retrieval and knows the language measured best with 0.6 (nDCG@10, five judged collections).
STATIC_FUSION_WEIGHT = 0.3
FITTED_FUSION_WEIGHT = 0.6
# The task of Qwen3-Embedding's card; English also for other languages, since most of the training tasks were written in
# English.
DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Everything that decides whether two vectors may be compared.

    Attributes:
        model: Hub id, or the absolute path of the model's folder.
        revision: Commit of the hub, or ``sha256:…`` of a local folder's files.
        dimensions: Length of a vector.
        instruction: Task that precedes every query, or None when queries are embedded as they are.
        pooling: How token vectors become one: ``last-token`` or ``mean``.
        normalised: Whether every vector has norm 1.
    """

    model: str
    revision: str
    dimensions: int
    instruction: str | None
    pooling: str
    normalised: bool

    @property
    def key(self) -> str:
        """One line that is equal for equal vectors: stored with a collection and compared when it is opened.

        A local folder counts by its name and content, not by where it stands.
        """
        path = PurePath(self.model)
        name = path.name if path.is_absolute() else self.model
        norm = "unit" if self.normalised else "raw"
        task = "" if self.instruction is None else f"/task:{hashlib.sha256(self.instruction.encode()).hexdigest()[:12]}"
        return f"{name}@{self.revision}/{self.dimensions}/{self.pooling}/{norm}{task}"


@runtime_checkable
class Embedder(TokenCounter, Protocol):
    """Turns texts into vectors.

    All calls block and may come from several threads; callers run them on an executor of their own. Token counts and
    offsets leave out whatever the embedder adds by itself (end token, prompt).

    An embedder may also have an attribute ``fusion_weight``, a float from 0 to 1: how much its vectors weigh against
    the words in completed fusion when a search says nothing (compare `STATIC_FUSION_WEIGHT` and
    `FITTED_FUSION_WEIGHT`). Without it the weight is 0.5. ``documents_cut``, an int: how many documents so far were
    longer than the model reads, for reports. And ``calls_at_once``, an int from 1: how many searches may ask it at
    the same time; 1 without it, because a local model uses the whole machine for one call. And ``max_tokens``,
    an int or None: how many tokens of a text the model reads. And ``least_dimensions``, an int: from which length on a
    leading part of a vector, normalised, is a vector itself; without it only whole ones are. And a method
    ``embed_queries(texts)``, which embeds n queries at once, (n, dimensions); without it they are embedded one by one.
    """

    @property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds texts as documents.

        Args:
            texts: n texts.

        Returns:
            (n, dimensions), row i for text i whatever its neighbours.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, or its vectors cannot be used.
        """
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text as a query.

        Args:
            text: The query.

        Returns:
            (dimensions,).

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, or its vector cannot be used.
        """
        ...

    def close(self) -> None:
        """Releases the model and its memory; a second call does nothing."""
        ...


class CheckedEmbedder(ABC):
    """What the embedders here have in common: texts are checked, and counted by the model's tokenizer."""

    @property
    def counter_name(self) -> str:
        """Name of the way in which tokens are counted; may open the model."""
        return self._open_tokenizer().counter_name

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds texts as documents.

        Args:
            texts: n texts.

        Returns:
            (n, dimensions), row i for text i whatever its neighbours.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, was closed, or its vectors cannot be used. Of a server:
                `ModelServerError` or `ModelMismatchError`.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        return self._embed(check_texts(texts), is_query=False)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text as a query.

        Args:
            text: The query.

        Returns:
            (dimensions,).

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
            ModelError: As for `embed_documents`.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds texts as queries.

        Args:
            texts: n queries.

        Returns:
            (n, dimensions), row i for text i whatever its neighbours.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: As for `embed_documents`.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        return self._embed(check_texts(texts), is_query=True)

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Finds where the tokens of a text stand.

        Args:
            text: The text.

        Returns:
            (t, 2) start and end in characters, without prompts and without the tokens that the model adds.

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
        """
        (checked,) = check_texts([text])
        return self._open_tokenizer().token_offsets(checked)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Counts tokens, without prompts and without the tokens that the model adds.

        Args:
            texts: n texts.

        Returns:
            (n,).

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
        """
        return self._open_tokenizer().count_tokens(check_texts(texts))

    @abstractmethod
    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Vectors of checked texts: (n, dimensions)."""

    @abstractmethod
    def _open_tokenizer(self) -> TokenCounter:
        """What counts the model's tokens."""


def check_vectors(
    vectors: NDArray[np.float32], *, rows: int, dimensions: int, model: str, normalised: bool = True
) -> NDArray[np.float32]:
    """Refuses vectors that could not be compared: the one check that every embedder's output passes.

    Args:
        vectors: What the model returned.
        rows: Number of texts that were embedded.
        dimensions: Expected length of a vector.
        model: Name of the model, for the message.
        normalised: Whether every vector must have norm 1 (within 5e-3).

    Returns:
        The vectors as a contiguous float32 array (rows, dimensions).

    Raises:
        ModelMismatchError: Another dimension than expected.
        ModelError: Another number of rows, or a row that is not finite, all zero, or not of norm 1.
    """
    checked = np.ascontiguousarray(vectors, dtype=np.float32)
    if checked.ndim != 2 or checked.shape[0] != rows:  # noqa: PLR2004 (a matrix has two axes)
        raise ModelError(
            f"{model} returned an array of shape {checked.shape} for {rows} texts; expected one row per text"
        )
    if checked.shape[1] != dimensions:
        raise ModelMismatchError(f"{model} returned vectors of dimension {checked.shape[1]}; expected {dimensions}")
    # Squares of float32 may overflow float32; NaN and infinity survive the sum, so one pass finds all three faults.
    norms = np.sqrt(np.einsum("ij,ij->i", checked, checked, dtype=np.float64))
    _refuse(~np.isfinite(norms), norms, model, "not finite", "a higher precision may help: dtype='float32'")
    _refuse(norms == 0.0, norms, model, "all zero", "the text holds nothing that the model knows")
    if normalised:
        _refuse(np.abs(norms - 1.0) > UNIT_NORM_TOLERANCE, norms, model, "not of norm 1", "normalise it")
    return checked


def normalise(vectors: NDArray[np.floating], dimensions: int | None = None) -> NDArray[np.float32]:
    """Scales every row to norm 1; a row without direction stays as it is, for `check_vectors` to name.

    Args:
        vectors: (n, d); rounded to float32 where it is wider.
        dimensions: Leading components that are kept, 1 to d; all when left out. The norm is that of the part that
            is kept, as models that are trained for cut vectors (Matryoshka representation learning) want it.

    Returns:
        (n, dimensions), the norm computed in float64.
    """
    narrow = vectors.astype(np.float32, copy=False)
    return _core.normalise_rows(narrow, vectors.shape[1] if dimensions is None else dimensions)


def unit_vectors(vectors: NDArray[np.float32], *, rows: int, dimensions: int, model: str) -> NDArray[np.float32]:
    """Vectors of norm 1, checked before the division (finite, not zero) and after it; as for `check_vectors`."""
    check_vectors(vectors, rows=rows, dimensions=dimensions, model=model, normalised=False)
    return check_vectors(normalise(vectors), rows=rows, dimensions=dimensions, model=model)


def _refuse(faulty: NDArray[np.bool_], norms: NDArray[np.float64], model: str, fault: str, remedy: str) -> None:
    rows = np.flatnonzero(faulty)
    if rows.size:
        more = f" (and {rows.size - 1} more)" if rows.size > 1 else ""
        raise ModelError(f"{model}: the vector of row {rows[0]}{more} is {fault}, norm {norms[rows[0]]:.6g}; {remedy}")


class BaseEmbedder(WordCounter, ABC):
    """An `Embedder` that lacks two things: what its vectors depend on, and the vectors of texts.

    All else has a default: queries are embedded as documents are, tokens are Unicode words, there is nothing to
    release. Override what your model does better; what counts tokens in another way has a `counter_name` of its own.

    Attributes:
        fusion_weight: How much its vectors weigh against the words in completed fusion when a search says nothing,
            0 to 1.
        calls_at_once: How many searches may ask it at the same time; more than 1 for a model behind a server.
        documents_cut: How many documents so far were longer than the model reads, for reports.
        runs_on_torch: Whether it uses torch, which cannot be used in a forked child.
    """

    fusion_weight: float = 0.5
    calls_at_once: int = 1
    documents_cut: int = 0
    runs_on_torch: bool = False

    @property
    @abstractmethod
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds n texts as documents: (n, dimensions), row i for text i whatever its neighbours.

        It blocks and may be called from several threads.
        """

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text as a query: (dimensions,)."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self.identity.dimensions

    def close(self) -> None:
        """Releases the model and its memory; here there is nothing."""
