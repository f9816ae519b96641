"""A program as LlamaIndex's own pages show it, with its store in memory and with a collection in its place."""

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters, SimpleVectorStore

from semlex import connect, connect_sync
from semlex.errors import ConfigurationError
from semlex.integrations.llama_index import SemlexRetriever, SemlexVectorStore
from tests.support.documented_programs import documentation_test

test_example_runs = documentation_test("llama_index")
WORDS = ("lion", "grass", "eagle", "sky", "owl", "night", "hunt", "sleep")


class WordEmbedding(BaseEmbedding):
    """How often each of a few words occurs, and a constant."""

    def _get_text_embedding(self, text):
        return [float(text.lower().count(word)) for word in WORDS] + [0.25]

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


LIONS = "Lions live in the grass. They hunt at dusk. A lion may sleep for twenty hours a day."
EAGLES = "Eagles rule the sky. An eagle can see a hare from a mile away, and hunt it in the grass."
OWLS = "Owls hunt by night. An owl will sleep through the day."
DOCUMENTS = [
    Document(doc_id=name, text=text, metadata={"kind": kind, "year": year}, excluded_llm_metadata_keys=hidden)
    for name, text, kind, year, hidden in (
        ("lions", LIONS, "cat", 1999, ["year"]),
        ("eagles", EAGLES, "bird", 2010, []),
        ("owls", OWLS, "bird", 2020, []),
    )
]


def run(vector_store):
    """Does what a user does, and says what came of it."""
    storage = StorageContext.from_defaults(vector_store=vector_store)
    parts = {"embed_model": WordEmbedding(), "transformations": [SentenceSplitter(chunk_size=48, chunk_overlap=0)]}
    index = VectorStoreIndex.from_documents(DOCUMENTS, storage, **parts)
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
    early = MetadataFilter(key="year", value=2015, operator=FilterOperator.LT)
    birds = MetadataFilters(filters=[MetadataFilter(key="kind", value="bird"), early])
    found = index.as_retriever(similarity_top_k=5, filters=birds).retrieve("lion grass")
    said["filtered"] = sorted(one.node.get_content() for one in found)
    index.delete_ref_doc("lions")
    index.insert(Document(doc_id="cubs", text="A lion cub will sleep in the grass.", metadata={"kind": "cat"}))
    found = index.as_retriever(similarity_top_k=1).retrieve("lion grass")
    said["changed"] = [(one.node.ref_doc_id, one.node.get_content()) for one in found]
    return said


def test_the_program_says_the_same_with_both_stores_and_its_index_is_found_again(database_url, client):
    expected = run(SimpleVectorStore())
    assert expected["filtered"]
    assert expected["changed"] == [("cubs", "A lion cub will sleep in the grass.")]
    assert run(SemlexVectorStore(client.collection("essays"))) == expected
    with connect_sync(database_url, "none") as later:
        store = SemlexVectorStore(later.collection("essays"))
        index = VectorStoreIndex.from_vector_store(store, embed_model=WordEmbedding())
        assert index.as_retriever(similarity_top_k=1).retrieve("owl night")[0].node.ref_doc_id == "owls"
        options = {"alpha": 0.3, "similarity_top_k": 2, "vector_store_kwargs": {"tuning": {"candidates": 50}}}
        hybrid = index.as_retriever(vector_store_query_mode="hybrid", **options)
        assert hybrid.retrieve("cub")[0].node.ref_doc_id == "cubs"
        words = index.as_retriever(vector_store_query_mode="text_search", similarity_top_k=2)
        assert [one.node.ref_doc_id for one in words.retrieve("cub")] == ["cubs"]


async def test_an_index_is_built_and_asked_on_a_loop(database_url):
    async with connect(database_url, "none") as client:
        store = SemlexVectorStore(client.collection("essays"))
        index = VectorStoreIndex.from_vector_store(store, embed_model=WordEmbedding(), use_async=True)
        for document in DOCUMENTS:
            await index.ainsert(document)
        found = await index.as_retriever(similarity_top_k=1).aretrieve("owl night")
        assert [one.node.ref_doc_id for one in found] == ["owls"]
        await index.adelete_ref_doc("owls")
        found = await index.as_retriever(similarity_top_k=1).aretrieve("owl night")
        assert [one.node.ref_doc_id for one in found] != ["owls"]


async def test_the_retriever_searches_and_awaits(database_url, client):
    collection = client.collection("essays")
    run(SemlexVectorStore(collection))
    retriever = SemlexRetriever(collection, 2, embed_model=WordEmbedding())
    found = retriever.retrieve("eagle sky")
    hits = collection.search("eagle sky", 2, vector=WordEmbedding().get_query_embedding("eagle sky"))
    assert [(one.node.node_id, one.score) for one in found] == [(hit.id, hit.fused_score) for hit in hits]
    assert found[0].node.ref_doc_id == "eagles"
    given = QueryBundle("sky", embedding=WordEmbedding().get_query_embedding("owl"))
    by_vectors = SemlexRetriever(collection, 1, mode="vector").retrieve(given)
    assert [one.node.ref_doc_id for one in by_vectors] == ["owls"]
    cats = MetadataFilters(filters=[MetadataFilter(key="kind", value="cat")])
    for filters in (cats, {"kind": "cat"}, 'kind == "cat"'):
        only = SemlexRetriever(collection, mode="keyword", filters=filters).retrieve("eagle lion grass")
        assert {one.node.metadata["kind"] for one in only} == {"cat"}
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    assert "eagle" in str(engine.query("eagle sky"))
    with pytest.raises(ConfigurationError, match="weights"):
        SemlexRetriever(collection, weights={"sound": 1}).retrieve("eagle")
    found = await retriever.aretrieve("owl night")
    assert found == retriever.retrieve("owl night")
    async with connect(database_url, "none") as own:
        awaiting = SemlexRetriever(own.collection("essays"), 2, embed_model=WordEmbedding())
        assert await awaiting.aretrieve("owl night") == found


def test_files_that_semlex_has_read_say_where_they_stand(database_url, tmp_path):
    """With a model of semlex's own: neither the index nor the retriever needs one of LlamaIndex."""
    (tmp_path / "keys.md").write_text("# Keys\n\nKeys are rotated yearly.\n", encoding="utf-8")
    with connect_sync(database_url, "static") as client:
        collection = client.collection("handbook")
        collection.index(tmp_path, source="docs")
        found = SemlexRetriever(collection).retrieve("how are keys rotated?")
    expected = {"source_document": "keys.md", "heading_path": ["Keys"], "line": 1}
    assert {name: found[0].node.metadata[name] for name in expected} == expected
