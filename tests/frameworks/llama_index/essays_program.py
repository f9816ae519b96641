"""A program as LlamaIndex's own pages show it: an index over documents, a query engine, a retriever, changes later.

It knows no store: whoever calls it brings one. The embedding is a few lines, the language model a mock.
"""

from __future__ import annotations

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

WORDS = ("lion", "grass", "eagle", "sky", "owl", "night", "hunt", "sleep")


class WordEmbedding(BaseEmbedding):
    """How often each of a few words occurs, and a constant."""

    def _get_text_embedding(self, text):
        return [float(text.lower().count(word)) for word in WORDS] + [0.25]

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


DOCUMENTS = [
    Document(
        doc_id="lions",
        text="Lions live in the grass. They hunt at dusk. A lion may sleep for twenty hours a day.",
        metadata={"kind": "cat", "year": 1999},
        excluded_llm_metadata_keys=["year"],
    ),
    Document(
        doc_id="eagles",
        text="Eagles rule the sky. An eagle can see a hare from a mile away, and hunt it in the grass.",
        metadata={"kind": "bird", "year": 2010},
    ),
    Document(
        doc_id="owls",
        text="Owls hunt by night. An owl will sleep through the day.",
        metadata={"kind": "bird", "year": 2020},
    ),
]


def run(vector_store):
    """Does what a user does, and says what came of it."""
    storage_context = StorageContext.from_defaults(vector_store=vector_store)
    index = VectorStoreIndex.from_documents(
        DOCUMENTS,
        storage_context=storage_context,
        embed_model=WordEmbedding(),
        transformations=[SentenceSplitter(chunk_size=48, chunk_overlap=0)],
    )
    said = {}

    response = index.as_query_engine(llm=MockLLM(), similarity_top_k=1).query("Which lion lives in the grass?")
    said["answer"] = str(response)
    said["sources"] = [
        (one.node.ref_doc_id, one.node.metadata, one.node.excluded_llm_metadata_keys, one.node.get_content())
        for one in response.source_nodes
    ]

    nodes = index.as_retriever(similarity_top_k=3).retrieve("owl night sleep")
    said["retrieved"] = [(one.node.ref_doc_id, round(one.score or 0.0, 5)) for one in nodes]
    said["positions"] = [(one.node.start_char_idx, one.node.end_char_idx) for one in nodes]

    birds = MetadataFilters(
        filters=[
            MetadataFilter(key="kind", value="bird"),
            MetadataFilter(key="year", value=2015, operator=FilterOperator.LT),
        ]
    )
    found = index.as_retriever(similarity_top_k=5, filters=birds).retrieve("lion grass")
    said["filtered"] = sorted(one.node.get_content() for one in found)

    index.delete_ref_doc("lions")
    index.insert(Document(doc_id="cubs", text="A lion cub will sleep in the grass.", metadata={"kind": "cat"}))
    found = index.as_retriever(similarity_top_k=1).retrieve("lion grass")
    said["changed"] = [(one.node.ref_doc_id, one.node.get_content()) for one in found]
    return said
