"""The values that travel: their rules, all broken ones told at once."""

from __future__ import annotations

import pytest

from semlex import ChunkMetadata, SearchQuery, ValidationError, VectorDocument


def codes(error: ValidationError) -> list[tuple[str, str]]:
    return [(found.field, found.code) for found in error.errors]


def test_a_chunk_knows_its_titles() -> None:
    chunk = ChunkMetadata("c1", "page.md", "text", 1, chapter_title="One", subsection_title=("Three", ""))
    assert chunk.heading_path == ("One", "Three")


def test_every_broken_rule_of_a_chunk_is_reported() -> None:
    with pytest.raises(ValidationError) as caught:
        ChunkMetadata("", "", "", 0)
    assert codes(caught.value) == [
        ("chunk_id", "blank"),
        ("source_document", "blank"),
        ("chunk_text", "blank"),
        ("token_count", "out_of_range"),
    ]


def test_a_vector_document_becomes_a_document() -> None:
    chunk = VectorDocument(
        "c1", "page.md", "text", 1, section_title="Two", subsection_title=("Three",), embedding=(0.5, -0.5)
    )
    document = chunk.to_document()
    assert (document.id, document.content) == ("c1", "text")
    assert document.metadata["source_document"] == "page.md"
    assert document.metadata["subsection_title"] == ["Three"]
    assert document.metadata["token_count"] == 1
    assert document.created_at == document.updated_at == chunk.created_at


@pytest.mark.parametrize("embedding", [(), (0.0, 0.0), (1.0, float("nan")), (float("inf"), 1.0)])
def test_unusable_vectors_are_refused(embedding: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError, match="embedding must have finite values"):
        VectorDocument("c1", "page.md", "text", 1, embedding=embedding)
    with pytest.raises(ValidationError):
        SearchQuery(None, embedding)


def test_a_query_of_one_character_is_legitimate_and_a_query_of_nothing_is_not() -> None:
    assert SearchQuery("C", top_k=1).query_text == "C"
    assert SearchQuery("é" * 2048, top_k=1000).top_k == 1000
    with pytest.raises(ValidationError) as caught:
        SearchQuery(" ", (0.0,), 0)
    assert codes(caught.value) == [("query", "blank"), ("vector", "not_usable"), ("top_k", "out_of_range")]
    with pytest.raises(ValidationError, match="must be given"):
        SearchQuery()
