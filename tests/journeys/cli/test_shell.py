"""``semlex shell``: questions and commands from a pipe and from a person, history, Tab, Ctrl-C."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from semlex.cli.commands import shell as session
from semlex.cli.commands.shell import MAX_HISTORY, History, write_history
from semlex.retriever.synchronous import SyncRetriever
from semlex.types.documents import Document
from tests.support.shell import Shell, run_here


@pytest.fixture
def handbook(shell: Shell) -> Shell:
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    shell.environment["SEMLEX_DATA_DIR"] = str(shell.folder / "data")
    shell("index", "docs", "-c", "handbook")
    return shell


def piped(handbook: Shell, *lines: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    text = "".join(f"{line}\n" for line in lines)
    return run_here(("shell", *options), handbook.environment, handbook.folder, text)


def typed(
    handbook: Shell, monkeypatch: pytest.MonkeyPatch, *lines: str | BaseException, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """The same from a person, who ends with Ctrl-D."""
    import readline

    waiting = iter((*lines, EOFError()))

    def read(_: str) -> str:
        line = next(waiting)
        if isinstance(line, BaseException):
            raise line
        readline.add_history(line)
        return line

    readline.clear_history()
    with monkeypatch.context() as patch:
        patch.setattr("builtins.input", read)
        patch.setattr(session, "is_interactive", lambda: True)
        return run_here(("shell", *options), handbook.environment, handbook.folder)


def test_lines_of_a_pipe_are_answered_without_a_prompt(handbook: Shell) -> None:
    done = piped(handbook, "rotate", "", ":top 1", ":json", "yellow fruit", ":quit", "rotate")
    assert done.returncode == 0, done.stderr
    assert "1. docs/keys.md:" in done.stdout
    assert "handbook>" not in done.stdout + done.stderr
    hit, summary = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert hit["source_document"] == "fruit.txt"
    assert summary["hits"] == 1


def test_the_code_is_that_of_the_last_error(handbook: Shell) -> None:
    done = piped(handbook, ":collection nope", ":filter year ==", "rotate")
    assert done.returncode == 2
    assert "collection 'nope' does not exist" in done.stderr
    assert ":filter at column 8" in done.stderr
    assert "docs/keys.md" in done.stdout
    assert piped(handbook, ":filter year ==", ":collection nope").returncode == 6
    assert piped(handbook, ":nosuch", ":quit", "rotate").returncode == 2
    assert piped(handbook, "rotate").returncode == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (":why", ":why explains the last question: ask one first"),
        (":open", ":open opens a hit of the last question: ask one first"),
        (":mdoe keyword", "unknown command :mdoe: did you mean :mode?"),
        (":xyzzy", "unknown command :xyzzy: :help lists the commands"),
        (":", ":help lists the commands"),
        (":mode both", ":mode takes vector, keyword, hybrid; got 'both'"),
        (":top", "must be a whole number; got ''"),
        (":top 0", "must be between 1 and 1,000; got 0"),
    ],
)
def test_a_wrong_command_says_what_to_type(handbook: Shell, line: str, says: str) -> None:
    done = piped(handbook, line)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_commands_change_the_next_questions(handbook: Shell) -> None:
    (handbook.folder / "more").mkdir()
    (handbook.folder / "more" / "tea.txt").write_text("Tea is rotated, too.\n", encoding="utf-8")
    handbook("index", "more", "-c", "second")
    lines = (
        "rotate",
        ":why fruit.txt",
        ":filter @source_document == 'fruit.txt'",
        "rotate",
        ":filter",
        ":collection second",
    )
    done = piped(handbook, *lines, "rotate", ":explain", "rotate", options=("-c", "handbook"))
    assert done.returncode == 0, done.stderr
    assert "docs: fruit.txt" in done.stdout
    assert "nothing found" in done.stdout
    assert done.stdout.count("more/tea.txt") == 2
    assert "collection: second" in done.stderr
    assert "weight" in done.stdout.rsplit("tea.txt", 1)[1]


def test_why_needs_a_question_of_the_same_collection(handbook: Shell) -> None:
    handbook("index", "docs", "-c", "second")
    done = piped(handbook, "rotate", ":collection second", ":why keys.md", options=("-c", "handbook"))
    assert ":why explains the last question" in done.stderr


def test_ctrl_c_ends_a_question_and_not_the_shell(handbook: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = SyncRetriever.search

    def search(self: SyncRetriever, query: str, *arguments: object, **options: object) -> object:
        if query == "slow":
            raise KeyboardInterrupt
        return searched(self, query, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SyncRetriever, "search", search)
    done = typed(handbook, monkeypatch, KeyboardInterrupt(), "slow", "rotate")
    assert done.returncode == 0
    assert "cancelled" in done.stderr
    assert "docs/keys.md" in done.stdout
    assert piped(handbook, "slow", "rotate").returncode == 130


def test_history_is_kept_for_the_owner_alone(handbook: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    file = handbook.folder / "data" / "shell_history"
    typed(handbook, monkeypatch, "rotate", options=("--no-history",))
    assert not file.exists()
    typed(handbook, monkeypatch, "rotate", ":top 1")
    typed(handbook, monkeypatch, "banana")
    assert file.read_text(encoding="utf-8") == "rotate\n:top 1\nbanana\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir() if "history" in one.name] == ["shell_history"]
    piped(handbook, "vault")
    assert "vault" not in file.read_text(encoding="utf-8")


def test_a_history_that_cannot_be_kept_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    write_history(tmp_path / "file" / "history", ["a"])
    assert "--no-history" in capsys.readouterr().err
    write_history(tmp_path / "history", [f"line {number}" for number in range(MAX_HISTORY + 5)])
    assert (tmp_path / "history").read_text().splitlines()[0] == "line 5"


@pytest.fixture
def opened(handbook: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[session.Session]:
    from semlex.cli.context import Context

    for name, value in handbook.environment.items():
        monkeypatch.setenv(name, value)
    context = Context(collection="handbook", embedding_model="none")
    shell = session.Session(context, context.settings(), {}, 5, as_json=False)
    shell.open(shell.settings)
    yield shell
    shell.close()


def test_tab_completes_commands_modes_collections_and_fields(opened: session.Session) -> None:
    opened.retriever.add_documents([Document("x", {"year": 2020})])
    found = {line: list(opened.candidates(line)) for line in (":m", ":mode k", ":collection h", ":filter y", "words h")}
    assert ":mode" in found[":m"]
    assert set(found[":m"]) == {f":{name}" for name in session.HELP}
    assert found[":mode k"] == ["vector", "keyword", "hybrid"]
    assert found[":collection h"] == ["handbook"]
    assert {"year", "@source_document"} <= set(found[":filter y"])
    assert found["words h"] == []


def test_tab_offers_what_begins_so_and_is_silent_about_errors() -> None:
    history = History(None, lambda _: [":mode", ":open", ":other"])
    assert [history.complete(":o", state) for state in range(3)] == [":open", ":other", None]
    assert history.complete(":m", 0) == ":mode "

    def fails(_: str) -> list[str]:
        raise ValueError

    assert History(None, fails).complete(":", 0) is None


def test_the_number_of_hits_is_that_of_the_settings(handbook: Shell) -> None:
    handbook.environment["SEMLEX_TOP_K"] = "1"
    for options, hits in (((), 1), (("--top-k", "2"), 2)):
        done = piped(handbook, "keys banana", options=(*options, "--json"))
        assert sum("rank" in json.loads(line) for line in done.stdout.splitlines()) == hits
