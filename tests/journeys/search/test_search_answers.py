"""What results report: whether the collection has an answer, where the match is, and what a fallback found."""

import asyncio
import itertools
import json
import math
import random
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document, DocumentRetriever, JSONKBRetriever
from semlex.errors import ConfigurationError, ReadOnlyError, ValidationError
from semlex.proof.check import plain_bm25
from semlex.search.fusion import Candidate
from semlex.search.results import scored
from semlex.store.keyword.bm25 import search as bm25_search
from semlex.store.postgres.database import Database
from semlex.store.query import score_calibration
from semlex.store.query.score_calibration import VectorSample
from semlex.types.results import SearchResult
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import filled, ids_of, opened, sync_filled
from tests.support.spies import calls_of

WORDS = ("cat", "dog", "ship", "hill", "stone")
PHRASE_NOTE = "no chunk was found that contains the quoted phrase; its words were searched instead"
MINUS_ZERO = re.compile(r"-0(\.0+)?(?![\d.])")


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(15))
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=8),
    query=st.lists(st.sampled_from((*WORDS, "zzqx", "blorf")), min_size=1, max_size=5, unique=True),
)
async def test_coverage_is_the_share_of_the_questions_weight(database_url, texts, query):
    async with opened(database_url, 16) as retriever:
        await retriever.delete([f"d{n}" for n in range(8)])
        stored = {f"d{n}": words for n, words in enumerate(texts)}
        await retriever.add_documents([Document(" ".join(words), id=name) for name, words in stored.items()])
        # The share of the words' idf that each text holds; a word that no text has weighs most.
        counts = {word: sum(word in text for text in texts) for word in query}
        idf = {word: math.log(1 + (len(texts) - count + 0.5) / (count + 0.5)) for word, count in counts.items()}
        held = {name: sum(idf[word] for word in query if word in text) for name, text in stored.items()}
        expected = {name: share / sum(idf.values()) for name, share in held.items()}
        for _ in range(3):  # read, and out of memory
            results = await retriever.search(" ".join(query), 8)
            assert {hit.id: hit.coverage for hit in results} == pytest.approx(expected, abs=1e-12)
            assert results.coverage == max(hit.coverage or 0.0 for hit in results)
        assert all(0.0 <= (hit.coverage or 0.0) <= 1.0 for hit in results)


async def test_nothing_of_the_question_is_there(database_url):
    async with filled(database_url, {"a": "cat and dog", "b": "a ship"}, 16) as retriever:
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
    zero = -0.0
    hit = scored(SearchResult("text", id="a"), Candidate(None, 1, zero, None, zero, zero, zero, zero), 1)
    figures = [hit.to_dict()["keyword_score"], hit.vector_score, hit.fused_score, hit.vector_contribution]
    assert not MINUS_ZERO.search(json.dumps(figures))
    assert hit.keyword_score == 0.0
    # A figure without a meaning is None.
    async with filled(database_url, {"a": "cat and dog"}, 16, collection="l2", distance="l2") as retriever:
        results = await retriever.search("cat")
        assert (results.best_similarity, results.coverage) == (None, 1.0)
        assert (await retriever.search("the")).coverage is None
        by_vector = await retriever.search("cat", mode="vector")
        assert (by_vector.coverage, by_vector[0].coverage) == (None, None)


async def test_the_line_of_the_match(database_url, tmp_path):
    lines = ["# Title", "", "A first line.", "More of it.", "Here are ships at last.", "ship again"]
    folder_with(tmp_path, {"unix.md": "\n".join(lines), "dos.md": "\r\n".join(lines)})
    for engine in ("bm25", "tsvector"):
        added = {"added": "a ship\nships"}
        async with filled(database_url, added, 16, keyword=engine, collection=engine) as retriever:
            await retriever.index(tmp_path)
            for mode in ("keyword", "vector", None):
                found = {hit.id: (hit.line, hit.match_line) for hit in await retriever.search("ship", mode=mode)}
                assert found.pop("added") == (None, None)
                assert set(found.values()) == {(1, 5)}, (engine, mode)
            assert {hit.match_line for hit in await retriever.search("zzqx")} == {None}


async def test_quotes_that_match_nothing_are_words(database_url):
    documents = [Document(f"the cat chases a dog {n}", {"n": n % 2}, id=f"d{n}") for n in range(40)]
    documents.append(Document("ships sail", {"n": 0}, id="ship"))
    async with filled(database_url, documents, 16) as retriever:
        for _ in range(3):
            for mode in ("keyword", None):
                results = await retriever.search('"dog cat" sailing', 10, mode=mode)
                assert len(results) == 10
                assert PHRASE_NOTE in results.warnings
                narrow = await retriever.search('"dog cat"', 20, filters={"n": 1}, mode=mode)
                assert (len(narrow), all(hit.metadata["n"] == 1 for hit in narrow)) == (20, True)
            assert ids_of(await retriever.search('"dog cat" -chases', 5)) == ["ship"]
            found = await retriever.search('"chases a dog" cat', 10)
            assert (len(found), found.warnings) == (10, [])
            assert ids_of(await retriever.search('"ships sail"', 10)) == ["ship"]
            # The phrase is in a text; another condition removes that text.
            below = await retriever.search('"ships sail" dog cat', 10, min_similarity=0.999)
            assert below == []
            assert PHRASE_NOTE not in below.warnings
            assert "no candidate reaches" in below.warnings[-1]
            assert PHRASE_NOTE in (await retriever.search('"sail ships"', 10, min_similarity=0.999)).warnings


@pytest.mark.slow
async def test_as_many_rows_as_pass_whatever_the_question_demands(database_url):
    """Against a slow model: k rows, or all that hold the phrase and nothing that is excluded, within the filter."""
    chance = random.Random(5)
    texts = [" ".join(chance.choices(WORDS, k=6)) for _ in range(300)]
    documents = [Document(text, {"even": n % 2 == 0}, id=f"d{n}") for n, text in enumerate(texts)]
    async with filled(database_url, documents, 16) as retriever:
        for _ in range(25):
            phrase, excluded = " ".join(chance.choices(WORDS, k=2)), chance.sample(WORDS, chance.randrange(2))
            even = chance.choice([None, {"even": True}])
            kept = [one for one in documents if even is None or one.metadata["even"]]
            kept = [one for one in kept if phrase in one.content and not set(excluded) & set(one.content.split())]
            passing = set(ids_of(kept))
            question = " ".join([f'"{phrase}"', *(f"-{word}" for word in excluded)])
            for top_k in (1, 7, 300):
                hits = await retriever.search(question, top_k, even, mode=chance.choice(["keyword", None]))
                if passing:
                    assert set(ids_of(hits)) <= passing
                    assert len(hits) == min(top_k, len(passing))


async def test_phrases_are_looked_for_in_a_bounded_number_of_texts(database_url, monkeypatch):
    looked_at, hold = [], bm25_search.AnalysedQuery.hold_phrases

    def counted(self, rows):
        if self.reads_texts:
            looked_at.append(len(rows))
        return hold(self, rows)

    monkeypatch.setattr(bm25_search.AnalysedQuery, "hold_phrases", counted)
    monkeypatch.setattr(bm25_search, "MAX_PHRASE_TEXTS", 50)
    async with filled(database_url, {f"d{n}": f"dog cat {n}" for n in range(120)}, 16) as retriever:
        for candidates, mode in itertools.product((None, 90), ("keyword", None) * 3):
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

    async with filled(database_url, {f"d{n}": f"cat {n}" for n in range(100)}, 16) as retriever:
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
    async with filled(database_url, {"a": "cat"}, 16) as retriever:
        execute(database_url, "ALTER TABLE semlex.default_collection_embedding_1 RENAME TO elsewhere")
        reads = calls_of(monkeypatch, Database, "read_snapshot")
        results = await retriever.search("cat", deadline=30.0)
    assert (results.mode, ids_of(results)) == ("keyword", ["a"])
    assert [read["doing"] for read in reads] == ["search", "keyword search", "search"]
    assert all(0 < read["deadline"] <= 30.0 for read in reads)


async def test_a_search_judges_whether_there_is_an_answer(database_url):
    topics = (
        "rotate a key every ninety days",
        "the vault stores certificates",
        "backups run at night",
        "logs are kept",
    )
    texts = {str(number): f"{topics[number % 4]} in region {number}" for number in range(40)}
    async with filled(database_url, texts) as retriever:
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
        assert (await retriever.search("when do I rotate a key?", fusion="rrf")).support == "likely"
        many = await retriever.search_many(["rotate a key", "the Sistine chapel at night"], mode="hybrid")
        assert [found.support for found in many] == ["likely", "unlikely"]


def written(folder, **files):
    return JSONKBRetriever(folder_with(folder, {f"{name}.json": json.dumps(value) for name, value in files.items()}))


def search(base, *arguments):
    return asyncio.run(base.search(*arguments))


sentences = st.lists(st.sampled_from((*WORDS, "rivers", "wind", "light")), min_size=1, max_size=6).map(" ".join)


@given(texts=st.lists(sentences, min_size=1, max_size=12), query=sentences)
def test_scores_are_those_of_bm25(tmp_path_factory, texts, query):
    base = written(tmp_path_factory.mktemp("kb"), all=[{"id": n, "q": text} for n, text in enumerate(texts)])
    expected = plain_bm25({str(n): ("english", text) for n, text in enumerate(texts)}, query)
    found = search(base, query, 100)
    assert {hit.id: hit.keyword_score for hit in found} == pytest.approx(expected)
    assert [hit.keyword_score for hit in found] == sorted((hit.keyword_score for hit in found), reverse=True)
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


def test_every_text_is_found_with_its_place(tmp_path):
    base = written(
        tmp_path,
        faq={"billing": {"refunds": {"id": "r1", "title": "Refunds", "answer": "Within 14 days", "days": 14}}},
        list=[{"name": "Ada", "tags": ["orchid", "moss"]}, {"deep": [{"a/b": [{"note": "a comet"}]}]}],
    )
    [hit] = search(base, "within days")
    assert (hit.id, hit.heading_path, hit.source_document) == ("r1", ("billing", "refunds", "Refunds"), "faq.json")
    assert hit.content == "title: Refunds\nanswer: Within 14 days"
    assert hit.metadata == {"days": 14}
    [hit] = search(base, "moss")
    assert (hit.id, hit.heading_path) == ("list.json#/0", ("Ada",))
    [hit] = search(base, "comets")
    assert (hit.id, hit.heading_path) == ("list.json#/1/deep/0/a~1b/0", ("deep", "a/b"))
    assert [hit.id for hit in search(base, "billing")] == ["r1"]  # by a name of the fields above it
    assert search(base, "zebra") == []


def test_filters_of_a_fallback(tmp_path):
    base = written(tmp_path, a=[{"id": str(n), "text": "sea", "year": 2000 + n} for n in range(5)], b={"text": "sea"})
    for filters, expected in (
        ({"year": {"$gte": 2003}}, ["3", "4"]),
        ('@source_document == "b.json"', ["b.json#"]),
        ('@id in ["b.json#", "gone"]', ["b.json#"]),
    ):
        assert ids_of(search(base, "sea", 10, filters)) == expected
    with pytest.raises(ValidationError):
        search(base, "sea", 10, {"year": {"$wrong": 1}})


def test_a_fallback_names_unreadable_files_and_refuses_wrong_arguments(tmp_path):
    base = written(tmp_path, good={"text": "sea"})
    for content, match in (
        *((one, "neither an object nor a list") for one in (b"[1, 2]", b'"text"')),
        *((b"{", "is not JSON"), (b"[" * 100 + b"]" * 100, "deep"), (b"\xff", "UTF-8")),
    ):
        (tmp_path / "bad.json").write_bytes(content)
        found = search(JSONKBRetriever(tmp_path), "sea")
        assert ids_of(found) == ["good.json#"]
        [warning] = found.warnings
        assert warning.startswith("bad.json was not read")
        assert match in warning
    with pytest.raises(ConfigurationError, match="nowhere"):
        JSONKBRetriever(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="klingon"):
        JSONKBRetriever(tmp_path, language="klingon")
    with pytest.raises(ReadOnlyError):
        asyncio.run(base.add_documents([Document("more")]))
    for query, top_k in (("", 5), ("sea", 0), ("sea", 1001)):
        with pytest.raises(ValidationError):
            search(base, query, top_k)


class Own(DocumentRetriever):
    """A fallback that a user wrote: a hundred documents, of which the first half is secret."""

    async def search(self, query, top_k=5, filters=None):
        self.asked = [*getattr(self, "asked", ()), (query, top_k, filters)]
        return [Document("secret" if n < 50 else "open", id=str(n)) for n in range(100)][:top_k]

    async def add_documents(self, documents):
        raise NotImplementedError


def test_a_search_that_finds_nothing_falls_back(database_url, tmp_path):
    base = written(tmp_path / "one", faq={"text": "refunds within days"})
    two = written(tmp_path / "two", faq=[{"id": 1, "text": "secret refunds"}, {"id": 2, "text": "refunds of keys"}])
    with sync_filled(database_url, {"keys": "keys are rotated"}) as retriever:
        found = retriever.search("keys", fallback=base)
        assert (ids_of(found), found.fallback) == (["keys"], None)
        fall_back = partial(retriever.search, min_similarity=0.99)
        found = fall_back("refunds", fallback=base)
        assert (ids_of(found), found.fallback) == (["faq.json#"], "json:one")
        assert found.to_dict()["fallback"] == found.fallback
        assert any("no candidate reaches min_similarity" in warning for warning in found.warnings)
        for query, excluded in (("zebra", None), ("refunds", ["days"])):
            found = fall_back(query, exclude=excluded, fallback=base)
            assert found == []
            assert any("found nothing either" in warning for warning in found.warnings)
        found = fall_back("refunds", exclude=["secret"], fallback=two)
        assert [(hit.id, hit.rank) for hit in found] == [("2", 1)]
        for top_k, last, asked in ((7, 57, [7, 14, 28, 56, 112]), (70, 100, [70, 140])):
            own = Own()
            found = fall_back("refunds", top_k, exclude=["secret"], fallback=own)
            assert ids_of(found) == [str(n) for n in range(50, last)]
            assert own.asked == [("refunds", count, None) for count in asked]
        hits = retriever.search("zebra", 3, {"a": 1}, fallback=(own := Own()))
        assert [(hit.id, hit.content, hit.rank) for hit in hits] == [(str(n), "secret", n + 1) for n in range(3)]
        assert own.asked == [("zebra", 3, {"a": 1})]
        with pytest.raises(ConfigurationError, match="fallback"):
            retriever.search("zebra", fallback="json")
