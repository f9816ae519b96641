"""Rows that Ray's workers embed and store: the same as one process stores, whoever is killed on the way."""

import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import ray.data
from ray.exceptions import RayTaskError

from semlex import CollectionOptions, SyncClient
from semlex.errors import CollectionSettingsError, ConfigurationError, ConnectionFailedError
from semlex.integrations.ray import SemlexEmbed, SemlexSink, read_semlex
from tests.frameworks.ray.killed_program import BLOCKS, load, text_of
from tests.frameworks.ray.killed_work import DRIVER, Deaths, MortalModel, vectors_of
from tests.support.documented_programs import documented_programs

ROWS = 400
# Ray's own settings, of which it warns itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:ray")


def rows_of(count):
    return [
        {"id": f"row-{n}", "text": f"the harbour of island {n}", "section_title": f"Harbours {n % 3}", "year": 1900 + n}
        for n in range(count)
    ]


def stored(url, collection):
    with SyncClient(url, "none", use_reranking=False) as client:
        opened = client.collection(collection, create=False)
        chunks = opened.list_chunks(limit=10_000)
        vectors = opened.embeddings.vectors([one.id for one in chunks])
        return {one.id: (one.content, one.metadata, vectors[one.id].tolist()) for one in chunks}


def test_what_is_stored_equals_what_one_process_stores(database_url):
    rows = rows_of(100)
    dataset = ray.data.from_items(rows, override_num_blocks=3)
    dataset.map_batches(SemlexEmbed("static")).write_datasink(SemlexSink(database_url, "ray"))
    with SyncClient(database_url, "static", use_reranking=False) as client:
        client.collection("alone").add_documents(rows)
        assert stored(database_url, "ray") == stored(database_url, "alone")
        ours, alone = (client.collection(name).open() for name in ("ray", "alone"))
        assert ours.info.settings == alone.info.settings
        question = "Harbours 2 of island 17"
        found, expected = ([(hit.id, hit.score) for hit in one.search(question, 10)] for one in (ours, alone))
        assert found == expected
    with SyncClient(database_url, use_reranking=False) as client:  # the collection knows its model
        assert client.collection("ray").search("a port", 1, mode="vector")


@pytest.mark.parametrize("batch_format", ["pyarrow", "pandas", "numpy"])
def test_batches_of_every_format_are_embedded(database_url, tmp_path, batch_format):
    dataset = ray.data.from_items(rows_of(7))
    embedded = dataset.map_batches(SemlexEmbed(MortalModel(tmp_path)), batch_format=batch_format, batch_size=3)
    found = {row["id"]: np.asarray(row["vector"], np.float32) for row in embedded.take_all()}
    for row in rows_of(7):
        assert np.array_equal(found[row["id"]], vectors_of([f"{row['section_title']}\n{row['text']}"])[0])


def test_vectors_from_elsewhere_are_stored(database_url):
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    batch = {"key": np.arange(4), "body": np.array(["one", "two", "three", "four"]), "numbers": vectors}
    sink = SemlexSink(database_url, "given", text_field="body", vector_field="numbers", id_field="key")
    ray.data.from_numpy(np.arange(1)).map_batches(lambda _: batch).write_datasink(sink)
    found = stored(database_url, "given")
    assert {key: (text, vector) for key, (text, _, vector) in found.items()} == {
        str(n): (batch["body"][n], vectors[n].tolist()) for n in range(4)
    }


def test_a_collection_that_was_dropped_is_made_again(database_url, tmp_path):
    sink = SemlexSink(database_url, "dropped")
    embedded = ray.data.from_items(rows_of(5)).map_batches(SemlexEmbed(MortalModel(tmp_path), skip_stored=sink))
    for _ in range(2):
        embedded.write_datasink(sink)
        assert read_semlex(database_url, "dropped", override_num_blocks=2).count() == 5
        with SyncClient(database_url, "none", use_reranking=False) as client:
            client.drop("dropped")


def embedded_texts(folder):
    return (folder / "embedded").read_text().splitlines()


def check_complete(url, rows):
    expected = {f"row-{n}": (text_of(n), {"number": n}, vectors_of([text_of(n)])[0].tolist()) for n in range(rows)}
    assert stored(url, "killed") == expected


def test_killed_workers_lose_and_double_nothing(database_url, tmp_path):
    deaths, places = Deaths(tmp_path), ("embedding", "before", "between", "after")
    for place in places:
        deaths.plan(place, 2)
    load(database_url, tmp_path, ROWS)
    assert deaths.left() == []
    check_complete(database_url, ROWS)
    # A process has two connections at most, and one that counts; so has the driver. Those of a killed process may still
    # be seen, and the database has one for the tests.
    for line in (tmp_path / "connections").read_text().splitlines():
        connections, processes = map(int, line.split())
        assert connections <= 3 * (processes + 1 + 2 * len(places)) + 1
    # The index of words holds each row once.
    with SyncClient(database_url, "none", use_reranking=False) as client:
        collection = client.collection("killed")
        assert [hit.id for hit in collection.search("000123", 5, mode="keyword")] == ["row-123"]
        assert len(collection.search("text", 1_000, mode="keyword")) == ROWS


@pytest.fixture
def small_blocks():
    """A task passes on each batch before it makes the next one."""
    context = ray.data.DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, 1_000
    yield
    context.target_max_block_size = before


@pytest.mark.usefixtures("small_blocks")
def test_a_repeated_task_passes_on_the_same_rows(database_url, tmp_path):
    # It dies when rows that it has passed on are stored, and is run again: what it leaves out then would be lost.
    deaths = Deaths(tmp_path)
    deaths.plan("afterwards", 1)
    sink = SemlexSink(database_url, "killed")
    items = [{"id": f"row-{number}", "text": text_of(number), "number": number} for number in range(ROWS)]
    made = {"fn_constructor_args": [MortalModel(tmp_path, database_url)]}
    made |= {"fn_constructor_kwargs": {"skip_stored": sink}, "compute": ray.data.ActorPoolStrategy(size=1)}
    rows = ray.data.from_items(items, override_num_blocks=1)
    rows.map_batches(SemlexEmbed, **made, batch_size=20).write_datasink(sink)
    assert deaths.left() == []
    check_complete(database_url, ROWS)


def test_a_program_goes_on_where_it_was_killed(cluster, database_url, tmp_path):
    deaths = Deaths(tmp_path)
    for _ in range(2):
        deaths.plan(DRIVER, 1)
        command = [sys.executable, "-m", "tests.frameworks.ray.killed_program", cluster, database_url, str(tmp_path)]
        killed = subprocess.run([*command, str(ROWS)], check=False, timeout=240, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = len(stored(database_url, "killed"))
    assert before >= ROWS // BLOCKS  # a driver is killed after a block is written
    afterwards = tmp_path / "afterwards"
    afterwards.mkdir()
    load(database_url, afterwards, ROWS)
    check_complete(database_url, ROWS)
    assert len(embedded_texts(afterwards)) <= ROWS - before


def test_only_texts_that_changed_are_embedded_again(database_url, tmp_path):
    sink = SemlexSink(database_url, "again")
    embed = SemlexEmbed(MortalModel(tmp_path), skip_stored=sink)

    def run(rows):
        (tmp_path / "embedded").write_text("")
        ray.data.from_items(rows, override_num_blocks=2).map_batches(embed).write_datasink(sink)
        return sorted(embedded_texts(tmp_path))

    rows = [{"id": f"row-{n}", "text": f"text {n}", "year": n} for n in range(20)]
    assert len(run(rows)) == 20
    assert run(rows) == []
    rows[3]["text"] = "another text"
    rows[5]["year"] = 1905
    rows.append({"id": "row-20", "text": "a new text", "year": 20})
    assert run(rows) == ["a new text", "another text"]
    assert run(rows) == []
    found = stored(database_url, "again")
    assert {key: (text, metadata) for key, (text, metadata, _) in found.items()} == {
        row["id"]: (row["text"], {"year": row["year"]}) for row in rows
    }


@pytest.mark.parametrize("storage", ["vector", "halfvec"])
def test_a_collection_is_read_in_parts(database_url, storage):
    vectors = np.arange(150, dtype=np.float32).reshape(50, 3) + 1
    options = CollectionOptions(vector_storage=storage)
    with SyncClient(database_url, "none", use_reranking=False) as client:
        collection = client.collection("read", options)
        table = {"id": [f"é-{n}" for n in range(50)], "text": [f"text {n}" for n in range(50)], "vector": vectors}
        collection.tables.load({**table, "year": list(range(50))})
        collection.add_documents([{"id": "without", "text": "no vector yet"}])
    dataset = read_semlex(database_url, "read", rows=7, override_num_blocks=4)
    assert dataset.schema().names == ["id", "text", "metadata", "source_document", "vector"]
    found = {row["id"]: row for row in dataset.take_all()}
    assert found.keys() == {*table["id"], "without"}
    assert found["without"]["vector"] is None
    for n, vector in enumerate(vectors.tolist()):
        row = found[f"é-{n}"]
        assert (row["text"], row["metadata"], [*row["vector"]]) == (f"text {n}", f'{{"year": {n}}}', vector)
    # And into another collection.
    whole = dataset.map_batches(lambda table: table.drop_null(), batch_format="pyarrow")
    whole.drop_columns(["source_document"]).write_datasink(SemlexSink(database_url, "copied", options=options))
    with SyncClient(database_url, "none", use_reranking=False) as client:
        client.collection("read").delete(["without"])
    assert stored(database_url, "copied") == stored(database_url, "read")


def test_an_empty_collection_has_columns(database_url):
    with SyncClient(database_url, "none", use_reranking=False) as client:
        client.collection("empty").open()
    dataset = read_semlex(database_url, "empty", override_num_blocks=2)
    assert dataset.schema().names == ["id", "text", "metadata", "source_document"]
    assert dataset.count() == 0


def test_what_cannot_work_fails_in_the_driver(database_url, tmp_path):
    for message, wrong in (
        ("on_duplicate", lambda: SemlexSink(database_url, "x", on_duplicate="fail")),
        ("skip_stored", lambda: SemlexEmbed("static", skip_stored=database_url)),
        ("model", lambda: SemlexEmbed("")),
        ("rows", lambda: read_semlex(database_url, "x", rows=0)),
    ):
        with pytest.raises(ConfigurationError, match=message):
            wrong()
    dataset = ray.data.from_items(rows_of(3)).map_batches(SemlexEmbed(MortalModel(tmp_path)))
    with pytest.raises(ConnectionFailedError):
        dataset.write_datasink(SemlexSink(f"postgresql://u:secret@/none?host={tmp_path}", "x"))
    sink = SemlexSink(database_url, "x")
    dataset.write_datasink(sink)
    with pytest.raises(CollectionSettingsError, match="language"):
        dataset.write_datasink(SemlexSink(database_url, "x", options=CollectionOptions(language="german")))
    with pytest.raises(RayTaskError, match="no field 'vector'"):
        ray.data.from_items(rows_of(3)).write_datasink(sink)
    for models, message in ((["one", "two"], "several models"), (["one", "one"], "embedding_model")):
        table = pa.table({"text": ["a", "b"], "vector": [[1.0], [2.0]], "embedding_model": models})
        with pytest.raises(RayTaskError, match=message):
            ray.data.from_arrow(table).write_datasink(sink)
    assert "secret" not in repr(SemlexSink("postgresql://u:secret@host/name", "x").address)


@pytest.mark.parametrize("program", documented_programs("ray"))
def test_the_programs_of_the_page_on_ray_run(program, database_url, cluster):
    given = {"env": {**os.environ, "DATABASE_URL": database_url, "RAY_ADDRESS": cluster}, "capture_output": True}
    done = subprocess.run([sys.executable, "-c", program], **given, check=False, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_the_package_loads_without_ray():
    code = "import sys, semlex, semlex.retriever.tables; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONWARNINGS": "error"})
