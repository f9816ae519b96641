"""Options for the vector index, as users give them, and their stored form."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any, Literal, get_args

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, check_range, kind_errors

Quantization = Literal["halfvec", "bit"]
# pgvector's own bounds.
MAX_LISTS = 32_768


@dataclass(frozen=True, slots=True)
class HnswIndex:
    """An HNSW index: a graph; the fastest to search, the slowest to build.

    Attributes:
        m: Connections per node and layer, 2 to 100.
        ef_construction: Candidates examined for each new vector, 4 to 1,000 and at least 2 m.
        quantization: The form in which the index stores each vector: ``halfvec`` (float16, about half the size),
            ``bit`` (one bit per dimension, a twentieth of the size at 1,024 dimensions, a quarter at 256; distance
            ``cosine`` only), or None: the whole vector, but ``halfvec`` above 2,000 dimensions and ``bit`` above 4,000,
            which are limits of pgvector. Hits found in a smaller form are rescored with the whole vectors.

    Raises:
        ConfigurationError: A number is out of range.
    """

    # A better graph finds the same with a shorter list (`m` 24, `ef_construction` 128), but takes 1.5 to 1.8 times as
    # long to build; people wait for a load, so the list is longer instead.
    m: int = 16
    ef_construction: int = 64
    quantization: Quantization | None = None

    def __post_init__(self) -> None:
        check_range("m", self.m, 2, 100)
        check_range("ef_construction", self.ef_construction, max(4, 2 * self.m), 1000)
        check_parameters(kind_errors("quantization", self.quantization, str, NoneType))
        if self.quantization is not None and self.quantization not in get_args(Quantization):
            raise ConfigurationError(
                f"quantization must be {' or '.join(get_args(Quantization))}, or None; got {self.quantization[:20]!r}"
            )


@dataclass(frozen=True, slots=True)
class IvfflatIndex:
    """An IVFFlat index: lists around centres; smaller and quicker to build than a graph, but slower to search.

    It is made for the existing rows: build it after the load, and again when the collection has grown much.

    Attributes:
        lists: Number of lists, 1 to 32,768; None is a thousandth of the rows; above a million rows, their square root.
        probes: Lists that a search looks into, 1 to `lists`; None is the square root of `lists`.

    Raises:
        ConfigurationError: A number is out of range.
    """

    lists: int | None = None
    probes: int | None = None

    def __post_init__(self) -> None:
        if self.lists is not None:
            check_range("lists", self.lists, 1, MAX_LISTS)
        if self.probes is not None:
            check_range("probes", self.probes, 1, self.lists or MAX_LISTS)


@dataclass(frozen=True, slots=True)
class NoIndex:
    """No vector index: every vector search is exact, and its time grows with the number of rows."""


VectorIndex = HnswIndex | IvfflatIndex | NoIndex
KINDS: dict[str, type[VectorIndex]] = {"hnsw": HnswIndex, "ivfflat": IvfflatIndex, "none": NoIndex}


def default_lists(rows: int) -> int:
    """Return the number of lists that pgvector advises."""
    return max(1, min(rows // 1000, math.isqrt(rows)))


def default_probes(lists: int) -> int:
    """Return the number of lists to search that pgvector advises."""
    return max(1, math.isqrt(lists))


def kind_of(index: VectorIndex) -> str:
    """Return the kind of an index: ``hnsw``, ``ivfflat`` or ``none``."""
    return next(name for name, kind in KINDS.items() if isinstance(index, kind))


def as_text(index: VectorIndex) -> str:
    """Return the stored form of an index."""
    return json.dumps({"index": kind_of(index), **asdict(index)})


def from_text(text: str | None) -> VectorIndex | None:
    """Return the index that a stored form describes; None for any other text."""
    try:
        found: Any = json.loads(text or "")
        return KINDS[found.pop("index")](**found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
