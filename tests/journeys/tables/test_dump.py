"""A dump holds a collection bit for bit, and a restore makes the same of it; what is not whole restores nothing."""

import hashlib
import itertools
import json
import os
import re
import shutil
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Client, Document, SyncClient
from semlex.errors import CollectionNotFoundError, ConfigurationError, DumpError, ValidationError
from semlex.maintenance import dump
from semlex.store import tables as store_tables
from tests.support.clients import stopped_command
from tests.support.databases import execute
from tests.support.filter_trees import STORABLE, values
from tests.support.folders import folder_with
from tests.support.lost_answers import lose_answers
from tests.support.programs import Program
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_opened

WIDTH = 16
TABLES = ("source", "document", "ingestion_log", "chunk", "embedding_1")
retriever = partial(sync_opened, model=WIDTH, collection="orchard")
TEXTS = st.text(STORABLE, min_size=1, max_size=20)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "é"]), values, max_size=3)
NUMBER = st.floats(-(2.0**40), 2.0**40, width=32)
# A collection refuses vectors without a direction.
VECTORS = st.lists(NUMBER, min_size=3, max_size=3).filter(lambda vector: max(map(abs, vector)) > 1e-3)


def contents(url, collection):
    """Every row of every table, without the ids that the keyword index gives; vectors as their bytes."""
    rows = dict.fromkeys(TABLES, "to_jsonb(t) - 'keyword_id' - 'previous_id'")
    rows["embedding_1"] = "jsonb_build_array(document_id, chunk_id, public.vector_send(embedding::public.vector))"
    return {
        table: execute(url, f"SELECT {row} AS row FROM semlex.{collection}_{table} AS t ORDER BY row")
        for table, row in rows.items()
    }


def answers(store):
    found = [hit for question in ("apple", "pear tree", "a number") for hit in store.search(question)]
    return [(hit.id, hit.vector_score, hit.keyword_score, hit.fused_score) for hit in found]


def client_of(url):
    return SyncClient(url, "none", use_reranking=False)


def filled(url, folder, **options):
    page = "# Apple {0}\n\nA tree.\n\n## Pear\n\nA pear tree, number {0}.\n"
    pages = folder_with(folder / "pages", {f"{number}.md": page.format(number) for number in range(5)})
    with retriever(url, **options) as store:
        store.index(pages, chunk_tokens=100)
        pie = Document("apple pie", {"n": 1, "deep": {"a": [1.5, None, "é"]}, "big": 10**20, "f": 0.1}, id="pie")
        baum = Document("Ein Baum", id="baum", language="german", parent_id="pie", child_ids=["x", "y"])
        store.add_documents([pie, baum])
        store.delete(document="3.md")
    with retriever(url, model="none", create=False) as words:
        assert words.count() > 5


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["vector", "halfvec"])
def test_restored_is_what_was_dumped(database_url, tmp_path, storage):
    with retriever(database_url, model="none", vector_storage=storage) as early:  # before others have filled it
        assert early.count() == 0
        filled(database_url, tmp_path, vector_storage=storage)
        report = early.tables.dump(tmp_path / "dump")
    with retriever(database_url) as store, client_of(database_url) as client:
        assert (report.chunks, report.documents, store.info.embedding.storage) == (store.count(), 4, storage)
        restored = client.restore(tmp_path / "dump", "copy")
        assert (restored.chunks, restored.vectors, restored.warnings) == (report.chunks, report.vectors, ())
        before, after = contents(database_url, "orchard"), contents(database_url, "copy")
        assert before == after
        assert all(before.values())
        with retriever(database_url, collection="copy") as other:
            assert (other.info.embedding.storage, answers(other)) == (storage, answers(store))
            assert other.index(tmp_path / "pages", chunk_tokens=100).unchanged == 4  # where the first left off
            assert other.status().chunks == store.count() + 1  # the deleted file is read again


def test_collections_without_rows_or_with_few_vectors_are_restored(database_url, tmp_path):
    with retriever(database_url, model="none", keyword="tsvector", distance="l2") as store:
        store.tables.dump(tmp_path / "empty")
        assert (tmp_path / "empty").stat().st_mode & 0o077 == 0
        store.add_documents([Document("apple", id="a")])
        store.describe("All about apples")
        store.tables.dump(tmp_path / "words")
        store.add_documents([Document("pear", id="v")], np.ones((1, WIDTH)))
        assert (store.tables.dump(tmp_path / "mixed").chunks, store.count()) == (2, 2)
    with client_of(database_url) as client:
        assert client.restore(tmp_path / "empty", "none").chunks == 0
        assert client.restore(tmp_path / "words", "words").chunks == 1
        assert client.restore(tmp_path / "words", "other", keyword="bm25").chunks == 1
        assert client.restore(tmp_path / "mixed", "mixed").vectors == 1
    assert contents(database_url, "orchard") == contents(database_url, "mixed")
    for name, engine in (("words", "tsvector"), ("other", "bm25")):
        with retriever(database_url, model="none", collection=name) as store:
            assert store.status().keyword == engine
            assert (store.description(), store.status().description) == ("All about apples",) * 2
            assert [hit.id for hit in store.search("apple")] == ["a"]


@pytest.mark.slow
def test_every_value_comes_back(database_url, tmp_path):
    store = retriever(database_url, model="none", collection="values", distance="l2")
    with store, client_of(database_url) as client:

        @settings(OWN_ROWS, max_examples=examples(15), deadline=None)  # each makes a collection
        @given(rows=st.lists(st.tuples(TEXTS, METADATA, VECTORS), min_size=1, max_size=10))
        def check(rows):
            store.delete([f"d{number}" for number in range(10)])
            documents = [Document(text, metadata, id=f"d{number}") for number, (text, metadata, _) in enumerate(rows)]
            store.add_documents(documents, np.array([vector for *_, vector in rows], np.float32).reshape(len(rows), 3))
            shutil.rmtree(tmp_path / "dump", ignore_errors=True)
            store.tables.dump(tmp_path / "dump")
            with suppress(CollectionNotFoundError):
                client.drop("copy")
            client.restore(tmp_path / "dump", "copy")
            assert contents(database_url, "values") == contents(database_url, "copy")

        check()


async def test_a_dump_is_one_snapshot_and_no_more_than_a_reader(database_url, tmp_path, monkeypatch):
    """Writers go on meanwhile: what a dump holds was there at one moment."""
    pairs = itertools.count()
    async with opened(database_url, "none", collection="busy", keyword="none") as store:

        async def add_pair():
            pair = next(pairs)
            await store.add_documents([Document("a pair", id=f"{pair}{side}") for side in "ab"], np.ones((2, 3)))

        async def copied(connection, collection, table):
            await add_pair()
            async for part in store_tables.copy_out(connection, collection, table):
                await add_pair()
                yield part

        await add_pair()
        monkeypatch.setattr("semlex.maintenance.dump.copy_out", copied)
        await store.tables.dump(tmp_path / "dump")
        assert await store.count() == 2 * next(pairs) > 2 * len(TABLES)
    async with Client(database_url, "none", use_reranking=False) as client:
        report = await client.restore(tmp_path / "dump", "copy")
    assert (report.chunks, report.vectors) == (2, 2)


@pytest.fixture(scope="module")
def dumped(new_database, tmp_path_factory):
    """Yield a client, the folder of a dump of its collection, and the address of its database."""
    url, folder = new_database(), tmp_path_factory.mktemp("dumped")
    filled(url, folder)
    with retriever(url) as store:
        store.tables.dump(folder / "dump")
    with client_of(url) as client:
        yield client, folder / "dump", url


def test_files_are_readable_by_pandas_and_have_every_column(database_url, dumped):
    _, folder, url = dumped
    path = folder / "chunks.parquet"
    rows = {row["chunk_id"]: row for row in pq.read_table(path).to_pylist()}
    pie = rows["pie"]
    assert (pie["chunk_text"], len(pie["embedding"]), pie["created_at"].tzinfo is None) == ("apple pie", WIDTH, False)
    assert json.loads(pie["metadata"])["deep"] == {"a": [1.5, None, "é"]}
    with retriever(database_url, model="none", collection="loaded") as loaded:
        names = {"text_field": "chunk_text", "vector_field": "embedding", "id_field": "chunk_id"}
        assert loaded.tables.load(path, metadata_fields=["metadata"], **names).rows == len(rows)
        assert loaded.get(["pie"])[0].metadata == {"n": 1, "deep": {"a": [1.5, None, "é"]}, "big": 10**20, "f": 0.1}
    query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    for (name, wires), table in zip(store_tables.TABLES.items(), TABLES[:-1], strict=True):
        found = {column for (column,) in execute(url, query, [f"semlex.orchard_{table}"])}
        assert set(wires) == found - {"keyword_id", "previous_id"}, name


def edit_manifest(change):
    def edit(folder):
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text(encoding="utf-8"))
        change(manifest)
        path.write_text(json.dumps(manifest), encoding="utf-8")

    return edit


def flip(folder):
    path = folder / "chunks.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rewritten(table, change):
    """Other rows, with a manifest that fits the file but not its rows."""

    def rewrite(folder):
        path = folder / f"{table}.parquet"
        pq.write_table(change(pq.read_table(path)), path)
        data = path.read_bytes()
        own = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        edit_manifest(lambda manifest: manifest["files"][table].update(own))(folder)

    return rewrite


def with_first(table, name, value):
    place, field = table.schema.get_field_index(name), table.schema.field(name)
    return table.set_column(place, field, pa.array([value, *table[name].to_pylist()[1:]], field.type))


ANOTHER = "chunks.parquet is not the file that was dumped"
DAMAGED = {
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "is not a complete dump"),
    "half a manifest": (lambda folder: (folder / "manifest.json").write_text('{"format"'), "is not a complete dump"),
    "another file": (lambda folder: (folder / "manifest.json").write_text("[]"), "is not the manifest of a dump"),
    "a newer version": (edit_manifest(lambda manifest: manifest.update(version=2)), "is a dump of version 2"),
    "no settings": (edit_manifest(lambda manifest: manifest.pop("settings")), "is damaged"),
    "unknown setting": (edit_manifest(lambda manifest: manifest["settings"].update(colour=1)), "is damaged"),
    "wrong dimensions": (edit_manifest(lambda manifest: manifest["embedding"].update(dimensions="x")), "is damaged"),
    "another type": (edit_manifest(lambda manifest: manifest["embedding"].update(storage="bit")), "is damaged"),
    "a changed byte": (flip, ANOTHER),
    "a cut file": (lambda folder: os.truncate(folder / "chunks.parquet", 500), ANOTHER),
    "a missing file": (lambda folder: (folder / "sources.parquet").unlink(), "sources.parquet cannot be read"),
    "other rows": (rewritten("chunks", lambda table: table.slice(1)), "has rows that differ from its manifest"),
    "other columns": (rewritten("runs", lambda table: table.drop(["seconds"])), "has columns that differ"),
    "no key": (rewritten("chunks", lambda table: with_first(table, "document_id", "x")), "row 0 of chunks"),
    "no JSON": (rewritten("chunks", lambda table: with_first(table, "metadata", "{")), "row 0 of chunks"),
    "a NUL": (rewritten("chunks", lambda table: with_first(table, "chunk_text", "a\0b")), "row 0 of chunks"),
    "no key of a file": (rewritten("documents", lambda t: with_first(t, "source_id", "x")), "row 0 of documents"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGED)
def test_what_is_not_whole_restores_nothing(dumped, tmp_path, kind):
    damage, message = DAMAGED[kind]
    client, whole, _ = dumped
    damaged, name = shutil.copytree(whole, tmp_path / "dump"), f"copy_{[*DAMAGED].index(kind)}"
    damage(damaged)
    with pytest.raises(DumpError, match=re.escape(message)) as refused:
        client.restore(damaged, name)
    assert "apple" not in str(refused.value)
    assert {one.name: one.chunks for one in client.count_collections()}.get(name, 0) == 0


def test_what_is_there_is_not_written_over(database_url, tmp_path, monkeypatch):
    """A dump is written into the folder itself, which may be a mount; nothing beside the folder is touched."""
    mine = dict.fromkeys(("full/mine.txt", "dump.partial/mine.txt", "file"), "kept")
    folder_with(tmp_path, mine | {"dump/chunks.parquet": "of a dump that was killed"})
    full, folder, mounted = (tmp_path / name for name in ("full", "dump", "mounted"))
    mounted.mkdir()
    number = folder.stat().st_ino
    with retriever(database_url, vector_storage="halfvec") as store, client_of(database_url) as client:
        store.add_documents([Document("apple", id="a")])
        with dump.claimed_folder(tmp_path / "claimed") as claimed:
            with pytest.raises(ConfigurationError, match="another dump writes into"):
                store.tables.dump(claimed)
            assert list(claimed.iterdir()) == []
        store.tables.dump(folder)
        assert folder.stat().st_ino == number
        for there in (full, folder, tmp_path / "file"):
            with pytest.raises(ConfigurationError, match="exists: name a folder"):
                store.tables.dump(there)
        assert [(tmp_path / name).read_text() for name in mine] == ["kept"] * 3
        with pytest.raises(ConfigurationError, match=r"is not empty \(1 chunks"):
            client.restore(folder)
        lost = lose_answers(monkeypatch, "restore the collection")
        assert (client.restore(folder, "copy").chunks, lost) == (1, {"restore the collection"})
        assert contents(database_url, "copy") == contents(database_url, "orchard")
        store.delete(["a"])
        with pytest.raises(ConfigurationError, match="was made with vector_storage='halfvec'"):
            client.restore(folder, vector_storage="vector")
        assert client.restore(folder).chunks == 1
        client.drop("orchard")
        for gone in (tmp_path / "new", mounted):  # dumping a dropped collection leaves no folder
            with pytest.raises(CollectionNotFoundError):
                store.tables.dump(gone)
        assert ((tmp_path / "new").exists(), list(mounted.iterdir())) == (False, [])


def test_what_is_no_folder_and_an_empty_collection_of_other_settings_are_refused(dumped, tmp_path):
    client, whole, url = dumped
    for folder in (None, 5, "", b"folder", f"{tmp_path}/a\0b", f"{tmp_path}/a\udcffb/\0", ["folder"]):
        with pytest.raises((ConfigurationError, ValidationError), match="folder"):
            client.collection("orchard").tables.dump(folder)
        with pytest.raises((ConfigurationError, ValidationError, DumpError)):
            client.restore(folder)
    assert list(tmp_path.iterdir()) == []
    for made, asked, option in (
        ({"language": "german"}, {}, "language"),
        ({"distance": "l2"}, {}, "distance"),
        ({"with_context": False}, {}, "with_context"),
        ({"keyword": "tsvector"}, {}, "keyword_engine"),
        ({}, {"keyword": "none"}, "keyword_engine"),
    ):
        with retriever(url, collection="empty", **made) as empty:
            assert empty.count() == 0
        message = f"was made with {option}=.* drop it first: semlex collections drop empty"
        with pytest.raises(ConfigurationError, match=message):
            client.restore(whole, "empty", **asked)
        client.drop("empty")
    assert client.restore(whole, "empty", **asked).chunks == client.collection("orchard").count()
    client.drop("empty")


@pytest.mark.parametrize("moment", ["copying", "worked"])
def test_a_killed_restore_leaves_an_empty_collection(database_url, tmp_path, moment):
    with retriever(database_url, model="none") as store:
        store.tables.load({"text": [f"apple {number}" for number in range(200)], "vector": np.ones((200, WIDTH))})
        store.tables.dump(tmp_path / "dump")
    restore = ["collections", "restore", str(tmp_path / "dump"), "-c", "copy"]
    with Program(stopped_command.main, database_url, restore, ("restore the collection", moment, 1)) as program:
        program.until_stopped()
    with client_of(database_url) as client:
        assert (client.collection("copy").count(), client.restore(tmp_path / "dump", "copy").chunks) == (0, 200)


def test_on_the_command_line(shell):
    shell("index", "docs", "-c", "c", "--model", "none")
    (dumped,) = shell.objects("collections", "dump", "saved", "-c", "c")
    assert (dumped["chunks"], dumped["documents"]) == (2, 2)
    assert "exists: name a folder" in shell("collections", "dump", "saved", "-c", "c", code=2).stderr
    assert "c is not empty" in shell("collections", "restore", "saved", code=2).stderr.replace("'", "")
    assert [one["chunks"] for one in shell.objects("collections", "restore", "saved", "-c", "d")] == [2]
    assert shell.objects("search", "banana", "-c", "d")[0]["source_document"] == "fruit.txt"
    (shell.folder / "saved" / "manifest.json").write_text("{}")
    assert "is not the manifest of a dump" in shell("collections", "restore", "saved", "-c", "e", code=2).stderr
