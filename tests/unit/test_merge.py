"""Hits of several collections in one order, and the steps behind it."""

import asyncio
from collections import Counter
from dataclasses import fields
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import SearchResult
from semlex.errors import ConfigurationError
from semlex.search.steps import check_steps, merged, no_near_duplicates, per_collection, per_document, taken

CONFIDENCES = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def hits(prefix, confidences):
    return [
        SearchResult(f"{prefix} {n}", {"n": n}, id=f"{n:02}", rank=n + 1, confidence=one)
        for n, one in enumerate(confidences)
    ]


ANSWERS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.lists(CONFIDENCES, max_size=6), max_size=4)


@given(answers=ANSWERS)
def test_all_hits_come_once_in_an_order_that_only_they_decide(answers):
    given_hits = {name: hits(name, one) for name, one in answers.items()}
    found, merge = merged(given_hits)
    again, _ = merged(dict(reversed(given_hits.items())))
    assert found == again
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    assert {(hit.collection, hit.id) for hit in found} == {
        (name, hit.id) for name, own in given_hits.items() for hit in own
    }
    for hit in found:
        own = given_hits[hit.collection][hit.collection_rank - 1]
        same = {one.name for one in fields(own)} - {"rank"}
        assert {name: getattr(hit, name) for name in same} == {name: getattr(own, name) for name in same}
    every = [one for own in answers.values() for one in own]
    assert merge == ("calibrated" if every and None not in every else "ranks")


@given(lengths=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 7)))
def test_places_are_taken_in_turn(lengths):
    found, merge = merged({name: hits(name, [None] * count) for name, count in lengths.items()})
    turns = zip_longest(*([(name, place) for place in range(1, lengths[name] + 1)] for name in sorted(lengths)))
    assert [(hit.collection, hit.collection_rank) for hit in found] == [one for turn in turns for one in turn if one]
    assert merge == "ranks"
    assert all(hit.merge_score == 1 / (60 + hit.collection_rank) for hit in found)


@given(
    answers=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.lists(st.sampled_from([0.0, 0.3, 0.3, 0.9]), min_size=1)
    )
)
def test_confidences_order_where_every_hit_has_one(answers):
    found, _ = merged({name: hits(name, one) for name, one in answers.items()})
    keys = [(-hit.merge_score, hit.collection, hit.id) for hit in found]
    assert keys == sorted(keys)
    assert all(hit.merge_score == hit.confidence for hit in found)


# --- steps -----------------------------------------------------------------------------------------------------------
def some(*texts):
    """Hits by collection, document and text."""
    answers = {}
    for number, (collection, document, text) in enumerate(texts):
        hit = SearchResult(text, id=f"{number}", source_document=document, confidence=1 - number / 100)
        answers.setdefault(collection, []).append(hit)
    return merged(answers)[0]


def run(found, *steps):
    left = asyncio.run(taken(found, steps))
    assert [hit.rank for hit in left] == list(range(1, len(left) + 1))
    return [hit.id for hit in left]


LONG = "a key is kept in the vault and nowhere else at any time"
FOUND = (("a", "x", LONG), ("b", "x", LONG), ("a", "x", "other words stand here"), ("a", "y", "an end"))


def test_steps_are_taken_in_their_order():
    assert run(some(*FOUND), no_near_duplicates()) == ["0", "2", "3"]
    assert run(some(*FOUND), per_document(1)) == ["0", "1", "3"]
    assert run(some(*FOUND), per_collection(1)) == ["0", "1"]
    assert run(some(*FOUND), per_collection(1), lambda found: found[::-1]) == ["1", "0"]
    assert run(some(*FOUND), lambda found: found[::-1], per_collection(1)) == ["3", "1"]
    assert run(some(*FOUND)) == ["0", "1", "2", "3"]
    assert run([], no_near_duplicates(), per_document(1), per_collection(1)) == []
    # Chunks of one document that overlap are no duplicates; those of the same document elsewhere are.
    key = "0" * 32 + "-" + "1" * 16
    answers = {name: [SearchResult(LONG, id=key, char_start=0, char_end=len(LONG))] for name in ("a", "b")}
    assert [hit.collection for hit in asyncio.run(taken(merged(answers)[0], [no_near_duplicates()]))] == ["a"]


def test_a_step_may_be_asynchronous_and_changes_nothing_that_it_was_given():
    async def last(found):
        await asyncio.sleep(0)
        return found[-1:]

    assert run(some(*FOUND), last, per_document(1)) == ["3"]
    found = some(*FOUND)
    assert run(found, lambda given: given.clear() or given[:]) == []
    assert len(found) == len(FOUND)
    own = hits("a", [0.5, 0.9])
    found, _ = merged({"a": own})
    assert ([hit.rank for hit in own], [hit.id for hit in found]) == ([1, 2], ["01", "00"])
    assert found[0].metadata is own[1].metadata
    assert found[0].to_dict()["collection"] == "a"


@pytest.mark.parametrize(("step", "message"), [
    (lambda _: None, "must return a list of hits; got NoneType"),
    (lambda _: "hits", "must return a list of hits; got str"),
    (lambda found: [found[0], "x"], "must return only hits that it was given"),
    (lambda found: [found[0], found[0]], "returned the same hit twice"),
])  # fmt: skip
def test_a_step_that_gives_no_hits_is_named(step, message):
    with pytest.raises(ConfigurationError, match=rf"step 2 \(<lambda>\) {message}"):
        run(some(*FOUND), per_document(5), step)


@pytest.mark.parametrize(("steps", "message"), [(None, "steps"), ([3], "step 1 .* got int"), ("ab", "steps")])
def test_what_is_no_step_is_refused(steps, message):
    with pytest.raises(ConfigurationError, match=message):
        check_steps(steps)


@pytest.mark.parametrize("make", [per_document, per_collection, no_near_duplicates])
@pytest.mark.parametrize("value", [0, -1, "1", None, float("nan"), True])
def test_numbers_that_make_no_step(make, value):
    with pytest.raises(ConfigurationError):
        make(value)


@given(counts=st.lists(st.sampled_from(["a", "b"]), max_size=12), count=st.integers(1, 4))
def test_so_many_of_each_collection(counts, count):
    found = some(*((name, f"{n}", f"text {n}") for n, name in enumerate(counts)))
    left = run(found, per_collection(count))
    own = {hit.id: hit.collection for hit in found}
    expected = {name: min(count, number) for name, number in Counter(counts).items()}
    assert Counter(own[one] for one in left) == Counter(expected)
