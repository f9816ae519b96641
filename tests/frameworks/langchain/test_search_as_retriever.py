"""The retriever and the document compressor, alone and in chains."""

import asyncio

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import RunnablePassthrough

from semlex import PostgreSQLRetriever, SyncRetriever, TermOverlapReranker, connect_sync
from semlex.errors import CollectionNotFoundError, ConfigurationError, ModelError, ModelNotFoundError
from semlex.integrations.langchain import SemlexReranker, SemlexRetriever

TEXTS = {"rotation": "keys are rotated", "vault": "a vault stores keys", "banana": "a banana is yellow"}


@pytest.fixture
def collection(database_url):
    with SyncRetriever(database_url, "none", use_reranking=False) as opened:
        metadata = [{"n": number} for number in range(len(TEXTS))]
        opened.add_texts(TEXTS.values(), ids=list(TEXTS), metadata=metadata)
        yield opened


def ids(documents):
    return [one.id for one in documents]


def test_a_call_s_options_win_for_that_call(collection):
    retriever = SemlexRetriever(collection=collection, k=1, filters={"n": {"$lt": 2}}, mode="keyword")
    assert ids(retriever.invoke("vault keys")) == ["vault"]
    assert ids(retriever.invoke("vault keys", k=3)) == ["vault", "rotation"]
    assert ids(retriever.invoke("keys banana", k=3, filters={"n": 2})) == ["banana"]
    assert ids(retriever.invoke("keys banana", k=3, filters=None)) == ["banana", "rotation", "vault"]
    assert ids(retriever.invoke("vault keys")) == ["vault"]
    boosted = SemlexRetriever(collection=collection, search_kwargs={"boost": {"n == 0": 100}})
    assert ids(boosted.invoke("vault keys"))[0] == "rotation"
    assert ids(retriever.batch(["vault", "rotated"])[1]) == ["rotation"]


def test_metadata_is_the_user_s_unless_details_are_asked_for(collection, tmp_path):
    assert [one.metadata for one in SemlexRetriever(collection=collection).invoke("banana")] == [{"n": 2}]
    (tmp_path / "keys.md").write_text("# Keys\n\nA zebra keeps them.\n")
    collection.index(tmp_path, source="pages")
    [found] = SemlexRetriever(collection=collection, details=True).invoke("zebra")
    assert found.metadata["source_document"] == "keys.md"
    assert found.metadata["keyword_score"] > 0
    [plain] = SemlexRetriever(collection=collection).invoke("zebra")
    assert plain.id == found.id
    assert "keyword_score" not in plain.metadata


async def test_async_calls_answer_as_the_others_and_in_a_loop(collection, database_url):
    retriever, queries = SemlexRetriever(collection=collection), ["keys", "banana", "vault"]
    assert await retriever.abatch(queries) == retriever.batch(queries)
    async with PostgreSQLRetriever(database_url, "none") as own:
        retriever = SemlexRetriever(collection=own)
        assert ids(await retriever.ainvoke("banana")) == ["banana"]
        with pytest.raises(ConfigurationError, match="connect_sync"):
            retriever.invoke("banana")


class Heard(BaseCallbackHandler):
    def __init__(self):
        self.told = []

    def on_retriever_end(self, documents, **_):
        self.told.append(ids(documents))

    def on_retriever_error(self, error, **_):
        self.told.append(type(error))


def test_errors_come_through_and_callbacks_are_told(collection, database_url):
    heard = Heard()
    chain = {"context": SemlexRetriever(collection=collection)} | RunnablePassthrough()
    assert ids(chain.invoke("banana", {"callbacks": [heard]})["context"]) == ["banana"]
    with connect_sync(database_url, "none") as client:
        missing = SemlexRetriever(collection=client.collection("missing", create=False))
        with pytest.raises(CollectionNotFoundError):
            missing.invoke("banana", {"callbacks": [heard]})
    assert heard.told == [["banana"], CollectionNotFoundError]
    with pytest.raises(ValueError, match="collection must be Collection or SyncCollection"):
        SemlexRetriever(collection="handbook")


class Broken:
    identity = "broken"

    def score(self, query, texts):
        return np.array([np.nan] * len(texts))

    def close(self): ...


def test_a_compressor_orders_keeps_its_input_and_refuses_what_it_cannot_use():
    documents = [Document(page_content=text, id=one, metadata={"n": 1}) for one, text in TEXTS.items()]
    compressor = SemlexReranker(reranker=TermOverlapReranker(), top_n=2)
    expected = [documents[1], documents[0]]
    assert compressor.compress_documents(documents, "vault keys") == expected
    assert asyncio.run(compressor.acompress_documents(documents, "vault keys")) == expected
    assert compressor.compress_documents([], "vault keys") == []
    named = SemlexReranker(reranker="term-overlap", score_key="rerank_score")
    scored = named.compress_documents(documents, "vault keys")
    assert [one.metadata["rerank_score"] for one in scored] == pytest.approx([5 / 6, 0.5, 0.0])
    assert [one.metadata for one in documents] == [{"n": 1}] * 3
    with pytest.raises(ModelError, match="one finite number per text"):
        SemlexReranker(reranker=Broken()).compress_documents(documents, "keys")
    for wrong in (None, "none", 3, "no-such-reranker"):
        with pytest.raises((ValueError, ModelNotFoundError), match="reranker"):
            SemlexReranker(reranker=wrong)
    with pytest.raises(ValueError, match="top_n"):
        SemlexReranker(reranker="term-overlap", top_n=0)
