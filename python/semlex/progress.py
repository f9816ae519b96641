"""What is told of long work: while it goes on, and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semlex.documents.loading import FileProblem


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long piece of work has come.

    Attributes:
        stage: ``read``, ``embed``, ``write`` or ``build indexes``.
        done: Units done.
        total: Units in all, or None while unknown.
        unit: ``files``, ``chunks`` or ``rows``.
    """

    stage: str
    done: int
    total: int | None
    unit: str


@dataclass(slots=True)
class IndexReport:
    """What a run did.

    Attributes:
        added: New documents.
        changed: Documents whose text changed.
        unchanged: Documents that were skipped.
        failed: Files that could not be read; each is in `problems`.
        chunks: Chunks written.
        embedded: Vectors computed.
        cut: Chunks of which the model read only the beginning, as far as it tells.
        seconds: Wall time.
        problems: One per failed file.
        warnings: What else did not go as asked, for example an index that could not be built.
    """

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    failed: int = 0
    chunks: int = 0
    embedded: int = 0
    cut: int = 0
    seconds: float = 0.0
    problems: list[FileProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
