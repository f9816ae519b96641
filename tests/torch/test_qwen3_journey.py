"""Both journeys with Qwen3 models from disk: chosen by their folders, embedded, stored, found, reranked."""

import pytest

from semlex import Document, PostgreSQLRetriever, Qwen3EmbeddingEncoder, Qwen3Reranker
from semlex.errors import ModelMismatchError
from tests.support import model_cache, tiny_qwen3
from tests.support.folders import folder_with

PAGE = "# Keys\n\nRotate a key every ninety days.\n\n# Fruit\n\nA banana is yellow.\n\n# Ships\n\nShips sail the sea.\n"


async def test_index_search_and_rerank(database_url, embedder_folder, tmp_path):
    reranker = str(tiny_qwen3.write_reranker(tmp_path / "reranker"))
    docs = folder_with(tmp_path / "docs", {"page.md": PAGE})
    options = {"reranker_model": Qwen3Reranker(reranker, "cpu", max_length=1024), "use_reranking": True}
    encoder = Qwen3EmbeddingEncoder(str(embedder_folder), "cpu", max_length=1024)
    async with PostgreSQLRetriever(database_url, encoder, **options) as retriever:
        report = await retriever.index(docs, chunk_tokens=16, overlap_tokens=0)
        assert report.chunks == report.embedded >= 3
        hits = await retriever.search("what colour is a banana?", top_k=2)
        assert (hits.mode, len(hits)) == ("hybrid", 2)
        assert hits.reranker_model is not None
        assert [hit.mixed_score for hit in hits] == sorted((hit.mixed_score for hit in hits), reverse=True)
        for hit in hits:
            assert 0.0 <= hit.rerank_score <= 1.0
            assert hit.metadata["rerank_score"] == hit.rerank_score
            assert hit.metadata["similarity"] == hit.vector_score
        plain = await retriever.search("what colour is a banana?", top_k=2, rerank=False)
        assert plain.reranker_model is plain[0].rerank_score is None
    encoder.close()
    short = Qwen3EmbeddingEncoder(str(embedder_folder), "cpu", max_length=1024, dimensions=32)
    with pytest.raises(ModelMismatchError):
        async with PostgreSQLRetriever(database_url, short):
            pass


async def test_a_shorter_vector_is_remembered_by_the_collection(database_url, tmp_path):
    embedder = str(model_cache.write_embedder(tmp_path / "embedder"))  # reads texts of the default length
    short = Qwen3EmbeddingEncoder(embedder, "cpu", max_length=1024, dimensions=32)
    async with PostgreSQLRetriever(database_url, short) as retriever:
        await retriever.add_documents([Document("A banana is yellow.", id="banana"), Document("Night.", id="night")])
    short.close()
    # By its own name, and by the stored one where the user has listed it: neither has to repeat the dimension.
    for model, listed in ((embedder, ()), (None, [embedder])):
        async with PostgreSQLRetriever(database_url, model, device="cpu", models=listed) as retriever:
            assert retriever.embedder is not None
            assert retriever.embedder.dimensions == 32
            assert len(await retriever.search("banana", mode="vector")) == 2


async def test_many_searches_equal_single_ones(database_url, embedder_folder):
    queries = ["banana", "what colour is the night over the sea?", "a", "ships " * 40]
    texts = ["A banana is yellow.", "Night.", "Ships sail the sea.", "Rotate a key every ninety days."]
    encoder = Qwen3EmbeddingEncoder(str(embedder_folder), "cpu", max_length=1024)
    async with PostgreSQLRetriever(database_url, encoder, cached_queries=0) as retriever:
        await retriever.add_texts(texts)
        for query, together in zip(queries, await retriever.search_many(queries), strict=True):
            single = await retriever.search(query)
            assert [hit.id for hit in together] == [hit.id for hit in single]
            scores = [hit.vector_score for hit in single]
            assert [hit.vector_score for hit in together] == pytest.approx(scores, abs=1e-6)
