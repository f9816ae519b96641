"""What every peer does: it takes the same rows, then answers the same queries, each in a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOP = 10
# How many hits of each search a fusion by hand takes, and the constant of reciprocal ranks.
DEPTH, RRF_K = 30, 60


@dataclass(frozen=True)
class Rows:
    """Rows of a folder.

    Attributes:
        folder: With `texts.json`, `vectors.npy` and, where rows are filtered, `fields.json`.
    """

    folder: Path

    @cached_property
    def texts(self) -> list[str]:
        return list(json.loads((self.folder / "texts.json").read_text(encoding="utf-8")))

    @cached_property
    def vectors(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """float32, shape (n, d), norm 1."""
        return np.load(self.folder / "vectors.npy")

    @cached_property
    def fields(self) -> dict[str, list[int]]:
        """Name -> value of each row."""
        path = self.folder / "fields.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def of(self, row: int) -> dict[str, int]:
        """The fields of a row."""
        return {name: values[row] for name, values in self.fields.items()}

    @staticmethod
    def write(
        folder: Path, texts: Sequence[str], vectors: np.ndarray[Any, Any], fields: dict[str, list[int]] | None = None
    ) -> Rows:
        """Puts rows into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "texts.json").write_text(json.dumps(list(texts)), encoding="utf-8")
        np.save(folder / "vectors.npy", vectors)
        if fields:
            (folder / "fields.json").write_text(json.dumps(fields), encoding="utf-8")
        return Rows(folder)


# A field and its value; every peer knows equality.
Where = tuple[str, int] | None


class Peer(Protocol):
    """One library. Methods may be coroutines; ids are numbers of rows.

    Args:
        place: Address of a Postgres, or folder of the peer's own.
        name: Of the collection or table.
    """

    def __init__(self, place: str, name: str) -> None:
        self.place, self.name = place, name

    def load(self, rows: Rows) -> Any:
        """Stores rows until a search finds them.

        Returns:
            If the library stored only a part: the number of rows, and the clock and processor seconds when it was done.
            Else None.
        """

    def index(self, rows: Rows) -> Any:
        """Builds the indexes that the load has left out."""

    def reopen(self, dimensions: int, fields: list[str]) -> Any:
        """Opens what another process has loaded."""

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> Any:
        """Ids of the ten best by words and vector."""

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> Any:
        """Ids of the ten nearest that pass."""

    def close(self) -> Any:
        """Releases what is held."""
