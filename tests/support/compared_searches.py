"""Compare what two retrievers of one collection answer, for example one on a standby and one on its primary."""

import random

from semlex.types.documents import Document
from tests.support.clients.keyword_index_client import WORDS

QUESTIONS = (
    {"query": "yellow fruit", "mode": "keyword"},
    {"query": "yellow fruit", "mode": "vector"},
    {"query": "yellow fruit"},
    {"query": "key rotation", "fusion": "rrf", "top_k": 50, "deadline": 60.0},
    {"query": "key rotation", "fusion": "linear", "top_k": 100},
    {"query": "key rotation", "deadline": 60.0, "top_k": 100},
    {"query": '"key rotation" vault', "mode": "keyword"},
    {"query": '"key rotation" -banana'},
    {"query": "cat ship", "filters": {"even": True}},
    {"query": "cat n7", "filters": {"number": 7}, "mode": "vector"},
    {"query": "cat", "top_k": 1000, "tuning": {"ef_search": 200}},
)


def many(count, start=0, text=""):
    """Make documents of random words. With a `text`, each begins with it and ends with its own number."""
    numbers = random.Random(f"{text} {start}" if text else start)
    made = []
    for number in range(start, start + count):
        words = " ".join(numbers.choices(WORDS, k=8))
        content = f"{text} {words} n{number}" if text else words
        made.append(Document(content, {"number": number, "even": not number % 2}, f"d{number}"))
    return made


def told(results):
    """Return ids, texts, scores and excerpts of an answer, which must have hits and no warnings."""
    assert results.warnings == []
    assert len(results) > 0
    return [(one.id, one.content, one.vector_score, one.keyword_score, one.fused_score, one.excerpt) for one in results]


async def compare(one, other, check=bool):
    """Assert that two retrievers give the same answers; `check` is called with each search result of the first one.

    Open both right before. Score fusion uses a sample that a retriever reads once, so later writes would change only
    the scores of a retriever that is opened later.
    """

    async def same(method, *arguments, **options):
        found = await getattr(one, method)(*arguments, **options)
        check(found)
        assert told(found) == told(await getattr(other, method)(*arguments, **options)), (method, arguments, options)

    for question in QUESTIONS:
        await same("search", **question)
    queries = ["cat", "yellow fruit"]
    for query, found in zip(queries, await one.search_many(queries, 5), strict=True):
        check(found)
        assert told(found) == told(await other.search(query, 5)), query
    await same("search_page", (await other.search("key rotation", 5, max_results=20)).next_cursor)
    for name in ("d1", "d399", "missing"):
        assert await one.why(name, "key rotation") == await other.why(name, "key rotation")
    for query in (None, "cat"):
        assert await one.fields.facets(["even"], query=query) == await other.fields.facets(["even"], query=query)
    assert await one.get(["d1", "missing", "d2"]) == await other.get(["d1", "missing", "d2"])
    assert await one.list_chunks(limit=10) == await other.list_chunks(limit=10)
    assert await one.count({"even": True}) == await other.count({"even": True}) > 0
