"""A program as Haystack's own pages show it: a pipeline that indexes, one that asks, and prompts made of documents.

It knows no store: whoever calls it brings one, with the retriever that belongs to it. The embedders are a few lines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.writers import DocumentWriter
from haystack.document_stores.types import DuplicatePolicy

WORDS = ("lion", "grass", "eagle", "sky", "owl", "night", "hunt", "sleep")
TEMPLATE = """{% for document in documents %}- {{ document.content }} ({{ document.meta.kind }})
{% endfor %}Question: {{ question }}"""


def embedded(text):
    counts = [float(text.lower().count(word)) for word in WORDS] + [0.25]
    norm = sum(count * count for count in counts) ** 0.5
    return [count / norm for count in counts]


@component
class WordDocumentEmbedder:
    """Counts a few words."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        return {"documents": [replace(one, embedding=embedded(one.content or "")) for one in documents]}


@component
class WordTextEmbedder:
    """Counts the same."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": embedded(text)}


DOCUMENTS = [
    Document(content="Lions live in the grass. They hunt at dusk. A lion may sleep all day.", meta={"kind": "cat"}),
    Document(
        content="Eagles rule the sky. An eagle can hunt a hare in the grass.", meta={"kind": "bird", "year": 2010}
    ),
    Document(content="Owls hunt by night. An owl will sleep all day.", meta={"kind": "bird", "year": 2020}),
]


def run(document_store, retriever):
    """Does what a user does, and says what came of it."""
    indexing = Pipeline()
    indexing.add_component("splitter", DocumentSplitter(split_by="period", split_length=1))
    indexing.add_component("embedder", WordDocumentEmbedder())
    indexing.add_component("writer", DocumentWriter(document_store, policy=DuplicatePolicy.OVERWRITE))
    indexing.connect("splitter", "embedder")
    indexing.connect("embedder", "writer")
    said = {"written": [indexing.run({"documents": DOCUMENTS})["writer"] for _ in range(2)]}
    said["count"] = document_store.count_documents()

    asking = Pipeline()
    asking.add_component("embedder", WordTextEmbedder())
    asking.add_component("retriever", retriever)
    asking.add_component("prompt", PromptBuilder(template=TEMPLATE, required_variables=["question", "documents"]))
    asking.connect("embedder.embedding", "retriever.query_embedding")
    asking.connect("retriever.documents", "prompt.documents")

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
