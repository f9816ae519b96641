"""Completed fusion in the database: equal to a slow recomputation from plain SQL, and the sample that it rests on."""

from __future__ import annotations

import bisect
import math
import random
import subprocess
import sys

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector_async

from semlex import Document, PostgreSQLRetriever
from semlex.errors import ConfigurationError
from semlex.search import retrieval
from semlex.store.postgres.snapshot import Snapshot
from semlex.store.query import score_calibration
from semlex.store.query.score_calibration import PROBES, SAMPLE_ROWS, SHARED_BEGINNING, Spread, VectorSample, spread_of
from semlex.testing import HashEmbedder
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened

DIMENSIONS = 16
WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
CHUNK = "semlex.default_collection_chunk"
VECTORS = "semlex.default_collection_embedding_1"
QUERIES = ("sea and stone", "hill", "a river of light in the wind", "the of and", "unheard", "n12 n170")
METRICS = [("vector", "cosine"), ("halfvec", "cosine"), ("vector", "l2"), ("vector", "inner_product")]


def texts(count):
    """Texts of 3 to 11 words, each with a word of its own."""
    chance = random.Random(count)
    return [
        Document(" ".join(chance.choices(WORDS, k=chance.randrange(3, 12))) + f" n{number}", id=f"d{number:03}")
        for number in range(count)
    ]


def vectors_for(count):
    """Vectors of several lengths, all of them a little alike."""
    values = np.random.default_rng(count).normal(size=(count, DIMENSIONS)) + 0.5
    return values.astype(np.float32)


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
        with psycopg.connect(url) as connection:
            self.words = {
                (row[0], row[1]): row[2]
                for row in connection.execute(
                    "SELECT c.document_id, c.chunk_id, "  # noqa: S608 - constants
                    f"coalesce(ts_rank(c.text_search, t.terms, 1), 0) FROM {CHUNK} AS c, (SELECT "
                    "nullif(replace(plainto_tsquery('english', %s)::text, '&', '|'), '')::tsquery AS terms) AS t",
                    [query],
                )
            }
            found = connection.execute(
                f"SELECT document_id, chunk_id, embedding::real[] FROM {VECTORS} ORDER BY document_id, chunk_id"  # noqa: S608
            ).fetchall()
        self.vectors = {(row[0], row[1]): np.array(row[2], dtype=np.float64) for row in found}

    def sample(self):
        """The rows at the fixed places, looked up one by one; all rows when they are few."""
        if len(self.vectors) <= SAMPLE_ROWS:
            return np.array(list(self.vectors.values()))
        documents = {}
        for document, chunk in self.vectors:
            documents.setdefault(document, []).append(chunk)
        keys = sorted(documents, key=lambda key: key.bytes)
        drawn = {}
        for place, ending in zip(*score_calibration._places(), strict=True):
            at = bisect.bisect_left([key.bytes for key in keys], place.bytes)
            document = keys[at % len(keys)]
            chunks = sorted(documents[document], key=str.encode)
            at = bisect.bisect_left(
                [chunk.encode() for chunk in chunks], (chunks[0][:SHARED_BEGINNING] + ending).encode()
            )
            drawn[document, chunks[at % len(chunks)]] = None
        return np.array([self.vectors[key] for key in list(drawn)[:SAMPLE_ROWS]])

    def fused(self, distance, query, weight, depth):
        """Id and both contributions of every candidate, best first."""
        wide = query.astype(np.float64)
        cosines = dict(
            zip(self.vectors, similarities(distance, np.array(list(self.vectors.values())), wide), strict=True)
        )
        sample = similarities(distance, self.sample(), wide)
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
    assert [near + words for _, near, words in found] == pytest.approx(
        [near + words for _, near, words in wanted[: len(found)]], abs=tolerance
    )


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "distance"), METRICS)
async def test_hybrid_search_equals_its_recomputation(database_url, storage, distance):
    count = 320
    vectors = vectors_for(count)
    if distance == "cosine":
        vectors *= np.linspace(0.5, 2, count, dtype=np.float32)[:, None]
    async with PostgreSQLRetriever(
        database_url, "none", vector_storage=storage, distance=distance, use_reranking=False, keyword="tsvector"
    ) as retriever:
        await retriever.add_documents(texts(count), vectors)
        # Chunks without a vector: those that only words can find.
        with psycopg.connect(database_url) as connection:
            connection.execute(f"DELETE FROM {VECTORS} WHERE chunk_id = ANY(%s)", [["d012", "d170", "d200"]])  # noqa: S608
        for number, query in enumerate(QUERIES):
            stored, vector = Stored(database_url, query), vectors[-number - 1] + vectors[number]
            for weights, weight in ((None, 0.5), ({"vector": 1, "keyword": 3}, 0.25), ({"keyword": 0.2}, 0.8)):
                results = await retriever.search(query, 30, vector=vector, weights=weights, tuning={"candidates": 30})
                assert (results.fusion, results.warnings) == ("score", [])
                wanted = stored.fused(distance, vector, weight, 30)
                assert_equal(explained(results), wanted, 2e-3 if storage == "halfvec" else 1e-4)
                for hit in results:
                    key = next(key for key in stored.words if key[1] == hit.id)
                    assert hit.keyword_score == pytest.approx(stored.words[key], rel=1e-6)
                    assert (hit.vector_score is None) == (key not in stored.vectors)
                    assert hit.fused_score == (hit.vector_contribution or 0.0) + (hit.keyword_contribution or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("keyword", ["tsvector_cd", "bm25"])
async def test_scores_are_complete_whichever_leg_found_a_chunk(database_url, keyword):
    """A search that each leg answers in full has the same scores as one whose legs see little."""
    async with PostgreSQLRetriever(database_url, HashEmbedder(DIMENSIONS), keyword=keyword) as retriever:
        await retriever.add_documents(texts(300))
        with psycopg.connect(database_url) as connection:
            connection.execute(f"DELETE FROM {VECTORS} WHERE chunk_id < 'd050'")  # noqa: S608
        # Again and again: what is in memory is asked for in another way.
        for query in QUERIES * 3:
            few = await retriever.search(query, 10, tuning={"candidates": 10})
            many = await retriever.search(query, 300, tuning={"candidates": 300})
            scores = {hit.id: (hit.vector_score, hit.keyword_score or 0.0) for hit in many}
            assert {hit.id: (hit.vector_score, hit.keyword_score or 0.0) for hit in few}.items() <= scores.items()
            # The best keyword score is a candidate's in both: so are the fused scores.
            fused = {hit.id: hit.fused_score for hit in many}
            assert all(fused[hit.id] == hit.fused_score for hit in few)
            # What deeper lists add is not among the best: each leg's own best were candidates before.
            assert [hit.id for hit in few[:3]] == [hit.id for hit in many[:3]]


@pytest.mark.slow
async def test_the_embedders_weight_is_the_default(database_url):
    class Weighing(HashEmbedder):
        fusion_weight = 0.875

    async def contributions(embedder, **options):
        async with PostgreSQLRetriever(database_url, embedder, keyword="tsvector") as retriever:
            await retriever.add_documents(texts(40))
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
@pytest.mark.parametrize("count", [1, 200, SAMPLE_ROWS, SAMPLE_ROWS + 1, 700])
async def test_the_sample_is_that_of_the_places(database_url, count):
    vectors = vectors_for(count)
    async with PostgreSQLRetriever(database_url, "none", keyword="tsvector") as retriever:
        await retriever.add_documents(texts(count), vectors)
        found = await spread_in(database_url, retriever, vectors[0], VectorSample())
        # Another client, another sample: the same rows.
        assert await spread_in(database_url, retriever, vectors[0], VectorSample()) == found
    stored = Stored(database_url, "sea")
    drawn = stored.sample()
    assert len(drawn) == min(count, SAMPLE_ROWS) or (count == SAMPLE_ROWS + 1 and len(drawn) > SAMPLE_ROWS / 2)
    wanted = similarities("cosine", drawn, vectors[0].astype(np.float64))
    assert (found.mean, found.deviation) == pytest.approx((wanted.mean(), wanted.std()), abs=1e-6)
    everything = similarities("cosine", vectors.astype(np.float64), vectors[0].astype(np.float64))
    assert found.mean == pytest.approx(everything.mean(), abs=0.05)
    assert found.deviation == pytest.approx(everything.std(), abs=0.05)


@pytest.mark.slow
async def test_few_documents_with_many_chunks(database_url, tmp_path):
    chance = random.Random(3)
    for name in ("one", "two", "three"):
        lines = [f"{' '.join(chance.choices(WORDS, k=12))} {name} {number}." for number in range(400)]
        (tmp_path / f"{name}.md").write_text("\n\n".join(lines))
    embedder = HashEmbedder(DIMENSIONS)
    query = embedder.embed_query("sea")
    async with PostgreSQLRetriever(database_url, embedder, keyword="tsvector") as retriever:
        await retriever.index(tmp_path, chunk_tokens=20, overlap_tokens=0)
        assert await retriever.count() > 1000
        found = await spread_in(database_url, retriever, query, VectorSample())
    stored = Stored(database_url, "sea")
    drawn = stored.sample()
    assert len({row.tobytes() for row in drawn}) > 200
    wanted = similarities("cosine", drawn, query.astype(np.float64))
    assert (found.mean, found.deviation) == pytest.approx((wanted.mean(), wanted.std()), abs=1e-6)


async def test_when_the_sample_is_drawn_again(database_url):
    count, clock = 100, ManualClock()
    vectors = vectors_for(count)
    query = vectors[0]
    async with PostgreSQLRetriever(database_url, "none", keyword="tsvector") as retriever:
        await retriever.add_documents(texts(count), vectors)
        sample = VectorSample(clock)
        first = await spread_in(database_url, retriever, query, sample)
        with psycopg.connect(database_url) as connection:
            connection.execute(f"DELETE FROM {VECTORS} WHERE chunk_id < 'd050'")  # noqa: S608
        # Another client's work is not seen at once; a tenth of the rows written by this one is borne.
        sample.note_written(count // 10)
        assert await spread_in(database_url, retriever, query, sample) == first
        sample.note_written(1)
        second = await spread_in(database_url, retriever, query, sample)
        assert second != first
        with psycopg.connect(database_url) as connection:
            connection.execute(f"DELETE FROM {VECTORS}")  # noqa: S608
        clock.advance(score_calibration.SAMPLE_SECONDS)
        assert await spread_in(database_url, retriever, query, sample) == second
        clock.advance(1)
        assert await spread_in(database_url, retriever, query, sample) == Spread(0.0, 0.0)


@pytest.mark.slow
async def test_writing_through_a_retriever_is_noticed(database_url):
    embedder = HashEmbedder(DIMENSIONS)
    vector = embedder.embed_query("sea stone")

    async def shares(retriever):
        hits = await retriever.search("sea stone", 100, vector=vector, tuning={"candidates": 100})
        return {hit.id: hit.vector_contribution for hit in hits}

    async with (
        PostgreSQLRetriever(database_url, embedder) as writer,
        PostgreSQLRetriever(database_url, embedder) as other,
    ):
        documents = texts(60)
        await writer.add_documents(documents[:30])
        early = await shares(writer)
        await writer.add_documents(documents[30:])
        late = await shares(writer)
        assert late == await shares(other)
        assert all(late[name] != share for name, share in early.items())
        await writer.delete([document.id for document in documents[20:]])
        after = await shares(writer)
        async with PostgreSQLRetriever(database_url, embedder) as fresh:
            assert await shares(fresh) == after
        assert all(late[name] != share for name, share in after.items())


async def test_only_completed_fusion_asks_for_the_sample(database_url, monkeypatch):
    async with PostgreSQLRetriever(database_url, HashEmbedder(DIMENSIONS), use_reranking=False) as retriever:
        await retriever.add_documents(texts(40))
        drawn = []
        real = score_calibration._draw

        async def counted(*arguments):
            drawn.append(1)
            return await real(*arguments)

        monkeypatch.setattr(score_calibration, "_draw", counted)
        for options in ({"mode": "vector"}, {"mode": "keyword"}, {"fusion": "rrf"}, {"fusion": "linear"}):
            assert len(await retriever.search("sea", 3, **options)) == 3
        assert drawn == []
        for _ in range(3):
            assert (await retriever.search("sea", 3)).fusion == "score"
        assert (await retriever.search("sea", 3, fusion="completed")).fusion == "score"  # its older name
        assert drawn == [1]


@pytest.mark.slow
async def test_scores_that_are_completed_too_late(database_url, monkeypatch):
    deadline, limit = 600.0, Snapshot.limit

    async def short_for_completion(self, seconds):
        await limit(self, 0.3 if seconds == deadline * retrieval.COMPLETION_SHARE else seconds)

    async with opened(database_url, DIMENSIONS, clock=ManualClock()) as retriever:
        await retriever.add_documents(texts(40))
        by_rank = await retriever.search("sea", 5, fusion="rrf")
        with monkeypatch.context() as patched:

            async def slow(connection, *_):
                await (await connection.execute("SELECT pg_sleep(100)")).fetchone()

            patched.setattr(score_calibration, "_draw", slow)
            patched.setattr(Snapshot, "limit", short_for_completion)
            late = await retriever.search("sea", 5, deadline=deadline)
        assert ([hit.id for hit in late], late.fusion) == ([hit.id for hit in by_rank], "rrf")
        assert late.warnings == [
            "some scores were not computed in time: hits are ordered by reciprocal rank fusion (rrf)"
        ]
        assert [hit.fused_score for hit in late] == [hit.fused_score for hit in by_rank]
        in_time = await retriever.search("sea", 5, deadline=deadline)
        assert (in_time.fusion, in_time.warnings) == ("score", [])
        assert explained(in_time) == explained(await retriever.search("sea", 5))


@pytest.mark.slow
async def test_completed_on_a_users_connection(database_url):
    """The user's transaction goes on as it was, and a connection of pgvector's own types makes no difference."""
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        PostgreSQLRetriever(embedding_model=HashEmbedder(DIMENSIONS), connection=connection) as retriever,
        PostgreSQLRetriever(database_url, HashEmbedder(DIMENSIONS)) as other,
    ):
        await retriever.add_documents(texts(300))
        wanted = explained(await other.search("sea and stone", 10))
        await register_vector_async(connection)
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 54321")
            for deadline in (None, 30.0):
                found = await retriever.search("sea and stone", 10, deadline=deadline)
                assert explained(found) == wanted
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
