"""A distance carries its operator, its operator class and its reading as a similarity together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from semlex.parameters import DistanceName, StorageName

MAX_DIMENSIONS = 16_000


@dataclass(frozen=True, slots=True)
class Distance:
    """One of pgvector's distances.

    Attributes:
        name: Name in our interface.
        operator: pgvector's operator.
        offset: similarity = offset - distance, so that larger is better: the cosine for cosine distance, minus the
            distance for L2, the product for inner product (whose operator returns its negative).
    """

    name: DistanceName
    operator: str
    offset: float

    def between(self, extension: sql.Identifier, column: sql.Composable, value: sql.Composable) -> sql.Composed:
        """SQL of the distance; the operator is named with its schema, so that no other can take its place."""
        operator = sql.SQL(self.operator)
        return sql.SQL("{} OPERATOR({}.{}) {}").format(column, extension, operator, value)

    def operator_class(self, storage: StorageName) -> str:
        """Name of the operator class of an index over vectors of a type."""
        kind = {"cosine": "cosine_ops", "l2": "l2_ops", "inner_product": "ip_ops"}[self.name]
        return f"{storage}_{kind}"


DISTANCES: dict[str, Distance] = {
    "cosine": Distance("cosine", "<=>", 1.0),
    "l2": Distance("l2", "<->", 0.0),
    "inner_product": Distance("inner_product", "<#>", 0.0),
}


def distance_named(name: str) -> Distance:
    """The distance of that name."""
    try:
        return DISTANCES[name]
    except KeyError:
        raise ConfigurationError(f"distance must be one of {', '.join(DISTANCES)}; got {name!r}") from None
