"""What is printed where a terminal is narrow, a disk is full, or nothing was found."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from semlex import SyncRetriever
from semlex.cli import output
from semlex.cli.terminal import SafeConsole
from semlex.errors import CollectionNotFoundError
from semlex.store.schema.locks import no_such_collection
from tests.support.shell import Shell

FULL = Path("/dev/full")
FILLER = "filler words about nothing much at all. "
LONG = f"{FILLER * 4}The zebra eats grass. {FILLER * 3}"


@pytest.fixture
def long_line(shell: Shell, tmp_path: Path) -> Shell:
    shell.environment |= {"SEMLEX_EMBEDDING_MODEL": "none", "COLUMNS": "40"}
    (tmp_path / "long.md").write_text(f"# Animals\n\n{LONG}\n")
    shell("index", str(tmp_path / "long.md"), "-c", "animals")
    return shell


def test_an_excerpt_is_whole_in_a_pipe(long_line: Shell) -> None:
    [line] = [line for line in long_line("search", "zebra", "-c", "animals").stdout.splitlines() if "zebra" in line]
    assert line.endswith(FILLER.rstrip())


def test_an_excerpt_is_wrapped_on_a_terminal(long_line: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = SafeConsole(
        file=screen, force_terminal=True, width=40, highlight=False, soft_wrap=True, color_system=None
    )
    monkeypatch.setattr(output, "output", console)
    with SyncRetriever(long_line.environment["DATABASE_URL"], "none", collection="animals") as retriever:
        output.print_results(retriever.search("zebra"), as_json=False)
    lines = screen.getvalue().splitlines()
    assert " ".join(" ".join(lines).split()).count("The zebra eats grass.") == 1
    assert max(len(line) for line in lines if "filler" in line or "zebra" in line) <= 40


def test_fields_of_no_hits_are_no_mistake(long_line: Shell) -> None:
    for options, printed in (((), "id\trank\n"), (("--no-header",), ""), (("--json",), "")):
        done = long_line("search", "qqq", "-c", "animals", "--fields", "id,rank", *options)
        assert done.stdout == printed


def test_the_next_page_is_told_beside_fields(long_line: Shell, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.md").write_text(f"A zebra, number {number}.\n")
    long_line("index", str(tmp_path), "-c", "animals")
    done = long_line("search", "zebra", "-c", "animals", "-k", "2", "--max-results", "4", "--fields", "id")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("next page: ")]
    cursor = line.rpartition(" ")[2]
    assert len(long_line("search", "-c", "animals", "--after", cursor, "--fields", "id").stdout.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("options", [["--json"], ["--sql"], []])
def test_a_full_disk_is_one_line(long_line: Shell, options: list[str], unbuffered: str) -> None:
    long_line.environment["PYTHONUNBUFFERED"] = unbuffered
    command = [sys.executable, "-m", "semlex", "search", "zebra", "-c", "animals", *options]
    with FULL.open("w") as full:
        done = subprocess.run(
            command, env=long_line.environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


def test_no_file_at_all_is_told(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (("index", str(tmp_path / "empty"), "-c", "animals"), ("try", str(tmp_path / "empty"), "zebra")):
        told = shell(*command).stderr
        assert "no file that can be read was found" in told
        assert "was not made" in told
    [report] = shell.objects("index", str(tmp_path / "empty"))
    assert (report["added"], report["failed"]) == (0, 0)
    assert shell.objects("collections") == []
    shell("index", "docs", "-c", "animals")
    told = shell("index", str(tmp_path / "empty"), "-c", "animals").stderr
    assert "no file that can be read was found" in told
    assert "was not made" not in told


def test_of_many_collections_the_rest_is_counted() -> None:
    error = no_such_collection("x", [f"c{number}" for number in range(12)])
    assert isinstance(error, CollectionNotFoundError)
    assert str(error).endswith("c8, c9, and 2 more")


def test_options_of_a_shell_are_checked_before_it_opens(shell: Shell) -> None:
    assert "'--mode': must be vector, keyword or hybrid; got 'x'" in shell("shell", "--mode", "x", code=2).stderr
    assert "--top-k must be between 1 and 1,000; got 0" in shell("shell", "--top-k", "0", code=2).stderr


def test_an_explanation_fits_on_a_prompt(long_line: Shell) -> None:
    def check(retriever: SyncRetriever) -> None:
        explanation = retriever.search("zebra words about nothing", explain=True).explanation
        for value in (explanation, retriever.why("long.md", "zebra")):
            assert max(map(len, repr(value).splitlines())) <= 118
            assert len(repr(value).splitlines()) <= 11

    with SyncRetriever(long_line.environment["DATABASE_URL"], "none", collection="animals") as opened:
        check(opened)
