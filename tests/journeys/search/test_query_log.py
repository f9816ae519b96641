"""The query log: what is asked is what is counted, nothing else, never in the way, and never more than its bound."""

import asyncio
import logging
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import QueryLogOptions
from semlex.errors import CollectionNotFoundError, ConfigurationError
from semlex.evaluation.evaluate import evaluate
from semlex.retriever import query_log
from semlex.retriever.client import Client
from semlex.retriever.query_log import QueryLog
from semlex.store.postgres.database import Database
from semlex.store.query_log import Question, hash_of, summarise, write_questions
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from semlex.types.queries import SearchQuery
from tests.support.databases import execute, new_role
from tests.support.properties import SAME_SURROUNDINGS, examples
from tests.support.retrievers import opened, sync_filled
from tests.support.waiting import LIMIT, held

retriever_of = partial(opened, collection="c", query_log="text")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def rows(url):
    return execute(url, "SELECT query, mode, filtered, hits FROM semlex.c_query_log ORDER BY asked_at, query_id")


def told(caplog):
    return [one.message for one in caplog.records if "are not logged" in one.message]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, caplog):
    """Closing waits for the last questions on a slow machine too, and warnings are captured."""
    monkeypatch.setattr(query_log, "CLOSE_SECONDS", LIMIT)
    caplog.set_level(logging.WARNING, "semlex")


@pytest.fixture
def filled_url(database_url):
    documents = [Document("a lion sleeps", {"a": 1}, id="l"), Document("a banana", id="b")]
    with sync_filled(database_url, documents, collection="c"):
        return database_url


async def test_every_public_path_is_logged_once(filled_url):
    async with retriever_of(filled_url) as retriever:
        vector = HashEmbedder(8).embed_query("lion")
        await retriever.search("  lion ", 1)
        await retriever.search(SearchQuery("banana", filters={"a": 1}), mode="keyword")
        await retriever.search("zebra", mode="keyword", explain=True)
        await retriever.search(vector=vector)  # without words there is no question
        page = await retriever.search("a", 1, max_results=2)
        await retriever.search_page(page.next_cursor)
        await retriever.search_many(["lion one", "lion two"], 2)
        await retriever.context("lion context")
        await retriever.answer("lion answer?")
        await retriever.fields.facets(["a"], query="lion facets")
        await retriever.why("l", "lion why")
        await retriever.status()
        judged = await evaluate(retriever, {"q": "lion judged"}, {"q": {"l": 1}}, k=1)
        assert judged.queries == ["q"]
        figures = (await retriever.status()).query_log
        assert (figures.logged + figures.waiting, figures.dropped, figures.lost, figures.problem) == (8, 0, 0, None)
    assert rows(filled_url) == [
        ("lion", "hybrid", False, 1),
        ("banana", "keyword", True, 0),
        ("zebra", "keyword", False, 0),
        ("a", "hybrid", False, 1),
        *((question, "hybrid", False, 2) for question in ("lion one", "lion two", "lion context", "lion answer?")),
    ]


@pytest.mark.parametrize("keep", ["default", "off", "hash", "text"])
async def test_what_is_kept(filled_url, keep):
    options = {} if keep == "default" else {"query_log": keep}
    is_kept, has_text = keep in {"hash", "text"}, keep == "text"
    async with opened(filled_url, collection="c", **options) as retriever:
        await retriever.search("Lion  sleeps", filters={"secret": "value-of-a-filter"})
        await retriever.search("lion SLEEPS ")
        assert ((await retriever.status()).query_log is not None) == is_kept
    everything = str(execute(filled_url, "SELECT to_jsonb(q) FROM semlex.c_query_log AS q"))
    assert ("lion" in everything.lower()) == has_text
    assert "value-of-a-filter" not in everything
    assert "a lion sleeps" not in everything
    async with retriever_of(filled_url) as retriever:
        found = await retriever.queries.summary()
    if not is_kept:
        assert (found.logged, found.without_hits, found.most_asked, found.oldest) == (0, 0, (), None)
        return
    assert (found.logged, found.without_hits) == (2, 1)
    (one,) = found.most_asked
    assert one.query == ("lion SLEEPS" if has_text else None)
    assert (one.asked, one.without_hits, one.last_asked_at) == (2, 1, found.newest)


async def test_hashes_differ_from_collection_to_collection(filled_url):
    async with Client(filled_url, HashEmbedder(8), use_reranking=False, query_log="hash") as client:
        one, two = client.collection("c"), client.collection("d")
        await two.add_texts(["a lion"])
        for collection in (one, two):
            await collection.search("lion")
    hashes = "SELECT query_hash FROM semlex.c_query_log UNION SELECT query_hash FROM semlex.d_query_log"
    assert [len(bytes(value)) for (value,) in execute(filled_url, hashes)] == [16, 16]


def test_wrong_options():
    for wrong in ("on", "Text", "", 1, None, True):
        with pytest.raises(ConfigurationError, match="query_log"):
            retriever_of("dbname=none", query_log=wrong)
    for options in ({"max_rows": 0}, {"max_days": 0}, {"max_rows": 10**9}, {"keep": "no"}):
        with pytest.raises(ConfigurationError):
            QueryLogOptions(**options)


async def test_no_answer_waits_for_the_log(filled_url, caplog):
    """Somebody holds the table for as long as the searches take: they answer; what could not be written is told."""
    with held(filled_url, "semlex.c_query_log"):
        async with retriever_of(filled_url) as retriever:
            for number in range(3):
                assert await retriever.search(f"lion {number}")
            await retriever._resources.query_log.flush()
            figures = (await retriever.status()).query_log
    assert (figures.logged, figures.lost) == (0, 3)
    assert "lock" in str(figures.problem)
    [message] = told(caplog)
    assert "lion" not in message
    assert rows(filled_url) == []


async def test_no_question_is_lost_uncounted(filled_url, monkeypatch, caplog):
    """Closing cuts the writing of one collection's questions off: those of the others are counted as well."""
    monkeypatch.setattr(query_log, "CLOSE_SECONDS", 0.1)
    tried = []

    async def never(self, place, questions):
        tried.append(place.info.names.collection)
        await asyncio.Event().wait()

    monkeypatch.setattr(QueryLog, "_write_one", never)
    async with Client(filled_url, "none", query_log="text") as client:
        opened = [client.collection(name) for name in "cde"]
        for number, collection in enumerate(opened):
            await collection.add_texts(["a lion"])
            for _ in range(number + 1):
                await collection.search("lion")
        await client._resources.query_log.flush()
        found = [(await collection.status()).query_log for collection in opened]
    assert [(one.lost, one.waiting) for one in found] == [(1, 0), (2, 0), (3, 0)]
    assert tried == ["c"]
    assert len(told(caplog)) == 3  # one warning a collection


async def test_too_many_are_dropped_and_counted(filled_url, monkeypatch):
    """Those that are being written are still waiting."""
    waiting = []
    monkeypatch.setattr(query_log, "MAX_WAITING", 4)
    async with retriever_of(filled_url) as retriever:

        async def watched(connection, info, *given, **options):
            waiting.append(retriever._resources.query_log.figures(None, info).waiting)
            return await write_questions(connection, info, *given, **options)

        monkeypatch.setattr(query_log, "write_questions", watched)
        await retriever.search_many([f"lion {number}" for number in range(7)])
        figures = (await retriever.status()).query_log
        assert (figures.waiting, figures.dropped) == (4, 3)
    assert waiting == [4]
    assert [query for query, *_ in rows(filled_url)] == [f"lion {number}" for number in range(4)]


async def test_a_log_that_cannot_be_written_is_reported_once(filled_url, caplog):
    with new_role(filled_url, "USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex") as role:
        async with retriever_of(f"{filled_url} user={role}") as retriever:
            for _ in range(2):
                assert await retriever.search("lion")
                await retriever._resources.query_log.flush()
            figures = (await retriever.status()).query_log
            assert (await retriever.queries.summary()).logged == 0
    assert (figures.logged, figures.lost, figures.waiting) == (0, 1, 0)  # the second one was not tried
    assert len(told(caplog)) == 1
    callers = "the connection is the caller's, and the log would become part of the caller's transaction"
    async with await psycopg.AsyncConnection.connect(filled_url) as connection:
        for url, options, problem in (
            (f"{filled_url} options='-c default_transaction_read_only=on'", {}, "the server accepts no writes"),
            (None, {"connection": connection}, callers),
        ):
            async with retriever_of(url, **options) as retriever:
                assert await retriever.search("lion")
                figures = (await retriever.status()).query_log
                assert (figures.waiting, figures.problem) == (0, problem)
    assert rows(filled_url) == []
    assert len(told(caplog)) == 3


async def test_a_collection_that_was_dropped_and_its_successor(filled_url, caplog):
    async with retriever_of(filled_url) as retriever:
        await retriever.search("of the first")
        async with retriever_of(filled_url) as other:
            await other.drop_collection()
        async with retriever_of(filled_url) as other:
            await retriever._resources.query_log.flush()
            await other.search("of the second")
            await other._resources.query_log.flush()
            with pytest.raises(CollectionNotFoundError):
                await retriever.queries.clear()
    assert [query for query, *_ in rows(filled_url)] == ["of the second"]
    caplog.clear()
    async with retriever_of(filled_url) as retriever:
        await retriever.search("lion")
        execute(filled_url, "DROP TABLE semlex.c_query_log")
    assert len(told(caplog)) == 1


def test_a_second_run_of_an_event_loop(filled_url):
    """What waits when its loop ends is written from the next one."""
    retriever = retriever_of(filled_url)
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(retriever.initialize())
        loop.run_until_complete(retriever.search("lion"))
        loop.run_until_complete(retriever.close())
    assert [query for query, *_ in rows(filled_url)] == ["lion"]


@pytest.fixture(scope="module")
def collection(module_url):
    with sync_filled(module_url, {"a": "a text"}, "none", collection="c") as retriever:
        return retriever.info


asked = st.tuples(
    st.integers(0, 60), st.sampled_from(["a", "A ", "b", " b", "c  d", "C D", "é", "e\u0301"]), st.integers(0, 2)
)


@pytest.mark.slow
@given(batches=st.lists(st.lists(asked, max_size=6), max_size=5), bound=st.integers(1, 8), days=st.integers(1, 60))
@settings(SAME_SURROUNDINGS, max_examples=examples(25))
def test_the_log_is_its_newest_rows(module_url, collection, batches, bound, days):
    """Against a list: after every batch the newest rows that are young enough, in the order of time, and no others."""
    oldest = EPOCH + timedelta(days=60 - days)

    async def work():
        kept = []
        async with Database(module_url, max_size=1) as database:
            await database.write("empty", lambda c: c.execute("TRUNCATE semlex.c_query_log"))
            for batch in batches:
                questions = [
                    Question(EPOCH + timedelta(days=day), hash_of(collection, text), text, "hybrid", False, hits)
                    for day, text, hits in batch
                ]
                for _ in range(2):  # twice the same is once
                    await database.write(
                        "log", lambda c, q=questions: write_questions(c, collection, q, max_rows=bound, oldest=oldest)
                    )
                kept = sorted({*kept, *questions}, key=lambda one: (one.asked_at, one.query_id))[-bound:]
                kept = [one for one in kept if one.asked_at >= oldest]
            found = await database.read("sum up", lambda c: summarise(c, collection.names, 100))
        assert (found.logged, found.without_hits) == (len(kept), sum(not one.hits for one in kept))
        assert found.newest == (kept[-1].asked_at if kept else None)
        counts = Counter(one.query_hash.hex() for one in kept)
        assert {one.query_hash: one.asked for one in found.most_asked} == counts
        assert [one.asked for one in found.most_asked] == sorted(counts.values(), reverse=True)
        nothing = Counter(one.query_hash.hex() for one in kept if not one.hits)
        assert {one.query_hash: one.without_hits for one in found.nothing_found} == nothing

    asyncio.run(work())


def test_case_spaces_and_composition_make_no_other_question(collection):
    like = [{"a", "A ", " a"}, {"c  d", "C D", "c\td"}, {"é", "e\u0301", "É"}]
    hashes = [{hash_of(collection, text) for text in texts} for texts in like]
    assert [len(one) for one in hashes] == [1, 1, 1]
    assert len(set.union(*hashes)) == 3


async def test_searches_at_once_and_one_in_a_transaction_that_is_rolled_back_are_counted(filled_url):
    async with retriever_of(filled_url) as one, retriever_of(filled_url) as two:
        await asyncio.gather(*(retriever.search(f"lion {n}") for n in range(20) for retriever in (one, two)))
    async with retriever_of(filled_url) as retriever, await psycopg.AsyncConnection.connect(filled_url) as connection:
        await retriever.using(connection).search("rolled back")  # its log is written beside the transaction
        await connection.rollback()
    expected = {f"lion {n}": 2 for n in range(20)} | {"rolled back": 1}
    assert Counter(query for query, *_ in rows(filled_url)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("bound", [10, 1_000])
async def test_retrievers_share_one_log(filled_url, bound):
    """Whoever looks meanwhile never sees more rows than the bound; in the end all are there, or the newest."""

    async def ask(name):
        for part in range(3):
            async with retriever_of(filled_url, query_log=QueryLogOptions("text", max_rows=bound)) as retriever:
                for number in range(8):
                    await retriever.search(f"{name} {part} {number}")
                    assert len(rows(filled_url)) <= bound

    await asyncio.gather(ask("one"), ask("two"))
    found = {query for query, *_ in rows(filled_url)}
    everything = {f"{name} {part} {number}" for name in ("one", "two") for part in range(3) for number in range(8)}
    assert len(found) == min(bound, len(everything))
    assert found <= everything


async def test_a_smaller_bound_deletes_in_batches(filled_url):
    values = "gen_random_uuid(), now() - n * interval '1 second', '\\x00', NULL, 'hybrid', false, 1"
    execute(filled_url, f"INSERT INTO semlex.c_query_log SELECT {values} FROM generate_series(1, 2500) AS n")
    async with retriever_of(filled_url, query_log=QueryLogOptions("text", max_rows=5)) as retriever:
        await retriever.search("lion")
    found = rows(filled_url)
    assert (len(found), found[-1][0]) == (5, "lion")
    async with retriever_of(filled_url) as retriever:
        assert await retriever.queries.clear() == 5
        assert (await retriever.queries.summary()).logged == 0


@pytest.mark.slow
def test_the_command(shell):
    url, queries = shell.environment["DATABASE_URL"], ("eval", "queries", "-c", "c")
    shell("index", "docs", "--model", "none", "-c", "c")
    assert "no logged questions" in shell(*queries).stderr
    for keep, questions in (("text", ("banana", "Banana", "unicorn", "\x1b[31mred")), ("hash", ("griffin",))):
        shell.environment["SEMLEX_QUERY_LOG"] = keep
        for question in questions:
            shell("search", question, "-c", "c")
    (found,) = shell.objects(*queries)
    assert (found["logged"], found["without_hits"]) == (5, 3)
    assert (found["most_asked"][0]["query"], found["most_asked"][0]["asked"]) == ("Banana", 2)
    assert {one["query"] for one in found["nothing_found"]} == {"unicorn", None, "\x1b[31mred"}
    said = shell(*queries, "--limit", "1").stdout
    assert said.startswith("5 questions since ")
    assert "Nothing was found" in said
    said = shell(*queries).stdout
    assert "\x1b" not in said
    assert "(hash " in said
    shell(*queries, "--clear", code=2)  # nobody answers
    assert len(rows(url)) == 5
    assert shell.objects(*queries, "--clear", "--yes") == [{"collection": "c", "cleared": 5}]
    assert rows(url) == []
    shell("eval", "queries", "-c", "missing", code=6)
    shell.environment["SEMLEX_QUERY_LOG"] = "all"
    assert "must be off, hash or text" in shell("search", "banana", "-c", "c", code=2).stderr
    # A folder that is not trusted cannot switch the log on.
    del shell.environment["SEMLEX_QUERY_LOG"]
    (shell.folder / "semlex.toml").write_text('query_log = "text"\n', encoding="utf-8")
    assert "not trusted" in shell("collections", code=2).stderr
    (shell.folder / "semlex.toml").write_text('query_log = "off"\n', encoding="utf-8")
    shell("collections")
