"""Places of hits in an editor."""

import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.cli import editor
from semlex.errors import ConfigurationError
from semlex.types.results import SearchResult


@pytest.mark.parametrize(("named", "expected"), [
    ("vim", ["vim", "+7", "/d/a b.md"]),
    ("/usr/bin/nano -l", ["/usr/bin/nano", "-l", "+7", "/d/a b.md"]),
    ("emacsclient -n", ["emacsclient", "-n", "+7", "/d/a b.md"]),
    ("code --wait", ["code", "--wait", "-g", "/d/a b.md:7"]),
    ("less", ["less", "/d/a b.md"]),
    ("'/opt/my editor/run'", ["/opt/my editor/run", "/d/a b.md"]),
])  # fmt: skip
def test_how_editors_are_told_a_line(named, expected, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", named)
    assert editor.editor_command(editor._editor(), Path("/d/a b.md"), 7) == expected
    assert editor.editor_command(["vim"], Path("/d/a"), None) == ["vim", "/d/a"]


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20))
def test_a_path_is_one_argument_whatever_is_in_it(name):
    path = Path("/folder") / name
    for program in ("vim", "less", "code"):
        *_, last = editor.editor_command([program], path, 3)
        assert last.removesuffix(":3") == str(path)
        assert last.startswith("/")


def test_no_shell_reads_the_path(tmp_path, monkeypatch):
    file = tmp_path / "$(touch made); a.md"
    file.write_text("one\ntwo\n")
    seen = tmp_path / "seen"
    program = tmp_path / "editor.py"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'w').write('|'.join(sys.argv[1:]))\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(program))
    hit = SearchResult("two", id="a", root=str(tmp_path), source_document=file.name, line=2)
    editor.open_hit([hit], 1)
    assert seen.read_text() == str(file)
    assert not (tmp_path / "made").exists()


def test_what_cannot_be_opened_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "no-such-editor")
    (tmp_path / "a.md").touch()
    there = SearchResult("x", id="x", root=str(tmp_path), source_document="a.md")
    gone = SearchResult("x", id="x", root=str(tmp_path), source_document="b.md")
    for hits, number, said in (
        ([], 1, "nothing was found"),
        ([there], 2, "no hit 2 to open: there are hits 1 to 1"),
        ([SearchResult("x", id="added")], 1, "semlex documents show added"),
        ([gone], 1, r"the file .*b\.md is gone: semlex documents show x"),
        ([there], 1, "no-such-editor cannot be run"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            editor.open_hit(hits, number)
    for named, said in (("", "export EDITOR=vim"), ("'vim", "a quote is not closed"), ("false", "ended with code 1")):
        monkeypatch.setenv("EDITOR", named)
        with pytest.raises(ConfigurationError, match=said):
            editor.open_hit([there], 1)


def test_a_pdf_is_opened_at_its_page_or_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = Path("/d/a.pdf")
    with pytest.raises(
        ConfigurationError, match=r"cannot show /d/a.pdf: open it in its own program at p. 36; programs"
    ):
        editor.viewer_command(path, "p. 36", 36)
    okular = tmp_path / "okular"
    okular.write_text("#!/bin/sh\n")
    okular.chmod(0o755)
    assert editor.viewer_command(path, "p. 36", 36) == [str(okular), "--page", "36", "/d/a.pdf"]
    with pytest.raises(ConfigurationError, match=r"own program at sheet Prices, row 4$"):
        editor.viewer_command(Path("/d/a.xlsx"), "sheet Prices, row 4", None)
