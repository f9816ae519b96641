"""A program as LangChain's documentation has it: pages cut, put into a vector store, searched, asked through a chain.

It knows no store: what makes one is given to it, and is all that differs between two.
"""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_text_splitters import RecursiveCharacterTextSplitter

PAGES = [
    Document(
        page_content=(
            "Every key is rotated after ninety days.\n\nIts holder is told a week before the rotation.\n\n"
            "A key that was lost is revoked at once."
        ),
        metadata={"source": "keys.md", "year": 2024},
    ),
    Document(
        page_content=(
            "Backups are written every night at two.\n\nThey are kept for thirty days in another building.\n\n"
            "Once a month somebody restores one to see whether it can be read."
        ),
        metadata={"source": "backups.md", "year": 2025},
    ),
]


class FirstLine(SimpleChatModel):
    """Plays a chat model: it answers with the first line of the context."""

    def _call(self, messages, *_, **__):
        return str(messages[-1].content).split("Context:\n")[1].splitlines()[0]

    @property
    def _llm_type(self):
        return "first line"


@dataclass
class Observations:
    """What the program saw."""

    splits: list[Document]
    nearest: list[Document]
    best_is_greater: bool
    by_vector: list[Document]
    batch: list[list[Document]]
    answers: list[str]
    streamed: str
    diverse: list[Document]
    by_id: list[Document]
    after_deletion: list[Document]


def format_documents(documents):
    return "\n".join(document.page_content for document in documents)


async def run(make_store, embeddings):
    splitter = RecursiveCharacterTextSplitter(chunk_size=70, chunk_overlap=0, add_start_index=True)
    splits = splitter.split_documents(PAGES)
    vector_store = make_store(splits, embeddings)

    nearest = vector_store.similarity_search("after how many days is a key rotated?", k=2)
    scored = await vector_store.asimilarity_search_with_score("when are backups written?", k=3)
    by_vector = vector_store.similarity_search_by_vector(embeddings.embed_query("backups written every night"), k=1)

    retriever = vector_store.as_retriever(search_type="similarity", search_kwargs={"k": 1})
    batch = await retriever.abatch(["a lost key is revoked", "backups are written when?"])
    prompt = ChatPromptTemplate.from_template("Answer from this alone.\nQuestion: {question}\nContext:\n{context}")
    chain = (
        {"context": retriever | RunnableLambda(format_documents), "question": RunnablePassthrough()}
        | prompt
        | FirstLine()
        | StrOutputParser()
    )
    answers = chain.batch(["after how many days is a key rotated?", "where are backups kept for thirty days?"])
    streamed = "".join([part async for part in chain.astream("somebody restores one once a month")])
    diverse = vector_store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 6}).invoke("key rotated")

    ids = vector_store.add_documents([Document(page_content="a key of brass", metadata={"year": 1999})], ids=["brass"])
    by_id = vector_store.get_by_ids(ids)
    vector_store.delete(ids)
    return Observations(
        splits=splits,
        nearest=nearest,
        best_is_greater=scored[0][1] > scored[-1][1],
        by_vector=by_vector,
        batch=batch,
        answers=answers,
        streamed=streamed,
        diverse=diverse,
        by_id=by_id,
        after_deletion=vector_store.similarity_search("a key of brass", k=10),
    )
