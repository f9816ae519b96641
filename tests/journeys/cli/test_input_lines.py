"""Lines that are given to a command: what ends one, what is no text, what is nested too deep, and a file of none."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.cli.options import read_lines
from tests.support.shell import Shell, run_here

# What `str.splitlines` takes for ends of lines, beside the line feed.
NO_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.fixture
def words_alone(shell: Shell) -> Shell:
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    return shell


def piped(shell: Shell, text: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_here(arguments, shell.environment, shell.folder, text)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@given(lines=st.lists(st.text(st.sampled_from(f"a b\t{NO_ENDS}"), max_size=5)), end=st.sampled_from(["\n", "\r\n"]))
def test_lines_end_with_a_line_feed_alone(tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str) -> None:
    file = tmp_path_factory.getbasetemp() / "lines.txt"
    file.write_bytes(end.join(lines).encode())
    assert read_lines(file) == [line for line in lines if line.strip()]


@pytest.mark.slow
def test_valid_json_lines_are_added_whatever_their_texts_hold(words_alone: Shell) -> None:
    texts = [f"one{character}two" for character in NO_ENDS]
    rows = [json.dumps({"content": text, "id": str(n)}, ensure_ascii=False) for n, text in enumerate(texts)]
    rows = [row for row in rows if not any(ord(character) < ord(" ") for character in row)]
    (words_alone.folder / "rows.jsonl").write_text("\r\n".join(rows), encoding="utf-8", newline="")
    [added] = words_alone.objects("documents", "add", "rows.jsonl", "-c", "lines")
    assert len(added["ids"]) == len(rows)
    [shown] = words_alone.objects("documents", "show", added["ids"][-1], "-c", "lines")
    assert shown["text"] == texts[int(added["ids"][-1])]


@pytest.mark.slow
def test_texts_are_added_as_they_are(words_alone: Shell) -> None:
    piped(words_alone, "  indented \n \nflush\n", "documents", "add", "-", "--texts", "-c", "lines")
    [found, _] = words_alone.objects("search", "indented", "-c", "lines")
    assert found["content"] == "  indented "


@pytest.mark.parametrize("arguments", [("documents", "add", "-"), ("jobs", "submit", "index", "--arguments", "-")])
def test_json_that_is_nested_too_deep_is_refused(words_alone: Shell, arguments: tuple[str, ...]) -> None:
    deep = '{"content": "x", "metadata": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001 + "\n"
    assert "not JSON" in piped(words_alone, deep, *arguments, code=2).stderr


def test_a_file_without_questions_is_refused_as_standard_input_is(words_alone: Shell) -> None:
    (words_alone.folder / "none.txt").write_text("\n  \n", encoding="utf-8")
    assert "no question in none.txt" in words_alone("search", "--queries", "none.txt", code=2).stderr
    for arguments in (("--queries", "-"), ("-",)):
        assert "no question on standard input" in piped(words_alone, "\n", "search", *arguments, code=2).stderr


@pytest.mark.slow
def test_a_line_of_the_shell_that_is_no_text_leaves_the_others(words_alone: Shell) -> None:
    words_alone("index", "docs", "-c", "handbook")
    text = b"rotate\n\xff\xfe\nbanana\n".decode("utf-8", "surrogateescape")
    done = piped(words_alone, text, "shell", "-c", "handbook", "--top-k", "1", code=2)
    assert "docs/keys.md" in done.stdout
    assert "docs/fruit.txt" in done.stdout
    assert done.stderr.count("error: the line is not text in UTF-8") == 1
