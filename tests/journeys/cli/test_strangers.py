"""Command lines as strangers type them: each does what was meant, or says what to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.shell import PAGE, Shell, run_here


@dataclass(frozen=True)
class Typed:
    """A command line.

    Attributes:
        line: As it was typed, after ``semlex``.
        code: Its exit code.
        says: Parts of what is printed, on whichever stream.
        given: What stands on standard input.
        columns: Width of the terminal.
        not_said: Parts that must not be printed.
    """

    line: str
    code: int
    says: tuple[str, ...]
    given: str = ""
    columns: int = 120
    not_said: tuple[str, ...] = ()


KEYS = ("docs/keys.md", "ninety days")
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
    Typed("serach rotate", 2, ("Did you mean: semlex search rotate?",)),
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
    Typed("search rotate -c handbok", 6, ("did you mean 'handbook'?",)),
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
    Typed("search rotate --fields ,", 2, ("--fields names keys",)),
    Typed("search --after foo", 2, ("cursor", "next_cursor of an earlier page", "complete and unchanged")),
    Typed("search rotate --after foo", 2, ("give a question", "--after")),
    Typed("search rotate --open", 2, ("--open needs a terminal",)),
    Typed("search rotate -c handbok", 6, ("collection 'handbok' does not exist", "handbook", "Server: host=")),
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
]


@pytest.fixture(scope="module")
def stranger(new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder that was indexed into the collection ``handbook`` by words."""
    folder: Path = tmp_path_factory.mktemp("stranger")
    (folder / "docs").mkdir()
    (folder / "docs" / "keys.md").write_text(PAGE, encoding="utf-8")
    (folder / "docs" / "fruit.txt").write_text("A banana is a yellow fruit.\n", encoding="utf-8")
    shell = Shell(new_database(), folder)
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "none", "SEMLEX_CONFIG": str(folder / "own.toml")}
    (folder / "own.toml").touch()
    shell("index", "docs", "-c", "handbook")
    return shell


def words(text: str) -> str:
    """What was printed, as one line without frames."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("typed", LINES, ids=lambda typed: typed.line or "nothing")
def test_a_line_is_understood_or_answered(stranger: Shell, typed: Typed) -> None:
    collection = {} if " -c " in f" {typed.line} " else {"SEMLEX_COLLECTION": "handbook"}
    environment = stranger.environment | collection | {"COLUMNS": str(typed.columns), "NO_COLOR": "1"}
    done = run_here(tuple(shlex.split(typed.line)), environment, stranger.folder, typed.given)
    printed = done.stdout + done.stderr
    assert done.returncode == typed.code, printed
    assert "Traceback" not in printed
    assert "\x1b[" not in printed
    said = words(printed)
    missing = [part for part in typed.says if words(part) not in said and part not in printed]
    assert not missing, (missing, printed)
    assert not [part for part in typed.not_said if part in printed], printed
    if typed.code:
        assert done.stdout == ""


def test_there_are_enough_of_them() -> None:
    assert len(LINES) >= 60
