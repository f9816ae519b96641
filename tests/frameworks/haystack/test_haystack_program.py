"""A program after Haystack's own pages, with its store in memory and with a collection in its place."""

from __future__ import annotations

from haystack import Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from semlex.integrations.haystack import SemlexEmbeddingRetriever, SemlexHybridRetriever
from tests.frameworks.haystack.birds_program import WordTextEmbedder, run


def test_the_program_says_the_same_with_both_stores(document_store):
    in_memory = InMemoryDocumentStore(embedding_similarity_function="cosine")
    expected = run(in_memory, InMemoryEmbeddingRetriever(in_memory))
    assert expected["late"]
    assert "Owls hunt by night." in expected["prompt"]
    assert run(document_store, SemlexEmbeddingRetriever(document_store)) == expected


async def test_a_pipeline_awaits_its_retriever(document_store):
    run(document_store, SemlexEmbeddingRetriever(document_store))
    pipeline = Pipeline()
    pipeline.add_component("embedder", WordTextEmbedder())
    pipeline.add_component("retriever", SemlexHybridRetriever(document_store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    question = "eagle sky"
    found = await pipeline.run_async({"embedder": {"text": question}, "retriever": {"query": question}})
    assert found["retriever"]["documents"][0].content == "Eagles rule the sky."
