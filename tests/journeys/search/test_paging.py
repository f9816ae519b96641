"""Paging: the pages together are one list, cursors are signed, and a list that has changed is told."""

from __future__ import annotations

import inspect
import json
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document, F, SyncRetriever, TermOverlapReranker
from semlex.errors import ConfigurationError, ValidationError
from semlex.search.pagination import CHANGED, MAX_CURSOR_CHARACTERS, SIGNATURE_BYTES, VERSION, signed
from tests.support.databases import execute
from tests.support.properties import examples
from tests.support.retrievers import sync_filled, sync_opened

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
DIMENSIONS = 16


def documents(count):
    """Their ids are no hexadecimal digits, which a cursor has."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(2, 9))) for _ in range(count)]
    return [Document(text, {"even": n % 2 == 0}, id=f"t{n:03}") for n, text in enumerate(texts)]


@pytest.fixture(scope="module")
def url(new_database):
    return new_database()


@pytest.fixture(scope="module")
def library(url):
    """300 documents; tests only read it."""
    with sync_filled(url, documents(300), DIMENSIONS, TermOverlapReranker()) as retriever:
        yield retriever


def pages(retriever, *arguments, **options):
    """All pages of a search, by their cursors."""
    found = [retriever.search(*arguments, **options)]
    while found[-1].next_cursor is not None:
        found.append(retriever.search_page(found[-1].next_cursor))
    return found


def plain(hits):
    return [(hit.rank, hit.id, hit.vector_score, hit.keyword_score, hit.fused_score, hit.rerank_score) for hit in hits]


@pytest.mark.slow
def test_pages_together_are_one_list(library, full):
    @given(
        query=st.lists(st.sampled_from([*WORDS, "-sea", '"hill river"']), min_size=1, max_size=4).map(" ".join),
        cuts=st.integers(1, 8),
        most=st.integers(1, 400),
        mode=st.sampled_from(["vector", "keyword", "hybrid", None]),
        fusion=st.sampled_from(["score", "rrf", "linear"]),
        filters=st.sampled_from([None, {"even": True}]),
    )
    @settings(max_examples=2_000 if full else examples(30))
    def search(query, cuts, most, **options):
        top_k = -(-most // cuts)
        options |= {"rerank": False, "max_results": most}
        whole = library.search(query, most, **options)
        found = pages(library, query, top_k, **options)
        assert plain([hit for page in found for hit in page]) == plain(whole)
        assert all(len(page) == top_k for page in found[:-1])
        assert whole.next_cursor is None
        assert not any(CHANGED in page.warnings for page in found)
        assert len(whole) == most or len(whole) <= 300

    search()


def mixed_in_words(reranked, fused, weight):
    """The slow twin of mixing: both scores in standard deviations from their means."""

    def z_scores(scores):
        mean, deviation = np.mean(scores), np.std(scores)
        return [float((score - mean) / deviation) if len(set(scores)) > 1 else 0.0 for score in scores]

    both = zip(z_scores(reranked), z_scores(fused), strict=True)
    return [np.float32(weight * one + (1 - weight) * other) for one, other in both]


@pytest.mark.slow
def test_reranked_pages_are_one_list_of_which_the_beginning_is_reranked(library, full):
    reranker = TermOverlapReranker()

    @given(
        query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
        cuts=st.integers(1, 8),
        most=st.integers(1, 100),
        weight=st.sampled_from([0.0, 0.5, 1.0]),
    )
    @settings(max_examples=2_000 if full else examples(20))
    def search(query, cuts, most, weight):
        top_k = -(-most // cuts)
        # The slow twin: the whole list in the order of the fusion, its beginning reranked.
        options = {"max_results": most, "tuning": {"candidates": 1000}, "rerank_weight": weight}
        fused = library.search(query, 1000, rerank=False, tuning={"candidates": 1000})
        window = fused[: 4 * top_k]
        scores = reranker.score(query, [hit.content for hit in window]).tolist()
        mixed = mixed_in_words(scores, [hit.fused_score or 0.0 for hit in window], weight)
        order = sorted(range(len(window)), key=lambda place: (-mixed[place], -weight * scores[place]))
        expected = [(window[place].id, scores[place]) for place in order]
        expected += [(hit.id, None) for hit in fused[4 * top_k :]]
        found = pages(library, query, top_k, **options)
        assert [(hit.id, hit.rerank_score) for page in found for hit in page] == expected[:most]
        assert [hit.rank for page in found for hit in page] == list(range(1, min(most, len(fused)) + 1))
        assert {page.reranker_model for page in found} == {reranker.identity}

    search()


def test_later_pages_ask_no_reranker(library, url):
    cursor = library.search("sea stone", 5, max_results=50).next_cursor
    with sync_opened(url, DIMENSIONS) as other:  # without a reranker, in another process
        page = other.search_page(cursor)
        assert plain(page) == plain(library.search_page(cursor))
        assert "rerank" not in page.timings
        assert CHANGED not in page.warnings


def test_pages_of_a_vector_of_ones_own_and_searches_without_pages(library):
    vector = np.random.default_rng(5).normal(size=DIMENSIONS).astype(np.float32)
    whole = library.search(vector=vector, top_k=40, max_results=40)
    paged = pages(library, vector=vector, top_k=7, max_results=40)
    assert plain([hit for page in paged for hit in page]) == plain(whole)
    assert library.search("sea", 5).next_cursor is None
    assert library.search("sea", 5, max_results=5).next_cursor is None
    assert library.search("no such words at all", 5, mode="keyword", max_results=50).next_cursor is None
    page = library.search("sea", 5, max_results=6)
    assert page.to_dict()["next_cursor"] == page.next_cursor
    assert len(library.search_page(page.next_cursor)) == 1


def test_what_was_written_is_told_where_it_changes_the_list(database_url):
    with sync_filled(database_url, documents(100), DIMENSIONS) as retriever:
        first = retriever.search("sea hill", 5, max_results=100)
        second = retriever.search_page(first.next_cursor)
        assert second.warnings == []
        retriever.delete([first[0].id])
        changed = retriever.search_page(second.next_cursor)
        assert CHANGED in changed.warnings
        # From there on the list is what it is now.
        after = retriever.search_page(changed.next_cursor)
        assert after.warnings == []
        whole = retriever.search("sea hill", 100, max_results=100)
        assert plain([*changed, *after]) == plain(whole[10:20])
    with sync_opened(database_url, DIMENSIONS, TermOverlapReranker()) as retriever:  # a reranked list
        first = retriever.search("sea hill", 5, max_results=99, tuning={"candidates": 99})
        retriever.delete([first[0].id])
        page = retriever.search_page(first.next_cursor)
        assert CHANGED in page.warnings
        assert "rerank" in page.timings
        assert plain(page) == plain(pages(retriever, "sea hill", 5, max_results=99, tuning={"candidates": 99})[1])
        rest = retriever.search_page(page.next_cursor)
        assert "rerank" not in rest.timings
        assert rest.warnings == []


def cursor_of(library, **options):
    return library.search(**({"query": "sea stone", "top_k": 5, "max_results": 50} | options)).next_cursor


def raw(cursor):
    return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def content(cursor):
    return json.loads(raw(cursor)[1 + SIGNATURE_BYTES :])


@pytest.fixture
def key(library, url):
    """The key of the library's cursors."""
    del library  # it makes the collection
    [[stored]] = execute(url, "SELECT cursor_key FROM semlex.collection")
    return bytes.fromhex(stored)


NOT_PAGED = {"self", "rerank", "deadline", "group_by", "group_size", "min_similarity", "min_rerank", "fallback"}


def test_a_cursor_fits_a_url_and_says_nothing_but_the_search(library):
    cursor = cursor_of(library)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert len(cursor) < 1000
    hits = library.search("sea stone", 50, rerank=False)
    held = content(cursor)
    assert not [hit.id for hit in hits if hit.id in json.dumps(held)]
    assert held["query"] == "sea stone"
    options = inspect.signature(SyncRetriever.search).parameters.keys() - NOT_PAGED - {"explain", "route"}
    assert options <= held.keys()


def test_a_damaged_cursor_is_refused(library):
    cursor = cursor_of(library)

    @given(place=st.integers(0, len(cursor) - 1), other=st.sampled_from("ABCxyz019-_=+/. é\n"), way=st.integers(0, 3))
    @settings(max_examples=examples(150))
    def damage(place, other, way):
        before, after = cursor[:place], cursor[place:]
        damaged = (before, before + other + after[1:], before + other + after, cursor + other)[way]
        if damaged != cursor:
            with pytest.raises(ValidationError, match="cursor"):
                library.search_page(damaged)

    damage()
    for text in ("", " ", "x" * 2 * MAX_CURSOR_CHARACTERS, "\0", "\udcff", cursor + "=", f" {cursor}"):
        with pytest.raises(ValidationError, match="cursor"):
            library.search_page(text)


def test_a_search_that_was_changed_in_a_cursor_is_refused(library):
    cursor = cursor_of(library, filters={"even": True})
    body = json.dumps(content(cursor) | {"filters": "even == false"}).encode()
    forged = {
        "the same signature": urlsafe_b64encode(raw(cursor)[: 1 + SIGNATURE_BYTES] + body).rstrip(b"=").decode(),
        "no signature": urlsafe_b64encode(VERSION + body).rstrip(b"=").decode(),
        "another key": signed(body, bytes(32)),
    }
    for made_with, text in forged.items():
        with pytest.raises(ValidationError) as caught:
            library.search_page(text)
        assert str(caught.value).startswith("cursor must be the next_cursor of an earlier page"), made_with


def test_a_page_holds_to_the_filters_of_the_caller(library):
    every = cursor_of(library)
    even = cursor_of(library, filters={"even": True})
    both = cursor_of(library, filters=(F("even") == True) & ((F("more") == 1.0) | F("even").in_([True, "b"])))  # noqa: E712
    for cursor, filters in (
        (even, None),
        (even, {}),
        (even, {"even": True}),
        (even, "even == true"),
        (both, F("even") == True),  # noqa: E712
        (both, {"$or": [{"more": 1.0}, {"even": {"$in": [True, "b"]}}], "even": True}),
    ):
        assert plain(library.search_page(cursor, filters)) == plain(library.search_page(cursor))
    for cursor, filters in (
        (every, {"even": True}),
        (even, {"even": False}),
        (even, {"even": 1}),
        (even, {"even": True, "more": 1}),
        (both, {"more": 1.0}),
    ):
        with pytest.raises(ValidationError, match=r"^filters must be conditions of the search that the cursor"):
            library.search_page(cursor, filters)
    with pytest.raises(ValidationError, match=r"^filters\.\$nor"):
        library.search_page(even, {"$nor": []})


def test_a_cursor_that_was_signed_is_checked_like_arguments(library, key):
    good = content(cursor_of(library))
    wrong = [None, True, -1, 0, 10**30, 1.5, "zebra", [], [1], {}, {"a": 1}, {"$gt": 1}, "AAAA"]
    for name in good:
        for value in wrong:
            with suppress(ValidationError):  # some of these values are as good as what was there
                library.search_page(signed(json.dumps(good | {name: value}).encode(), key))
    for name, value in (("top_k", "zebra"), ("offset", 50), ("scores", "AAA"), ("max_results", 4), ("query", None)):
        with pytest.raises(ValidationError, match=r"^cursor must be the next_cursor of an earlier page"):
            library.search_page(signed(json.dumps(good | {name: value}).encode(), key))
    for body in (b"", b"{", b"[]", b"null", b"1e999", b'{"offset": NaN}', b"[" * 100_000, b"\xff", b"{}"):
        with pytest.raises(ValidationError, match="cursor"):
            library.search_page(signed(body, key))
    with pytest.raises(ValidationError, match="cursor"):
        library.search_page(signed(json.dumps(good | {"more": 1}).encode(), key))


def test_another_version_and_another_collection_are_told(library, key, database_url):
    cursor = cursor_of(library)
    with pytest.raises(ValidationError, match="version 1"):
        library.search_page(signed(json.dumps(content(cursor)).encode(), key, b"\x02"))
    with sync_filled(database_url, documents(30), DIMENSIONS) as other:
        with pytest.raises(ValidationError, match="another collection"):
            other.search_page(cursor)
        cursor = other.search("sea", 5, max_results=20).next_cursor
        other.drop_collection()
    with (
        sync_filled(database_url, documents(30), DIMENSIONS) as again,
        pytest.raises(ValidationError, match="another collection"),
    ):
        again.search_page(cursor)


def test_bounds(library):
    for wrong in (4, 0, 1001, 2.5, True, "9"):
        with pytest.raises(ConfigurationError, match="max_results"):
            library.search("sea", 5, max_results=wrong)
    with pytest.raises(ConfigurationError, match="candidates must be between max_results"):
        library.search("sea", 5, max_results=100, tuning={"candidates": 50})
    with pytest.raises(ValidationError, match=r"65,?536 bytes"):
        library.search("sea", 5, {"even": ["x" * 1000] * 60 + ["é" * 3000]}, max_results=50)
    with pytest.raises(ConfigurationError, match="deadline"):
        library.search_page(cursor_of(library), deadline=-1)
    assert len(library.search_page(cursor_of(library), deadline=60)) == 5
