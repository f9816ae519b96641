"""Both journeys with Qwen3 models from disk: chosen by their folders, embedded, stored, found, reranked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tiny_qwen3
from semlex import PostgreSQLRetriever, Qwen3EmbeddingEncoder, Qwen3Reranker
from semlex.errors import ModelMismatchError

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# Keys\n\nRotate a key every ninety days.\n\n# Fruit\n\nA banana is yellow.\n\n# Ships\n\nShips sail the sea.\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    root = tmp_path_factory.mktemp("models")
    return str(tiny_qwen3.write_embedder(root / "embedder")), str(tiny_qwen3.write_reranker(root / "reranker"))


async def test_index_search_and_rerank(database_url: str, models: tuple[str, str], tmp_path: Path) -> None:
    embedder, reranker = models
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    options = {"reranker_model": Qwen3Reranker(reranker, "cpu", max_length=1024), "use_reranking": True}
    encoder = Qwen3EmbeddingEncoder(embedder, "cpu", max_length=1024)
    async with PostgreSQLRetriever(database_url, encoder, **options) as retriever:
        report = await retriever.index(tmp_path, chunk_tokens=16, overlap_tokens=0)
        assert report.chunks == report.embedded >= 3
        hits = await retriever.search("what colour is a banana?", top_k=2)
        assert hits.mode == "hybrid"
        assert hits.reranker_model is not None
        assert len(hits) == 2
        assert [hit.rerank_score for hit in hits] == sorted((hit.rerank_score for hit in hits), reverse=True)
        for hit in hits:
            assert hit.rerank_score is not None
            assert 0.0 <= hit.rerank_score <= 1.0
            assert hit.metadata["rerank_score"] == hit.rerank_score
            assert hit.metadata["similarity"] == hit.vector_score
        plain = await retriever.search("what colour is a banana?", top_k=2, rerank=False)
        assert plain.reranker_model is None
        assert plain[0].rerank_score is None
    encoder.close()
    with pytest.raises(ModelMismatchError):
        async with PostgreSQLRetriever(
            database_url, Qwen3EmbeddingEncoder(embedder, "cpu", max_length=1024, dimensions=32)
        ):
            pass
