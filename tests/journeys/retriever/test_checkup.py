"""`collection.checkup`: what is asked, what is told, and what it is refused for."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from semlex import Document
from semlex.diagnostics.checkup import FIRST_BATCH, MAX_SECONDS
from semlex.errors import ConfigurationError
from semlex.models.cancellation import check
from semlex.testing import HashEmbedder
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened, sync_opened
from tests.support.waiting import LIMIT

KEYS = """# Keys of the house

Every door has one.

## Rotation of keys

Rotate a key every ninety days, or when somebody leaves.

## Storage

Spare keys hang in the vault behind the desk of the janitor.
"""
FRUIT = """# Fruit

Apples and pears are picked in autumn.

## Drying plums

Plums are cut in half and dried on a wire in the attic.
"""


def written(folder, **pages):
    """Pages with sections of their own: small ones would be joined."""
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def heading(told, name):
    return next(one for page in told.documents for one in page.headings if one.path[-1] == name)


@pytest.mark.slow
async def test_the_headings_of_pages_are_asked(database_url, tmp_path):
    pages = written(tmp_path / "pages", keys=KEYS, fruit=FRUIT)
    steps = []
    waits = []
    async with opened(database_url, HashEmbedder(), min_tokens=0) as retriever:
        await retriever.index(pages)
        told = await retriever.checkup(
            progress=lambda step: steps.append((step.done, step.total)), estimated=waits.append
        )
        again = await retriever.checkup()
    assert (told.mode, told.headings, told.chunks, told.result.asked) == ("hybrid", 5, 5, 5)
    assert heading(told, "Rotation of keys").rank == 1
    # Nothing but the heading says "storage".
    assert heading(told, "Storage").code in {None, "no_shared_word"}
    assert heading(told, "Storage").path == ("Keys of the house", "Storage")
    assert {(page.source, page.document, page.chunks) for page in told.documents} == {
        ("pages", "keys.md", 3),
        ("pages", "fruit.md", 2),
    }
    assert steps == [(number, 5) for number in range(1, 6)]
    assert len(waits) == 1
    assert told.embedded >= 5
    assert set(told.alone) == {"vector", "keyword"}
    assert "of the headings, asked as questions, find their own section in the first three hits" in repr(told)
    assert replace(again, seconds=0) == replace(told, seconds=0)


async def test_the_heading_itself_finds_nothing(database_url):
    """A section that is found by its heading alone is not found without it."""
    rows = [
        Document(f"## {word}\nnothing to see here", {"section_title": word}, id=word) for word in ("plums", "ships")
    ]
    others = [Document(f"plums and ships {number}") for number in range(5)]
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents([*rows, *others])
        assert [hit.id for hit in await retriever.search("plums", 1)] == ["plums"]
        told = await retriever.checkup()
    assert told.mode == "keyword"
    assert (told.result.found, told.result.asked) == (0, 2)
    assert told.reasons == {"no_shared_word": 2}
    assert told.alone == {}


async def test_it_ends_in_time_unless_a_sample_is_named(database_url):
    rows = [Document(f"text {number}", {"section_title": f"heading {number} h{number}"}) for number in range(12)]
    clock = ManualClock()
    async with opened(database_url, "none", clock=clock) as retriever:
        await retriever.add_documents(rows)
        told = await retriever.checkup(progress=lambda _: clock.advance(MAX_SECONDS))
        assert (told.result.asked, told.left_out.not_drawn) == (FIRST_BATCH, 12 - FIRST_BATCH)
        assert any("--sample 500" in note for note in told.notes)
        whole = await retriever.checkup(12, progress=lambda _: clock.advance(MAX_SECONDS))
        assert whole.result.asked == 12


@pytest.mark.slow
async def test_a_sample_is_drawn_by_its_seed(database_url):
    rows = [
        Document(f"text {number} of its own", {"section_title": f"heading {number} h{number}"}) for number in range(20)
    ]
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents(rows)
        some, same, others = [await retriever.checkup(5, seed=seed) for seed in (1, 1, 2)]
        every = await retriever.checkup(100)

    def asked(told):
        return {one.heading for page in told.documents for one in page.headings}

    assert asked(some) == asked(same) != asked(others)
    assert (some.result.asked, some.left_out.not_drawn) == (5, 15)
    assert asked(some) | asked(others) < asked(every)
    assert every.left_out.not_drawn == 0


async def test_headings_of_many_places_are_left_out(database_url):
    notes = [Document(f"a note {n}", {"source_document": f"{n}.md", "section_title": "Notes"}) for n in range(3)]
    twice = [Document(f"an idea {n}", {"source_document": f"{n}.md", "section_title": "IDEAS!"}) for n in range(2)]
    wide = [Document(f"part {n}", {"source_document": "w.md", "chapter_title": "Wide"}) for n in range(13)]
    marks = [Document("text", {"source_document": "m.md", "section_title": "***"})]
    alone = [Document("## Alone", {"source_document": "a.md", "section_title": "Alone"})]
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents([*notes, *twice, *wide, *marks, *alone])
        told = await retriever.checkup()
    left = told.left_out
    assert (told.headings, told.result.asked) == (8, 2)
    assert (left.repeated, left.wide, left.wordless, left.empty) == (3, 1, 1, 1)


async def test_the_same_text_elsewhere_is_told_apart(database_url):
    text = "the kettle boils on the stove while the cat sleeps under the warm table"
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents([Document(text, {"section_title": "The kettle"})])
        await retriever.add_documents([Document(f"{text} {'kettle ' * times}") for times in (1, 2, 3)])
        told = await retriever.checkup()
    assert told.reasons == {"duplicate": 1}
    assert (told.result.found, told.with_duplicates.found) == (0, 1)


async def test_a_document_that_outranks_the_rest_is_named(database_url):
    words = [f"w{number}" for number in range(12)]
    pages = [
        Document(f"a long text that once names {word} among many other things", {"section_title": f"about {word}"})
        for word in words
    ]
    index = [
        Document(f"{word} {word} {word}", {"source_document": "index.md"}, id=f"{word}-{n}")
        for word in words
        for n in (1, 2, 3)
    ]
    others = [Document(f"something else {n}", {"source_document": "rest.md"}) for n in range(120)]
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents([*pages, *index, *others])
        told = await retriever.checkup()
    assert told.reasons == {"below_top_k": 12}
    (first,) = told.dominating
    assert (first.document, first.hits, first.share) == ("index.md", 36, 1.0)
    assert first.expected == pytest.approx(36 / 168)


async def test_docstrings_are_asked_of_code(database_url, tmp_path):
    code = (
        'class Kettle:\n    """Boils water on a stove.\n\n    It whistles at the end.\n    """\n\n    limit = 100\n\n\n'
        "def silent():\n    return 3\n"
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "kettle.py").write_text(code, encoding="utf-8")
    async with opened(database_url, "none", min_tokens=0) as retriever:
        await retriever.index(tmp_path / "code")
        told = await retriever.checkup()
    assert [one.heading for page in told.documents for one in page.headings] == ["Boils water on a stove."]
    assert told.left_out.without_docstring == 1
    assert told.reasons == {"no_shared_word": 1}


HOSTILE = {
    "markup": '<script>alert(1)</script> <b>& "bold"',
    "controls": "red \x1b[31m alert \x07\u202e turned",
    "long": "endless " * 1250,
    "marks": "!!! --- ???",
    "excluding": '-everything "exact phrase" -"nothing else"',
    "separators": "above > below > above",
    "lines": "one\ntwo\r\nthree",
    "patterns": r"\d+ (?P<x>.*) [a-z]{99999} $",
}


async def test_hostile_headings(database_url):
    rows = [
        Document(f"# {title}\nbody of {name}", {"source_document": f"{name}.md", "section_title": title}, id=name)
        for name, title in HOSTILE.items()
    ]
    async with opened(database_url, HashEmbedder()) as retriever:
        await retriever.add_documents(rows)
        modes = ("hybrid", "keyword", "vector")
        for mode in modes:
            told = await retriever.checkup(mode=mode)
            asked = {one.chunk_id: one for page in told.documents for one in page.headings}
            assert set(asked) == HOSTILE.keys() - {"marks"}
            assert told.left_out.wordless == 1
            assert asked["excluding"].heading == "everything exact phrase nothing else"
            assert len(asked["long"].heading) <= 1_000
            # The bodies share no word with any heading.
            assert mode != "keyword" or told.reasons == {"no_shared_word": 7}


async def test_what_cannot_be_asked_is_refused(database_url):
    async with opened(database_url, "none") as retriever:
        with pytest.raises(ConfigurationError, match="is empty: fill it with semlex index PATH"):
            await retriever.checkup()
        await retriever.add_documents([Document("a text"), Document("another")])
        with pytest.raises(ConfigurationError, match="no chunk of collection 'default_collection' has a heading"):
            await retriever.checkup()
        await retriever.add_documents([Document(f"text {n}", {"section_title": "Notes"}) for n in range(3)])
        with pytest.raises(ConfigurationError, match=r"none of the 3 headings .* 3 occur in three or more places"):
            await retriever.checkup()
        for wrong in (
            {"sample": 0},
            {"sample": "9"},
            {"seed": -1},
            {"mode": "both"},
            {"progress": 3},
            {"estimated": 3},
        ):
            with pytest.raises(ConfigurationError):
                await retriever.checkup(**wrong)


@pytest.mark.slow
async def test_engines_that_do_not_tell_their_scores(database_url):
    rows = [Document("Spare ones hang in the vault", {"section_title": "Keys"}), Document("a ship")]
    async with opened(database_url, HashEmbedder(), keyword="tsvector") as retriever:
        await retriever.add_documents(rows)
        with pytest.raises(ConfigurationError, match=r"'tsvector' cannot score .* --mode vector\)"):
            await retriever.checkup()
        assert (await retriever.checkup(mode="vector")).mode == "vector"
    async with opened(database_url, HashEmbedder(), keyword="none", collection="vectors") as retriever:
        await retriever.add_documents(rows)
        assert (await retriever.checkup()).mode == "vector"


async def test_words_answer_where_the_model_is_not_at_hand(database_url):
    async with opened(database_url, HashEmbedder()) as retriever:
        await retriever.add_documents([Document("Spare keys hang in the vault", {"section_title": "Keys"})])
    async with opened(database_url, None) as retriever:
        told = await retriever.checkup()
    assert told.mode == "keyword"
    assert any("answered by words alone" in note for note in told.notes)


def test_it_only_reads(database_url):
    rows = [Document("Spare keys hang in the vault", {"section_title": "Keys"}), Document("a ship")]
    with sync_opened(database_url, HashEmbedder()) as retriever:
        retriever.add_documents(rows)
    read_only = make_conninfo(database_url, options="-c default_transaction_read_only=on")
    before = contents(database_url)
    with sync_opened(read_only, HashEmbedder(), create=False) as retriever:
        assert retriever.checkup().result.found == 1
    assert contents(database_url) == before


def contents(url):
    """Every table of the schema, and how many rows were ever written to it."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'semlex' ORDER BY 1").fetchall()
        return [
            (name, connection.execute(f"SELECT t.xmin::text, t::text FROM semlex.{name} AS t ORDER BY 2").fetchall())  # noqa: S608
            for (name,) in names
        ]


class Waiting(HashEmbedder):
    """Never ends embedding texts, once it is told so."""

    def __init__(self):
        super().__init__()
        self.is_stuck, self.began = False, threading.Event()

    def embed_documents(self, texts):
        while self.is_stuck:
            self.began.set()
            check()
        return super().embed_documents(texts)


async def test_it_ends_when_it_is_cancelled(database_url):
    model = Waiting()
    async with opened(database_url, model) as retriever:
        await retriever.add_documents([Document("Spare keys hang in the vault", {"section_title": "Keys"})])
        model.is_stuck = True
        task = asyncio.create_task(retriever.checkup())
        assert await asyncio.to_thread(model.began.wait, LIMIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        model.is_stuck = False
        assert (await retriever.checkup()).result.asked == 1
