"""Which files of a folder are read: ignore files are heeded, generated ones left out, and all of it is counted."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.files.discovery import FoundFile, find_files
from semlex.ingest.files.roots import Place, is_below
from semlex.ingest.files.selection import Selection, Skipped
from semlex.ingest.loaders.registry import loaders


def write(root, *uris):
    for uri in uris:
        path = root / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {uri}")


def found(path, skipped=None, include=None):
    selection = Selection(include, [], loaders().keys())
    return [entry.uri for entry in find_files([path], selection, skipped) if isinstance(entry, FoundFile)]


parts = st.lists(st.sampled_from(["a", "b", "ab", "."]), min_size=1, max_size=4).map("/".join)


@given(parts, st.frozensets(parts))
def test_what_is_below_a_path(uri, below):
    assert is_below(uri, below) == any(part in (".", uri) or uri.startswith(f"{part}/") for part in below)


def test_what_is_left_out_is_counted(tmp_path):
    write(tmp_path, "a.md", "b.xyz", "c.xyz", "LICENSE", ".hidden.md", "searchindex.js", "x.min.js", "_build/a.md")
    write(tmp_path, "node_modules/a.js", "ignored.md", "sub/more.md")
    (tmp_path / ".gitignore").write_text("ignored.md\nsub/\n")
    skipped = Skipped()
    assert found(tmp_path, skipped) == ["a.md"]
    assert skipped.by_reason() == {
        "format": {".xyz": 2, "LICENSE": 1},
        "generated": {".js": 2, "_build/": 1, "node_modules/": 1},
        "ignored": {".md": 1, "sub/": 1},
    }
    # What is named is read all the same.
    assert found(tmp_path / "b.xyz") == ["b.xyz"]
    assert found(tmp_path, include=["*.xyz", "x.min.js"]) == ["b.xyz", "c.xyz", "x.min.js"]


def test_a_hostile_or_damaged_file_stops_nothing(tmp_path):
    write(tmp_path, "a.md", "b.md", "c.md", "sub/.gitignore/x.md")
    (tmp_path / ".gitignore").write_bytes(b"!\n\xff\xfe[\nb.md\n\0\n")
    (tmp_path / ".semlexignore").symlink_to("/etc/hostname")
    assert found(tmp_path) == ["a.md", "c.md"]
    write(tmp_path, "a.md", "keep.md", "deep/keep.md", "deep/b.md", "deep/er/c.md", "deep/er/keep.md")
    (tmp_path / ".gitignore").write_text("*.md\n!keep.md\n")
    (tmp_path / "deep" / ".semlexignore").write_text("!b.md\n/keep.md\n")
    assert found(tmp_path) == ["keep.md", "deep/b.md", "deep/er/keep.md"]
    assert found(Place(tmp_path / "deep", tmp_path, "docs")) == ["deep/b.md", "deep/er/keep.md"]
    write(tmp_path, "a.md", "out/b.md", "out/deep/c.md")
    (tmp_path / ".gitignore").write_text("out/\n")
    skipped = Skipped()
    for folder in ("out", "out/deep"):
        assert found(Place(tmp_path / folder, tmp_path, "docs"), skipped) == []
    assert skipped.by_reason() == {"ignored": {"out/": 2}}


NAMES = ("a", "b", "c.md", "d.txt")
KNOWN = """a b/ *.md !c.md /a a/b **/b a/** d.t?t #no [cd].md * !a/ !*/ */ a*b ** a/**/d.txt **/a/** a/**/ */b/*.md
c.m\\d [!c].md [^d].txt [b-d].md [d-b].md []c].md [[:alpha:]].md [c [[:no:]].md \\!a \\"""
# A slash in brackets is not among them: git reads it as a character, which no name has.
MADE = st.text("abcdmtx.*?[]!^-/\\ #:", max_size=6).filter(lambda line: not re.search(r"\[[^]]*/", line))
PATTERNS = st.one_of(st.sampled_from([*KNOWN.split(), "", "d.txt ", "b\\ "]), MADE)


@pytest.mark.slow
@given(st.lists(PATTERNS, max_size=5), st.lists(PATTERNS, max_size=3))
def test_what_git_ignores_is_ignored(tmp_path_factory, top, below):
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    files = [f"{x}{y}{z}" for x in ("", "a/", "b/") for y in ("", "a/", "b/") for z in ("c.md", "d.txt")]
    write(root, *dict.fromkeys(files))
    (root / ".gitignore").write_text("\n".join(top))
    (root / "a" / ".gitignore").write_text("\n".join(below))
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert sorted(found(root)) == sorted(uri for uri in listed if not uri.endswith(".gitignore"))


def test_a_hostile_pattern_takes_no_longer_than_another(tmp_path):
    for pattern in ["*a" * 100 + "b", "**/a/" * 100 + "b", "a*" * 100 + "/b", "[a-z]*" * 50 + "?b"]:
        write(tmp_path, "a" * 200 + ".md", "a/" * 60 + "x.md")
        (tmp_path / ".gitignore").write_text(f"{pattern}\n")
        assert len(found(tmp_path)) == 2
