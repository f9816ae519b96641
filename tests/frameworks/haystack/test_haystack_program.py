"""A program as Haystack's own pages show it, with its store in memory and with a collection in its place."""

from __future__ import annotations

from dataclasses import replace

from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from semlex.integrations.haystack import SemlexEmbeddingRetriever, SemlexHybridRetriever
from tests.support.documented_programs import documentation_test

test_example_runs = documentation_test("haystack")
WORDS = ("lion", "grass", "eagle", "sky", "owl", "night", "hunt", "sleep")
TEMPLATE = """{% for document in documents %}- {{ document.content }} ({{ document.meta.kind }})
{% endfor %}Question: {{ question }}"""


def embedded(text):
    counts = [float(text.lower().count(word)) for word in WORDS] + [0.25]
    norm = sum(count * count for count in counts) ** 0.5
    return [count / norm for count in counts]


@component
class WordDocumentEmbedder:
    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        return {"documents": [replace(one, embedding=embedded(one.content or "")) for one in documents]}


@component
class WordTextEmbedder:
    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": embedded(text)}


TEXTS = {
    "Lions live in the grass. They hunt at dusk. A lion may sleep all day.": {"kind": "cat"},
    "Eagles rule the sky. An eagle can hunt a hare in the grass.": {"kind": "bird", "year": 2010},
    "Owls hunt by night. An owl will sleep all day.": {"kind": "bird", "year": 2020},
}
DOCUMENTS = [Document(content=text, meta=meta) for text, meta in TEXTS.items()]


def piped(connections, **components):
    pipeline = Pipeline()
    for name, part in components.items():
        pipeline.add_component(name, part)
    for sender, receiver in connections.items():
        pipeline.connect(sender, receiver)
    return pipeline


def run(document_store, retriever):
    """Does what a user does, and says what came of it."""
    indexing = piped(
        {"splitter": "embedder", "embedder": "writer"},
        splitter=DocumentSplitter(split_by="period", split_length=1),
        embedder=WordDocumentEmbedder(),
        writer=DocumentWriter(document_store, policy=DuplicatePolicy.OVERWRITE),
    )
    said = {"written": [indexing.run({"documents": DOCUMENTS})["writer"] for _ in range(2)]}
    said["count"] = document_store.count_documents()
    asking = piped(
        {"embedder.embedding": "retriever.query_embedding", "retriever.documents": "prompt.documents"},
        embedder=WordTextEmbedder(),
        retriever=retriever,
        prompt=PromptBuilder(template=TEMPLATE, required_variables=["question", "documents"]),
    )

    def ask(question, **options):
        inputs = {"embedder": {"text": question}, "retriever": options, "prompt": {"question": question}}
        return asking.run(inputs, include_outputs_from={"retriever"})

    answer = ask("Which owl will hunt by night?", top_k=1)
    said["prompt"] = answer["prompt"]["prompt"]
    said["found"] = [(one.id, one.meta, round(one.score or 0.0, 5)) for one in answer["retriever"]["documents"]]
    late = {"field": "meta.year", "operator": ">", "value": 2015}
    said["late"] = sorted(one.content or "" for one in ask("eagle sky", filters=late)["retriever"]["documents"])
    document_store.delete_documents([one.id for one in document_store.filter_documents(late)])
    said["left"] = sorted(one.content or "" for one in document_store.filter_documents())
    return said


async def test_the_program_says_the_same_with_both_stores_and_a_pipeline_awaits(document_store):
    in_memory = InMemoryDocumentStore(embedding_similarity_function="cosine")
    expected = run(in_memory, InMemoryEmbeddingRetriever(in_memory))
    assert expected["late"]
    assert "Owls hunt by night." in expected["prompt"]
    assert run(document_store, SemlexEmbeddingRetriever(document_store)) == expected
    retriever = SemlexHybridRetriever(document_store, top_k=1)
    parts = {"embedder": WordTextEmbedder(), "retriever": retriever}
    pipeline = piped({"embedder.embedding": "retriever.query_embedding"}, **parts)
    found = await pipeline.run_async({"embedder": {"text": "eagle sky"}, "retriever": {"query": "eagle sky"}})
    assert found["retriever"]["documents"][0].content == "Eagles rule the sky."
