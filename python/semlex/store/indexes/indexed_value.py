"""What a vector index holds of each vector: all of it, float16 numbers, or signs; and how that is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.indexes.options import HnswIndex

if TYPE_CHECKING:
    from semlex.parameters import StorageName
    from semlex.store.indexes.options import IvfflatIndex
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.distance import Distance

Element = Literal["vector", "halfvec", "bit"]
# Dimensions that pgvector indexes, by type.
MAX_INDEXED_DIMENSIONS: dict[Element, int] = {"vector": 2_000, "halfvec": 4_000, "bit": 64_000}


@dataclass(frozen=True, slots=True)
class IndexedValue:
    """What an index holds of each vector of a collection.

    Attributes:
        element: pgvector's type of it.
        storage: pgvector's type of the stored vectors.
        dimensions: Length of each vector.
        distance: Of the collection.
        extension: Schema of pgvector.
    """

    element: Element
    storage: StorageName
    dimensions: int
    distance: Distance
    extension: sql.Identifier

    @property
    def is_whole(self) -> bool:
        """Whether the index holds vectors as they are stored."""
        return self.element == self.storage

    @property
    def operator_class(self) -> str:
        """Name of the index's operator class."""
        return "bit_hamming_ops" if self.element == "bit" else self.distance.operator_class(self.element)

    def of(self, vector: sql.Composable) -> sql.Composable:
        """SQL of what the index holds of a vector.

        Cosine does not ask for the length of a vector, so it becomes 1 before float16: nothing overflows, and nothing
        becomes zero.
        """
        if self.is_whole:
            return vector
        dimensions = sql.Literal(self.dimensions)
        if self.element == "bit":
            return sql.SQL("{}.binary_quantize({})::bit({})").format(self.extension, vector, dimensions)
        if self.distance.name == "cosine":
            vector = sql.SQL("{}.l2_normalize({})").format(self.extension, vector)
        return sql.SQL("{}::{}.halfvec({})").format(vector, self.extension, dimensions)

    def between(self, column: sql.Composable, query: sql.Composable) -> sql.Composable:
        """SQL of the distance that the index knows, between a column and a query of the stored type."""
        if self.element == "bit":
            return sql.SQL("{} OPERATOR({}.<~>) {}").format(self.of(column), self.extension, self.of(query))
        return self.distance.between(self.extension, self.of(column), self.of(query))


def indexed_value(collection: CollectionInfo, element: Element) -> IndexedValue:
    """What an index of that type holds of a collection's vectors."""
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection holds no vectors")
    extension = collection.server.extension
    return IndexedValue(element, embedding.storage, embedding.dimensions, collection.distance, extension)


def value_for(collection: CollectionInfo, index: HnswIndex | IvfflatIndex) -> IndexedValue:
    """What an index with these options holds."""
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection holds no vectors, so there is nothing to index")
    dimensions, distance = embedding.dimensions, collection.distance.name
    wanted = index.quantization if isinstance(index, HnswIndex) else None
    if wanted == "bit" and distance != "cosine":
        raise ConfigurationError(
            f"quantization 'bit' keeps the direction of a vector alone, which is what distance 'cosine' compares; this "
            f"collection has {distance!r}: take quantization='halfvec', or none"
        )
    element: Element = wanted or embedding.storage
    if wanted is None and dimensions > MAX_INDEXED_DIMENSIONS[element]:
        element = "halfvec"
        if dimensions > MAX_INDEXED_DIMENSIONS[element] and isinstance(index, HnswIndex) and distance == "cosine":
            element = "bit"
    if dimensions > MAX_INDEXED_DIMENSIONS[element]:
        instead = "HnswIndex(quantization='bit')" if distance == "cosine" else "NoIndex(), which searches exactly"
        raise ConfigurationError(
            f"pgvector indexes at most {MAX_INDEXED_DIMENSIONS[element]:,} dimensions of {element}; these vectors have "
            f"{dimensions:,}: take {instead}"
        )
    return indexed_value(collection, element)
