"""The protocol of an embedder, its identity, the check of its vectors, and a base class for users."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from semlex import _core
from semlex.errors import ModelError, ModelMismatchError
from semlex.forks import new_rlock
from semlex.models.model_names import bare_name
from semlex.models.tokenizer import CutTexts, TokenCounter, WordCounter
from semlex.validation import check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.models.files import ModelFolder


# A float32 vector that was normalised in float64 has a norm within 1e-6 of 1; the bound leaves room for vectors that a
# server normalised in half precision (8 bits of mantissa: 4e-3).
UNIT_NORM_TOLERANCE = 5e-3
# Weights of the vector search in score fusion, of embedders that differ from the default. Questions in a user's own
# words share few words with their answers, so a transformer that fits them needs more than half of the score.
FITTED_FUSION_WEIGHT = 0.6
TRANSFORMER_FUSION_WEIGHT = 0.7


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Everything that decides whether two vectors may be compared.

    Attributes:
        model: Hub id, or the absolute path of the model's folder.
        revision: Commit of the hub, or ``sha256:…`` of a local folder's files.
        instruction: Task that is put before every query, or None.
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
        """Return one line that is equal for comparable vectors; it has a local folder's name, not the folder's path."""
        local = bare_name(self.model)
        path = PurePath(local)
        name = self.model.replace(local, path.name, 1) if path.is_absolute() else self.model
        norm = "unit" if self.normalised else "raw"
        task = "" if self.instruction is None else f"/task:{hashlib.sha256(self.instruction.encode()).hexdigest()[:12]}"
        return f"{name}@{self.revision}/{self.dimensions}/{self.pooling}/{norm}{task}"


@runtime_checkable
class Embedder(TokenCounter, Protocol):
    """Turns texts into vectors. Calls block and may come from several threads.

    Token counts and offsets exclude tokens that the embedder adds (end token, prompt). An embedder may also have these
    attributes:

    ``fusion_weight``: float, 0 to 1: weight of its vectors in fusion ``score``; default: 0.5. ``documents_cut``: int:
    documents so far that were longer than the model reads. ``calls_at_once``: int from 1: searches that may use it at
    the same time; default: 1, for a local model. ``max_tokens``: int or None: maximum tokens of a text that the model
    reads. ``least_dimensions``: int: minimum length to which vectors can be cut and normalised.
    ``embed_queries(texts)``: a method that embeds n queries at once, (n, dimensions).
    """

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the identity, which says what the vectors depend on."""
        ...

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as documents: (n, dimensions). Row i is for text i, and no other text influences it.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, or its vectors cannot be used.
        """
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed one text as a query, (dimensions,); the errors are those of `embed_documents`."""
        ...

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        ...


class CheckedEmbedder(ABC):
    """Base class of semlex's embedders: it checks texts, and counts their tokens with the model's tokenizer."""

    @property
    def counter_name(self) -> str:
        """Return the name of the token counter; may open the model."""
        return self._open_tokenizer().counter_name

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as documents: (n, dimensions). Row i is for text i, and no other text influences it.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded, was closed, or its vectors cannot be used. If a server runs the
                model, a `ModelServerError`.
            WorkAbandonedError: The caller no longer waits for the result.
        """
        return self._embed(check_texts(texts), is_query=False)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed one text as a query, (dimensions,); the errors are those of `embed_documents`."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as queries, (n, dimensions); the errors are those of `embed_documents`."""
        return self._embed(check_texts(texts), is_query=True)

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Return start and end of every token in characters, (tokens, 2), without tokens that the model adds."""
        (checked,) = check_texts([text])
        return self._open_tokenizer().token_offsets(checked)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, (texts,), without prompts and without tokens the model adds."""
        return self._open_tokenizer().count_tokens(check_texts(texts))

    @abstractmethod
    def _embed(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return the vectors of checked texts: (texts, dimensions)."""

    @abstractmethod
    def _open_tokenizer(self) -> TokenCounter:
        """Return the token counter of the model."""


Counter = TypeVar("Counter", bound=TokenCounter)


class LocalEmbedder(CheckedEmbedder, Generic[Counter]):
    """Base class of embedders with a transformer on this machine; tokenizer and identity are read at first use."""

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder
        self._tokenizer: Counter | None = None
        self._identity: EmbedderIdentity | None = None
        self._cut = {True: CutTexts("queries", folder.name), False: CutTexts("texts", folder.name)}
        # Held while the model or its tokenizer is opened, never while it computes.
        self._opening = new_rlock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._folder.name!r})"

    @property
    def identity(self) -> EmbedderIdentity:
        """Return what the vectors depend on; may load the model."""
        with self._opening:
            if self._identity is None:
                self._identity = self._read_identity()
            return self._identity

    @property
    def documents_cut(self) -> int:
        """Return how many documents so far were longer than the model reads; only their beginnings were embedded."""
        return self._cut[False].count

    def _open_tokenizer(self) -> Counter:
        with self._opening:
            if self._tokenizer is None:
                self._tokenizer = self._read_tokenizer()
            return self._tokenizer

    @abstractmethod
    def _read_identity(self) -> EmbedderIdentity: ...

    @abstractmethod
    def _read_tokenizer(self) -> Counter: ...


def check_length(wanted: int | None, found: int, model: str, minimum: int = 1) -> None:
    """Refuse a configured length of vectors that exceeds the length of the model's vectors."""
    if wanted is not None and wanted > found:
        raise ModelMismatchError(
            f"dimensions={wanted} was configured, but {model} makes vectors of {found}; use {minimum} to {found}, or "
            "the model that the collection was made with"
        )


def check_vectors(
    vectors: NDArray[np.float32], *, rows: int, dimensions: int, model: str, normalised: bool = True
) -> NDArray[np.float32]:
    """Return vectors as contiguous float32 (rows, dimensions); refuse any that could not be compared.

    Every embedder's output passes this check.

    Raises:
        ModelMismatchError: Another dimension than expected.
        ModelError: Another number of rows, or a row that is not finite, all zero, or (if `normalised`) not of norm 1
            within 5e-3.
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
    _refuse(norms == 0.0, norms, model, "all zero", "the text contains nothing that the model knows")
    if normalised:
        _refuse(np.abs(norms - 1.0) > UNIT_NORM_TOLERANCE, norms, model, "not of norm 1", "scale it to norm 1")
    return checked


def normalise(vectors: NDArray[np.floating], dimensions: int | None = None) -> NDArray[np.float32]:
    """Scale the leading `dimensions` (None: all) of every row to norm 1, computed in float64.

    A row of zeros stays unchanged; `check_vectors` reports it.
    """
    narrow = vectors.astype(np.float32, copy=False)
    return _core.normalise_rows(narrow, vectors.shape[1] if dimensions is None else dimensions)


def unit_vectors(vectors: NDArray[np.float32], *, rows: int, dimensions: int, model: str) -> NDArray[np.float32]:
    """Scale vectors to norm 1 and check them before and after; the errors are those of `check_vectors`."""
    check_vectors(vectors, rows=rows, dimensions=dimensions, model=model, normalised=False)
    return check_vectors(normalise(vectors), rows=rows, dimensions=dimensions, model=model)


def _refuse(faulty: NDArray[np.bool_], norms: NDArray[np.float64], model: str, fault: str, remedy: str) -> None:
    rows = np.flatnonzero(faulty)
    if rows.size:
        more = f" (and {rows.size - 1} more)" if rows.size > 1 else ""
        raise ModelError(f"{model}: the vector of row {rows[0]}{more} is {fault}, norm {norms[rows[0]]:.6g}; {remedy}")


class BaseEmbedder(WordCounter, ABC):
    """Base class of your own embedder; you write `identity` and `embed_documents`.

    Queries are embedded as documents are, tokens are Unicode words, and `close` does nothing. Override what your model
    can do better; if you count tokens in another way, also set your own `counter_name`.

    Attributes:
        fusion_weight: Weight of its vectors in fusion ``score``, 0 to 1, unless a search sets another.
        calls_at_once: How many searches may use it at the same time; more than 1 for a model on a server.
        documents_cut: How many documents so far were longer than the model reads.
        runs_on_torch: Whether it uses torch, which cannot be used in a forked child.
    """

    fusion_weight: float = 0.5
    calls_at_once: int = 1
    documents_cut: int = 0
    runs_on_torch: bool = False

    @property
    @abstractmethod
    def identity(self) -> EmbedderIdentity:
        """Return the identity, which says what the vectors depend on."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as documents: (n, dimensions), row i for text i. It blocks; several threads may call it."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed one text as a query: (dimensions,)."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self.identity.dimensions

    def close(self) -> None:
        """Release the model and its memory."""
