"""Haystack's own tests of document stores: all that its store in memory is held to, and none changed."""

from dataclasses import replace

import numpy as np
import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing import document_store as suite
from haystack.testing import document_store_async as async_suite


class FloatEmbeddings:
    """The suite's documents with embeddings as models make them: float32, as Postgres stores them."""

    @pytest.fixture
    def filterable_docs(self):
        return [
            one if one.embedding is None else replace(one, embedding=np.float32(one.embedding).tolist())
            for one in suite.create_filterable_docs()
        ]


EXTENDED = ("CountDocumentsByFilter", "CountUniqueMetadataByFilter")
EXTENDED += ("GetMetadataFieldsInfo", "GetMetadataFieldMinMax", "GetMetadataFieldUniqueValues")
BASE = ("CountDocuments", "DeleteAll", "DeleteByFilter", "DeleteDocuments")
BASE += ("FilterDocuments", "UpdateByFilter", "WriteDocuments")


class TestDocumentStore(
    FloatEmbeddings, *(getattr(suite, f"{one}Test") for one in EXTENDED), suite.DocumentStoreBaseExtendedTests
):
    @pytest.fixture
    def document_store(self, document_store):
        return document_store

    def test_write_documents(self, document_store):
        """The one test that the suite leaves to each store: what is done without a policy."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError, match=r"stored already or given twice.*" + document.id):
            document_store.write_documents([document])
        assert document_store.filter_documents() == [document]


class TestAsyncDocumentStore(FloatEmbeddings, *(getattr(async_suite, f"{one}AsyncTest") for one in (*EXTENDED, *BASE))):
    async def test_write_documents_async(self, document_store):
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
        assert await document_store.filter_documents_async() == [document]
