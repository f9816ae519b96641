"""A program from LangChain's documentation, with their store in memory and with ours in its place."""

from __future__ import annotations

from functools import partial

from langchain_core.vectorstores import InMemoryVectorStore

from semlex.integrations.langchain import SemlexVectorStore
from tests.frameworks.langchain.documented_program import PAGES, run
from tests.frameworks.langchain.word_embeddings import WordEmbeddings

ANSWERS = ["Every key is rotated after ninety days.", "They are kept for thirty days in another building."]


def seen(documents):
    """Documents without their ids, which each store makes in its own way."""
    return [(document.page_content, document.metadata) for document in documents]


def check(found):
    assert len(found.splits) == 6
    assert found.nearest[0].page_content == ANSWERS[0]
    assert found.best_is_greater
    assert found.by_vector[0].metadata["source"] == "backups.md"
    assert [one[0].metadata["source"] for one in found.batch] == ["keys.md", "backups.md"]
    assert found.answers == ANSWERS
    assert found.streamed.startswith("Once a month")
    assert len(found.diverse) == 2
    assert seen(found.by_id) == [("a key of brass", {"year": 1999})]
    assert len(found.after_deletion) == len(found.splits)
    for page in PAGES:
        assert set(page.metadata) == {"source", "year"}


async def test_with_their_store_and_with_ours(database_url):
    embeddings = WordEmbeddings(dimensions=256)
    theirs = await run(InMemoryVectorStore.from_documents, embeddings)
    check(theirs)
    ours = await run(partial(SemlexVectorStore.from_documents, db_url=database_url), embeddings)
    check(ours)
    assert ours.answers == theirs.answers
    assert ours.streamed == theirs.streamed
    assert seen(ours.by_vector) == seen(theirs.by_vector)
    assert [seen(one) for one in ours.batch] == [seen(one) for one in theirs.batch]
    assert dict(seen(ours.after_deletion)) == dict(seen(theirs.after_deletion))
