"""The help: panels, examples that can be typed, output options of every command, names in messages, completion."""

import shlex
import threading

import pytest
import typer

from semlex.cli import options
from semlex.cli.groups import COMMANDS, OPTIONS
from semlex.cli.manual import EXAMPLES, PANELS, WITHOUT_COLLECTION, WITHOUT_SERVER, set_server, with_server
from semlex.cli.options import COMMON, flag_of
from semlex.options.declare import declared
from semlex.options.indexing import JobOptions, ReadOptions, RechunkOptions
from semlex.retriever.options import FileOptions, SyncOptions
from tests.support.command_tree import MAIN, NAMES_OF_HELP, RUNNABLE, TREE, is_group, parse
from tests.support.shell import Shell
from tests.support.waiting import LIMIT


@pytest.fixture
def no_server(tmp_path):
    return Shell("postgresql://127.0.0.1:1/x", tmp_path)


def test_every_command_has_its_panel_and_its_example():
    assert set(EXAMPLES) == set(TREE)
    assert [len(names) for names in PANELS.values()] == [11, 8, 7]
    assert [one.rich_help_panel for one in MAIN.commands.values()] == [
        panel for panel, names in PANELS.items() for _ in names
    ]


def test_the_list_of_commands_has_the_beginning_of_each_help():
    for name, command in MAIN.commands.items():
        listed = MAIN.get_command(None, name)
        assert (listed.help, listed.rich_help_panel) == (command.help.split("\n\n")[0], command.rich_help_panel)


def test_the_help_shows_panels_in_order_and_ends_with_an_example(no_server):
    text = no_server("--help").stdout
    places = [text.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    for name in ("search", "documents move", "jobs", "eval tune"):
        lines = no_server(*name.split(), "--help").stdout.split("Example:")[-1].split()
        assert lines == EXAMPLES[name].split()


def test_common_options_are_folded_to_their_names(no_server):
    for line in ("search", "jobs", "serve"):
        brief, whole = no_server(line, "--help").stdout, no_server(line, "--help", "-v").stdout
        assert f"─ {COMMON} ─" in whole
        assert "Folder for the data" not in brief
        assert f"{COMMON}, described by semlex {line} --help -v: " in " ".join(brief.split())
        assert all("--data-dir" in text for text in (brief, whole))


def test_a_group_has_the_options_of_what_it_does_without_a_command(no_server):
    for group, option in (("jobs", "--state"), ("doctor", "--reranker"), ("serve", "--port"), ("eval", "--fusion")):
        assert option in no_server(group, "--help").stdout
    assert "Usage: semlex maintain" in no_server("maintain").stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_can_be_typed(name):
    words = shlex.split(EXAMPLES[name])[1:]
    depth = len(name.split())
    assert words[:depth] == name.split()
    rest = words[depth:]
    name = f"{name} {default}" if (default := getattr(TREE[name], "default", None)) else name
    if rest == ["--help"]:
        assert is_group(TREE[name])
        return
    parse(name, rest)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("index", FileOptions),
        ("sync", SyncOptions),
        ("documents preview", ReadOptions),
        ("try", ReadOptions),
        ("maintain rechunk", RechunkOptions),
        ("jobs submit", JobOptions),
    ],
)
def test_declared_options_are_flags_with_their_texts(name, options):
    flags = {flag: param.help for param in RUNNABLE[name].params for flag in param.opts}
    for one in declared(options).values():
        if one.option.offered and one.name != "enrichment":  # --enrich is a setting
            assert one.option.text.split(". ")[0] in flags[flag_of(one.name)]


def flags(name):
    return {flag for param in RUNNABLE[name].params for flag in param.opts}


def test_every_command_has_the_options_of_the_output():
    silent = ("config init", "config trust", "config untrust", "serve token add", "serve token remove")
    printing = {name for name in RUNNABLE if not name.startswith(silent)}
    assert {name for name in printing if "--json" not in flags(name)} == set()
    without_fields = {name for name in printing if not {"--fields", "--header"} <= flags(name)}
    assert without_fields <= {"config show", "serve token list"}  # their own; --json has their objects


def test_suggestions_lead_to_what_there_is():
    assert set(OPTIONS.values()) <= set().union(*map(flags, RUNNABLE))
    assert not COMMANDS.keys() & MAIN.commands.keys()
    for names in COMMANDS.values():
        for name in names:
            assert name.split(" --")[0] in TREE


# --- commands in messages -------------------------------------------------------------------------------------------


def test_a_command_in_a_message_names_the_server_that_was_given(tmp_path):
    text = "semlex documents move a b, semlex delete --source docs; semlex config; semlex indexes; "
    text += "semlex documents preview f; semlex postgres stop"
    set_server(None, None)  # another test of this process may have noted one
    assert with_server(text) == text
    try:
        set_server(None, tmp_path / "a b")
        named = f"--data-dir '{tmp_path}/a b'"
        assert with_server(text) == (
            f"semlex documents move {named} a b, semlex delete {named} --source docs; semlex config; semlex indexes; "
            f"semlex documents preview f; semlex postgres stop {named}"
        )
        set_server(None, None, "c")
        text = "semlex models fill; semlex collections drop c; semlex index x --collection d; semlex doctor"
        assert with_server(text) == f"{text} --collection c"
        assert with_server("next page: semlex search --after A") == "next page: semlex search --collection c --after A"
        set_server("postgresql://u:secret@h/d", None)
        expected = "semlex models fill --database …, semlex postgres stop"
        assert with_server("semlex models fill, semlex postgres stop") == expected
    finally:
        set_server(None, None)


def test_commands_in_messages_get_only_options_that_they_have():
    has_server = {name for name in RUNNABLE if {"--data-dir", "--database"} <= flags(name)}
    assert has_server == {name for name in RUNNABLE if not name.startswith((*WITHOUT_SERVER, "postgres"))}
    assert {name for name in has_server if "--collection" in flags(name)} == has_server.difference(WITHOUT_COLLECTION)


@pytest.mark.slow
def test_a_remedy_works_as_it_is_printed(shell):
    url = shell.environment.pop("DATABASE_URL")
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    shell("index", "docs", "-c", "c", "--database", url)
    (shell.folder / "docs" / "fruit.txt").unlink()
    note = shell("index", "docs", "-c", "c", "--database", url).stderr
    command = note.split("until deleted: ")[1].split("\n")[0]
    assert command == "semlex delete --database … --collection c --source docs --vanished"
    done = shell(*shlex.split(command.replace("…", shlex.quote(url)))[1:], "--yes")
    assert "1 chunk deleted" in done.stderr


# --- completion -----------------------------------------------------------------------------------------------------


def complete(shell, *words):
    shell.environment |= {
        "_SEMLEX_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(("semlex", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return shell().stdout.split()


def test_names_are_completed_from_the_server(shell, monkeypatch):
    monkeypatch.setattr(options, "LIMIT_SECONDS", LIMIT)
    shell("index", "docs", "-c", "handbook", "--model", "none")
    assert complete(shell, "search", "--collection", "h") == ["handbook"]
    assert complete(shell, "collections", "drop", "hand") == ["handbook"]
    assert complete(shell, "documents", "--source", "d") == ["docs"]
    assert complete(shell, "fields", "facets", "@source_d") == ["@source_document"]
    assert complete(shell, "collections", "drop", "x") == []


def test_a_server_that_does_not_answer_completes_nothing(no_server, monkeypatch):
    assert complete(no_server, "collections", "drop", "h") == []
    answers = threading.Event()
    monkeypatch.setattr(options, "LIMIT_SECONDS", 0.0)
    monkeypatch.setattr(options, "_read", lambda *_: ["handbook"] if answers.wait(LIMIT) else [])
    assert complete(no_server, "collections", "drop", "h") == []
    answers.set()


def test_an_embedded_server_is_not_started_for_a_key_press(no_server):
    del no_server.environment["DATABASE_URL"]
    no_server.environment["SEMLEX_DATA_DIR"] = str(no_server.folder / "data")
    assert complete(no_server, "collections", "drop", "h") == []
    assert not (no_server.folder / "data").exists()


def test_a_flag_has_no_value_in_the_help():
    for command in (MAIN, *TREE.values()):
        options = command.get_params(typer.Context(command, **NAMES_OF_HELP))
        without_value = [one for one in options if getattr(one, "is_flag", False)]
        assert "--help" in {option for one in without_value for option in one.opts}, command.name
        assert {one.metavar for one in without_value} == {""}, command.name


@pytest.mark.slow
def test_no_help_shows_a_kind_of_value_for_flags(no_server):
    for name in ("", "search", "jobs", "jobs show", "serve token add"):
        assert "bool" not in no_server(*name.split(), "--help").stdout.lower()
