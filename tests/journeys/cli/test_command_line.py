"""How the command line reads its arguments, ends, and is interrupted."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex.cli.groups import VERBOSITY, command_first, open_numbered, question_last, verbosity_first
from semlex.retriever.embeddings import Embeddings
from semlex.retriever.synchronous import SyncRetriever, synchronous_class
from tests.support.shell import Shell, run_fresh


@pytest.mark.slow
def test_codes_as_a_script_sees_them(program: Shell, shell: Shell) -> None:
    assert " 130  interrupted" in shell("--help").stdout
    shell("index", "docs", "--model", "none")
    shell("models", "fill", "--model", "none", code=4)
    program("search", "key", "--deadline", "0.0000001", code=7)
    program("search", "key", "-c", "missing", code=6)


@pytest.mark.parametrize("arguments", [(), ("maintain",), ("eval",)], ids=" ".join)
def test_nothing_asked_is_a_question_for_help(shell: Shell, arguments: tuple[str, ...]) -> None:
    done = shell(*arguments)
    assert "Usage: semlex" in done.stdout
    assert done.stdout == shell(*arguments, "--help").stdout


def test_version(shell: Shell) -> None:
    assert semlex.__version__ == importlib.metadata.version("semlex")
    assert shell("--version").stdout == f"semlex {semlex.__version__}\n"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion(shell: Shell, name: str) -> None:
    shell.environment |= {
        "_SEMLEX_COMPLETE": f"complete_{name}",
        "COMP_WORDS": "semlex se",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "semlex se",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "search" in shell().stdout
    del shell.environment["_SEMLEX_COMPLETE"]
    assert "--install-completion" in shell("--help").stdout


@pytest.mark.slow
def test_quiet_and_verbose_before_or_behind_a_command(shell: Shell) -> None:
    shell.environment["SEMLEX_LANGUAGE"] = "german"
    assert shell("index", "docs", "--quiet", "--language", "english").stderr == ""
    done = shell("-q", "search", "yellow fruit")
    assert "fruit.txt" in done.stdout
    assert done.stderr == ""
    expected = "language = german (SEMLEX_LANGUAGE) is not used: the collection has english"
    for arguments in (("--verbose", "search", "fruit"), ("search", "fruit", "--verbose"), ("search", "fruit", "-v")):
        assert expected in shell(*arguments).stderr
    assert expected not in shell("search", "fruit").stderr
    assert "exclude each other" in shell("search", "fruit", "--quiet", "--verbose", code=2).stderr


@given(st.lists(st.sampled_from(["word", *VERBOSITY, "--", "-c"])))
def test_what_is_moved_to_the_front(arguments: list[str]) -> None:
    found = verbosity_first(arguments)
    assert sorted(found) == sorted(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert found[end:] == arguments[end:]
    kinds = [word in VERBOSITY for word in found[:end]]
    assert kinds == sorted(kinds, reverse=True)


@pytest.mark.parametrize("columns", ["80", "1000"])
@pytest.mark.parametrize(
    ("arguments", "option", "expected"),
    [
        (("search", "keys", "-k", "many"), "--top-k", "must be a whole number; got 'many'"),
        (("search", "keys", "--deadline", "soon"), "--deadline", "must be a number of seconds, at least 0; got 'soon'"),
        (("status", "--keep-alive", "-1"), "--keep-alive", "must be a number of seconds, at least 0; got '-1'"),
        (("index", "docs", "--chunk-tokens", "1.5"), "--chunk-tokens", "must be a whole number; got '1.5'"),
    ],
)
def test_a_value_that_is_no_number(
    shell: Shell, columns: str, arguments: tuple[str, ...], option: str, expected: str
) -> None:
    shell.environment |= {"COLUMNS": columns, "NO_COLOR": "1"}
    told = shell(*arguments, code=2).stderr
    assert "\x1b" not in told
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", told).split())
    assert option in words
    assert expected in words


def test_help_breaks_its_lines_at_the_terminals_edge(shell: Shell) -> None:
    shell.environment["COLUMNS"] = "80"
    text = shell("index", "--help").stdout.split("╭")[0]
    paragraphs = [part.split("\n") for part in re.sub(r"(?m)^ +| +$", "", text).split("\n\n")]
    (lines,) = (part for part in paragraphs if part[0].startswith("Unchanged"))
    assert len(lines) > 1
    for line, following in itertools.pairwise(lines):
        assert len(line) + 1 + len(following.split()[0]) > 78, (line, following)


# --- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_question_needs_no_quotes_and_may_begin_with_a_dash(shell: Shell) -> None:
    shell("index", "docs", "-c", "chg", "--model", "none")
    *hits, _ = shell.objects("search", "yellow", "fruit", "-c", "chg")
    assert {hit["source_document"] for hit in hits} == {"fruit.txt"}
    *hits, _ = shell.objects("search", "-keys fruit", "-c", "chg")
    assert {hit["source_document"] for hit in hits} == {"fruit.txt"}
    assert "1. " in shell("search", "-c", "chg", "--", "-keys", "fruit").stdout
    *hits, _ = shell.objects("try", "docs", "yellow", "fruit", "--model", "none")
    assert hits[0]["source_document"] == "fruit.txt"


def test_what_looks_like_an_option_is_one(shell: Shell) -> None:
    assert "No such option: -x" in shell("search", "fruit", "-x", code=2).stderr
    done = shell("search", "fruit", "--colection", "chg", code=2)
    assert "--collection" in done.stderr.replace("--colection", "")
    assert "give a question" in shell("search", code=2).stderr


@given(st.lists(st.sampled_from(["word", "-c", "chg", "-x y", "--json", "--filter", "-a b", "--top-k=3"])))
def test_every_argument_is_kept_once(arguments: list[str]) -> None:
    found = question_last(arguments, {"-c", "--filter"})
    assert sorted(word for word in found if word != "--") == sorted(arguments)
    options = found[: found.index("--")] if "--" in found else found
    for before, word in zip(["", *options], options, strict=False):
        assert " " not in word or before in ("-c", "--filter")


@given(
    before=st.lists(st.sampled_from(["word", "-c", "chg"])), after=st.lists(st.sampled_from(["-c", "--json", "-a b"]))
)
def test_what_follows_two_dashes_stays_there(before: list[str], after: list[str]) -> None:
    found = question_last([*before, "--", *after], {"-c"})
    assert found == [*before, "--", *after] if after else found == before


WORDS = st.lists(st.sampled_from(["word", "search", "-q", "--json", "-c", "--open", "3", "--"]))


@given(WORDS)
def test_a_command_is_moved_before_options_that_are_not_semlexs(arguments: list[str]) -> None:
    found = command_first(arguments, ["search"], {"-q"})
    assert sorted(found) == sorted(arguments)
    begin = next((place for place, word in enumerate(arguments) if word != "-q"), 0)
    if found != arguments:
        assert arguments[begin].startswith("-")
        assert found[begin] == "search"
        assert [word for word in found if word != "search"] == [word for word in arguments if word != "search"]


@given(WORDS)
def test_open_without_a_number_is_that_of_the_first_hit(arguments: list[str]) -> None:
    found = open_numbered(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert [word.replace("--open=1", "--open") for word in found] == arguments
    assert found[end:] == arguments[end:]
    for word, following in itertools.pairwise([*found[:end], "--"]):
        assert word != "--open" or following == "3"


# --- what is not there ----------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_makes_no_collection(shell: Shell) -> None:
    assert "no such file or folder" in shell("try", "nope", "key", code=2).stderr
    assert "no such file or folder" in shell("index", "docs", "nope", "-c", "half", code=2).stderr
    assert "--include" in shell("index", "docs/*.rst", code=2).stderr
    assert shell.objects("collections") == []


@pytest.mark.slow
def test_the_only_collection_needs_no_name(shell: Shell) -> None:
    assert "no collection exists" in shell("search", "fruit", code=6).stderr
    shell("index", "docs", "-c", "only", "--model", "none")
    *hits, _ = shell.objects("search", "fruit")
    assert hits
    [status] = shell.objects("status")
    assert status["documents"] == 2
    shell.environment["SEMLEX_COLLECTION"] = "other"
    assert "only" in shell("search", "fruit", code=6).stderr
    del shell.environment["SEMLEX_COLLECTION"]
    shell("index", "docs", "-c", "second", "--model", "none")
    refused = shell("search", "fruit", code=6).stderr
    assert "only" in refused
    assert "second" in refused


# --- the end --------------------------------------------------------------------------------------------------------

# The handler is Python's own, also where the tests run in the background of a shell, which ignores the signal.
INTERRUPT = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); signal.raise_signal(signal.SIGINT)"
)
AS_AN_IMPORT_ERROR = f"try:\n    {INTERRUPT}\nexcept KeyboardInterrupt:\n    raise ImportError('DLL load failed')"
AS_A_CAUSE = (
    f"try:\n    {INTERRUPT}\nexcept KeyboardInterrupt as error:\n    raise SystemError('unreported') from error"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module"),
    [("typer", INTERRUPT), ("psycopg", INTERRUPT), ("psycopg", AS_AN_IMPORT_ERROR), ("psycopg", AS_A_CAUSE)],
    ids=["first", "last", "as an ImportError", "as a cause"],
)
def test_ctrl_c_while_modules_are_loaded(shell: Shell, tmp_path: Path, name: str, module: str) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / f"{name}.py").write_text(module, encoding="utf-8")
    started = Shell(shell.environment["DATABASE_URL"], shell.folder, run_fresh)
    started.environment["PYTHONPATH"] = f"{tmp_path / 'first'}:{os.environ.get('PYTHONPATH', '')}"
    done = started("status", code=130)
    assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("method", "arguments", "told"),
    [
        ("checkup", ("eval", "checkup"), "interrupted\n"),
        ("answer_stream", ("ask", "how"), "interrupted\n"),
        ("search", ("search", "how"), "interrupted\n"),
        ("fill", ("models", "fill"), "the same command continues from there\n"),
    ],
)
def test_ctrl_c_is_told_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, method: str, arguments: tuple[str, ...], told: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    shell("index", "docs", "--model", "none")
    monkeypatch.setattr(synchronous_class(Embeddings) if method == "fill" else SyncRetriever, method, interrupted)
    said = shell(*arguments, code=130).stderr
    assert said.endswith(told)
    assert said.count("interrupted") == 1


@pytest.mark.slow
def test_a_closed_pipe_is_quiet(shell: Shell) -> None:
    shell("index", "docs", "--model", "none")
    reads, writes = os.pipe()
    os.close(reads)
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "semlex", "search", "key", "fruit", *options],
            env=shell.environment, cwd=shell.folder, stdout=writes, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, "")
    os.close(writes)


@pytest.mark.parametrize("option", ["--top-k", "--fusion", "--mode"])
def test_a_page_takes_no_option_of_a_search(shell: Shell, option: str) -> None:
    value = {"--top-k": "3", "--fusion": "rrf", "--mode": "keyword"}[option]
    refused = shell("search", "--after", "x", option, value, code=2)
    assert f"--after (the cursor holds the search) does not accept {option}" in refused.stderr


@pytest.mark.parametrize("option", [("--json",), ("--fields", "name")])
def test_a_migrations_sql_is_no_json(shell: Shell, option: tuple[str, ...]) -> None:
    assert "--sql" in shell("maintain", "migrate", "--sql", *option, code=2).stderr
