"""The engine ``bm25`` through a real server: its scores are those of the books, whatever was written and deleted."""

import random
import re
import threading
import uuid
import zlib
from functools import partial

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import Document, _core
from semlex.errors import AnalyzerVersionError, ConfigurationError, DamagedSegmentError, ValidationError
from semlex.options.collection import Bm25Options
from semlex.proof.check import plain_bm25
from semlex.search import fusion
from semlex.search.retrieval import Retrieval
from semlex.store.keyword.bm25 import index, read, search
from semlex.store.postgres.snapshot import SingleSnapshot
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.keyword_index import bm25, check_index, filled_bm25
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import filled, opened
from tests.support.spies import calls_of

pytestmark = pytest.mark.pg16

# Every filter is taken for a wide one.
PLANNING = {"min_filter_share": 0.0}
WORDS = ("cat", "cats", "dog", "running", "runner", "ships", "the", "naïve", "Zürich", "v1.2", "snake_case", "E0502")


async def scores(retriever, query, top_k=1000, **options):
    hits = await retriever.search(query, top_k, mode="keyword", **options)
    assert hits.warnings == [warning for warning in hits.warnings if "no word" in warning]
    return {hit.id: hit.keyword_score or 0.0 for hit in hits}


ids = st.integers(0, 30).map(str)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(15), deadline=None)
@given(
    batches=st.lists(st.dictionaries(ids, texts, min_size=1, max_size=8), min_size=1, max_size=5),
    deleted=st.sets(ids, max_size=5),
    query=texts,
)
@pytest.mark.superuser
async def test_scores_are_those_of_a_plain_bm25(empty_database_url, batches, deleted, query):
    async with bm25(empty_database_url) as retriever:
        await retriever.delete(list(map(str, range(31))))
        stored = {}
        for batch in batches:
            await retriever.add_documents([Document(text, id=name) for name, text in batch.items()])
            stored |= batch
            expected = plain_bm25({key: ("english", text) for key, text in stored.items()}, query)
            assert await scores(retriever, query) == pytest.approx(expected, rel=1e-9)
        await retriever.delete(sorted(deleted))
        kept = {key: ("english", text) for key, text in stored.items() if key not in deleted}
        expected = plain_bm25(kept, query)
        assert await scores(retriever, query) == pytest.approx(expected, rel=1e-9)
        async with bm25(empty_database_url) as other:
            assert await scores(other, query) == pytest.approx(expected, rel=1e-9)


changes = st.dictionaries(ids, texts, min_size=1, max_size=4) | st.sets(ids, min_size=1, max_size=4)
writes = changes | st.sampled_from(["optimize", "rebuild"])
searches = st.tuples(
    texts,
    st.fixed_dictionaries(
        {"mode": st.sampled_from(["keyword", "keyword", "hybrid"]), "fusion": st.sampled_from(["rrf", "score"])},
        optional={"filters": st.just({"even": True})},
    ),
    st.sampled_from([2, 50]),  # hits, and candidates
    st.integers(0, 1),  # which client
    st.one_of(st.none(), writes),  # between computing and asking
)


async def write(retriever, step):
    match step:
        case dict():
            documents = [Document(text, {"even": int(name) % 2 == 0}, id=name) for name, text in step.items()]
            await retriever.add_documents(documents)
        case set():
            await retriever.delete(sorted(step))
        case "optimize":
            await retriever.indexes.optimize()
        case "rebuild":
            await retriever.indexes.rebuild_keyword()


def first_asked_after(meanwhile, writing, patch):
    """Lets another client write before the next statement that answers alone."""
    execute = SingleSnapshot.execute

    async def late(self, *given, **named):
        if meanwhile:
            await write(writing, meanwhile.pop())
        return await execute(self, *given, **named)

    patch.setattr(SingleSnapshot, "execute", late)


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(15), deadline=None)
@given(
    steps=st.lists(st.one_of(searches, searches, writes), min_size=2, max_size=14),
    limits=st.tuples(st.sampled_from([0, 8, 20_000]), st.sampled_from([0, 2, 100])),
)
@pytest.mark.superuser
async def test_searches_among_commits_answer_as_a_new_client(empty_database_url, steps, limits):
    """Two clients search, again and again, while another one writes."""
    open_one = partial(bm25, empty_database_url, model=8)
    async with open_one() as writing, open_one() as one, open_one() as two:
        await writing.delete(list(map(str, range(31))))
        for step in steps:
            if not isinstance(step, tuple):
                await write(writing, step)
                continue
            query, options, most, client, meanwhile = step
            options = options | {"top_k": most, "tuning": {"candidates": most}}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(read, "SMALL_POSTINGS", limits[0])
                patch.setattr(index, "QUIET_SEARCHES", limits[1])
                first_asked_after([meanwhile], writing, patch)
                found = await (one, two)[client].search(query, **options)
            async with open_one() as new:
                expected = await new.search(query, **options)
            assert found.warnings == expected.warnings
            if options["mode"] == "hybrid" and options["fusion"] == "score":
                # Each client has its own sample of vectors, by which these are weighed against words.
                known = {hit.id: hit.keyword_score for hit in expected}
                assert all(hit.keyword_score == known.get(hit.id, hit.keyword_score) for hit in found)
            else:
                assert [hit.to_dict() for hit in found] == [hit.to_dict() for hit in expected]


async def test_an_index_in_memory_is_not_read_again_until_it_changes(database_url, monkeypatch):
    read = calls_of(monkeypatch, search, "index_statement")
    async with bm25(database_url) as writing, bm25(database_url) as searching:
        await writing.add_documents([Document("a cat", id="1"), Document("a dog", id="2")])
        # New words are read alone; a change is noticed, and comes with the answer.
        asked = (("cat", 1, 1), ("cat", 0, 0), ("cat -dog", 0, 1), ("cat -dog", 0, 0), ('"cat"', 0, 0))
        for query, reads, misses in asked:
            before = searching.info.keyword.index.cache_figures()
            assert list(await scores(searching, query)) == ["1"]
            assert len(read) == reads, query
            after = searching.info.keyword.index.cache_figures()
            assert after["misses"] - before["misses"] == misses, query
            read.clear()
        assert after["hits"] > before["hits"]
        await writing.add_documents([Document("another cat", id="3")])
        for _ in range(2):
            assert set(await scores(searching, "cat")) == {"1", "3"}
            assert not read
        await writing.delete(["1"])
        assert set(await scores(searching, "cat")) == {"3"}


async def test_what_has_changed_is_found_by_key_in_a_large_index(database_url):
    async with filled_bm25(database_url, {"1": "a cat"}) as retriever:
        state = read.state_row(retriever.info.names, with_changes=True)
        parameters = read.expectation(retriever.info, (b"", b""), with_changes=True)
        more = """INSERT INTO semlex.words_posting SELECT md5((n % 3)::text)::uuid, int4send(n),
            decode(repeat('0123456789', 240), 'hex') FROM generate_series(1, 6000) AS n; ANALYZE semlex.words_posting"""
        execute(database_url, more)
        plan = execute(database_url, sql.SQL("EXPLAIN {}").format(state), parameters)
        assert not any("Scan on words_posting" in line and "Seq" in line for (line,) in plan)
        assert any("words_posting_pkey" in line for (line,) in plan)


async def test_what_has_changed_is_sent_and_kept_within_limits(database_url, monkeypatch):
    async with bm25(database_url) as writing, bm25(database_url) as searching:
        cache = searching.info.keyword.index.cache

        async def kept(text):
            await writing.add_documents([Document(text)])
            assert await scores(searching, text)
            return int(cache.postings.small_bytes)

        await writing.add_documents([Document("a cat", id="1")])
        for _ in range(2):
            await scores(searching, "cat")
        before = searching.info.keyword.index.cache_figures()["bytes"]
        assert cache.postings.small_bytes == 0
        one = await kept("rain")
        assert one > 0
        assert searching.info.keyword.index.cache_figures()["bytes"] >= before + one
        two = await kept("snow")
        monkeypatch.setattr(index, "SMALL_BYTES", (one + two) // 2)
        async with bm25(database_url) as other:
            cache = other.info.keyword.index.cache
            for text in ("wind", "hail"):
                for _ in range(2):
                    await scores(other, "cat")
                await writing.add_documents([Document(text)])
                assert await scores(other, text)
            assert 0 < cache.postings.small_bytes < two
            # The newest is kept.
            assert len(search.AnalysedQuery.of(cache, "unheard", with_phrases=False).missing) == 4

        with psycopg.connect(database_url) as connection:
            for small, all_new, is_sent in ((1, 5, True), (0, 5, False), (1, 4, False)):
                monkeypatch.setattr(read, "SMALL_POSTINGS", small)
                monkeypatch.setattr(read, "ALL_POSTINGS", all_new)
                state = read.state_row(searching.info.names, with_changes=True)
                parameters = read.expectation(searching.info, (b"", b""), with_changes=True)
                row = connection.execute(state, parameters).fetchone()
                assert (row[0], row[1] is not None) == (False, is_sent)


async def test_best_first_and_ties_by_key(database_url):
    async with bm25(database_url) as retriever:
        for start in range(0, 20, 5):
            await retriever.add_documents([Document("a cat", id=f"same-{n}") for n in range(start, start + 5)])
        await retriever.add_documents([Document("cat cat cat", id="best")])
        for top_k in (8, 100):
            hits = await retriever.search("cat", top_k, mode="keyword")
            rows = execute(database_url, "SELECT chunk_id FROM semlex.words_chunk ORDER BY document_id, chunk_id")
            ordered = ["best", *(name for (name,) in rows if name != "best")]
            assert [hit.id for hit in hits] == ordered[:top_k]
        # Another program deletes more of the best rows than a search reads at first.
        execute(database_url, "DELETE FROM semlex.words_chunk WHERE chunk_id = ANY(%s)", [ordered[:15]])
        hits = await retriever.search("cat", 2, mode="keyword", tuning={"candidates": 2})
        assert [hit.id for hit in hits] == ordered[15:17]


async def test_constants_are_options_and_a_cache_of_no_bytes_changes_nothing(database_url):
    stored = {"short": "cat", "long": "cat cat cat dog running ships"}
    expected = plain_bm25({key: ("english", text) for key, text in stored.items()}, "cat", k1=0.9, b=0.4)
    for cache in ({}, {"cache_bytes": 0}):
        async with filled_bm25(database_url, stored, bm25=Bm25Options(k1=0.9, b=0.4, **cache)) as retriever:
            for _ in range(3):
                assert await scores(retriever, "cat") == pytest.approx(expected, rel=1e-9)
    for name, value in (("k1", -1.0), ("k1", float("nan")), ("b", 1.5), ("cache_bytes", -1)):
        with pytest.raises(ConfigurationError, match=name):
            Bm25Options(**{name: value})


async def test_a_filter_leaves_k_rows_whenever_there_are_k(database_url):
    """Whether the filter is read as ids, or checked on the best candidates."""
    ids_read, too_many = {"min_filter_share": 1.0}, {"min_filter_share": 1.0, "max_filter_ids": 3}
    async with bm25(database_url) as retriever:
        # Those that pass score least.
        documents = [Document("cat " * 3, {"kind": "other"}, id=f"other-{n}") for n in range(200)]
        documents += [Document("cat and dog and much else", {"kind": "wanted"}, id=f"wanted-{n}") for n in range(10)]
        await retriever.add_documents(documents)
        for planning in (ids_read, too_many, PLANNING):
            hits = await retriever.search("cat", 10, mode="keyword", filters={"kind": "wanted"}, tuning=planning)
            assert sorted(hit.id for hit in hits) == sorted(f"wanted-{n}" for n in range(10)), planning
            nothing = await retriever.search("cat", 10, mode="keyword", filters={"kind": "none"}, tuning=planning)
            assert nothing == [], planning


@pytest.fixture
def asked(monkeypatch):
    """The reads of chunks, each of which asks for keys."""
    return calls_of(monkeypatch, search.Bm25Leg, "keys_of")


def counts(asked):
    return [len(read["best"].ids) - read.get("looked_at", 0) for read in asked]


async def test_words_that_a_wide_filter_leaves_out_are_sought_among_what_passes(database_url, asked, monkeypatch):
    """The ids that pass are read once, and again when something was committed since."""
    read, ids_of = [], index.ids_of
    monkeypatch.setattr(index, "ids_of", lambda array: read.append(len(ids_of(array))) or ids_of(array))
    choice = random.Random(5)
    async with bm25(database_url) as retriever:
        words = [" ".join(choice.choices(["cat", "dog", "ship"], k=choice.randint(1, 9))) for _ in range(900)]
        kinds = ["wanted" if "cat" not in text or number % 40 == 0 else "other" for number, text in enumerate(words)]
        ids = [str(number) for number in range(900)]
        await retriever.add_texts(words, metadata=[{"kind": kind} for kind in kinds], ids=ids)

        async def check(query, count=10):
            whole = await scores(retriever, query)
            expected = [score for one, score in whole.items() if kinds[int(one)] == "wanted"]
            asked.clear()
            hits = await retriever.search(query, count, mode="keyword", filters={"kind": "wanted"}, tuning=PLANNING)
            assert all(kinds[int(hit.id)] == "wanted" for hit in hits)
            assert [hit.keyword_score for hit in hits] == expected[:count]
            assert not hits.warnings
            assert sum(counts(asked)) < 400, "many keys were looked up"

        for query in ("cat", "cat ship", "dog -ship", '"cat dog"', "dog"):
            await check(query)
        read.clear()
        real, known = index.database_state, sql.SQL("'nothing was committed'::text")
        monkeypatch.setattr(index, "database_state", lambda _: known)
        for query in ("cat", "cat ship", "cat"):
            await check(query)
        assert read == [kinds.count("wanted")]
        monkeypatch.setattr(index, "database_state", real)
        with monkeypatch.context() as patches:
            patches.setattr(index, "MAX_PASSING", 5)
            patches.setattr(search, "MAX_CHECKED", 100)
            hits = await retriever.search("cat", mode="keyword", filters={"kind": "wanted"}, tuning=PLANNING)
            assert any("were checked by the filter" in warning for warning in hits.warnings)
        # The keyword index does not show that: texts stay as they are.
        kinds[:] = ["wanted" if text.startswith("cat cat") else kind for text, kind in zip(words, kinds, strict=True)]
        wanted = """metadata = '{"kind": "wanted"}' WHERE chunk_text LIKE 'cat cat%'"""
        execute(database_url, f"UPDATE semlex.words_chunk SET {wanted}")
        await check("cat")
        states = []
        for statement in ("SELECT 1", "CREATE TABLE semlex.another ()"):
            execute(database_url, statement)
            states += execute(database_url, sql.SQL("SELECT {}").format(real(retriever.info.names)))
        assert (None,) not in states
        assert states[0] != states[1]


async def test_of_rare_words_that_a_wide_filter_leaves_out_each_chunk_is_checked(database_url, asked, monkeypatch):
    """The ids that pass are not read; the same search goes as far at once the next time."""
    monkeypatch.setattr(search, "_passing", None)
    monkeypatch.setattr(search, "READ_COST", 1 / 8)
    async with bm25(database_url) as retriever:
        documents = [Document("cat", {"kind": "wanted"}, id=f"cat-{n}") for n in range(900)]
        documents += [Document("rare", {"kind": "other"}, id=f"other-{n}") for n in range(90)]
        documents += [Document("rare" + " else" * (n + 2), {"kind": "wanted"}, id=f"rare-{n}") for n in range(2)]
        await retriever.add_documents(documents)
        for is_first in (True, False, False):
            asked.clear()
            hits = await retriever.search("rare", 10, mode="keyword", filters={"kind": "wanted"}, tuning=PLANNING)
            assert [hit.id for hit in hits] == ["rare-0", "rare-1"]
            assert not hits.warnings
            assert is_first or counts(asked) == [92]
        hits = await retriever.search("rare", 1, mode="keyword", filters={"kind": "wanted"}, tuning=PLANNING)
        assert [hit.id for hit in hits] == ["rare-0"]


async def test_phrases_and_exclusions(database_url):
    stored = {"exact": "The hybrid search of texts.", "turned": "A search that is hybrid."}
    stored |= {"without": "Search engines.", "other": "A hybrid car, and a search for it."}
    async with filled_bm25(database_url, stored) as retriever:
        for query, found in {
            "hybrid search": set(stored),
            '"hybrid search"': {"exact"},
            "search -hybrid": {"without"},
            'search -"hybrid search"': {"turned", "other", "without"},
            'car "hybrid search" -engines': {"exact"},
        }.items():
            assert set(await scores(retriever, query)) == found, query
        # A phrase is found in a chunk whose language another program changed.
        execute(database_url, "UPDATE semlex.words_chunk SET language = 'german' WHERE chunk_id = 'exact'")
        assert set(await scores(retriever, '"hybrid search"')) == {"exact"}


async def test_what_the_words_leave_out_is_left_out_of_the_vector_leg_too(database_url):
    async with opened(database_url) as retriever:
        # More of those that are excluded, and nearer, than the leg has candidates.
        await retriever.add_documents([Document("cats and dogs", id=f"both-{n}") for n in range(40)])
        await retriever.add_documents([Document(f"ships of many kinds {n}", id=f"ships-{n}") for n in range(5)])
        vector = HashEmbedder(8).embed_query("cats and dogs")
        for fusion in ("score", "rrf", "linear"):
            assert len(await retriever.search("cats dogs", 50, fusion=fusion)) == 45
            hits = await retriever.search("ships -dogs", 5, vector=vector, fusion=fusion)
            assert {hit.id for hit in hits} == {f"ships-{n}" for n in range(5)}, fusion
            # No chunk can hold that phrase; what is excluded stays so when its words are searched instead.
            hits = await retriever.search('"cats and dogs" -dogs', vector=vector, fusion=fusion)
            assert {hit.id for hit in hits} == {f"ships-{n}" for n in range(5)}, fusion
            assert any("phrase" in warning for warning in hits.warnings), fusion


async def test_texts_are_looked_at_for_phrases_once(database_url, monkeypatch):
    asked = calls_of(monkeypatch, fusion, "ask")
    async with filled(database_url, {f"both-{n}": f"cats and dogs {n}" for n in range(5)}) as retriever:
        # More than a leg has candidates, so that the vectors find some which the words did not come to.
        await retriever.add_documents([Document(f"dogs, cats and ships {n}", id=f"all-{n}") for n in range(90)])
        hits = await retriever.search('"dogs cats" ships', 10, weights={"vector": 1.0})
    assert any(hit.keyword_rank is None for hit in hits)
    assert all(hit.id.startswith("all-") and hit.keyword_score and hit.vector_score is not None for hit in hits)
    assert [[*one["queries"]] for one in asked if one["queries"]] == [["keyword"]]


async def test_where_every_chunk_was_looked_at_nobody_looks_deeper(database_url, monkeypatch):
    looks = calls_of(monkeypatch, Retrieval, "find")
    async with filled(database_url, {f"both-{n}": "cats and dogs" for n in range(20)}) as retriever:
        await retriever.add_documents([Document("ships", id="ships")])
        assert [hit.id for hit in await retriever.search("ships -dogs", 5)] == ["ships"]
        assert [look["depth"] for look in looks] == [30]
        await retriever.add_documents([Document("cats or dogs", id=f"either-{n}") for n in range(20)])
        looks.clear()
        assert [hit.id for hit in await retriever.search("ships -dogs", 5)] == ["ships"]
        assert [look["depth"] for look in looks] == [30, 120]


async def test_texts_of_several_languages(database_url):
    stored = {
        "en": ("english", "The runners were running through Madrid"),
        "es": ("spanish", "Los corredores corrían por Madrid"),
        "es2": ("spanish", "El corredor de la casa"),
        "zh": ("chinese", "我们在马德里跑步"),
    }
    documents = [Document(text, id=key, language=language) for key, (language, text) in stored.items()]
    async with filled_bm25(database_url, documents) as retriever:
        for query in ("running Madrid", "corredor", "跑步", "corredores runners 马德里"):
            assert await scores(retriever, query) == pytest.approx(plain_bm25(stored, query), rel=1e-9)
        # A retriever that sees the languages for the first time.
        async with bm25(database_url) as other:
            assert set(await scores(other, "corredor")) == {"es", "es2"}
            assert all("**" in hit.excerpt for hit in await other.search("corredor", mode="keyword"))


async def test_a_query_of_nothing_to_look_for_says_so_and_a_token_of_many_words_is_searched(database_url):
    async with filled_bm25(database_url, {"0": "the cat", "1": "x b y", "2": "z"}) as retriever:
        for query in ("the", "…", "-dog"):
            hits = await retriever.search(query, mode="keyword")
            assert hits == []
            assert query != "the" or any("no word" in warning for warning in hits.warnings)
        for query in ("x/" * 255 + "y", "a/b-c.d@e_" * 51):
            assert [hit.id for hit in await retriever.search(query, mode="keyword")] == ["1"]
        # A word that only another language looks for is no warning.
        await retriever.add_documents([Document("the dog", id="simple", language="simple")])
        hits = await retriever.search("the", mode="keyword")
        assert ([hit.id for hit in hits], hits.warnings) == (["simple"], [])


async def check_named(retriever, query, ids, named="damaged"):
    """Check twice that the vector search answers with a warning and that the keyword search raises an error."""
    for _ in range(2):
        hits = await retriever.search(query)
        assert {hit.id for hit in hits} == ids
        assert any(named in warning for warning in hits.warnings)
        with pytest.raises(DamagedSegmentError, match=rf"{named}.*semlex maintain reindex"):
            await scores(retriever, query)


async def check_forgotten(other, query, ids, *retrievers):
    """Check twice that both searches answer after another client has repaired the damage."""
    await other.indexes.rebuild_keyword()
    for retriever in retrievers * 2:
        assert not (await retriever.search(query)).warnings
        assert set(await scores(retriever, query)) == ids


async def test_a_damaged_row_is_named_and_the_vector_leg_answers(database_url):
    async with bm25(database_url, model=8) as retriever, bm25(database_url, model=8) as other:
        await other.add_documents([Document("aardvark cat", id="1")])
        execute(database_url, "UPDATE semlex.words_posting SET data = set_byte(data, 5, get_byte(data, 5) # 1)")
        await check_named(retriever, "cat", {"1"})
        await check_forgotten(other, "cat", {"1"}, retriever)
        # The damaged row comes with the answer to another search.
        for query in ("aardvark", "zebra", "zebra", "aardvark"):
            await retriever.search(query)
        await other.add_documents([Document("zebra", id="2")])
        flipped = "UPDATE semlex.words_posting SET data = set_byte(data, 7, get_byte(data, 7) # 1)"
        assert execute(database_url, flipped + " WHERE first_term >= 'x' RETURNING 1") == [(1,)]
        assert await retriever.search("aardvark")  # the segment of the zebra comes with the answer
        await check_named(retriever, "zebra", {"1", "2"})
        await check_forgotten(other, "zebra", {"2"}, retriever)


@pytest.mark.direct
async def test_a_chunk_that_is_listed_twice_is_damage_that_a_client_forgets(database_url):
    async with bm25(database_url, model=8) as retriever, bm25(database_url, model=8) as other:
        await other.add_documents([Document("aardvark cat", id="1")])
        with psycopg.connect(database_url, autocommit=True) as connection:
            tables = [sql.Identifier(f"words_{name}") for name in ("segment", "posting", "manifest")]
            for table in tables:
                connection.execute(sql.SQL("CREATE TEMP TABLE {0} AS SELECT * FROM semlex.{0}").format(table))
            await other.add_documents([Document("bird", id="2")])
            await other.indexes.optimize()
            for _ in range(3):
                await retriever.search("cat")
            for table in tables:
                connection.execute(sql.SQL("INSERT INTO semlex.{0} SELECT * FROM pg_temp.{0}").format(table))
        await check_named(retriever, "cat", {"1", "2"})
        await check_forgotten(other, "cat", {"1"}, retriever)


async def test_a_row_that_has_grown_is_damaged_and_not_left_out(database_url):
    async with bm25(database_url) as retriever, bm25(database_url) as new:
        await retriever.add_documents([Document(f"aardvark w{n}", id=str(n)) for n in range(40)])
        # Once the index was seen twice, only what is missing is asked for.
        for _ in range(2):
            assert set(await scores(retriever, "aardvark")) == set(map(str, range(40)))
        assert execute(database_url, "SELECT get_byte(data, 5) FROM semlex.words_posting")[0][0] != 0
        execute(database_url, "UPDATE semlex.words_posting SET data = data || decode(repeat('00', 3000), 'hex')")
        for one in (retriever, new):
            with pytest.raises(DamagedSegmentError, match=r"semlex maintain reindex"):
                await one.search("w7", mode="keyword")
        await retriever.indexes.rebuild_keyword()
        for one in (retriever, new):
            assert set(await scores(one, "w7")) == {"7"}


async def test_too_many_words_in_quotes_or_excluded_are_refused(database_url):
    words = [f"word{n}" for n in range(65)]
    async with opened(database_url, keyword="bm25", stop_words=False) as retriever:
        await retriever.add_documents([Document(" ".join(words), id="1"), Document("the cat", id="2")])
        assert set(await scores(retriever, "the")) == {"2"}  # stop words are a choice
        for condition in (" ".join(f"-{word}" for word in words), '"' + " ".join(words) + '"'):
            with pytest.raises(ValidationError, match="64 words in quotes or after a dash") as caught:
                await retriever.search(f"cat {condition}")
            assert [(error.field, error.code) for error in caught.value.errors] == [("query", "too_long")]
        hits = await retriever.search(" ".join(["cat", *(f"-{word}" for word in words[:64])]))
        assert [hit.id for hit in hits] == ["2"]
        quoted = '"' + " ".join(words[:64]) + '"'
        assert [hit.id for hit in await retriever.search(quoted, mode="keyword")] == ["1"]
        # Without the index no words are looked up; what is excluded is left out by the texts.
        assert len(await retriever.search('"' + " ".join(words) + '"', mode="vector")) == 2
        hits = await retriever.search(" ".join(f"-{word}" for word in words), mode="vector")
        assert [hit.id for hit in hits] == ["2"]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM semlex.words_segment WHERE chunks = 1",
        "UPDATE semlex.words_segment SET generation = 7 WHERE chunks = 1",
        "UPDATE semlex.words_segment SET generation = 2 WHERE chunks = 1",  # that of the index made again
        *("UPDATE semlex.words_tombstone SET generation = 2", "DELETE FROM semlex.words_tombstone"),
    ],
)
async def test_a_lost_row_is_an_error_until_the_index_is_made_again(database_url, damage):
    async with bm25(database_url) as retriever, bm25(database_url) as seldom:
        await retriever.add_documents([Document("a cat", id="1"), Document("a dog", id="2")])
        await retriever.add_documents([Document("a cat and a bird", id="3")])
        await retriever.delete(["2"])
        before = await scores(seldom, "cat")
        for _ in range(3):  # an index that was seen twice is expected to be what it was
            await scores(retriever, "cat")
        assert execute(database_url, f"{damage} RETURNING 1")
        for one in (seldom, seldom, retriever, retriever):
            with pytest.raises(DamagedSegmentError, match=r"semlex maintain reindex"):
                await scores(one, "cat")
        assert "manifest" in ((await retriever.status()).index_problem or "")
        with pytest.raises(DamagedSegmentError):
            await retriever.indexes.optimize()
        await retriever.indexes.rebuild_keyword()
        assert await scores(retriever, "cat") == await scores(seldom, "cat") == before
        assert (await retriever.status()).index_problem is None
    check_index(database_url)


async def test_a_language_that_nobody_knows_is_damage_that_a_client_forgets(database_url):
    open_one = partial(bm25, database_url, model=8)
    async with open_one() as retriever, open_one() as new, open_one() as other:
        await other.add_documents([Document("a cat", id="1")])
        for _ in range(3):
            assert set(await scores(retriever, "cat")) == {"1"}
        await other.add_documents([Document("a cat too", id="2"), Document("cat", id="3")])
        klingon = "UPDATE semlex.words_segment SET language = 'klingon' WHERE chunks = 2 RETURNING 1"
        assert execute(database_url, klingon) == [(1,)]
        for one in (retriever, new):
            for query in ("cat", "fresh", "cat"):
                await check_named(one, query, {"1", "2", "3"}, "klingon")
        await check_forgotten(other, "cat", {"1", "2", "3"}, retriever, new)


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM {}", "UPDATE {} SET first_term = first_term || 'x'", "UPDATE {} SET segment_id = gen_random_uuid()"],
)
async def test_a_posting_row_that_is_lost_or_has_another_key_is_reported(database_url, change):
    reported = r"posting rows of 1 segments .*semlex maintain reindex"

    def damage(where):
        changed = f"{change.format('semlex.words_posting')} WHERE {where} LIMIT 1) RETURNING 1"
        assert execute(database_url, changed) == [(1,)]

    async with bm25(database_url) as retriever, bm25(database_url) as new:
        await retriever.add_documents([Document(f"w{n} text{n % 7}", id=str(n)) for n in range(700)])
        assert set(await scores(retriever, "w3")) == {"3"}
        damage("first_term = (SELECT first_term FROM semlex.words_posting ORDER BY first_term DESC")
        for _ in range(2):  # what is damaged is not remembered
            with pytest.raises(DamagedSegmentError, match=reported):
                await scores(new, "w3")
        # The keys are checked when a client first reads a segment, and not again.
        await retriever.add_documents([Document("another", id="700")])
        assert set(await scores(retriever, "w3 another")) == {"3", "700"}
        assert re.search(reported, (await retriever.status()).index_problem or "")
        await retriever.indexes.rebuild_keyword()
        for one in (retriever, new):
            assert set(await scores(one, "w3")) == {"3"}
        assert (await retriever.status()).index_problem is None
        # So are those of a segment that comes with an answer.
        await new.add_documents([Document("one more", id="701")])
        damage("segment_id = (SELECT segment_id FROM semlex.words_segment WHERE chunks = 1")
        for _ in range(2):
            with pytest.raises(DamagedSegmentError, match=reported):
                await scores(retriever, "w3")
        assert re.search(reported, (await retriever.status()).index_problem or "")


async def test_a_tombstone_that_names_billions_is_merged_away(database_url):
    """Twenty bytes that name every id from 2**40 on: none of them is listed, whoever reads them."""
    tombstone_id = uuid.UUID(int=7)
    content = b"\x01\x80\x80\x80\x80\x80\x40\xfe\xff\xff\xff\x0f"
    covered = b"\x02\x03" + tombstone_id.bytes + (0).to_bytes(8, "little") + content
    data = b"\x02" + zlib.crc32(covered).to_bytes(4, "little") + content
    assert _core.decode_tombstone(tombstone_id.bytes, data).count == 2**32 - 1
    async with filled_bm25(database_url, {"1": "a cat", "2": "a dog"}) as retriever:
        insert = "INSERT INTO semlex.words_{} %s, generation FROM semlex.words_segment LIMIT 1"
        tombstone = "tombstone (data, tombstone_id, generation) SELECT %s,"
        execute(database_url, insert.format(tombstone), [data, tombstone_id])
        execute(database_url, insert.format("manifest SELECT"), [tombstone_id])
        assert (await retriever.status()).chunks_not_indexed == 0
        await retriever.add_documents([Document("a bird", id="2")])
        await retriever.indexes.optimize()
        assert set(await scores(retriever, "cat dog bird")) == {"1", "2"}
        assert await scores(retriever, "dog") == {}
        assert execute(database_url, "SELECT count(*) FROM semlex.words_tombstone") == [(0,)]


async def test_another_analyzers_index_is_neither_searched_nor_written(database_url):
    async with filled_bm25(database_url, {"1": "a cat"}, model=8) as retriever:
        execute(database_url, "UPDATE semlex.collection SET analyzer_version = 0")
        with pytest.raises(AnalyzerVersionError, match=r"semlex maintain reindex --collection words"):
            await retriever.search("cat", mode="keyword")
        dogs = [Document("a dog", id=f"dog {number}") for number in range(100)]
        for refused in (dogs[:1], dogs):
            with pytest.raises(AnalyzerVersionError, match=r"semlex maintain reindex --collection words"):
                await retriever.add_documents(refused)
        with pytest.raises(AnalyzerVersionError):
            await retriever.delete(["1"])
        hits = await retriever.search("cat")
        assert [hit.id for hit in hits] == ["1"]
        assert any("analyzer" in warning for warning in hits.warnings)
        await retriever.indexes.rebuild_keyword()
        await retriever.add_documents(dogs[:1])
        assert set(await scores(retriever, "cat dog")) == {"1", "dog 0"}
    assert check_index(database_url)["generation"] == 2


async def test_long_scoring_leaves_the_event_loop(database_url, monkeypatch):
    threads, best = set(), search.AnalysedQuery.best

    def noted(self, *given):
        threads.add(threading.get_ident())
        return best(self, *given)

    monkeypatch.setattr(search.AnalysedQuery, "best", noted)
    async with filled(database_url, {f"both-{n}": f"cats and dogs {n}" for n in range(9)}) as retriever:
        found = {True: [], False: []}
        for on_loop, answers in found.items():
            monkeypatch.setattr(search, "MAX_POSTINGS_ON_LOOP", 1_000 if on_loop else 0)
            for mode in ("keyword", "hybrid") * 3:  # the index is read, then expected, then in memory
                threads.clear()
                answers.append([(hit.id, hit.score) for hit in await retriever.search("dogs 3", 5, mode=mode)])
                assert (threads == {threading.get_ident()}) is on_loop
    assert found[True] == found[False]
