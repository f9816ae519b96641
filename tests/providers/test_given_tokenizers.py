"""Tokenizers that a user names for a model on a server: what is counted, and what a collection remembers of it."""

import hashlib
import json
import sys

import psycopg
import pytest
from hypothesis import given
from tokenizers import Tokenizer

from semlex import SyncRetriever
from semlex.embedding.registry import choose_embedder
from semlex.embedding.remote import OpenAIEmbedder
from semlex.errors import ConfigurationError, MissingExtraError, ModelMismatchError
from semlex.models.tokenizer import given_tokenizer
from semlex.testing import HashEmbedder
from tests.support import tokenizers_on_disk
from tests.support.embedding_servers import TEXTS
from tests.support.folders import folder_with
from tests.support.properties import SAME_SURROUNDINGS
from tests.support.shell import Shell

pytestmark = pytest.mark.usefixtures("no_keys", "pauses")

ADDRESS = "http://localhost/v1"
# The Rust core reads the first kind, the tokenizers library the second.
KINDS = {
    "rust": tokenizers_on_disk.content(),
    "tokenizers": tokenizers_on_disk.edited({"normalizer": {"type": "Lowercase"}}),
}
WORDS = "Rotation of zymurgical keys befalls the quixotic gatekeeper, unwillingly. "
LEAVE_OUT = "name the tokenizer.json that came with the model, or name no tokenizer"


def counter_of(content):
    return f"tokenizer/{hashlib.sha256(content).hexdigest()[:16]}"


KNOWN, OTHER = (counter_of(content) for content in KINDS.values())


@pytest.fixture
def file(tmp_path):
    return folder_with(tmp_path / "model", {"tokenizer.json": KINDS["rust"]}) / "tokenizer.json"


@pytest.mark.parametrize("kind", KINDS)
@SAME_SURROUNDINGS
@given(rows=TEXTS)
def test_it_counts_as_the_tokenizers_library_does(tmp_path_factory, kind, rows):
    path = tmp_path_factory.getbasetemp() / f"{kind}.json"
    path.write_bytes(KINDS[kind])
    twin = Tokenizer.from_buffer(KINDS[kind])
    embedder = OpenAIEmbedder("m", ADDRESS, tokenizer=path)
    assert embedder.counter_name == counter_of(KINDS[kind])
    expected = [len(twin.encode(row, add_special_tokens=False)) for row in rows]
    assert embedder.count_tokens(rows).tolist() == expected == [len(embedder.token_offsets(row)) for row in rows]


def test_one_tokenizer_has_one_name_and_others_their_own(file, monkeypatch):
    copy = file.with_name("copied.json")
    copy.write_bytes(file.read_bytes())
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HOME", str(file.parent))
    ways = (file, str(file), file.parent, copy, "tokenizer.json", "copied.json", "~/copied.json", ".")
    assert {given_tokenizer(way).counter_name for way in ways} == {KNOWN}
    for variable in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, "x")
    names = ("openai:m", "openrouter:m", "gemini:m", "ollama:m", f"{ADDRESS}#m")
    assert {choose_embedder(name, tokenizer=file).model.counter_name for name in names} == {KNOWN}
    for model, message in [
        (None, "name such a model, or leave"), ("none", "name such a model, or leave"),
        ("static", "static has its own"), ("org/model", "org/model has its own"),
        (HashEmbedder(8), "give the tokenizer to your embedder"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"name of a model on a server: {message}"):
            choose_embedder(model, tokenizer=file)


def test_a_broken_or_missing_file_and_a_kind_that_needs_a_package_are_named(file, monkeypatch):
    broken = (KINDS["rust"][:-100], KINDS["tokenizers"][:-100], b'{"model": {"type": "BPE"}}')
    for content in (b"", b"{}", b"[]", b"\x00\xff", *broken):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=LEAVE_OUT) as refused:
            OpenAIEmbedder("m", ADDRESS, tokenizer=file).count_tokens(["a"])
        assert f"{file} is not in the form of a tokenizer.json" in str(refused.value)
    file.unlink()
    given_paths = {file: file, file.parent: file, file / "below": file / "below"}
    for given_path, named in (given_paths | {"org/model": "org/model", "x\0y": "x\\x00y"}).items():
        with pytest.raises(ConfigurationError, match=LEAVE_OUT) as refused:
            given_tokenizer(given_path)
        assert f"the tokenizer '{named}' cannot be read" in str(refused.value)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    file.write_bytes(KINDS["rust"])
    assert given_tokenizer(file).engine == "rust"
    file.write_bytes(KINDS["tokenizers"])
    with pytest.raises(MissingExtraError, match=r"tokenizers.*semlex\[local\]"):
        given_tokenizer(file)
    monkeypatch.setattr("semlex.models.tokenizer.MAX_BYTES", 3)
    with pytest.raises(ConfigurationError, match=r"tokenizer.json is larger than"):
        given_tokenizer(file)


@pytest.fixture
def docs(tmp_path):
    return folder_with(tmp_path / "docs", {"a.md": f"# Keys\n\n{WORDS * 60}\n\n# Fruit\n\n{WORDS * 3}"})


def stored(url):
    """What counts the tokens of the collection, and its chunks with their tokens."""
    with psycopg.connect(url) as connection:
        counters = connection.execute("SELECT token_counter FROM semlex.collection").fetchall()
        chunks = connection.execute("SELECT chunk_text, token_count FROM semlex.default_collection_chunk").fetchall()
    return counters[0][0], chunks


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_are_bounded_by_its_tokens(database_url, embeddings, docs, file, kind):
    file.write_bytes(KINDS[kind])
    twin, model = Tokenizer.from_buffer(KINDS[kind]), f"{embeddings.url}/v1#m"
    with SyncRetriever(database_url, model, tokenizer=file) as retriever:
        retriever.index(docs, chunk_tokens=100)
        counter, chunks = stored(database_url)
        assert retriever.status().token_counter == counter == counter_of(KINDS[kind])
    assert len(chunks) > 5
    assert [count for _, count in chunks] == [len(twin.encode(text, add_special_tokens=False)) for text, _ in chunks]
    assert 50 < max(count for _, count in chunks) <= 100
    with psycopg.connect(database_url) as connection:  # nothing that is stored says where the file lies
        rows = connection.execute("SELECT to_jsonb(c)::text FROM semlex.collection AS c").fetchall()
    assert not any(file.parent.name in row or "tokenizer.json" in row for (row,) in rows)
    file.rename(file.with_name("elsewhere.json"))
    with SyncRetriever(database_url, model, tokenizer=str(file.with_name("elsewhere.json"))) as retriever:
        assert retriever.index(docs).unchanged == 1


@pytest.fixture
def made(database_url, embeddings, docs, file):
    """What opens a collection whose chunks were counted by the file, without the file."""
    model = f"{embeddings.url}/v1#m"
    with SyncRetriever(database_url, model, tokenizer=file) as retriever:
        retriever.index(docs, chunk_tokens=100)
    return {"db_url": database_url, "models": [model]}


def test_without_it_the_collection_is_searched_and_not_written(made, docs, file):
    other = file.with_name("other.json")
    other.write_bytes(KINDS["tokenizers"])
    for tokenizer, here in ((None, "2*unicode-words/1"), (other, OTHER)):
        with SyncRetriever(**made, tokenizer=tokenizer) as retriever:
            assert retriever.search("a quixotic gatekeeper").mode == "hybrid"
            for write in (retriever.index, retriever.sync):
                with pytest.raises(ModelMismatchError) as refused:
                    write(docs)
                for part in (KNOWN, here, "'default_collection'", "--tokenizer PATH"):
                    assert part in str(refused.value)
            with pytest.raises(ModelMismatchError):
                retriever.documents.rechunk(dry_run=True)
    for options in ({"tokenizer": file}, {"defaults": {"tokenizer": str(file)}}):  # the remedy, in both ways
        with SyncRetriever(**made, **options) as retriever:
            assert retriever.index(docs).unchanged == 1
            assert retriever.unused_defaults == {}


def test_a_collection_that_counts_words_goes_on(made, docs, file):
    for factor, counter in ((1, "unicode-words/1"), (2, "2*unicode-words/1")):
        with psycopg.connect(made["db_url"]) as connection:
            connection.execute("UPDATE semlex.collection SET token_counter = %s", [counter])
        with SyncRetriever(**made) as retriever:
            retriever.delete(source="docs")
            retriever.index(docs)
            words, chunks = stored(made["db_url"])
            assert words == counter
            assert 90 <= max(count for _, count in chunks) <= 100
            assert all(abs(count - factor * len(text.replace("# ", "").split())) <= factor for text, count in chunks)
        # A default is for new collections; what is said is refused, and leaving it out is the remedy above.
        with SyncRetriever(**made, defaults={"tokenizer": str(file)}) as retriever:
            assert retriever.index(docs).unchanged == 1
            assert retriever.unused_defaults == {"tokenizer": (str(file), counter)}
        refused = pytest.raises(ModelMismatchError, match="leave the tokenizer out; or index into another collection")
        with SyncRetriever(**made, tokenizer=file) as retriever, refused:
            retriever.index(docs)


@pytest.mark.slow
def test_a_default_is_for_models_behind_servers_alone(database_url, docs, file):
    defaults = {"tokenizer": str(file)}
    for collection, model in (("words", "none"), ("static", "static"), ("own", HashEmbedder(8))):
        with SyncRetriever(database_url, model, collection=collection, defaults=defaults) as retriever:
            assert retriever.index(docs).added == 1
            assert retriever.status().token_counter != KNOWN


def test_a_broken_one_makes_no_collection(database_url, embeddings, file):
    file.write_bytes(b"{")
    for options, message in (
        *((options, "is not in the form") for options in ({"tokenizer": file}, {"defaults": {"tokenizer": str(file)}})),
        *(({"tokenizer": wrong}, "tokenizer") for wrong in (5, b"tokenizer.json", "")),
    ):
        with pytest.raises(ConfigurationError, match=message):
            SyncRetriever(database_url, f"{embeddings.url}/v1#m", **options).initialize()
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT name FROM semlex.collection").fetchall() == []


@pytest.mark.slow
def test_the_command_line(database_url, embeddings, docs, file):
    shell = Shell(database_url, docs.parent)
    shell.environment |= {"SEMLEX_MODELS": f"{embeddings.url}/v1#m", "SEMLEX_KEEP_ALIVE": "0"}
    given_file, preview = ("--tokenizer", str(file)), ("documents", "preview", "docs")
    model = ("--model", f"{embeddings.url}/v1#m", *given_file)
    shown = json.loads(shell(*preview, *given_file, "--chunk-tokens", "100", "--json").stdout)
    shell("index", "docs", *model, "--chunk-tokens", "100")
    assert [chunk["tokens"] for chunk in shown["chunks"]] == [count for _, count in stored(database_url)[1]]
    assert f"counted by {KNOWN}" in shell("status").stdout
    refused = " ".join(shell("index", "docs", code=4).stderr.split())
    assert f"whose SHA-256 begins with {KNOWN.removeprefix('tokenizer/')} (--tokenizer PATH" in refused
    assert "1 unchanged" in shell("index", "docs", *given_file).stderr
    assert "SHA-256" not in shell("search", "a quixotic gatekeeper").stderr
    shell.environment["SEMLEX_TOKENIZER"] = str(file)
    assert "1 unchanged" in shell("sync", "docs").stderr
    for command in (("index", "docs", "-c", "b"), preview):
        assert "static has its own" in shell(*command, "--model", "static", *given_file, code=2).stderr
    assert "cannot be read" in shell("index", "docs", "-c", "b", *model[:3], "nowhere.json", code=2).stderr
    assert shell("index", "docs", "-c", "b", "--model", "static").returncode == 0  # a setting is no option
