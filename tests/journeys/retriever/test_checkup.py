"""`collection.checkup`: what is asked, what is told, and what it is refused for."""

import asyncio
import math
import re
import threading
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from semlex import Bm25Options, Document
from semlex.diagnostics.checkup import FIRST_BATCH, MAX_SECONDS, share_of
from semlex.errors import ConfigurationError
from semlex.models.cancellation import check
from semlex.testing import HashEmbedder
from tests.support.folders import folder_with
from tests.support.manual_clock import ManualClock
from tests.support.properties import examples
from tests.support.retrievers import opened, sync_opened
from tests.support.waiting import LIMIT

KEYS = (
    "# Keys of the house\n\nEvery door has one.\n\n## Rotation of keys\n\nRotate a key every ninety days, or when "
    "somebody leaves.\n\n## Storage\n\nSpare keys hang in the vault behind the desk of the janitor.\n"
)
FRUIT = (
    "# Fruit\n\nApples and pears are picked in autumn.\n\n## Drying plums\n\nPlums are cut in half and dried on a wire "
    "in the attic.\n"
)


async def checked(url, rows):
    """Return the checkup of these rows by keyword search."""
    async with opened(url, "none") as retriever:
        await retriever.add_documents(rows)
        return await retriever.checkup()


def titled(text, title, document=None):
    return Document(text, {"section_title": title} | ({"source_document": document} if document else {}))


def heading(told, name):
    return next(one for page in told.documents for one in page.headings if one.path[-1] == name)


@pytest.mark.slow
async def test_the_headings_of_pages_are_asked(database_url, tmp_path):
    steps, waits, pages = [], [], folder_with(tmp_path / "pages", {"keys.md": KEYS, "fruit.md": FRUIT})
    # With min_tokens=0, no small section is joined to another.
    async with opened(database_url, HashEmbedder(), min_tokens=0) as retriever:
        await retriever.index(pages)
        told = await retriever.checkup(progress=steps.append, estimated=waits.append)
        again = await retriever.checkup()
    assert (told.mode, told.headings, told.chunks, told.result.asked) == ("hybrid", 5, 5, 5)
    assert heading(told, "Rotation of keys").rank == 1
    # Nothing but the heading says "storage".
    assert heading(told, "Storage").code in {None, "no_shared_word"}
    assert heading(told, "Storage").path == ("Keys of the house", "Storage")
    found = {(page.source, page.document, page.chunks) for page in told.documents}
    assert found == {("pages", "keys.md", 3), ("pages", "fruit.md", 2)}
    assert [(step.done, step.total) for step in steps] == [(number, 5) for number in range(1, 6)]
    assert len(waits) == 1
    assert told.embedded >= 5
    assert set(told.alone) == {"vector", "keyword"}
    assert "of the headings, asked as questions, find their own section in the first three hits" in repr(told)
    assert replace(again, seconds=0) == replace(told, seconds=0)


async def test_the_heading_itself_finds_nothing(database_url):
    """A section that is found by its heading alone is not found without it."""
    rows = [titled(f"## {word}\nnothing to see here", word) for word in ("plums", "ships")]
    told = await checked(database_url, [*rows, *(Document(f"plums and ships {number}") for number in range(5))])
    async with opened(database_url, "none") as retriever:
        [hit] = await retriever.search("plums", 1)
        assert hit.content.startswith("## plums")
    assert told.mode == "keyword"
    assert (told.result.found, told.result.asked) == (0, 2)
    assert told.reasons == {"no_shared_word": 2}
    assert told.alone == {}


@pytest.mark.slow
async def test_it_ends_in_time_unless_a_sample_is_named(database_url):
    rows, clock = [titled(f"text {number}", f"heading {number} h{number}") for number in range(20)], ManualClock()
    async with opened(database_url, "none", clock=clock) as retriever:
        await retriever.add_documents(rows)
        told = await retriever.checkup(progress=lambda _: clock.advance(MAX_SECONDS))
        assert (told.result.asked, told.left_out.not_drawn) == (FIRST_BATCH, 20 - FIRST_BATCH)
        assert any("--sample 500" in note for note in told.notes)
        whole = await retriever.checkup(20, progress=lambda _: clock.advance(MAX_SECONDS))
        assert whole.result.asked == 20
        some, same, others = [await retriever.checkup(5, seed=seed) for seed in (1, 1, 2)]
        every = await retriever.checkup(100)

    def asked(told):
        return {one.heading for page in told.documents for one in page.headings}

    assert asked(some) == asked(same) != asked(others)
    assert (some.result.asked, some.left_out.not_drawn) == (5, 15)
    assert asked(some) | asked(others) < asked(every)
    assert every.left_out.not_drawn == 0


async def test_headings_of_many_places_are_left_out(database_url):
    notes = [titled(f"a note {n}", "Notes", f"{n}.md") for n in range(3)]
    twice = [titled(f"an idea {n}", "IDEAS!", f"{n}.md") for n in range(2)]
    wide = [Document(f"part {n}", {"source_document": "w.md", "chapter_title": "Wide"}) for n in range(13)]
    alone = [titled("text", "***", "m.md"), titled("## Alone", "Alone", "a.md")]
    told = await checked(database_url, [*notes, *twice, *wide, *alone])
    left = told.left_out
    assert (told.headings, told.result.asked) == (8, 2)
    assert (left.repeated, left.wide, left.wordless, left.empty) == (3, 1, 1, 1)


async def test_the_same_text_elsewhere_is_told_apart(database_url):
    text = "the kettle boils on the stove while the cat sleeps under the warm table"
    others = (Document(f"{text} {'kettle ' * times}") for times in (1, 2, 3))
    told = await checked(database_url, [titled(text, "The kettle"), *others])
    assert told.reasons == {"duplicate": 1}
    assert (told.result.found, told.with_duplicates.found) == (0, 1)


async def test_a_document_that_outranks_the_rest_is_named(database_url):
    words = [f"w{number}" for number in range(12)]
    pages = [titled(f"a long text that once names {word} among many other things", f"about {word}") for word in words]
    index = [
        Document(f"{word} " * 3, {"source_document": "index.md"}, id=f"{word}-{n}") for word in words for n in "123"
    ]
    others = [Document(f"something else {n}", {"source_document": "rest.md"}) for n in range(120)]
    told = await checked(database_url, [*pages, *index, *others])
    assert told.reasons == {"below_top_k": 12}
    (first,) = told.dominating
    assert (first.document, first.hits, first.share) == ("index.md", 36, 1.0)
    assert first.expected == pytest.approx(36 / 168)


async def test_docstrings_are_asked_of_code(database_url, tmp_path):
    described = '"""Boils water on a stove.\n\n    It whistles at the end.\n    """'
    code = f"class Kettle:\n    {described}\n\n    limit = 100\n\n\ndef silent():\n    return 3\n"
    async with opened(database_url, "none", min_tokens=0) as retriever:
        await retriever.index(folder_with(tmp_path / "code", {"kettle.py": code}))
        told = await retriever.checkup()
    assert [one.heading for page in told.documents for one in page.headings] == ["Boils water on a stove."]
    assert told.left_out.without_docstring == 1
    assert told.reasons == {"no_shared_word": 1}


HOSTILE = {
    "markup": '<script>alert(1)</script> <b>& "bold"', "controls": "red \x1b[31m alert \x07\u202e turned",
    "long": "endless " * 1250, "marks": "!!! --- ???", "excluding": '-everything "exact phrase" -"nothing else"',
    "separators": "above > below > above", "lines": "one\ntwo\r\nthree", "patterns": r"\d+ (?P<x>.*) [a-z]{99999} $",
}  # fmt: skip


async def test_hostile_headings(database_url):
    rows = [
        Document(f"# {title}\nbody of {name}", {"source_document": f"{name}.md", "section_title": title}, id=name)
        for name, title in HOSTILE.items()
    ]
    async with opened(database_url, HashEmbedder()) as retriever:
        await retriever.add_documents(rows)
        for mode in ("hybrid", "keyword", "vector"):
            told = await retriever.checkup(mode=mode)
            asked = {one.chunk_id: one for page in told.documents for one in page.headings}
            assert set(asked) == HOSTILE.keys() - {"marks"}
            assert told.left_out.wordless == 1
            assert asked["excluding"].heading == "everything exact phrase nothing else"
            assert len(asked["long"].heading) <= 1_000
            # The bodies share no word with any heading.
            assert mode != "keyword" or told.reasons == {"no_shared_word": 7}


async def test_what_cannot_be_asked_is_refused(database_url):
    notes = [titled(f"text {n}", "Notes") for n in range(3)]
    async with opened(database_url, "none") as retriever:
        for rows, message in (
            ([], "is empty: fill it with semlex index PATH"),
            ([Document("a text"), Document("another")], "no chunk of collection 'default_collection' has a heading"),
            (notes, "none of the 3 headings .* 3 occur in three or more places"),
        ):
            await retriever.add_documents(rows)
            with pytest.raises(ConfigurationError, match=message):
                await retriever.checkup()
        wrong = (("sample", 0), ("sample", "9"), ("seed", -1), ("mode", "both"), ("progress", 3), ("estimated", 3))
        for name, value in wrong:
            with pytest.raises(ConfigurationError):
                await retriever.checkup(**{name: value})


@pytest.mark.slow
async def test_engines_without_scores_and_a_missing_model_change_the_mode(database_url):
    rows = [titled("Spare ones hang in the vault", "Keys"), Document("a ship")]
    async with opened(database_url, HashEmbedder(), keyword="tsvector") as retriever:
        await retriever.add_documents(rows)
        with pytest.raises(ConfigurationError, match=r"'tsvector' cannot score .* --mode vector\)"):
            await retriever.checkup()
        assert (await retriever.checkup(mode="vector")).mode == "vector"
    async with opened(database_url, HashEmbedder(), keyword="none", collection="vectors") as retriever:
        await retriever.add_documents(rows)
        assert (await retriever.checkup()).mode == "vector"
    async with opened(database_url, HashEmbedder(), collection="words") as retriever:
        await retriever.add_documents(rows)
    async with opened(database_url, None, collection="words") as retriever:
        told = await retriever.checkup()
    assert told.mode == "keyword"
    assert any("answered by words alone" in note for note in told.notes)


def contents(url):
    """Every table of the schema, and how many rows were ever written to it."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'semlex' ORDER BY 1").fetchall()
        query = "SELECT t.xmin::text, t::text FROM semlex.{} AS t ORDER BY 2"
        return [(name, connection.execute(query.format(name)).fetchall()) for (name,) in names]


async def test_it_only_reads_and_ends_when_it_is_cancelled(database_url):
    began, is_stuck = threading.Event(), threading.Event()

    class Waiting(HashEmbedder):
        def embed_documents(self, texts):
            while is_stuck.is_set():
                began.set()
                check()
            return super().embed_documents(texts)

    async with opened(database_url, Waiting()) as retriever:
        await retriever.add_documents([titled("Spare keys hang in the vault", "Keys"), Document("a ship")])
        is_stuck.set()
        task = asyncio.create_task(retriever.checkup())
        assert await asyncio.to_thread(began.wait, LIMIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        is_stuck.clear()
        assert (await retriever.checkup()).result.asked == 1
    read_only = make_conninfo(database_url, options="-c default_transaction_read_only=on")
    before = contents(database_url)
    async with opened(read_only, HashEmbedder(), create=False) as retriever:
        assert (await retriever.checkup()).result.found == 1
    assert contents(database_url) == before


WORDS = ("cat", "dog", "ship", "hill", "stone", "running", "keys")
HEADINGS = ("cat ship", "the dog", "Keys", "running -hill", 'stone "cat"', "hill", "zzqx")
EMBEDDER, WEIGHT = HashEmbedder(16), 0.5


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


names, chapters, sections = map(st.sampled_from, (["a.md", "b.md", "c.md"], ["", *HEADINGS[:3]], ["", *HEADINGS[3:]]))
bodies = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


def is_rank_of_best(rank, mine, others):
    """Whether a rank is that of the best of mine, whatever the order of what is as good as equal."""
    close = 1e-4
    if not mine:
        return rank is None
    better = sum(score > max(mine) + close for score in others)
    as_good = sum(score > max(mine) - close for score in others)
    return rank is not None and better < rank <= as_good + 1


@pytest.fixture(scope="module")
def twin(module_url):
    """Chunks' length does not count (b=0): the average of all is that of the collection as it is."""
    with sync_opened(module_url, EMBEDDER, bm25=Bm25Options(b=0.0)) as retriever:
        yield retriever


@pytest.mark.slow
@settings(max_examples=examples(10, full=10_000))
@example(
    rows=[("a.md", "", "", "cat"), ("a.md", "", "", "cat"), ("a.md", "", "running -hill", "cat cat hill")], mode=None
)
@example(
    rows=[("a.md", "cat ship", "", "cat ship"), ("a.md", "cat ship", "", "dog"), ("b.md", "", "", "dog")], mode=None
)
@given(
    rows=st.lists(st.tuples(names, chapters, sections, bodies), min_size=3, max_size=12),
    mode=st.sampled_from([None, "vector", "keyword"]),
)
def test_it_agrees_with_documents_that_lack_the_heading(twin, rows, mode):
    rows = [*rows, ("z.md", "One to ask", "", "a text of its own")]
    whole = [document(number, row) for number, row in enumerate(rows)]
    if twin.count() > len(rows):
        twin.delete([f"c{number:02}" for number in range(len(rows), 21)])
    twin.add_documents(whole)
    paths = [tuple(filter(None, row[1:3])) for row in rows]
    sections = {(row[0], path): path[-1] for row, path in zip(rows, paths, strict=True) if path}
    counts = {heading: [*sections.values()].count(heading) for heading in sections.values()}
    fair = {place: heading for place, heading in sections.items() if counts[heading] <= 2}
    told = twin.checkup(mode=mode)  # before it loses a heading
    assert told.left_out.repeated == len(sections) - len(fair)
    asked = {(page.document, one.path): one for page in told.documents for one in page.headings}
    assert set(asked) <= set(fair)
    assert len(fair) - len(asked) == told.left_out.wide + told.left_out.empty
    contexts = [" > ".join(path) for path in paths]
    texts = [
        f"{context}\n{one.content}" if context else one.content for context, one in zip(contexts, whole, strict=True)
    ]
    stored = EMBEDDER.embed_documents(texts)
    changed = []
    for (name, path), one in asked.items():
        heading = fair[name, path]
        section = [n for n, row in enumerate(rows) if row[0] == name and paths[n][: len(path)] == path]
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
        mine, others = [], []
        for hit in hits:
            near, words = hit.vector_score, hit.keyword_score or 0.0
            if mode is None and near is not None:
                z = (near - similar.mean()) / similar.std() if similar.std() > 1e-6 else 0.0
                score = (1 - WEIGHT) * (words / greatest if greatest else 0.0) + WEIGHT * z / 6
            else:
                score = words if mode == "keyword" else near or 0.0
            (mine if int(hit.id[1:]) in section else others).append(score)
        assert is_rank_of_best(one.rank, mine, others), (one, mine, others)
        assert (one.code is None) == (one.rank is not None and one.rank <= 3)


def test_the_interval_is_wilson():
    for found, asked in ((0, 1), (3, 7), (20, 20), (1, 200)):
        low, high = share_of(found, asked).interval
        for end in (low, high):
            # The interval holds the shares under which so many would be no surprise: solved backwards.
            if 0 < end < 1:
                assert abs(found / asked - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / asked))
        assert 0 <= low <= found / asked <= high <= 1
