"""Explanations and checkups agree with slow, exhaustive twins over random small collections."""

import math
import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex import Bm25Options, Document, TermOverlapReranker
from semlex.proof.check import plain_bm25
from semlex.testing import HashEmbedder
from tests.support.retrievers import arguments_in, opened, sync_opened

WORDS = ("cat", "dog", "ship", "hill", "stone")
NAMES = [f"d{n:02}" for n in range(24)]
EMBEDDER = HashEmbedder(16)


@pytest.fixture(scope="module")
def retriever(new_database):
    with sync_opened(new_database(), EMBEDDER) as retriever:
        yield retriever


def is_rank(rank, mine, scores, close):
    """Whether a rank is that of a score, whatever the order among those that are as good as equal."""
    better = sum(score > mine + close for score in scores)
    as_good = sum(score >= mine - close for score in scores)
    return rank is not None and better < rank <= as_good


@pytest.mark.slow
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), min_size=6, max_size=24),
    question=st.lists(st.sampled_from((*WORDS, "zzqx")), min_size=1, max_size=3, unique=True),
    excluded=st.sampled_from([None, None, *WORDS]),
    mode=st.sampled_from([None, "vector", "keyword"]),
    filters=st.sampled_from([None, "n < 12", "even == true"]),
    top_k=st.integers(1, 4),
    more=st.integers(0, 3),
    picked=st.integers(0, 23),
)
def test_it_agrees_with_an_exhaustive_search(
    *, retriever, texts, question, excluded, mode, filters, top_k, more, picked
):
    stored = {name: " ".join(words) for name, words in zip(NAMES, texts, strict=False)}
    numbers = {name: number for number, name in enumerate(stored)}
    passing = {
        name
        for name, number in numbers.items()
        if filters is None or (number < 12 if filters == "n < 12" else number % 2 == 0)
    }
    asked = " ".join([*question, *([f"-{excluded}"] if excluded else [])])
    name = list(stored)[picked % len(stored)]
    options = {"filters": filters, "mode": mode, "tuning": {"candidates": top_k + more}}
    retriever.delete(NAMES)
    retriever.add_documents(
        [Document(text, {"n": numbers[one], "even": numbers[one] % 2 == 0}, id=one) for one, text in stored.items()]
    )
    hits = retriever.search(asked, top_k, **options)
    told = retriever.why(name, asked, top_k, **options)
    # Presence.
    place = next((hit.rank for hit in hits if hit.id == name), None)
    assert (told.found, told.rank) == (place is not None, place)
    assert (told.code == "filtered") == (name not in passing)
    out = excluded is not None and excluded in stored[name].split()
    assert (told.code == "excluded") == (out and name in passing)
    if name not in passing:
        return
    # Ranks and scores.
    vectors = dict(zip(stored, EMBEDDER.embed_documents(list(stored.values())).astype(np.float64), strict=True))
    query = EMBEDDER.embed_query(asked).astype(np.float64)
    cosines = {one: float(vectors[one] @ query) for one in passing}
    words = plain_bm25({one: ("english", text) for one, text in stored.items()}, " ".join(question))
    near, by_words = told.leg("vector"), told.leg("keyword")
    if near is not None:
        assert near.score == pytest.approx(cosines[name], abs=1e-5)
        assert is_rank(near.rank, cosines[name], list(cosines.values()), 1e-5)
    if by_words is not None and not out:
        left = {
            one: score
            for one, score in words.items()
            if one in passing and not (excluded and excluded in stored[one].split())
        }
        assert by_words.score == pytest.approx(words.get(name, 0.0), abs=1e-9)
        if name in left:
            assert is_rank(by_words.rank, left[name], list(left.values()), 1e-9)
        else:
            assert by_words.rank is None
        assert {term.term for term in told.terms if term.held} == set(question) & set(stored[name].split())
        assert sum(term.score for term in told.terms) == pytest.approx(words.get(name, 0.0), abs=1e-9)
    # The remedy helps.
    given_again = arguments_in(told.reasons[0].remedy)
    if given_again:
        again = retriever.search(asked, **({"top_k": top_k} | options | given_again))
        assert name in {hit.id for hit in again}
    elif not told.found and not out:
        assert {reason.code for reason in told.reasons} <= {"no_shared_word", "beyond_vector_depth"}


def drawn(chance):
    """A question, and options of a search of every kind."""
    question = " ".join(chance.sample(WORDS, chance.randrange(1, 4)))
    question += f" -{chance.choice(WORDS)}" if chance.random() < 0.2 else ""
    question += f' "{" ".join(chance.sample(WORDS, 2))}"' if chance.random() < 0.15 else ""
    top_k = chance.randrange(1, 16)
    options = {
        "rerank": chance.choice([True, False]),
        "mode": chance.choice([None, "vector", "keyword"]),
        "fusion": chance.choice(["score", "rrf", "linear"]),
        "top_k": top_k,
    }
    kind = chance.random()
    if kind < 0.4:
        options |= {"group_by": "document", "group_size": chance.randrange(1, 4)}
    elif kind < 0.6:
        options["max_results"] = top_k + chance.randrange(20)
    if chance.random() < 0.3:
        options["tuning"] = {"candidates": options.get("max_results", top_k) + chance.randrange(10)}
    if chance.random() < 0.2:
        options["boost"] = [("@source_document startswith 'doc1'", 3.0)]
    return question, options


@pytest.mark.slow
async def test_remedies_help(database_url, full):
    """Also with groups, pages, fusions and boosts; no remedy is promised if a reranker decides."""
    chance, seen, helped = random.Random(5), Counter(), 0
    async with opened(database_url, EMBEDDER, TermOverlapReranker()) as retriever:
        texts = [" ".join(chance.choices(WORDS, k=chance.randrange(1, 9))) for _ in range(80)]
        await retriever.add_documents(
            [
                Document(f"{text} n{n}", {"source_document": f"doc{n % 40}" if n % 3 else ""}, id=f"d{n}")
                for n, text in enumerate(texts)
            ]
        )
        for _ in range(600 if full else 80):
            question, options = drawn(chance)
            name = f"d{chance.randrange(80)}"
            told = await retriever.why(name, question, **options)
            seen[told.code] += 1
            assert told.found == (name in {hit.id for hit in await retriever.search(question, **options)})
            helps = arguments_in(told.reasons[0].remedy)
            if not helps or told.code == "reranked_below" or "the reranker then" in told.reasons[0].remedy:
                continue
            page = await retriever.search(question, **(options | helps))
            ids = [hit.id for hit in page]
            while page.next_cursor and "max_results" in helps:
                page = await retriever.search_page(page.next_cursor)
                ids += [hit.id for hit in page]
            assert name in ids, (name, question, options, helps)
            helped += 1
    assert helped >= 20
    assert {"found", "below_top_k", "beyond_vector_depth", "no_shared_word", "excluded", "capped"} <= set(seen)
    assert "unknown" not in seen


WORDS_OF_SECTIONS = ("cat", "dog", "ship", "hill", "stone", "running", "keys")
HEADINGS = ("cat ship", "the dog", "Keys", "running -hill", 'stone "cat"', "hill", "zzqx")
WEIGHT = 0.5

Row = tuple[str, str, str, str]  # document, chapter, section, body


def document(number, row):
    """A chunk as it is indexed: its headings above it, the last one in its text as well."""
    name, chapter, section, body = row
    metadata = {"source_document": name, "chapter_title": chapter, "section_title": section}
    heading = section or chapter
    return Document(f"## {heading}\n{body}" if heading else body, metadata, id=f"c{number:02}")


def words_of(line):
    return re.findall(r"\w+", line.lower())


def without(number, row, heading):
    """The same as if the heading had never been there."""
    name, chapter, section, body = row
    chapter, section = ("" if one == heading else one for one in (chapter, section))
    last = row[2] or row[1]
    text = body if last == heading else f"## {last}\n{body}"
    lines = [line for line in text.splitlines() if words_of(line) != words_of(heading)]
    metadata = {"source_document": name, "chapter_title": chapter, "section_title": section}
    return Document("\n".join(lines), metadata, id=f"c{number:02}")


rows = st.lists(
    st.tuples(
        st.sampled_from(["a.md", "b.md", "c.md"]),
        st.sampled_from(["", *HEADINGS[:3]]),
        st.sampled_from(["", *HEADINGS[3:]]),
        st.lists(st.sampled_from(WORDS_OF_SECTIONS), min_size=1, max_size=6).map(" ".join),
    ),
    min_size=3,
    max_size=12,
)


def is_rank_of_best(rank, mine, others):
    """Whether a rank is that of the best of mine, whatever the order of what is as good as equal."""
    close = 1e-4
    if not mine:
        return rank is None
    better = sum(score > max(mine) + close for score in others)
    as_good = sum(score > max(mine) - close for score in others)
    return rank is not None and better < rank <= as_good + 1


def without_lengths(url, collection):
    """Chunks' length does not count (b=0): the average of all is that of the collection as it is."""
    return sync_opened(url, EMBEDDER, collection=collection, bm25=Bm25Options(b=0.0))


@pytest.fixture(scope="module")
def twin(new_database):
    with without_lengths(new_database(), "twin") as retriever:
        yield retriever


@pytest.mark.slow
@example(
    rows=[("a.md", "cat ship", "", "cat ship"), ("a.md", "cat ship", "", "dog"), ("b.md", "", "", "dog")], mode=None
)
@given(rows=rows, mode=st.sampled_from([None, "vector", "keyword"]))
def test_it_agrees_with_documents_that_lack_the_heading(twin, rows, mode):
    rows = [*rows, ("z.md", "One to ask", "", "a text of its own")]
    whole = [document(number, row) for number, row in enumerate(rows)]
    if twin.count() > len(rows):
        twin.delete([f"c{number:02}" for number in range(len(rows), 21)])
    twin.add_documents(whole)
    sections = {(row[0], tuple(filter(None, row[1:3]))): row[2] or row[1] for row in rows if row[1] or row[2]}
    counts = {heading: [*sections.values()].count(heading) for heading in sections.values()}
    fair = {place: heading for place, heading in sections.items() if counts[heading] <= 2}
    told = twin.checkup(mode=mode)  # before it loses a heading
    assert told.left_out.repeated == len(sections) - len(fair)
    asked = {(page.document, one.path): one for page in told.documents for one in page.headings}
    assert set(asked) <= set(fair)
    assert len(fair) - len(asked) == told.left_out.wide + told.left_out.empty
    stored = EMBEDDER.embed_documents([embedded(number, row) for number, row in enumerate(rows)])
    changed = []
    for (name, path), one in asked.items():
        heading = fair[name, path]
        section = [
            number
            for number, row in enumerate(rows)
            if row[0] == name and tuple(filter(None, row[1:3]))[: len(path)] == path
        ]
        bare = {number: without(number, rows[number], heading) for number in section}
        if not all(one.content for one in bare.values()):
            continue  # a chunk without text cannot be stored
        twin.add_documents([bare.get(number, whole[number]) for number in sorted({*section, *changed})])
        changed = section
        hits = twin.search(
            one.heading, 21, mode=mode, tuning={"candidates": 21}, weights={"vector": WEIGHT} if mode is None else None
        )
        similar = stored.astype(np.float64) @ EMBEDDER.embed_query(one.heading).astype(np.float64)
        greatest = max((hit.keyword_score or 0.0 for hit in hits), default=0.0)
        mine = []
        others = []
        for hit in hits:
            near, words = hit.vector_score, hit.keyword_score or 0.0
            if mode is None and near is not None:
                deviation = similar.std()
                z = (near - similar.mean()) / deviation if deviation > 1e-6 else 0.0
                score = (1 - WEIGHT) * (words / greatest if greatest else 0.0) + WEIGHT * z / 6
            else:
                score = words if mode == "keyword" else near or 0.0
            (mine if int(hit.id[1:]) in section else others).append(score)
        assert is_rank_of_best(one.rank, mine, others), (one, mine, others)
        assert (one.code is None) == (one.rank is not None and one.rank <= 3)


def embedded(number, row):
    """What is embedded of a chunk."""
    context = " > ".join(filter(None, row[1:3]))
    text = document(number, row).content
    return f"{context}\n{text}" if context else text


def test_the_interval_is_wilson():
    from semlex.diagnostics.checkup import share_of

    for found, asked in ((0, 1), (3, 7), (20, 20), (1, 200)):
        low, high = share_of(found, asked).interval
        for end in (low, high):
            # The interval holds the shares under which so many would be no surprise: solved backwards.
            if 0 < end < 1:
                assert abs(found / asked - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / asked))
        assert 0 <= low <= found / asked <= high <= 1
