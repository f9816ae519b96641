"""Boosts, thresholds and groups by document change the order and the length of a list."""

import json
import random
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex import ChunkMetadata, Document, F, SearchQuery, TermOverlapReranker
from semlex.errors import ConfigurationError, ValidationError
from tests.support.properties import examples
from tests.support.retrievers import ids_of, pages, sync_filled, sync_opened


@pytest.fixture(scope="module")
def boosted(new_database):
    words = ("cat", "ship", "lion", "key", "moon")
    texts = [" ".join(words[n % (k + 2) % 5] for k in range(n % 7 + 1)) for n in range(60)]
    documents = [Document(text, {"n": n, "third": n % 3 == 0}, id=f"d{n}") for n, text in enumerate(texts)]
    with sync_filled(new_database(), documents, 16) as retriever:
        yield retriever


WANTED = {
    "third == true": lambda metadata: metadata["third"],
    "n >= 30": lambda metadata: metadata["n"] >= 30,
    "not exists nothing": lambda _: True,
}


def expected(plain, boost):
    """Id, factor and score of every hit, as they must be when these were all candidates."""
    found = []
    for hit in plain:
        scores = (hit.fused_score, hit.vector_score, hit.keyword_score)
        score = next(one for one in scores if one is not None)
        factor = float(np.prod([factor for wanted, factor in boost.items() if WANTED[wanted](hit.metadata)]))
        found.append((hit.id, factor, score * factor if score >= 0 else score / factor))
    return sorted(found, key=lambda one: -one[2])


FACTORS = [
    (np.ones(2), "float"),
    (0, "above 0"),
    (-1, "0"),
    (1001, "1,000"),
    (float("nan"), "NaN"),
    (True, "float"),
    ("2", "float"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "fusion"),
    [("hybrid", "score"), ("hybrid", "rrf"), ("hybrid", "linear"), ("vector", "score"), ("keyword", "score")],
)
def test_the_order_is_that_of_the_products(boosted, mode, fusion):
    options = {"mode": mode, "fusion": fusion, "tuning": {"candidates": 60}}
    for question in ("cat ship", "moon -lion"):
        plain = boosted.search(question, 60, **options)
        assert {hit.boost for hit in plain} == {None}
        for boost in (
            *({"third == true": 0.5}, {"third == true": 3, "n >= 30": 0.1}),
            *({"n >= 30": 1000, "not exists nothing": 0.001}, {"n >= 30": 1}),
        ):
            wanted = expected(plain, boost)
            found = boosted.search(question, 60, boost=boost, **options)
            told = [(hit.id, hit.boost, hit.fused_score) for hit in found]
            assert [(name, pytest.approx(factor)) for name, factor, _ in wanted] == [one[:2] for one in told]
            assert [pytest.approx(score) for _, _, score in wanted] == [one[2] for one in told]
            # Before the cut, and the same with a deadline.
            few = boosted.search(question, 3, boost=boost, **options, deadline=60)
            assert [hit.id for hit in few] == [name for name, _, _ in wanted][:3]


@pytest.mark.slow
def test_boosts_in_every_form_and_with_other_options(boosted):
    first = ids_of(boosted.search("cat ship", 5, boost={"n >= 30": 5}))
    assert ids_of(boosted.search("cat ship", 5)) != first
    for boost in ([(F("n") >= 30, 5)], [({"n": {"$gte": 30}}, 5.0)], (["n >= 30", 5],)):
        assert ids_of(boosted.search("cat ship", 5, boost=boost)) == first
    many = boosted.search_many(["cat ship", SearchQuery("cat ship", top_k=5)], 5, boost={"n >= 30": 5})
    assert list(map(ids_of, many)) == [first] * 2
    grouped = boosted.search("cat ship", 5, boost={"n >= 30": 5}, group_by="document", group_size=1)
    assert ids_of(grouped) == first
    # Page by page, and with a filter.
    options = {"boost": {"n >= 30 and third == true": 5, '"n" < 10': 0.5}, "tuning": {"candidates": 60}}
    paged = [hit.id for page in pages(boosted, "cat ship", 4, "n != 7", **options, max_results=12) for hit in page]
    assert paged == ids_of(boosted.search("cat ship", 12, "n != 7", **options))
    assert boosted.search("nothing at all", mode="keyword", boost=options["boost"]) == []
    # Many factors stay finite.
    for factor in (1000, 1e-300):
        found = boosted.search("cat ship", 60, boost=[("not exists nothing", factor)] * 100)
        assert all(hit.fused_score is not None and np.isfinite(hit.fused_score) for hit in found)
        assert len(found) > 30


@pytest.mark.parametrize(
    ("boost", "place", "told"),
    [
        ("n == 1", "boost", "a mapping of filters to factors"),
        (5, "boost", "a mapping"),
        *(({"n == 1": factor}, "boost[0]", told) for factor, told in FACTORS),
        ({"n == 1": 2, "n === 1": 2}, "boost[1] at column 3", "did you mean ==?"),
        ([({"$or": []}, 2)], "boost[0].$or", "at least one"),
        *(([(one, 2)], "boost[0]", "a filter with a condition") for one in ({}, None)),
        *(([one], "boost[0]", "a pair") for one in ("n == 1", ("n == 1", 2, 3))),
        ([("n == 1", 2)] * 101, "boost", "100 boosts"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_wrong_boosts_are_refused(boosted, boost, place, told):
    with pytest.raises(ValidationError) as caught:
        boosted.search("cat", boost=boost)
    assert [error.field for error in caught.value.errors] == [place]
    assert told in str(caught.value)


WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
DIMENSIONS = 16


@pytest.fixture(scope="module")
def retriever(module_url):
    """200 texts, 10 of them without a vector; tests only read them."""
    chance = np.random.default_rng(4)
    texts = {f"d{number}": " ".join(chance.choice(WORDS, 6)) for number in range(190)}
    bare = {f"bare{number}": f"sea hill {number}" for number in range(10)}
    with sync_filled(module_url, texts, DIMENSIONS) as retriever, sync_filled(module_url, bare, "none"):
        yield retriever


@pytest.fixture(scope="module")
def reranked(retriever, module_url):
    with sync_opened(module_url, DIMENSIONS, TermOverlapReranker()) as reranked:
        yield reranked


queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@pytest.mark.slow
@given(query=queries, least=st.floats(-1, 1), top_k=st.integers(1, 50), mode=st.sampled_from(["hybrid", "vector"]))
def test_the_hits_are_those_of_a_search_without_it_that_reach_it(retriever, query, least, top_k, mode):
    """In their order, and among all candidates: not among the first `top_k` alone."""
    every = retriever.search(query, 200, mode=mode, tuning={"candidates": 200})
    found = retriever.search(query, top_k, mode=mode, tuning={"candidates": 200}, min_similarity=least)
    reached = [hit.id for hit in every if hit.vector_score is not None and hit.vector_score >= least]
    assert ids_of(found) == reached[:top_k]
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    if not reached:
        assert any("no candidate reaches min_similarity" in warning for warning in found.warnings)
        assert found.best_similarity is None


@pytest.mark.slow
@example(query="sea stone", least=1.0)  # more than ten texts hold both words
@given(query=queries, least=st.floats(0, 1))
def test_min_rerank_leaves_out_what_the_reranker_scores_lower(reranked, query, least):
    """Compared with all hits that the reranker judges: four times as many as wanted."""
    every = [hit for page in pages(reranked, query, 10, max_results=40, tuning={"candidates": 200}) for hit in page]
    found = reranked.search(query, 10, min_rerank=least, tuning={"candidates": 200})
    assert ids_of(found) == [hit.id for hit in every if hit.rerank_score >= least][:10]
    if not found:
        assert any("no candidate reaches min_rerank" in warning for warning in found.warnings)


def test_many_at_once_in_groups_and_without_a_vector(retriever):
    queries = ("sea hill", "wind light")
    for query, results in zip(queries, retriever.search_many(queries, 20, min_similarity=0.4), strict=True):
        assert ids_of(results) == ids_of(retriever.search(query, 20, min_similarity=0.4))
        assert all((hit.vector_score or -1) >= 0.4 for hit in results)
    grouped = retriever.search("sea hill", 5, group_by="document", min_similarity=0.4)
    assert all((hit.vector_score or -1) >= 0.4 for document in grouped.documents for hit in document.hits)
    assert any(hit.id.startswith("bare") for hit in retriever.search("sea hill 3", 20))
    found = retriever.search("sea hill 3", 200, tuning={"candidates": 200}, min_similarity=-1)
    assert len(found) > 0
    assert not any(hit.id.startswith("bare") for hit in found)
    assert any(warning.startswith("10 chunks were left out") for warning in found.warnings)


def test_a_reranker_that_fails_lets_nothing_through(retriever, module_url):
    failing = SimpleNamespace(identity="failing", score=Mock(side_effect=RuntimeError))
    with sync_opened(module_url, DIMENSIONS, failing) as failing:
        assert len(failing.search("sea", 5)) == 5
        found = failing.search("sea", 5, min_rerank=0.1)
        assert found == []
        assert any("the reranker did not answer" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *(
            ({"min_similarity": one}, f"min_similarity .*{told}")
            for one, told in ((1.5, "-1 and 1"), ("high", "float"), (float("nan"), "finite"), (True, "float"))
        ),
        ({"min_rerank": float("inf")}, "min_rerank .*finite"),
        ({"min_similarity": 0.5, "mode": "keyword"}, "mode 'keyword'"),
        ({"min_similarity": 0.5, "fusion": "rrf"}, "fusion='score'"),
        ({"min_similarity": 0.5, "max_results": 100}, "cannot be combined"),
        ({"min_rerank": 0.5}, "needs a reranker"),
        ({"min_rerank": 0.5, "rerank": False}, "needs a reranker"),
        ({"rerank": True}, "reranker_model"),
    ],
)
def test_what_no_search_can_keep_is_refused(retriever, options, match):
    with pytest.raises(ConfigurationError, match=match):
        retriever.search("sea", 5, **options)


@pytest.mark.slow
def test_scores_that_a_collection_does_not_have(database_url):
    with sync_opened(database_url, "none", collection="words") as plain:
        plain.add_documents([Document("sea", id="sea")])
        with pytest.raises(ConfigurationError, match="this search has no vector"):
            plain.search("sea", min_similarity=0.5)
    with sync_opened(database_url, "none", collection="far", distance="l2") as far:
        far.add_documents([Document("sea", id="sea")], [[1.0, 0.0]])
        with pytest.raises(ConfigurationError, match="compares by l2"):
            far.search(vector=[1.0, 0.0], min_similarity=0.5)


@pytest.fixture(scope="module")
def files(new_database, tmp_path_factory):
    """12 files, one of them with more chunks than all others; 10 chunks of 3 named documents; 5 of none.

    Tests only read it.
    """
    folder = tmp_path_factory.mktemp("docs")
    chance = random.Random(3)
    for number in range(12):
        sections = [" ".join(chance.choices(WORDS, k=8)) for _ in range(1 + number % 5)]
        if number == 0:
            sections = [f"otter otter otter {n}" for n in range(400)]
        text = "\n\n".join(f"# Section {n}\n\n{section} w{number}" for n, section in enumerate(sections))
        (folder / f"file{number:02}.md").write_text(text, encoding="utf-8")
    manuals = [
        ChunkMetadata(f"c{n}", f"manual{n % 3}.pdf", f"{WORDS[n % 8]} {WORDS[n // 2]} part", 3) for n in range(10)
    ]
    alone = [Document(f"{word} alone", id=f"alone-{word}") for word in WORDS[:5]]
    with sync_opened(new_database(), 16, TermOverlapReranker()) as retriever:
        retriever.index(folder, source="files", chunk_tokens=16, overlap_tokens=0)
        retriever.add_documents(manuals)
        retriever.add_documents(alone)
        yield retriever


ALL = 12 + 3 + 5


def document_of(hit):
    """What a user would say that a hit is a part of."""
    return hit.source, hit.source_document or hit.id


def grouped(hits, count, size):
    """The slow twin: documents in the order of their best hits, with their best chunks."""
    groups = {}
    for hit in hits:
        groups.setdefault(document_of(hit), []).append(hit.id)
    return [ids[:size] for ids in list(groups.values())[:count]]


def groups_of(results):
    return [ids_of(document.hits) for document in results.documents]


QUERY = st.lists(st.sampled_from([*WORDS, "part", "alone", "-hill", "otter"]), min_size=1, max_size=4).map(" ".join)


@pytest.mark.slow
@given(
    query=QUERY,
    top_k=st.integers(1, 25),
    size=st.integers(1, 8),
    mode=st.sampled_from(["vector", "keyword", "hybrid"]),
    fusion=st.sampled_from(["score", "rrf", "linear"]),
    filters=st.sampled_from([None, {"source_document": "file00.md"}, {"missing": 1}]),
)
@settings(max_examples=examples(25, full=2_000))
def test_groups_are_those_of_the_whole_list(files, query, top_k, size, **options):
    options |= {"rerank": False, "tuning": {"candidates": 1000}}
    whole = files.search(query, 1000, **options)
    results = files.search(query, top_k, group_by="document", group_size=size, **options)
    assert groups_of(results) == grouped(whole, top_k, size)
    scores = {hit.id: (hit.vector_score, hit.keyword_score, hit.fused_score) for hit in whole}
    assert all(scores[hit.id] == (hit.vector_score, hit.keyword_score, hit.fused_score) for hit in results)
    assert [hit for document in results.documents for hit in document.hits] == list(results)
    assert [hit.rank for hit in results] == list(range(1, len(results) + 1))
    assert [document.rank for document in results.documents] == list(range(1, len(results.documents) + 1))


@pytest.mark.slow
@given(query=QUERY, top_k=st.integers(1, 30), size=st.integers(1, 5), rerank=st.sampled_from([None, False]))
@settings(max_examples=examples(20, full=1_000))
def test_as_many_documents_as_exist_come_back(files, query, top_k, size, rerank):
    left = {document_of(hit) for hit in files.search(query, 1000, rerank=False, tuning={"candidates": 1000})}
    results = files.search(query, top_k, group_by="document", group_size=size, rerank=rerank)
    assert len(results.documents) == min(top_k, len(left))
    named = [document_of(document.hits[0]) for document in results.documents]
    assert len(set(named)) == len(named)
    for document in results.documents:
        first, *others = document.hits
        assert len(document.hits) <= size
        assert {document_of(hit) for hit in others} <= {document_of(first)}
        assert (document.source, document.source_document) == (first.source, first.source_document)


def test_one_document_that_has_all_the_best_chunks_hides_no_other(files, monkeypatch):
    for mode in ("vector", "keyword", None):
        hits = files.search("otter", 100, rerank=False, mode=mode)
        assert {document_of(hit) for hit in hits} == {("files", "file00.md")}
    results = files.search("otter", 20, group_by="document", group_size=2, rerank=False)
    assert len(results.documents) == ALL
    first = results.documents[0]
    assert (len(first.hits), first.source_document, results.warnings) == (2, "file00.md", [])
    # Documents behind more chunks than are examined are missed, with a warning.
    for module in ("retrieval", "results"):
        monkeypatch.setattr(f"semlex.search.{module}.MAX_CANDIDATES", 100)
    results = files.search("otter", 10, group_by="document", mode="vector", rerank=False)
    assert len(results.documents) == 1
    assert "fewer documents than wanted" in results.warnings[0]


def test_the_reranker_orders_documents_by_their_best_chunks(files):
    reranker, query, deep = TermOverlapReranker(), "river light", {"candidates": 1000}
    fused = files.search(query, 1000, rerank=False, tuning=deep)
    for top_k, size in ((1, 1), (3, 2), (5, 3), (10, 10), (20, 1)):
        # The slow twin: the best chunks of so many documents that the reranker gets about 4 x top_k, reranked, grouped.
        wanted = {one for group in grouped(fused, max(top_k, -(-4 * top_k // size)), size) for one in group}
        given_hits = [hit for hit in fused if hit.id in wanted]
        scores = reranker.score(query, [hit.content for hit in given_hits]).tolist()
        order = sorted(range(len(given_hits)), key=lambda place: -scores[place])
        options = {"tuning": deep, "rerank": True, "rerank_weight": 1}
        results = files.search(query, top_k, group_by="document", group_size=size, **options)
        assert groups_of(results) == grouped([given_hits[place] for place in order], top_k, size)
        assert results.reranker_model == reranker.identity


def test_as_json_and_a_search_without_groups(files):
    results = files.search("sea part", 4, group_by="document")
    shown = json.loads(json.dumps(results.to_dict()))
    names = [document.source_document for document in results.documents]
    assert [one["source_document"] for one in shown["documents"]] == names
    assert [hit for one in shown["documents"] for hit in one["hits"]] == shown["hits"]
    assert shown["documents"][0] == json.loads(json.dumps(results.documents[0].to_dict()))
    results = files.search("sea")
    assert results.documents == results.to_dict()["documents"] == []


def test_bad_options(files):
    for told, options in (
        *(("group_by", {"group_by": one}) for one in ("chunk", ["document"], True)),
        *(("group_size", {"group_by": "document", "group_size": one}) for one in (0, 2.0, 2_001)),
        ("group_size", {"group_size": 3}),
        ("max_results", {"group_by": "document", "max_results": 100}),
    ):
        with pytest.raises(ConfigurationError, match=told):
            files.search("sea", 5, **options)
