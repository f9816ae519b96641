"""Boosts: the fused score of what passes a filter is multiplied before the best are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from semlex import Document, F, SearchQuery
from semlex.errors import ValidationError
from tests.support.retrievers import ids_of, sync_filled

WORDS = ("cat", "ship", "lion", "key", "moon")


@pytest.fixture(scope="module")
def library(new_database):
    documents = [
        Document(" ".join(WORDS[n % (k + 2) % 5] for k in range(n % 7 + 1)), {"n": n, "third": n % 3 == 0}, id=f"d{n}")
        for n in range(60)
    ]
    with sync_filled(new_database(), documents, 16) as retriever:
        yield retriever


def expected(plain, boost):
    """Id, factor and score of every hit, as they must be when these were all candidates."""
    found = []
    for hit in plain:
        scores = (hit.fused_score, hit.vector_score, hit.keyword_score)
        score = next(one for one in scores if one is not None)
        factor = float(np.prod([factor for wanted, factor in boost.items() if WANTED[wanted](hit.metadata)]))
        found.append((hit.id, factor, score * factor if score >= 0 else score / factor))
    return sorted(found, key=lambda one: -one[2])


WANTED = {
    "third == true": lambda metadata: metadata["third"],
    "n >= 30": lambda metadata: metadata["n"] >= 30,
    "not exists nothing": lambda _: True,
}
BOOSTS = [
    {"third == true": 0.5},
    {"third == true": 3, "n >= 30": 0.1},
    {"n >= 30": 1000, "not exists nothing": 0.001},
    {"n >= 30": 1},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "fusion"),
    [("hybrid", "score"), ("hybrid", "rrf"), ("hybrid", "linear"), ("vector", "score"), ("keyword", "score")],
)
def test_the_order_is_that_of_the_products(library, mode, fusion):
    options = {"mode": mode, "fusion": fusion, "tuning": {"candidates": 60}}
    for question in ("cat ship", "moon -lion"):
        plain = library.search(question, 60, **options)
        assert {hit.boost for hit in plain} == {None}
        for boost in BOOSTS:
            wanted = expected(plain, boost)
            found = library.search(question, 60, boost=boost, **options)
            told = [(hit.id, hit.boost, hit.fused_score) for hit in found]
            assert [(name, pytest.approx(factor)) for name, factor, _ in wanted] == [one[:2] for one in told]
            assert [pytest.approx(score) for _, _, score in wanted] == [one[2] for one in told]
            # Before the cut, and the same with a deadline.
            few = library.search(question, 3, boost=boost, **options, deadline=60)
            assert [hit.id for hit in few] == [name for name, _, _ in wanted][:3]


@pytest.mark.slow
def test_forms_and_company(library):
    first = ids_of(library.search("cat ship", 5, boost={"n >= 30": 5}))
    assert ids_of(library.search("cat ship", 5)) != first
    for boost in ([(F("n") >= 30, 5)], [({"n": {"$gte": 30}}, 5.0)], (["n >= 30", 5],)):
        assert ids_of(library.search("cat ship", 5, boost=boost)) == first
    many = library.search_many(["cat ship", SearchQuery("cat ship", top_k=5)], 5, boost={"n >= 30": 5})
    assert list(map(ids_of, many)) == [first] * 2
    grouped = library.search("cat ship", 5, boost={"n >= 30": 5}, group_by="document", group_size=1)
    assert ids_of(grouped) == first
    # Page by page, and with a filter.
    options = {"boost": {"n >= 30 and third == true": 5, '"n" < 10': 0.5}, "tuning": {"candidates": 60}}
    page = library.search("cat ship", 4, "n != 7", **options, max_results=12)
    pages = ids_of(page)
    while page.next_cursor is not None:
        page = library.search_page(page.next_cursor)
        pages += ids_of(page)
    assert pages == ids_of(library.search("cat ship", 12, "n != 7", **options))
    assert library.search("nothing at all", mode="keyword", boost=options["boost"]) == []
    # Many factors stay finite.
    for factor in (1000, 1e-300):
        found = library.search("cat ship", 60, boost=[("not exists nothing", factor)] * 100)
        assert all(hit.fused_score is not None and np.isfinite(hit.fused_score) for hit in found)
        assert len(found) > 30


@pytest.mark.parametrize(
    ("boost", "place", "told"),
    [
        ("n == 1", "boost", "a mapping of filters to factors"),
        (5, "boost", "a mapping"),
        ({"n == 1": 0}, "boost[0]", "above 0"),
        ({"n == 1": -1}, "boost[0]", "0"),
        ({"n == 1": 1001}, "boost[0]", "1,000"),
        ({"n == 1": float("nan")}, "boost[0]", "NaN"),
        ({"n == 1": True}, "boost[0]", "float"),
        ({"n == 1": "2"}, "boost[0]", "float"),
        ({"n == 1": 2, "n === 1": 2}, "boost[1] at column 3", "did you mean ==?"),
        ([({"$or": []}, 2)], "boost[0].$or", "at least one"),
        ([({}, 2)], "boost[0]", "a filter with a condition"),
        ([(None, 2)], "boost[0]", "a filter with a condition"),
        ([("n == 1", 2, 3)], "boost[0]", "a pair"),
        (["n == 1"], "boost[0]", "a pair"),
        ([("n == 1", 2)] * 101, "boost", "100 boosts"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_is_no_boost(library, boost, place, told):
    with pytest.raises(ValidationError) as caught:
        library.search("cat", boost=boost)
    assert [error.field for error in caught.value.errors] == [place]
    assert told in str(caught.value)
