"""Lines and calls as people type them: each does what was meant, or names the mistake and a remedy that works."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import NamedTuple

import numpy as np
import pytest

from semlex.errors import SemlexError
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.documents import Document
from tests.support.retrievers import sync_opened
from tests.support.shell import Shell, run_here, two_documents

# --- the command line -----------------------------------------------------------------------------------------------


class Typed(NamedTuple):
    """A command line: what follows ``semlex``; ``{database}`` stands for the server's address."""

    line: str
    code: int
    says: tuple[str, ...]  # on whichever stream
    instead: str = ""  # the line that follows the remedy
    given: str = ""  # on standard input
    columns: int = 120  # of the terminal
    not_said: tuple[str, ...] = ()
    file: str = ""  # the folder's `semlex.toml`; only `config trust` leaves it there
    variables: tuple[tuple[str, str], ...] = ()  # further ones, which the remedy takes away


KEYS = ("docs/keys.md", "ninety days")
# In a folder with the collection ``handbook``, which they leave as it is.
LINES = [
    # --- meant, and done
    Typed("search how often is a key rotated", 0, KEYS),
    Typed("search how often is a key rotated?", 0, KEYS),
    Typed("search --top-k 1 rotate", 0, KEYS, not_said=("2. ",)),
    Typed("search rotate --top-k=1", 0, KEYS, not_said=("2. ",)),
    Typed("search -k1 rotate", 0, KEYS, not_said=("2. ",)),
    Typed("search rotate --mode keyword a key -v", 0, ("keyword search",)),
    Typed("search rotate", 0, KEYS, not_said=("keyword #", " ms")),
    Typed("--top-k 1 search rotate", 0, KEYS, not_said=("2. ",)),
    Typed("-c handbook search rotate", 0, KEYS),
    Typed("--json search rotate", 0, ('"rank": 1',)),
    Typed("-q search rotate", 0, KEYS),
    Typed("search rotate -q", 0, KEYS),
    Typed("help", 0, ("Usage: semlex", "Commands", "Groups of commands", "models", "doctor")),
    Typed("help search", 0, ("Usage: semlex search", "--top-k", "Example:")),
    Typed("search help", 0, ("nothing found",)),
    Typed("search -h", 0, ("Usage: semlex search",)),
    Typed("version", 0, ("semlex 0.",)),
    Typed("", 0, ("Usage: semlex",)),
    Typed("search - --fields query,source_document", 0, ("1\tkeys.md", "2\tfruit.txt"), given="rotate\n\nbanana\n"),
    Typed(
        "ask -", 0, ("Rotate a key every ninety days", "banana"), given="how often rotate a key?\nwhat is a banana?\n"
    ),
    Typed("context - --json", 0, ('"question": "rotate"', '"question": "banana"'), given="rotate\nbanana\n"),
    Typed("search rotate --fields source_document,line --no-header", 0, ("keys.md\t",), not_said=("source_document",)),
    Typed("documents show keys.md", 0, ("# Keys", "Keys are stored in a vault.")),
    Typed("documents show docs/keys.md", 0, ("# Keys",)),
    Typed("documents show fruit.txt:1", 0, ("A banana",)),
    Typed("documents outline keys.md", 0, ("1  Keys", "3    Rotation", "7    Storage")),
    Typed("documents sources", 0, ("docs",)),
    Typed("delete docs/keys.md --dry-run", 0, ("would be deleted",)),
    Typed("documents add - --texts -c notes", 0, ("2 documents added",), given="one line\nanother line\n"),
    Typed("shell", 0, KEYS, given="rotate\n"),
    Typed("search rotate", 0, ("keys.md",), columns=40),
    # --- other names
    Typed('"how often is a key rotated?"', 2, ("To ask a question: semlex search", '"how often is a key rotated?"')),
    Typed("how often is a key rotated", 2, ("semlex search how often is a key rotated",)),
    Typed("rotate", 2, ("No such command 'rotate'", 'semlex search "rotate"')),
    Typed("serach rotate", 2, ("serach", "Did you mean: semlex search rotate?"), "search rotate"),
    Typed("Search rotate", 2, ("Did you mean: semlex search rotate?",)),
    Typed("searhc", 2, ("semlex search",)),
    Typed("ls", 2, ("semlex collections", "semlex documents")),
    Typed("query rotate", 2, ("Did you mean: semlex search rotate?",)),
    Typed("ingest docs", 2, ("Did you mean: semlex index docs?",)),
    Typed("rm keys.md", 2, ("semlex delete",)),
    Typed("create_index", 2, ("semlex maintain create-index",)),
    Typed("jobs lst", 2, ("No such command 'lst'", "semlex jobs list")),
    Typed("embed -c notes", 2, ("Did you mean: semlex models fill -c notes?",)),
    Typed("reindex", 2, ("Did you mean: semlex maintain reindex?",)),
    Typed("drop notes", 2, ("Did you mean: semlex collections drop notes?",)),
    Typed(
        "search rotate -c handbok", 6,
        ("collection 'handbok' does not exist", "did you mean 'handbook'?", "collections: handbook", "Server: host="),
        "search rotate -c handbook",
    ),
    Typed("search --top_k 3 rotate", 2, ("No such option: --top_k", "--top-k")),
    Typed("search rotate --limit 3", 2, ("No such option: --limit", "--top-k")),
    Typed("search rotate -n 3", 2, ("No such option: -n", "--top-k")),
    Typed("search rotate --JSON", 2, ("--JSON", "--json")),
    Typed("search rotate -json", 2, ("No such option: -j", "--json")),
    Typed("search rotate --where 'year > 3'", 2, ("--filter",)),
    Typed("search rotate --db postgresql://x/y", 2, ("--database",)),
    Typed("collections drop handbook -y", 2, ("--yes",)),
    Typed("search rotate --collecton handbook", 2, ("--collection",)),
    # --- something lacks, or is too much
    Typed("search", 2, ("give a question", "--queries", "--after")),
    Typed("search -", 2, ("no question on standard input",)),
    Typed("ask -", 2, ("no question on standard input",)),
    Typed("documents add - -c notes", 2, ("no document to add",)),
    Typed("documents add - -c notes", 2, ("standard input", "line 1", "not JSON", "--texts"), given="no json\n"),
    Typed("documents add nope.jsonl -c notes", 2, ("nope.jsonl cannot be read",)),
    Typed("index", 2, ("Missing argument 'paths'", "semlex index ./docs -c handbook")),
    Typed("why keys.md", 2, ("Missing argument 'question'", "semlex why keys.md how often")),
    Typed("documents outline", 2, ("Missing argument", "semlex documents outline keys.md")),
    Typed("documents outline nope.md", 2, ("document 'nope.md' not found", "semlex documents")),
    Typed("documents show", 2, ("Missing argument", "semlex documents show keys.md")),
    Typed("status handbook", 2, ("unexpected extra argument", "handbook", "semlex status -c handbook")),
    Typed("search rotate -k", 2, ("'-k' requires an argument",)),
    Typed("search rotate --filter year=2020", 0, ("no chunk has the metadata field 'year'",)),
    Typed("search rotate --filter year=>2020", 2, ("--filter", "column 5")),
    Typed("search rotate --fields sorce", 2, ("no line has the field 'sorce'", "source")),
    Typed("search rotate --fields id,legs", 2, ("--fields", "no line of --json has all of")),
    Typed("search rotate --fields ,", 2, ("--fields names no key",)),
    Typed("search --after foo", 2, ("cursor", "next_cursor of an earlier page", "complete and unchanged")),
    Typed("search rotate --after foo", 2, ("give a question", "--after")),
    Typed("search rotate --open", 2, ("--open needs a terminal",)),
    Typed("search rotate --device gpu", 2, ("device must be mps, cuda or cpu; got 'gpu'",)),
    Typed("search rotate --reranker nosuch", 4, ("'nosuch'", "'term-overlap' needs no hub"), not_said=("'static'",)),
    Typed(
        "collections drop handbok", 6, ("collection 'handbok' does not exist", "handbook"), not_said=("Drop handbok",)
    ),
    Typed("collections drop handbook", 2, ("no answer was given", "--yes")),
    Typed("collections drop handbook", 1, ("aborted",), given="n\n"),
    Typed("eval queries --clear", 2, ("no answer was given", "--yes")),
    Typed("delete --source docs", 2, ("no answer was given", "--yes")),
    Typed("ask rotate --min-coverage nan", 2, ("--min-coverage", "between 0 and 1", "'nan'")),
    Typed("context rotate --sections -1", 2, ("--sections", "0, for never, or between 0.01 and 1")),
    Typed("shell --mode both", 2, ("mode", "hybrid"), given="rotate\n"),
    Typed("doctor server --data-dir", 2, ("requires an argument",)),
    Typed("collections restore nope", 2, ("folder nope does not exist", "semlex collections dump")),
    Typed("eval nope", 2, ("nope",)),
    Typed("jobs show 1", 2, ("'1' is not the id of a job", "semlex jobs")),
    Typed("serach rotate", 2, ("semlex search",), columns=40),
    Typed("status handbook", 2, ("handbook",), columns=40),
    # --- mistakes with their remedies
    Typed("search ' '", 2, ("query", "blank", "1 character"), "search keys"),
    Typed("search keys -k 0", 2, ("top_k", "between 1 and 1,000", "got 0"), "search keys -k 1"),
    Typed("search keys -k 5000", 2, ("top_k", "1 and 1,000", "5,000"), "search keys -k 1000"),
    Typed("search keys --topk 3", 2, ("--topk", "--top-k"), "search keys --top-k 3"),
    Typed("search keys --mode both", 2, ("both", "hybrid"), "search keys --mode hybrid"),
    Typed("search keys --fusion max", 2, ("max", "rrf"), "search keys --fusion rrf"),
    Typed("search keys --filter year", 2, ("--filter", "column 5", "an operator"), "search keys --filter year==2024"),
    Typed("status", 2, ("semlex.toml", "colection", "collection"), "status", file='colection = "handbook"\n'),
    Typed("status", 2, ("semlex.toml:1:14", "NAME = VALUE"), "status", file="collection = \n"),
    Typed("status", 2, ("SEMLEX_COLECTION", "SEMLEX_COLLECTION"), "status", variables=(("SEMLEX_COLECTION", "x"),)),
    Typed(
        "search keys", 2, ("semlex.toml", "reranker_model", "semlex config trust"), "config trust",
        file='reranker_model = "http://127.0.0.1:1/v1#m"\n',
    ),
    *(
        Typed(f"status --database {address}", code, says, "status --database {database}")
        for address, code, says in (
            ("postgresql+psycopg://127.0.0.1/x", 2, ("postgresql+psycopg", "postgresql://")),
            ("mysql://127.0.0.1/x", 2, ("mysql", "postgresql://")),
            ("localhost:5432/x", 2, ("postgresql://",)),
            ("postgresql://user:hunter2@127.0.0.1:1/x", 3, ("127.0.0.1", "running")),
        )
    ),
    *(
        Typed(f"{line} {value}", 2, (f"'{option}", f"{message}; got '{value}'"), remedy, columns=columns)
        for line, value, option, message, remedy in (
            ("search keys -k", "many", "--top-k", "must be a whole number", "search keys -k 3"),
            ("search keys --deadline", "soon", "--deadline", "must be a number of seconds, at least 0", ""),
            ("status --keep-alive", "-1", "--keep-alive", "must be a number of seconds, at least 0", ""),
            ("index docs --chunk-tokens", "1.5", "--chunk-tokens", "must be a whole number", ""),
        )
        for columns in (80, 1000)
    ),
    Typed("search rotate -x", 2, ("No such option: -x",)),
    Typed("search --after x --top-k 3", 2, ("--after (the cursor contains the options) does not accept --top-k",)),
    Typed("search --after x --fusion rrf", 2, ("--after (the cursor contains the options) does not accept --fusion",)),
    Typed("search --after x --mode keyword", 2, ("--after (the cursor contains the options) does not accept --mode",)),
    Typed("maintain migrate --sql --json", 2, ("--sql",)),
    Typed("maintain migrate --sql --fields name", 2, ("--sql",)),
    Typed("doctor models --data-dir x", 2, ("semlex doctor models uses no database",)),
    Typed("documents preview docs -c c", 2, ("semlex documents preview uses no database",)),
    Typed("serve token list --database x", 2, ("semlex serve token list uses no database",)),
    Typed("search -", 2, ("no question on standard input",), given="\n"),
    Typed("search --queries -", 2, ("no question on standard input",), given="\n"),
    Typed("search --queries none.txt", 2, ("no question in none.txt",)),
    # A shell opens no collection before its options are checked.
    Typed("shell --mode x -c nope", 2, ("'--mode': must be vector, keyword or hybrid; got 'x'",)),
    Typed("shell --top-k 0 -c nope", 2, ("--top-k must be a whole number between 1 and 1,000; got 0",)),
    # --- mistakes whose remedies leave that collection as it is, or make another
    Typed("index docs -c 'my docs'", 2, ("collection", "a-z", "my_docs"), "index docs -c my_docs"),
    Typed("index dcos", 2, ("dcos", "no such file"), "index docs"),
    Typed("try dcos keys", 2, ("dcos", "no such file"), "try docs keys"),
    *(
        Typed(f"index docs -c second{number} --{wrong}", code, says, f"index docs -c second{number} --{right}")
        for number, (wrong, code, says, right) in enumerate((
            ("language klingon", 2, ("klingon", "language", "english"), "language english"),
            ("keyword bm26", 2, ("bm26", "bm25"), "keyword bm25"),
            ("chunk-tokens 5", 2, ("chunk_tokens", "between 16 and", "got 5"), "chunk-tokens 64 --overlap-tokens 8"),
            ("chunk-tokens 64 --overlap-tokens 64", 2, ("overlap_tokens", "64"), "chunk-tokens 64 --overlap-tokens 8"),
            ("chunk-tokens 64 --min-tokens 64", 2, ("min_tokens", "between 0 and 32", "got 64"),
             "chunk-tokens 64 --min-tokens 32"),
            ("model no-such/model", 4, ("no-such/model", "static"), "model static"),
        ))
    ),
    Typed("index docs --language german", 2, ("language", "german", "english"), "index docs --language english"),
    Typed("index .", 2, ("'docs'", "Index those folders", "semlex delete --source docs"), "index docs"),
    Typed("delete", 2, ("ids", "document", "source", "filters"), "delete --source docs --dry-run"),
    Typed("delete --source dcos", 2, ("dcos", "docs"), "delete --source docs --dry-run"),
]  # fmt: skip
# Each in a collection of its own, which the remedy changes.
CHANGES = [
    Typed("index '*.md'", 2, ("*.md", "--include"), "index docs --include '*.md'"),
    Typed(
        "index docs --chunk-tokens 200", 2, ("chunk_tokens", "200", "500", "semlex maintain rechunk"),
        "maintain rechunk --chunk-tokens 200",
    ),
    Typed("search keys --mode vector", 4, ("handbook", "semlex models fill"), "models fill --model static"),
    Typed("collections drop handbok --yes", 6, ("handbok", "handbook"), "collections drop handbook --yes"),
]  # fmt: skip


def indexed(url, folder):
    """A folder that was indexed into the collection ``handbook`` by words."""
    two_documents(folder)
    (folder / "none.txt").write_text("\n  \n", encoding="utf-8")
    (folder / "own.toml").touch()
    shell = Shell(url, folder)
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "none", "SEMLEX_CONFIG": str(folder / "own.toml")}
    shell("index", "docs", "-c", "handbook")
    return shell


@pytest.fixture(scope="module")
def handbook(new_database, tmp_path_factory):
    return indexed(new_database(), tmp_path_factory.mktemp("handbook"))


def words(text):
    """What was printed, as one line without frames."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def type_line(shell, typed, line, folder, **variables):
    collection = {} if " -c " in f" {line} " else {"SEMLEX_COLLECTION": "handbook"}
    environment = shell.environment | collection | {"COLUMNS": str(typed.columns), "NO_COLOR": "1"} | variables
    line = line.format(database=shlex.quote(shell.environment["DATABASE_URL"]))
    done = run_here(tuple(shlex.split(line)), environment, folder, typed.given)
    return done, done.stdout + done.stderr


def check(shell, typed, folder):
    done, printed = type_line(shell, typed, typed.line, folder, **dict(typed.variables))
    assert done.returncode == typed.code, printed
    assert [part for part in ("Traceback", "\x1b", "hunter2", *typed.not_said) if part in printed] == [], printed
    missing = [part for part in typed.says if words(part) not in words(printed) and part not in printed]
    assert not missing, (missing, printed)
    if typed.code:
        assert done.stdout == ""
    if typed.instead:
        if typed.instead != "config trust":
            (folder / "semlex.toml").unlink(missing_ok=True)
        done, printed = type_line(shell, typed, typed.instead, folder)
        assert done.returncode == 0, printed


def name_of(typed):
    return typed.line or "nothing"


@pytest.mark.parametrize("typed", LINES, ids=name_of)
def test_a_line_is_understood_or_answered(handbook, typed, tmp_path):
    if typed.file:
        (tmp_path / "semlex.toml").write_text(typed.file, encoding="utf-8")
    check(handbook, typed, tmp_path if typed.file else handbook.folder)


@pytest.mark.slow
@pytest.mark.parametrize("typed", CHANGES, ids=name_of)
def test_a_remedy_changes_the_collection(database_url, typed, tmp_path):
    check(indexed(database_url, tmp_path), typed, tmp_path)


# --- Python ---------------------------------------------------------------------------------------------------------

GOOD = Document("Rotate the keys.", {"year": 2024}, "keys")
VECTOR = [1.0, 0, 0, 0, 0, 0, 0, 0]


def other(**fields):
    return [GOOD, replace(GOOD, id="other", **fields)]


def add(*arguments, **options):
    return lambda retriever: retriever.add_documents(*arguments, **options)


def search(*arguments, **options):
    return lambda retriever: retriever.search(*arguments, **options)


# A wrong call, parts of its message, and the call that follows the remedy.
CALLED = [
    (add(other(metadata={"when": time(12)})), ("row 1", "'other'", "when", "time", "isoformat"),
     add(other(metadata={"when": time(12).isoformat()}))),
    (add(other(metadata={"score": math.nan})), ("row 1", "'other'", "score", "NaN"),
     add(other(metadata={"score": None}))),
    (add(other(metadata={"tags": {"a"}})), ("row 1", "tags", "set", "list"), add(other(metadata={"tags": ["a"]}))),
    (add(other(content="")), ("row 1", "'other'", "content", "1 character"), add(other(content="x"))),
    (add(other(content="x" * 200_000)), ("row 1", "content", "131,072", "split"), add(other(content="x" * 131_072))),
    (add(other(content="a\0b")), ("row 1", "content", "NUL", "replace"), add(other(content="ab"))),
    (add(other(created_at=datetime(2020, 1, 1))), ("row 1", "created_at", "zone", "tzinfo"),  # noqa: DTZ001
     add(other(created_at=datetime(2020, 1, 1, tzinfo=UTC)))),
    (add(GOOD), ("documents", "Document", "list"), add([GOOD])),
    (add(["text"]), ("row 0", "Document", "str"), lambda retriever: retriever.add_texts(["text"])),
    (add([GOOD], [[1.0, 2.0]]), ("2", "8", "dimensions"), add([GOOD], [VECTOR])),
    (add([GOOD, GOOD], [VECTOR]), ("embedding", "1", "2"), add([GOOD, GOOD], [VECTOR, VECTOR])),
    (add([GOOD], np.zeros((1, 8))), ("row 0", "embedding", "zero"), add([GOOD], [VECTOR])),
    (add([GOOD], on_duplicate="Update"), ("on_duplicate", "update", "skip"), add([GOOD], on_duplicate="update")),
    (search("keys", filters={"year": {"$gte ": 3}}), ("filter", "year", "$gte"), search("keys", filters={"year": 3})),
    (search("keys", filters=["year"]), ("filters", "list"), search("keys", filters={"year": 2024})),
    (search(vector=[1.0]), ("vector", "8"), search(vector=VECTOR)),
    (search("keys", rerank=True), ("rerank", "reranker_model="), search("keys", rerank=False)),
    (search("keys", deadline=-1), ("deadline", "-1"), search("keys", deadline=60)),
    (search("keys", weights={"words": 1}), ("weights", "keyword"),
     search("keys", weights={"vector": 0.5, "keyword": 0.5})),
    (lambda _: BulkIngestConfig(batch_size=0), ("batch_size", "0"), lambda _: BulkIngestConfig(batch_size=1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def retriever(new_database):
    with sync_opened(new_database()) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize(("call", "says", "instead"), CALLED, ids=[" ".join(says) for _, says, _ in CALLED])
def test_a_mistake_in_python(retriever, call, says, instead):
    retriever.delete([chunk.id for chunk in retriever.list_chunks()])
    retriever.add_documents([GOOD])
    with pytest.raises(SemlexError) as caught:
        call(retriever)
    missing = [part for part in says if part not in str(caught.value)]
    assert not missing, (missing, str(caught.value))
    assert retriever.count() == 1
    instead(retriever)
