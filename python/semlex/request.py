"""What is asked of a retriever, checked before anything runs: queries, vectors, ids."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.fusion import FusionMethod, check_fusion
from semlex.store.filters import Filter, parse_filters
from semlex.store.vector import MAX_EF_SEARCH
from semlex.types import MAX_ID_BYTES, SearchMode, SearchQuery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

MAX_CANDIDATES = 10_000


def checked_array(values: ArrayLike, dimensions: int = 2) -> NDArray[np.float32]:
    """Vectors as float32. A list is converted; an array must be float32 already, so that nothing is rounded unseen.

    Raises:
        ValidationError: Another dtype or number of axes.
    """
    name = "vector" if dimensions == 1 else "embeddings"
    if isinstance(values, np.ndarray) and values.dtype != np.float32:
        error = FieldError(-1, None, name, "wrong_dtype", "float32", str(values.dtype))
        raise ValidationError([error])
    try:
        array = np.asarray(values, dtype=np.float32, order="C")
    except (ValueError, TypeError, OverflowError):
        # The reason quotes the value.
        raise ValidationError([FieldError(-1, None, name, "wrong_dtype", "float32", "ragged or not numbers")]) from None
    if array.ndim != dimensions or array.shape[-1] == 0:
        expected = "(d,)" if dimensions == 1 else "(n, d)"
        raise ValidationError([FieldError(-1, None, name, "wrong_shape", expected, str(array.shape))])
    return array


def check_ids(ids: Sequence[str]) -> None:
    """Refuses ids that cannot stand in the database.

    Raises:
        ValidationError: With every unusable id's place.
    """
    if isinstance(ids, str):
        raise ValidationError([FieldError(-1, None, "ids", "wrong_type", "list of str", "str")])
    errors = []
    for row, chunk_id in enumerate(ids):
        if not isinstance(chunk_id, str):
            errors.append(FieldError(row, None, "id", "wrong_type", "str", type(chunk_id).__name__))
            continue
        try:
            size = len(chunk_id.encode())
        except UnicodeEncodeError as error:
            errors.append(FieldError(row, None, "id", "lone_surrogate", None, f"character {error.start}"))
            continue
        if size > MAX_ID_BYTES:
            errors.append(FieldError(row, None, "id", "too_long", f"{MAX_ID_BYTES} bytes", f"{size} bytes"))
        elif "\0" in chunk_id:
            errors.append(FieldError(row, None, "id", "nul", None, f"character {chunk_id.index(chr(0))}"))
    if errors:
        raise ValidationError(errors)


@dataclass(frozen=True, slots=True)
class Request:
    """A checked search. The fields are the arguments of `PostgreSQLRetriever.search`."""

    text: str | None
    vector: NDArray[np.float32] | None
    top_k: int
    condition: Filter
    mode: SearchMode | None
    fusion: FusionMethod
    weights: Mapping[str, float] | None
    rrf_k: float
    candidates: int | None
    ef_search: int | None
    deadline: float | None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def checked(
        cls,
        *,
        query: str | None,
        vector: ArrayLike | None,
        top_k: int,
        filters: Mapping[str, Any] | None,
        mode: SearchMode | None,
        candidates: int | None,
        ef_search: int | None,
        deadline: float | None,
        fusion: FusionMethod,
        weights: Mapping[str, float] | None,
        rrf_k: float,
    ) -> Request:
        """Checks the arguments of a search.

        Raises:
            ValidationError: What is wrong with the query, the vector, top_k or the filters.
            ConfigurationError: What is wrong with another parameter.
        """
        array = None if vector is None else checked_array(vector, 1)
        SearchQuery(query, None if array is None else (1.0,), top_k)
        faults = [] if array is None else vector_faults(array)
        if faults:
            raise ValidationError(faults)
        if mode not in (None, "vector", "keyword", "hybrid"):
            raise ConfigurationError(f"mode must be 'vector', 'keyword' or 'hybrid'; got {mode!r}")
        if mode == "keyword" and query is None:
            raise ConfigurationError("mode 'keyword' needs a query text")
        if candidates is not None and not (isinstance(candidates, int) and top_k <= candidates <= MAX_CANDIDATES):
            raise ConfigurationError(f"candidates must be top_k ({top_k}) to {MAX_CANDIDATES}; got {candidates!r}")
        if ef_search is not None and not (isinstance(ef_search, int) and 1 <= ef_search <= MAX_EF_SEARCH):
            raise ConfigurationError(f"ef_search must be 1 to {MAX_EF_SEARCH}; got {ef_search!r}")
        if deadline is not None and not (
            isinstance(deadline, (int, float)) and math.isfinite(deadline) and deadline > 0
        ):
            raise ConfigurationError(f"deadline must be a positive number of seconds; got {deadline!r}")
        check_fusion(fusion, weights, rrf_k)
        text = None if query is None else query.strip()
        condition = parse_filters(filters)
        return cls(text, array, top_k, condition, mode, fusion, weights, rrf_k, candidates, ef_search, deadline)

    def remaining(self) -> float | None:
        """Seconds until the deadline (at least a millisecond), or None without one."""
        if self.deadline is None:
            return None
        return max(0.001, self.deadline - (time.perf_counter() - self.started))


def vector_faults(vector: NDArray[np.float32]) -> list[FieldError]:
    """What is wrong with a query vector, by the rule for stored ones.

    A length out of float32's range would make every cosine NaN.
    """
    found = _core.validate_rows([("vector", "vector", vector[None], None)])
    return [FieldError(-1, None, *error[2:]) for error in found]
