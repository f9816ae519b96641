"""How the command line reads its arguments and lines, prints, ends, and is interrupted."""

import importlib.metadata
import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex.cli import output
from semlex.cli.groups import VERBOSITY, command_first, open_numbered, question_last, verbosity_first
from semlex.cli.options import read_lines
from semlex.cli.terminal import SafeConsole
from semlex.errors import CollectionNotFoundError
from semlex.retriever.embeddings import Embeddings
from semlex.retriever.synchronous import SyncRetriever, synchronous_class
from semlex.store.schema.locks import no_such_collection
from tests.support.folders import CLIENTS
from tests.support.shell import Shell, run_fresh, run_here, run_process, two_documents

FULL = Path("/dev/full")
FILLER = "filler words about nothing much at all. "
LONG = f"{FILLER * 4}The zebra eats grass. {FILLER * 3}"


@pytest.fixture(scope="module")
def prepared(new_database, tmp_path_factory):
    """A database with the collections ``handbook`` and ``animals``, and a folder, for tests that leave them alone."""
    url, folder = new_database(), tmp_path_factory.mktemp("prepared")
    (two_documents(folder).parent / "long.md").write_text(f"# Animals\n\n{LONG}\n")
    for path, collection in (("docs", "handbook"), ("long.md", "animals")):
        Shell(url, folder)("index", path, "-c", collection, "--model", "none")
    return url, folder


@pytest.fixture
def handbook(prepared):
    shell = Shell(*prepared)
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "none", "SEMLEX_COLLECTION": "handbook"}
    return shell


@pytest.fixture
def narrow(handbook):
    handbook.environment["COLUMNS"] = "40"
    return handbook


@pytest.mark.slow
def test_codes_as_a_script_sees_them(handbook):
    assert " 130  interrupted" in handbook("--help").stdout
    handbook("models", "fill", "--model", "none", code=4)
    program = Shell(handbook.environment["DATABASE_URL"], handbook.folder, run_process)
    program("search", "key", "-c", "handbook", "--deadline", "0.0000001", code=7)
    program("search", "key", "-c", "missing", code=6)


@pytest.mark.parametrize("arguments", [(), ("maintain",), ("eval",)], ids=" ".join)
def test_nothing_asked_is_a_question_for_help(handbook, arguments):
    done = handbook(*arguments)
    assert "Usage: semlex" in done.stdout
    assert done.stdout == handbook(*arguments, "--help").stdout


def test_version(handbook):
    assert semlex.__version__ == importlib.metadata.version("semlex")
    assert handbook("--version").stdout == f"semlex {semlex.__version__}\n"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion(handbook, name):
    handbook.environment |= {
        "_SEMLEX_COMPLETE": f"complete_{name}",
        "COMP_WORDS": "semlex se",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "semlex se",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "search" in handbook().stdout
    del handbook.environment["_SEMLEX_COMPLETE"]
    assert "--install-completion" in handbook("--help").stdout


@pytest.mark.slow
def test_quiet_and_verbose_before_or_behind_a_command(shell):
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
def test_what_is_moved_to_the_front(arguments):
    found = verbosity_first(arguments)
    assert sorted(found) == sorted(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert found[end:] == arguments[end:]
    kinds = [word in VERBOSITY for word in found[:end]]
    assert kinds == sorted(kinds, reverse=True)


def test_help_breaks_its_lines_at_the_terminals_edge(handbook):
    handbook.environment["COLUMNS"] = "80"
    text = handbook("index", "--help").stdout.split("╭")[0]
    paragraphs = [part.split("\n") for part in re.sub(r"(?m)^ +| +$", "", text).split("\n\n")]
    (lines,) = (part for part in paragraphs if part[0].startswith("Unchanged"))
    assert len(lines) > 1
    for line, following in itertools.pairwise(lines):
        assert len(line) + 1 + len(following.split()[0]) > 78, (line, following)


# --- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_question_needs_no_quotes_and_may_begin_with_a_dash(handbook):
    *hits, _ = handbook.objects("search", "yellow", "fruit", "-c", "handbook")
    assert {hit["source_document"] for hit in hits} == {"fruit.txt"}
    *hits, _ = handbook.objects("search", "-keys fruit", "-c", "handbook")
    assert {hit["source_document"] for hit in hits} == {"fruit.txt"}
    assert "1. " in handbook("search", "-c", "handbook", "--", "-keys", "fruit").stdout
    *hits, _ = handbook.objects("try", "docs", "yellow", "fruit", "--model", "none")
    assert hits[0]["source_document"] == "fruit.txt"


@given(st.lists(st.sampled_from(["word", "-c", "chg", "-x y", "--json", "--filter", "-a b", "--top-k=3"])))
def test_every_argument_is_kept_once(arguments):
    found = question_last(arguments, {"-c", "--filter"})
    assert sorted(word for word in found if word != "--") == sorted(arguments)
    options = found[: found.index("--")] if "--" in found else found
    for before, word in zip(["", *options], options, strict=False):
        assert " " not in word or before in ("-c", "--filter")


@given(
    before=st.lists(st.sampled_from(["word", "-c", "chg"])), after=st.lists(st.sampled_from(["-c", "--json", "-a b"]))
)
def test_what_follows_two_dashes_stays_there(before, after):
    found = question_last([*before, "--", *after], {"-c"})
    assert found == [*before, "--", *after] if after else found == before


WORDS = st.lists(st.sampled_from(["word", "search", "-q", "--json", "-c", "--open", "3", "--"]))


@given(WORDS)
def test_a_command_is_moved_before_options_that_are_not_semlexs(arguments):
    found = command_first(arguments, ["search"], {"-q"})
    assert sorted(found) == sorted(arguments)
    begin = next((place for place, word in enumerate(arguments) if word != "-q"), 0)
    if found != arguments:
        assert arguments[begin].startswith("-")
        assert found[begin] == "search"
        assert [word for word in found if word != "search"] == [word for word in arguments if word != "search"]


@given(WORDS)
def test_open_without_a_number_is_that_of_the_first_hit(arguments):
    found = open_numbered(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert [word.replace("--open=1", "--open") for word in found] == arguments
    assert found[end:] == arguments[end:]
    for word, following in itertools.pairwise([*found[:end], "--"]):
        assert word != "--open" or following == "3"


# --- what is not there ----------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_makes_no_collection(shell):
    assert "no such file or folder" in shell("try", "nope", "key", code=2).stderr
    assert "no such file or folder" in shell("index", "docs", "nope", "-c", "half", code=2).stderr
    assert "--include" in shell("index", "docs/*.rst", code=2).stderr
    assert shell.objects("collections") == []


@pytest.mark.slow
def test_the_only_collection_needs_no_name(shell):
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
INTERRUPT = "from signal import *; signal(SIGINT, default_int_handler); raise_signal(SIGINT)"
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
def test_ctrl_c_while_modules_are_loaded(prepared, tmp_path, name, module):
    (tmp_path / f"{name}.py").write_text(module, encoding="utf-8")
    started = Shell(*prepared, run_fresh)
    started.environment["PYTHONPATH"] = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
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
def test_ctrl_c_is_told_once(handbook, monkeypatch, method, arguments, told):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(synchronous_class(Embeddings) if method == "fill" else SyncRetriever, method, interrupted)
    said = handbook(*arguments, code=130).stderr
    assert said.endswith(told)
    assert said.count("interrupted") == 1


def searches_into(stdout, shell, *searches):
    """Codes and errors of processes that search: what they have buffered they flush at the end of the interpreter."""
    command = [sys.executable, CLIENTS / "forked_commands.py", json.dumps([("search", *one) for one in searches])]
    where = {"env": shell.environment, "cwd": shell.folder, "stdout": stdout}
    return json.loads(subprocess.run(command, **where, stderr=subprocess.PIPE, check=True).stderr)


@pytest.mark.slow
def test_a_closed_pipe_is_quiet(handbook):
    reads, writes = os.pipe()
    os.close(reads)
    assert searches_into(writes, handbook, ["key", "fruit"], ["key", "fruit", "--json"]) == [[1, ""]] * 2
    os.close(writes)


# --- the output -------------------------------------------------------------------------------------------------------


def test_an_excerpt_is_whole_in_a_pipe(narrow):
    [line] = [line for line in narrow("search", "zebra", "-c", "animals").stdout.splitlines() if "zebra" in line]
    assert line.endswith(FILLER.rstrip())


def test_an_excerpt_is_wrapped_on_a_terminal(prepared, monkeypatch):
    screen = io.StringIO()
    console = SafeConsole(
        file=screen, force_terminal=True, width=40, highlight=False, soft_wrap=True, color_system=None
    )
    monkeypatch.setattr(output, "output", console)
    with SyncRetriever(prepared[0], "none", collection="animals") as retriever:
        output.print_results(retriever.search("zebra"), as_json=False)
    lines = screen.getvalue().splitlines()
    assert " ".join(" ".join(lines).split()).count("The zebra eats grass.") == 1
    assert max(len(line) for line in lines if "filler" in line or "zebra" in line) <= 40


def test_fields_of_no_hits_are_no_mistake(narrow):
    for options, printed in (((), "id\trank\n"), (("--no-header",), ""), (("--json",), "")):
        done = narrow("search", "qqq", "-c", "animals", "--fields", "id,rank", *options)
        assert done.stdout == printed


def test_the_next_page_is_told_beside_fields(narrow, tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.md").write_text(f"A zebra, number {number}.\n")
    narrow("index", str(tmp_path), "-c", "zebras")
    done = narrow("search", "zebra", "-c", "zebras", "-k", "2", "--max-results", "4", "--fields", "id")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("next page: ")]
    cursor = line.rpartition(" ")[2]
    assert len(narrow("search", "-c", "zebras", "--after", cursor, "--fields", "id").stdout.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(narrow, unbuffered):
    narrow.environment["PYTHONUNBUFFERED"] = unbuffered
    with FULL.open("w") as full:
        done = searches_into(full, narrow, *(["zebra", "-c", "animals", *one] for one in (["--json"], ["--sql"], [])))
    for code, said in done:
        assert (code, "Traceback" in said) == (1, False)
        assert said.splitlines()[-1] == "error: the output cannot be written: No space left on device"


def test_no_file_at_all_is_told(shell, tmp_path):
    (tmp_path / "empty").mkdir()

    def told(*command):
        said = shell(*command).stderr
        assert "no file that can be read was found" in said
        return said

    assert "was not made" in told("index", "empty", "-c", "animals")
    assert "was not made" in told("try", "empty", "zebra")
    [report] = shell.objects("index", "empty")
    assert (report["added"], report["failed"]) == (0, 0)
    assert shell.objects("collections") == []
    shell("index", "docs", "-c", "animals")
    assert "was not made" not in told("index", "empty", "-c", "animals")


def test_of_many_collections_the_rest_is_counted():
    error = no_such_collection("x", [f"c{number}" for number in range(12)])
    assert isinstance(error, CollectionNotFoundError)
    assert str(error).endswith("c8, c9, and 2 more")


def test_an_explanation_fits_on_a_prompt(prepared):
    with SyncRetriever(prepared[0], "none", collection="animals") as retriever:
        explanation = retriever.search("zebra words about nothing", explain=True).explanation
        for value in (explanation, retriever.why("long.md", "zebra")):
            assert max(map(len, repr(value).splitlines())) <= 118
            assert len(repr(value).splitlines()) <= 11


# --- lines that are given to a command --------------------------------------------------------------------------------

# What `str.splitlines` takes for ends of lines, beside the line feed.
NO_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def piped(shell, text, *arguments, code=0):
    done = run_here(arguments, shell.environment, shell.folder, text)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@given(lines=st.lists(st.text(st.sampled_from(f"a b\t{NO_ENDS}"), max_size=5)), end=st.sampled_from(["\n", "\r\n"]))
def test_lines_end_with_a_line_feed_alone(tmp_path_factory, lines, end):
    file = tmp_path_factory.getbasetemp() / "lines.txt"
    file.write_bytes(end.join(lines).encode())
    assert read_lines(file) == [line for line in lines if line.strip()]


@pytest.mark.slow
def test_valid_json_lines_are_added_whatever_their_texts_hold(handbook, tmp_path):
    texts = [f"one{character}two" for character in NO_ENDS]
    rows = [json.dumps({"content": text, "id": str(n)}, ensure_ascii=False) for n, text in enumerate(texts)]
    rows = [row for row in rows if not any(ord(character) < ord(" ") for character in row)]
    (tmp_path / "rows.jsonl").write_text("\r\n".join(rows), encoding="utf-8", newline="")
    [added] = handbook.objects("documents", "add", str(tmp_path / "rows.jsonl"), "-c", "lines")
    assert len(added["ids"]) == len(rows)
    [shown] = handbook.objects("documents", "show", added["ids"][-1], "-c", "lines")
    assert shown["text"] == texts[int(added["ids"][-1])]


@pytest.mark.slow
def test_texts_are_added_as_they_are(handbook):
    piped(handbook, "  indented \n \nflush\n", "documents", "add", "-", "--texts", "-c", "texts")
    [found, _] = handbook.objects("search", "indented", "-c", "texts")
    assert found["content"] == "  indented "


@pytest.mark.parametrize("arguments", [("documents", "add", "-"), ("jobs", "submit", "index", "--arguments", "-")])
def test_json_that_is_nested_too_deep_is_refused(handbook, arguments):
    deep = '{"content": "x", "metadata": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001 + "\n"
    assert "not JSON" in piped(handbook, deep, *arguments, code=2).stderr


@pytest.mark.slow
def test_a_line_of_the_shell_that_is_no_text_leaves_the_others(handbook):
    text = b"rotate\n\xff\xfe\nbanana\n".decode("utf-8", "surrogateescape")
    done = piped(handbook, text, "shell", "-c", "handbook", "--top-k", "1", code=2)
    assert "docs/keys.md" in done.stdout
    assert "docs/fruit.txt" in done.stdout
    assert done.stderr.count("error: the line is not text in UTF-8") == 1
