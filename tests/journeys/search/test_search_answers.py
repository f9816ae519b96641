"""What an answer says of itself: is it in there at all, where does it stand, what became of the question's quotes."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document
from semlex.search.fusion import Candidate
from semlex.search.results import scored
from semlex.store.keyword.bm25 import search as bm25_search
from semlex.store.postgres.database import Database
from semlex.store.query import score_calibration
from semlex.store.query.score_calibration import VectorSample
from semlex.types.results import SearchResult
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened

WORDS = ("cat", "dog", "ship", "hill", "stone")
UNKNOWN = ("zzqx", "blorf")
PHRASE_NOTE = "no chunk was found that contains the quoted phrase; its words were searched instead"
MINUS_ZERO = re.compile(r"-0(\.0+)?(?![\d.])")


def ids_of(results):
    return {hit.id for hit in results}


def plain_coverage(texts, query):
    """Share of the words' idf that each text holds; a word that no text has weighs most."""
    counts = {word: sum(word in text for text in texts.values()) for word in query}
    idf = {word: math.log(1 + (len(texts) - count + 0.5) / (count + 0.5)) for word, count in counts.items()}
    return {name: sum(idf[word] for word in query if word in text) / sum(idf.values()) for name, text in texts.items()}


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(15))
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=8),
    query=st.lists(st.sampled_from(WORDS + UNKNOWN), min_size=1, max_size=5, unique=True),
)
async def test_coverage_is_the_share_of_the_questions_weight(database_url, texts, query):
    async with opened(database_url, 16) as retriever:
        await retriever.delete([f"d{n}" for n in range(8)])
        stored = {f"d{n}": words for n, words in enumerate(texts)}
        await retriever.add_documents([Document(" ".join(words), id=name) for name, words in stored.items()])
        expected = plain_coverage(stored, query)
        for _ in range(3):  # read, and out of memory
            results = await retriever.search(" ".join(query), 8)
            assert {hit.id: hit.coverage for hit in results} == pytest.approx(expected, abs=1e-12)
            assert results.coverage == max(hit.coverage or 0.0 for hit in results)
        assert all(0.0 <= (hit.coverage or 0.0) <= 1.0 for hit in results)


async def test_nothing_of_the_question_is_there(database_url):
    async with opened(database_url, 16) as retriever:
        await retriever.add_documents([Document("cat and dog", id="a"), Document("a ship", id="b")])
        for _ in range(3):
            results = await retriever.search("zzqx blorf")
            assert [(hit.keyword_contribution, hit.keyword_score, hit.coverage) for hit in results] == [(0, 0, 0)] * 2
            assert results.coverage == 0.0
            assert not MINUS_ZERO.search(json.dumps(results.to_dict()["hits"]))
            assert "no word of the query occurs in the collection" in results.warnings
            assert results.best_similarity == max(hit.vector_score or -1.0 for hit in results)
        by_words = await retriever.search("zzqx blorf", mode="keyword")
        assert (by_words, by_words.coverage, by_words.best_similarity) == ([], None, None)
        assert "no word of the query occurs in the collection" in by_words.warnings
        assert (await retriever.search("zzqx cat")).warnings == []


async def test_where_a_figure_has_no_meaning_there_is_none(database_url):
    async with opened(database_url, 16, distance="l2") as retriever:
        await retriever.add_documents([Document("cat and dog", id="a")])
        results = await retriever.search("cat")
        assert (results.best_similarity, results.coverage) == (None, 1.0)
        assert (await retriever.search("the")).coverage is None
        by_vector = await retriever.search("cat", mode="vector")
        assert (by_vector.coverage, by_vector[0].coverage) == (None, None)


def test_a_hit_never_says_minus_zero():
    zero = -0.0
    candidate = Candidate(None, 1, zero, None, zero, zero, zero, zero)
    hit = scored(SearchResult("text", id="a"), candidate, 1)
    assert not MINUS_ZERO.search(json.dumps(hit.to_dict()["keyword_score"]))
    assert not MINUS_ZERO.search(json.dumps([hit.vector_score, hit.fused_score, hit.vector_contribution]))
    assert hit.keyword_score == 0.0


@pytest.mark.parametrize("engine", ["bm25", "tsvector"])
async def test_the_line_of_the_match(database_url, tmp_path, engine):
    lines = ["# Title", "", "A first line.", "More of it.", "Here are ships at last.", "ship again"]
    (tmp_path / "unix.md").write_bytes("\n".join(lines).encode())
    (tmp_path / "dos.md").write_bytes("\r\n".join(lines).encode())
    async with opened(database_url, 16, keyword=engine) as retriever:
        await retriever.index(tmp_path)
        await retriever.add_documents([Document("a ship\nships", id="added")])
        for mode in ("keyword", "vector", None):
            results = await retriever.search("ship", mode=mode)
            found = {hit.id: (hit.line, hit.match_line) for hit in results}
            assert found.pop("added") == (None, None)
            assert set(found.values()) == {(1, 5)}
        assert {hit.match_line for hit in await retriever.search("zzqx")} == {None}


async def test_quotes_that_match_nothing_are_words(database_url):
    async with opened(database_url, 16) as retriever:
        documents = [Document(f"the cat chases a dog {n}", {"n": n % 2}, id=f"d{n}") for n in range(40)]
        await retriever.add_documents([*documents, Document("ships sail", {"n": 0}, id="ship")])
        for _ in range(3):
            for mode in ("keyword", None):
                results = await retriever.search('"dog cat" sailing', 10, mode=mode)
                assert len(results) == 10
                assert PHRASE_NOTE in results.warnings
                narrow = await retriever.search('"dog cat"', 20, filters={"n": 1}, mode=mode)
                assert (len(narrow), all(hit.metadata["n"] == 1 for hit in narrow)) == (20, True)
            excluding = await retriever.search('"dog cat" -chases', 5)
            assert ids_of(excluding) == {"ship"}
            found = await retriever.search('"chases a dog" cat', 10)
            assert (len(found), found.warnings) == (10, [])
            assert ids_of(await retriever.search('"ships sail"', 10)) == {"ship"}
            # The phrase is in a text; another condition removes that text.
            below = await retriever.search('"ships sail" dog cat', 10, min_similarity=0.999)
            assert (list(below), PHRASE_NOTE in below.warnings, "no candidate reaches" in below.warnings[-1]) == (
                [],
                False,
                True,
            )
            assert PHRASE_NOTE in (await retriever.search('"sail ships"', 10, min_similarity=0.999)).warnings


@pytest.mark.slow
async def test_as_many_rows_as_pass_whatever_the_question_demands(database_url):
    """Against a slow model: k rows, or all that hold the phrase and nothing that is excluded, within the filter."""
    chance = random.Random(5)
    texts = {f"d{n}": chance.choices(WORDS, k=6) for n in range(300)}

    def holds(words, phrase):
        return any(words[at : at + len(phrase)] == phrase for at in range(len(words)))

    async with opened(database_url, 16) as retriever:
        await retriever.add_documents(
            [Document(" ".join(words), {"even": n % 2 == 0}, id=name) for n, (name, words) in enumerate(texts.items())]
        )
        for _ in range(25):
            phrase, excluded = chance.choices(WORDS, k=2), chance.sample(WORDS, chance.randrange(2))
            even = chance.choice([None, {"even": True}])
            passing = {
                name
                for n, (name, words) in enumerate(texts.items())
                if holds(words, phrase) and not set(excluded) & set(words) and (even is None or n % 2 == 0)
            }
            question = " ".join([f'"{" ".join(phrase)}"', *(f"-{word}" for word in excluded)])
            for top_k in (1, 7, 300):
                hits = ids_of(await retriever.search(question, top_k, even, mode=chance.choice(["keyword", None])))
                if passing:
                    assert hits <= passing
                    assert len(hits) == min(top_k, len(passing))


@pytest.mark.parametrize("candidates", [None, 90])
async def test_phrases_are_looked_for_in_a_bounded_number_of_texts(database_url, monkeypatch, candidates):
    looked_at = []
    hold = bm25_search.AnalysedQuery.hold_phrases

    def counted(self, rows):
        if self.reads_texts:
            looked_at.append(len(rows))
        return hold(self, rows)

    monkeypatch.setattr(bm25_search.AnalysedQuery, "hold_phrases", counted)
    monkeypatch.setattr(bm25_search, "MAX_PHRASE_TEXTS", 50)
    async with opened(database_url, 16) as retriever:
        await retriever.add_documents([Document(f"dog cat {n}", id=f"d{n}") for n in range(120)])
        for _ in range(3):
            for mode in ("keyword", None):
                looked_at.clear()
                results = await retriever.search('"cat dog"', 5, tuning={"candidates": candidates}, mode=mode)
                assert any("best 50 chunks" in warning for warning in results.warnings)
                assert (len(results), results.warnings[-1]) == (5, PHRASE_NOTE)
                assert 0 < sum(looked_at) <= 50


async def test_first_searches_at_once_leave_the_count_of_writes_right(database_url, monkeypatch):
    """Both draw the sample; what was written before counts for neither."""
    draw, both = score_calibration._draw, asyncio.Barrier(2)

    async def together(*given):
        await both.wait()
        return await draw(*given)

    async with opened(database_url, 16) as retriever:
        await retriever.add_documents([Document(f"cat {n}", id=f"d{n}") for n in range(100)])
        sample, vector = VectorSample(), np.ones(16, np.float32)
        sample.note_written(100)

        async def spread(connection):
            return await sample.spread(connection, retriever.info, vector)

        monkeypatch.setattr(score_calibration, "_draw", together)
        read = retriever._handle.opened.database.read
        await asyncio.gather(read("sample", spread), read("sample", spread))
        sample.note_written(11)
        assert sample.spread_in_memory(retriever.info, vector) is None


async def test_every_read_of_a_search_has_its_deadline(database_url, monkeypatch):
    """Also those after a leg has failed, when the network may have gone silent."""
    deadlines = []
    read = Database.read_snapshot

    async def noted(self, doing, work, **options):
        deadlines.append((doing, options["deadline"]))
        return await read(self, doing, work, **options)

    async with opened(database_url, 16) as retriever:
        await retriever.add_documents([Document("cat", id="a")])
        async with retriever._handle.opened.database.connection() as connection:
            await connection.execute("ALTER TABLE semlex.default_collection_embedding_1 RENAME TO elsewhere")
        monkeypatch.setattr(Database, "read_snapshot", noted)
        results = await retriever.search("cat", deadline=30.0)
    assert (results.mode, ids_of(results)) == ("keyword", {"a"})
    assert [doing for doing, _ in deadlines] == ["search", "keyword search", "search"]
    assert all(deadline is not None and 0 < deadline <= 30.0 for _, deadline in deadlines)


async def test_a_search_judges_whether_there_is_an_answer(database_url):
    topics = (
        "rotate a key every ninety days",
        "the vault stores certificates",
        "backups run at night",
        "logs are kept",
    )
    chunks = [Document(f"{topics[number % 4]} in region {number}", id=str(number)) for number in range(40)]
    async with opened(database_url) as retriever:
        await retriever.add_documents(chunks)
        for mode in (None, "keyword"):
            found = await retriever.search("when do I rotate a key?", mode=mode)
            assert found.support == "likely", mode
            found = await retriever.search("who painted the ceiling of the Sistine chapel at night?", mode=mode)
            assert (found.support, len(found)) == ("unlikely", 5), mode
        found = await retriever.search("do old backups run on Sundays at night?", mode="keyword")
        assert found.support == "unsure"
        # Nothing is known of the cosines of this model.
        assert (await retriever.search("when do I rotate a key?", mode="vector")).support == "unsure"
        assert (await retriever.search("rotate", filters="@id == 'none'", mode="keyword")).support == "unlikely"
        by_ranks = await retriever.search("when do I rotate a key?", fusion="rrf")
        assert by_ranks.support == "likely"
        many = await retriever.search_many(["rotate a key", "the Sistine chapel at night"], mode="hybrid")
        assert [found.support for found in many] == ["likely", "unlikely"]
