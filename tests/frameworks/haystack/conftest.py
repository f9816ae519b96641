"""Document stores on databases of their own."""

import os
from contextlib import closing

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # nothing leaves this machine; read when Haystack is imported

from haystack.utils import Secret

from semlex.integrations.haystack import SemlexDocumentStore


@pytest.fixture
def document_store(database_url):
    with closing(SemlexDocumentStore(Secret.from_token(database_url))) as store:
        yield store


@pytest.fixture(scope="module")
def module_store(module_database):
    with closing(SemlexDocumentStore(Secret.from_token(module_database))) as store:
        yield store
