"""A checkup agrees with collections in which the documents really are indexed without the heading."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex import Bm25Options, Document
from semlex.testing import HashEmbedder
from tests.support.retrievers import sync_opened

WORDS = ("cat", "dog", "ship", "hill", "stone", "running", "keys")
HEADINGS = ("cat ship", "the dog", "Keys", "running -hill", 'stone "cat"', "hill", "zzqx")
WEIGHT = 0.5
EMBEDDER = HashEmbedder(16)

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
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    ),
    min_size=3,
    max_size=20,
)


def is_rank(rank, mine, others):
    """Whether a rank is that of the best of mine, whatever the order of what is as good as equal."""
    close = 1e-4
    if not mine:
        return rank is None
    better = sum(score > max(mine) + close for score in others)
    as_good = sum(score > max(mine) - close for score in others)
    return rank is not None and better < rank <= as_good + 1


def opened(url, collection):
    """Chunks' length does not count (b=0): the average of all is that of the collection as it is."""
    return sync_opened(url, EMBEDDER, collection=collection, bm25=Bm25Options(b=0.0))


@pytest.fixture(scope="module")
def own(new_database):
    with opened(new_database(), "own") as retriever:
        yield retriever


@pytest.fixture(scope="module")
def twin(new_database):
    with opened(new_database(), "twin") as retriever:
        yield retriever


@pytest.mark.slow
@example(
    rows=[("a.md", "cat ship", "", "cat ship"), ("a.md", "cat ship", "", "dog"), ("b.md", "", "", "dog")], mode=None
)
@given(rows=rows, mode=st.sampled_from([None, "vector", "keyword"]))
def test_it_agrees_with_documents_that_lack_the_heading(own, twin, rows, mode):
    rows = [*rows, ("z.md", "One to ask", "", "a text of its own")]
    whole = [document(number, row) for number, row in enumerate(rows)]
    for one in (own, twin):
        if one.count() > len(rows):
            one.delete([f"c{number:02}" for number in range(len(rows), 21)])
        one.add_documents(whole)
    sections = {(row[0], tuple(filter(None, row[1:3]))): row[2] or row[1] for row in rows if row[1] or row[2]}
    counts = {heading: [*sections.values()].count(heading) for heading in sections.values()}
    fair = {place: heading for place, heading in sections.items() if counts[heading] <= 2}
    told = own.checkup(mode=mode)
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
        assert is_rank(one.rank, mine, others), (one, mine, others)
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
