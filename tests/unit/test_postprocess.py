"""What is made of hits after a search, against slow twins."""

import asyncio
import uuid
from collections import Counter
from dataclasses import fields, replace
from itertools import pairwise, zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import WordCounter
from semlex.options.collection import ChunkSettings
from semlex.search import steps
from semlex.search.passages import Around, document_of, headings_of, joined, placed, text_of
from semlex.store.query.surroundings import PlacedChunk
from semlex.types.documents import StoredChunk, line_breaks
from semlex.types.results import SearchResult
from tests.core.test_texts import slow_shingles
from tests.support.markdown_texts import STRUCTURES, TEXT
from tests.support.placed_documents import AROUND, documents, hit_of, near, searches, stored

# Ten thousand examples of whole documents take minutes.
pytestmark = pytest.mark.timeout(1800)

SETTINGS = ChunkSettings(16, 4, 0)
DOCUMENT = uuid.UUID(int=7)


def is_same_but_blanks(text, original):
    """Whether texts are equal, any blank character for any other."""
    pairs = list(zip(text, original, strict=False))
    return len(text) == len(original) and all(a == b or (a.isspace() and b.isspace()) for a, b in pairs)


@pytest.mark.slow
@given(documents(), st.data())
def test_passages_are_the_documents_characters_each_once_and_all_chunks_are_one(found, data):
    chunks = [chunk for document in found for chunk in document.chunks]
    kept = data.draw(st.lists(st.sampled_from(chunks), unique_by=lambda chunk: chunk.key)) if chunks else []
    passages = joined(kept)
    assert sorted(chunk.key for passage in passages for chunk in passage.chunks) == sorted(one.key for one in kept)
    by_key = {chunk.document: document for document in found for chunk in document.chunks}
    ends = {}
    for passage in passages:
        document = by_key[passage.first.document]
        assert is_same_but_blanks(passage.text, document.text[passage.char_start : passage.char_end])
        covered = {n for one in passage.chunks for n in range(one.char_start, one.char_end)}
        missing = set(range(passage.char_start, passage.char_end)) - covered
        assert all(document.text[n].isspace() for n in missing)
        # In the order of the document, apart from each other.
        assert ends.get(document.name, -1) < passage.char_start
        ends[document.name] = passage.char_end
    for document in found:
        passages = joined(document.chunks)
        breaks = sum(other.char_start - one.char_end > 100 for one, other in pairwise(document.chunks))
        assert len(passages) == (1 + breaks if document.chunks else 0)


def test_chunks_headings_and_near_duplicates_by_hand():
    text = "# A\n\none two\n\n\n## B\r\n\r\n    three four\n" + "five " * 30
    [passage] = joined(stored(0, text, "markdown", SETTINGS).chunks)
    assert len(passage.text) == len(text.rstrip())
    assert line_breaks(passage.text) == line_breaks(text.rstrip())
    assert "one two\n\n\n## B" in passage.text
    assert passage.titles == ("A",)
    document = stored(0, "\n\n".join(f"## T{n}\n\n" + f"w{n} " * 12 for n in range(6)), "markdown", SETTINGS)
    one, two, three, *_, last = document.chunks
    assert [len(passage.chunks) for passage in joined([last, two, one])] == [2, 1]
    longer = replace(two, text="something else, stored in its place, of another length")
    assert [passage.text for passage in joined([one, longer, three])] == [one.text, longer.text, three.text]
    assert [passage.char_start for passage in joined([longer])] == [None]
    overlapping = PlacedChunk((DOCUMENT, "b"), 1, "XXX", char_start=2, char_end=5)
    first = PlacedChunk((DOCUMENT, "a"), 0, "abcd", char_start=0, char_end=4)
    assert [passage.text for passage in joined([first, overlapping])] == ["abcd", "XXX"]
    chunks = [PlacedChunk((uuid.UUID(int=n), f"d{n}"), 0, f"text {n}") for n in range(3)]
    found = [(one.text, one.char_start, one.char_end) for one in joined(chunks)]
    assert found == [(f"text {n}", None, None) for n in range(3)]
    document = stored(0, "one two three\n\n" * 30, "markdown", SETTINGS)
    hits = [hit_of(chunk, rank) for rank, chunk in enumerate(document.chunks[:3], 1)]
    chunks = [document.chunks[0], replace(document.chunks[1], text="another text")]
    assert [one.hit for one in placed(hits, chunks, Around())] == hits[:1]
    expected = [(1, "Keys", 1), (2, "Rotation", 5), (3, "Tools", 9), (2, "Rotation", 13), (1, "Locks", 17)]
    for settings in [ChunkSettings(16, 0, 0), ChunkSettings(500, 50, 32)]:
        headings = headings_of(chunks_of(PAGE, "markdown", settings), "markdown")
        assert [(one.level, one.title, one.line) for one in headings] == [*expected, (2, "Doors", 19)]
    paths = (("Keys",), ("Keys", "Rotation"), ("Keys", "Rotation"))
    texts = zip(("One.", "Two.", "Three."), "abc", paths, strict=True)
    chunks = [StoredChunk(text, id=name, heading_path=path) for text, name, path in texts]
    found = [(one.level, one.title, one.line, one.chunk_ids) for one in headings_of(chunks, "markdown")]
    assert found == [(1, "Keys", None, ("a",)), (2, "Rotation", None, ("b", "c"))]
    assert text_of(chunks) == "One.\n\nTwo.\n\nThree."
    hits = [SearchResult("t", id=str(n), fused_score=1 - n / 10) for n in range(6)]
    same = {hit.id: np.ones(2, dtype=np.float32) for hit in hits}
    for diversity in (0, 0.5, 1):
        assert steps.diversified(hits, same, diversity) == hits
    other = same | {"5": np.array([1, -1], dtype=np.float32)}
    assert [hit.id for hit in steps.diversified(hits, other, 1)][:2] == ["0", "5"]
    assert steps.diversified(hits, {}, 1) == hits
    for scores in [{}, {"vector_score": None}, {"fused_score": 0.5}]:
        hits = [SearchResult("t", id=str(n), **scores) for n in range(3)]
        assert steps.relevances(hits).tolist() == ([1, 1, 1] if "fused_score" in scores else [1, 0.5, 0])
    text = "Every key is rotated after ninety days, and its holder is told a week before."
    other = text.replace("Every", "each").replace("week", "WEEK")
    hits = [SearchResult(one, id=name) for one, name in ((text, "a"), ("Something else.", "b"), (other, "c"))]
    found = steps.without_near_duplicates(hits, 0.8)
    assert [(hit.id, [one.id for one in same]) for hit, same in found] == [("a", ["c"]), ("b", [])]
    assert len(steps.without_near_duplicates(hits, 1)) == 3
    hits = [SearchResult("t", id=str(n), source_document=name) for n, name in enumerate(["a", "a", "", "", "a"])]
    assert [hit.id for hit in steps.at_most_per_document(hits, 1)] == ["0", "2", "3"]


def slow_around(hit, hits, chunks, around):
    """The ids that belong to a hit, by looking at everything."""
    by_id = {chunk.key[1]: chunk for chunk in chunks}
    own = by_id[hit.id]
    mine = {chunk.number: chunk for chunk in chunks if chunk.document == own.document}
    wanted = {n for n in mine if abs(n - own.number) <= around.neighbours}
    if around.sections is not None:
        section = {own.number}
        while True:
            more = {n + step for n in section for step in (-1, 1)}
            more = {n for n in more if n in mine and mine[n].titles == own.titles} - section
            if not more:
                break
            section |= more
        are_hits = {one.id for one in hits}
        if sum(mine[n].key[1] in are_hits for n in section) / len(section) >= around.sections:
            wanted |= section
    ids = {mine[n].key[1] for n in wanted}
    if around.parents and hit.parent_id:
        ids.add(hit.parent_id)
    return ids - {hit.id}


def slow_reduction(hits, share):
    kept = []
    for hit in hits:
        best, like = 0.0, None
        for other, same in kept:
            if document_of(hit) == document_of(other) and hit.char_start is not None:
                mine = set(range(hit.char_start, hit.char_end))
                if mine & set(range(other.char_start, other.char_end)):
                    continue
            one = slow_shingles(hit.content)
            found = len(one & slow_shingles(other.content)) / len(one)
            if found >= share and found > best:
                best, like = found, same
        if like is None:
            kept.append((hit, []))
        else:
            like.append(hit)
    return kept


@pytest.mark.slow
@given(searches(), AROUND, st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]), st.integers(1, 4))
def test_surroundings_near_duplicates_and_hits_of_a_document_against_slow_twins(found, around, share, count):
    stored_documents, hits = found
    everything = [chunk for document in stored_documents for chunk in document.chunks]
    for chunks in (everything, near(stored_documents, hits, around)):  # what is read is enough
        made = placed(hits, chunks, around)
        assert [one.hit for one in made] == hits
        for one in made:
            assert one.chunk.key[1] == one.hit.id
            ids = [chunk.key[1] for chunk in one.around]
            assert len(ids) == len(set(ids))
            assert set(ids) == slow_around(one.hit, hits, everything, around)
    assert steps.without_near_duplicates(hits, share) == slow_reduction(hits, share)
    names = [hit.source_document for hit in hits]
    expected = [hit for n, hit in enumerate(hits) if names[:n].count(hit.source_document) < count]
    assert steps.at_most_per_document(hits, count) == expected


@st.composite
def scored(draw):
    count = draw(st.integers(0, 10))
    scores = sorted(draw(st.lists(st.floats(-5, 5), min_size=count, max_size=count)), reverse=True)
    hits = [SearchResult("t", id=str(n), rank=n + 1, fused_score=score) for n, score in enumerate(scores)]
    numbers = st.lists(st.integers(-4, 4), min_size=3, max_size=3)
    vectors = {hit.id: np.array(draw(numbers), dtype=np.float32) for hit in hits if draw(st.booleans())}
    return hits, vectors


def cosine(one, other):
    norms = sum(x * x for x in one) ** 0.5, sum(x * x for x in other) ** 0.5
    return sum(x * y for x, y in zip(one, other, strict=True)) / (norms[0] * norms[1]) if all(norms) else 0.0


@pytest.mark.slow
@given(scored(), st.floats(0, 1))
def test_diversity_against_a_slow_twin(found, diversity):
    hits, vectors = found
    ordered = steps.diversified(hits, vectors, diversity)
    assert sorted(hit.id for hit in ordered) == sorted(hit.id for hit in hits)
    assert all(one is other for one, other in zip(hits, ordered, strict=True) if one.id not in vectors)
    relevance = dict(zip((hit.id for hit in hits), steps.relevances(hits).tolist(), strict=True))
    chosen = [hit for hit in ordered if hit.id in vectors]
    plain = {name: vector.tolist() for name, vector in vectors.items()}
    assert chosen[:1] == [hit for hit in hits if hit.id in vectors][:1]
    for turn in range(1, len(chosen)):
        gains = {
            hit.id: (1 - diversity) * relevance[hit.id]
            - diversity * max(cosine(plain[hit.id], plain[one.id]) for one in chosen[:turn])
            for hit in chosen[turn:]
        }
        assert gains[chosen[turn].id] >= max(gains.values()) - 1e-9


PAGE = (
    "# Keys\n\nAbout keys.\n\n## Rotation\n\nRotate a key every ninety days.\n\n### Tools\n\nThe vault.\n\n"
    "## Rotation\n\nOnce more.\n\n# Locks\n\n## Doors\n\nClosed.\n"
)


def chunks_of(text, structure, settings):
    names = ("heading_path", "char_start", "char_end", "line")
    return [
        StoredChunk(chunk.text, id=str(chunk.chunk_no), **{name: getattr(chunk, name) for name in names})
        for chunk in Chunker(WordCounter(), settings).cut(text, structure).chunks
    ]


CUTTINGS = st.sampled_from([ChunkSettings(16, 0, 0), ChunkSettings(16, 7, 8), ChunkSettings(500, 50, 32)])


@given(text=TEXT, structure=st.sampled_from(STRUCTURES), settings=CUTTINGS)
def test_a_text_comes_back_and_its_headings_lead_to_chunks(text, structure, settings):
    back = text_of(chunks_of(text, structure, settings))
    assert "".join(back.split()) == "".join(text.split())
    chunks = chunks_of(text, structure, settings)
    headings = headings_of(chunks, structure)
    lines = [heading.line or 0 for heading in headings]
    assert lines == sorted(lines)
    assert all(1 <= line <= len(text.splitlines()) for line in lines)
    assert {one for heading in headings for one in heading.chunk_ids} <= {chunk.id for chunk in chunks}
    assert all(heading.chunk_ids and heading.title for heading in headings)


CONFIDENCES = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def hits(prefix, confidences):
    numbered = enumerate(confidences)
    return [SearchResult(f"{prefix} {n}", {"n": n}, id=f"{n:02}", rank=n + 1, confidence=one) for n, one in numbered]


ANSWERS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.lists(CONFIDENCES, max_size=6), max_size=4)


@given(answers=ANSWERS)
def test_all_hits_come_once_in_an_order_that_only_they_decide(answers):
    given_hits = {name: hits(name, one) for name, one in answers.items()}
    found, merge = steps.merged(given_hits)
    again, _ = steps.merged(dict(reversed(given_hits.items())))
    assert found == again
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    every = {(name, hit.id) for name, own in given_hits.items() for hit in own}
    assert {(hit.collection, hit.id) for hit in found} == every
    for hit in found:
        own = given_hits[hit.collection][hit.collection_rank - 1]
        same = {one.name for one in fields(own)} - {"rank"}
        assert {name: getattr(hit, name) for name in same} == {name: getattr(own, name) for name in same}
    every = [one for own in answers.values() for one in own]
    assert merge == ("calibrated" if every and None not in every else "ranks")


@given(lengths=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 7)))
def test_places_are_taken_in_turn(lengths):
    found, merge = steps.merged({name: hits(name, [None] * count) for name, count in lengths.items()})
    turns = zip_longest(*([(name, place) for place in range(1, lengths[name] + 1)] for name in sorted(lengths)))
    assert [(hit.collection, hit.collection_rank) for hit in found] == [one for turn in turns for one in turn if one]
    assert merge == "ranks"
    assert all(hit.merge_score == 1 / (60 + hit.collection_rank) for hit in found)


SURE = st.lists(st.sampled_from([0.0, 0.3, 0.3, 0.9]), min_size=1)


@given(answers=st.dictionaries(st.sampled_from(["a", "b", "c"]), SURE))
def test_confidences_order_where_every_hit_has_one(answers):
    found, _ = steps.merged({name: hits(name, one) for name, one in answers.items()})
    keys = [(-hit.merge_score, hit.collection, hit.id) for hit in found]
    assert keys == sorted(keys)
    assert all(hit.merge_score == hit.confidence for hit in found)


def some(*texts):
    """Hits by collection, document and text."""
    answers = {}
    for number, (collection, document, text) in enumerate(texts):
        hit = SearchResult(text, id=f"{number}", source_document=document, confidence=1 - number / 100)
        answers.setdefault(collection, []).append(hit)
    return steps.merged(answers)[0]


def run(found, *chosen):
    left = asyncio.run(steps.taken(found, chosen))
    assert [hit.rank for hit in left] == list(range(1, len(left) + 1))
    return [hit.id for hit in left]


LONG = "a key is kept in the vault and nowhere else at any time"
FOUND = (("a", "x", LONG), ("b", "x", LONG), ("a", "x", "other words stand here"), ("a", "y", "an end"))


def test_steps_are_taken_in_their_order_and_wrong_ones_named():
    assert run(some(*FOUND), steps.no_near_duplicates()) == ["0", "2", "3"]
    assert run(some(*FOUND), steps.per_document(1)) == ["0", "1", "3"]
    assert run(some(*FOUND), steps.per_collection(1)) == ["0", "1"]
    assert run(some(*FOUND), steps.per_collection(1), lambda found: found[::-1]) == ["1", "0"]
    assert run(some(*FOUND), lambda found: found[::-1], steps.per_collection(1)) == ["3", "1"]
    assert run(some(*FOUND)) == ["0", "1", "2", "3"]
    assert run([], steps.no_near_duplicates(), steps.per_document(1), steps.per_collection(1)) == []
    # Chunks of one document that overlap are no duplicates; those of the same document elsewhere are.
    key = "0" * 32 + "-" + "1" * 16
    answers = {name: [SearchResult(LONG, id=key, char_start=0, char_end=len(LONG))] for name in ("a", "b")}
    left = asyncio.run(steps.taken(steps.merged(answers)[0], [steps.no_near_duplicates()]))
    assert [hit.collection for hit in left] == ["a"]
    for step, message in [
        (lambda _: None, "must return a list of hits; got NoneType"),
        (lambda _: "hits", "must return a list of hits; got str"),
        (lambda found: [found[0], "x"], "must return only hits that it was given"),
        (lambda found: [found[0], found[0]], "returned the same hit twice"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=rf"step 2 \(<lambda>\) {message}"):
            run(some(*FOUND), steps.per_document(5), step)
    for wrong, message in [(None, "steps"), ([3], "step 1 .* got int"), ("ab", "steps")]:
        with pytest.raises(ConfigurationError, match=message):
            steps.check_steps(wrong)
    for make in (steps.per_document, steps.per_collection, steps.no_near_duplicates):
        for value in (0, -1, "1", None, float("nan"), True):
            with pytest.raises(ConfigurationError):
                make(value)

    async def last(found):
        await asyncio.sleep(0)
        return found[-1:]

    assert run(some(*FOUND), last, steps.per_document(1)) == ["3"]
    found = some(*FOUND)
    assert run(found, lambda given: given.clear() or given[:]) == []
    assert len(found) == len(FOUND)
    own = hits("a", [0.5, 0.9])
    found, _ = steps.merged({"a": own})
    assert ([hit.rank for hit in own], [hit.id for hit in found]) == ([1, 2], ["01", "00"])
    assert found[0].metadata is own[1].metadata
    assert found[0].to_dict()["collection"] == "a"


@given(counts=st.lists(st.sampled_from(["a", "b"]), max_size=12), count=st.integers(1, 4))
def test_so_many_of_each_collection(counts, count):
    found = some(*((name, f"{n}", f"text {n}") for n, name in enumerate(counts)))
    left = run(found, steps.per_collection(count))
    own = {hit.id: hit.collection for hit in found}
    expected = {name: min(count, number) for name, number in Counter(counts).items()}
    assert Counter(own[one] for one in left) == Counter(expected)
