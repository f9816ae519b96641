"""Why a document is missing: every way, made on a real server, and named right; what is said to help does help."""

import os
import random
from collections import Counter

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Document, IvfflatIndex, SearchDefaults, SyncRetriever, TermOverlapReranker
from semlex.errors import ConfigurationError, ValidationError
from semlex.proof.check import plain_bm25
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.retrievers import arguments_in, filled, ids_of, opened, sync_filled, sync_opened

VECTORS = "semlex.default_collection_embedding_1"


def codes(told):
    return [reason.code for reason in told.reasons]


async def helps(retriever, told, question, **options):
    """Whether the arguments that the first reason names bring the chunk into the answer."""
    given = arguments_in(told.reasons[0].remedy)
    assert given, told.reasons[0].remedy
    found = await retriever.search(question, **(options | given))
    return told.chunk in {hit.id for hit in found}


async def test_a_document_that_is_there(database_url):
    texts = {"a": "a key", "b": "a key and a vault"}
    async with filled(database_url, texts, 16) as retriever:
        hits = await retriever.search("vault key")
        told = await retriever.why("a", "vault key")
        assert (codes(told), told.found, told.rank) == (["found"], True, 2)
        assert ids_of(hits) == ["b", "a"]
        by_vector, by_words = told.legs
        assert (by_vector.rank, by_vector.score) == (2, hits[1].vector_score)
        assert (by_words.rank, by_words.score) == (2, hits[1].keyword_score)
        assert (by_words.last_hit_score, told.fused_score) == (hits[-1].keyword_score, hits[1].fused_score)
        assert [(term.term, term.held, term.chunks) for term in told.terms] == [("vault", False, 1), ("key", True, 2)]
        assert sum(term.score for term in told.terms) == pytest.approx(hits[1].keyword_score)
        assert str(told).startswith("a: found\nit is hit 2 of 2 [found]")
        assert told.to_dict()["legs"][0]["leg"] == "vector"
        # Inside the caller's transaction.
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.execute("SELECT 1")  # begins one
            inside = retriever.using(connection)
            await inside.add_documents([Document("another key", id="c")])
            assert (await inside.why("c", "key")).found
            await connection.rollback()
        assert (await retriever.why("c", "key")).code == "never_seen"
        for document in ("", "a\0b", 5, "x" * 5_000):
            with pytest.raises(ValidationError, match="document"):
                await retriever.why(document, "key")
        with pytest.raises(ConfigurationError, match="explain"):
            await retriever.search("key", explain=1)
        # A search that fails is a note.
        execute(database_url, f"ALTER TABLE {VECTORS} RENAME TO elsewhere")
        told = await retriever.why("a", "vault")
        assert (codes(told), [leg.leg for leg in told.legs]) == (["no_shared_word"], ["keyword"])
        assert any("the vector search did not answer" in note for note in told.notes)
        assert (await retriever.why("a", "key")).found
    # An argument takes precedence over the retriever's defaults.
    defaults = SearchDefaults(top_k=1, route="rules")
    async with filled(database_url, texts, 16, collection="c", search_defaults=defaults) as retriever:
        assert (await retriever.why("a", "vault key")).code == "below_top_k"
        assert (await retriever.why("a", "vault key", 2)).found
        routed = await retriever.why("b", "vault key")
        assert any(note.startswith("the kind of the query is exploratory, by rules") for note in routed.notes)
        assert not (await retriever.why("b", "vault key", route=False)).notes


async def test_what_the_filter_or_the_words_of_the_question_leave_out(database_url):
    documents = [Document(f"a key {year}", {"year": year, "lang": "de"}, id=str(year)) for year in (2019, 2021)]
    documents += [Document("dogs chase a cat", id="a"), Document("a cat chases dogs", id="b")]
    async with filled(database_url, documents, 16) as retriever:
        # The smallest part of the filter is named.
        told = await retriever.why("2019", "key", filters="lang == 'de' and (year > 2020 or year == 2000)")
        assert codes(told) == ["filtered"]
        assert "the filter: year > 2020 or year == 2000 does not hold" in told.reasons[0].text
        assert (await retriever.why("2021", "key", filters="lang == 'de' and year > 2020")).found
        own = f'@source_document == "x" and year > 2020 and @document == "{"0" * 32}"'
        told = await retriever.why("2021", "key", filters=own)
        assert '@source_document == "x" and @document == "' in told.reasons[0].text
        # Words that the question excludes or demands.
        for question, text in (
            ("cat -dog", 'it contains "dog", which the query excludes'),
            ('cat -"dogs chase"', 'it contains "dog chase", which the query excludes'),
            ('"cat chases" dogs', 'it lacks the phrase "cat chase"'),
        ):
            for mode in (None, "keyword"):
                told = await retriever.why("a", question, mode=mode)
                assert codes(told) == ["excluded"]
                assert told.reasons[0].text == f"it is excluded by the query: {text}"
        told = await retriever.why("a", "cat", exclude=["dog"])
        assert told.reasons[0].remedy == "remove that from the query or the option exclude"
        # A phrase that is nowhere is words; a search by vectors alone knows exclusions, and no phrases.
        assert (await retriever.why("a", '"cat ship"')).found
        assert (await retriever.why("a", '"cat chases" dogs', mode="vector")).found
        assert codes(await retriever.why("a", "cat -dog", mode="vector")) == ["excluded"]


async def test_a_chunk_without_a_vector(database_url):
    async with filled(database_url, {f"k{n}": f"key {n}" for n in range(5)} | {"x": "fig"}, 16) as retriever:
        execute(database_url, f"DELETE FROM {VECTORS} WHERE chunk_id IN ('x', 'k4')")
        told = await retriever.why("x", "key")
        assert codes(told) == ["no_vector", "no_shared_word"]
        assert told.reasons[0].remedy == "semlex models fill --collection default_collection"
        assert (await retriever.why("x", "key", mode="vector")).code == "no_vector"
        low = await retriever.why("k4", "key", top_k=1)
        assert codes(low) == ["below_top_k", "no_vector"]
        await retriever.embeddings.fill()
        assert (await retriever.why("x", "key", top_k=6)).found


KEYS = {f"k{n:02}": "key " * (60 - n) + f"n{n} stone" for n in range(60)} | {"fig": "a fig"}


@pytest.fixture(scope="module")
def keys_url(new_database):
    url = new_database()
    with sync_filled(url, KEYS, 16):
        return url


@pytest.fixture
async def keys(keys_url):
    """60 documents that hold *key* the more often the lower their number, and one that does not; tests only read."""
    async with opened(keys_url, 16) as retriever:
        yield retriever


@pytest.mark.parametrize("mode", [None, "vector", "keyword"])
async def test_depth_and_top_k(keys, mode):
    options = {"mode": mode, "top_k": 5, "tuning": {"candidates": 10}}
    found = set(ids_of(await keys.search("key", **options)))
    deep = set(ids_of(await keys.search("key", **(options | {"top_k": 10}))))
    for name in ("k09", "k30", "k59"):
        told = await keys.why(name, "key", **options)
        if name in found:
            assert told.found
        elif name in deep or told.fused_rank is not None:
            assert told.code == "below_top_k"
            assert told.fused_rank > 5
        else:
            legs = ("vector", "keyword") if mode is None else (mode,)
            assert codes(told) == [f"beyond_{leg}_depth" for leg in legs]
            assert all(leg.rank is None or leg.rank > leg.depth == 10 for leg in told.legs)
        assert told.found or await helps(keys, told, "key", **options)
    nothing = await keys.why("fig", "key", mode="keyword")
    assert codes(nothing) == ["no_shared_word"]
    assert nothing.leg("keyword").score == 0
    far = await keys.why("fig", "key", **(options | {"mode": None}))
    assert codes(far) == ["beyond_vector_depth", "no_shared_word"]
    assert await helps(keys, far, "key", **(options | {"mode": None}))


async def test_thresholds(keys):
    ordered = list(await keys.search("key", 61))
    last = next(hit for hit in reversed(ordered) if hit.vector_score is not None)
    least = last.vector_score + 1e-3
    told = await keys.why(last.id, "key", 61, min_similarity=least)
    assert told.code == "below_threshold"
    assert f"min_similarity={least:g}" in told.reasons[0].text
    reached = float(told.reasons[0].remedy.partition("=")[2].partition(" ")[0])
    assert last.id in ids_of(await keys.search("key", 61, min_similarity=reached))
    assert (await keys.why(ordered[0].id, "key", 61, min_similarity=-1)).found
    far = await keys.why(last.id, "key", 1, min_similarity=-1)
    assert far.code in {"below_top_k", "beyond_vector_depth"}


async def test_pages_and_groups(keys):
    ordered = ids_of(await keys.search("key", 61, max_results=61))
    third = await keys.why(ordered[12], "key", 5, max_results=20)
    assert (third.code, third.fused_rank) == ("below_top_k", 13)
    assert "on page 3" in third.reasons[0].text
    cut = await keys.why(ordered[30], "key", 5, max_results=20, tuning={"candidates": 61})
    remedy = "max_results=31 (--max-results 31) with tuning={'candidates': 61} (--candidates 61)"
    assert (cut.code, cut.reasons[0].remedy) == ("capped", remedy)
    parts = {f"p{n}" for n in range(4)}
    await keys.add_documents(
        [Document(f"key stone vault part{name}", {"source_document": "one.pdf"}, id=name) for name in sorted(parts)]
    )
    grouped = {"group_by": "document", "group_size": 2}
    shown = parts & set(ids_of(await keys.search("key stone vault", 5, **grouped)))
    assert len(shown) == 2
    for name in sorted(parts - shown):
        told = await keys.why(name, "key stone vault", 5, **grouped)
        assert told.code == "capped"
        assert await helps(keys, told, "key stone vault", **grouped)
    assert (await keys.why("one.pdf", "key stone vault", 5, **grouped)).found
    lower = await keys.why("k50", "key stone vault", 5, **grouped)
    assert lower.code in {"below_top_k", "beyond_vector_depth"}
    assert await helps(keys, lower, "key stone vault", **grouped)
    await keys.delete(sorted(parts))


async def test_a_reranker_puts_it_below(database_url):
    texts = {"d0": "key " * 40} | {f"d{n + 1}": f"key vault {n}" for n in range(30)}
    async with filled(database_url, texts, 16, TermOverlapReranker()) as retriever:
        fused = ids_of(await retriever.search("key vault", 31, rerank=False))
        told = await retriever.why("d0", "key vault", 8, rerank_weight=1)  # the reranker gets all 31
        assert told.code == "reranked_below"
        assert (told.rerank_score, told.last_rerank_score) == (0.5, 1.0)
        assert told.fused_rank == fused.index("d0") + 1
        assert "at place 31" in told.reasons[0].text
        if fused.index("d0") < 8:
            assert f"rerank=False: without the reranker it is number {told.fused_rank}" in told.reasons[0].remedy
        assert (told.mixed_score or 0) < (told.last_mixed_score or 0)
        none = await retriever.why("d0", "key vault", 8, min_rerank=1.5)
        assert "lowest of the reranked candidates" in str(none), none
        assert "d0" in ids_of(await retriever.search("key vault", 31))
        assert "top_k=31" in told.reasons[0].remedy
        below = await retriever.why(fused[-1], "key vault", 2, tuning={"candidates": 31})
        assert below.code == "below_top_k"
        assert "the reranker got the first 8" in below.reasons[0].text
        assert "; the reranker then decides" in below.reasons[0].remedy


@pytest.mark.slow
async def test_the_vector_index_passes_a_chunk_over(database_url):
    vectors = np.random.default_rng(3).normal(size=(2_000, 16)).astype(np.float32)
    texts = {f"d{n}": f"text {n}" for n in range(2_000)}
    async with filled(database_url, texts, "none", vectors=vectors, keyword="none") as retriever:
        queries = [vector + 1 for vector in vectors[:20]]
        nearest = [ids_of(await retriever.search(vector=query, top_k=30)) for query in queries]
        await retriever.indexes.create(IvfflatIndex(lists=100))
        # The server draws the lists by chance: now and then one query's nearest are all in the lists that are read.
        for query, exact in zip(queries, nearest, strict=True):
            hits = await retriever.search(vector=query, top_k=90, tuning={"probes": 1})
            scores = [hit.vector_score for hit in hits]
            assert scores == sorted(scores, reverse=True)  # an index that goes on to more lists gives them list by list
            if missed := [name for name in exact if name not in ids_of(hits)]:
                break
        told = await retriever.why(missed[0], vector=query, top_k=30, tuning={"candidates": 90, "probes": 1})
        assert told.code == "missed_by_index"
        assert told.legs[0].rank == exact.index(missed[0]) + 1
        assert "'probes'" in told.reasons[0].remedy
        assert (await retriever.why(missed[0], vector=query, top_k=30, tuning={"probes": 100})).found


async def test_other_engines_say_what_they_do_not_know(database_url):
    texts = {f"k{n}": f"key {n}" for n in range(40)} | {"x": "fig"}
    for engine, note, last in (
        ("tsvector", "does not report which words", ["no_shared_word"]),
        ("none", "no keyword engine", []),
    ):
        async with filled(database_url, texts, 16, keyword=engine, collection=engine) as retriever:
            told = await retriever.why("x", "key", tuning={"candidates": 10})
            assert (told.terms, codes(told)) == ((), ["beyond_vector_depth", *last])
            assert [one for one in told.notes if note in one]
            if engine == "tsvector":
                deep = await retriever.why("k39", "key", mode="keyword", tuning={"candidates": 10})
                assert deep.found or (deep.code, deep.legs[0].rank or 0) > ("", 10)
    async with filled(database_url, {"a": "a key", "b": "a fig"}, "none") as retriever:
        told = await retriever.why("b", "key")
        assert (codes(told), [leg.leg for leg in told.legs]) == (["no_shared_word"], ["keyword"])
        assert any("contains no vectors" in note for note in told.notes)
        assert str(told.reasons[0]).startswith("it shares no word with the query [")
        assert not {"question", "hold", "holds"} & set(str(told).split())


async def test_an_explained_search_is_the_search(keys):
    for fusion, weights in (("score", {"vector": 0.5, "keyword": 0.5}), ("rrf", {"vector": 1, "keyword": 1})):
        plain = await keys.search("key n30", 7, fusion=fusion)
        results = await keys.search("key n30", 7, fusion=fusion, explain=True)
        assert ids_of(results) == ids_of(plain)
        assert plain.explanation is None
        told = results.explanation
        assert (told.fusion, told.depth, set(told.legs)) == (fusion, 30, {"vector", "keyword"})
        assert told.weights == weights
        assert ids_of(told.hits) == ids_of(results)
        for hit, one in zip(results, told.hits, strict=True):
            assert one.vector_contribution == hit.vector_contribution
            if hit.keyword_score is not None:
                assert sum(term.score for term in one.terms) == pytest.approx(hit.keyword_score)
        assert "fusion: " + fusion in str(told)
        assert results.to_dict()["explanation"]["reranker"] is None
    # One search alone has no fusion, even if a sample of the vectors is in memory, as it is now.
    for mode in ("vector", "keyword"):
        results = await keys.search("key n30", 7, mode=mode, explain=True)
        told = results.explanation
        assert (told.fusion, told.weights, told.similarity_mean) == (None, {}, None)
        assert ids_of(told.hits) == ids_of(results)
        assert str(told)


async def test_the_search_is_that_of_search(database_url):
    question = "what about a key"
    texts = {"0": "a key", "1": "a key turns", "2": "a vault with a key and a lock", "3": "a lock"}
    vectors = [[1.0, 0.0], [0.3, 1.0], [0.0, 1.0], [0.95, 0.1]]
    async with filled(database_url, texts, "none", vectors=vectors):
        pass
    for defaults in (
        *({"top_k": 1}, {"min_similarity": 0.9}, {"min_similarity": 0.9, "mode": "keyword"}, {"mode": "vector"}),
        *({"fusion": "rrf", "rrf_k": 1.0}, {"hybrid_weight": 0.0}, {"hybrid_weight": 1.0}, {"route": "rules"}),
        {"top_k": 1, "oversampling": 2.0},
    ):
        async with opened(database_url, "none", search_defaults=SearchDefaults(**defaults)) as retriever:
            hits = await retriever.search(question, vector=[1.0, 0.1], explain=True)
            assert hits.explanation is not None
            for name in texts:
                told = await retriever.why(name, question, vector=[1.0, 0.1])
                assert told.rank == next((hit.rank for hit in hits if hit.id == name), None), defaults
                depths = {leg.leg: leg.depth for leg in told.legs}
                assert depths == dict.fromkeys(hits.explanation.legs, hits.explanation.depth), defaults
                assert set(hits.warnings) <= set(told.notes), defaults


@pytest.fixture
def folder(tmp_path):
    """A folder with readable files, and with one of every kind that a run skips or cannot read."""
    keys = "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n"
    files = {
        "keys.md": f"{keys}{'Pad. ' * 80}\n\n## Storage\n\nA vault holds keys.\n",
        "sub/fruit.txt": "A banana is a fruit.\n",
        "sub/keys.md": "# Other keys\n\nNo vault.\n",
        "server.log": "a line\n",
        ".hidden.md": "# Hidden\n",
        "node_modules/read.md": "# Read\n",
        ".gitignore": "secret.md\nprivate/\n",
        "secret.md": "# Secret\n",
        "private/deep/page.md": "# Private\n",
        "blank.md": "\n",
        "picture.txt": b"a\0b",
        "latin.txt": "für Elise".encode("latin-1"),
    }
    return folder_with(tmp_path / "docs", files)


@pytest.fixture
def retriever(database_url, folder):
    with SyncRetriever(database_url, "none", use_reranking=False) as opened:
        opened.index(folder)
        yield opened


def why(retriever, document, code=None, text=""):
    told = retriever.why(str(document), "vault")
    assert code is None or (told.code == code and text in told.reasons[0].text), (document, told)
    return told


def test_files_that_a_run_skips_or_cannot_read(retriever, folder):
    for name, text in {
        "server.log": "no loader reads files of the format .log",
        ".hidden.md": "hidden",
        "node_modules/read.md": "(the folder node_modules)",
        "secret.md": ".gitignore or .semlexignore leaves it out",
        "private/deep/page.md": "(the folder private)",
    }.items():
        for document in (name, folder / name, f"docs: {name}"):
            told = why(retriever, document, "skipped", text)
        # The remedy helps.
        assert told.reasons[0].remedy.startswith(f"semlex index {folder / name}")
        retriever.index(folder / name)
        assert why(retriever, name).code in {"found", "no_shared_word"}, name
    why(retriever, "picture.txt", "unreadable", "binary")
    why(retriever, "latin.txt", "unreadable", "not_utf8")
    (folder / "latin.txt").write_text("für Elise in the vault", encoding="utf-8")
    retriever.index(folder)
    assert why(retriever, "latin.txt").found
    (folder / "large.txt").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    why(retriever, "large.txt", "unreadable", "too_large")
    os.mkfifo(folder / "pipe.txt")
    assert "not_regular" in why(retriever, "pipe.txt").reasons[0].text
    (folder / "link.md").symlink_to("/etc/hostname")
    assert "link_out" in why(retriever, "link.md").reasons[0].text
    why(retriever, "blank.md", "empty")


def test_what_was_deleted(retriever, folder, database_url):
    retriever.delete(document="sub/fruit.txt")
    told = why(retriever, "sub/fruit.txt", "deleted", "semlex delete: sub/fruit.txt")
    assert told.reasons[0].remedy == f"semlex index {folder}/sub/fruit.txt --collection default_collection"
    (folder / "sub" / "keys.md").unlink()
    assert why(retriever, "sub/keys.md").found  # the file is gone, the document is there
    retriever.sync(folder)
    why(retriever, folder / "sub" / "keys.md", "deleted", "semlex sync")
    retriever.delete(source="docs")
    why(retriever, folder / "keys.md", "deleted", "'docs' was removed")
    execute(database_url, "DELETE FROM semlex.default_collection_ingestion_log")
    told = why(retriever, folder / "sub" / "keys.md", "deleted", "'docs' was removed")
    assert told.reasons[0].remedy == f"semlex index {folder} --collection default_collection"
    retriever.index(folder)
    assert why(retriever, folder / "keys.md").found


def test_what_no_run_has_seen(retriever, folder, tmp_path):
    nobody = why(retriever, "nobody", "never_seen")
    assert (nobody.name, nobody.legs) == (None, ())
    assert "did you mean keys.md?" in why(retriever, "kesy.md").reasons[0].text
    why(retriever, folder / "other.md", "never_seen", str(folder))
    (tmp_path / "apart.md").write_text("# Apart\n")
    apart = why(retriever, tmp_path / "apart.md", "never_seen")
    assert apart.reasons[0].remedy.startswith("semlex index ")
    (folder / "new.md").write_text("# A new vault\n")
    why(retriever, "new.md", "not_indexed", "since it was changed")
    retriever.index(folder)
    assert why(retriever, "new.md").found
    (folder / "late.md").write_text("# Late\n")
    os.utime(folder / "late.md", (1, 1))
    retriever.index(folder, exclude=["late*"])
    why(retriever, "late.md", "not_indexed", "an option left the file out")
    folder.rename(tmp_path / "elsewhere")
    told = why(retriever, folder / "other.md", "never_seen", "cannot be reached from here")
    assert told.reasons[0].remedy == "semlex documents move docs FOLDER --collection default_collection"


def test_names(retriever, folder, tmp_path, monkeypatch):
    named = Document("a vault", {"source_document": "safe.pdf"}, id="v1")
    retriever.add_documents([named, Document("vault", id="id:9")])
    assert why(retriever, "keys.md").name == "docs: keys.md"
    for document in ("keys.md", "docs: keys.md", folder / "keys.md"):
        assert why(retriever, document).chunks == 2
    monkeypatch.chdir(tmp_path)
    assert why(retriever, "docs/keys.md").name == "docs: keys.md"
    storage = why(retriever, "keys.md:11")
    assert (storage.name, storage.chunks) == ("docs: keys.md:11", 1)
    hit = retriever.search("ninety days")[0]
    assert retriever.why(hit.location, "ninety days").chunk == hit.id
    assert why(retriever, hit.id).name == hit.id
    note = "no chunk contains line, page or row 999: the whole document was examined"
    assert why(retriever, "keys.md:999").notes[0] == note
    assert why(retriever, "fruit.txt").name == "docs: sub/fruit.txt"  # only one path ends so
    assert (why(retriever, "safe.pdf").name, why(retriever, "id:9").name) == ("safe.pdf", "id:9")
    retriever.index(folder_with(folder, {"more/sub/fruit.txt": "Another vault\n"}))
    with pytest.raises(ConfigurationError, match=r"docs: more/sub/fruit\.txt, docs: sub/fruit\.txt"):
        why(retriever, "fruit.txt")
    assert why(retriever, "sub/fruit.txt").name == "docs: sub/fruit.txt"
    assert why(retriever, "more/sub/fruit.txt").found


WORDS = ("cat", "dog", "ship", "hill", "stone")
NAMES = [f"d{n:02}" for n in range(24)]
EMBEDDER = HashEmbedder(16)


@pytest.fixture(scope="module")
def refilled(module_url):
    with sync_opened(module_url, EMBEDDER) as retriever:
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
    *, refilled, texts, question, excluded, mode, filters, top_k, more, picked
):
    stored = {name: " ".join(words) for name, words in zip(NAMES, texts, strict=False)}
    numbers = {name: number for number, name in enumerate(stored)}
    keeps = {None: lambda _: True, "n < 12": lambda n: n < 12, "even == true": lambda n: n % 2 == 0}[filters]
    passing = {name for name, number in numbers.items() if keeps(number)}
    asked = " ".join([*question, *([f"-{excluded}"] if excluded else [])])
    name = list(stored)[picked % len(stored)]
    options = {"filters": filters, "mode": mode, "tuning": {"candidates": top_k + more}}
    refilled.delete(NAMES)
    refilled.add_documents(
        [Document(text, {"n": numbers[one], "even": numbers[one] % 2 == 0}, id=one) for one, text in stored.items()]
    )
    hits = refilled.search(asked, top_k, **options)
    told = refilled.why(name, asked, top_k, **options)
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
        kept = {one for one in passing if excluded not in stored[one].split()}
        left = {one: score for one, score in words.items() if one in kept}
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
        again = refilled.search(asked, **({"top_k": top_k} | options | given_again))
        assert name in {hit.id for hit in again}
    elif not told.found and not out:
        assert {reason.code for reason in told.reasons} <= {"no_shared_word", "beyond_vector_depth"}


def drawn(chance):
    """A question, and options of a search of every kind."""
    question = " ".join(chance.sample(WORDS, chance.randrange(1, 4)))
    question += f" -{chance.choice(WORDS)}" if chance.random() < 0.2 else ""
    question += f' "{" ".join(chance.sample(WORDS, 2))}"' if chance.random() < 0.15 else ""
    top_k = chance.randrange(1, 16)
    options = {"rerank": chance.choice([True, False]), "mode": chance.choice([None, "vector", "keyword"])}
    options |= {"fusion": chance.choice(["score", "rrf", "linear"]), "top_k": top_k}
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
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(1, 9))) for _ in range(80)]
    names = [f"doc{n % 40}" if n % 3 else "" for n in range(80)]
    documents = [Document(f"{text} n{n}", {"source_document": names[n]}, id=f"d{n}") for n, text in enumerate(texts)]
    async with filled(database_url, documents, EMBEDDER, TermOverlapReranker()) as retriever:
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
            ids = ids_of(page)
            while page.next_cursor and "max_results" in helps:
                page = await retriever.search_page(page.next_cursor)
                ids += ids_of(page)
            assert name in ids, (name, question, options, helps)
            helped += 1
    assert helped >= 20
    assert {"found", "below_top_k", "beyond_vector_depth", "no_shared_word", "excluded", "capped"} <= set(seen)
    assert "unknown" not in seen
