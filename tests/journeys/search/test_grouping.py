"""Grouping by document: as many documents as wanted whenever they exist, in the order of their best chunks."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import ChunkMetadata, Document, TermOverlapReranker
from semlex.errors import ConfigurationError
from tests.support.properties import examples
from tests.support.retrievers import ids_of, sync_opened

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")


@pytest.fixture(scope="module")
def library(new_database, tmp_path_factory):
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
def test_groups_are_those_of_the_whole_list(library, full):
    @given(
        query=QUERY,
        top_k=st.integers(1, 25),
        size=st.integers(1, 8),
        mode=st.sampled_from(["vector", "keyword", "hybrid"]),
        fusion=st.sampled_from(["score", "rrf", "linear"]),
        filters=st.sampled_from([None, {"source_document": "file00.md"}, {"missing": 1}]),
    )
    @settings(max_examples=2_000 if full else examples(25))
    def search(query, top_k, size, **options):
        options |= {"rerank": False, "tuning": {"candidates": 1000}}
        whole = library.search(query, 1000, **options)
        results = library.search(query, top_k, group_by="document", group_size=size, **options)
        assert groups_of(results) == grouped(whole, top_k, size)
        scores = {hit.id: (hit.vector_score, hit.keyword_score, hit.fused_score) for hit in whole}
        assert all(scores[hit.id] == (hit.vector_score, hit.keyword_score, hit.fused_score) for hit in results)
        assert [hit for document in results.documents for hit in document.hits] == list(results)
        assert [hit.rank for hit in results] == list(range(1, len(results) + 1))
        assert [document.rank for document in results.documents] == list(range(1, len(results.documents) + 1))

    search()


@pytest.mark.slow
def test_as_many_documents_as_exist_come_back(library, full):
    @given(query=QUERY, top_k=st.integers(1, 30), size=st.integers(1, 5), rerank=st.sampled_from([None, False]))
    @settings(max_examples=1_000 if full else examples(20))
    def search(query, top_k, size, rerank):
        left = {document_of(hit) for hit in library.search(query, 1000, rerank=False, tuning={"candidates": 1000})}
        results = library.search(query, top_k, group_by="document", group_size=size, rerank=rerank)
        assert len(results.documents) == min(top_k, len(left))
        named = [document_of(document.hits[0]) for document in results.documents]
        assert len(set(named)) == len(named)
        for document in results.documents:
            first, *others = document.hits
            assert len(document.hits) <= size
            assert {document_of(hit) for hit in others} <= {document_of(first)}
            assert (document.source, document.source_document) == (first.source, first.source_document)

    search()


def test_one_document_that_has_all_the_best_chunks_hides_no_other(library):
    for mode in ("vector", "keyword", None):
        hits = library.search("otter", 100, rerank=False, mode=mode)
        assert {document_of(hit) for hit in hits} == {("files", "file00.md")}
    results = library.search("otter", 20, group_by="document", group_size=2, rerank=False)
    assert len(results.documents) == ALL
    assert len(results.documents[0].hits) == 2
    assert results.documents[0].source_document == "file00.md"
    assert results.warnings == []


def test_the_reranker_orders_documents_by_their_best_chunks(library):
    reranker, query, deep = TermOverlapReranker(), "river light", {"candidates": 1000}
    fused = library.search(query, 1000, rerank=False, tuning=deep)
    for top_k, size in ((1, 1), (3, 2), (5, 3), (10, 10), (20, 1)):
        # The slow twin: the best chunks of so many documents that the reranker gets about 4 x top_k, reranked, grouped.
        wanted = {one for group in grouped(fused, max(top_k, -(-4 * top_k // size)), size) for one in group}
        given_hits = [hit for hit in fused if hit.id in wanted]
        scores = reranker.score(query, [hit.content for hit in given_hits]).tolist()
        order = sorted(range(len(given_hits)), key=lambda place: -scores[place])
        options = {"tuning": deep, "rerank": True, "rerank_weight": 1}
        results = library.search(query, top_k, group_by="document", group_size=size, **options)
        assert groups_of(results) == grouped([given_hits[place] for place in order], top_k, size)
        assert results.reranker_model == reranker.identity


def test_a_document_behind_more_chunks_than_are_looked_at_is_missed_with_a_word(library, monkeypatch):
    for module in ("retrieval", "results"):
        monkeypatch.setattr(f"semlex.search.{module}.MAX_CANDIDATES", 100)
    results = library.search("otter", 10, group_by="document", mode="vector", rerank=False)
    assert len(results.documents) == 1
    assert "fewer documents than wanted" in results.warnings[0]


def test_as_json_and_a_search_without_groups(library):
    results = library.search("sea part", 4, group_by="document")
    shown = json.loads(json.dumps(results.to_dict()))
    names = [document.source_document for document in results.documents]
    assert [one["source_document"] for one in shown["documents"]] == names
    assert [hit for one in shown["documents"] for hit in one["hits"]] == shown["hits"]
    assert shown["documents"][0] == json.loads(json.dumps(results.documents[0].to_dict()))
    results = library.search("sea")
    assert results.documents == results.to_dict()["documents"] == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"group_by": "chunk"}, "group_by"),
        ({"group_by": ["document"]}, "group_by"),
        ({"group_by": True}, "group_by"),
        ({"group_size": 3}, "group_size"),
        ({"group_by": "document", "group_size": 0}, "group_size"),
        ({"group_by": "document", "group_size": 2.0}, "group_size"),
        ({"group_by": "document", "group_size": 2_001}, "group_size"),
        ({"group_by": "document", "max_results": 100}, "max_results"),
    ],
)
def test_bad_options(library, options, told):
    with pytest.raises(ConfigurationError, match=told):
        library.search("sea", 5, **options)
