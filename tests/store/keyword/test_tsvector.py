"""The keyword engines: each score is what its name says, in the language of the collection."""

import pytest

from semlex import Document
from semlex.errors import ConfigurationError, StoreError
from tests.support.databases import execute
from tests.support.retrievers import filled, opened

pytestmark = pytest.mark.pg16

TEXTS = {
    "both": "The cat sat on the mat while another cat slept.",
    "near": "A cat and a dog.",
    "far": "A dog. " + "Nothing of interest happens here for a long while. " * 4 + "Then comes a cat.",
    "none": "Ships sail.",
}


@pytest.mark.parametrize(("keyword", "function"), [("tsvector", "ts_rank"), ("tsvector_cd", "ts_rank_cd")])
async def test_scores_are_those_of_the_server(database_url, keyword, function):
    async with filled(database_url, TEXTS, "none", keyword=keyword, collection="words") as retriever:
        hits = await retriever.search("cat dog", mode="keyword", top_k=10)
    expected = execute(
        database_url,
        f"SELECT chunk_id, {function}(to_tsvector('english', chunk_text), 'cat | dog'::tsquery, 1) AS score "
        "FROM semlex.words_chunk WHERE to_tsvector('english', chunk_text) @@ 'cat | dog'::tsquery "
        "ORDER BY score DESC, document_id, chunk_id",
    )
    assert [hit.id for hit in hits] == [row[0] for row in expected]
    assert [hit.keyword_score for hit in hits] == pytest.approx([row[1] for row in expected], rel=1e-6)
    assert {hit.id for hit in hits} == {"both", "near", "far"}


@pytest.mark.parametrize("keyword", ["tsvector", "tsvector_cd"])
async def test_a_collection_keeps_its_engine_and_its_language(database_url, keyword):
    async with opened(database_url, "none", keyword=keyword, language="spanish") as retriever:
        await retriever.add_documents([Document("Los gatos corrían por la calle.", id="gatos")])
    async with opened(database_url, "none") as retriever:
        assert (await retriever.status()).keyword == keyword
        # The server finds the word, semlex marks it; neither does in English.
        (hit,) = await retriever.search("corría")
        assert "**corrían**" in hit.excerpt


async def test_unknown_engines_and_languages_are_refused(database_url):
    for options, error, message in (
        ({"keyword": "bm42"}, ConfigurationError, r"bm25, .*tsvector, tsvector_cd, none"),
        ({"language": "english'; --"}, ConfigurationError, "language"),
        ({"language": "klingon"}, ConfigurationError, "klingon"),
        ({"language": "klingon", "keyword": "tsvector"}, StoreError, "klingon"),
    ):
        with pytest.raises(error, match=message):
            await opened(database_url, "none", **options).initialize()
