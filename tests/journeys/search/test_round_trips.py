"""How often semlex asks the server, and that an answer in one round trip is that of a whole transaction."""

import asyncio
import itertools
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Client, Document
from semlex.proof.check import plain_bm25
from semlex.search import retrieval
from semlex.search.retrieval import Retrieval
from semlex.store.keyword.bm25 import index, read
from semlex.store.postgres import database
from semlex.store.postgres.snapshot import SingleSnapshot
from semlex.store.postgres.snapshot import Snapshot as AnySnapshot
from tests.support.databases import execute
from tests.support.retrievers import filled, plain, sync_filled
from tests.support.tenants import tenants_of
from tests.support.waiting import Rounds, eventually, held, turns, until, waiting

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass")
COLLECTION = "words"


def words(url, documents=(), model=8):
    """A retriever of the collection, with these documents."""
    return filled(url, [*documents], model, collection=COLLECTION)


bm25 = partial(words, model="none")


def texts_of(count, first=0):
    numbers = range(first, first + count)
    words = [" ".join(WORDS[(n * step) % len(WORDS)] for step in range(1, 2 + n % 6)) for n in numbers]
    return [
        Document(text, {"even": n % 2 == 0, "n": n, "section_title": WORDS[n % 6] if n % 4 else ""}, id=f"d{n:03}")
        for n, text in zip(numbers, words, strict=True)
    ]


class Wire:
    """What goes over the connections of a pool. The client waits for an answer to a Query, a Sync or a Flush alone."""

    def __init__(self, trace, patch):
        self._trace, prepare = trace, database.configure

        async def traced(connection):
            await prepare(connection)
            connection.pgconn.trace(trace.fileno())

        patch.setattr(database, "configure", traced)

    def counts(self):
        """Round trips and statements since the last call."""
        self._trace.seek(0)
        text = self._trace.read().decode("utf-8", "replace")
        self._trace.seek(0)
        self._trace.truncate()
        sent = [name.strip() for name in re.findall(r"^[^\t]+\tF\t[0-9]+\t([^\t\n]+)", text, re.MULTILINE)]
        waits = ("Query", "Sync")
        trips = sum(name in waits or (name == "Flush" and before != "Sync") for before, name in pairwise(["", *sent]))
        return trips, sent.count("Execute")


@pytest.fixture
def wire(tmp_path, monkeypatch):
    with (tmp_path / "trace").open("w+b") as trace:
        yield Wire(trace, monkeypatch)


async def test_searches_take_few_round_trips(database_url, wire):
    async with words(database_url, texts_of(60)):
        pass
    async with words(database_url) as retriever:

        async def counts(**options):
            for _ in range(3):
                await retriever.search("stone cloud", **options)
            wire.counts()
            assert len(await retriever.search("stone cloud", **options)) == 5
            return wire.counts()

        assert await counts(mode="keyword") == (1, 1)
        assert await counts(mode="keyword", deadline=60.0) == (1, 2)  # its time limit
        assert await counts(mode="keyword", filters={"even": True}) == (1, 2)  # the path on which operators are found
        assert await counts(mode="hybrid") == (2, 6)
        assert (await counts(mode="hybrid", deadline=60.0))[0] == 3  # the completion of the scores has a savepoint
        assert (await counts(mode="vector"))[0] == 2
        assert (await counts(mode="hybrid", fusion="rrf", filters={"even": True}))[0] == 2
        # Words whose postings are not in memory take one more.
        for query, more in (("river", 1), ("river", 0), ("hill river", 1), ("hill", 0)):
            wire.counts()
            await retriever.search(query, mode="keyword")
            assert wire.counts()[0] == 1 + more
        # A heading that is the query moves its chunks to the front, from wherever they were found.
        for _ in range(2):
            wire.counts()
            hits = await retriever.search("Sea", mode="keyword")
        assert {hit.heading_factor for hit in hits} == {2.0}
        assert wire.counts()[0] == 1
    # A role is set in the transaction of the search, in the same round trip.
    with tenants_of(database_url) as tenants:
        tenant = tenants.make("acme", "anvil")
        async with Client(tenants.url, embedding_model="none", use_reranking=False) as client:
            owned = client.collection(COLLECTION, schema="acme", role=tenant.owner)
            await owned.add_documents(texts_of(60))
            collection = client.collection(COLLECTION, schema="acme", role=tenant.reader, create=False)
            for _ in range(3):
                await collection.search("stone cloud")
            wire.counts()
            assert len(await collection.search("stone cloud")) == 5
            assert wire.counts()[0] == 1


async def test_collections_are_made_opened_and_dropped_in_few_round_trips(database_url, wire):
    trips = {}
    for act in ("made", "opened", "dropped"):
        async with Client(database_url, "none", use_reranking=False) as client:
            wire.counts()
            await (client.drop("x") if act == "dropped" else client.collection("x").count())
            trips[act], _ = wire.counts()
    assert trips == {"made": 21, "opened": 6, "dropped": 13}


async def test_answers_that_arrive_together_are_read_in_rounds_of_their_own(database_url, monkeypatch):
    """So that whatever else runs on the event loop waits for a step of one search, not of all."""
    read, numbers = Retrieval._load, []

    def noted(*given, **options):
        numbers.append(rounds.number)
        return read(*given, **options)

    answered = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = %s"
    async with words(database_url, texts_of(60)) as retriever:
        await asyncio.gather(*(retriever.search("stone cloud") for _ in range(8)))
        monkeypatch.setattr(Retrieval, "_load", noted)
        rounds = Rounds()
        with held(database_url, "semlex.words_chunk") as lock:
            searches = [asyncio.create_task(retriever.search("stone cloud")) for _ in range(8)]
            await eventually(lambda: waiting(lock) == 8)
        # The event loop stands still meanwhile.
        until(lambda: execute(database_url, answered, ["idle in transaction"]) == [(8,)])
        await asyncio.gather(*searches)
    assert len(numbers) == len(set(numbers)) == 8


@pytest.mark.parametrize(("mode", "warm"), [("keyword", 1), ("hybrid", 2)])
async def test_what_another_client_commits_takes_one_round_trip_at_most(database_url, wire, mode, warm, monkeypatch):
    async with words(database_url, texts_of(60)) as writing, words(database_url) as retriever:
        numbers = iter(range(1_000))

        async def commits(text):
            name = f"new-{next(numbers)}"
            await writing.add_documents([Document(text, id=name)])
            return name

        async def trips_and_best(query="stone cloud"):
            wire.counts()
            hits = await retriever.search(query, 5, mode=mode)
            return wire.counts()[0] - warm, hits[0].id

        _, best = await trips_and_best()
        for query in ("stone cloud", "grass", "grass river"):
            await trips_and_best(query)
            assert (await trips_and_best(query))[0] == 0
        for _ in range(10):  # some are merged
            await commits("rain")
            assert await trips_and_best() == (0, best)
            assert (await trips_and_best("grass"))[0] == (await trips_and_best("grass river"))[0] == 0
        for times in (10, 20, 30):
            best = await commits("stone cloud " * times)
            assert await trips_and_best() == (1, best)
            assert await trips_and_best() == (0, best)

        monkeypatch.setattr(index, "QUIET_SEARCHES", 2)
        for _ in range(3):
            await trips_and_best()
        await commits("rain")
        assert await trips_and_best() == (1, best)
        assert await trips_and_best() == (0, best)

        # A segment that is too large to be sent at once: the index is read as if nothing was expected.
        monkeypatch.setattr(read, "SMALL_POSTINGS", 0)
        await commits("rain")
        assert await trips_and_best() == (2, best)
        assert await trips_and_best() == (0, best)
        # Expecting too much all the time would take longer than expecting nothing.
        trips = []
        for _ in range(5):
            await commits("rain")
            trips.append((await trips_and_best())[0])
        assert trips == [2, 2, 1, 1, 1]
        assert [(await trips_and_best())[0] for _ in range(3)] == [1, 0, 0]


async def test_files_that_are_found_in_the_last_snapshot_are_searched_again(database_url, monkeypatch):
    """A search whose filter leaves out the best chunks, among commits that are too large to be sent."""
    names = [f"{number:032x}-{number:016x}" for number in range(400)]  # as the ids of chunks of files
    documents = [Document("stone stone stone", {"wanted": False}, id=name) for name in names[:200]]
    documents += [Document("stone and much else", {"wanted": True}, id=name) for name in names[200:]]
    async with bm25(database_url, documents) as writing, bm25(database_url) as searching:
        monkeypatch.setattr(read, "SMALL_POSTINGS", 0)
        for number in range(4):
            await searching.search("rain", mode="keyword")
            await writing.add_documents([Document(f"rain {number}", id=f"rain-{number}")])
        assert len(await searching.search("stone", 5, mode="keyword", filters={"wanted": True})) == 5


@pytest.fixture(scope="module")
def library(module_url):
    """120 documents; tests only read it."""
    with sync_filled(module_url, texts_of(120), collection=COLLECTION) as retriever:
        for word in WORDS:  # the first search for a heading reads the index in another way, and its report says so
            retriever.search(word)
        yield retriever


QUERY = st.lists(st.sampled_from([*WORDS, "-sea", '"hill river"', "zzqx", "Grass!"]), min_size=1, max_size=4)
OPTIONS = st.fixed_dictionaries(
    {"mode": st.sampled_from(["keyword", "keyword", "keyword", "hybrid", None])},
    optional={
        "filters": st.sampled_from([None, {"even": True}, {"n": {"$lt": 100}}, {"n": 7}, {"n": {"$gt": 500}}]),
        "explain": st.booleans(),
        "fusion": st.sampled_from(["score", "rrf", "linear"]),
        "terms": st.sampled_from(["hill", "grass river"]),
        "exclude": st.sampled_from([["hill"], ["grass river"]]),
        "boost": st.just({"even == true": 2.0}),
        "max_results": st.just(60),
        "tuning": st.sampled_from([{"candidates": 60}, {"candidates": 200}, {"min_filter_share": 0.9}]),
        "deadline": st.just(600.0),
    },
)


@pytest.mark.slow
def test_short_snapshots_answer_as_whole_ones(library, full):
    singles, execute, choose = [], SingleSnapshot.execute, retrieval._snapshots

    def with_plans(*arguments, **options):
        results = library.search(*arguments, **options)
        return plain(results) | {name: replace(leg, milliseconds=0.0) for name, leg in results.legs.items()}

    async def counted(self, *arguments, **named):
        answer = await execute(self, *arguments, **named)
        assert not any(self is one for one in singles), "a second statement sees another state"
        singles.append(self)
        return answer

    @given(words=QUERY, top_k=st.integers(1, 40), options=OPTIONS)
    @settings(max_examples=5_000 if full else 100)
    def search(words, top_k, options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SingleSnapshot, "execute", counted)
            short = with_plans(" ".join(words), top_k, **options)
            patch.setattr(retrieval, "_snapshots", lambda *_, **__: ("whole",))
            assert short == with_plans(" ".join(words), top_k, **options)

    search()
    assert retrieval._snapshots is choose
    assert len(singles) > 20


# Another process changes the collection; `delete_rows` bypasses semlex and leaves the keyword index as it was.
ACTIONS = {
    "nothing": lambda other, url: turns(1),
    "add": lambda other, url: other.add_documents(texts_of(3, 200 + 3 * next(NUMBERS))),
    "change": lambda other, url: other.add_documents(
        [Document(f"sea stone sea {next(NUMBERS)}", {"n": 0}, id=f"d{n:03}") for n in range(4)], on_duplicate="update"
    ),
    "delete": lambda other, url: other.delete([f"d{n:03}" for n in range(4, 12)]),
    "merge": lambda other, url: other.indexes.optimize(),
    "rebuild": lambda other, url: other.indexes.rebuild_keyword(),
    "delete_rows": lambda other, url: asyncio.to_thread(
        execute, url, "DELETE FROM semlex.words_chunk WHERE chunk_id BETWEEN 'd012' AND 'd020'"
    ),
}
NUMBERS = itertools.count()


def stored_scores(url, query):
    """Of all chunks by a plain BM25 over what is stored now."""
    rows = execute(url, "SELECT chunk_id, context, chunk_text FROM semlex.words_chunk")
    return plain_bm25({chunk_id: ("english", f"{context}\n{text}") for chunk_id, context, text in rows}, query)


async def searched(retriever, meanwhile, patch):
    """A search between whose computing and asking something else happens; and the snapshots that it asked."""
    asked, execute, in_one_go = [], SingleSnapshot.execute, AnySnapshot.in_one_go

    async def late(self, *arguments, **named):
        if not self.is_asked:
            asked.append("statement")
            await meanwhile()
        return await execute(self, *arguments, **named)

    def noted(self, **named):
        asked.append("transaction")
        return in_one_go(self, **named)

    with patch.context() as inner:
        inner.setattr(SingleSnapshot, "execute", late)
        inner.setattr(AnySnapshot, "in_one_go", noted)
        return await retriever.search("sea stone", 1000, mode="keyword"), asked


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_writer_between_computing_and_asking(database_url, action, monkeypatch):
    async with bm25(database_url) as searching, bm25(database_url, texts_of(100)) as writing:
        await writing.delete(["d099"])
        for _ in range(3):
            for _ in range(3):
                await searching.search("sea stone", 1000, mode="keyword")
            found, asked = await searched(searching, partial(ACTIONS[action], writing, database_url), monkeypatch)
            by_id = {hit.id: hit.keyword_score for hit in found}
            expected = stored_scores(database_url, "sea stone")
            if action == "delete_rows":  # the average length is still that of all
                assert by_id.keys() == expected.keys()
            else:
                assert by_id == pytest.approx(expected, rel=1e-9)
            # What is new among the best is written again and again while it is asked for, until a transaction reads it.
            is_new = action in {"add", "change"}
            assert asked == ["statement", *(["statement", "statement", "transaction", "transaction"] if is_new else [])]


async def test_a_search_does_not_take_what_another_one_saw_for_its_own(database_url, monkeypatch):
    """Its one question did not suffice, and would not at the second try either."""
    asked, ask = [], SingleSnapshot.execute

    async def early(self, *arguments, **named):
        answer = await ask(self, *arguments, **named)
        asked.append("statement")
        if asked == ["statement"]:
            await writing.add_documents([Document("rain", id="rain")])
            with monkeypatch.context() as inner:
                inner.setattr(SingleSnapshot, "execute", ask)
                await searching.search("sea", mode="keyword")
        return answer

    async with bm25(database_url) as searching, bm25(database_url, texts_of(100)) as writing:
        for _ in range(3):
            await searching.search("sea stone", 5, mode="keyword")
        execute(database_url, "DELETE FROM semlex.words_chunk WHERE chunk_id < 'd090'")
        monkeypatch.setattr(SingleSnapshot, "execute", early)
        assert len(await searching.search("sea stone", 5, mode="keyword")) == 5
        assert asked == ["statement"]


async def test_a_collection_made_again_between_computing_and_asking(database_url, monkeypatch):
    """Even one that is as empty as the first."""
    async with Client(database_url, embedding_model="none") as other, bm25(database_url) as searching:
        for added in (0, 3):
            for _ in range(3):
                await searching.search("sea stone", 1000, mode="keyword")

            async def remake(added=added):
                await other.drop(COLLECTION)
                await other.collection(COLLECTION).add_documents(texts_of(added))

            found, asked = await searched(searching, remake, monkeypatch)
            assert {hit.id for hit in found} == set(stored_scores(database_url, "sea stone"))
            assert len(asked) > 1
