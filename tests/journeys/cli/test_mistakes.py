"""Forty mistakes that people make: each is told with what, where and a remedy, and the remedy works when followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semlex.cli import app
from semlex.errors import SemlexError
from semlex.retriever.synchronous import SyncRetriever
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened

GOOD = Document("Rotate the keys.", {"year": 2024}, "keys")
VECTOR = [1.0, 0, 0, 0, 0, 0, 0, 0]


# --- the command line -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Typed:
    """A command line that is wrong.

    Attributes:
        line: What was typed; ``{database}`` stands for the server's address.
        code: Its exit code.
        says: Parts of the message: what, where, remedy.
        instead: The command line that follows the remedy.
        files: Files that are written before.
        environment: Variables that are set before.
        undone: Variables and files that the remedy takes away.
    """

    line: str
    code: int
    says: tuple[str, ...]
    instead: str
    files: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    undone: tuple[str, ...] = ()

    @property
    def reads(self) -> bool:
        """Whether neither of its command lines changes what is stored."""
        return {"search", "serach", "status", "config"}.issuperset(
            line.split()[0] for line in (self.line, self.instead)
        )


TYPED = {
    "a blank question": Typed("search ' '", 2, ("query", "blank", "1 character"), "search keys"),
    "no hits wanted": Typed("search keys -k 0", 2, ("top_k", "between 1 and 1,000", "got 0"), "search keys -k 1"),
    "too many hits wanted": Typed("search keys -k 5000", 2, ("top_k", "1 and 1,000", "5,000"), "search keys -k 1000"),
    "no number of hits": Typed("search keys -k many", 2, ("--top-k", "whole number", "'many'"), "search keys -k 3"),
    "a collection's name with a blank": Typed(
        "index docs -c 'my docs'", 2, ("collection", "a-z", "my_docs"), "index docs -c my_docs"
    ),
    "a collection that is not there": Typed(
        "search keys -c handbok", 6, ("handbok", "collections: handbook"), "search keys -c handbook"
    ),
    "a folder that is not there": Typed("index dcos", 2, ("dcos", "no such file"), "index docs"),
    "trying a folder that is not there": Typed("try dcos keys", 2, ("dcos", "no such file"), "try docs keys"),
    "a pattern in quotes": Typed("index '*.md'", 2, ("*.md", "--include"), "index docs --include '*.md'"),
    "an unknown command": Typed("serach keys", 2, ("serach", "search"), "search keys"),
    "an unknown option": Typed("search keys --topk 3", 2, ("--topk", "--top-k"), "search keys --top-k 3"),
    "an unknown mode": Typed("search keys --mode both", 2, ("both", "hybrid"), "search keys --mode hybrid"),
    "an unknown fusion": Typed("search keys --fusion max", 2, ("max", "rrf"), "search keys --fusion rrf"),
    "an unknown language": Typed(
        "index docs -c second --language klingon", 2, ("klingon", "language", "english"),
        "index docs -c second --language english",
    ),
    "an unknown keyword engine": Typed(
        "index docs -c second --keyword bm26", 2, ("bm26", "bm25"), "index docs -c second --keyword bm25"
    ),
    "chunks that are too small": Typed(
        "index docs -c second --chunk-tokens 5", 2, ("chunk_tokens", "between 16 and", "got 5"),
        "index docs -c second --chunk-tokens 64 --overlap-tokens 8",
    ),
    "an overlap as large as the chunk": Typed(
        "index docs -c second --chunk-tokens 64 --overlap-tokens 64", 2, ("overlap_tokens", "64"),
        "index docs -c second --chunk-tokens 64 --overlap-tokens 8",
    ),
    "sections to join that are as large as the chunk": Typed(
        "index docs -c second --chunk-tokens 64 --min-tokens 64", 2, ("min_tokens", "between 0 and 32", "got 64"),
        "index docs -c second --chunk-tokens 64 --min-tokens 32",
    ),
    "another language than the collection's": Typed(
        "index docs --language german", 2, ("language", "german", "english"), "index docs --language english"
    ),
    "another chunk size than the collection's": Typed(
        "index docs --chunk-tokens 200", 2, ("chunk_tokens", "200", "500", "semlex maintain rechunk"),
        "maintain rechunk --chunk-tokens 200",
    ),
    "a folder above a source": Typed(
        "index .", 2, ("'docs'", "Index those folders", "semlex delete --source docs"), "index docs"
    ),
    "a filter without a value": Typed(
        "search keys --filter year", 2, ("--filter", "column 5", "an operator"), "search keys --filter year==2024"
    ),
    "a misspelt setting in the folder's file": Typed(
        "status", 2, ("semlex.toml", "colection", "collection"), "status",
        files=(("semlex.toml", 'colection = "handbook"\n'),), undone=("semlex.toml",),
    ),
    "a broken file of settings": Typed(
        "status", 2, ("semlex.toml:1:14", "NAME = VALUE"), "status",
        files=(("semlex.toml", "collection = \n"),), undone=("semlex.toml",),
    ),
    "a misspelt variable": Typed(
        "status", 2, ("SEMLEX_COLECTION", "SEMLEX_COLLECTION"), "status",
        environment=(("SEMLEX_COLECTION", "handbook"),), undone=("SEMLEX_COLECTION",),
    ),
    "an address in a cloned folder": Typed(
        "search keys", 2, ("semlex.toml", "reranker_model", "semlex config trust"), "config trust",
        files=(("semlex.toml", 'reranker_model = "http://127.0.0.1:1/v1#m"\n'),),
    ),
    "another library's address": Typed(
        "status --database postgresql+psycopg://127.0.0.1/x", 2, ("postgresql+psycopg", "postgresql://"),
        "status --database {database}",
    ),
    "another database's address": Typed(
        "status --database mysql://127.0.0.1/x", 2, ("mysql", "postgresql://"), "status --database {database}"
    ),
    "an address without its kind": Typed(
        "status --database localhost:5432/x", 2, ("postgresql://",), "status --database {database}"
    ),
    "a server that does not run": Typed(
        "status --database postgresql://user:hunter2@127.0.0.1:1/x", 3, ("127.0.0.1", "running"),
        "status --database {database}",
    ),
    "a model that is not there": Typed(
        "index docs -c second --model no-such/model", 4, ("no-such/model", "static"),
        "index docs -c second --model static",
    ),
    "vectors where there are none": Typed(
        "search keys --mode vector", 4, ("handbook", "semlex models fill"), "models fill --model static"
    ),
    "dropping without a yes": Typed(
        "collections drop handbok --yes", 6, ("handbok", "handbook"), "collections drop handbook --yes"
    ),
    "deleting nothing in particular": Typed(
        "delete", 2, ("ids", "document", "source", "filters"), "delete --source docs --dry-run"
    ),
    "an unknown source": Typed("delete --source dcos", 2, ("dcos", "docs"), "delete --source docs --dry-run"),
}  # fmt: skip


@pytest.fixture(scope="module")
def indexed(new_database: Callable[[], str]) -> str:
    """A database with the collection `handbook`, for cases that only read it."""
    url = new_database()
    with sync_opened(url, "none", collection="handbook") as retriever:
        retriever.add_texts(["# Keys\n\nRotate the keys every ninety days.\n"])
    return url


@pytest.fixture
def url(name: str, request: pytest.FixtureRequest) -> str:
    """The database of a case."""
    found: str = request.getfixturevalue("indexed" if TYPED[name].reads else "database_url")
    return found


@pytest.fixture
def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one document, which the tests index into the collection `handbook`."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "keys.md").write_text("# Keys\n\nRotate the keys every ninety days.\n")
    (tmp_path / "own.toml").touch()
    monkeypatch.chdir(tmp_path)
    for name, setting in (("DATABASE_URL", url), ("SEMLEX_CONFIG", str(tmp_path / "own.toml"))):
        monkeypatch.setenv(name, setting)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("SEMLEX_COLLECTION", "handbook")
    monkeypatch.setenv("SEMLEX_EMBEDDING_MODEL", "none")  # loading one takes longer than all else here
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    """Exit code and messages of a command line."""
    import shlex

    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["semlex", *shlex.split(line)])
    try:
        app.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    said = capsys.readouterr()
    return code, said.err


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPED)
def test_a_mistake_on_the_command_line(
    name: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = TYPED[name]
    if not case.reads:
        code, message = run(monkeypatch, capsys, "index docs")
        assert code == 0, message
    for file, text in case.files:
        (folder / file).write_text(text)
    for variable, value in case.environment:
        monkeypatch.setenv(variable, value)
    code, message = run(monkeypatch, capsys, case.line)
    assert code == case.code, message
    missing = [part for part in case.says if part not in message]
    assert not missing, (missing, message)
    assert "Traceback" not in message
    assert "hunter2" not in message
    for what in case.undone:
        (folder / what).unlink(missing_ok=True)
        monkeypatch.delenv(what, raising=False)
    code, message = run(monkeypatch, capsys, case.instead.format(database=f"'{url}'"))
    assert code == 0, message


# --- Python ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Called:
    """A call that is wrong, parts of its message, and the call that follows the remedy."""

    call: Callable[[SyncRetriever], Any]
    says: tuple[str, ...]
    instead: Callable[[SyncRetriever], Any]


def adding(**fields: Any) -> Callable[[SyncRetriever], Any]:
    return lambda retriever: retriever.add_documents([GOOD, replace(GOOD, id="other", **fields)])


CALLED = {
    "a time in the metadata": Called(
        adding(metadata={"when": time(12)}),
        ("row 1", "'other'", "when", "time", "isoformat"),
        adding(metadata={"when": time(12).isoformat()}),
    ),
    "no number in the metadata": Called(
        adding(metadata={"score": math.nan}), ("row 1", "'other'", "score", "NaN"), adding(metadata={"score": None})
    ),
    "a set in the metadata": Called(
        adding(metadata={"tags": {"a"}}), ("row 1", "tags", "set", "list"), adding(metadata={"tags": ["a"]})
    ),
    "an empty text": Called(adding(content=""), ("row 1", "'other'", "content", "1 character"), adding(content="x")),
    "a text that is too long": Called(
        adding(content="x" * 200_000), ("row 1", "content", "131,072", "split"), adding(content="x" * 131_072)
    ),
    "a text with NUL": Called(
        adding(content="a\0b"), ("row 1", "content", "NUL", "replace"), adding(content="a\0b".replace("\0", ""))
    ),
    "a time without a zone": Called(
        adding(created_at=datetime(2020, 1, 1)), ("row 1", "created_at", "zone", "tzinfo"),  # noqa: DTZ001
        adding(created_at=datetime(2020, 1, 1).replace(tzinfo=UTC)),  # noqa: DTZ001
    ),
    "one document instead of a list": Called(
        lambda r: r.add_documents(GOOD), ("documents", "Document", "list"), lambda r: r.add_documents([GOOD])
    ),
    "texts instead of documents": Called(
        lambda r: r.add_documents(["text"]), ("row 0", "Document", "str"), lambda r: r.add_texts(["text"])
    ),
    "vectors of another length": Called(
        lambda r: r.add_documents([GOOD], [[1.0, 2.0]]), ("2", "8", "dimensions"),
        lambda r: r.add_documents([GOOD], [VECTOR]),
    ),
    "too few vectors": Called(
        lambda r: r.add_documents([GOOD, GOOD], [VECTOR]), ("embedding", "1", "2"),
        lambda r: r.add_documents([GOOD, GOOD], [VECTOR, VECTOR]),
    ),
    "a vector of zeros": Called(
        lambda r: r.add_documents([GOOD], np.zeros((1, 8))), ("row 0", "embedding", "zero"),
        lambda r: r.add_documents([GOOD], [VECTOR]),
    ),
    "a misspelt rule for duplicates": Called(
        lambda r: r.add_documents([GOOD], on_duplicate="Update"), ("on_duplicate", "update", "skip"),
        lambda r: r.add_documents([GOOD], on_duplicate="update"),
    ),
    "a misspelt operator in a filter": Called(
        lambda r: r.search("keys", filters={"year": {"$gte ": 3}}), ("filter", "year", "$gte"),
        lambda r: r.search("keys", filters={"year": 2024}),
    ),
    "a filter that is a list": Called(
        lambda r: r.search("keys", filters=["year"]), ("filters", "list"),
        lambda r: r.search("keys", filters={"year": 2024}),
    ),
    "a query vector of another length": Called(
        lambda r: r.search(vector=[1.0]), ("vector", "8"), lambda r: r.search(vector=VECTOR)
    ),
    "reranking without a reranker": Called(
        lambda r: r.search("keys", rerank=True), ("rerank", "reranker_model="), lambda r: r.search("keys", rerank=False)
    ),
    "a deadline that is no time": Called(
        lambda r: r.search("keys", deadline=-1), ("deadline", "-1"), lambda r: r.search("keys", deadline=60)
    ),
    "weights of an unknown leg": Called(
        lambda r: r.search("keys", weights={"words": 1}), ("weights", "keyword"),
        lambda r: r.search("keys", weights={"vector": 0.5, "keyword": 0.5}),
    ),
    "a batch that is too large": Called(
        lambda _: BulkIngestConfig(batch_size=0), ("batch_size", "0"), lambda _: BulkIngestConfig(batch_size=1)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def called(new_database: Callable[[], str]) -> Iterator[SyncRetriever]:
    with sync_opened(new_database()) as retriever:
        yield retriever


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLED)
def test_a_mistake_in_python(name: str, called: SyncRetriever) -> None:
    case = CALLED[name]
    called.delete([chunk.id for chunk in called.list_chunks()])
    called.add_documents([GOOD])
    with pytest.raises(SemlexError) as caught:
        case.call(called)
    message = str(caught.value)
    missing = [part for part in case.says if part not in message]
    assert not missing, (missing, message)
    assert called.count() == 1
    case.instead(called)
