"""Several collections as one: of one server and of two, merged, with what fails told or skipped."""

import asyncio

import pytest
from psycopg.conninfo import make_conninfo

from semlex import Client, Collection, CollectionOptions, Document, KnowledgeBase, SyncKnowledgeBase, errors
from semlex.errors import CollectionFailedError, ConfigurationError, ConnectionFailedError
from semlex.retriever.handle import write_curve
from semlex.retriever.knowledge_base import search_all
from semlex.search.steps import no_near_duplicates, per_collection
from semlex.testing import HashEmbedder
from tests.support.curves import curve
from tests.support.tenants import tenants_of


async def fill(url):
    """Two collections, of another language and without a model one of them."""
    base = KnowledgeBase().with_database(url).with_model(HashEmbedder(16)).add("english", create=True)
    german = CollectionOptions(language="german")
    async with base.with_model("none").add("german", german, create=True) as both:
        english, german = await both.collection("english"), await both.collection("german")
        await english.add_documents([Document(f"a key of the house {n}", {"n": n}, f"e{n}") for n in range(6)])
        await german.add_documents([Document(f"die Schlüssel und ein key {n}", {"n": n}, f"g{n}") for n in range(3)])


@pytest.fixture(scope="module")
def filled(module_url):
    """A database that all tests leave as it is."""
    asyncio.run(fill(module_url))
    return module_url


def both(url):
    base = KnowledgeBase().with_database(url, max_connections=2)
    return base.with_model("none").add("german").with_model(HashEmbedder(16)).add("english")


def places(found):
    return [(hit.collection, hit.collection_rank) for hit in found]


async def test_all_are_asked_and_take_turns(filled):
    seen = []

    def count(hits):
        seen.append(len(hits))
        return hits

    async with both(filled) as knowledge:
        assert knowledge.labels == ["german", "english"]
        found = await knowledge.retrieve("key", 5)
        assert places(found) == [("english", 1), ("german", 1), ("english", 2), ("german", 2), ("english", 3)]
        assert [hit.rank for hit in found] == [1, 2, 3, 4, 5]
        assert (found.merge, found.uncalibrated, found.skipped) == ("ranks", ["english", "german"], {})
        assert found.searched["english"].mode == "hybrid"
        assert found.searched["german"].mode == "keyword"
        assert set(found.to_dict()) >= {"hits", "merge", "searched", "skipped", "warnings"}
        for label in knowledge.labels:
            own = await (await knowledge.collection(label)).search("key", 5)
            assert [hit.id for hit in own][:2] == [hit.id for hit in found if hit.collection == label][:2]
        assert [hit.collection for hit in await knowledge.retrieve("Schlüssels", mode="keyword")] == ["german"] * 3
        assert [hit.id for hit in await knowledge.retrieve("key", filters="n == 1")] == ["e1", "g1"]
        assert await knowledge.retrieve("key", 5) == found
        assert not await knowledge.retrieve("nowhere", mode="keyword")
        collections = {label: await knowledge.collection(label) for label in knowledge.labels}
        assert places(await search_all(collections, "key", 5)) == places(found)
        found = await knowledge.retrieve("key", 2, steps=[count, per_collection(1), count, no_near_duplicates(0.5)])
        assert (seen, places(found)) == ([9, 2], [("english", 1), ("german", 1)])
        assert len(await knowledge.retrieve("key", 5, steps=[count], per_collection=1)) == 2
        with pytest.raises(ConfigurationError, match=r"step 1 \(<lambda>\)"):
            await knowledge.retrieve("key", steps=[lambda _: None])


async def test_confidences_merge_where_every_hit_has_one(filled, monkeypatch):
    search = Collection.search

    async def calibrated(self, *arguments, **options):
        found = await search(self, *arguments, **options)
        for hit in found:
            hit.confidence = 0.9 if hit.id == "g2" else 0.5
        return found

    monkeypatch.setattr(Collection, "search", calibrated)
    async with both(filled) as knowledge:
        found = await knowledge.retrieve("key", 9)
    assert (found.merge, found.uncalibrated) == ("calibrated", [])
    assert [hit.id for hit in found] == ["g2", *(f"e{n}" for n in range(6)), "g0", "g1"]


async def test_curves_that_are_stored_or_in_a_file_put_collections_in_one_order(database_url, tmp_path):
    base = KnowledgeBase().with_database(database_url).with_model(HashEmbedder(16))
    async with base.add("one", create=True).add("two", create=True) as knowledge:
        for label in knowledge.labels:
            own = await knowledge.collection(label)
            await own.add_documents([Document(f"a key of {label} {n}", id=f"{label}{n}") for n in range(4)])
        assert (await knowledge.retrieve("a key", 8)).merge == "ranks"
        model = {"identity_key": HashEmbedder(16).identity.key}
        await (await knowledge.collection("one")).embeddings.store_calibration(curve(4.0, 0.0, **model))
    write_curve(tmp_path / "two.json", curve(4.0, -20.0, **model))
    async with base.add("one").add("two", calibration=tmp_path / "two.json") as knowledge:
        found = await knowledge.retrieve("a key", 8)
    confidences = [hit.confidence or 0.0 for hit in found]
    assert (found.merge, found.uncalibrated) == ("calibrated", [])
    assert [hit.collection for hit in found] == ["one"] * 4 + ["two"] * 4
    assert confidences == sorted(confidences, reverse=True)
    assert all(confidences)


async def test_without_await(filled):
    async with both(filled) as asynchronous:
        expected = places(await asynchronous.retrieve("key", 4, mode="keyword"))

    def ask():
        knowledge = SyncKnowledgeBase().with_database(filled).with_model("none").add("german").add("english")
        assert knowledge.collection("german").count() == 3  # the first call opens it
        assert places(knowledge.retrieve("key", 4, mode="keyword")) == expected
        assert knowledge.labels == ["german", "english"]
        knowledge.close()
        with pytest.raises(ConfigurationError, match="was closed"):
            knowledge.retrieve("key")
        with knowledge as opened:
            assert opened.collection("german").count() == 3

    await asyncio.to_thread(ask)


def test_two_of_one_name():
    base = KnowledgeBase().with_database("postgresql://").add("x")
    for label in (None, "other"):
        with pytest.raises(ConfigurationError, match="was added before: leave it out"):
            base.add("x", label=label)
    with pytest.raises(ConfigurationError, match="another collection is called 'x' here: give this one a label="):
        base.add("x", schema="other")
    assert base.add("x", schema="other", label="y").labels == ["x", "y"]
    assert base.labels == ["x"]  # every step gives a new one
    for number in range(99):
        base = base.add(f"c{number}")
    with pytest.raises(ConfigurationError, match="at most 100"):
        base.add("c100")
    for wrong in ({"name": "no name"}, {"name": "x", "label": "No"}, {"name": "x", "schema": "pg_x"}):
        with pytest.raises(errors.ValidationError):
            KnowledgeBase().add(**wrong)
    for option, value in (("role", ""), ("role", "public"), ("create", 1), ("options", {})):
        with pytest.raises(ConfigurationError):
            KnowledgeBase().add("x", **{option: value})


async def test_a_missing_collection_and_one_that_was_added_twice_are_refused(filled):
    async with both(filled).add("absent") as knowledge:
        message = r"collection 'absent'.*collection 'absent' does not exist"
        with pytest.raises(CollectionFailedError, match=message) as raised:
            await knowledge.retrieve("key")
        assert isinstance(raised.value.error, errors.CollectionNotFoundError)
        assert raised.value.__cause__ is raised.value.error
        found = await knowledge.retrieve("key", on_error="skip")
        assert len(found) == 9
        assert list(found.skipped) == ["absent"]
        assert found.warnings[0].startswith("collection 'absent' was skipped: collection 'absent' does not exist here")
    async with both(filled).with_database(make_conninfo(filled)).add("english", label="again") as knowledge:
        with pytest.raises(ConfigurationError, match="'again' and 'english' are the same collection"):
            await knowledge.retrieve("key")
    # A knowledge base that was closed opens again.
    knowledge = both(filled)
    for _ in range(2):
        async with knowledge:
            assert len(await knowledge.retrieve("key")) == 9
        with pytest.raises(ConfigurationError, match="was closed"):
            await knowledge.retrieve("key")
    unopened = both(filled)
    assert len(await unopened.retrieve("key")) == 9
    await unopened.close()


async def test_wrong_calls(filled):
    for call in (KnowledgeBase().initialize(), KnowledgeBase().retrieve("key")):
        with pytest.raises(ConfigurationError, match="has no collection"):
            await call
    with pytest.raises(ConfigurationError, match="pool must be"):
        await KnowledgeBase().with_database(pool=3).add("x").initialize()
    async with both(filled) as knowledge:
        with pytest.raises(ConfigurationError, match="'x' is not in this knowledge base, which has german, english"):
            await knowledge.collection("x")
        for name, value in (
            *(("top_k", 0), ("per_collection", 1001), ("on_error", "ignore"), ("on_error", None), ("steps", 3)),
            *(("filters", "n =="), ("question", " "), ("question", 3), ("fusion", "x")),
        ):
            for on_error in ("raise", "skip"):
                with pytest.raises((ConfigurationError, errors.ValidationError)):
                    await knowledge.retrieve(**{"question": "key", "on_error": on_error, name: value})


async def test_one_that_is_dropped_and_made_again(database_url):
    await fill(database_url)
    async with both(database_url) as knowledge, Client(database_url, "none") as client:
        assert len(await knowledge.retrieve("key")) == 9
        await client.drop("german")
        with pytest.raises(CollectionFailedError, match="collection 'german'"):
            await knowledge.retrieve("key")
        found = await knowledge.retrieve("key", on_error="skip")
        assert {hit.collection for hit in found} == {"english"}
        assert list(found.skipped) == ["german"]


async def test_two_databases_and_a_server_that_is_gone(filled, empty_database_url):
    knowledge = both(filled).with_database(empty_database_url).add("english", label="elsewhere", create=True)
    async with knowledge as opened:
        await (await opened.collection("elsewhere")).add_documents([Document("a key elsewhere", id="x")])
        found = await opened.retrieve("key", 3)
        assert places(found) == [("elsewhere", 1), ("english", 1), ("german", 1)]
        assert len(opened._clients) == 3
    gone = make_conninfo(host="127.0.0.1", port=1, dbname="x")
    away = both(filled).with_database(gone, timeout=0.1)  # expires
    async with away.add("gone") as knowledge:
        with pytest.raises(CollectionFailedError, match="collection 'gone'") as raised:
            await knowledge.retrieve("key")
        assert isinstance(raised.value.error, ConnectionFailedError)
        found = await knowledge.retrieve("key", on_error="skip")
        assert (len(found), list(found.skipped)) == (9, ["gone"])
        with pytest.raises(ConnectionFailedError):
            await knowledge.collection("gone")
    away = KnowledgeBase().with_database(gone, timeout=0.1)  # expires
    async with away.add("a").add("b") as nobody:
        with pytest.raises(CollectionFailedError, match="collection 'a'"):
            await nobody.retrieve("key", on_error="skip")


async def test_another_tenants_collection_is_refused_by_the_database(database_url):
    with tenants_of(database_url) as tenants:
        acme, bolt = tenants.make("acme", "anvil"), tenants.make("bolt", "brick")
        async with tenants.client() as client:
            for tenant in (acme, bolt):
                owned = client.collection("notes", schema=tenant.name, role=tenant.owner)
                await owned.add_documents([Document(f"the {tenant.word} {n}", id=f"{n}") for n in range(5)])
        base = KnowledgeBase().with_model(HashEmbedder(16)).with_database(tenants.url, role=acme.reader)
        mine = base.add("notes", schema="acme")
        async with mine.add("notes", schema="bolt", label="stolen") as knowledge:
            with pytest.raises(CollectionFailedError, match="permission denied for schema bolt") as raised:
                await knowledge.retrieve("brick anvil")
            assert isinstance(raised.value.error, errors.PrivilegeError)
            found = await knowledge.retrieve("brick anvil", 100, on_error="skip")
            assert list(found.skipped) == ["stolen"]
            assert {hit.collection for hit in found} == {"notes"}
            assert "the brick" not in repr(found.to_dict())
        shared = mine.add("notes", schema="bolt", label="bolt", role=bolt.reader)
        async with shared as knowledge:  # whoever may take both roles may read both
            found = await knowledge.retrieve("the", mode="vector")
            assert {hit.content.split()[1] for hit in found} == {"anvil", "brick"}
