"""LangChain's own tests of vector stores and retrievers, all of them as they are."""

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from semlex import SyncRetriever
from semlex.integrations.langchain import SemlexRetriever, SemlexVectorStore


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, database_url):
        with SemlexVectorStore(self.get_embeddings(), db_url=database_url) as store:
            yield store


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _collection(self, database_url):
        with SyncRetriever(database_url, "none") as collection:
            collection.add_texts([f"keys are rotated every {days} days" for days in range(30, 36)])
            self._params = {"collection": collection}
            yield

    @property
    def retriever_constructor(self):
        return SemlexRetriever

    @property
    def retriever_constructor_params(self):
        return self._params

    @property
    def retriever_query_example(self):
        return "when are keys rotated?"
