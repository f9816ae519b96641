"""LangChain's own tests of vector stores and retrievers, all of them as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from semlex import SyncRetriever
from semlex.integrations.langchain import SemlexRetriever, SemlexVectorStore

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, database_url: str) -> Iterator[SemlexVectorStore]:
        with SemlexVectorStore(self.get_embeddings(), db_url=database_url) as store:
            yield store


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _collection(self, database_url: str) -> Iterator[None]:
        with SyncRetriever(database_url, "none") as collection:
            collection.add_texts([f"keys are rotated every {days} days" for days in range(30, 36)])
            self._params = {"collection": collection}
            yield

    @property
    def retriever_constructor(self) -> type[SemlexRetriever]:
        return SemlexRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return self._params

    @property
    def retriever_query_example(self) -> str:
        return "when are keys rotated?"
