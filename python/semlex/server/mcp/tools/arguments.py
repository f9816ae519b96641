"""Arguments that several tools take, as their schemas tell them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from semlex.types.queries import MAX_QUERY_BYTES

# The library's own bound is 1,000; nobody reads so many, and an assistant pays for each.
MAX_TOP_K = 50

Collection: TypeAlias = Annotated[
    str | None,
    Field(description="Name from list_collections; left out: the server's own, or the only one there is."),
]
Question: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=MAX_QUERY_BYTES, description="A question or words; also in the documents' words."),
]
TopK: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TOP_K, description="How many hits.")]
Filters: TypeAlias = Annotated[
    str | None,
    Field(
        max_length=4096,
        description="What must hold, for example: year >= 2020 and @source == 'docs'. list_fields names the fields.",
    ),
]
Mode: TypeAlias = Annotated[
    Literal["vector", "keyword", "hybrid"] | None,
    Field(description="By meaning, by words, or both (default, where there are vectors)."),
]
Document: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4096,
        description="Name or path of a document as search shows it; a line may follow (keys.md:9).",
    ),
]
Start: TypeAlias = Annotated[int, Field(ge=0, description="Character to begin at: next_start of the call before.")]
