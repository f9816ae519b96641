"""One client with many collections: what they share, transactions of the caller, and the options of each collection."""

import asyncio

import psycopg
import pytest

import semlex
from semlex import Client, CollectionOptions, Document, PostgreSQLRetriever
from semlex.errors import CollectionNotFoundError, CollectionSettingsError, ConfigurationError, ValidationError
from semlex.options.collection import BUILT_IN, KINDS, ChunkSettings
from semlex.options.declare import declared
from semlex.retriever.options import CollectionKeys
from semlex.testing import HashEmbedder
from tests.support.databases import CLEANING, execute
from tests.support.folders import folder_with
from tests.support.lost_answers import lose_answers
from tests.support.retrievers import sync_opened

TEXTS = ["a lion in the grass", "a zebra at the river", "grass by the river"]


def client(url, **options):
    return Client(url, HashEmbedder(16), use_reranking=False, **options)


@pytest.mark.slow
async def test_collections_share_all_that_is_dear(database_url):
    async with client(database_url, keyword_cache_bytes=1_000_000, max_connections=4) as opened:
        names = [f"c{number}" for number in range(8)]
        collections = [opened.collection(name) for name in names]
        await asyncio.gather(*(one.add_texts(TEXTS, ids=["a", "b", "c"]) for one in collections))
        found = await asyncio.gather(*(one.search("lion in the grass", 1) for one in collections))
        assert [hits[0].id for hits in found] == ["a"] * 8
        assert issubclass(PostgreSQLRetriever, semlex.Collection)
        assert [entry.name for entry in await opened.collections()] == sorted(names)
        parts = [one._handle.opened for one in collections]
        assert len({id(part.database._pool) for part in parts}) == 1
        for shared in ("models", "executor", "query_cache"):
            assert len({id(getattr(part, shared)) for part in parts}) == 1, shared
        assert len({id(part.info.keyword) for part in parts}) == 8
        assert {part.info.keyword.index.options.cache_bytes for part in parts} == {125_000}
        others = "datname = current_database() AND application_name <> %s AND pid <> pg_backend_pid()"
        query = f"SELECT count(*) FROM pg_stat_activity WHERE {others}"
        assert execute(database_url, query, [CLEANING])[0][0] <= 4  # one pool


@pytest.mark.slow
async def test_a_static_model_is_loaded_once_for_all(database_url):
    async with Client(database_url, use_reranking=False) as opened:
        for name in ("first", "second"):
            await opened.collection(name).add_texts(TEXTS)
    async with Client(database_url, use_reranking=False) as opened:
        first, second, new = (opened.collection(name) for name in ("first", "second", "third"))
        await first.search("lion")
        await second.search("lion")
        await new.add_texts(TEXTS)
        assert len({id(one._handle.opened.models.embedder) for one in (first, second, new)}) == 1
        assert "the collection's model" in first.embedding_choice


async def test_a_collection_is_made_by_its_first_call(database_url):
    async with semlex.connect(database_url, "none") as opened:
        one = opened.collection("one", CollectionOptions(language="german", chunk_tokens=100))
        assert await opened.collections() == []
        assert await one.count() == 0
        (entry,) = await opened.collections()
        assert (entry.name, entry.language) == ("one", "german")
        assert opened.collection("one", CollectionOptions(language="german", chunk_tokens=100)) is one
        with pytest.raises(CollectionSettingsError, match="language"):
            await opened.collection("one", CollectionOptions(language="english")).count()
        with pytest.raises(CollectionNotFoundError, match="collections: one"):
            await opened.collection("two", create=False).count()
        with pytest.raises(ValidationError):
            opened.collection("No Name")
        with pytest.raises(ConfigurationError, match="options"):
            opened.collection("one", {"language": "german"})
        await opened.drop("one")
        with pytest.raises(CollectionNotFoundError):
            await opened.drop("one")
        assert (await opened.health_check()).ok


async def test_the_first_call_of_a_collection_opens_its_client(database_url):
    opened = client(database_url)
    one = opened.collection("one")
    with pytest.raises(ConfigurationError, match="not open yet"):
        _ = one.info
    assert await asyncio.gather(*(one.count() for _ in range(4))) == [0] * 4
    assert len(await one.search("lion")) == 0
    async with client(database_url) as other:
        await other.collection("one").add_texts(TEXTS)
    assert (await one.search("lion")).mode == "hybrid"  # another process stored the first vectors
    await opened.close()
    for call in (one.count, opened.collections, lambda: one.search("lion")):
        with pytest.raises(ConfigurationError, match="was closed; make another"):
            await call()
    async with opened:  # opened again, so is the collection
        assert len(await one.search("lion")) == 3
        # The next write makes a collection again that its client dropped; objects made before the drop read it, too.
        await opened.drop("one")
        new = opened.collection("one")
        await new.add_texts(TEXTS[:1])
        assert [await each.count() for each in (new, opened.collection("one"), one)] == [1, 1, 1]
        await new.drop()
        await new.add_texts(TEXTS)
        assert await new.count() == 3


async def test_using_joins_a_transaction(database_url):
    async with client(database_url) as opened, await psycopg.AsyncConnection.connect(database_url) as connection:
        one, other = opened.collection("one"), opened.collection("other")
        mine = one.using(connection)
        for collection in (one, other):
            await collection.add_texts(TEXTS[:1], ids=["a"])
            await collection.search("lion")
        used = other.info.keyword.index.cache_figures()
        await connection.execute("SELECT 1")  # begins a transaction
        await mine.add_texts([*TEXTS[1:], "a lion by the sea"], ids=["b", "c", "d"])
        assert (await mine.count(), await one.count()) == (4, 1)
        assert {hit.id for hit in await mine.search("lion", mode="keyword")} == {"a", "d"}
        assert {hit.id for hit in await one.search("lion", mode="keyword")} == {"a"}
        await connection.rollback()
        assert (await mine.count(), await one.count()) == (1, 1)
        assert {hit.id for hit in await mine.search("lion", mode="keyword")} == {"a"}
        assert {hit.id for hit in await one.search("lion sea", mode="keyword")} == {"a"}
        # A transaction uses what the collection holds in memory.
        assert mine.info.keyword is one.info.keyword
        assert other.info.keyword.index.cache_figures() == used
        assert mine._handle.opened.models.embedder is one._handle.opened.models.embedder
        await connection.execute("SELECT 1")
        await mine.add_documents([Document(TEXTS[1], {"n": 1}, "b")])
        await connection.commit()
        assert {hit.id for hit in await one.search("zebra grass")} == {"a", "b"}


@pytest.mark.slow
async def test_collections_that_are_opened_do_not_disturb_searches(database_url):
    async with client(database_url, keyword_cache_bytes=20_000) as opened:
        one = opened.collection("one")
        texts = [f"word{number % 7} word{number % 11} of text {number}" for number in range(300)]
        await one.add_texts(texts, ids=[str(number) for number in range(300)])
        questions = [f"word{number}" for number in range(11)]
        expected = [[(hit.id, hit.keyword_score) for hit in await one.search(q, 30, mode="keyword")] for q in questions]

        async def ask():
            for _ in range(6):
                for question, known in zip(questions, expected, strict=True):
                    hits = await one.search(question, 30, mode="keyword")
                    assert [(hit.id, hit.keyword_score) for hit in hits] == known

        async def open_more():
            for number in range(12):
                await opened.collection(f"c{number}").count()

        await asyncio.gather(ask(), ask(), open_more())


@pytest.mark.parametrize("made_again", [False, True])
async def test_a_drop_whose_answer_is_lost_drops_one_collection(database_url, monkeypatch, made_again):
    async with client(database_url) as opened, client(database_url) as other:
        await opened.collection("one").add_texts(TEXTS)

        async def make():
            if made_again:
                await other.collection("one").add_texts(TEXTS[:1])

        lost = lose_answers(monkeypatch, "drop the collection", meanwhile=make)
        await opened.drop("one")
        assert lost == {"drop the collection"}
        assert [entry.name for entry in await other.collections()] == (["one"] if made_again else [])
        if made_again:
            assert await other.collection("one").count() == 1


async def test_listing_goes_through_all_chunks_once(database_url, tmp_path):
    (tmp_path / "page.md").write_text("# One\n\nfirst\n\n# Two\n\nsecond\n", encoding="utf-8")
    async with client(database_url) as opened:
        one = opened.collection("one")
        await one.add_documents([Document(f"text {n}", {"even": n % 2 == 0}, f"id-{n}") for n in range(25)])
        await one.index(tmp_path)
        total = await one.count()
        seen, after = [], None
        while page := await one.list_chunks(limit=7, after=after):
            assert len(page) <= 7
            seen += [chunk.id for chunk in page]
            after = seen[-1]
        assert len(seen) == len(set(seen)) == total
        even = {chunk.id for chunk in await one.list_chunks({"even": True}, limit=100)}
        assert even == {f"id-{n}" for n in range(0, 25, 2)}
        (of_file,) = [chunk for chunk in await one.list_chunks(limit=100) if chunk.source_document == "page.md"]
        assert (of_file.root, of_file.line) == (str(tmp_path), 1)
        assert await one.list_chunks(after=seen[-1]) == []
        for limit in (0, 10_001, True, "many"):
            with pytest.raises(ConfigurationError, match="limit"):
                await one.list_chunks(limit=limit)
        with pytest.raises(ValidationError):
            await one.list_chunks(after="\0")


# Each option: its value in the collection, and another value.
VALUES = {
    "language": ("german", "english"), "keyword": ("bm25", "tsvector"), "stop_words": (False, True),
    "distance": ("l2", "cosine"), "vector_storage": ("halfvec", "vector"), "with_context": (False, True),
    "partitions": (2, 0), "chunk_tokens": (100, 101), "overlap_tokens": (10, 11), "min_tokens": (20, 21),
}  # fmt: skip
MADE, OTHERS = ({name: values[place] for name, values in VALUES.items()} for place in (0, 1))


@pytest.fixture
def page(tmp_path):
    return folder_with(tmp_path / "handbuch", {"seite.md": "# Schlüssel\n\nDie Häuser sind offen.\n"}) / "seite.md"


def test_what_is_refused_makes_nothing(bare_database_url):
    assert declared(CollectionKeys).keys() == KINDS.keys()
    assert CollectionOptions() == CollectionOptions(**dict.fromkeys(KINDS))  # every option is None by default
    assert VALUES.keys() == KINDS.keys()
    assert BUILT_IN.keys() <= KINDS.keys()
    for options, message in (
        ({"language": 5}, "language must be a str; got an int"),
        ({"stop_words": "yes"}, "stop_words must be a bool; got a str"),
        ({"chunk_tokens": True}, "chunk_tokens must be an int; got a bool"),
        ({"chunk_tokens": 5}, "chunk_tokens must be between 16 and 2,000; got 5"),
        ({"chunk_tokens": 100, "overlap_tokens": 50}, "overlap_tokens must be between 0 and 49; got 50"),
        ({"chunk_tokens": 100, "min_tokens": 51}, "min_tokens must be between 0 and 50; got 51"),
        ({"min_tokens": 251}, "min_tokens must be between 0 and 250; got 251"),
        ({"min_tokens": "32"}, "min_tokens must be an int; got a str"),
        ({"partitions": 1}, "partitions must be between 2 and 64; got 1"),
        ({"distance": "cosin"}, "distance must be one of cosine"),
        ({"vector_storage": "bit"}, "vector_storage must be one of vector"),
        ({"keyword": "bm52"}, "keyword must be one of bm25"),
        ({"language": "klingon"}, "klingon"),
        ({"defaults": {"langage": "german"}}, "defaults: unknown option 'langage'"),
        ({"defaults": {"chunk_tokens": 5}}, "chunk_tokens must be"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            sync_opened(bare_database_url, **options).initialize()
    with psycopg.connect(bare_database_url) as connection:
        assert connection.execute("SELECT to_regnamespace('semlex')").fetchone() == (None,)


def test_what_is_said_and_differs_is_refused(database_url, page):
    with sync_opened(database_url, **MADE) as retriever:
        retriever.index(page)
    for name in KINDS:
        with pytest.raises(CollectionSettingsError) as caught:
            sync_opened(database_url, **{name: OTHERS[name]}).initialize()
        error = caught.value
        assert (error.option, error.asked, error.stored) == (name, OTHERS[name], MADE[name])
        for part in (name, repr(MADE[name]), repr(OTHERS[name]), "default_collection", "leave the option out"):
            assert part in str(error)
    # Equal options open the collection; defaults apply to new collections only.
    differing = {name: (OTHERS[name], MADE[name]) for name in KINDS}
    for options in ({}, MADE, {"language": "de"}, {"defaults": MADE}, {"defaults": OTHERS}):
        with sync_opened(database_url, **options) as retriever:
            unused = differing if options == {"defaults": OTHERS} else {}
            assert (retriever.count(), retriever.unused_defaults) == (1, unused)


def test_defaults_make_a_new_collection_and_what_is_said_comes_first(database_url, page):
    with sync_opened(database_url, defaults=MADE, language="french") as retriever:
        retriever.index(page)
        settings, embedding = retriever.info.settings, retriever.info.embedding
    assert (settings.language, settings.stop_words, settings.distance) == ("french", False, "l2")
    assert (settings.with_context, settings.chunk_settings) == (False, ChunkSettings(100, 10, 20))
    assert embedding.storage == "halfvec"
    # Default chunk sizes never conflict with an explicit size.
    defaults = {"chunk_tokens": 500, "overlap_tokens": 100, "min_tokens": 200}
    with sync_opened(database_url, collection="split", chunk_tokens=20, defaults=defaults) as retriever:
        retriever.index(page)
        assert retriever.info.settings.chunk_settings == ChunkSettings(20, 9, 10)


def test_chunk_settings_are_those_of_the_first_file(database_url, page):
    with sync_opened(database_url) as retriever, sync_opened(database_url, defaults={"chunk_tokens": 99}) as other:
        retriever.add_documents([Document("not cut", id="a")])
        assert retriever.info.settings.chunk_settings is None
        assert other.count() == 1
        retriever.index(page, chunk_tokens=60)
        assert retriever.index(page).unchanged == 1
        with pytest.raises(CollectionSettingsError, match="semlex maintain rechunk --collection default_collection"):
            retriever.index(page, chunk_tokens=61)
        assert other.index(page).unchanged == 1  # it was opened before the first file
        assert other.unused_defaults == {"chunk_tokens": (99, 60)}
    with sync_opened(database_url) as retriever:
        assert retriever.info.settings.chunk_settings == ChunkSettings(60, 29, 15)
        assert retriever.index(page).unchanged == 1
