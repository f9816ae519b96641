"""What is known of the sets of vectors of a collection, and what a change of the model did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from semlex.types.documents import json_value

if TYPE_CHECKING:
    from datetime import datetime

    from semlex.parameters import StorageName


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFigures:
    """One set of vectors of a collection.

    Attributes:
        version: Number, from 1; none is given twice.
        state: ``serving`` whoever opens the collection, ``building`` (in the making), or ``old``: those who hold its
            model go on with it, and `rollback_embeddings` leads back to it.
        model: Name of the model.
        revision: Its revision, or None.
        dimensions: Length of each vector.
        storage: ``vector`` or ``halfvec``.
        vectors: Chunks that have one.
        lacking: Chunks that have none.
        bytes: Of its table with its indexes.
        created_at: When it was made, in UTC.
        idle_seconds: Since a process that holds its model has used it, while another one serves; None: none has.
        is_running: Whether a process fills it at this moment.
        calibration: What its cosines mean, as `ConfidenceCurve.to_dict` gives it; None while nobody has calibrated it.
    """

    version: int
    state: Literal["serving", "building", "old"]
    model: str
    revision: str | None
    dimensions: int
    storage: StorageName
    vectors: int
    lacking: int
    bytes: int
    created_at: datetime
    idle_seconds: float | None
    is_running: bool
    calibration: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Every attribute by its name, of JSON's types only."""
        values: dict[str, Any] = json_value(self)
        return values


@dataclass(slots=True, kw_only=True)
class ReembedReport:
    """What a change of the model did.

    Attributes:
        version: Number of the set of vectors that serves now; with `dry_run` of the one that would be continued, or
            None for a new one.
        previous: Number of the one that served before, or None.
        model: Its model.
        dimensions: Length of its vectors.
        storage: ``vector`` or ``halfvec``.
        chunks: Chunks of the collection.
        embedded: Vectors that were made; with `dry_run`, that would be.
        resumed: Whether an earlier run had begun.
        cut: Texts of which the model read only the beginning, as far as it reports that.
        sampled: Texts that were embedded once more and compared with what is stored.
        recall: Share of the 10 nearest that the vector index finds, 0 to 1; None without an index.
        indexes: Names of the indexes that were built.
        lacking: Chunks that have no vector of the version that serves now; above 0 only where that was forced.
        dry_run: Whether nothing was done.
        seconds: Wall time.
        warnings: What should be known.
    """

    version: int | None
    previous: int | None
    model: str
    dimensions: int
    storage: StorageName
    chunks: int = 0
    embedded: int = 0
    resumed: bool = False
    cut: int = 0
    sampled: int = 0
    recall: float | None = None
    indexes: list[str] = field(default_factory=list)
    lacking: int = 0
    dry_run: bool = False
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
