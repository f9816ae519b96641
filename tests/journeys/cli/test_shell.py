"""``semlex shell`` from a pipe and from a person; ``semlex why`` and ``semlex search --explain``."""

import json
import re
import stat
from typing import get_args

import pytest

from semlex.cli.commands import shell as session
from semlex.cli.commands.shell import MAX_HISTORY, History, write_history
from semlex.retriever.synchronous import SyncRetriever
from semlex.types.documents import Document
from semlex.types.explanations import WhyCode
from tests.support.folders import documentation
from tests.support.shell import run_here


@pytest.fixture
def handbook(shell):
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "none", "SEMLEX_DATA_DIR": str(shell.folder / "data")}
    shell("index", "docs", "-c", "handbook")
    return shell


def piped(handbook, *lines, options=()):
    text = "".join(f"{line}\n" for line in lines)
    return run_here(("shell", *options), handbook.environment, handbook.folder, text)


def typed(handbook, monkeypatch, *lines, options=()):
    """The same from a person, who ends with Ctrl-D."""
    import readline

    waiting = iter((*lines, EOFError()))

    def read(_):
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


def test_lines_of_a_pipe_are_answered_without_a_prompt_and_the_code_is_that_of_the_last_error(handbook):
    done = piped(handbook, "rotate", "", ":top 1", ":json", "yellow fruit", ":quit", "rotate")
    assert done.returncode == 0, done.stderr
    assert "1. docs/keys.md:" in done.stdout
    assert "handbook>" not in done.stdout + done.stderr
    hit, summary = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (hit["source_document"], summary["hits"]) == ("fruit.txt", 1)
    done = piped(handbook, ":collection nope", ":filter year ==", "rotate")
    assert done.returncode == 2
    assert "collection 'nope' does not exist" in done.stderr
    assert ":filter at column 8" in done.stderr
    assert "docs/keys.md" in done.stdout
    assert piped(handbook, ":filter year ==", ":collection nope").returncode == 6
    assert piped(handbook, ":nosuch", ":quit", "rotate").returncode == 2
    assert piped(handbook, "rotate").returncode == 0


def test_a_wrong_command_says_what_to_type(handbook):
    for line, says in (
        (":why", ":why explains the last question: ask one first"),
        (":open", ":open opens a hit of the last question: ask one first"),
        (":mdoe keyword", "unknown command :mdoe: did you mean :mode?"),
        (":xyzzy", "unknown command :xyzzy: :help lists the commands"),
        (":", ":help lists the commands"),
        (":mode both", ":mode takes vector, keyword, hybrid; got 'both'"),
        (":top", "must be a whole number between 1 and 1,000; got ''"),
        (":top 0", "must be a whole number between 1 and 1,000; got '0'"),
    ):
        done = piped(handbook, line)
        assert (done.returncode, done.stdout) == (2, ""), line
        assert says in done.stderr


def test_commands_change_the_next_questions(handbook):
    (handbook.folder / "more").mkdir()
    (handbook.folder / "more" / "tea.txt").write_text("Tea is rotated, too.\n", encoding="utf-8")
    handbook("index", "more", "-c", "second")
    lines = ("rotate", ":why fruit.txt", ":filter @source_document == 'fruit.txt'", "rotate", ":filter",
             ":collection second", "rotate", ":explain", "rotate")  # fmt: skip
    done = piped(handbook, *lines, options=("-c", "handbook"))
    assert done.returncode == 0, done.stderr
    assert "docs: fruit.txt" in done.stdout
    assert "nothing found" in done.stdout
    assert done.stdout.count("more/tea.txt") == 2
    assert "collection: second" in done.stderr
    assert "weight" in done.stdout.rsplit("tea.txt", 1)[1]
    # The last question was of another collection.
    done = piped(handbook, "rotate", ":collection second", ":why tea.txt", options=("-c", "handbook"))
    assert ":why explains the last question" in done.stderr


def test_ctrl_c_ends_a_question_and_not_the_shell(handbook, monkeypatch):
    searched = SyncRetriever.search

    def search(self, query, *arguments, **options):
        if query == "slow":
            raise KeyboardInterrupt
        return searched(self, query, *arguments, **options)

    monkeypatch.setattr(SyncRetriever, "search", search)
    done = typed(handbook, monkeypatch, KeyboardInterrupt(), "slow", "rotate")
    assert done.returncode == 0
    assert "cancelled" in done.stderr
    assert "docs/keys.md" in done.stdout
    assert piped(handbook, "slow", "rotate").returncode == 130


def test_history_is_kept_for_the_owner_alone(handbook, monkeypatch):
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


def test_a_history_that_cannot_be_kept_is_told(tmp_path, capsys):
    (tmp_path / "file").touch()
    write_history(tmp_path / "file" / "history", ["a"])
    assert "--no-history" in capsys.readouterr().err
    write_history(tmp_path / "history", [f"line {number}" for number in range(MAX_HISTORY + 5)])
    assert (tmp_path / "history").read_text().splitlines()[0] == "line 5"


@pytest.fixture
def opened(handbook, monkeypatch):
    from semlex.cli.context import Context

    for name, value in handbook.environment.items():
        monkeypatch.setenv(name, value)
    context = Context(collection="handbook", embedding_model="none")
    shell = session.Session(context, context.settings(), {}, 5, as_json=False)
    shell.open(shell.settings)
    yield shell
    shell.close()


def test_tab_completes_commands_modes_collections_and_fields(opened):
    opened.retriever.add_documents([Document("x", {"year": 2020})])
    found = {line: list(opened.candidates(line)) for line in (":m", ":mode k", ":collection h", ":filter y", "words h")}
    assert ":mode" in found[":m"]
    assert set(found[":m"]) == {f":{name}" for name in session.HELP}
    assert found[":mode k"] == ["vector", "keyword", "hybrid"]
    assert found[":collection h"] == ["handbook"]
    assert {"year", "@source_document"} <= set(found[":filter y"])
    assert found["words h"] == []


def test_tab_offers_what_begins_so_and_is_silent_about_errors():
    history = History(None, lambda _: [":mode", ":open", ":other"])
    assert [history.complete(":o", state) for state in range(3)] == [":open", ":other", None]
    assert history.complete(":m", 0) == ":mode "

    def fails(_):
        raise ValueError

    assert History(None, fails).complete(":", 0) is None


def test_the_number_of_hits_is_that_of_the_settings(handbook):
    handbook.environment["SEMLEX_TOP_K"] = "1"
    for options, hits in (((), 1), (("--top-k", "2"), 2)):
        done = piped(handbook, "keys banana", options=(*options, "--json"))
        assert sum("rank" in json.loads(line) for line in done.stdout.splitlines()) == hits


# --- why and explain ------------------------------------------------------------------------------------------------

IN_HANDBOOK = ("-c", "handbook")


@pytest.fixture
def indexed(handbook):
    """The same without SEMLEX_EMBEDDING_MODEL: only the stored collection says that it uses no model."""
    del handbook.environment["SEMLEX_EMBEDDING_MODEL"]
    return handbook


@pytest.mark.slow
def test_why_takes_the_options_of_the_search(indexed):
    there = indexed("why", "keys.md", "rotate", "a", "key", *IN_HANDBOOK)
    assert there.stdout.startswith("docs: keys.md: found\nit is hit 1 of 1 [found]\n")
    assert "word 'rotat' (weight " in there.stdout
    only_fruit = ("--filter", '@source_document == "fruit.txt"')
    (filtered,) = indexed.objects("why", "docs/keys.md", "key", *IN_HANDBOOK, *only_fruit)
    assert (filtered["code"], filtered["found"], filtered["reasons"][0]["code"]) == ("filtered", False, "filtered")
    excluded = indexed("why", "keys.md", "vault -rotate key", *IN_HANDBOOK)
    assert "[excluded]\n  remedy: " in excluded.stdout
    exact = ("--mode", "keyword", "--top-k", "3")
    assert "[excluded]" in indexed("why", "keys.md:5", '-"ninety days" key', *IN_HANDBOOK, *exact).stdout
    assert "[never_seen]" in indexed("why", "nobody.md", "key", *IN_HANDBOOK).stdout
    for option in (["--group", "2"], ["--max-results", "9"], ["--candidates", "40"], ["--fusion", "rrf"]):
        assert "[found]" in indexed("why", "keys.md", "key", *IN_HANDBOOK, *option).stdout
    indexed("why", "keys.md", *IN_HANDBOOK, code=2)
    indexed("why", "keys.md", "key", *IN_HANDBOOK, "--candidates", "1", code=2)


def test_why_follows_the_settings_as_the_search_does(indexed):
    query = "a key is a yellow fruit"
    for variable, value, told in (
        ("SEMLEX_OVERSAMPLING", "100", '"depth": 500'),
        ("SEMLEX_TOP_K", "1", "it is hit 1 of 1"),
        ("SEMLEX_ROUTE", "rules", "the kind of the query is"),
    ):
        indexed.environment[variable] = value
        (of_command,) = indexed.objects("why", "fruit.txt", query, *IN_HANDBOOK)
        of_shell = piped(indexed, query, ":json", ":why fruit.txt", options=IN_HANDBOOK).stdout.splitlines()[-1]
        assert json.loads(of_shell) == of_command
        assert told in json.dumps(of_command)
        del indexed.environment[variable]


def test_an_explained_search(indexed):
    told = indexed("search", "key", *IN_HANDBOOK, "--explain").stdout
    work = "2 postings read, 0 blocks skipped, 1 chunks rescored"
    plan = f"plan: keyword: keyword index ({work}); 30 candidates of each search, 1 together"
    assert f"{plan}\nreranker: none\n1. keys.md:" in told
    *_, summary = indexed.objects("search", "key", *IN_HANDBOOK, "--explain")
    assert summary["explanation"]["hits"][0]["terms"][0]["term"] == "key"
    assert indexed.objects("search", "key", *IN_HANDBOOK)[-1]["explanation"] is None
    indexed("search", "--after", "abc", "--explain", *IN_HANDBOOK, code=2)


def test_the_page_names_every_code():
    page = documentation("search-options.md").read_text(encoding="utf-8").split("## Reasons\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(get_args(WhyCode))
