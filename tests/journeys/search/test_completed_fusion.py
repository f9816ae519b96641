"""Completed fusion in the database: equal to a slow recomputation from plain SQL, and the sample that it rests on."""

import bisect
import math
import random
import subprocess
import sys
from functools import cached_property, partial

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector_async

from semlex import Document
from semlex.errors import ConfigurationError
from semlex.search import retrieval
from semlex.store.postgres.snapshot import Snapshot
from semlex.store.query import score_calibration
from semlex.store.query.score_calibration import PROBES, SAMPLE_ROWS, SHARED_BEGINNING, Spread, VectorSample, spread_of
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, ids_of, opened
from tests.support.spies import calls_of

DIMENSIONS = 16
WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
VECTORS = "semlex.default_collection_embedding_1"
QUERIES = ("sea and stone", "hill", "a river of light in the wind", "the of and", "unheard", "n12 n170")
METRICS = [("vector", "cosine"), ("halfvec", "cosine"), ("vector", "l2"), ("vector", "inner_product")]


def texts(count):
    """Texts of 3 to 11 words, each with a word of its own."""
    chance = random.Random(count)
    return {f"d{n:03}": " ".join(chance.choices(WORDS, k=chance.randrange(3, 12))) + f" n{n}" for n in range(count)}


def vectors_for(count):
    """Vectors of several lengths, all of them a little alike."""
    return (np.random.default_rng(count).normal(size=(count, DIMENSIONS)) + 0.5).astype(np.float32)


with_vectors = partial(filled, model="none", keyword="tsvector")


def similarities(distance, vectors, query):
    if distance == "l2":
        return -np.sqrt(((vectors - query) ** 2).sum(axis=1))
    products = vectors @ query
    if distance == "inner_product":
        return products
    return products / (np.sqrt((vectors**2).sum(axis=1)) * math.sqrt(query @ query))


class Stored:
    """Everything that a collection holds, read with plain SQL, and what is computed from it in plain Python."""

    def __init__(self, url, query):
        ranks = (
            "SELECT c.document_id, c.chunk_id, "
            "coalesce(ts_rank(c.text_search, t.terms, 1), 0) FROM semlex.default_collection_chunk AS c, (SELECT "
            "nullif(replace(plainto_tsquery('english', %s)::text, '&', '|'), '')::tsquery AS terms) AS t"
        )
        self.words = {(document, chunk): rank for document, chunk, rank in execute(url, ranks, [query])}
        stored = f"SELECT document_id, chunk_id, embedding::real[] FROM {VECTORS} ORDER BY document_id, chunk_id"
        self.vectors = {row[:2]: np.array(row[2], dtype=np.float64) for row in execute(url, stored)}

    @cached_property
    def sample(self):
        """The rows at the fixed places, looked up one by one; all rows when they are few."""
        if len(self.vectors) <= SAMPLE_ROWS:
            return np.array(list(self.vectors.values()))
        documents = {}
        for document, chunk in self.vectors:
            documents.setdefault(document, []).append(chunk)
        keys = sorted(documents, key=lambda key: key.bytes)
        own = {key: sorted(chunk.encode() for chunk in chunks) for key, chunks in documents.items()}
        bounds, drawn = [key.bytes for key in keys], {}
        for place, ending in zip(*score_calibration._places(), strict=True):
            document = keys[bisect.bisect_left(bounds, place.bytes) % len(keys)]
            chunks = own[document]
            wanted = (chunks[0].decode()[:SHARED_BEGINNING] + ending).encode()
            drawn[document, chunks[bisect.bisect_left(chunks, wanted) % len(chunks)].decode()] = None
        return np.array([self.vectors[key] for key in list(drawn)[:SAMPLE_ROWS]])

    def fused(self, distance, query, weight, depth):
        """Id and both contributions of every candidate, best first."""
        wide, vectors = query.astype(np.float64), np.array(list(self.vectors.values()))
        cosines = dict(zip(self.vectors, similarities(distance, vectors, wide), strict=True))
        sample = similarities(distance, self.sample, wide)
        matching = [key for key, score in self.words.items() if score > 0]
        candidates = sorted(cosines, key=lambda key: -cosines[key])[:depth]
        candidates += sorted(matching, key=lambda key: (-self.words[key], key[0].bytes, key[1]))[:depth]
        best = max([self.words[key] for key in candidates] + [0])
        rows = {}
        for key in candidates:
            z = (cosines[key] - sample.mean()) / sample.std() if key in cosines else 0.0
            rows[key] = (weight * z / 6, (1 - weight) * self.words[key] / best if best else 0.0)
        ordered = sorted(rows, key=lambda key: (-sum(rows[key]), key[0].bytes, key[1]))
        return [(key[1], *rows[key]) for key in ordered]


def explained(results):
    return [(hit.id, hit.vector_contribution or 0.0, hit.keyword_contribution or 0.0) for hit in results]


def assert_equal(found, wanted, tolerance):
    """Equal contributions of every hit; neighbours may only change places where their scores are as good as equal."""
    scores = {name: (near, words) for name, near, words in wanted}
    for name, near, words in found:
        assert (near, words) == pytest.approx(scores[name], abs=tolerance)
    sums = [near + words for _, near, words in wanted[: len(found)]]
    assert [near + words for _, near, words in found] == pytest.approx(sums, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "distance"), METRICS)
async def test_hybrid_search_equals_its_recomputation(database_url, storage, distance):
    count = 320
    vectors = vectors_for(count)
    if distance == "cosine":
        vectors *= np.linspace(0.5, 2, count, dtype=np.float32)[:, None]
    options = {"vector_storage": storage, "distance": distance}
    async with with_vectors(database_url, texts(count), vectors=vectors, **options) as retriever:
        # Chunks without a vector: those that only words can find.
        execute(database_url, f"DELETE FROM {VECTORS} WHERE chunk_id IN ('d012', 'd170', 'd200')")
        for number, query in enumerate(QUERIES):
            stored, vector = Stored(database_url, query), vectors[-number - 1] + vectors[number]
            ranks = {key[1]: rank for key, rank in stored.words.items()}
            near = {key[1] for key in stored.vectors}
            for weights, weight in ((None, 0.5), ({"vector": 1, "keyword": 3}, 0.25), ({"keyword": 0.2}, 0.8)):
                results = await retriever.search(query, 30, vector=vector, weights=weights, tuning={"candidates": 30})
                assert (results.fusion, results.warnings) == ("score", [])
                wanted = stored.fused(distance, vector, weight, 30)
                assert_equal(explained(results), wanted, 2e-3 if storage == "halfvec" else 1e-4)
                for hit in results:
                    assert hit.keyword_score == pytest.approx(ranks[hit.id], rel=1e-6)
                    assert (hit.vector_score is None) == (hit.id not in near)
                    assert hit.fused_score == (hit.vector_contribution or 0.0) + (hit.keyword_contribution or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("keyword", ["tsvector_cd", "bm25"])
async def test_scores_are_complete_whichever_leg_found_a_chunk(database_url, keyword):
    """A search that each leg answers in full has the same scores as one whose legs see little."""
    async with filled(database_url, texts(300), DIMENSIONS, keyword=keyword) as retriever:
        execute(database_url, f"DELETE FROM {VECTORS} WHERE chunk_id < 'd050'")
        # Again and again: what is in memory is asked for in another way.
        for query in QUERIES * 3:
            few = await retriever.search(query, 10, tuning={"candidates": 10})
            many = await retriever.search(query, 300, tuning={"candidates": 300})
            # The best keyword score is a candidate's in both: so are the fused scores.
            scores = {hit.id: (hit.vector_score, hit.keyword_score or 0.0, hit.fused_score) for hit in many}
            assert all((hit.vector_score, hit.keyword_score or 0.0, hit.fused_score) == scores[hit.id] for hit in few)
            # What deeper lists add is not among the best: each leg's own best were candidates before.
            assert ids_of(few[:3]) == ids_of(many[:3])


@pytest.mark.slow
async def test_the_embedders_weight_is_the_default(database_url):
    class Weighing(HashEmbedder):
        fusion_weight = 0.875

    async def contributions(embedder, **options):
        async with filled(database_url, texts(40), embedder, keyword="tsvector") as retriever:
            hits = await retriever.search("sea and stone", 40, tuning={"candidates": 40}, **options)
            best = max(hits, key=lambda hit: hit.keyword_score or 0.0)
            one = max(hits, key=lambda hit: abs(hit.vector_contribution or 0.0))
            return best.keyword_contribution or 0.0, one.vector_contribution or 0.0

    (half, near), (eighth, nearer) = await contributions(HashEmbedder(8)), await contributions(Weighing(8))
    assert (half, eighth) == (0.5, 0.125)
    assert nearer / 0.875 == pytest.approx(near / 0.5)
    assert await contributions(Weighing(8), weights={"vector": 0.5}) == (half, near)
    assert (await contributions(Weighing(8), weights={"vector": 0}))[0] == 1.0
    Weighing.fusion_weight = 7.0
    with pytest.raises(ConfigurationError, match="fusion_weight"):
        await contributions(Weighing(8))


async def spread_in(url, retriever, query, sample):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.set_read_only(True)
        return await sample.spread(connection, retriever.info, query)


@pytest.mark.slow
async def test_the_sample_is_that_of_the_places(database_url):
    vectors, before = vectors_for(700), 0
    documents = [Document(text, id=name) for name, text in texts(700).items()]
    query = vectors[0].astype(np.float64)
    async with opened(database_url, "none", keyword="tsvector") as retriever:
        for count in (1, 200, SAMPLE_ROWS, SAMPLE_ROWS + 1, 700):
            await retriever.add_documents(documents[before:count], vectors[before:count])
            before = count
            found = await spread_in(database_url, retriever, vectors[0], VectorSample())
            # Another client, another sample: the same rows.
            assert await spread_in(database_url, retriever, vectors[0], VectorSample()) == found
            drawn = Stored(database_url, "sea").sample
            assert len(drawn) == min(count, SAMPLE_ROWS) or (count == SAMPLE_ROWS + 1 and len(drawn) > SAMPLE_ROWS / 2)
            wanted = similarities("cosine", drawn, query)
            assert (found.mean, found.deviation) == pytest.approx((wanted.mean(), wanted.std()), abs=1e-6)
            everything = similarities("cosine", vectors[:count].astype(np.float64), query)
            assert found.mean == pytest.approx(everything.mean(), abs=0.05)
            assert found.deviation == pytest.approx(everything.std(), abs=0.05)


@pytest.mark.slow
async def test_few_documents_with_many_chunks(database_url, tmp_path):
    chance = random.Random(3)
    for name in ("one", "two", "three"):
        lines = [f"{' '.join(chance.choices(WORDS, k=12))} {name} {number}." for number in range(400)]
        (tmp_path / f"{name}.md").write_text("\n\n".join(lines))
    query = HashEmbedder(DIMENSIONS).embed_query("sea")
    async with opened(database_url, DIMENSIONS, keyword="tsvector") as retriever:
        await retriever.index(tmp_path, chunk_tokens=20, overlap_tokens=0)
        assert await retriever.count() > 1000
        found = await spread_in(database_url, retriever, query, VectorSample())
    drawn = Stored(database_url, "sea").sample
    assert len({row.tobytes() for row in drawn}) > 200
    wanted = similarities("cosine", drawn, query.astype(np.float64))
    assert (found.mean, found.deviation) == pytest.approx((wanted.mean(), wanted.std()), abs=1e-6)


async def test_when_the_sample_is_drawn_again(database_url):
    count, clock = 100, ManualClock()
    vectors, sample = vectors_for(count), VectorSample(clock)
    async with with_vectors(database_url, texts(count), vectors=vectors) as retriever:
        drawn = partial(spread_in, database_url, retriever, vectors[0], sample)
        first = await drawn()
        execute(database_url, f"DELETE FROM {VECTORS} WHERE chunk_id < 'd050'")
        # Another client's work is not seen at once; a tenth of the rows written by this one is borne.
        sample.note_written(count // 10)
        assert await drawn() == first
        sample.note_written(1)
        second = await drawn()
        assert second != first
        execute(database_url, f"DELETE FROM {VECTORS}")
        clock.advance(score_calibration.SAMPLE_SECONDS)
        assert await drawn() == second
        clock.advance(1)
        assert await drawn() == Spread(0.0, 0.0)


@pytest.mark.slow
async def test_writing_through_a_retriever_is_noticed(database_url):
    vector = HashEmbedder(DIMENSIONS).embed_query("sea stone")

    async def shares(retriever):
        hits = await retriever.search("sea stone", 100, vector=vector, tuning={"candidates": 100})
        return {hit.id: hit.vector_contribution for hit in hits}

    documents = [Document(text, id=name) for name, text in texts(60).items()]
    async with filled(database_url, documents[:30], DIMENSIONS) as writer, opened(database_url, DIMENSIONS) as other:
        early = await shares(writer)
        await writer.add_documents(documents[30:])
        late = await shares(writer)
        assert late == await shares(other)
        assert all(late[name] != share for name, share in early.items())
        await writer.delete([document.id for document in documents[20:]])
        after = await shares(writer)
        async with opened(database_url, DIMENSIONS) as fresh:
            assert await shares(fresh) == after
        assert all(late[name] != share for name, share in after.items())


async def test_only_completed_fusion_asks_for_the_sample(database_url, monkeypatch):
    async with filled(database_url, texts(40), DIMENSIONS) as retriever:
        drawn = calls_of(monkeypatch, score_calibration, "_draw")
        for options in ({"mode": "vector"}, {"mode": "keyword"}, {"fusion": "rrf"}, {"fusion": "linear"}):
            assert len(await retriever.search("sea", 3, **options)) == 3
        assert drawn == []
        for _ in range(3):
            assert (await retriever.search("sea", 3)).fusion == "score"
        assert (await retriever.search("sea", 3, fusion="completed")).fusion == "score"  # its older name
        assert len(drawn) == 1


@pytest.mark.slow
async def test_scores_that_are_completed_too_late(database_url, monkeypatch):
    deadline, limit = 600.0, Snapshot.limit

    async def short_for_completion(self, seconds):
        await limit(self, 0.3 if seconds == deadline * retrieval.COMPLETION_SHARE else seconds)

    async def slow(connection, *_):
        await (await connection.execute("SELECT pg_sleep(100)")).fetchone()

    async with filled(database_url, texts(40), DIMENSIONS, clock=ManualClock()) as retriever:
        by_rank = await retriever.search("sea", 5, fusion="rrf")
        with monkeypatch.context() as patched:
            patched.setattr(score_calibration, "_draw", slow)
            patched.setattr(Snapshot, "limit", short_for_completion)
            late = await retriever.search("sea", 5, deadline=deadline)
        assert (ids_of(late), late.fusion) == (ids_of(by_rank), "rrf")
        note = "some scores were not computed in time: hits are ordered by reciprocal rank fusion (rrf)"
        assert late.warnings == [note]
        assert [hit.fused_score for hit in late] == [hit.fused_score for hit in by_rank]
        in_time = await retriever.search("sea", 5, deadline=deadline)
        assert (in_time.fusion, in_time.warnings) == ("score", [])
        assert explained(in_time) == explained(await retriever.search("sea", 5))


@pytest.mark.slow
async def test_completed_on_a_users_connection(database_url):
    """The user's transaction goes on as it was, and a connection of pgvector's own types makes no difference."""
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        filled(None, texts(300), DIMENSIONS, connection=connection) as retriever,
        opened(database_url, DIMENSIONS) as other,
    ):
        wanted = explained(await other.search("sea and stone", 10))
        await register_vector_async(connection)
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 54321")
            for deadline in (None, 30.0):
                assert explained(await retriever.search("sea and stone", 10, deadline=deadline)) == wanted
            row = await (await connection.execute("SHOW statement_timeout")).fetchone()
            assert row == ("54321ms",)


@pytest.mark.parametrize("distance", ["cosine", "l2", "inner_product"])
def test_equal_vectors_have_no_deviation(distance):
    """Rounding must not pass for a difference: z would be noise."""
    query = np.random.default_rng(1).normal(size=1024).astype(np.float32)
    row = np.random.default_rng(2).normal(size=1024).astype(np.float32)
    if distance == "cosine":
        row /= np.linalg.norm(row)
    noise = np.random.default_rng(3).uniform(-1e-8, 1e-8, (SAMPLE_ROWS, 1024)).astype(np.float32)
    assert spread_of(row + row * noise, query, distance).deviation == 0.0
    assert spread_of(row[None].repeat(2, 0) * np.float32([[1], [-1]]), query, distance).deviation > 0.0
    assert spread_of(np.empty((0, 1024), np.float32), query, distance) == Spread(0.0, 0.0)


@pytest.mark.slow
def test_the_places_are_the_same_in_every_process():
    program = "from semlex.store.query.score_calibration import _places; print(_places())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    documents, endings = score_calibration._places()
    assert done.stdout.strip() == str((documents, endings))
    assert len(set(documents)) == len(set(endings)) == PROBES
