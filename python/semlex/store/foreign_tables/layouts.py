"""What the tables of other libraries look like: which column is what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LayoutName = Literal["langchain-postgres", "langchain-pgvector", "llama-index", "haystack", "pgvector"]
VECTORS = ("vector", "halfvec")
# What was made of another column of the same row, and is made anew here.
DERIVED = frozenset({"tsvector"})
# What no JSON value is made of.
NO_JSON = frozenset({"bytea", "vector", "halfvec", "sparsevec", "bit", "varbit"})


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a table are what.

    Attributes:
        name: As users write it.
        made_by: What makes such tables, for people.
        id: Names a row.
        text: Its text.
        vector: Its vector, of a type in `VECTORS`.
        metadata: A JSON object; the column may be missing where it is not in `needed`.
        needed: Columns that a table must have besides id, text and vector.
        others: Whether all other columns are metadata, each under its name.
        later: Of rows with one id the one that has most in this column counts; None where ids are unique.
        prefix: What the library puts before the name that users give.
    """

    name: LayoutName
    made_by: str
    id: str
    text: str
    vector: str
    metadata: str
    needed: frozenset[str] = frozenset()
    others: bool = False
    later: str | None = None
    prefix: str = ""

    def fits(self, types: Mapping[str, str]) -> bool:
        """Whether a table with columns of these types is one of these."""
        return not self.missing(types) and types[self.vector] in VECTORS

    def missing(self, types: Mapping[str, str]) -> list[str]:
        """The columns that a table lacks."""
        return [name for name in (self.id, self.text, self.vector, *sorted(self.needed)) if name not in types]

    def others_in(self, types: Mapping[str, str]) -> list[str]:
        """The other columns of a table that hold something which is not made of its text."""
        taken = {self.id, self.text, self.vector, self.metadata, self.later}
        return [name for name, kind in types.items() if name not in taken and kind not in DERIVED]

    def with_columns(self, columns: Mapping[str, str | None]) -> Layout:
        """The layout of tables whose columns have names of the user's; None is the usual one."""
        named: dict[str, Any] = {attribute: name for attribute, name in columns.items() if name is not None}
        needed = self.needed - {getattr(self, attribute) for attribute in named}
        if "metadata" in named:
            needed |= {named["metadata"]}
        return replace(self, **named, needed=needed)


COLLECTIONS, EMBEDDINGS = "langchain_pg_collection", "langchain_pg_embedding"

LAYOUTS: Mapping[LayoutName, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "langchain-postgres",
            "PGVectorStore of langchain-postgres",
            "langchain_id",
            "content",
            "embedding",
            "langchain_metadata",
            others=True,
        ),
        Layout(
            "langchain-pgvector",
            "PGVector of langchain-postgres",
            "id",
            "document",
            "embedding",
            "cmetadata",
            frozenset({"collection_id", "cmetadata"}),
        ),
        Layout(
            "llama-index",
            "PGVectorStore of LlamaIndex",
            "node_id",
            "text",
            "embedding",
            "metadata_",
            frozenset({"id", "metadata_"}),
            later="id",
            prefix="data_",
        ),
        Layout(
            "haystack",
            "PgvectorDocumentStore of Haystack",
            "id",
            "content",
            "embedding",
            "meta",
            frozenset({"meta", "blob_data", "blob_meta", "blob_mime_type"}),
        ),
        Layout("pgvector", "anything else", "id", "text", "vector", "metadata", others=True),
    )
}
# A table is not taken for the last one without being asked: any with such names would be one.
RECOGNISED: Sequence[LayoutName] = [name for name in LAYOUTS if name != "pgvector"]
