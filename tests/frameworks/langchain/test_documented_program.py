"""A program as LangChain's documentation has it, with their store in memory and with ours in its place."""

from functools import partial

from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

from semlex.integrations.langchain import SemlexVectorStore
from tests.frameworks.langchain.word_embeddings import WordEmbeddings

KEYS = """Every key is rotated after ninety days.

Its holder is told a week before the rotation.

A key that was lost is revoked at once."""
BACKUPS = """Backups are written every night at two.

They are kept for thirty days in another building.

Once a month somebody restores one to see whether it can be read."""
PAGES = [
    Document(page_content=KEYS, metadata={"source": "keys.md", "year": 2024}),
    Document(page_content=BACKUPS, metadata={"source": "backups.md", "year": 2025}),
]
ANSWERS = ["Every key is rotated after ninety days.", "They are kept for thirty days in another building."]


class FirstLine(SimpleChatModel):
    """Plays a chat model: it answers with the first line of the context."""

    def _call(self, messages, *_, **__):
        return str(messages[-1].content).split("Context:\n")[1].splitlines()[0]

    @property
    def _llm_type(self):
        return "first line"


def seen(documents):
    """Documents without their ids, which each store makes in its own way."""
    return [(document.page_content, document.metadata) for document in documents]


async def checked_run(make_store, embeddings):
    """Cuts pages, puts them into a store, searches it and asks a chain; returns what must not differ between stores."""
    splitter = RecursiveCharacterTextSplitter(chunk_size=70, chunk_overlap=0, add_start_index=True)
    splits = splitter.split_documents(PAGES)
    assert len(splits) == 6
    vector_store = make_store(splits, embeddings)
    nearest = vector_store.similarity_search("after how many days is a key rotated?", k=2)
    assert nearest[0].page_content == ANSWERS[0]
    scored = await vector_store.asimilarity_search_with_score("when are backups written?", k=3)
    assert scored[0][1] > scored[-1][1]
    by_vector = vector_store.similarity_search_by_vector(embeddings.embed_query("backups written every night"), k=1)
    assert by_vector[0].metadata["source"] == "backups.md"
    retriever = vector_store.as_retriever(search_type="similarity", search_kwargs={"k": 1})
    batch = await retriever.abatch(["a lost key is revoked", "backups are written when?"])
    assert [one[0].metadata["source"] for one in batch] == ["keys.md", "backups.md"]
    prompt = ChatPromptTemplate.from_template("Answer from this alone.\nQuestion: {question}\nContext:\n{context}")
    texts = RunnableLambda(lambda documents: "\n".join(document.page_content for document in documents))
    chain = {"context": retriever | texts, "question": RunnablePassthrough()} | prompt | FirstLine() | StrOutputParser()
    assert chain.batch(["after how many days is a key rotated?", "where are backups kept for thirty days?"]) == ANSWERS
    streamed = "".join([part async for part in chain.astream("somebody restores one once a month")])
    assert streamed.startswith("Once a month")
    diverse = vector_store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 6}).invoke("key rotated")
    assert len(diverse) == 2
    ids = vector_store.add_documents([Document(page_content="a key of brass", metadata={"year": 1999})], ids=["brass"])
    assert seen(vector_store.get_by_ids(ids)) == [("a key of brass", {"year": 1999})]
    vector_store.delete(ids)
    left = vector_store.similarity_search("a key of brass", k=10)
    assert len(left) == len(splits)
    assert all(set(page.metadata) == {"source", "year"} for page in PAGES)
    return streamed, seen(by_vector), [seen(one) for one in batch], dict(seen(left))


async def test_with_their_store_and_with_ours(database_url):
    embeddings = WordEmbeddings(dimensions=256)
    theirs = await checked_run(InMemoryVectorStore.from_documents, embeddings)
    assert await checked_run(partial(SemlexVectorStore.from_documents, db_url=database_url), embeddings) == theirs
